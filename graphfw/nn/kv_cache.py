"""`KVCache`: keys and values of earlier tokens, which attention need not compute again."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from graphfw.errors import DTypeError, ShapeError, a_type, counted
from graphfw.ir import concrete
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike, always_ge
from graphfw.ir.dtype import DTypeLike, as_dtype, int32
from graphfw.ir.functions import F
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.nn.checks import checked_size
from graphfw.ops.args import TensorLike, as_tensor, converted, dims_of
from graphfw.ops.composed import demand
from graphfw.ops.creation.constructors import zeros
from graphfw.ops.creation.ranges import positions
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.shape.axes import expand_dims
from graphfw.ops.shape.gather_scatter import IndexSet

_FULL = (
    "KVCache: slot {index} is out of range: there are {size}\n"
    "make the cache with a larger max_length: init_cache(batch, max_length)"
)


class KVCache(NamedTuple):
    """Keys and values of earlier tokens, which causal attention reads, and free slots for others.

    `init_cache` of `gf.nn.MultiHeadAttention` and of transformers makes empty caches. A call with a
    cache returns a new one with its tokens, and does not change the old one. So a cache may be the
    carry of a loop, or an argument and result of each run.

    Attributes:
        keys: [B, kv_heads, max_length, head_dim], with the rotations of attention, if any.
        values: [B, kv_heads, max_length, head_dim].
        length: The number of slots that are full, an int32 scalar.
        start: The first slot of each row that has a token, int32 [B], if the sequences are padded
            on the left to one length; None if there is no padding.
    """

    keys: Tensor
    values: Tensor
    length: Tensor
    start: Tensor | None = None

    @property
    def max_length(self) -> DimLike:
        """The number of slots."""
        return self.keys.shape[2]

    def positions(self, count: DimLike) -> Tensor:
        """Return the positions of the next tokens, as positional embeddings take them.

        They count from the first token of a row; padding before it has the position 0.

        Args:
            count: The number of tokens, an int or a dim.

        Returns:
            Ints: [count], or [B, count] if there is padding.
        """
        slots = self.length + positions(count)
        if self.start is None:
            return slots
        return F.maximum(slots - expand_dims(self.start, axis=1), 0)


def empty_cache(
    layer: str,
    batch: DimLike,
    max_length: DimLike,
    heads: int,
    width: int,
    dtype: DTypeLike,
    start: TensorLike | None,
) -> KVCache:
    """Return a cache without tokens.

    Raises:
        ArgumentError: max_length is no int or below 1.
        ShapeError: batch is no size, or there is not one start for each of its rows.
        DTypeError: dtype is not of floats, or start of no integers.
    """
    kind = as_dtype(dtype)
    fix = "use gf.float32, gf.float16 or gf.bfloat16"
    message = f"{layer}: dtype={kind.name} is not of floats"
    demand(kind.is_floating, message, fix=fix, error=DTypeError)
    if not isinstance(max_length, Dim):
        max_length = checked_size(layer, "max_length", max_length)
    (rows,) = dims_of(layer, batch)
    shape = (rows, heads, max_length, width)
    first = None if start is None else _starts(layer, start, rows)
    return KVCache(zeros(shape, dtype=kind), zeros(shape, dtype=kind), as_tensor(0, int32), first)


def _starts(layer: str, start: TensorLike, rows: DimLike) -> Tensor:
    tensor = as_tensor(start)
    operands = {"start": tensor}
    message = f"{layer}: start must be of integers, not {tensor.dtype.name}"
    fix = "write gf.astype(start, gf.int32)"
    demand(tensor.dtype.is_integer, message, operands, fix=fix, error=DTypeError)
    message = f"{layer}: start has the shape {shape_text(tensor.shape)}, and batch is {rows}"
    fix = "give the first slot of each row"
    demand(tensor.shape == (rows,), message, operands, fix=fix, error=ShapeError)
    return converted(tensor, int32)


def check_cache(layer: str, x: Tensor, cache: Any, heads: int, width: int) -> None:
    """See that a cache has room for x, as far as that is known, and fits the heads.

    Args:
        layer: The layer's class.
        x: [B, T, features]
        cache: The argument to check.
        heads: The number of heads of keys.
        width: The size of a head.

    Raises:
        ArgumentError: It is no `KVCache`.
        ShapeError: x has not 3 dims, the shapes don't fit, or there is no room.
    """
    message = f"{layer}: cache is {a_type(cache)}, not a KVCache"
    demand(
        isinstance(cache, KVCache),
        message,
        fix="make it with init_cache(batch, max_length) of the layer",
    )
    message = f"{layer}: with a cache x has 3 dims, [batch, time, features], not {x.ndim}"
    fix = "reshape x: a single sequence is x[None]"
    demand(x.ndim == 3, message, {"x": x}, fix=fix, error=ShapeError)
    batch, count = x.shape[:2]
    shape = (batch, heads, cache.max_length, width)
    operands = {"x": x, "keys": cache.keys}
    message = f"{layer}: the cache is {shape_text(cache.keys.shape)}, not {shape_text(shape)}"
    fix = f"make it with init_cache of this layer, and with batch={batch}"
    fits = cache.keys.shape == cache.values.shape == shape
    demand(fits, message, operands, fix=fix, error=ShapeError)
    used = known_length(cache) or 0
    beyond = always_ge(used + count - cache.max_length, 1)
    message = (
        f"{layer}: there are {used} + {counted(count, 'token')}, and the cache has "
        f"{counted(cache.max_length, 'slot')}"
    )
    fix = f"use init_cache(batch, max_length={used + count})"
    demand(not beyond, message, operands, fix=fix, error=ShapeError)


def check_caches(what: str, caches: Any, layers: int) -> None:
    """See that there is one `KVCache` for each of so many layers.

    Raises:
        ArgumentError: There is something else.
    """
    fits = type(caches) in (tuple, list) and len(caches) == layers
    fits = fits and all(isinstance(cache, KVCache) for cache in caches)
    message = (
        f"{what}: cache is {a_type(caches)}, and no tuple of caches for {counted(layers, 'layer')}"
    )
    demand(fits, message, fix=f"make it with init_cache(batch, max_length) of this {what}")


def known_length(cache: KVCache) -> int | None:
    """Return the number of full slots; None if only a run knows it."""
    value = concrete.value_to_check(cache.length)
    return None if value is None else int(value)


def extended(cache: KVCache, keys: Tensor, values: Tensor) -> KVCache:
    """Return the cache with the keys and values of the next tokens: [B, kv_heads, T, head_dim]."""
    count, used = keys.shape[2], known_length(cache)
    slots = cache.length + positions(count)
    length = cache.length + count
    if used is not None and isinstance(count, int):
        length = as_tensor(used + count, int32)  # which checks of later calls know, too
    put = IndexSet(2, _FULL)
    return cache._replace(
        keys=emit(put, cache.keys, converted(keys, cache.keys.dtype), slots),
        values=emit(put, cache.values, converted(values, cache.values.dtype), slots),
        length=length,
    )


def not_padding(cache: KVCache, slots: DimLike) -> Tensor | None:
    """Return a mask of the first slots without padding: bools [B, 1, 1, slots], None for all."""
    if cache.start is None:
        return None
    is_token = positions(slots) >= expand_dims(cache.start, axis=1)
    return expand_dims(is_token, axis=(1, 2))


def visible(cache: KVCache, count: DimLike, mask: Tensor | None) -> Tensor:
    """Return the mask of the slots that the next tokens may see: those up to their own.

    Args:
        cache: The cache without these tokens.
        count: The number of tokens.
        mask: The user's mask, as for attention, but with a dim for heads.

    Returns:
        Bools, or floats that are added to scores; they broadcast to [B, heads, count, max_length].

    Raises:
        ShapeError: The mask has another number of keys than there are slots.
    """
    slots = cache.max_length
    seen = expand_dims(cache.length + positions(count), axis=1) >= positions(slots)
    is_token = not_padding(cache, slots)
    if is_token is not None:
        seen = F.logical_and(seen, is_token)
    if mask is None:
        return seen
    found = mask.shape[-1] if mask.ndim else 1
    message = f"MultiHeadAttention: the mask is for {counted(found, 'key')}, not {slots}"
    fix = "with a cache a mask is for all its slots: [batch, 1, max_length]"
    demand(found in (1, slots), message, {"mask": mask}, fix=fix, error=ShapeError)
    return F.logical_and(seen, mask) if mask.dtype.is_bool else where(seen, mask, -math.inf)
