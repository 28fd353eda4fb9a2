"""Every op's samples, lowered and run natively, and with neighbours that it is fused with."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit, emit_all
from graphfw.ir.functions import F
from graphfw.ir.op import RANDOM, SOURCE
from graphfw.ir.rebuild import derive
from graphfw.passes.values import SampleInputs, evaluated
from tests.support import kernel_interpreter
from tests.support.grouped import family, grouped
from tests.support.kernel_interpreter import Failed
from tests.support.lowering import TOLERANCE, lowered
from tests.support.native_kernels import Native, execute
from tests.support.samples import declared

CASES = list(
    declared(
        lambda cls, case: not case.match and SOURCE not in cls.traits and RANDOM not in cls.traits
    )
)


@pytest.mark.exhaustive(every=5)
@pytest.mark.parametrize("is_fused", [False, True])
@grouped("sample", CASES, family)
def test_samples(sample, is_fused):
    with gf.Graph() as g:
        xs = [gf.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(sample.types)]
        # What comes before and after is fused with it.
        near = [x + x if is_fused and x.dtype.is_floating else x for x in xs]
        ys = emit_all(sample.op, *near) if sample.op.multiple else (emit(sample.op, *near),)
        ys = [y * y if is_fused and y.dtype.is_floating else y for y in ys]
    sizes = sample.sizes
    arrays = sample.bound().draw(np.random.default_rng(3))
    graph = derive(g, ys)
    feeds = {x.node: a for x, a in zip(xs, arrays, strict=True) if x.node in graph.nodes}
    groups, items = kernel_interpreter.compiled(graph, Native())
    run = execute([s for s in items if hasattr(s, "code") and hasattr(s.code, "kernel")])
    found = kernel_interpreter.run(graph, groups, items, feeds, sizes, run)
    for a, b in zip(found, evaluated(graph, SampleInputs(feeds, sizes)), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            tolerance = TOLERANCE.get(str(b.real.dtype), 1e-5)
            kind = complex if a.dtype.kind == "c" else float
            np.testing.assert_allclose(
                a.astype(kind), b.astype(kind), rtol=tolerance, atol=tolerance
            )


def run_natively(g, outputs, feeds, sizes):
    graph, groups, items = lowered(g, outputs, Native())
    run = execute([s for s in items if hasattr(s, "code") and hasattr(s.code, "kernel")])
    values = {t.node: np.asarray(a) for t, a in feeds.items()}
    return items, lambda: kernel_interpreter.run(graph, groups, items, values, sizes, run)


@pytest.mark.parametrize("index", [5, -6, 100])
@pytest.mark.parametrize("native", [False, True])
def test_indices_out_of_range_fail(index, native):
    with gf.Graph() as g:
        x, i = gf.placeholder((5, 3), name="x"), gf.placeholder((2,), gf.int64, name="i")
        y = F.take(x, i, axis=0) * 2.0
    feeds = {x: np.ones((5, 3), np.float32), i: np.array([0, index])}
    items, run = run_natively(g, [y], feeds, {})
    assert [item.can_fail for item in items] == [True]
    with pytest.raises(Failed):
        run()


@pytest.mark.parametrize("index", [5, -1, -101])
def test_classes_out_of_range_fail(index):
    with gf.Graph() as g:
        x, y = gf.placeholder(("n", 5), name="x"), gf.placeholder(("n",), gf.int64, name="y")
        loss = gf.nn.cross_entropy(x, y)
        (dx,) = gf.grad(loss, [x])
    feeds = {x: np.ones((3, 5), np.float32), y: np.array([0, index, 1])}
    for outputs in ([loss], [dx]):
        _, run = run_natively(g, outputs, feeds, {"n": 3})
        with pytest.raises(Failed):
            run()


@pytest.mark.exhaustive
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("name", ["max", "min", "argmax"])
def test_the_largest_of_nothing_fails(name, axis):
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), name="x")
        y = getattr(F, name)(x, axis=axis)
    for n, m in ((0, 3), (3, 0)):
        array = np.zeros((n, m), np.float32)
        _, run = run_natively(g, [y], {x: array}, {"n": n, "m": m})
        try:
            wanted = getattr(np, name)(array, axis=axis)
        except ValueError:
            with pytest.raises(Failed):
                run()
        else:
            assert run()[0].shape == wanted.shape
