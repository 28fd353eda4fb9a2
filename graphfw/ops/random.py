"""Random numbers, public as `graphfw.random`: one op that draws bits, and what is composed of it.

Every draw has a stream of its own, fixed by the session's seed, the draw's key and the run's step.
The key is the path of the name scope that the draw is made in with the draw's `name`, or, where it
has none, its place among the scope's draws without a name. So adding a draw to one scope or layer
moves no stream of another; in one scope, give draws names to the same end.

The bits are the same on all executors, and so are the results of `uniform` with static bounds,
`randint`, `bernoulli` and `permutation`. Others go through functions that executors compute to within
some units in the last place (ULP).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir import ambient
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, float32, int64, promote_all, uint32, uint64
from graphfw.ir.functions import F
from graphfw.ir.graph import current_graph
from graphfw.ir.op import NONDIFF, PURE, RANDOM, Case, Cost, Op, Rng, bad, ok, op
from graphfw.ir.shape import can_broadcast, normalize_axis, require, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, as_tensor, converted, ruled
from graphfw.ops.composed import demand, floats, wide_dtype
from graphfw.ops.numerics import random_bits, stream_key

__all__ = [
    "bernoulli",
    "categorical",
    "exponential",
    "gumbel",
    "normal",
    "permutation",
    "randint",
    "truncated_normal",
    "uniform",
]

ShapeLike: TypeAlias = DimLike | Sequence[DimLike]
"""The shape of a draw: dims, static or symbolic; one dim may stand without parentheses."""


@op("random_bits")
class RandomBits(Op):
    """Uniform random bits from the stream of `key`: `words` 32-bit words an element.  -> dims

    Equal fields mean equal bits, so the op may be repeated or merged like any pure one; it must not
    be folded into a constant, since the bits also depend on the seed and the step.
    """

    key: str
    dims: Shape
    words: int = 1
    traits = frozenset({PURE, RANDOM})
    vjp = NONDIFF

    def shape(self) -> Shape:
        require(self.words in (1, 2), f"words must be 1 or 2, not {self.words}")
        return self.dims

    def dtype(self) -> DType:
        return uint32 if self.words == 1 else uint64

    def eval(self, xp: Any, *, rng: Rng) -> Any:
        key = stream_key(rng.seed, self.key)
        bits = random_bits(xp, key, rng.step, math.prod(self.dims), self.words)
        return bits.reshape(self.dims)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        # Ten rounds of two wide products and four xors and sums yield four words.
        return Cost(15 * self.words * outputs[0].size, 0, outputs[0].nbytes)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok(key="a/b", dims=(3, 5))
        yield ok(key="a", dims=(2, 0), words=2)
        yield ok(key="", dims=())
        yield bad(key="a", dims=(3,), words=3, match="words must be 1 or 2, not 3")


def _bits(what: str, dims: Shape, words: int, name: str | None) -> Tensor:
    return emit(RandomBits(_key(what, name), dims, words))


def _key(what: str, name: str | None) -> str:
    """The path of a draw. A name holds no slash, and none begins with #: paths are unique."""
    scope = ambient.current_scope.get()
    if name is None:
        return current_graph().unique(f"{scope}/#")
    bad_sign = not name or name[0] == "#" or "/" in name or any(c.isspace() for c in name)
    demand(not bad_sign, f"random.{what}: {name!r} is no name for a draw",
           fix="use letters, digits, dots and underscores")
    return f"{scope}/{name}"


def _named(result: Tensor, name: str | None) -> Tensor:
    """Give the values the draw's name: two draws of one name in a graph are an error."""
    named: Tensor = result if name is None else F.identity(result, name=name)
    return named


def _dims(what: str, shape: ShapeLike) -> Shape:
    """Check a shape argument."""
    dims = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for dim in dims:
        is_dim = isinstance(dim, Dim) or (hasattr(dim, "__index__") and not isinstance(dim, bool))
        fix = "use ints, or dims of tensors: x.shape[0]"
        demand(is_dim, f"random.{what}: {dim!r} in shape is no dim", error=ShapeError, fix=fix)
        fits = isinstance(dim, Dim) or dim.__index__() >= 0
        demand(fits, f"random.{what}: a dim can't be {dim}", error=ShapeError)
    return tuple(dim if isinstance(dim, Dim) else dim.__index__() for dim in dims)


