"""Attention: values and gradients against PyTorch, masks, shapes, errors."""

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import DTypeError, ShapeError

torch: Any = pytest.importorskip("torch")
attention = gf.scaled_dot_product_attention


def check(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None, **options: Any) -> None:
    """Compare values and all gradients."""
    a = [gf.asarray(x) for x in (q, k, v)]
    b = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    y = attention(*a, mask, causal=options.get("causal", False), scale=options.get("scale"))
    z = torch.nn.functional.scaled_dot_product_attention(
        *b,
        attn_mask=None if mask is None else torch.tensor(mask),
        is_causal=options.get("causal", False),
        scale=options.get("scale"),
    )
    ct = np.random.default_rng(q.size).normal(size=y.shape)
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=1e-9, atol=1e-12)
    z.backward(torch.tensor(ct))
    for mine, leaf in zip(gf.grad(y, a, ct), b, strict=True):
        np.testing.assert_allclose(mine.numpy(), leaf.grad.numpy(), rtol=1e-8, atol=1e-11)


def sample(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return tuple(rng.normal(size=(2, 3, *dims)) for dims in ((5, 4), (7, 4), (7, 6)))


def test_plain(rng: np.random.Generator) -> None:
    check(*sample(rng))
    check(*sample(rng), scale=0.3)


def test_causal_counts_from_the_first(rng: np.random.Generator) -> None:
    q, k, v = sample(rng)
    check(q, k, v, causal=True)
    check(k, q, v[..., :5, :], causal=True)
    y = attention(q, k, v, causal=True).numpy()
    np.testing.assert_allclose(y[..., 0, :], v[..., 0, :])


def test_bool_mask(rng: np.random.Generator) -> None:
    mask = rng.uniform(size=(5, 7)) < 0.6
    mask[:, 0] = True
    check(*sample(rng), mask)


def test_a_mask_of_one_number(rng: np.random.Generator) -> None:
    q, k, v = sample(rng)
    with gf.Graph() as graph:
        x, bias = gf.placeholder(q.shape, q.dtype, name="x"), gf.placeholder((), q.dtype)
        y = attention(x, gf.constant(k), gf.constant(v), bias)
    with gf.Session(graph) as session:
        made = session.run(y, {x: q, bias: 3.0})
    np.testing.assert_allclose(made, attention(q, k, v).numpy(), rtol=1e-5)


def test_float_mask(rng: np.random.Generator) -> None:
    mask = rng.normal(size=(2, 1, 5, 7))
    mask[0, 0, 1, 3] = -np.inf
    check(*sample(rng), mask)


@pytest.mark.exhaustive
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(37, 41), (41, 41), (1, 67), (3, 1), (5, 7)])
def test_queries_whose_keys_are_hidden_by_a_sum(
    queries: int, keys: int, causal: bool, rng: np.random.Generator
) -> None:
    """They see all keys alike, forward and backward: float32 holds no fill + log(keys)."""
    shapes = [(2, 3, time, 8) for time in (queries, keys, keys, queries)]
    *arrays, ct = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    hidden = rng.random((2, 1, queries, keys)) < 0.4
    hidden[:, :, ::3] = True
    with gf.Graph() as graph:
        fed = [gf.placeholder(shape) for shape in (*shapes[:3], hidden.shape)]
        y = attention(*fed, causal=causal)
        outputs = [y, *gf.grad(y, fed, gf.constant(ct))]
    with gf.Session(graph) as session:
        # Where the fill is -1e4, a score rounded the other way is another one by 0.001.
        for fill, slack in ((-1e4, 3e-3), (-1e9, 1e-5), (np.finfo(np.float32).min, 1e-5)):
            mask = np.where(hidden, np.float32(fill), np.float32(0))
            found = session.run(outputs, dict(zip(fed, (*arrays, mask), strict=True)))
            q, k, v, bias = leaves = [torch.tensor(x, requires_grad=True) for x in (*arrays, mask)]
            scores = q @ k.mT * 8**-0.5 + bias
            if causal:
                scores = torch.where(torch.ones(queries, keys).tril() > 0, scores, -torch.inf)
            z = torch.softmax(scores, -1) @ v
            z.backward(torch.tensor(ct))
            for mine, other in zip(found, (z.detach(), *[x.grad for x in leaves]), strict=True):
                np.testing.assert_allclose(mine, other.numpy(), rtol=slack, atol=slack)


