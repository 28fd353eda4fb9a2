"""Numbers of dtypes that CuPy lacks, floats of 8 bits and the like: on a GPU, their bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from graphfw.errors import ArgumentError
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, uint8
from graphfw.ir.literal import Array
from graphfw.ir.op import EFFECT, ELEMENTWISE
from graphfw.ir.tensor import Node
from graphfw.ops.control.host_call import HostCall
from graphfw.ops.control.region_op import Region
from graphfw.runtime.program import Program


class StoredArray:
    """An array on a GPU of a dtype that CuPy lacks: what a run is fed, returns, or keeps.

    `get()` or `gf.to_numpy` copies it to the host. To compute with it elsewhere take its bytes:
    `torch.from_dlpack(array.bytes).view(torch.float8_e4m3fn)`.

    Args:
        content: The bytes, one for each number: a CuPy array of uint8.
        dtype: What they stand for.

    Attributes:
        bytes: The bytes.
        dtype: NumPy's dtype of the numbers.

    Raises:
        ArgumentError: These are no bytes, or CuPy has arrays of the dtype itself.
    """

    def __init__(self, content: Any, dtype: DTypeLike) -> None:
        known = as_dtype(dtype)
        if not known.is_storage:
            raise ArgumentError(
                f"StoredArray: CuPy has {known.name} itself", fix="hand over the CuPy array"
            )
        if not hasattr(content, "__cuda_array_interface__") or content.dtype != np.uint8:
            raise ArgumentError(
                "StoredArray: the bytes are to be a CuPy array of uint8",
                fix="take a view of it: array.view(cupy.uint8)",
            )
        self.bytes = content
        self.dtype = known.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its dims."""
        shape: tuple[int, ...] = self.bytes.shape
        return shape

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size: int = self.bytes.size
        return size

    @property
    def nbytes(self) -> int:
        """The number of bytes: one for each element."""
        return self.size

    @property
    def device(self) -> Any:
        """The GPU, as CuPy names it."""
        return self.bytes.device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The interface for others: pieces of one byte, that are no numbers."""
        return {**self.bytes.__cuda_array_interface__, "typestr": "|V1"}

    def get(self) -> Array:
        """Return a copy as a NumPy array."""
        host: Array = self.bytes.get().view(self.dtype)
        return host

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Refuse, as CuPy does, to copy what nobody has asked to be copied."""
        raise TypeError("implicit conversion to a NumPy array is not allowed: call get()")

    def __repr__(self) -> str:
        return f"StoredArray({self.get()!r})"


def array_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the dtype of the array that holds numbers on a GPU."""
    return (uint8 if dtype.is_storage else dtype).dtype


def runs_on_host(node: Node, *, has_kernels: bool = True) -> bool:
    """Return whether NumPy computes a node without a kernel: CuPy would take bytes for numbers.

    So would functions of users, and what shows or checks values; others only move elements.

    Args:
        node: The node.
        has_kernels: Whether what converts and compares elements has kernels, and so has what is
            inside of loops and branches.
    """
    op = node.op
    if isinstance(op, Region):
        return not has_kernels and _has_stored(node)
    if not _has_stored(node):
        return False
    is_own = type(op).__module__.startswith("graphfw.")
    is_shown = EFFECT in op.traits or isinstance(op, HostCall)
    return not is_own or is_shown or (not has_kernels and ELEMENTWISE in op.traits)


def _has_stored(node: Node) -> bool:
    """Return whether it takes or gives numbers of such a dtype, or what is inside of it does."""
    kinds = [*node.types, *[tensor.type for tensor in node.inputs]]
    if any([kind.dtype.is_storage for kind in kinds]):
        return True
    bodies = node.op.bodies if isinstance(node.op, Region) else ()
    return any([_has_stored(inner) for body in bodies for inner in body.graph.nodes])


def to_device(cupy: Any, value: Any, dtype: DType) -> Any:
    """Return a result of NumPy's as a CuPy array."""
    return cupy.asarray(np.asarray(value).view(array_dtype(dtype)))


def to_host(cupy: Any, array: Any, dtype: DType) -> Array:
    """Return a CuPy array as a NumPy array of what it stands for."""
    host: Array = cupy.asnumpy(array).view(dtype.dtype)
    return host


class Edge:
    """The conversion of inputs and outputs that are `StoredArray` outside, and bytes inside.

    Where there is none, what goes through stays as it is.
    """

    def __init__(self, program: Program) -> None:
        inputs, made = (*program.feeds, *program.variables), program.source.outputs
        self._inputs = _stored([tensor.dtype for tensor in inputs])
        self._outputs = _stored([tensor.dtype for tensor in made])

    def taken(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs as arrays of CuPy or NumPy that have bytes."""
        return _replaced(inputs, self._inputs, lambda array, _: bytes_of(array))

    def to_host_copies(self, cupy: Any, inputs: Sequence[Any]) -> Sequence[Array]:
        """Return copies of the inputs as NumPy arrays."""
        host = [cupy.asnumpy(array) for array in self.taken(inputs)]
        return _replaced(host, self._inputs, lambda array, dtype: array.view(dtype.dtype))

    def handed(self, outputs: Sequence[Any]) -> list[Any]:
        """Return the outputs as they are handed over."""
        return [*_replaced(outputs, self._outputs, StoredArray)]


def bytes_of(array: Any) -> Any:
    """Return the bytes of what CuPy lacks the dtype of; any other array as it is."""
    if isinstance(array, StoredArray):
        return array.bytes
    is_kept = isinstance(array, np.ndarray) and as_dtype(array.dtype).is_storage
    return array.view(np.uint8) if is_kept else array


def _stored(dtypes: Sequence[DType]) -> dict[int, DType]:
    return {number: dtype for number, dtype in enumerate(dtypes) if dtype.is_storage}


def _replaced(
    arrays: Sequence[Any], which: Mapping[int, DType], change: Callable[[Any, DType], Any]
) -> Sequence[Any]:
    if not which:
        return arrays
    return [change(a, which[n]) if n in which else a for n, a in enumerate(arrays)]
