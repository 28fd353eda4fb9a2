"""The building blocks of random draws: the op that draws bits, keys of streams, standard draws."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import reprlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeAlias

import numpy as np

from graphfw.errors import ArgumentError, DTypeError, ShapeError, a_type
from graphfw.hints.calls import FOREIGN, raise_refusal
from graphfw.ir import ambient
from graphfw.ir.arrays import to_array
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, promote_all, uint32, uint64
from graphfw.ir.functions import F
from graphfw.ir.graph import current_graph
from graphfw.ir.op import NONDIFF, PURE, RANDOM, Case, Cost, Op, Rng, bad, ok, op
from graphfw.ir.shape import can_broadcast, require, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.batching import MappedAxis
from graphfw.ops.composed import demand
from graphfw.ops.numerics import random_bits, stream_key

P = ParamSpec("P")

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
        message = f"words must be 1 or 2, not {self.words}"
        require(self.words in (1, 2), message, fix="draw twice for more bits")
        return self.dims

    def dtype(self) -> DType:
        return uint32 if self.words == 1 else uint64

    def eval(self, xp: Any, *, rng: Rng) -> Any:
        low, high = stream_key(rng.seed, self.key)
        key = (low ^ (rng.iteration_key & 0xFFFFFFFF), high ^ (rng.iteration_key >> 32))
        flat = random_bits(xp, key, rng.step, math.prod(map(int, self.dims)), self.words)
        return flat.reshape(self.dims)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool]) -> Tensor:
        return emit(RandomBits(self.key, (mapped.size, *self.dims), self.words))

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        # Ten rounds of two wide products and four xors and sums yield four words.
        return Cost(15 * self.words * outputs[0].size, 0, outputs[0].nbytes)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok(key="a/b", dims=(3, 5))
        yield ok(key="a", dims=(2, 0), words=2)
        yield ok(key="", dims=())
        yield bad(key="a", dims=(3,), words=3, match="words must be 1 or 2, not 3")


def bits(what: str, dims: Shape, words: int, name: str | None) -> Tensor:
    """Draw bits for the public function `what`, from the stream of the name."""
    return emit(RandomBits(_key(what, name), dims, words))


class Stream(str):
    """The path of a draw that is made of several, each with a substream; it stands for a name."""

    __slots__ = ()

    def substream(self, name: str) -> Stream:
        """Return the path of the substream of one of the draws."""
        return Stream(f"{self}/#{name}")


def stream(what: str, name: str | None) -> Stream:
    """Return the path of a draw that is made of several."""
    return Stream(_key(what, name))


def _key(what: str, name: str | None) -> str:
    """Return the path of a draw. Names have no slash and no # in front, so paths are unique."""
    if isinstance(name, Stream):
        return str(name)
    scope = ambient.current_scope.get()
    if name is None:
        return current_graph().unique(f"{scope}/#")
    bad_sign = (
        not ambient.as_name(name) or name[0] == "#" or "/" in name or any(c.isspace() for c in name)
    )
    demand(
        not bad_sign,
        f"random.{what}: {name!r} is no name for a draw",
        fix="use letters, digits, dots and underscores",
    )
    return f"{scope}/{name}"


def named(result: Tensor, name: str | None) -> Tensor:
    """Give the values the draw's name: two draws of one name in a graph are an error.

    What a draw is made of has a stream, and no name.
    """
    is_nameless = name is None or isinstance(name, Stream)
    own: Tensor = result if is_nameless else F.identity(result, name=name)
    return own


def float_dtype(what: str, dtype: DTypeLike | None, *parameters: TensorLike) -> DType:
    """Return the dtype of a draw: as asked for, else its parameters', else the default."""
    dtypes = [
        p.dtype if isinstance(p, Tensor) else as_dtype(to_array(p).dtype)
        for p in parameters
        if not is_number(p)
    ]
    given = [d for d in dtypes if d.is_inexact]
    default = promote_all(tuple(given)) if given else ambient.get_default_dtype()
    resolved = default if dtype is None else as_dtype(dtype)
    demand(
        resolved.is_floating,
        f"random.{what}: {resolved.name} is not a floating-point dtype",
        error=DTypeError,
        fix="use random.randint" if resolved.is_integer else "use a floating-point dtype",
    )
    return resolved


def parameter(what: str, label: str, value: TensorLike, dims: Shape, dtype: DType) -> Tensor:
    """Return a parameter of a distribution as a tensor that broadcasts to the draw's shape."""
    tensor = converted(as_tensor(value, dtype), dtype)
    message = f"{shape_text(tensor.shape)} does not broadcast to {shape_text(dims)}"
    demand(
        can_broadcast(tensor.shape, dims),
        f"random.{what}: {label}'s shape {message}",
        {label: tensor},
        fix="each of its dims must be that of the draw, or 1",
        error=ShapeError,
    )
    return tensor


def demand_scale(what: str, label: str, value: TensorLike) -> None:
    """Demand that a number is not negative; tensors are taken at their word."""
    if is_number(value):
        message = f"random.{what}: {label}={value} must not be negative"
        demand(value >= 0, message, fix=f"use {label}={-value}")


