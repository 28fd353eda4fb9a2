"""The functions of einops for tensors of graphfw: import this, and `einops.rearrange` takes them.

einops asks each subclass of its `AbstractBackend` whether a tensor is its own, so that nothing has
to be registered. Without this module, `einops.array_api` has the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einops._backends import AbstractBackend

import graphfw as gf


class GraphfwBackend(AbstractBackend):
    """The functions that einops calls for `gf.Tensor`s; their sizes may be symbolic."""

    framework_name = "graphfw"

    def is_appropriate_type(self, tensor: object) -> bool:
        return isinstance(tensor, gf.Tensor)

    def from_numpy(self, x: Any) -> gf.Tensor:
        return gf.asarray(x)

    def to_numpy(self, x: gf.Tensor) -> Any:
        return x.numpy()

    def arange(self, start: int, stop: int) -> gf.Tensor:
        return gf.arange(start, stop)

    def transpose(self, x: gf.Tensor, axes: Sequence[int]) -> gf.Tensor:
        return gf.permute_dims(x, tuple(axes))

    def reduce(self, x: gf.Tensor, operation: str, axes: Sequence[int]) -> gf.Tensor:
        return getattr(gf, operation)(x, axis=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[gf.Tensor]) -> gf.Tensor:
        return gf.stack(tensors)

    def add_axis(self, x: gf.Tensor, new_position: int) -> gf.Tensor:
        return gf.expand_dims(x, axis=new_position)

    def tile(self, x: gf.Tensor, repeats: tuple[int, ...]) -> gf.Tensor:
        return gf.tile(x, repeats)

    def concat(self, tensors: list[gf.Tensor], axis: int) -> gf.Tensor:
        return gf.concat(tensors, axis=axis)

    def is_float_type(self, x: gf.Tensor) -> bool:
        return x.dtype.is_floating

    def einsum(self, pattern: str, *x: gf.Tensor) -> gf.Tensor:
        return gf.einsum(pattern, *x)
