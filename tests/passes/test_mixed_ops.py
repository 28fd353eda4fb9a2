"""Mixed precision: what it knows of each op, and that each computes with 16 bits."""

from typing import get_args

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.dtype import bfloat16, float32
from graphfw.ir.op import EFFECT, NONDIFF, REGISTRY, MixedKind
from graphfw.ir.rebuild import derive
from graphfw.ir.shape import require
from graphfw.ops.control.checkpoint_ops import FirstInputs
from graphfw.ops.control.region_op import Region
from graphfw.passes.mixed_policy import VIEWS
from graphfw.passes.values import SampleInputs, evaluated
from tests.support.mixed_graphs import mixed
from tests.support.samples import declared


def test_what_ops_say():
    for name, cls in REGISTRY.items():
        assert cls.mixed_precision in get_args(MixedKind)
        assert cls.wide_operands <= set(cls.labels), name
        if cls.mixed_precision == "passes":  # each output is an input
            assert issubclass(cls, FirstInputs)
    assert {view.mixed_precision for view in VIEWS} == {"follows"}


SAMPLES = [
    one
    for one in declared(lambda op, case: case.error is None)
    if any(t.dtype is float32 for t in one.types) and EFFECT not in one.op.traits
]


@pytest.mark.parametrize("one", SAMPLES, ids=str)
def test_every_op_computes_with_inputs_of_16_bits(one, rng):
    sample = one.bound()
    arrays = [
        np.asarray(a).astype(bfloat16.dtype).astype(np.float32) if a.dtype == np.float32 else a
        for a in sample.draw(rng)
    ]
    with gf.Graph() as g:
        given = [gf.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(sample.types)]
        # By an override these have 16 bits, and hold the same numbers.
        rounded = [gf.identity(t, name=f"low{i}") for i, t in enumerate(given)]
        outputs = emit_all(sample.op, *rounded)
        kind = sample.op.mixed_precision
        if kind != "wide":  # read in 16 bits, or they would be computed in float32
            first, *others = outputs
            if first.dtype is float32:
                first = gf.identity(gf.identity(first), name="low")
            outputs = [first, *others]
    found, _ = mixed(g, outputs, {"low*": "bfloat16"})
    feeds = {t.node: a for t, a in zip(given, arrays, strict=True)}
    values = evaluated(found, SampleInputs(feeds, {}))
    if kind != "wide":
        inside = [n for n in found.nodes if n.op.name == sample.op.name]
        assert bfloat16 in {t.dtype for n in inside for t in n.inputs}
    expected = evaluated(derive(g, outputs), SampleInputs(feeds, {}))
    for value, wanted in zip(values, expected, strict=True):
        assert value.dtype == wanted.dtype
        is_wide = kind == "wide" and not isinstance(sample.op, Region)
        if is_wide or not np.issubdtype(wanted.dtype, np.floating):
            np.testing.assert_array_equal(value, wanted)
        else:
            scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
            np.testing.assert_allclose(value, wanted, rtol=2e-2, atol=2e-2 * scale)


def defined(kind, takes=lambda dtype: True, **facts):
    """An op of another package: the weighted sum of x and y."""

    class Blend(gf.Op):
        mixed_precision = kind
        vjp = NONDIFF

        def shape(self, x, y):
            return x

        def dtype(self, x, y):
            require(takes(x), f"wants no {x.name}", error=gf.DTypeError)
            return x

        def eval(self, xp, x, y):
            return x + y.astype(x.dtype)

    for name, value in facts.items():
        setattr(Blend, name, value)
    return gf.op("mixed_ops.blend")(Blend)


@pytest.fixture
def blend():
    yield defined
    REGISTRY.pop("mixed_ops.blend", None)


@pytest.mark.parametrize(
    ("kind", "facts", "dtypes"),
    [
        ("wide", {}, ["float32", "float32"]),
        ("narrow", {}, ["bfloat16", "bfloat16"]),
        ("narrow", {"wide_operands": frozenset({"y"})}, ["bfloat16", "float32"]),
    ],
)
def test_an_op_of_another_package_says_what_it_computes_in(kind, facts, dtypes, blend):
    op = blend(kind, **facts)()
    with gf.Graph() as g:
        x, y = gf.placeholder((3,), name="x"), gf.placeholder((3,), name="y")
        outputs = [gf.apply(op, x, y)]
    found, _ = mixed(g, outputs)
    (node,) = [node for node in found.nodes if node.op == op]
    assert [t.dtype.name for t in node.inputs] == dtypes


def test_an_op_whose_rule_takes_no_16_bits_is_told_of(blend):
    op = blend("narrow", lambda dtype: dtype is float32)()
    with gf.Graph() as g:
        outputs = [gf.apply(op, *[gf.placeholder((3,), name=name) for name in "xy"])]
    with pytest.raises(gf.GraphError, match="is 'narrow', and it can't be bfloat16") as caught:
        mixed(g, outputs)
    assert 'mixed_precision = "wide"' in caught.value.fix


def test_what_an_op_can_not_say(blend):
    with pytest.raises(gf.GraphError, match="its mixed_precision is 'narow'") as caught:
        blend("narow")
    assert caught.value.fix == 'did you mean "narrow"?'
    with pytest.raises(gf.GraphError, match="wide_operands has 'z'"):
        blend("narrow", wide_operands=frozenset({"z"}))
