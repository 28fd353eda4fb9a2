"""Mixed precision: what it knows of each op, and that each computes with 16 bits."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.dtype import bfloat16, float32
from graphfw.ir.op import EFFECT, REGISTRY
from graphfw.ir.rebuild import derive
from graphfw.ops.control.region_op import Region
from graphfw.passes.mixed_policy import _WIDE_OPERANDS, KINDS, VIEWS, PrecisionKind
from graphfw.passes.values import SampleInputs, evaluated
from tests.support.mixed_graphs import mixed
from tests.support.samples import declared


def test_every_name_in_the_table_is_an_op():
    assert set(KINDS) <= set(REGISTRY)
    assert {view for view in VIEWS if KINDS[view.name] is not PrecisionKind.FOLLOWS} == set()
    for name, operands in _WIDE_OPERANDS.items():
        assert operands <= set(REGISTRY[name].labels)


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
        kind = KINDS.get(sample.op.name, PrecisionKind.WIDE)
        if kind is not PrecisionKind.WIDE:  # read in 16 bits, or they would be computed in float32
            first, *others = outputs
            if first.dtype is float32:
                first = gf.identity(gf.identity(first), name="low")
            outputs = [first, *others]
    found, _ = mixed(g, outputs, {"low*": "bfloat16"})
    feeds = {t.node: a for t, a in zip(given, arrays, strict=True)}
    values = evaluated(found, SampleInputs(feeds, {}))
    if kind is not PrecisionKind.WIDE:
        inside = [n for n in found.nodes if n.op.name == sample.op.name]
        assert bfloat16 in {t.dtype for n in inside for t in n.inputs}
    expected = evaluated(derive(g, outputs), SampleInputs(feeds, {}))
    for value, wanted in zip(values, expected, strict=True):
        assert value.dtype == wanted.dtype
        is_wide = kind is PrecisionKind.WIDE and not isinstance(sample.op, Region)
        if is_wide or not np.issubdtype(wanted.dtype, np.floating):
            np.testing.assert_array_equal(value, wanted)
        else:
            scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
            np.testing.assert_allclose(value, wanted, rtol=2e-2, atol=2e-2 * scale)
