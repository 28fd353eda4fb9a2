"""Data types and how they combine: one table, one function."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from graphfw.errors import DTypeError
from graphfw.hints.lookup import meant_option
from graphfw.hints.names import raise_dtype_called

Kind: TypeAlias = Literal["bool", "int", "uint", "float", "complex", "storage"]


class DType:
    """The type of a tensor's elements.

    Compares equal to its NumPy equivalent and is accepted wherever NumPy takes a dtype.

    >>> import numpy as np, graphfw as gf
    >>> gf.float32 == np.float32, np.zeros(2, dtype=gf.int8).dtype
    (True, dtype('int8'))

    Attributes:
        name: As NumPy and ml_dtypes call it.
        kind: What numbers they are; "storage" where they are only kept.
        itemsize: The bytes of an element.
        bits: How many bits of it count: of those for storage not all may.
    """

    __slots__ = ("_np", "bits", "itemsize", "kind", "name")

    def __init__(self, name: str, kind: Kind, itemsize: int, bits: int | None = None) -> None:
        self.name = name
        self.kind = kind
        self.itemsize = itemsize
        self.bits = bits or 8 * itemsize
        self._np: np.dtype[Any] | None = None

    if not TYPE_CHECKING:  # which reports such calls itself

        def __call__(self, *args, **kwargs):
            """Refuse: NumPy's `np.float32(x)` converts."""
            raise_dtype_called(self.name)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; under this name NumPy itself finds it."""
        if self._np is None:
            numpy_has_it = self.kind != "storage" and self.name != "bfloat16"
            self._np = np.dtype(self.name) if numpy_has_it else _ml_dtype(self.name)
        return self._np

    @property
    def is_bool(self) -> bool:
        """Whether this is `bool`."""
        return self.kind == "bool"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer."""
        return self.kind in ("int", "uint")

    @property
    def is_floating(self) -> bool:
        """Whether this is a real floating-point type."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """Whether this is a complex type."""
        return self.kind == "complex"

    @property
    def is_inexact(self) -> bool:
        """Whether gradients flow through it: floating-point or complex."""
        return self.kind in ("float", "complex")

    @property
    def is_storage(self) -> bool:
        """Whether numbers are only kept in it: `astype` converts them, nothing computes with it."""
        return self.kind == "storage"

    @property
    def holds_floats(self) -> bool:
        """Whether its numbers are real floats, also of those that are for storage."""
        return self.is_floating or (self.is_storage and self.name.startswith("float"))

    @property
    def is_low_precision(self) -> bool:
        """Whether sums and products of it are computed in float32."""
        return self.kind == "float" and self.itemsize == 2

    @property
    def real(self) -> DType:
        """The dtype of the absolute value: `float32` for `complex64`, itself otherwise."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        if isinstance(other, DType) or other is None:
            return False
        try:
            return bool(self.dtype == np.dtype(other))
        except (TypeError, ValueError):  # NumPy reads any text with a comma as a list of dtypes
            return False

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"graphfw.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return (as_dtype, (self.name,))


def _ml_dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes  # here, not above: few programs need it and `import graphfw` should be quick

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


bool_ = DType("bool", "bool", 1)
int8 = DType("int8", "int", 1)
int16 = DType("int16", "int", 2)
int32 = DType("int32", "int", 4)
int64 = DType("int64", "int", 8)
uint8 = DType("uint8", "uint", 1)
uint16 = DType("uint16", "uint", 2)
uint32 = DType("uint32", "uint", 4)
uint64 = DType("uint64", "uint", 8)
float16 = DType("float16", "float", 2)
bfloat16 = DType("bfloat16", "float", 2)
float32 = DType("float32", "float", 4)
float64 = DType("float64", "float", 8)
complex64 = DType("complex64", "complex", 8)
complex128 = DType("complex128", "complex", 16)

ALL: tuple[DType, ...] = (
    *(bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64),
    *(float16, bfloat16, float32, float64, complex64, complex128),
)
STORAGE: tuple[DType, ...] = tuple(
    DType(name, "storage", 1, bits)
    for name, bits in {
        **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 8),
        **{"float8_e8m0fnu": 8, "float4_e2m1fn": 4, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2},
    }.items()
)
"""Dtypes that quantised models store numbers in; in arrays each number takes a byte."""

BY_NAME: dict[str, DType] = {d.name: d for d in (*ALL, *STORAGE)}


def holds_stored(wide: DType, stored: DType) -> bool:
    """Return whether a dtype holds every number of one that is for storage.

    NumPy can't: it takes many a lossy conversion between them to be safe.
    """
    if wide.is_storage or wide.is_bool:
        return wide is stored
    if wide.is_inexact:
        # float8_e8m0fnu has the exponents of float32, of which float16 lacks most.
        return (wide.name, stored.name) != ("float16", "float8_e8m0fnu")
    return not stored.holds_floats and (wide.kind == "int" or stored.name.startswith("uint"))


