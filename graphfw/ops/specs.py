"""The forms of types that users write: `gf.TensorType`, pairs `(shape, dtype)`, arrays; nested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from graphfw.errors import ArgumentError, a_type
from graphfw.ir.arrays import to_array
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType, DTypeLike, as_dtype
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType

T = TypeVar("T")

Make = Callable[[Sequence[Any], DTypeLike, str], T]
"""Called with a shape as it is written, a dtype, and a name that says where both stand."""


def read(what: str, spec: Any, name: str, make: Make[T]) -> Any:
    """Return a nested structure of types with each replaced by what `make` makes of it.

    Args:
        what: The function that was given it, for errors.
        spec: A `TensorType`, a pair `(shape, dtype)`, an array or a tensor, which stand for their
            own types; or tuples, lists, named tuples and dicts of these.
        name: What to call it; what stands inside is called `name_0`, `name_key`.
        make: See `Make`.

    Raises:
        ArgumentError: Something is no type.
    """
    if isinstance(spec, (TensorType, Tensor)):
        return make(spec.shape, spec.dtype, name)
    if is_pair(spec):
        return make(spec[0], spec[1], name)
    if isinstance(spec, Mapping):
        return {key: read(what, value, f"{name}_{key}", make) for key, value in spec.items()}
    if isinstance(spec, (list, tuple)):
        made = [read(what, value, f"{name}_{i}", make) for i, value in enumerate(spec)]
        return made if isinstance(spec, list) else getattr(type(spec), "_make", tuple)(made)
    if isinstance(spec, type) or not hasattr(spec, "__array__"):
        raise ArgumentError(
            f"{what}: {name} is {a_type(spec)}, which says no shape and dtype",
            fix='write ((3, 4), "float32"), or pass a gf.TensorType or an array',
        )
    array = to_array(spec)
    return make(array.shape, as_dtype(array.dtype), name)


def is_pair(spec: Any) -> bool:
    """Return whether it is `(shape, dtype)`, and not a structure of two."""
    if not isinstance(spec, tuple) or len(spec) != 2 or not isinstance(spec[0], (list, tuple)):
        return False
    shape, dtype = spec
    is_shape = all(d is None or isinstance(d, (int, str, Dim, np.integer)) for d in shape)
    return is_shape and isinstance(dtype, (DType, str, np.dtype, type))
