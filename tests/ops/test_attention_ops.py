"""The ops of attention against the composition that they stand for."""

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import constant, emit_all
from graphfw.ir.op import lookup
from graphfw.ir.tensor import Tensor
from graphfw.ops.nn import attention_ops
from tests.support.gradcheck import check_gradients


def composed(q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool, scale: float) -> Tensor:
    scores = gf.matmul(gf.asarray(q) * scale, gf.asarray(k).mT)
    if mask is not None and mask.dtype == gf.bool:
        scores = gf.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + mask
    if causal:
        seen = gf.arange(q.shape[-2])[:, None] >= gf.arange(k.shape[-2])
        scores = gf.where(seen, scores, -np.inf)
    return gf.softmax(scores) @ v


def drawn(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[Tensor]:
    return [constant(rng.normal(size=shape)) for shape in shapes]


def mask_of(kind: str, rng: np.random.Generator) -> tuple[Tensor, ...]:
    if kind == "none":
        return ()
    if kind == "floats":
        bias = rng.normal(size=(3, 1, 7))
        bias[1, 0, ::2] = -np.inf
        return (constant(bias),)
    seen = rng.random((2, 1, 5, 7)) < 0.5
    seen[1, 0, 3] = False
    return (constant(seen),)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "floats", "bools"])
def test_value_and_gradients_are_those_of_the_composition(
    kind: str, causal: bool, rng: np.random.Generator
) -> None:
    x = drawn(rng, (2, 3, 5, 4), (3, 7, 4), (2, 1, 7, 6))
    mask = mask_of(kind, rng)
    leaves = [*x, *(m for m in mask if m.dtype == gf.float64)]
    mine = emit_all(lookup("attention")(causal, 0.6), *x, *mask)[0]
    other = composed(*x, *mask, causal=causal, scale=0.6)
    np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-12, atol=1e-14)
    ct = rng.normal(size=mine.shape)
    for a, b in zip(gf.grad(mine, leaves, ct), gf.grad(other, leaves, ct), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-13)


def test_lse(rng: np.random.Generator) -> None:
    q, k, v = drawn(rng, (2, 5, 4), (2, 7, 4), (2, 7, 3))
    _, lse, rest = emit_all(lookup("attention")(), q, k, v)
    powers = np.exp(q.numpy() / 2 @ k.numpy().swapaxes(1, 2))
    np.testing.assert_allclose(lse.numpy(), np.log(powers.sum(-1)))
    assert np.all(np.abs(rest.numpy()) <= np.spacing(np.abs(lse.numpy())))


@pytest.mark.parametrize("fill", [-1e20, float(np.finfo(np.float64).min), -np.inf])
def test_rest_is_what_lse_has_no_room_for(fill: float, rng: np.random.Generator) -> None:
    q, k, v = drawn(rng, (5, 4), (7, 4), (7, 3))
    mask = np.zeros((5, 7))
    mask[:3] = fill
    _, lse, rest = emit_all(lookup("attention")(True), q, k, v, constant(mask))
    seen = fill > -np.inf
    np.testing.assert_array_equal(lse.numpy()[:3], fill if seen else np.finfo(np.float64).min)
    expected = np.log([1, 2, 3]) if seen else np.finfo(np.float64).min
    np.testing.assert_allclose(rest.numpy()[:3], expected, rtol=1e-15)


@pytest.mark.parametrize("scale", [None, 0.4])
def test_third_derivatives(scale: float | None, rng: np.random.Generator) -> None:
    q, k, v, bias = drawn(rng, (3, 2), (4, 2), (4, 2), (4,))
    y = gf.scaled_dot_product_attention(q, k, v, bias, causal=True, scale=scale)
    check_gradients(y, [q, k, v, bias], rng, order=3)


def test_reference_in_blocks(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long sequences are computed block by block, with the same result."""
    q, k, v, d_out = (rng.normal(size=(2, n, 4)) for n in (9, 11, 11, 9))
    lse, rest, delta = rng.normal(size=(3, 2, 9)) + 1.5
    for causal in (False, True):
        for mask in ((), (rng.random((2, 9, 11)) < 0.7,), (rng.normal(size=(9, 1)),)):
            forward, backward = lookup("attention")(causal), lookup("attention_grad")(causal)
            expected = forward.eval(np, q, k, v, *mask)
            expected += backward.eval(np, q, k, v, lse, rest, delta, d_out, *mask)
            with monkeypatch.context() as changed:
                changed.setattr(attention_ops, "_BLOCK", 2 * 2 * 11)
                values = forward.eval(np, q, k, v, *mask)
                values += backward.eval(np, q, k, v, lse, rest, delta, d_out, *mask)
            for a, b in zip(values, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_no_square_tensor_is_made() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("batch", 6, "time", 64), name="x")
        mask = gf.placeholder(("batch", 1, 1, "time"), gf.bool)
        y = gf.scaled_dot_product_attention(x, x, x, mask, causal=True)
        gf.grad(gf.sum(y * y), x)
    time = x.shape[2]
    for node in graph.nodes:
        for t in node.types:
            assert list(t.shape).count(time) < 2


def test_a_tensor_may_be_the_scale(rng: np.random.Generator) -> None:
    q, k, v = drawn(rng, (3, 2), (4, 2), (4, 2))
    scale = constant(np.asarray(0.3))
    y = gf.scaled_dot_product_attention(q, k, v, scale=scale)
    expected = gf.scaled_dot_product_attention(q, k, v, scale=0.3)
    np.testing.assert_allclose(y.numpy(), expected.numpy())
    check_gradients(y, [q, scale], rng, order=1)


def test_dropout_is_composed(rng: np.random.Generator) -> None:
    q, k, v = drawn(rng, (3, 2), (4, 2), (4, 2))
    y = gf.scaled_dot_product_attention(q, k, np.eye(4), dropout=0.5, causal=True).numpy()
    full = gf.scaled_dot_product_attention(q, k, np.eye(4), causal=True).numpy()
    assert (np.isclose(y, 0) | np.isclose(y, 2 * full)).all()


def test_nan_and_infinity(rng: np.random.Generator) -> None:
    """Keys that a query sees spoil its row; others do not."""
    q, k, v = (rng.normal(size=(6, 4)) for _ in range(3))
    k[4] = np.nan
    with np.errstate(invalid="ignore"):
        y = gf.scaled_dot_product_attention(q, k, v, causal=True).numpy()
    assert np.isfinite(y[:4]).all()
    assert np.isnan(y[4:]).all()


def test_half_floats_are_computed_wide(rng: np.random.Generator) -> None:
    q, k, v = (gf.asarray(rng.normal(size=(9, 8)).astype(np.float16)) for _ in range(3))
    y = gf.scaled_dot_product_attention(q, k, v)
    wide = gf.scaled_dot_product_attention(*(gf.astype(x, gf.float32) for x in (q, k, v)))
    np.testing.assert_array_equal(y.numpy(), wide.numpy().astype(np.float16))
    (d_q,) = gf.grad(gf.sum(y), [q])
    assert d_q.dtype == gf.float16
