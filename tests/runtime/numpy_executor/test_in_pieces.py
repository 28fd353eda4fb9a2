"""Nodes that NumPy computes piece by piece: with the same results; a run ends between pieces."""

import threading
import time

import numpy as np
import pytest

import graphfw as gf
import graphfw.ops  # registers the ops
from graphfw.ir.op import PURE, RANDOM
from graphfw.ir.types import TensorType
from graphfw.ops.batching import free_axis
from graphfw.ops.sorting import keys
from graphfw.runtime.numpy_executor import in_pieces
from tests.support.grouped import family, grouped
from tests.support.samples import RNG, declared


def is_pure(op, case):
    return case.error is None and PURE in op.traits and RANDOM not in op.traits


@grouped("case", declared(is_pure), family)
def test_pieces_have_the_results_of_the_whole(case, rng):
    sample = case.bound()
    outputs = sample.inferred()
    axis = free_axis(sample.op, sample.types, outputs)
    if axis is None:
        return
    whole = sample.draw(rng)
    length = outputs[0].shape[axis]
    for step, threads in ((1, 1), (2, 2)):
        cut = in_pieces.ResultCut(axis, length, step, outputs)
        compute = in_pieces.in_pieces(None, cut, lambda xs, rng: sample.evaluate(np, *xs), threads)
        for result, wanted in zip(compute(whole, RNG), sample.evaluate(np, *whole), strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5, strict=True)


@pytest.mark.parametrize(
    ("compute", "axis"),
    [
        (lambda x: gf.sort(x, axis=1), 2),
        (lambda x: gf.sort(x, axis=2), 1),
        (lambda x: gf.fft.ifft(x * 1j, axis=0), 2),
        (lambda x: gf.linalg.cholesky(x), 0),
        (lambda x: gf.linalg.eigvalsh(x), 0),
        (lambda x: gf.sort(gf.reshape(x, (-1,)), axis=0), None),
        (lambda x: gf.fft.fftn(x[0]), None),
        (lambda x: gf.linalg.cholesky(x[0]), None),
        (lambda x: gf.exp(x * 1j), -1),
        (lambda x: gf.exp(x[0] * 1j) * gf.exp(x[:, 0, None] * 1j), -1),
    ],
)
def test_the_axis_is_the_longest_along_which_results_are_independent(compute, axis):
    with gf.Graph():
        value = compute(gf.placeholder((5, 6, 7) if axis in (1, 2, -1) else (5, 6, 6)))
    nodes = [value.node]
    while nodes[-1].op.name in ("reshape", "cast", "squeeze", "resize"):
        nodes.append(nodes[-1].inputs[0].node)
    node = nodes[-1]
    assert free_axis(node.op, [t.type for t in node.inputs], node.types) == axis


def test_operations_with_other_rules_have_none():
    with gf.Graph():
        x = gf.placeholder((5, 6))
        for value in (x @ x.T, gf.searchsorted(x[0], x), gf.permute_dims(x)):
            node = value.node
            assert free_axis(node.op, [t.type for t in node.inputs], node.types) is None


@pytest.mark.parametrize("shape", [(40, 60), (60, 40)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_large_node_is_cut(shape, axis, symbolic, rng, monkeypatch):
    monkeypatch.setattr(in_pieces, "_PIECE", 100)
    seen = []
    cut_of = in_pieces.cut_of
    monkeypatch.setattr(
        "graphfw.runtime.numpy_executor.execution.cut_of",
        lambda *args: seen.append(cut_of(*args)) or seen[-1],
    )
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x = gf.placeholder(("m", "n") if symbolic else shape)
        y = gf.argsort(x, axis=axis)
    plan = gf.Session(g).compile(y, feeds=[x])
    value = rng.standard_normal(shape).astype(np.float32)
    assert (plan(value) == np.argsort(value, axis=axis)).all()
    (cut,) = seen
    step = max(1, 100 // shape[axis])
    assert cut[:3] == (1 - axis, shape[1 - axis], step)


def test_matrices_are_cut_by_the_work_that_they_are():
    cuts = {}
    for count, size in ((4, 200), (4, 20), (2000, 14), (1, 500)):
        with gf.Graph():
            node = gf.linalg.svdvals(gf.placeholder((count, size, size))).node
        cut = in_pieces.cut_of(node, node.op, {})
        cuts[count, size] = None if cut is None else cut[:3]
    assert cuts[4, 200] == (0, 4, 1)
    assert cuts[4, 20] is cuts[1, 500] is None
    axis, length, step = cuts[2000, 14]
    assert (axis, length) == (0, 2000)
    assert 100 <= step <= 1000


def test_a_timeout_ends_a_node_between_two_pieces(rng, monkeypatch):
    monkeypatch.setattr(in_pieces, "_PIECE", 100)
    calls = []
    original = keys.argsort

    def slow(*args, **kwargs):
        calls.append(1)
        time.sleep(0.01)
        return original(*args, **kwargs)

    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x = gf.placeholder((100, 50))
        y = gf.argsort(x)
    value = rng.standard_normal((100, 50)).astype(np.float32)
    plan = gf.Session(g).compile(y, feeds=[x])
    plan(value)
    monkeypatch.setattr(keys, "argsort", slow)
    with pytest.raises(gf.errors.RunTimeoutError, match="it was computing argsort"):
        plan(value, timeout=0.05)
    assert 1 <= len(calls) < 50
    monkeypatch.undo()
    assert (plan(value) == np.argsort(value)).all()


def test_any_number_of_threads_gives_the_same_bits(rng, monkeypatch):
    monkeypatch.setattr(in_pieces, "_PIECE", 500)
    with gf.Graph() as g:
        x = gf.placeholder((60, 40), gf.complex64, name="x")
        y = gf.fft.fft(x)
    value = rng.standard_normal((60, 40)) + 1j * rng.standard_normal((60, 40))
    found = []
    for threads in (1, 2, 5):
        with gf.Session(g, threads=threads) as session:
            found.append(session.run(y, {x: value.astype(np.complex64)}))
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_an_error_on_another_thread_is_raised(rng):
    main = threading.get_ident()

    def fail(arrays, rng):
        if threading.get_ident() != main:
            raise ValueError("no")
        time.sleep(0.01)
        return arrays

    outputs = (TensorType(gf.float32, (60,)),)
    compute = in_pieces.in_pieces(None, in_pieces.ResultCut(0, 60, 1, outputs), fail, 3)
    with pytest.raises(ValueError, match="no"):
        compute([np.zeros(60, np.float32)], RNG)


def test_no_thread_is_left_behind_by_an_interrupt():
    before = threading.active_count()

    def interrupted(arrays, rng):
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.01)
        return arrays

    outputs = (TensorType(gf.float32, (60,)),)
    compute = in_pieces.in_pieces(None, in_pieces.ResultCut(0, 60, 1, outputs), interrupted, 2)
    with pytest.raises(KeyboardInterrupt):
        compute([np.zeros(60, np.float32)], RNG)
    assert threading.active_count() == before
