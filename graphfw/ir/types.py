"""The type of a tensor: a dtype and a shape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from graphfw.errors import ParseError
from graphfw.hints.names import raise_not_called
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dim_text import parse_dim
from graphfw.ir.dtype import BY_NAME, DType

Shape: TypeAlias = tuple[DimLike, ...]


class TensorType:
    """A dtype and a shape, immutable; its text is `float32[batch, 64]`.

    Equal types are mostly one object: large graphs have few, and comparing them is quick then.
    """

    __slots__ = ("_size", "dtype", "shape")

    dtype: DType
    shape: Shape
    _size: DimLike | None

    def __new__(cls, dtype: DType, shape: Shape) -> TensorType:
        """Make a type, or take the one that there is."""
        usual = type(dtype) is DType and type(shape) is tuple
        known = _known.get((dtype.name, shape)) if usual else None
        if known is not None and known.dtype is dtype:
            return known
        self = object.__new__(cls)
        _set_dtype(self, dtype)
        _set_shape(self, shape)
        _set_size(self, None)
        # An int of NumPy is equal to Python's and has another text: who gives one keeps it.
        if usual and all([type(dim) is int or type(dim) is Dim for dim in shape]):
            if len(_known) >= _KNOWN:
                _known.clear()
            _known[dtype.name, shape] = self
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("TensorType is immutable")

    if not TYPE_CHECKING:  # which reports such calls itself

        def __call__(self, *args, **kwargs):
            """Refuse: PyTorch's `x.type(dtype)` converts."""
            raise_not_called("type")

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> DimLike:
        """The number of elements."""
        size = self._size
        if size is None:
            size = 1
            for dim in self.shape:
                size = size * dim
            _set_size(self, size)
        return size

    @property
    def nbytes(self) -> DimLike:
        """The number of bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def is_static(self) -> bool:
        """Whether every dim is an int."""
        return not any(isinstance(dim, Dim) for dim in self.shape)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TensorType):
            return NotImplemented
        return self.dtype is other.dtype and self.shape == other.shape

    def __hash__(self) -> int:
        return hash((self.dtype.name, self.shape))

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"

    __repr__ = __str__

    def __reduce__(self) -> tuple[object, ...]:
        return (TensorType, (self.dtype, self.shape))


_known: dict[tuple[str, Shape], TensorType] = {}
_KNOWN = 4096
"""The number of remembered types."""

# Writing through the slots' descriptors is how an immutable object fills itself, quickly.
_set_dtype = vars(TensorType)["dtype"].__set__
_set_shape = vars(TensorType)["shape"].__set__
_set_size = vars(TensorType)["_size"].__set__

_TYPE = re.compile(r"\s*(\w+)\s*\[(.*)\]\s*")


def parse_type(text: str) -> TensorType:
    """Read what `str(TensorType)` wrote.

    >>> parse_type("float32[batch, 8*n]").ndim
    2

    Raises:
        ParseError: The text is not a type.
    """
    match = _TYPE.fullmatch(text)
    if match is None or match[1] not in BY_NAME:
        raise ParseError(f"{text!r} is not a tensor type", fix="write it like float32[batch, 64]")
    return TensorType(BY_NAME[match[1]], tuple(parse_dim(d) for d in split(match[2])))


def split(listed: str) -> list[str]:
    """Split at the commas that are outside parentheses and brackets."""
    entries, depth, start = [], 0, 0
    for position, char in enumerate(listed):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            entries.append(listed[start:position])
            start = position + 1
    entries.append(listed[start:])
    return [entry.strip() for entry in entries if entry.strip()]
