"""Pooling, windows and folds against PyTorch; NaN, ties, sizes, dtypes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, ShapeError
from tests.support.peers import check_like_torch, torch

TF = torch.nn.functional
MAX = {1: TF.max_pool1d, 2: TF.max_pool2d, 3: TF.max_pool3d}
AVG = {1: TF.avg_pool1d, 2: TF.avg_pool2d, 3: TF.avg_pool3d}
LP = {1: TF.lp_pool1d, 2: TF.lp_pool2d, 3: TF.lp_pool3d}
ADAPTIVE_MAX = {1: TF.adaptive_max_pool1d, 2: TF.adaptive_max_pool2d, 3: TF.adaptive_max_pool3d}
ADAPTIVE_AVG = {1: TF.adaptive_avg_pool1d, 2: TF.adaptive_avg_pool2d, 3: TF.adaptive_avg_pool3d}

ranks = pytest.mark.parametrize("rank", [1, 2, 3])
many = pytest.mark.parametrize("case", range(6))


def drawn(rng: np.random.Generator, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Draw kernel, stride, padding and sizes that PyTorch takes."""
    kernel = rng.integers(1, 4, rank)
    sizes = kernel + rng.integers(0, 5, rank)
    padding = [int(rng.integers(0, k // 2 + 1)) for k in kernel]
    return kernel.tolist(), rng.integers(1, 4, rank).tolist(), padding, sizes.tolist()


def with_ties(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-2, 3, size=shape).astype(np.float64)


@many
@ranks
def test_max_pool(rank: int, case: int, rng: np.random.Generator) -> None:
    kernel, stride, padding, sizes = drawn(rng, rank)
    dilation = rng.integers(1, 3, rank).tolist()
    sizes = [s + (d - 1) * (k - 1) for s, k, d in zip(sizes, kernel, dilation, strict=True)]
    x = with_ties(rng, (case % 3 + 1, 2, *sizes))
    how = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": case % 2 == 0}
    check_like_torch(
        lambda x: gf.max_pool(x, kernel, **how), lambda x: MAX[rank](x, kernel, **how), x
    )
    _, indices = gf.max_pool(x, kernel, return_indices=True, **how)
    _, expected = MAX[rank](torch.tensor(x), kernel, return_indices=True, **how)
    np.testing.assert_array_equal(indices.numpy(), expected.numpy(), strict=True)


def test_padding_takes_no_op_of_its_own() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((1, 2, 7, 7))
        gf.max_pool(x, 3, stride=2, padding=1, ceil_mode=True)
        gf.avg_pool(x, 3, stride=2, padding=1)
    names = [node.op.name for node in graph.nodes]
    assert "window_max" in names
    assert "window_sum" in names
    assert "pad" not in names
    assert "slice_set" not in names


def test_one_window_on_all_there_is_is_a_sum() -> None:
    with gf.Graph() as graph:
        gf.avg_pool(gf.placeholder((1, 2, 3, 4)), (3, 4))
    assert "window_sum" not in [node.op.name for node in graph.nodes]


def test_padding_is_never_the_largest() -> None:
    x = -np.ones((1, 1, 3, 3))
    assert (gf.max_pool(x, 3, padding=1).numpy() == -1).all()
    x = np.full((1, 1, 3), -128, np.int8)
    values, indices = gf.max_pool(x, 2, stride=1, padding=1, return_indices=True)
    assert values.numpy().tolist() == [[[-128] * 4]]
    assert indices.numpy().tolist() == [[[0, 0, 1, 2]]]


def test_max_pool_of_nan_and_infinities(rng: np.random.Generator) -> None:
    x = with_ties(rng, (2, 2, 6, 6))
    x[0, 0, 2, 3] = x[1, 1, 0, 0] = np.nan
    x[0, 1, :3] = -np.inf
    x[1, 0, 4] = np.inf
    values, indices = gf.max_pool(x, 3, stride=1, return_indices=True)
    expected = TF.max_pool2d(torch.tensor(x), 3, 1, return_indices=True)
    np.testing.assert_array_equal(values.numpy(), expected[0].numpy())
    np.testing.assert_array_equal(indices.numpy(), expected[1].numpy())


def test_infinite_cotangents_stay_where_they_belong() -> None:
    x = gf.asarray([[[1.0, 2.0, 3.0, 0.0]]])
    gradient = gf.grad(gf.max_pool(x, 2), x, gf.asarray([[[np.inf, 1.0]]]))
    np.testing.assert_array_equal(gradient.numpy(), [[[0.0, np.inf, 1.0, 0.0]]])


@pytest.mark.exhaustive
@many
@ranks
@pytest.mark.parametrize("with_padding", [False, True])
def test_avg_pool(rank: int, case: int, with_padding: bool, rng: np.random.Generator) -> None:
    kernel, stride, padding, sizes = drawn(rng, rank)
    x = rng.normal(size=(case % 3 + 1, 2, *sizes))
    divisor = None if rank == 1 or case % 3 else 3
    theirs = {} if rank == 1 else {"divisor_override": divisor}
    how = {
        "stride": stride,
        "padding": padding,
        "ceil_mode": case % 2 == 0,
        "count_include_pad": with_padding,
    }
    check_like_torch(
        lambda x: gf.avg_pool(x, kernel, divisor_override=divisor, **how),
        lambda x: AVG[rank](x, kernel, **how, **theirs),
        x,
    )


def test_avg_pool_counts_what_a_dilated_window_sees(rng: np.random.Generator) -> None:
    x = rng.normal(size=(1, 1, 4))
    y = gf.avg_pool(x, 2, stride=1, dilation=3, padding=2, count_include_pad=False).numpy()
    row = x[0, 0]
    expected = [row[1], row[2], (row[0] + row[3]) / 2, row[1], row[2]]
    np.testing.assert_allclose(y[0, 0], expected, rtol=1e-12)


@pytest.mark.exhaustive
@many
@ranks
@pytest.mark.parametrize("ord", [1, 2, 3])
def test_lp_pool(rank: int, ord: int, case: int, rng: np.random.Generator) -> None:
    kernel, stride, _, sizes = drawn(rng, rank)
    x = rng.normal(size=(case % 3 + 1, 2, *sizes))
    x = x if ord == 2 else np.abs(x)  # PyTorch does not take the absolute value

    def theirs(x: Any) -> Any:
        ways = (kernel[0], stride[0]) if rank == 1 else (kernel, stride)
        return LP[rank](x, float(ord), *ways)

    check_like_torch(lambda x: gf.lp_pool(x, ord, kernel, stride=stride), theirs, x)


def test_lp_pool_of_signs_and_zeros() -> None:
    x = gf.asarray([[[-3.0, 4.0, 0.0, 0.0]]])
    for ord, norm in ((1, 7.0), (2, 5.0), (3, 91 ** (1 / 3)), (np.inf, 4.0)):
        y = gf.lp_pool(x, ord, 2)
        np.testing.assert_allclose(y.numpy(), [[[norm, 0.0]]], rtol=1e-6)
        gradient = gf.grad(gf.sum(y), x).numpy()
        assert gradient[0, 0, 0] <= 0 < gradient[0, 0, 1]
        assert (gradient[0, 0, 2:] == 0).all()


@pytest.mark.exhaustive
@many
@ranks
def test_adaptive_pools(rank: int, case: int, rng: np.random.Generator) -> None:
    sizes, wanted = rng.integers(1, 8, (2, rank)).tolist()
    x = rng.normal(size=(case % 3 + 1, 2, *sizes))
    check_like_torch(
        lambda x: gf.adaptive_avg_pool(x, wanted), lambda x: ADAPTIVE_AVG[rank](x, wanted), x
    )
    x = with_ties(rng, x.shape)
    check_like_torch(
        lambda x: gf.adaptive_max_pool(x, wanted), lambda x: ADAPTIVE_MAX[rank](x, wanted), x
    )
    _, indices = gf.adaptive_max_pool(x, wanted, return_indices=True)
    _, expected = ADAPTIVE_MAX[rank](torch.tensor(x), wanted, return_indices=True)
    np.testing.assert_array_equal(indices.numpy(), expected.numpy(), strict=True)


def test_one_bin_is_global_and_none_stays(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 4, 5))
    np.testing.assert_allclose(
        gf.adaptive_avg_pool(x, 1).numpy(), x.mean((2, 3), keepdims=True), rtol=1e-12
    )
    np.testing.assert_array_equal(gf.adaptive_max_pool(x, (None, 1)).numpy()[..., 0], x.max(3))


@pytest.mark.parametrize("beta", [0.25, 0.5, 0.6, 0.75])
@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_local_response_norm(size: int, beta: float, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 5, 3, 2))
    check_like_torch(
        lambda x: gf.local_response_norm(x, size, alpha=0.3, beta=beta, k=1.5),
        lambda x: TF.local_response_norm(x, size, 0.3, beta, 1.5),
        x,
    )


@many
def test_unfold_and_fold(case: int, rng: np.random.Generator) -> None:
    kernel, stride, padding, sizes = drawn(rng, 2)
    dilation = rng.integers(1, 3, 2).tolist()
    sizes = [s + (d - 1) * (k - 1) for s, k, d in zip(sizes, kernel, dilation, strict=True)]
    how = {"stride": stride, "padding": padding, "dilation": dilation}
    x = rng.normal(size=(case % 3, 2, *sizes))
    check_like_torch(
        lambda x: gf.unfold(x, kernel, **how),
        lambda x: TF.unfold(x, kernel, **how),
        np.concatenate([x, rng.normal(size=(1, *x.shape[1:]))]),
    )
    columns = rng.normal(size=gf.unfold(x, kernel, **how).shape)
    if case % 3:
        check_like_torch(
            lambda x: gf.fold(x, sizes, kernel, **how),
            lambda x: TF.fold(x, sizes, kernel, **how),
            columns,
        )
    else:
        assert gf.fold(columns, sizes, kernel, **how).shape == x.shape


def test_windows_in_three_dims(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 2, 3, 4, 3))
    w = rng.normal(size=(3, 2, 2, 3, 1))
    columns = gf.unfold(x, (2, 3, 1))
    y = w.reshape(3, -1) @ columns.numpy()
    np.testing.assert_allclose(y.reshape(2, 3, 2, 2, 3), gf.conv(x, w).numpy(), rtol=1e-9)
    ones = gf.fold(gf.ones_like(columns), x.shape[2:], (2, 3, 1)).numpy()
    assert ones[0, 0, 0, 0, 0] == 1
    assert ones[0, 0, 1, 1, 0] == 4


