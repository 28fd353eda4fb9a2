"""`gf.tree`: functions of nested tuples, lists and dicts."""

from __future__ import annotations

import operator
import pickle
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, GraphfwError


class Pair(NamedTuple):
    first: Any
    second: Any


TREES = [
    1,
    None,
    [],
    {"b": 1, "a": [2, (3, None)]},
    Pair({3: 1}, [2, Pair(3, None)]),
    OrderedDict([("x", (1,)), ("y", ())]),
    [[[]], {}, (), {"k": None}],
]


@pytest.mark.smoke
@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_what_is_flattened_is_made_again(tree: Any):
    leaves, structure = gf.tree.flatten(tree)
    assert leaves == gf.tree.leaves(tree)
    assert None not in leaves
    again = gf.tree.unflatten(structure, iter(leaves))
    assert again == tree == gf.tree.map(lambda leaf: leaf, tree)
    assert gf.tree.structure(again) == structure == gf.tree.structure(tree)
    assert structure.num_leaves == len(leaves)
    assert pickle.loads(pickle.dumps(structure)) == structure
    assert {structure: 1}[gf.tree.structure(again)] == 1


def test_structures_of_other_trees_differ():
    structures = [gf.tree.structure(tree) for tree in TREES]
    assert len(set(structures)) == len(TREES)
    assert gf.tree.structure([1, 2]) != gf.tree.structure((1, 2))
    assert gf.tree.structure({1: 2}) != gf.tree.structure({True: 2})
    assert gf.tree.structure([]) != []
    assert repr(gf.tree.structure(Pair([1, None], {"x": 2}))) == (
        "TreeStructure(Pair(first=[*, None], second={'x': *}))"
    )


def test_map_agrees_with_jax():
    tree = pytest.importorskip("jax").tree
    one = {"a": [1, (2, 3)], "b": Pair(4, None)}
    two = {"b": Pair(40, None), "a": [10, (20, 30)]}
    assert gf.tree.map(operator.add, one, two) == tree.map(operator.add, one, two)
    assert gf.tree.leaves(one) == tree.leaves(one)


def test_map_takes_dicts_by_key_and_keeps_the_order_of_the_first():
    found = gf.tree.map(lambda *leaves: leaves, {"b": 1, "a": 2}, {"a": 20, "b": 10})
    assert list(found.items()) == [("b", (1, 10)), ("a", (2, 20))]
    assert gf.tree.map(lambda leaf: None, [1, 2]) == [None, None]


def test_tensors_of_gradients():
    params = {"w": gf.asarray([1.0, 2.0]), "b": [gf.asarray(3.0)]}
    grads = gf.grad(gf.sum(params["w"] ** 2) * params["b"][0], params)
    moved = gf.tree.map(lambda p, g: p - 0.5 * g, params, grads)
    np.testing.assert_allclose(moved["w"].numpy(), [-2.0, -4.0])
    np.testing.assert_allclose(moved["b"][0].numpy(), 0.5)


WRONG = {
    "keys": (({"x": [1, {"k": 2}]}, {"x": [1, {"j": 2}]}), r"tree\['x'\]\[1\] is a dict of \['k'"),
    "length": (([1, (2, 3)], [1, (2,)]), r"tree\[1\] is a tuple of 2, and in rest\[0\] it is one"),
    "none": (([None], [1]), r"tree\[0\] is None, and in rest\[0\] it is a leaf"),
    "leaf": ((Pair(1, 2), Pair(1, 2), Pair(1, [2])), r"tree\.second is a leaf, and in rest\[1\]"),
    "kind": (([1], (1,)), "tree is a list, and in rest.0. it is a tuple"),
    "class": ((Pair(1, 2), (1, 2)), "tree is a Pair, and in rest.0. it is a tuple"),
}


@pytest.mark.parametrize("name", WRONG)
def test_trees_of_different_structures(name: str):
    trees, message = WRONG[name]
    with pytest.raises(ArgumentError, match=message):
        gf.tree.map(lambda *leaves: leaves, *trees)


def test_mistakes():
    with pytest.raises(ArgumentError, match="fn is a list, not a function"):
        gf.tree.map([1], lambda leaf: leaf)
    structure = gf.tree.structure([1, (2,)])
    for leaves in ([1], [1, 2, 3]):
        with pytest.raises(ArgumentError, match=r"and the structure has 2\n.*\n.*\[\*, \(\*,\)\]"):
            gf.tree.unflatten(structure, leaves)
    with pytest.raises(ArgumentError, match="structure is a list"):
        gf.tree.unflatten([1], [2])
    with pytest.raises(GraphfwError, match=r"fix  gf\.tree\.map\(lambda"):
        gf.tree_map(lambda leaf: leaf, [1])
