"""The native kernels of attention against the ops' reference."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.dim import symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.op import lookup
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.attention import steps as attention
from graphfw.runtime.numpy_executor.codegen import Processor
from graphfw.runtime.plan import Plan
from tests.runtime.numpy_executor.attention_runs import (
    LOW,
    Array,
    agree,
    check,
    draw,
    gradient_operands,
    operands,
    run_into,
    run_natively,
)
from tests.support.kernels import TARGETS

SIZES = [
    # Tq, Tk, D, E
    (1, 1, 1, 1),
    (17, 23, 5, 7),
    (8, 32, 16, 32),
    (33, 31, 64, 64),
    (70, 600, 33, 35),
    (300, 130, 20, 64),
    (130, 513, 40, 8),
]
NOTHING = [(0, 5, 4, 4), (5, 0, 4, 4), (5, 6, 0, 4), (5, 6, 4, 0), (0, 0, 0, 0)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(sizes: tuple[int, ...], causal: bool, rng: np.random.Generator) -> None:
    check(causal, None, operands(rng, sizes))


@pytest.mark.parametrize("causal", [False, True])
def test_float64(causal: bool, rng: np.random.Generator) -> None:
    check(causal, 0.3, operands(rng, (70, 300, 33, 20), np.float64))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_16_bits(
    sizes: tuple[int, ...], causal: bool, dtype: Any, rng: np.random.Generator
) -> None:
    check(causal, None, operands(rng, sizes, dtype))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("shape", [(300,), (70, 1), (2, 1, 1, 300), (3, 70, 300)], ids=str)
@pytest.mark.parametrize("kind", ["bools", "floats"])
def test_masks_of_16_bits(
    kind: str, shape: tuple[int, ...], dtype: Any, rng: np.random.Generator
) -> None:
    mask = rng.random(shape) < 0.6
    if shape[-2:-1] == (70,):
        mask[..., 3, :] = False  # a query without keys
    if kind == "floats":
        mask = np.where(mask, rng.normal(size=shape), -np.inf).astype(dtype)
    check(True, 0.2, (*operands(rng, (70, 300, 16, 20), dtype), mask))


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_16_bits_of_any_layout(dtype: Any, rng: np.random.Generator) -> None:
    """Broadcast heads, heads side by side, backwards, with nothing in them, not finite."""
    q, k = draw(rng, 2, 1, 3, 20, 16, dtype=dtype), draw(rng, 4, 1, 33, 16, dtype=dtype)
    check(True, None, (q, k, draw(rng, 33, 8, dtype=dtype)))
    together = draw(rng, 2, 70, 3, 4, 16, dtype=dtype)
    check(True, None, tuple(np.moveaxis(together, 2, 0).swapaxes(2, 3)))
    odd = draw(rng, 2, 70, 40, dtype=dtype)[:, ::-1, ::-2]
    check(False, None, (odd, odd, odd))
    for sizes in NOTHING:
        check(False, None, operands(rng, sizes, dtype))
    q, k, v = operands(rng, (20, 300, 16, 20), dtype)
    v[1, 2, 11, 3] = np.inf
    k[0, 0, 5, 1] = np.nan
    check(False, None, (q, k, v))


def test_16_bits_are_computed_in_32(rng: np.random.Generator) -> None:
    """Scores that float16 does not hold, and a sum of weights that it does not count to."""
    q, k, v = operands(rng, (20, 5000, 64, 16), np.float16)
    check(False, 1e-5, (q * np.float16(300), k * np.float16(300), v))
    out, lse, _ = run_natively(lookup("attention")(False, 0.0), (q, k, v))
    np.testing.assert_allclose(lse, np.log(5000), rtol=1e-6)
    mean = v.mean(axis=-2, keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(out, np.broadcast_to(mean, out.shape), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_plans_attend_in_16_bits_natively(
    dtype: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" calls the reference
    forward, backward = lookup("attention")(), lookup("attention_grad")()
    given = tuple(draw(rng, 2, 9, 8, dtype=dtype) for _ in range(3))
    *_, d_out = more = gradient_operands(forward, *given)
    agree_with = forward.eval(np, *given)[:1], backward.eval(np, *more)
    with gf.Graph() as graph:
        fed = [gf.placeholder((2, 9, 8), str(dtype)) for _ in range(4)]
        y = gf.scaled_dot_product_attention(*fed[:3])
        fetches = [y, *gf.grad(y, fed[:3], fed[3])]

    def refuse(*_: Any) -> None:
        raise AssertionError("the reference was called")

    for op in (forward, backward):
        monkeypatch.setattr(type(op), "eval", refuse)
    values = gf.Session(graph).compile(fetches, feeds=fed)(*given, d_out)
    eps = float(ml_dtypes.finfo(dtype).eps)
    for value, wanted in zip(values, [*agree_with[0], *agree_with[1]], strict=True):
        a, b = (np.asarray(x).astype(np.float32) for x in (value, wanted))
        np.testing.assert_allclose(a, b, rtol=eps, atol=eps * float(np.abs(b).max()))


@pytest.mark.parametrize("machine", TARGETS[-2:], ids=lambda t: t.name)
def test_narrower_vectors(
    machine: Processor, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "host", lambda: machine)
    check(True, None, operands(rng, (70, 300, 33, 20)))
    check(True, None, operands(rng, (70, 300, 33, 20), np.float64))


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(300,), (70, 1), (2, 1, 1, 300), (3, 70, 300), (1, 1)], ids=str)
@pytest.mark.parametrize("kind", ["bools", "floats"])
@pytest.mark.parametrize("causal", [False, True])
def test_masks(kind: str, shape: tuple[int, ...], causal: bool, rng: np.random.Generator) -> None:
    mask = rng.random(shape) < 0.6
    if kind == "floats":
        mask = np.where(mask, rng.normal(size=shape), -np.inf).astype(np.float32)
    check(causal, None, (*operands(rng, (70, 300, 16, 20)), mask))


def test_mask_with_any_strides(rng: np.random.Generator) -> None:
    mask = np.ones((300, 140), bool)[:, ::-2].T
    mask[rng.random(mask.shape) < 0.5] = False
    check(False, None, (*operands(rng, (70, 300, 16, 20)), mask))


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *[(np.float32, fill) for fill in (-1e4, -1e9, -1.7e9, float(np.finfo(np.float32).min))],
        *[(np.float64, fill) for fill in (-1e20, float(np.finfo(np.float64).min))],
        *[(dtype, float(ml_dtypes.finfo(dtype).min)) for dtype in LOW],
    ],
    ids=str,
)
@pytest.mark.parametrize("sizes", [(70, 300, 16, 20), (1, 97, 8, 3), (3, 1047, 16, 8)], ids=str)
def test_queries_whose_keys_are_hidden_by_a_sum(
    sizes: tuple[int, ...], dtype: Any, fill: float, rng: np.random.Generator
) -> None:
    """Scores are exact, so that none is rounded the other way where the mask leaves few bits."""
    q, k, v = operands(rng, sizes, dtype)
    q, k = ((np.round(x.astype(np.float32) * 4) / 4).astype(dtype) for x in (q, k))
    mask = np.where(rng.random((2, 1, *sizes[:2])) < 0.4, fill, 0).astype(dtype)
    mask[:, :, ::3] = fill
    for causal in (False, True):
        check(causal, 0.5, (q, k, v, mask))
    if fill < -1e8:
        *_, lse, rest = run_natively(lookup("attention")(False, 0.5), (q, k, v, mask))
        np.testing.assert_array_equal(lse[..., ::3], mask[0, 0, 0, 0].astype(lse.dtype))
        np.testing.assert_allclose(rest[..., ::3], np.log(sizes[1]), rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_not_finite(which: int, value: float, rng: np.random.Generator) -> None:
    x = operands(rng, (20, 300, 16, 20))
    x[which][1, 2, 11, 3] = value
    check(False, None, x)


def test_masked_scores_may_be_nan(rng: np.random.Generator) -> None:
    q, k, v = operands(rng, (20, 300, 16, 20))
    k[:, :, 11] = np.nan
    mask = np.arange(300) != 11
    check(False, None, (q, k, v, mask))
    out, *_ = run_natively(lookup("attention")(), (q, k, v, mask))
    assert np.isfinite(out).all()


def test_large_scores_that_grow(rng: np.random.Generator) -> None:
    """Each block of keys has a higher maximum than those before it.

    A weight's relative error is the score's absolute one, so it is larger here.
    """
    q, k, v = operands(rng, (20, 900, 16, 20))
    k *= np.linspace(1, 30, 900, dtype=np.float32)[:, None]
    check(False, 1.0, (q, k, v), slack=100)
    check(False, 1.0, (q, k[..., ::-1, :], v), slack=100)


@pytest.mark.parametrize("sizes", NOTHING, ids=str)
def test_nothing(sizes: tuple[int, ...], rng: np.random.Generator) -> None:
    for causal in (False, True):
        check(causal, None, operands(rng, sizes))
        check(causal, None, tuple(x[:0] for x in operands(rng, sizes)))


def test_leading_dims_broadcast(rng: np.random.Generator) -> None:
    q, k = draw(rng, 2, 1, 3, 20, 16), draw(rng, 4, 1, 33, 16)
    check(True, None, (q, k, draw(rng, 33, 8)))
    check(True, None, (draw(rng, 20, 16), draw(rng, 33, 16), draw(rng, 33, 8)))


def test_operands_are_read_as_they_lie(rng: np.random.Generator) -> None:
    """Heads side by side, as projections make them; transposed; backwards; every other."""
    together = draw(rng, 2, 70, 3, 4, 16)
    q, k, v = np.moveaxis(together, 2, 0).swapaxes(2, 3)
    check(True, None, (q, k, v))
    transposed = draw(rng, 2, 3, 16, 70).swapaxes(2, 3)
    check(False, None, (transposed, transposed, transposed))
    odd = draw(rng, 2, 70, 40)[:, ::-1, ::-2]
    check(False, None, (odd, odd, odd))


def test_results_are_written_where_they_are_wanted(rng: np.random.Generator) -> None:
    """Heads side by side: what the next projection wants."""
    forward, backward = lookup("attention")(True), lookup("attention_grad")(True)
    inputs = operands(rng, (70, 90, 16, 20))

    def beside(rows: int, width: int) -> Array:
        return np.full((2, rows, 3, width), 99, np.float32).swapaxes(1, 2)

    outputs = [beside(70, 20), *[np.full((2, 3, 70), 99, np.float32) for _ in range(2)]]
    run_into(forward, inputs, outputs)
    agree(outputs, forward, inputs)
    more = gradient_operands(forward, *inputs)
    outputs = [beside(70, 16), beside(90, 16), beside(90, 20)]
    run_into(backward, more, outputs)
    agree(outputs, backward, more)


def test_the_order_of_work_items_changes_nothing(rng: np.random.Generator) -> None:
    inputs = tuple(x[0, :1] for x in operands(rng, (600, 1100, 16, 20)))
    forward, backward = lookup("attention")(True), lookup("attention_grad")(True)
    more = gradient_operands(forward, *inputs)
    for op, given in ((forward, inputs), (backward, more)):
        for a, b in zip(run_natively(op, given), run_natively(op, given, -1), strict=True):
            np.testing.assert_array_equal(a, b)


FEW = [
    # Tq, Tk, D, E: whole vectors and not, one chunk and more
    (1, 1, 3, 2),
    (1, 40, 64, 64),
    (1, 1100, 64, 64),
    (3, 1047, 32, 80),
    (4, 2100, 19, 35),
    (2, 70, 500, 1000),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [np.float32, np.float64, *LOW], ids=str)
@pytest.mark.parametrize("sizes", FEW, ids=str)
def test_few_queries(sizes: tuple[int, ...], dtype: Any, rng: np.random.Generator) -> None:
    inputs = operands(rng, sizes, dtype)
    forward = lookup("attention")()
    agree(run_natively(forward, inputs), forward, inputs)


@pytest.mark.parametrize("machine", TARGETS[-2:], ids=lambda t: t.name)
def test_few_queries_with_narrower_vectors(
    machine: Processor, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "host", lambda: machine)
    for dtype in (np.float32, np.float64):
        check(False, None, operands(rng, (2, 1100, 32, 35), dtype))


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(1100,), (2, 1), (2, 1, 1, 1100), (3, 2, 1100)], ids=str)
@pytest.mark.parametrize("kind", ["bools", "floats"])
@pytest.mark.parametrize("dtype", [np.float32, LOW[1]], ids=str)
def test_masks_of_few_queries(
    kind: str, shape: tuple[int, ...], dtype: Any, rng: np.random.Generator
) -> None:
    mask = rng.random(shape) < 0.6
    mask[..., 1024:] = False  # a whole chunk
    mask[:1] &= len(shape) != 3  # and whole queries
    if kind == "floats":
        mask = np.where(mask, rng.normal(size=shape), -np.inf).astype(dtype)
    inputs = (*operands(rng, (2, 1100, 16, 20), dtype), mask)
    forward = lookup("attention")()
    agree(run_natively(forward, inputs), forward, inputs)


@pytest.mark.parametrize("kind", ["bools", "floats"])
def test_few_queries_read_no_keys_after_the_last_that_they_see(
    kind: str, rng: np.random.Generator
) -> None:
    """Of a cache that is not full: NaN there is not seen."""
    forward = lookup("attention")()
    for seen in (0, 1, 37, 512, 600):
        q, k, v = operands(rng, (2, 1300, 16, 20))
        mask = np.arange(1300) < np.array([[seen], [max(seen - 3, 0)]])
        if kind == "floats":
            mask = np.where(mask, rng.normal(size=mask.shape), -np.inf).astype(np.float32)
        expected = run_natively(forward, (q, k, v, mask))
        agree(expected, forward, (q, k, v, mask))
        k[..., seen + 16 :, :] = v[..., seen + 16 :, :] = np.nan  # whole vectors are looked at
        for a, b in zip(run_natively(forward, (q, k, v, mask)), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_few_queries_as_they_lie(rng: np.random.Generator) -> None:
    """Heads side by side, broadcast, transposed, backwards, every other."""
    forward = lookup("attention")()
    q, k, v = operands(rng, (2, 1100, 32, 16))
    beside, values = draw(rng, 2, 1100, 3, 32).swapaxes(1, 2), draw(rng, 2, 1100, 3, 16)
    for given in (
        (q, beside, values.swapaxes(1, 2)),
        (q[:, :, None], draw(rng, 4, 1100, 32), draw(rng, 1100, 16)),
        (q, draw(rng, 2, 3, 32, 1100).swapaxes(2, 3), draw(rng, 2, 3, 16, 1100).swapaxes(2, 3)),
        (q, k[..., ::-1, :], v[..., ::-1, ::-1]),
        (q[..., ::2], k[..., ::2], v[..., ::2, :].repeat(2, -2)),
    ):
        agree(run_natively(forward, given), forward, given)
    out = np.full((2, 2, 3, 16), 99, np.float32).swapaxes(1, 2)
    outputs = [out, *[np.full((2, 3, 2), 99, np.float32) for _ in range(2)]]
    run_into(forward, (q, k, v), outputs)
    agree(outputs, forward, (q, k, v))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_few_queries_that_are_not_finite(
    which: int, value: float, rng: np.random.Generator
) -> None:
    x = operands(rng, (2, 1100, 16, 20))
    x[which][1, 2, 1, 3] = value
    check(False, None, x)


def test_few_queries_of_nothing(rng: np.random.Generator) -> None:
    for sizes in ((1, 0, 4, 4), (1, 5, 0, 4), (1, 5, 4, 0), (2, 0, 0, 0)):
        check(False, None, operands(rng, sizes))
        check(False, None, tuple(x[:0] for x in operands(rng, sizes)))


def test_few_queries_are_not_packed(rng: np.random.Generator) -> None:
    """Many work items even for one head, and no memory but for the results of chunks."""
    inputs = tuple(x[:1, :1] for x in operands(rng, (1, 4096, 64, 64)))
    forward = lookup("attention")()
    outputs = [np.empty((1, 1, 1, *last), np.float32) for last in ((64,), (), ())]
    reading, _ = run_into(forward, inputs, outputs)
    temps = [s for s in reading.operands if isinstance(s, Temp)]
    assert reading.work_items == 8
    assert sum(int(t.size) for t in temps) < 1000
    for a, b in zip(outputs, run_natively(forward, inputs, -1), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_cache_may_have_any_length(rng: np.random.Generator) -> None:
    with gf.Graph() as graph:
        q = gf.placeholder(("b", 3, 1, 16), "float32")
        k, v = (gf.placeholder(("b", 3, "s", 16), "float32") for _ in range(2))
        seen = gf.placeholder(("s",), "bool")
        y = gf.scaled_dot_product_attention(q, k, v, seen)
    plan = gf.Session(graph).compile(y, feeds=[q, k, v, seen])
    for batch, keys in ((1, 1), (2, 5000), (0, 3), (2, 0)):
        given = tuple(draw(rng, batch, 3, time, 16) for time in (1, keys, keys))
        mask = rng.random(keys) < 0.5
        expected, *_ = lookup("attention")().eval(np, *given, mask)
        np.testing.assert_allclose(plan(*given, mask), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_how_many_queries_there_are_is_seen_in_the_run(
    masked: bool, rng: np.random.Generator
) -> None:
    """A plan for any number computes what a plan for this number does."""
    given = draw(rng, 2, 3, 200, 16), draw(rng, 2, 3, 200, 16)
    any_number = queries_plan("t", masked)
    for queries in (0, 1, 4, 5, 130):
        inputs = (draw(rng, 2, 3, queries, 16), *given)
        mask = (rng.random((queries, 200)) < 0.6,) if masked else ()
        own = queries_plan(queries, masked)(*inputs, *mask)
        for a, b in zip(any_number(*inputs, *mask), own, strict=True):
            np.testing.assert_array_equal(a, b)


def queries_plan(queries: object, masked: bool) -> Plan:
    with gf.Graph() as graph:
        q = gf.placeholder((2, 3, queries, 16))
        k, v = (gf.placeholder((2, 3, 200, 16)) for _ in range(2))
        mask = [gf.placeholder((queries, 200), gf.bool)] if masked else []
        fetches = emit_all(lookup("attention")(), q, k, v, *mask)
    return gf.Session(graph).compile(fetches, feeds=[q, k, v, *mask])


def symbolic_steps() -> list[Step]:
    """The steps of both ops, for any sizes."""
    with gf.Graph():
        q = gf.placeholder(("b", 4, "t", "d"))
        k = gf.placeholder(("b", 4, "s", "d"))
        v = gf.placeholder(("b", 4, "s", "e"))
        made = emit_all(lookup("attention")(True), q, k, v)
        out, lse, rest = made
        grads = emit_all(lookup("attention_grad")(True), q, k, v, lse, rest, lse, out)

    def dense(x: gf.Tensor) -> View:
        strides: list[Any] = [1]
        for dim in reversed(x.shape[1:]):
            strides.insert(0, strides[0] * dim)
        return View(x, 0, x.shape, tuple(strides))

    a, b, c = dense(q), dense(k), dense(v)
    found = attention.attention_steps(out.node, a, b, c, None, dense(out), lse, rest)
    rows = dense(lse)
    results = map(dense, grads)
    found += attention.attention_grad_steps(
        grads[0].node, a, b, c, rows, dense(rest), rows, dense(out), None, *results
    )
    return found


def test_sizes_may_be_symbols() -> None:
    for step in symbolic_steps():
        assert all(symbols_of(p) <= {"b", "t", "s", "d", "e"} for p in step.params)
        sizes = {"b": 2, "t": 1000, "s": 900, "d": 64, "e": 64}
        assert all(isinstance(evaluate(p, sizes), int) for p in step.params)
        assert evaluate(step.work_items, sizes) > 0


def test_short_sequences_need_no_memory(rng: np.random.Generator) -> None:
    """The operands of heads with one work item are packed in scratch memory."""
    for time, expected in ((128, 1), (129, 2)):
        x = operands(rng, (time, 128, 64, 64))
        shapes = [(time, 64), (time,), (time,)]
        outputs = [np.empty((2, 3, *shape), np.float32) for shape in shapes]
        steps = run_into(lookup("attention")(), x, outputs)
        assert len(steps) == expected
        temps = [s for step in steps for s in step.operands if isinstance(s, Temp)]
        assert bool(temps) == (expected == 2)


def test_memory_grows_with_the_length() -> None:
    def bytes_of(time: int) -> int:
        sizes = {"b": 2, "t": time, "s": time, "d": 64, "e": 64}
        temps = {s for step in symbolic_steps() for s in step.operands if isinstance(s, Temp)}
        scratch = sum(evaluate(step.scratch, sizes) for step in symbolic_steps())
        return sum(evaluate(t.size, sizes) * t.dtype.itemsize for t in temps) + scratch

    assert bytes_of(16384) < 2.1 * bytes_of(8192)
    assert bytes_of(16384) < 2 * 4 * 16384**2 * 4 / 20


def test_one_code_for_all_sizes(rng: np.random.Generator) -> None:
    keys = []
    for sizes in SIZES[-2:]:
        x = operands(rng, sizes)
        outputs = [
            np.empty((2, 3, *shape), np.float32) for shape in (sizes[::3], sizes[:1], sizes[:1])
        ]
        keys.append([step.code.key for step in run_into(lookup("attention")(), x, outputs)])
    assert keys[0] == keys[1]


def test_which_dtypes_are_native() -> None:
    assert attention.is_native(gf.float32, gf.float32)
    assert attention.is_native(gf.float64)
    assert attention.is_native(gf.float16, gf.bfloat16)
    assert not attention.is_native(gf.float32, gf.complex64)