def _float_dtype(what: str, dtype: DTypeLike | None, *parameters: TensorLike) -> DType:
    """The dtype of a draw of floats: as asked for, else its parameters', else the default."""
    given = [p.dtype for p in parameters if isinstance(p, Tensor) and p.dtype.is_inexact]
    default = promote_all(tuple(given)) if given else ambient.get_default_dtype()
    resolved = default if dtype is None else as_dtype(dtype)
    demand(resolved.is_floating, f"random.{what}: {resolved.name} is not a floating-point dtype",
           error=DTypeError, fix="for integers use random.randint" if resolved.is_integer else "")
    return resolved


def _parameter(what: str, label: str, value: TensorLike, dims: Shape, dtype: DType) -> Tensor:
    """A parameter of a distribution as a tensor that broadcasts to the draw's shape."""
    tensor = converted(as_tensor(value, dtype), dtype)
    message = f"{label} of shape {shape_text(tensor.shape)} does not broadcast to {shape_text(dims)}"
    fits = can_broadcast(tensor.shape, dims)
    demand(fits, f"random.{what}: {message}", error=ShapeError, **{label: tensor})
    return tensor


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating))


def uniform(
    shape: ShapeLike,
    low: TensorLike = 0.0,
    high: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from [low, high), all values equally likely.  -> shape

    On [0, 1) the values are the multiples of 2^-p, where p is the dtype's precision: 24 bits for
    float32, 53 for float64, 11 for float16, 8 for bfloat16. They are exact, and so are other bounds
    as far as the dtype goes: `high` is never reached by rounding.

    Args:
        shape: Dims, static or symbolic.
        low: The least value; a number or a tensor that broadcasts to `shape`.
        high: What values stay below; the same.
        dtype: A floating-point dtype; by default that of the bounds, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: low is not below high (checked for numbers; tensors are taken at their word).
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or the bounds don't broadcast to it.

    >>> import graphfw as gf
    >>> x = gf.random.uniform((1000,), low=2.0, high=3.0)
    >>> bool(gf.all((x >= 2) & (x < 3)))
    True
    """
    dims = _dims("uniform", shape)
    to = _float_dtype("uniform", dtype, low, high)
    if _is_number(low) and _is_number(high):
        demand(low < high, f"random.uniform: low={low} must be below high={high}")
    unit = _unit("uniform", dims, to, name)
    if _is_number(low) and _is_number(high) and (low, high) == (0, 1):
        return _named(unit, name)
    bottom = _parameter("uniform", "low", low, dims, to)
    top = _parameter("uniform", "high", high, dims, to)
    spread = bottom + (top - bottom) * unit
    return _named(F.where(spread < top, spread, bottom), name)


def _unit(what: str, dims: Shape, dtype: DType, name: str | None) -> Tensor:
    """Multiples of 2^-p in [0, 1), p the precision of the dtype: exact on every executor."""
    precision = _PRECISION[dtype.name]
    words = 2 if precision > 32 else 1
    kept = _bits(what, dims, words, name) >> (32 * words - precision)
    return F.astype(kept, dtype) * 2.0**-precision


_PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    std: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the normal distribution.  -> shape

    The inverse of the distribution function at the 2^24 (float64: 2^53) midpoints of equal steps,
    one word (two) an element, so |x - mean| stays below 5.42 std (8.3 std). The midpoints are exact
    and the inverse (`erfinv`) is within 4 ULP, so values agree between executors to 10 ULP of the
    standard deviate. float16 and bfloat16 are drawn in float32. Gradients flow to mean and std.

    Args:
        shape: Dims, static or symbolic.
        mean: The centre; a number or a tensor that broadcasts to `shape`.
        std: The standard deviation; the same.
        dtype: A floating-point dtype; by default that of mean and std, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: std is negative (checked for a number).
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or mean or std don't broadcast to it.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 8), name="x")
    ...     noise = gf.random.normal(x.shape, std=0.1)
    >>> noise.shape
    (batch, 8)
    """
    dims = _dims("normal", shape)
    to = _float_dtype("normal", dtype, mean, std)
    if _is_number(std):
        demand(std >= 0, f"random.normal: std={std} must not be negative")
    deviates = F.astype(_deviates("normal", dims, wide_dtype(to), name), to)
    if not (_is_number(std) and std == 1):
        deviates = deviates * _parameter("normal", "std", std, dims, to)
    if not (_is_number(mean) and mean == 0):
        deviates = deviates + _parameter("normal", "mean", mean, dims, to)
    return _named(deviates, name)


def _deviates(what: str, dims: Shape, dtype: DType, name: str | None) -> Tensor:
    """Draws from the standard normal distribution in float32 or float64."""
    # -1 + 2 (k + 1/2) / 2^p: an odd multiple of 2^-p, so both steps are exact; never -1, 0 or 1.
    half_step = 2.0 ** -_PRECISION[dtype.name]
    centred = 2 * _unit(what, dims, dtype, name) - (1 - half_step)
    return math.sqrt(2) * F.erfinv(centred)


def truncated_normal(
    shape: ShapeLike,
    low: float = -2.0,
    high: float = 2.0,
    mean: TensorLike = 0.0,
    std: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the normal distribution cut off at mean + low std and mean + high std.  -> shape

    Args:
        shape: Dims, static or symbolic.
        low: The lower end, in standard deviations from the mean.
        high: The upper end, in standard deviations from the mean.
        mean: The centre before cutting; a number or a tensor that broadcasts to `shape`.
        std: The standard deviation before cutting; the same.
        dtype: A floating-point dtype; by default that of mean and std, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: low is not below high, all mass is outside them, or std is negative.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or mean or std don't broadcast to it.
    """
    what = "truncated_normal"
    dims = _dims(what, shape)
    to = _float_dtype(what, dtype, mean, std)
    demand(low < high, f"random.{what}: low={low} must be below high={high}")
    if _is_number(std):
        demand(std >= 0, f"random.{what}: std={std} must not be negative")
    bottom, top = math.erf(low * math.sqrt(0.5)), math.erf(high * math.sqrt(0.5))
    fine = top - bottom > 1e-3
    demand(fine, f"random.{what}: too little of the distribution is between {low} and {high} std")
    unit = _unit(what, dims, wide_dtype(to), name)
    deviates = math.sqrt(2) * F.erfinv(bottom + (top - bottom) * unit)
    # Rounding may step over an end, by much where the ends are far out.
    deviates = F.astype(F.minimum(F.maximum(deviates, low), high), to)
    scaled = deviates * _parameter(what, "std", std, dims, to)
    return _named(scaled + _parameter(what, "mean", mean, dims, to), name)


def exponential(
    shape: ShapeLike,
    scale: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the exponential distribution with mean `scale`.  -> shape

    Values are in (0, 16.7 scale] for float32, (0, 36.8 scale] for float64; float16 and bfloat16 are
    drawn in float32. Gradients flow to scale.

    Raises:
        ArgumentError: scale is negative (checked for a number).
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or scale does not broadcast to it.
    """
    dims = _dims("exponential", shape)
    to = _float_dtype("exponential", dtype, scale)
    if _is_number(scale):
        demand(scale >= 0, f"random.exponential: scale={scale} must not be negative")
    waits = F.astype(_waits("exponential", dims, wide_dtype(to), name), to)
    if not (_is_number(scale) and scale == 1):
        waits = waits * _parameter("exponential", "scale", scale, dims, to)
    return _named(waits, name)


def _waits(what: str, dims: Shape, dtype: DType, name: str | None) -> Tensor:
    """Draws from the standard exponential distribution in float32 or float64, never 0."""
    words = dtype.itemsize // 4
    bits = F.astype(_bits(what, dims, words, name), dtype)
    # All bits count: small values are finer than the dtype's steps at 1. The greatest are kept below 1.
    chance = (bits + 0.5) * 2.0 ** (-32 * words)
    return -F.log1p(-F.minimum(chance, 1 - 2.0 ** -_PRECISION[dtype.name]))


def gumbel(shape: ShapeLike, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """Draw from the standard Gumbel distribution, exp(-exp(-x)).  -> shape

    Raises:
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape.
    """
    to = _float_dtype("gumbel", dtype)
    waits = _waits("gumbel", _dims("gumbel", shape), wide_dtype(to), name)
    return _named(F.astype(-F.log(waits), to), name)


def bernoulli(
    p: TensorLike, shape: ShapeLike | None = None, name: str | None = None
) -> Tensor:
    """Draw True with probability p.  p: [*A] -> bool, [*A] or shape

    The probability is met to within 2^-24 (float64: 2^-53); 0 and 1 are exact.

    Args:
        p: The probability, a number or a tensor.
        shape: What p broadcasts to; p's shape by default.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: p is outside [0, 1] (checked for a number).
        ShapeError: `shape` is no shape, or p does not broadcast to it.

    >>> import graphfw as gf
    >>> int(gf.sum(gf.random.bernoulli(1.0, shape=5)))
    5
    """
    if _is_number(p):
        demand(0 <= p <= 1, f"random.bernoulli: p={p} must be between 0 and 1")
    chance = floats("random.bernoulli", p)
    dims = chance.shape if shape is None else _dims("bernoulli", shape)
    chance = _parameter("bernoulli", "p", chance, dims, wide_dtype(chance.dtype))
    return _named(_unit("bernoulli", dims, chance.dtype, name) < chance, name)


def randint(
    low: TensorLike,
    high: TensorLike,
    shape: ShapeLike,
    dtype: DTypeLike = int64,
    name: str | None = None,
) -> Tensor:
    """Draw integers from low to high - 1, all equally likely.  -> shape

    The chances of two values differ by a factor below 1 + 2^-32. 64 bits are drawn an element, or
    128 where the range may exceed 2^32.

    Args:
        low: The least integer; an int or an integer tensor that broadcasts to `shape`.
        high: One more than the greatest; the same.
        shape: Dims, static or symbolic.
        dtype: An integer dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: low is not below high, or not all values fit the dtype (checked for ints).
        DTypeError: The dtype is not an integer one, or low or high are not integers.
        ShapeError: `shape` is no shape, or low or high don't broadcast to it.

    >>> import graphfw as gf
    >>> dice = gf.random.randint(1, 7, (100,))
    >>> int(gf.min(dice)) >= 1 and int(gf.max(dice)) <= 6
    True
    """
    dims = _dims("randint", shape)
    to = as_dtype(dtype)
    demand(to.is_integer, f"random.randint: {to.name} is not an integer dtype", error=DTypeError)
    if _is_int(low) and _is_int(high):
        count: Tensor | int = _static_count(int(low), int(high), to)
        bottom = as_tensor(int(low), to)
        is_large = count > 2**32
    else:
        bottom = _bound("low", low, dims, to)
        # The difference is right modulo 2^64 whatever the signs.
        count = F.astype(_bound("high", high, dims, to), uint64) - F.astype(bottom, uint64)
        is_large = to.itemsize == 8
    offset = _below(count, dims, is_large, name)
    # So is this sum modulo the dtype's range: nothing is lost where the offset's cast wraps.
    return _named(bottom + F.astype(offset, to), name)


def _is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _static_count(low: int, high: int, dtype: DType) -> int:
    demand(low < high, f"random.randint: low={low} must be below high={high}")
    limits = np.iinfo(dtype.dtype)
    fits = limits.min <= low and high - 1 <= limits.max
    demand(fits, f"random.randint: integers from {low} to {high - 1} don't fit {dtype.name}",
           fix="give a wider dtype")
    return high - low


def _bound(label: str, value: TensorLike, dims: Shape, dtype: DType) -> Tensor:
    """A bound of `randint`, in the draw's dtype. One more than the dtype's greatest wraps, rightly."""
    tensor = as_tensor(value)
    message = f"random.randint: {label} must be integers, not {tensor.dtype.name}"
    demand(tensor.dtype.is_integer, message, error=DTypeError, **{label: tensor})
    return _parameter("randint", label, tensor, dims, int64 if dtype.itemsize < 8 else dtype)


def _below(count: Tensor | int, dims: Shape, is_large: bool, name: str | None) -> Tensor:
    """Draws from 0 to count - 1, as uint64: the integer part of count times a random fraction."""
    if not is_large:
        high_bits = _bits("randint", dims, 2, name)
        return _product_above(high_bits, count)
    pair = _bits("randint", (*dims, 2), 2, name)
    high_bits, low_bits = pair[..., 0], pair[..., 1]
    if isinstance(count, int) and count == 2**64:
        return high_bits
    carried = _product_above(low_bits, count)
    below = high_bits * count  # modulo 2^64
    overflows = below + carried < below
    return _product_above(high_bits, count) + F.astype(overflows, uint64)


def _product_above(x: Tensor, count: Tensor | int) -> Tensor:
    """The upper 64 bits of a product of two 64-bit numbers, by 32-bit halves."""
    mask = 2**32 - 1
    x_high, x_low = x >> 32, x & mask
    c_high, c_low = count >> 32, count & mask
    middle = x_high * c_low + ((x_low * c_low) >> 32)
    if isinstance(c_high, int) and c_high == 0:
        return middle >> 32
    other = x_low * c_high + (middle & mask)
    return x_high * c_high + (middle >> 32) + (other >> 32)


def permutation(x: TensorLike, axis: int = 0, name: str | None = None) -> Tensor:
    """Shuffle: a random order of 0 to x - 1, or of a tensor's slices along an axis.

    x: an int or a dim -> int64 [x]; a tensor [*A] -> [*A].

    Raises:
        ArgumentError: x is a negative int.
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.sort(gf.random.permutation(4))
    Tensor([0, 1, 2, 3], dtype=int64)
    """
    is_count = _is_int(x) or isinstance(x, Dim)
    if is_count:
        demand(isinstance(x, Dim) or x >= 0, f"random.permutation: x={x} must not be negative")
        return _named(_order(x, name), name)
    tensor = as_tensor(x)
    place = ruled("random.permutation", tensor, normalize_axis, axis, tensor.ndim)
    return _named(F.take(tensor, _order(tensor.shape[place], name), axis=place), name)


def _order(count: DimLike, name: str | None) -> Tensor:
    # Equal bits would favour the first: a chance below count^2 / 2^65.
    order: Tensor = F.argsort(_bits("permutation", (count,), 2, name), stable=True)
    return order


def categorical(
    logits: TensorLike,
    shape: ShapeLike | None = None,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """Draw classes with the probabilities softmax(logits) along an axis.

    logits: [*B, C] -> int64, [*B] or shape.  By the greatest of logits + Gumbel noise. Classes whose
    logit is -inf are never drawn, unless all are.

    Args:
        logits: Floats; unnormalised logarithms of probabilities.
        shape: What [*B] broadcasts to, for several draws of each; [*B] by default.
        axis: Where the classes are.
        name: What to call the result and its stream.

    Raises:
        AxisError: There is no such axis.
        ShapeError: There are no classes, or [*B] does not broadcast to `shape`.
    """
    tensor = floats("random.categorical", logits)
    place = ruled("random.categorical", tensor, normalize_axis, axis, tensor.ndim)
    order = (*(i for i in range(tensor.ndim) if i != place), place)
    tensor = F.permute_dims(tensor, order)
    *batch, classes = tensor.shape
    demand(classes != 0, "random.categorical: there are no classes", error=ShapeError, logits=tensor)
    dims = tuple(batch) if shape is None else _dims("categorical", shape)
    message = f"logits for {shape_text(batch)} don't broadcast to {shape_text(dims)}"
    fits = can_broadcast(tuple(batch), dims)
    demand(fits, f"random.categorical: {message}", error=ShapeError, logits=tensor)
    wide = wide_dtype(tensor.dtype)
    noise = -F.log(_waits("categorical", (*dims, classes), wide, name))
    return _named(F.argmax(F.astype(tensor, wide) + noise, axis=-1), name)
