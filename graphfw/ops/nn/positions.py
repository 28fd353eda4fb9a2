"""Positions in sequences: `rotary_embedding`, `sinusoidal_positions`, `alibi_bias`."""

from __future__ import annotations

import math

import numpy as np

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.ir import ambient
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DType, DTypeLike
from graphfw.ir.functions import F, public
from graphfw.ir.literal import Array
from graphfw.ir.shape import can_broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, dtype_or, is_whole, whole
from graphfw.ops.composed import demand, floats, wide_dtype
from graphfw.ops.creation.ranges import arange
from graphfw.ops.shape.axes import expand_dims, flatten
from graphfw.ops.shape.concat import concat
from graphfw.ops.shape.stacking import stack

__all__ = ["alibi_bias", "rotary_embedding", "sinusoidal_positions"]


_MOST = 1 << 20
"""The most channels and heads: numbers for each are constants of the graph."""


@public
def rotary_embedding(
    x: TensorLike,
    positions: TensorLike | None = None,
    /,
    *,
    base: float = 10000.0,
    frequencies: TensorLike | None = None,
    interleaved: bool = False,
) -> Tensor:
    """Rotate pairs of channels by angles that grow with the position (RoPE).  [*B, T, D] -> same

    Pair i of position p is turned by p base^(-2i/D). So the product of a query and a key depends on
    the distance of their positions alone. J. Su et al., "RoFormer", 2021. Angles are computed in
    float32 or float64.

    Args:
        x: Queries or keys, such as [batch, heads, T, D]. D is even.
        positions: Numbers that broadcast to [*B, T], such as [batch, 1, T]; 0, 1, … by default.
        base: The larger, the slower the last pairs turn.
        frequencies: The angle of each pair from one position to the next, [D/2], instead of
            base^(-2i/D): models for long texts scale these.
        interleaved: Whether channels 2i and 2i + 1 are a pair, as in the paper and GPT-J; otherwise
            channels i and i + D/2 are one, as in Llama and GPT-NeoX. Weights trained with one
            layout are wrong for the other.

    Raises:
        ShapeError: x has fewer than 2 dims, D is odd or unknown, or positions or frequencies don't
            fit.
        DTypeError: x or frequencies are not real, or positions are complex or bools.
        ArgumentError: base is not above 0.

    >>> import graphfw as gf
    >>> gf.round(100 * gf.nn.rotary_embedding([[1.0, 0.0], [1.0, 0.0]], [0, 1]))
    Tensor([[100.,   0.],
            [ 54.,  84.]], dtype=float32)
    """
    name = "rotary_embedding"
    tensor = floats(name, x)
    message = f"{name}: x must have 2 dims or more, not {tensor.ndim}"
    fix = "it has a dim for time before its channels: x[None] is a sequence of one"
    demand(tensor.ndim >= 2, message, {"x": tensor}, fix=fix, error=ShapeError)
    width = tensor.shape[-1]
    message = f"{name}: x has {counted(width, 'channel')}"
    if isinstance(width, Dim):
        known = (*[None] * (tensor.ndim - 1), 64)
        fix = f"their number is to be known: gf.assert_shape(x, {known}), for example"
        demand(False, message, {"x": tensor}, fix=fix, error=ShapeError)
    demand(width % 2 == 0, message, {"x": tensor}, fix=_PAIRS_FIX, error=ShapeError)
    at = _positions(name, tensor.shape[-2] if positions is None else positions)
    fits = can_broadcast(at.shape, tensor.shape[:-1])
    message = f"{name}: positions have the shape {shape_text(at.shape)}"
    fix = f"they broadcast to {shape_text(tensor.shape[:-1])}: all dims of x but the channels'"
    demand(fits, message, {"x": tensor, "positions": at}, fix=fix, error=ShapeError)
    exact = wide_dtype(tensor.dtype)
    rates: TensorLike = _rates(name, int(width), base, exact)
    if frequencies is not None:
        rates = converted(floats(name, frequencies), exact)
        message = f"{name}: frequencies have the shape {shape_text(rates.shape)}"
        fix = f"give one for each of {counted(int(width) // 2, 'pair')} of channels"
        fits = rates.shape == (int(width) // 2,)
        demand(fits, message, {"frequencies": rates}, fix=fix, error=ShapeError)
    angles = _angles(at, rates, exact)
    cos, sin = F.cos(angles), F.sin(angles)
    half = int(width) // 2
    halves = slice(half), slice(half, None)
    first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else halves
    a, b = converted(tensor[..., first], exact), converted(tensor[..., second], exact)
    rotated = _joined([a * cos - b * sin, a * sin + b * cos], interleaved)
    return converted(rotated, tensor.dtype)


@public
def sinusoidal_positions(
    positions: DimLike | TensorLike,
    width: int,
    /,
    *,
    base: float = 10000.0,
    interleaved: bool = True,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Sines and cosines of positions, at wavelengths from 2π to 2π base.  [*T] -> [*T, width]

    Pair i of position p is sin and cos of p base^(-2i/width). A. Vaswani et al., "Attention is all
    you need", 2017; of times rather than positions, as diffusion models have them, too.

    Args:
        positions: How many (an int or a dim, for 0, 1, …), or a tensor of them.
        width: The number of channels, which is even.
        base: See above.
        interleaved: Whether channels alternate, sin in 2i and cos in 2i + 1, as in the paper;
            otherwise the first half are sines, the second one cosines.
        dtype: The result's, the default dtype when there is none.

    Raises:
        ArgumentError: There are fewer than 0 positions, width is odd or below 2, or base is not
            above 0.
        DTypeError: Positions are complex or bools.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", "time", 64))
    ...     (x + gf.nn.sinusoidal_positions(x.shape[1], 64)).shape
    (batch, time, 64)
    """
    name = "sinusoidal_positions"
    to = dtype_or(dtype, ambient.get_default_dtype())
    message, fix = f"{name}: width={width!r} is no int up to {_MOST:,}", "give width as an int"
    demand(is_whole(width) and width <= _MOST, message, fix=fix)
    even = max(int(width) + int(width) % 2, 2)
    message = f"{name}: width={width} is no even number above 0"
    demand(even == width, message, fix=f"use width={even}")
    exact = wide_dtype(to)
    angles = _angles(_positions(name, positions), _rates(name, int(width), base, exact), exact)
    return converted(_joined([F.sin(angles), F.cos(angles)], interleaved), to)


@public
def alibi_bias(
    num_heads: int,
    queries: DimLike | TensorLike,
    keys: DimLike | TensorLike | None = None,
    /,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Lower the scores of distant keys in attention by slope |i - j|.  -> [*B, num_heads, Tq, Tk]

    The slopes of 8 heads are 1/2, 1/4, … 1/256. O. Press et al., "Train short, test long", 2021;
    symmetric, for use without a causal mask, too. For numbers of positions *B is 1, so that the
    result can be the mask of `gf.nn.MultiHeadAttention`.

    Args:
        num_heads: The number of heads, each with a slope.
        queries: How many (an int or a dim, for positions 0, 1, …), or their positions, [*B, Tq].
        keys: The same, [*B, Tk]; those of the queries by default.
        dtype: The result's, the default dtype when there is none.

    Raises:
        ArgumentError: num_heads is no int or below 1, or there are fewer than 0 positions.
        ShapeError: Positions have no dim.
        DTypeError: Positions are complex or bools.

    >>> import graphfw as gf
    >>> gf.nn.alibi_bias(2, 2)
    Tensor([[[[ 0.        , -0.0625    ],
              [-0.0625    ,  0.        ]],
    <BLANKLINE>
             [[ 0.        , -0.00390625],
              [-0.00390625,  0.        ]]]], dtype=float32)
    """
    name = "alibi_bias"
    to = dtype_or(dtype, ambient.get_default_dtype())
    message = f"{name}: num_heads={num_heads!r} is no int from 1 to {_MOST:,}"
    is_count = is_whole(num_heads) and 1 <= num_heads <= _MOST
    demand(is_count, message, fix="give the number of heads")
    first = _positions(name, queries)
    second = first if keys is None else _positions(name, keys)
    exact = wide_dtype(to)
    for label, x in (("queries", first), ("keys", second)):
        message = f"{name}: {label} are one position, without a dim"
        demand(x.ndim >= 1, message, {label: x}, fix=f"write {label}[None]", error=ShapeError)
    rows = expand_dims(converted(first, exact), axis=-1)
    columns = expand_dims(converted(second, exact), axis=-2)
    nearness = expand_dims(F.minimum(rows - columns, columns - rows), axis=-3)  # without -0
    slopes = np.array(_slopes(int(num_heads)), exact.dtype)[:, None, None]
    bias = converted(nearness * slopes, to)
    return expand_dims(bias, axis=0) if bias.ndim == 3 else bias


def _joined(halves: list[Tensor], interleaved: bool) -> Tensor:
    """Join channels, one after the other or all of the first tensor before the second's."""
    if not interleaved:
        return concat(halves, axis=-1)
    return flatten(stack(halves, axis=-1), start=-2)


def _slopes(count: int) -> list[float]:
    """Return the slope of each head: powers of 2^(-8/count) where count is a power of 2.

    For other numbers, those of the next smaller power, and every other one of twice it.
    """
    whole_power = 2 ** int(math.log2(count))
    slopes = [2.0 ** (-8 * i / whole_power) for i in range(1, whole_power + 1)]
    between = [2.0 ** (-4 * i / whole_power) for i in range(1, 2 * whole_power, 2)]
    return slopes + between[: count - whole_power]


def _positions(name: str, given: DimLike | TensorLike) -> Tensor:
    """Return positions, which may be given as their number."""
    if not isinstance(given, Tensor) and (isinstance(given, Dim) or is_whole(given)):
        count = whole(name, "the number of positions", given)
        fits = isinstance(count, Dim) or count >= 0
        demand(fits, f"{name}: {count} positions", fix=f"use {-int(count)}" if not fits else "")
        return arange(count)
    tensor = as_tensor(given)
    kind = tensor.dtype
    message = f"{name}: positions must be ints or floats, not {kind.name}"
    fits = kind.is_integer or kind.is_floating
    fix = "write gf.astype(positions, gf.int64)"
    demand(fits, message, {"positions": tensor}, fix=fix, error=DTypeError)
    return tensor


_PAIRS_FIX = "pairs are rotated: use an even number of channels"


def check_base(name: str, argument: str, base: float) -> None:
    """See that a base of angles is above 0.

    Raises:
        ArgumentError: It is not.
    """
    message = f"{name}: {argument}={base} must be above 0"
    demand(base > 0, message, fix=f"the usual one is {argument}=10000.0")


def check_rotation(name: str, argument: str, base: float, width: int) -> None:
    """See that heads of so many channels can be turned by angles of a base.

    Raises:
        ArgumentError: They can't.
    """
    check_base(name, argument, base)
    message = f"{name}: {argument}={base}, and heads have {counted(width, 'channel')}"
    demand(width % 2 == 0, message, fix=_PAIRS_FIX)


def _rates(name: str, width: int, base: float, dtype: DType) -> Array:
    """Return the angle of each pair of channels from one position to the next: [width / 2]."""
    check_base(name, "base", base)
    return np.power(float(base), -np.arange(0, width, 2) / width).astype(dtype.dtype)


def _angles(positions: Tensor, rates: TensorLike, dtype: DType) -> Tensor:
    """Return the angles of each pair of channels.  [*T] and [pairs] -> [*T, pairs]"""
    angles: Tensor = expand_dims(converted(positions, dtype), axis=-1) * rates
    return angles
