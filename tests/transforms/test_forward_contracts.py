"""Forward mode on every op's own cases: against differences, and against its gradient rule."""

import numpy as np

import graphfw as gf
from graphfw.ir.build import constant, emit_all
from graphfw.ir.dtype import complex64, complex128, float32, float64
from graphfw.ir.graph import Graph
from graphfw.ops.control.region_op import Region
from tests.support.forwardcheck import check_tangents
from tests.support.grouped import family, grouped
from tests.support.samples import Declared, declared, doubled

WIDE = (float64, complex128)


def cases(accept):
    return grouped("declared", declared(accept), family)


# The bodies of the others have dtypes of their own: test_forward_regions.py.
differentiable = cases(
    lambda op, case: (
        case.error is None
        and not issubclass(op, Region)
        and case.smooth
        and op.vjp is not None
        and any(t.dtype.is_inexact for t in Declared(op, 0, case).types)
    )
)
linear = cases(
    lambda op, case: (
        case.error is None
        and op.linear
        and any(t.dtype in (float32, float64, complex64) for t in Declared(op, 0, case).types)
    )
)


@differentiable
def test_tangents(declared, rng):
    sample = declared.bound().with_dtypes(doubled, fields=True)
    xs = [constant(array) for array in sample.draw(rng)]
    floats = [i for i, x in enumerate(xs) if x.dtype in WIDE]

    def fn(chosen):
        def applied(*values):
            full = list(xs)
            for i, value in zip(chosen, values, strict=True):
                full[i] = value
            return [y for y in emit_all(sample.op, *full) if y.dtype in WIDE]

        return applied

    if not fn(floats)(*[xs[i] for i in floats]):
        return
    check_tangents(fn(floats), [xs[i] for i in floats], rng)
    if len(floats) > 1:
        for i in floats:
            check_tangents(fn([i]), [xs[i]], rng)


@differentiable
def test_tangents_for_symbolic_dims(declared):
    with Graph():
        xs = [gf.placeholder(t.shape, t.dtype) for t in declared.types]
        floats = [x for x in xs if x.dtype.is_inexact]
        ys, moved = gf.jvp(
            lambda *values: emit_all(declared.op, *_replaced(xs, values)),
            tuple(floats),
            tuple(floats),
        )
        for y, tangent in zip(ys, moved, strict=True):
            assert tangent is None if not y.dtype.is_inexact else tangent.type == y.type


def _replaced(xs, values):
    rest = iter(values)
    return [next(rest) if x.dtype.is_inexact else x for x in xs]


@linear
def test_what_says_it_is_linear_is(declared, rng):
    """op(x + t) - op(x) == op(t): together, or in each input alone."""
    sample = declared.bound().with_dtypes(doubled, fields=True)
    xs = sample.draw(rng)
    floats = [i for i, t in enumerate(sample.types) if t.dtype in WIDE]
    if not any(t.dtype in WIDE for t in sample.inferred()):
        return
    groups = [floats] if sample.op.linear == "jointly" else [[i] for i in floats]
    for group in groups:
        t = [a + rng.normal(size=a.shape) if i in group else a for i, a in enumerate(xs)]
        both = [a + b if i in group else a for i, (a, b) in enumerate(zip(xs, t, strict=True))]
        results = (sample.evaluate(np, *inputs) for inputs in (xs, t, both))
        for x, moved, total in zip(*results, strict=True):
            np.testing.assert_allclose(total, x + moved, rtol=1e-12, atol=1e-12)
