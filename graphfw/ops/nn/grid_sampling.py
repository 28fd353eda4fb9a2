"""Sampling at positions that tensors say, and exchanging channels for positions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from graphfw.errors import ShapeError, counted
from graphfw.ir.dim import DimLike, dim_max, divisible
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, dims_of
from graphfw.ops.composed import demand, demand_one_of, floats, wide
from graphfw.ops.nn.spatial_arguments import each, spatial_rank

__all__ = ["affine_grid", "grid_sample", "pixel_shuffle", "pixel_unshuffle"]

_MODES = {
    "linear": "linear",
    "bilinear": "linear",
    "nearest": "nearest",
    "cubic": "cubic",
    "bicubic": "cubic",
}


@public
def grid_sample(
    x: TensorLike,
    grid: TensorLike,
    /,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Sample x at the positions of a grid.  x: [N, C, *S], grid: [N, *P, R] -> [N, C, *P]

    The R numbers of a position are for x's R spatial dims from the last to the first (x, y, z), and
    run from -1 to 1 over each. Floats; float16 and bfloat16 are computed in float32. M. Jaderberg
    et al., "Spatial transformer networks", 2015.

    Args:
        x: The images, sequences or volumes.
        grid: The positions.
        mode: "linear" ("bilinear" is the same), "nearest", or "cubic" ("bicubic"), with the
            coefficient -0.75.
        padding_mode: What lies outside: "zeros", "border" (the element at the edge), or
            "reflection".
        align_corners: Whether -1 and 1 are the middles of the outer elements, not their edges.

    Raises:
        ShapeError: The grid has not x's number of elements and R numbers for each position.
        ArgumentError: There is no such mode.
        DTypeError: x or the grid is complex.

    >>> import graphfw as gf
    >>> gf.grid_sample([[[1.0, 3.0]]], [[[0.0], [0.5]]])
    Tensor([[[2., 3.]]], dtype=float32)
    """
    tensor, coordinates = floats("grid_sample", x), floats("grid_sample", grid)
    demand_one_of("grid_sample", "mode", mode, _MODES)
    demand_one_of("grid_sample", "padding_mode", padding_mode, _PADDING)
    rank = spatial_rank("grid_sample", tensor)
    wanted = (tensor.shape[0], rank)
    demand(
        coordinates.ndim == tensor.ndim and (coordinates.shape[0], coordinates.shape[-1]) == wanted,
        f"grid_sample: the grid must be [{wanted[0]}, *P, {rank}], with "
        f"{counted(rank, 'dim')} of positions; "
        f"it is {shape_text(coordinates.shape)}",
        {"x": tensor, "grid": coordinates},
        fix=f"give {rank} numbers from -1 to 1 for each position",
        error=ShapeError,
    )
    values, numbers = wide(tensor), wide(coordinates)
    # For each spatial dim the elements that count: where they are, and with what weight.
    taps = []
    for axis in range(rank):
        size = tensor.shape[axis + 2]
        unit = numbers[..., rank - 1 - axis]
        where = (unit + 1) * (size - 1) / 2 if align_corners else ((unit + 1) * size - 1) / 2
        settle = _PADDING[padding_mode](size, align_corners)
        taps.append(_taps(_MODES[mode], where, settle))
    sizes = tensor.shape[2:]
    total: Any = None
    for some in itertools.product(*taps):
        term = _picked(values, [where for where, _ in some], sizes)
        for _, weight in some:
            if weight is not None:
                term = term * F.expand_dims(converted(weight, term.dtype), axis=1)
        total = term if total is None else total + term
    return converted(total, tensor.dtype)


Settle = Callable[[Tensor], Tensor]


def _zeros(size: DimLike, align_corners: bool) -> Settle:
    return lambda where: where


def _border(size: DimLike, align_corners: bool) -> Settle:
    return lambda where: F.minimum(F.maximum(where, 0), size - 1)


def _reflection(size: DimLike, align_corners: bool) -> Settle:
    low = 0.0 if align_corners else -0.5
    span = size - 1 if align_corners else size
    clip = _border(size, align_corners)

    def reflect(where: Tensor) -> Tensor:
        # There and back again is one period; with one element there is nothing to reflect.
        folded = (where - low) % dim_max(2 * span, 1)
        return clip(F.minimum(folded, 2 * span - folded) + low)

    return reflect


_PADDING = {"zeros": _zeros, "border": _border, "reflection": _reflection}


def _taps(mode: str, where: Tensor, settle: Settle) -> list[tuple[Tensor, Tensor | None]]:
    """Return the positions of the elements that count, as whole floats, and their weights."""
    if mode == "nearest":
        return [(F.round(settle(where)), None)]
    if mode == "linear":
        settled = settle(where)
        first = F.floor(settled)
        fraction = settled - first
        return [(first, 1 - fraction), (first + 1, fraction)]
    first = F.floor(where)
    fraction = where - first
    return [
        (settle(first + offset), weight)
        for offset, weight in zip(range(-1, 3), _cubic(fraction), strict=True)
    ]


def _cubic(fraction: Tensor) -> list[Tensor]:
    """Return the weights of the four elements around a position, `fraction` after the second."""
    a = -0.75

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(fraction + 1), near(fraction), near(1 - fraction), far(2 - fraction)]