def limits_of(dtype: DType) -> Any:
    """Return the `finfo` or `iinfo` of NumPy, or of ml_dtypes for its own; bools have none."""
    name = "finfo" if dtype.is_complex or dtype.holds_floats else "iinfo"
    if dtype is not bfloat16 and not dtype.is_storage:
        return getattr(np, name)(dtype.dtype)
    import ml_dtypes  # here, not above: few programs need it and `import graphfw` should be quick

    return getattr(ml_dtypes, name)(dtype.dtype)


DTypeLike: TypeAlias = DType | str | type | np.dtype[Any]
"""The forms in which a dtype is accepted: `gf.float32`, `"float32"`, `np.float32`, `float`, …"""

_PYTHON: dict[object, DType] = {bool: bool_, int: int64, complex: complex64}


def as_dtype(like: DTypeLike) -> DType:
    """Return the `DType` for a name, a NumPy dtype or type, or a Python type.

    Python's `float` is float32 and `complex` complex64, graphfw's defaults.

    Raises:
        DTypeError: There is no such dtype.
    """
    if isinstance(like, DType):
        return like
    if isinstance(like, np.dtype) and like in _BY_NUMPY:
        return _BY_NUMPY[like]
    if like is float:
        return float32
    if isinstance(like, type) and like in _PYTHON:
        return _PYTHON[like]
    try:
        name = like if isinstance(like, str) else _numpy_name(like)
    except TypeError:  # a list, say, which has no hash
        name = repr(like)
    found = BY_NAME.get(name)
    if found is None:
        meant = meant_option(name, [*BY_NAME])
        raise DTypeError(
            f"{name!r} is not a dtype that graphfw has",
            fix=f'did you mean "{meant}"?' if meant else f"use one of {', '.join(BY_NAME)}",
        )
    if isinstance(like, np.dtype):
        _BY_NUMPY[like] = found
    return found


_BY_NUMPY: dict[np.dtype[Any], DType] = {}
"""NumPy's dtypes that were met: a handful."""


@lru_cache(maxsize=256)
def _numpy_name(like: Any) -> str:
    if like is None:  # which NumPy takes for float64
        return repr(like)
    try:
        name: str = np.dtype(like).name
    except (TypeError, ValueError):
        return repr(like)
    return name


_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


@lru_cache(maxsize=1024)
def promote(first: DType, second: DType) -> DType:
    """Return the dtype that holds both, as the Array API standard defines it.

    Where the standard leaves it open: an integer with a float gives the float, float16 with
    bfloat16 gives float32.

    Raises:
        DTypeError: No integer type holds both (uint64 with a signed integer).
    """
    if first is second:
        return first
    if first.is_storage or second.is_storage:
        kept, other = (first, second) if first.is_storage else (second, first)
        raise DTypeError(
            f"{kept.name} is for storage alone: it doesn't meet {other.name}",
            fix="convert it first: gf.astype(x, gf.float32)",
        )
    low, high = sorted((first, second), key=lambda d: _RANK[d.kind])
    if _RANK[low.kind] < _RANK[high.kind]:
        if high.is_complex and low is float64:
            return complex128
        return high
    return _promote_same_rank(low, high)


def _promote_same_rank(first: DType, second: DType) -> DType:
    small, large = sorted((first, second), key=lambda d: d.itemsize)
    if first.kind == second.kind:
        return float32 if small.itemsize == large.itemsize else large
    signed, unsigned = (first, second) if first.kind == "int" else (second, first)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if unsigned is uint64:
        raise DTypeError(
            f"no integer dtype holds both {signed.name} and uint64",
            fix="convert one of them first, for example gf.astype(x, gf.int64)",
        )
    return BY_NAME[f"int{unsigned.itemsize * 16}"]


def promote_all(dtypes: Iterator[DType] | tuple[DType, ...]) -> DType:
    """Promote any number of dtypes, at least one."""
    iterator = iter(dtypes)
    result = next(iterator)
    for dtype in iterator:
        result = promote(result, dtype)
    return result


def promote_scalar(dtype: DType, scalar: complex, default_float: DType) -> DType:
    """Return the dtype of a tensor of `dtype` combined with a Python scalar.

    Scalars are weak: they take the tensor's dtype where its kind can hold them. An integer tensor
    with a Python float gives `default_float`; a bool tensor with a Python int gives int64.
    """
    if isinstance(scalar, bool):
        return dtype
    if isinstance(scalar, int):
        return int64 if dtype.is_bool else dtype
    if isinstance(scalar, float):
        return dtype if dtype.is_inexact else default_float
    if dtype.is_complex:
        return dtype
    real = dtype if dtype.is_floating else default_float
    return complex128 if real is float64 else complex64
