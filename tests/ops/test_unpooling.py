"""Unpooling against PyTorch; sizes, gradients, lanes, what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, ExecutionError, ShapeError
from tests.support.peers import check_like_torch, torch

TF = torch.nn.functional
UNPOOL = {1: TF.max_unpool1d, 2: TF.max_unpool2d, 3: TF.max_unpool3d}


def pooled(x: np.ndarray, *args: Any, **how: Any) -> tuple[np.ndarray, np.ndarray]:
    values, indices = gf.max_pool(x, *args, return_indices=True, **how)
    return values.numpy(), indices.numpy()


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_like_pytorch(rank: int, case: int, rng: np.random.Generator) -> None:
    kernel = rng.integers(2, 4, rank).tolist()
    # Windows side by side, so that nothing is the largest of two.
    stride = [k + int(rng.integers(0, 2)) for k in kernel] if case % 2 else None
    padding = [int(rng.integers(0, k // 2 + 1)) for k in kernel]
    sizes = [k + int(rng.integers(2, 6)) for k in kernel]
    x = rng.normal(size=(case % 3, 2, *sizes) if case else (2, 3, *sizes))
    y, indices = pooled(x, kernel, stride=stride, padding=padding)
    check_like_torch(
        lambda y: gf.max_unpool(
            y, indices, kernel, stride=stride, padding=padding, output_size=sizes
        ),
        lambda y: UNPOOL[rank](y, torch.tensor(indices), kernel, stride, padding, sizes),
        y,
    )


def test_the_default_size(rng: np.random.Generator) -> None:
    y, indices = pooled(rng.normal(size=(2, 3, 7, 8)), (3, 2), padding=1)
    mine = gf.max_unpool(y, indices, (3, 2), padding=1)
    theirs = TF.max_unpool2d(torch.tensor(y), torch.tensor(indices), (3, 2), None, 1)
    np.testing.assert_array_equal(mine.numpy(), theirs.numpy(), strict=True)
    whole = gf.max_unpool(y, indices, (3, 2), padding=1, output_size=mine.shape)
    np.testing.assert_array_equal(whole.numpy(), mine.numpy())


def test_what_is_put_can_be_pooled_again(rng: np.random.Generator) -> None:
    x = rng.uniform(1, 2, size=(2, 2, 5, 7))
    y, indices = pooled(x, 3, stride=2, padding=1)
    back = gf.max_unpool(y, indices, 3, stride=2, padding=1, output_size=x.shape)
    kept = np.isin(x, y)
    np.testing.assert_array_equal(back.numpy(), np.where(kept, x, 0))
    np.testing.assert_array_equal(gf.max_pool(back, 3, stride=2, padding=1).numpy(), y)


def test_of_two_at_one_place_the_last_counts_and_gets_the_gradient() -> None:
    y = gf.asarray([[[1.0, 2.0, 3.0]]])
    back = gf.max_unpool(y, [[[2, 0, 2]]], 2)
    assert back.numpy().tolist() == [[[2.0, 0.0, 3.0, 0.0, 0.0, 0.0]]]
    gradient = gf.grad(back, y, np.arange(1.0, 7.0, dtype=np.float32).reshape(1, 1, 6))
    assert gradient.numpy().tolist() == [[[0.0, 1.0, 3.0]]]


def test_second_gradients_and_forward_mode(rng: np.random.Generator) -> None:
    y, indices = pooled(rng.normal(size=(2, 1, 6)), 2)
    t = gf.asarray(y)
    slope = gf.grad(gf.sum(gf.max_unpool(t, indices, 2) ** 3), t)
    np.testing.assert_allclose(slope.numpy(), 3 * y**2, rtol=1e-12)
    np.testing.assert_allclose(gf.grad(gf.sum(slope), t).numpy(), 6 * y, rtol=1e-12)
    _, tangent = gf.jvp(lambda y: gf.max_unpool(y, indices, 2), (y,), (2 * y,))
    np.testing.assert_array_equal(tangent.numpy(), gf.max_unpool(2 * y, indices, 2).numpy())


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
def test_vmap(in_axes: tuple[Any, Any], rng: np.random.Generator) -> None:
    y, indices = pooled(rng.normal(size=(6, 2, 4, 5)), 2)
    y, indices = (a.reshape(3, 2, *a.shape[1:]) for a in (y, indices))
    given = [a if axis == 0 else a[0] for a, axis in zip((y, indices), in_axes, strict=True)]

    def unpool(y: Any, indices: Any) -> gf.Tensor:
        return gf.max_unpool(y, indices, 2, output_size=(4, 5))

    together = gf.vmap(unpool, in_axes=in_axes)(*given).numpy()
    for i in range(3):
        lane = [a[i] if axis == 0 else a for a, axis in zip(given, in_axes, strict=True)]
        np.testing.assert_array_equal(together[i], unpool(*lane).numpy())


def test_symbolic_sizes(rng: np.random.Generator) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 2, "h", "w"), name="x")
        y, indices = gf.max_pool(x, 2, return_indices=True)
        usual = gf.max_unpool(y, indices, 2)
        back = gf.max_unpool(y, indices, 2, output_size=x.shape[2:])
        assert str(usual.shape) == "(n, 2, 2*(h//2), 2*(w//2))"
        assert back.shape == x.shape
        slope = gf.grad(gf.sum(back**2), x)
    with gf.Session(graph) as session:
        for sizes in ((4, 6), (7, 5), (1, 4)):
            array = rng.normal(size=(2, 2, *sizes)).astype(np.float32)
            value, gradient = session.run([back, slope], {x: array})
            kept = pooled(array, 2)[0] if min(sizes) > 1 else []
            wanted = np.where(np.isin(array, kept), array, 0)
            np.testing.assert_array_equal(value, wanted)
            np.testing.assert_allclose(gradient, 2 * wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "float16", "complex64", "bool"])
def test_any_dtype(dtype: str) -> None:
    back = gf.max_unpool(np.ones((1, 1, 2), dtype), np.array([[[1, 2]]], np.uint8), 2)
    wanted = np.array([[[0, 1, 1, 0]]], dtype)
    np.testing.assert_array_equal(back.numpy(), wanted, strict=True)


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_outside_of_the_plane(index: int) -> None:
    with gf.Graph() as graph:
        indices = gf.placeholder((1, 2, 2), gf.int64, name="places")
        back = gf.max_unpool(np.ones((1, 2, 2)), indices, 2)
    text = f"max_unpool: index {index} lies outside of a plane of 4 elements"
    with gf.Session(graph) as session, pytest.raises(ExecutionError, match=text):
        session.run(back, {indices: np.array([[[0, 3], [index, 2]]])})


X = np.ones((1, 2, 4, 4))
I = np.zeros((1, 2, 4, 4), np.int64)  # noqa: E741  indices, as in the formulas


@pytest.mark.parametrize(
    ("call", "error", "text", "fix"),
    [
        (lambda: gf.max_unpool(X[0, 0], I, 2), ShapeError, "x has 2 dims", "dim"),
        (
            lambda: gf.max_unpool(X, I[..., :3], 2),
            ShapeError,
            "max_unpool: indices [1, 2, 4, 3] are not those of x [1, 2, 4, 4]",
            "the pooling that made x",
        ),
        (lambda: gf.max_unpool(X, X, 2), DTypeError, "must be integers", ""),
        (lambda: gf.max_unpool(X, I, (2, 2, 2)), ArgumentError, "does not fit 2 spatial dims", "2"),
        (lambda: gf.max_unpool(X, I, 2, padding="same"), ArgumentError, "'same' is no number", "0"),
        (lambda: gf.max_unpool(X, I, 2, padding=-1), ArgumentError, "-1 is negative", "slice"),
        (
            lambda: gf.max_unpool(X, I, 2, output_size=(8, 10)),
            ArgumentError,
            "output_size 10 is out of reach: without it there would be 8, and the stride is 2",
            "more than 6 and less than 10",
        ),
        (lambda: gf.max_unpool(X, I, 3, output_size=(9, 12)), ArgumentError, "size 9 is out", "9"),
        (
            lambda: gf.max_unpool(X, I, 2, output_size=(8, 8, 8)),
            ArgumentError,
            "output_size=[8, 8, 8] does not fit 2 spatial dims",
            "spatial dims",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str, fix: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert fix in caught.value.fix  # type: ignore[attr-defined]  # of a graphfw error
