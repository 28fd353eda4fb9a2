"""The native kernels of attention against the ops' reference."""

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.dim import symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.op import lookup
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.attention import steps as attention
from graphfw.runtime.numpy_executor.codegen import target
from tests.runtime.numpy_executor.attention_runs import run_into, run_natively

Array = np.ndarray[Any, Any]

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


def draw(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return rng.normal(size=shape).astype(dtype)


def operands(
    rng: np.random.Generator, sizes: tuple[int, ...], dtype: Any = np.float32
) -> tuple[Array, ...]:
    to, time, width, values = sizes
    lead = (2, 3)
    q, k = draw(rng, *lead, to, width, dtype=dtype), draw(rng, *lead, time, width, dtype=dtype)
    return q, k, draw(rng, *lead, time, values, dtype=dtype)


def gradient_operands(op: Any, q: Array, k: Array, v: Array, *mask: Array) -> list[Array]:
    """What `attention_grad` takes after `attention` was given these."""
    with np.errstate(all="ignore"):
        out, lse = op.eval(np, q, k, v, *mask)
    d_out = np.random.default_rng(3).normal(size=out.shape).astype(out.dtype)
    return [q, k, v, lse, (out * d_out).sum(-1), d_out, *mask]


def check(causal: bool, scale: float | None, inputs: tuple[Array, ...], slack: float = 1) -> None:
    """Compare values and gradients with the reference."""
    forward, backward = lookup("attention")(causal, scale), lookup("attention_grad")(causal, scale)
    agree(run_natively(forward, inputs), forward, inputs, slack)
    more = gradient_operands(forward, *inputs)
    agree(run_natively(backward, more), backward, more, slack)


def agree(values: list[Array], op: Any, inputs: Any, slack: float = 1) -> None:
    with np.errstate(all="ignore"):
        expected = op.eval(np, *inputs)
    tolerance = (2e-6 if inputs[0].dtype == np.float32 else 1e-14) * slack
    for value, wanted in zip(values, expected, strict=True):
        finite = np.abs(wanted[np.isfinite(wanted) & (np.abs(wanted) < 1e30)])
        scale = max(1.0, float(finite.max(initial=0)))
        np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(sizes: tuple[int, ...], causal: bool, rng: np.random.Generator) -> None:
    check(causal, None, operands(rng, sizes))


@pytest.mark.parametrize("causal", [False, True])
def test_float64(causal: bool, rng: np.random.Generator) -> None:
    check(causal, 0.3, operands(rng, (70, 300, 33, 20), np.float64))


@pytest.mark.parametrize("machine", [target.AVX2, target.BASE], ids=lambda t: t.name)
def test_narrower_vectors(
    machine: target.Target, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "host", lambda: machine)
    check(True, None, operands(rng, (70, 300, 33, 20)))
    check(True, None, operands(rng, (70, 300, 33, 20), np.float64))


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
    (out, _) = run_natively(lookup("attention")(), (q, k, v, mask))
    assert np.isfinite(out).all()


def test_large_scores_that_grow(rng: np.random.Generator) -> None:
    """Each block of keys has a higher maximum than those before it.

    A weight's relative error is the score's absolute one, so it is larger here.
    """
    q, k, v = operands(rng, (20, 900, 16, 20))
    k *= np.linspace(1, 30, 900, dtype=np.float32)[:, None]
    check(False, 1.0, (q, k, v), slack=100)
    check(False, 1.0, (q, k[..., ::-1, :], v), slack=100)


@pytest.mark.parametrize(
    "sizes", [(0, 5, 4, 4), (5, 0, 4, 4), (5, 6, 0, 4), (5, 6, 4, 0), (0, 0, 0, 0)], ids=str
)
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
    turned = draw(rng, 2, 3, 16, 70).swapaxes(2, 3)
    check(False, None, (turned, turned, turned))
    odd = draw(rng, 2, 70, 40)[:, ::-1, ::-2]
    check(False, None, (odd, odd, odd))


def test_results_are_written_where_they_are_wanted(rng: np.random.Generator) -> None:
    """Heads side by side: what the next projection wants."""
    forward, backward = lookup("attention")(True), lookup("attention_grad")(True)
    inputs = operands(rng, (70, 90, 16, 20))

    def beside(rows: int, width: int) -> Array:
        return np.full((2, rows, 3, width), 99, np.float32).swapaxes(1, 2)

    out, lse = beside(70, 20), np.full((2, 3, 70), 99, np.float32)
    run_into(forward, inputs, [out, lse])
    agree([out, lse], forward, inputs)
    more = gradient_operands(forward, *inputs)
    outputs = [beside(70, 16), beside(90, 16), beside(90, 20)]
    run_into(backward, more, outputs)
    agree(outputs, backward, more)


def test_the_order_of_cells_changes_nothing(rng: np.random.Generator) -> None:
    inputs = tuple(x[0, :1] for x in operands(rng, (600, 1100, 16, 20)))
    forward, backward = lookup("attention")(True), lookup("attention_grad")(True)
    more = gradient_operands(forward, *inputs)
    for op, given in ((forward, inputs), (backward, more)):
        for a, b in zip(run_natively(op, given), run_natively(op, given, -1), strict=True):
            np.testing.assert_array_equal(a, b)


def symbolic_steps() -> list[Step]:
    """The steps of both ops, for any sizes."""
    with gf.Graph():
        q = gf.placeholder(("b", 4, "t", "d"))
        k = gf.placeholder(("b", 4, "s", "d"))
        v = gf.placeholder(("b", 4, "s", "e"))
        made = emit_all(lookup("attention")(True), q, k, v)
        out, lse = made
        grads = emit_all(lookup("attention_grad")(True), q, k, v, lse, lse, out)

    def dense(x: gf.Tensor) -> View:
        strides: list[Any] = [1]
        for dim in reversed(x.shape[1:]):
            strides.insert(0, strides[0] * dim)
        return View(x, 0, x.shape, tuple(strides))

    a, b, c = dense(q), dense(k), dense(v)
    found = attention.attention_steps(out.node, a, b, c, None, dense(out), lse)
    rows = dense(lse)
    results = map(dense, grads)
    found += attention.attention_grad_steps(
        grads[0].node, a, b, c, rows, rows, dense(out), None, *results
    )
    return found


def test_sizes_may_be_symbols() -> None:
    for step in symbolic_steps():
        assert all(symbols_of(p) <= {"b", "t", "s", "d", "e"} for p in step.params)
        sizes = {"b": 2, "t": 1000, "s": 900, "d": 64, "e": 64}
        assert all(isinstance(evaluate(p, sizes), int) for p in step.params)
        assert evaluate(step.cells, sizes) > 0


def test_short_sequences_need_no_memory(rng: np.random.Generator) -> None:
    """What one cell a head computes is packed in scratch memory."""
    for time, expected in ((128, 1), (129, 2)):
        x = operands(rng, (time, 128, 64, 64))
        outputs = [np.empty((2, 3, time, 64), np.float32), np.empty((2, 3, time), np.float32)]
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
            np.empty((2, 3, *shape), np.float32) for shape in ((sizes[0], sizes[3]), sizes[:1])
        ]
        keys.append([step.code.key for step in run_into(lookup("attention")(), x, outputs)])
    assert keys[0] == keys[1]


def test_which_dtypes_are_native() -> None:
    assert attention.is_native(gf.float32, gf.float32)
    assert attention.is_native(gf.float64)
    assert not attention.is_native(gf.float32, gf.float16)
