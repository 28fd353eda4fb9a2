"""The forms in which fetches come, and in which their values go back."""

from collections import OrderedDict, namedtuple
from typing import NamedTuple

import pytest

from graphfw.utils import nest

Pair = namedtuple("Pair", "first second")


class Typed(NamedTuple):
    loss: object
    terms: object


A, B, C = object(), object(), object()

STRUCTURES = [
    A,
    "a name",
    [],
    (),
    {},
    [A],
    (A,),
    [A, A],
    (A, [B, {"c": C}]),
    {"a": A, "b": (B, [C])},
    {3: A, "x": [], None: ()},
    Pair(A, Pair(B, [C])),
    Typed(loss=A, terms={"x": B}),
    [[[[A]]]],
]


@pytest.mark.parametrize("structure", STRUCTURES, ids=range(len(STRUCTURES)))
def test_what_is_taken_apart_is_put_together_again(structure):
    leaves = list(nest.leaves(structure))
    packed = nest.packer(structure)(iter(leaves))
    assert packed == structure
    assert type(packed) is type(structure)


def test_leaves_come_in_reading_order():
    assert list(nest.leaves({"b": A, "a": (B, [C, "n"])})) == [A, B, C, "n"]


def test_values_take_the_leaves_places():
    packed = nest.packer(Pair([A, B], {"k": C}))(iter([1, None, 3]))
    assert packed == Pair([1, None], {"k": 3})
    assert isinstance(packed, Pair)


def test_a_packer_can_be_used_again():
    pack = nest.packer([A, (B, C)])
    assert pack(iter("xyz")) == ["x", ("y", "z")]
    assert pack(iter("uvw")) == ["u", ("v", "w")]


def test_a_dict_keeps_its_order():
    assert list(nest.packer({"z": A, "a": B})(iter([1, 2]))) == ["z", "a"]
    assert list(nest.packer(OrderedDict(z=A, a=B))(iter([1, 2]))) == ["z", "a"]


def test_keys_are_equal_for_equal_structures_of_the_same_leaves():
    for structure in STRUCTURES:
        again = nest.packer(structure)(nest.leaves(structure))
        assert nest.key(structure, str) == nest.key(again, str)
        hash(nest.key(structure, str))


def test_keys_tell_all_structures_apart():
    different = [
        *STRUCTURES,
        *(B, [B], [A, B], (A, B), [[A], B], [A, [B]], Pair(A, B), Typed(A, B)),
        *({"a": A}, {"b": A}, {"a": B}, {"a": A, "b": B}, {"b": B, "a": A}),
        *(("dict", ("a",), (A,)), "another", ["a name"]),
    ]
    keys = [nest.key(structure, str) for structure in different]
    assert len(set(keys)) == len(different)


def test_paths_lead_to_the_leaves():
    structure = {"a": [A, (B,)], 3: Typed(loss=C, terms={}), "x": Pair(A, [B])}
    found = dict(nest.paths(structure, "xs"))
    assert list(found) == [
        "xs['a'][0]",
        "xs['a'][1][0]",
        "xs[3].loss",
        "xs['x'].first",
        "xs['x'].second[0]",
    ]
    assert list(found.values()) == list(nest.leaves(structure))
    for path, leaf in found.items():
        assert eval(path, {"xs": structure}) is leaf
    assert list(nest.paths(A, "xs")) == [("xs", A)]