def test_symbolic_sizes(rng: np.random.Generator) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 2, "h", "w"), name="x")
        pooled = gf.max_pool(x, 2)
        ys = [
            pooled,
            gf.avg_pool(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=True),
            gf.avg_pool(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
            gf.adaptive_avg_pool(x, (3, 2)),
            gf.adaptive_max_pool(x, 3),
            gf.unfold(x, 2, stride=2),
        ]
        slope = gf.grad(gf.sum(ys[3]) + gf.sum(ys[4]) + gf.sum(ys[1]), x)
        assert str(pooled.shape) == "(n, 2, h//2, w//2)"
        assert slope.shape == x.shape
    with gf.Session(graph) as session:
        for sizes in ((4, 6), (7, 5), (9, 3), (3, 4)):
            array = rng.normal(size=(2, 2, *sizes)).astype(np.float32)
            t = torch.tensor(array, requires_grad=True)
            expected = [
                TF.max_pool2d(t, 2),
                TF.avg_pool2d(t, 3, 2, 1, True, True),
                TF.avg_pool2d(t, 3, 2, 1, True, False),
                TF.adaptive_avg_pool2d(t, (3, 2)),
                TF.adaptive_max_pool2d(t, 3),
                TF.unfold(t, 2, stride=2),
            ]
            total = expected[3].sum() + expected[4].sum() + expected[1].sum()
            (gradient,) = torch.autograd.grad(total, t)
            *values, mine = session.run([*ys, slope], {x: array})
            for value, wanted in zip(values, expected, strict=True):
                np.testing.assert_allclose(value, wanted.detach(), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(mine, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: gf.max_pool(x, 2, stride=1),
        lambda x: gf.avg_pool(x, 3, padding=1, count_include_pad=False),
        lambda x: gf.lp_pool(x, 3, 2),
        lambda x: gf.adaptive_max_pool(x, 3),
        lambda x: gf.unfold(x, 2),
        lambda x: gf.grad(gf.sum(gf.max_pool(x, 2, stride=1) ** 2), x),
        lambda x: gf.local_response_norm(x, 3),
    ],
)
def test_vmap(pool: Any, rng: np.random.Generator) -> None:
    x = gf.asarray(rng.normal(size=(3, 2, 2, 5)))
    together = gf.vmap(pool)(x).numpy()
    for i in range(3):
        np.testing.assert_allclose(together[i], pool(x[i]).numpy(), rtol=1e-12, atol=1e-12)


def test_forward_mode_follows_the_largest() -> None:
    x, dx = np.array([[[1.0, 3.0, 3.0, 2.0]]]), np.array([[[1.0, 2.0, 4.0, 8.0]]])
    _, dy = gf.jvp(lambda x: gf.max_pool(x, 2, stride=1), (x,), (dx,))
    assert dy.numpy().tolist() == [[[2.0, 2.0, 4.0]]]


@pytest.mark.parametrize("dtype", [gf.float16, gf.bfloat16], ids=str)
def test_low_precision(dtype: gf.DType, rng: np.random.Generator) -> None:
    x = gf.astype(rng.normal(size=(1, 1, 600)), dtype)
    wide = gf.astype(x, gf.float32)
    for pool in (
        lambda x: gf.avg_pool(x, 500),
        lambda x: gf.adaptive_avg_pool(x, 1),
        lambda x: gf.lp_pool(x, 2, 500),
        lambda x: gf.max_pool(x, 100),
    ):
        y = pool(x)
        assert y.dtype is dtype
        np.testing.assert_allclose(
            gf.astype(y, gf.float32).numpy(),
            gf.astype(gf.astype(pool(wide), dtype), gf.float32).numpy(),
            rtol=2**-7,
        )


X = np.ones((1, 2, 4, 4))


@pytest.mark.parametrize(
    ("call", "error", "text", "fix"),
    [
        (lambda: gf.max_pool(X[0, 0], 2), ShapeError, "x has 2 dims: it must be [N, C, *S]", "dim"),
        (
            lambda: gf.max_pool(X, 5),
            ShapeError,
            "the kernel 5 is larger than dim 2 of x: 4",
            "by 1",
        ),
        (lambda: gf.max_pool(X, (1, 2, 3)), ArgumentError, "does not fit 2 spatial dims", "2"),
        (lambda: gf.avg_pool(X, 2, padding=2), ArgumentError, "the padding 2 is as wide as", "2"),
        (
            lambda: gf.avg_pool(X, 2, divisor_override=0),
            ArgumentError,
            "divisor_override is 0",
            "N",
        ),
        (lambda: gf.max_pool(X > 0, 2), DTypeError, "max_pool: wants real tensors, not bool", "a"),
        (lambda: gf.avg_pool(X + 1j, 2), DTypeError, "avg_pool: wants floating-point", "gf.abs"),
        (lambda: gf.lp_pool(X, "two", 2), ArgumentError, "ord='two' gives no norm", "1 or more"),
        (lambda: gf.lp_pool(X, 0.5, 2), ArgumentError, "ord=0.5 gives no norm", "1 or more"),
        (
            lambda: gf.adaptive_avg_pool(X, 0),
            ArgumentError,
            "output_size=[0, 0] must be 1",
            "1 or more",
        ),
        (lambda: gf.adaptive_max_pool(X[..., :0], 2), ShapeError, "dim 3 of x is empty", "elem"),
        (lambda: gf.unfold(X, 2, dilation=4), ShapeError, "2, 5 wide by dilation, is larger", "1"),
        (
            lambda: gf.fold(np.ones((1, 8, 8)), (4, 4), 2),
            ShapeError,
            "fold: x must be [N, C * 4, 9], for 4 elements in 9 positions; it is [1, 8, 8]",
            "the unfold that it came from",
        ),
        (lambda: gf.local_response_norm(X, 0), ArgumentError, "size=0 must be 1 or more", "1"),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str, fix: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, gf.errors.GraphfwError)
    assert text in caught.value.summary  # the whole text has this test's line
    assert fix in caught.value.fix
