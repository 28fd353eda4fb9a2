"""Sampling at places of a grid, and pixels exchanged for channels, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ShapeError
from tests.support.peers import check_like_torch, torch

TF = torch.nn.functional


@pytest.mark.exhaustive
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "rank"),
    [("bilinear", 2), ("bilinear", 3), ("nearest", 2), ("nearest", 3), ("bicubic", 2)],
)
@pytest.mark.parametrize("case", range(3))
def test_grid_sample(
    mode: str,
    rank: int,
    padding_mode: str,
    align_corners: bool,
    case: int,
    rng: np.random.Generator,
) -> None:
    how = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    sizes, output_sizes = rng.integers(1, 5, (2, rank)).tolist()
    x = rng.normal(size=(case + 1, 2, *sizes))
    grid = rng.uniform(-1.8, 1.8, size=(case + 1, *output_sizes, rank))
    if mode == "nearest":
        check_like_torch(
            lambda x: gf.grid_sample(x, grid, **how),
            lambda x: TF.grid_sample(x, torch.tensor(grid), **how),
            x,
        )
    else:
        check_like_torch(
            lambda x, g: gf.grid_sample(x, g, **how),
            lambda x, g: TF.grid_sample(x, g, **how),
            x,
            grid,
        )


def test_grid_sample_in_one_dim(rng: np.random.Generator) -> None:
    x, grid = rng.normal(size=(2, 3, 5)), rng.uniform(-1, 1, size=(2, 4, 1))
    y = gf.grid_sample(x, grid).numpy()
    flat = np.concatenate([grid, np.zeros_like(grid)], -1)[:, None]
    z = TF.grid_sample(torch.tensor(x)[:, :, None], torch.tensor(flat), align_corners=False)
    np.testing.assert_allclose(y, z[:, :, 0], rtol=1e-9, atol=1e-12)


def test_places_that_are_no_numbers_are_outside() -> None:
    x = gf.asarray([[[1.0, 2.0]]])
    grid = gf.asarray([[[np.nan], [np.inf], [-1e30], [1e30], [0.5]]])
    y = gf.grid_sample(x, grid, mode="nearest")
    assert y.numpy().tolist() == [[[0.0, 0.0, 0.0, 0.0, 2.0]]]


@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 1, 3, 4), (1, 3, 1, 5), (2, 1, 2, 3, 4)])
def test_affine_grid(size: tuple[int, ...], align_corners: bool, rng: np.random.Generator) -> None:
    rank = len(size) - 2
    check_like_torch(
        lambda theta: gf.affine_grid(theta, size, align_corners=align_corners),
        lambda theta: TF.affine_grid(theta, size, align_corners=align_corners),
        rng.normal(size=(size[0], rank, rank + 1)),
    )


def test_symbolic_sizes(rng: np.random.Generator) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 2, "h", "w"), name="x")
        theta = gf.placeholder(("n", 2, 3), name="theta")
        y = gf.grid_sample(x, gf.affine_grid(theta, x.shape), padding_mode="reflection")
        assert str(y.shape) == "(n, 2, h, w)"
    with gf.Session(graph) as session:
        for sizes in ((3, 4), (1, 5)):
            a = rng.normal(size=(2, 2, *sizes)).astype(np.float32)
            t = rng.normal(size=(2, 2, 3)).astype(np.float32)
            value = session.run(y, {x: a, theta: t})
            grid = TF.affine_grid(torch.tensor(t), a.shape, align_corners=False)
            expected = TF.grid_sample(
                torch.tensor(a), grid, padding_mode="reflection", align_corners=False
            )
            np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)


def test_vmap(rng: np.random.Generator) -> None:
    x, grid = rng.normal(size=(3, 1, 2, 4)), rng.uniform(-1, 1, size=(3, 1, 5, 1))
    together = gf.vmap(gf.grid_sample)(x, grid).numpy()
    for i in range(3):
        np.testing.assert_allclose(together[i], gf.grid_sample(x[i], grid[i]).numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "factor"), [((2, 12, 3, 5), 2), ((9, 1, 2), 3), ((2, 2, 4, 1, 1), 1)]
)
def test_pixel_shuffle(shape: tuple[int, ...], factor: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=shape)
    check_like_torch(
        lambda x: gf.pixel_shuffle(x, factor), lambda x: TF.pixel_shuffle(x, factor), x
    )
    back = gf.pixel_unshuffle(gf.pixel_shuffle(x, factor), factor)
    np.testing.assert_array_equal(back.numpy(), x)
    wide = rng.normal(size=(*shape[:-2], shape[-2] * factor, shape[-1] * factor))
    check_like_torch(
        lambda x: gf.pixel_unshuffle(x, factor), lambda x: TF.pixel_unshuffle(x, factor), wide
    )


X, GRID = np.ones((2, 4, 3, 3)), np.zeros((2, 5, 5, 2))


@pytest.mark.parametrize(
    ("call", "error", "text", "fix"),
    [
        (lambda: gf.grid_sample(X, GRID[:1]), ShapeError, "must be [2, *P, 2]", "2 numbers"),
        (lambda: gf.grid_sample(X, GRID[..., :1]), ShapeError, "it is [2, 5, 5, 1]", "2 numbers"),
        (lambda: gf.grid_sample(X, GRID[0]), ShapeError, "it is [5, 5, 2]", "2 numbers"),
        (lambda: gf.grid_sample(X, GRID, mode="area"), ArgumentError, "mode='area' is none", "lin"),
        (
            lambda: gf.grid_sample(X, GRID, padding_mode="wrap"),
            ArgumentError,
            'padding_mode=\'wrap\' is none of "zeros", "border", "reflection"',
            "use one of",
        ),
        (
            lambda: gf.affine_grid(np.ones((1, 2, 2)), (1, 1, 3, 3)),
            ShapeError,
            "theta must be [1, 2, 3], not [1, 2, 2]",
            "a row for each spatial dim",
        ),
        (lambda: gf.pixel_shuffle(X, 3), ShapeError, "dim -3 of x, 4, is no multiple of 9", "pad"),
        (lambda: gf.pixel_unshuffle(X, 2), ShapeError, "dim -2 of x, 3, is no multiple", "pad"),
        (lambda: gf.pixel_shuffle(X[0, 0], 2), ShapeError, "x has 2 dims", "expand_dims"),
        (lambda: gf.pixel_shuffle(X, 0), ArgumentError, "upscale_factor=0 must be 1", "1"),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str, fix: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert fix in caught.value.fix  # type: ignore[attr-defined]  # of a graphfw error