def refuse_lists(what: str, order: str, **parameters: TensorLike) -> None:
    """Refuse a parameter that is a list or tuple: most likely it is the shape.

    Args:
        what: The public function.
        order: Its arguments in their order, for the fix.
        parameters: What it was given.

    Raises:
        ArgumentError: One of them is a list or tuple.
    """
    for label, value in parameters.items():
        if isinstance(value, (list, tuple)):
            shown = f"{label}={reprlib.repr(value)}"
            raise ArgumentError(
                f"random.{what}: {shown} is {a_type(value)}, not a number or a tensor",
                fix=f"the order is random.{what}({order}); gf.asarray makes a tensor of numbers",
            )


def refuse_bare_dims(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Have a function whose first argument is the shape refuse dims as several arguments.

    `normal(3, 4)` would be 3 numbers around 4; users of other libraries mean the shape (3, 4).
    Nor is a float a shape, as in `gamma(2.0, 1.0)`.
    """
    parameters = list(inspect.signature(function).parameters.values())[1:]
    second = parameters[0].name
    name = function.__name__
    order = ", ".join(["shape", *[p.name for p in parameters if p.name not in ("dtype", "name")]])

    def line(shape: str, given: Sequence[Any]) -> str:
        """Return a call with a shape and parameters, and those that it cannot do without."""
        named = [f"{p.name}={v}" for p, v in zip(parameters, given, strict=False)]
        needed = [p.name for p in parameters[len(given) :] if p.default is inspect.Parameter.empty]
        return f"gf.random.{name}({', '.join([shape, *named, *[f'{n}=…' for n in needed]])})"

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        lists = any([isinstance(a, (list, tuple)) for a in args])  # which `refuse_lists` refuses
        is_named = "shape" in kwargs or "size" in kwargs  # then all that is not is a parameter
        if not (lists or is_named) and len(args) > 1 and _is_dim(args[0]) and _is_dim(args[1]):
            dims = list(itertools.takewhile(_is_dim, args))
            shown = ", ".join(map(str, dims))
            other = f", or {line(f'({dims[0]},)', dims[1:])}" if second != "dtype" else ""
            raise ArgumentError(
                f"random.{name}({shown}): is {args[1]} a dim, or the parameter {second}?",
                fix=f"write {line(f'({shown})', ())} for a shape{other}",
            )
        if args and not (lists or is_named) and isinstance(args[0], (float, np.floating)):
            raise ArgumentError(
                f"random.{name}: the shape comes first, and {args[0]} is none",
                fix=f"the order is random.{name}({order})",
            )
        try:
            return function(*args, **kwargs)
        except FOREIGN as error:
            raise_refusal(error, function, args, kwargs)

    return checked


def _is_dim(value: object) -> bool:
    return isinstance(value, (int, np.integer, Dim)) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether a parameter is a plain number, which can be checked at once."""
    return isinstance(value, (int, float, np.integer, np.floating))


PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
"""Bits of the significand."""


def unit(what: str, dims: Shape, dtype: DType, name: str | None) -> Tensor:
    """Draw multiples of 2^-p in [0, 1), p the precision of the dtype: exact on every executor."""
    precision = PRECISION[dtype.name]
    words = 2 if precision > 32 else 1
    kept = bits(what, dims, words, name) >> (32 * words - precision)
    return converted(kept, dtype) * 2.0**-precision


def deviates(what: str, dims: Shape, dtype: DType, name: str | None) -> Tensor:
    """Draw from the standard normal distribution in float32 or float64."""
    # -1 + 2 (k + 1/2) / 2^p: an odd multiple of 2^-p, so both steps are exact; never -1, 0 or 1.
    half_step = 2.0 ** -PRECISION[dtype.name]
    centred = 2 * unit(what, dims, dtype, name) - (1 - half_step)
    quantile = F.erfinv(centred)
    return math.sqrt(2) * quantile


def waits(what: str, dims: Shape, dtype: DType, name: str | None) -> Tensor:
    """Draw from the standard exponential distribution in float32 or float64, never 0."""
    words = dtype.itemsize // 4
    number = converted(bits(what, dims, words, name), dtype)
    # All bits count: small values are finer than the dtype's steps at 1. None may round up to 1.
    chance = (number + 0.5) * 2.0 ** (-32 * words)
    below_one = F.minimum(chance, 1 - 2.0 ** -PRECISION[dtype.name])
    log = F.log1p(-below_one)
    return -log


def below(what: str, count: Tensor | int, dims: Shape, is_large: bool, name: str | None) -> Tensor:
    """Draws from 0 to count - 1, as uint64: the integer part of count times a random fraction."""
    if not is_large:
        high_bits = bits(what, dims, 2, name)
        return _product_above(high_bits, count)
    pair = bits(what, (*dims, 2), 2, name)
    high_bits, low_bits = pair[..., 0], pair[..., 1]
    if isinstance(count, int) and count == 2**64:
        return high_bits
    carried = _product_above(low_bits, count)
    below = high_bits * count  # modulo 2^64
    overflows = below + carried < below
    return _product_above(high_bits, count) + converted(overflows, uint64)


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


def random_order(what: str, count: DimLike, name: str | None) -> Tensor:
    """Draw an order of 0 to count - 1."""
    # Equal bits would favour the first: a chance below count^2 / 2^65.
    return F.argsort(bits(what, (count,), 2, name), stable=True)