def test_mask_and_causal_join(rng: np.random.Generator) -> None:
    q, k, v = sample(rng)
    mask = rng.uniform(size=(5, 7)) < 0.6
    mask[:, 0] = True
    both = attention(q, k, v, mask, causal=True).numpy()
    joined = attention(q, k, v, mask & np.tri(5, 7, dtype=bool)).numpy()
    np.testing.assert_array_equal(both, joined)


def test_query_that_sees_nothing_gets_zero(rng: np.random.Generator) -> None:
    q, k, v = (gf.asarray(x) for x in sample(rng))
    mask = np.ones((5, 7), bool)
    mask[2] = False
    y = attention(q, k, v, mask)
    assert (y.numpy()[:, :, 2] == 0).all()
    for gradient in gf.grad(gf.sum(y), [q, k, v]):
        assert np.isfinite(gradient.numpy()).all()


def test_heads_broadcast(rng: np.random.Generator) -> None:
    q, k, v = sample(rng)
    shared = attention(q, k[:, :1], v[:, :1]).numpy()
    repeated = attention(q, np.repeat(k[:, :1], 3, 1), np.repeat(v[:, :1], 3, 1)).numpy()
    np.testing.assert_allclose(shared, repeated)


def test_half_floats_do_not_overflow() -> None:
    x = gf.asarray(np.full((1, 2, 64), 60, np.float16))
    y = attention(x, x, x)
    assert y.dtype == gf.float16
    assert (y.numpy() == 60).all()


def test_symbolic_dims() -> None:
    with gf.Graph():
        q = gf.placeholder(("batch", 2, "to", "width"), name="q")
        k = gf.placeholder(("batch", 2, "time", "width"), name="k")
        v = gf.placeholder(("batch", 2, "time", 3), name="v")
        mask = gf.placeholder(("batch", 1, 1, "time"), gf.bool, name="mask")
        y = attention(q, k, v, mask, causal=True)
        assert str(y.type) == "float32[batch, 2, to, 3]"
        assert len(gf.grad(gf.sum(y), [q, k, v])) == 3


def test_no_keys() -> None:
    y = attention(np.ones((2, 3)), np.ones((0, 3)), np.ones((0, 4)))
    assert y.numpy().tolist() == [[0] * 4] * 2


def test_errors() -> None:
    x = gf.zeros((2, 5, 4))
    with pytest.raises(ShapeError, match=r"q has width 4, and k 3(.*\n)+  q +float32.*\n  k +flo"):
        attention(x, gf.zeros((2, 5, 3)), x)
    with pytest.raises(ShapeError, match="there are 5 keys, and 6 values"):
        attention(x, x, gf.zeros((2, 6, 4)))
    with pytest.raises(ShapeError, match="q must have 2 dims or more, not 1"):
        attention(gf.zeros(4), x, x)
    with pytest.raises(ShapeError, match=r"dim -3 of \[2, 5, 4\] and dim -3 of \[3, 5, 4\]"):
        attention(x, gf.zeros((3, 5, 4)), gf.zeros((3, 5, 4)))
    with pytest.raises(ShapeError, match=r"mask's shape \[5, 4\] does not broadcast to the score"):
        attention(x, x, x, gf.zeros((5, 4), dtype="bool"))
    with pytest.raises(DTypeError, match=r"must be of bools or floats, not int64(.*\n)+.*mask !="):
        attention(x, x, x, gf.zeros((5, 5), dtype="int64"))
