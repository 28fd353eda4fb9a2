"""Reading model files, which may be broken or hostile.

Nothing is believed that a file says of its own sizes: memory is taken for bytes that are there. No
file is read that doesn't lie in the model's folder.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

from graphfw.errors import ArgumentError, a_type
from graphfw.ir.literal import Array
from graphfw.onnx import weights
from graphfw.onnx.errors import OnnxError

_PACKED: dict[int, int] = {
    TensorProto.UINT4: 2,
    TensorProto.INT4: 2,
    TensorProto.FLOAT4E2M1: 2,
    TensorProto.UINT2: 4,
    TensorProto.INT2: 4,
}
"""The number of elements of a type that share a byte."""

_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}

_APART = (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.INT16,
    TensorProto.UINT16,
    TensorProto.INT32,
    TensorProto.UINT32,
    TensorProto.INT64,
    TensorProto.UINT64,
)
"""Types whose bytes are an array's as they are."""

_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def read_model(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Model:
    """Read a model's file, or take its bytes or what `onnx.load` has read.

    Raises:
        OnnxError: There is no such file, or it is no model.
        ArgumentError: It is something else.
    """
    if isinstance(source, onnx.ModelProto):
        return Model(source, None)
    if isinstance(source, bytes):
        return Model(_parsed(source, "the bytes"), None)
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentError(
            f"a model is a path, a file's bytes or a ModelProto, not {a_type(source)}",
            fix="give the path of its file",
        )
    path = Path(source)
    if path.exists() and not path.is_file():
        raise OnnxError(f"{path} is no file")
    try:
        with path.open("rb") as file:
            found = weights.apart(file, os.fstat(file.fileno()).st_size)
            if found is None:
                file.seek(0)
                return Model(_parsed(file.read(), str(path)), path.parent)
            proto = _parsed(found.rest, str(path))
            return Model(proto, path.parent, _read_apart(file, proto, found.spans))
    except OSError as error:
        raise OnnxError(f"{path} can't be read: {error.strerror or error}") from None


def _parsed(data: bytes, name: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise OnnxError(f"{name}: this is no ONNX model, or a part of one") from None
    if not proto.HasField("graph"):
        raise OnnxError("the model has no graph", fix="is it an ONNX file, and whole?")
    return proto


def _read_apart(
    file: BufferedReader, proto: onnx.ModelProto, spans: Mapping[int, tuple[int, int]]
) -> dict[int, Array]:
    """Read the arrays of initializers that have been left out; other bytes are put back."""
    wanted: dict[int, weights.Wanted] = {}
    for number, (offset, length) in spans.items():
        tensor = proto.graph.initializer[number]
        if tensor.data_type in _APART:
            what, dims = _checked_dims(tensor)
            _require_length(what, length, _bytes(tensor, math.prod(dims)), "bytes")
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            wanted[number] = weights.Wanted(offset, dtype, dims)
        else:
            file.seek(offset)
            tensor.raw_data = file.read(length)
    arrays = weights.read(file, list(wanted.values()))
    if arrays is None:
        raise OnnxError("the file has become shorter while it was read")
    return dict(zip(wanted, arrays, strict=True))


class Model:
    """A model's protobuf and the folder of its external data.

    Attributes:
        proto: What the file says, without the bytes of large weights.
        opsets: The version of each domain's operators.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        folder: Path | None,
        apart: Mapping[int, Array] | None = None,
    ) -> None:
        self.proto = proto
        self._folder = folder
        self._apart = apart or {}
        self._regions: dict[Path, dict[tuple[int, int], bytes]] = {}
        self.opsets = opsets(proto)

    def initializers(self) -> Iterator[tuple[str, Array]]:
        """Yield the names and the arrays of the main graph's initializers; see `array`."""
        for number, tensor in enumerate(self.proto.graph.initializer):
            array = self._apart.get(number)
            yield tensor.name, self.array(tensor) if array is None else array

    def array(self, tensor: TensorProto) -> Array:
        """Return a tensor's array; one of strings has dtype object.

        Raises:
            OnnxError: Its sizes, type and bytes don't belong together; its external data lies
                outside of the model's folder.
        """
        what, dims = _checked_dims(tensor)
        if tensor.data_type not in _TYPES:
            raise OnnxError(f"{what} has the type {tensor.data_type}, which graphfw doesn't know")
        count = math.prod(dims)
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor = self._with_external(tensor, _bytes(tensor, count), what)
        elif tensor.HasField("raw_data"):
            _require_length(what, len(tensor.raw_data), _bytes(tensor, count), "bytes")
        else:
            _check_fields(tensor, count, what)
        try:
            array = numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, UnicodeDecodeError) as error:
            raise OnnxError(f"{what} can't be read: {error}") from None
        return array.reshape(dims)

    def _with_external(self, tensor: TensorProto, length: int, what: str) -> TensorProto:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if self._folder is None:
            raise OnnxError(
                f"{what} lies in the file {location!r}",
                fix="load the model by its path: data is sought beside it",
            )
        folder = self._folder.resolve()
        path = (folder / location).resolve()
        if not location or not path.is_relative_to(folder) or not path.is_file():
            raise OnnxError(f"{what}: {location!r} is no file in the model's folder")
        try:
            offset = int(entries.get("offset", 0))
            stated = int(entries.get("length", length))
        except ValueError:
            raise OnnxError(f"{what}: its position in {location!r} is no number") from None
        _require_length(what, stated, length, "bytes")
        if offset < 0 or offset + length > path.stat().st_size:
            raise OnnxError(f"{what} would end behind the end of {location!r}")
        inner = TensorProto(dims=tensor.dims, data_type=tensor.data_type, name=tensor.name)
        inner.raw_data = self._region(path, offset, length, what)
        return inner

    def _region(self, path: Path, offset: int, length: int, what: str) -> bytes:
        """Read a range of a file; ranges that overlap would take more memory than the file has."""
        regions = self._regions.setdefault(path, {})
        if (offset, length) not in regions:
            if sum(n for _, n in regions) + length > path.stat().st_size:
                raise OnnxError(f"{what} overlaps another tensor's range of {path.name!r}")
            with path.open("rb") as file:
                file.seek(offset)
                regions[offset, length] = file.read(length)
        return regions[offset, length]


def _checked_dims(tensor: TensorProto) -> tuple[str, tuple[int, ...]]:
    """Return how errors call a tensor, and its dims."""
    what, dims = f"the tensor {tensor.name!r}", tuple(tensor.dims)
    if any(d < 0 for d in dims):
        raise OnnxError(f"{what} has a negative size: {list(dims)}")
    return what, dims


def opsets(proto: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """Return the version of each domain's operators; ONNX's own domain is ""."""
    found = {_domain(o.domain): int(o.version) for o in proto.opset_import}
    return found or {"": 1}


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _bytes(tensor: TensorProto, count: int) -> int:
    if tensor.data_type == TensorProto.STRING:
        raise OnnxError(f"the tensor {tensor.name!r} has strings as bytes")
    packed = _PACKED.get(tensor.data_type)
    if packed:
        return -(-count // packed)
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _check_fields(tensor: TensorProto, count: int, what: str) -> None:
    """Check that as many elements are there as the dims say."""
    lengths = {name: len(getattr(tensor, name)) for name in _FIELDS}
    filled = [name for name, length in lengths.items() if length]
    if len(filled) > 1:
        raise OnnxError(f"{what} has its elements twice, as {' and '.join(filled)}")
    there = lengths[filled[0]] if filled else 0
    wanted = count
    if tensor.data_type in _PACKED:
        wanted = -(-count // _PACKED[tensor.data_type])
    elif tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        wanted = 2 * count
    _require_length(what, there, wanted, "elements")


def _require_length(what: str, there: int, wanted: int, unit: str) -> None:
    if there != wanted:
        raise OnnxError(f"{what} should have {wanted:,} {unit} by its dims, and has {there:,}")