def _picked(x: Tensor, positions: Sequence[Tensor], sizes: Sequence[DimLike]) -> Tensor:
    """Return elements of x, and zeros outside of x.  [N, C, *S], [N, *P] … -> [N, C, *P]"""
    inside: Any = None
    index = []
    for where, size in zip(positions, sizes, strict=True):
        fits = (where >= 0) & (where <= size - 1)
        inside = fits if inside is None else inside & fits
        # Also in place of NaN.
        index.append(F.expand_dims(F.astype(F.where(fits, where, 0), int64), axis=1))
    trailing = [1] * (index[0].ndim - 2)
    batch = F.reshape(F.positions(x.shape[0]), (x.shape[0], 1, *trailing))
    channel = F.reshape(F.positions(x.shape[1]), (x.shape[1], *trailing))
    return F.where(F.expand_dims(inside, axis=1), x[(batch, channel, *index)], 0)


@public
def affine_grid(theta: TensorLike, size: Any, /, *, align_corners: bool = False) -> Tensor:
    """Return the positions that affine maps lead to, for `grid_sample`.

    theta: [N, R, R + 1] -> [N, *S, R], for R spatial dims.

    Args:
        theta: For each element of the batch a matrix, and after it a column that is added. It maps
            positions of the result (x, y, z) to positions of what is sampled.
        size: The shape [N, C, *S] of the result of sampling.
        align_corners: Whether -1 and 1 are the middles of the outer elements, not their edges.

    Raises:
        ShapeError: theta does not fit the size.
        DTypeError: theta is complex.

    >>> import graphfw as gf
    >>> gf.affine_grid([[[1.0, 0.5]]], (1, 1, 2))[0]
    Tensor([[0.],
            [1.]], dtype=float32)
    """
    tensor = floats("affine_grid", theta)
    dims = dims_of("affine_grid", size)
    rank = len(dims) - 2
    demand(
        rank >= 1 and tensor.shape == (dims[0], rank, rank + 1),
        f"affine_grid: for the size {shape_text(dims)} theta must be "
        f"[{dims[0] if dims else 'N'}, {rank}, {rank + 1}], not {shape_text(tensor.shape)}",
        {"theta": tensor},
        fix="theta has a row for each spatial dim; size is [N, C, *S]",
        error=ShapeError,
    )
    matrix = wide(tensor)
    coordinates = F.reshape(matrix[:, :, rank], (dims[0], *[1] * rank, rank))
    for axis, dim in enumerate(dims[2:]):
        n = F.astype(F.positions(dim), matrix.dtype)
        if align_corners:
            units = n * 2 / dim_max(dim - 1, 1) - 1
            units = F.where(n * 0 + dim > 1, units, 0)
        else:
            units = (n * 2 + 1) / dim - 1
        column = F.reshape(matrix[:, :, rank - 1 - axis], (dims[0], *[1] * rank, rank))
        coordinates = coordinates + F.reshape(units, (dim, *[1] * (rank - axis))) * column
    return converted(coordinates, tensor.dtype)


@public
def pixel_shuffle(x: TensorLike, /, upscale_factor: int) -> Tensor:
    """Exchange channels for positions.  x: [*B, C * R², H, W] -> [*B, C, H * R, W * R]

    Any dtype. W. Shi et al., "Real-time single image and video super-resolution using an efficient
    sub-pixel convolutional neural network", 2016.

    Args:
        x: The images.
        upscale_factor: How much larger the images become, R.

    Raises:
        ShapeError: x has fewer than three dims, or the channels are no multiple of R².
        ArgumentError: upscale_factor is below 1.
    """
    tensor = as_tensor(x)
    (factor,) = each("pixel_shuffle", "upscale_factor", upscale_factor, 1)
    _check_images("pixel_shuffle", tensor)
    *lead, channels, height, width = tensor.shape
    _check_multiple("pixel_shuffle", tensor, -3, factor * factor)
    dims = (*lead, channels // factor**2, factor, factor, height, width)
    count = len(lead)
    order = (*range(count + 1), *[count + i for i in (3, 1, 4, 2)])
    moved = F.permute_dims(F.reshape(tensor, dims), order)
    return F.reshape(moved, (*dims[: count + 1], height * factor, width * factor))


@public
def pixel_unshuffle(x: TensorLike, /, downscale_factor: int) -> Tensor:
    """Exchange positions for channels.  x: [*B, C, H * R, W * R] -> [*B, C * R², H, W]

    Any dtype. The reverse of `pixel_shuffle`.

    Args:
        x: The images.
        downscale_factor: How much smaller the images become, R.

    Raises:
        ShapeError: x has fewer than three dims, or a size is no multiple of R.
        ArgumentError: downscale_factor is below 1.
    """
    tensor = as_tensor(x)
    (factor,) = each("pixel_unshuffle", "downscale_factor", downscale_factor, 1)
    _check_images("pixel_unshuffle", tensor)
    *lead, channels, height, width = tensor.shape
    for axis in (-2, -1):
        _check_multiple("pixel_unshuffle", tensor, axis, factor)
    dims = (*lead, channels, height // factor, factor, width // factor, factor)
    count = len(lead)
    order = (*range(count + 1), *[count + i for i in (2, 4, 1, 3)])
    moved = F.permute_dims(F.reshape(tensor, dims), order)
    return F.reshape(moved, (*lead, channels * factor**2, dims[-4], dims[-2]))


def _check_images(name: str, x: Tensor) -> None:
    message = f"{name}: x has {counted(x.ndim, 'dim')}: it must be [*B, C, H, W]"
    demand(x.ndim >= 3, message, {"x": x}, fix="gf.expand_dims adds a dim", error=ShapeError)


def _check_multiple(name: str, x: Tensor, axis: int, factor: int) -> None:
    dim = x.shape[axis]
    message = f"{name}: dim {axis} of x, {dim}, is no multiple of {factor}"
    fits = divisible(dim, factor) is not False
    demand(fits, message, {"x": x}, fix="pad x, or use another factor", error=ShapeError)
