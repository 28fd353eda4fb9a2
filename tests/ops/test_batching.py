"""Batch rules: each op on many inputs at once gives what it gives for each."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from graphfw.ir.body import closed, trace
from graphfw.ir.build import emit_all
from graphfw.ir.dim import symbol
from graphfw.ir.dtype import as_dtype
from graphfw.ir.op import MEASURES, RANDOM
from graphfw.ir.types import TensorType
from graphfw.ops.batching import rule_of
from graphfw.transforms.vmap import vmap
from tests.support.grouped import family, grouped
from tests.support.samples import OWN, RNG, Declared, declared, draw

WITHOUT = {
    *("placeholder", "variable", "constant", "arange", "axis_index", "connected", "dim_value"),
    *("attention_backward", "fused_product", "pixel_conv", "pixel_conv_weight"),
    *("pack_bits", "unpack_bits"),
}
"""Ops without inputs that give all lanes the same; and those that passes make behind all others."""

CASES = list(
    declared(lambda op, case: case.error is None and bool(case.types) and op.name not in WITHOUT)
)


def check_close(actual: Any, expected: Any) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    dtype = as_dtype(actual.dtype)
    if not dtype.is_inexact:
        np.testing.assert_array_equal(actual, expected)
        return
    rtol = 2e-2 if dtype.is_low_precision else 2e-5
    wide = np.complex128 if dtype.is_complex else np.float64
    actual, expected = actual.astype(wide), expected.astype(wide)
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * scale)


def mixtures(count: int) -> list[tuple[bool, ...]]:
    """Return which inputs are batched: every mixture, of many inputs some."""
    found = [flags for flags in itertools.product((True, False), repeat=count) if any(flags)]
    if count <= 3:
        return found
    alone = [tuple(i == index for i in range(count)) for index in range(count)]
    return [found[0], *alone, *[tuple(not flag for flag in flags) for flags in alone]]


def test_every_op_has_a_rule():
    missing = [
        name
        for name, op in OWN.items()
        if name not in WITHOUT and MEASURES not in op.traits and rule_of(op.__new__(op)) is None
    ]
    assert missing == []


@grouped("case", CASES, family)
def test_lanes_are_independent(case: Declared, rng: np.random.Generator):
    """With symbolic dims where the case has some, and a symbolic number of lanes."""
    mapped_axis = symbol("lanes")
    sample = case.bound()
    for flags in mixtures(len(case.types)):
        axes = tuple([0 if flag else None for flag in flags])

        def mapped(*tensors: Any, axes: Any = axes) -> Any:
            return vmap(lambda *xs: emit_all(case.op, *xs), axes)(*tensors)

        kinds = [
            TensorType(t.dtype, (mapped_axis, *t.shape)) if flag else t
            for t, flag in zip(case.types, flags, strict=True)
        ]
        (body,), _ = closed(trace("test", mapped, kinds))
        symbolic = case.op.infer(*case.types)
        assert [t.type for t in body.outputs] == [
            TensorType(t.dtype, (mapped_axis, *t.shape)) for t in symbolic
        ]
        for size in (3, 1, 0):
            given = [
                np.stack([draw(t, case.case, rng) for _ in range(size)])
                if flag and size
                else draw(t, case.case, rng)
                for t, flag in zip(sample.types, flags, strict=True)
            ]
            if not size:
                given = [
                    np.empty((0, *x.shape), x.dtype) if flag else x
                    for x, flag in zip(given, flags, strict=True)
                ]
            if case.op.name == "searchsorted":
                given[0] = np.sort(given[0])
            with np.errstate(all="ignore"):
                made = body.bind({**case.sizes, "lanes": size}).evaluate(np, given, RNG)
            for value, kind in zip(made, sample.inferred(), strict=True):
                assert value.shape == (size, *kind.shape)
                assert as_dtype(value.dtype) is kind.dtype
            for lane in range(size):
                own = [x[lane] if flag else x for x, flag in zip(given, flags, strict=True)]
                own = [np.asarray(x) for x in own]
                expected = sample.evaluate(np, *own)
                for value, wanted in zip(made, expected, strict=True):
                    check_close(np.asarray(value[lane]), np.asarray(wanted))


def test_no_case_is_random():
    assert all(RANDOM not in case.op.traits for case in CASES)
