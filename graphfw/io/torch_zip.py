"""Files of PyTorch's `torch.save`: a zip archive with a pickle, and each storage's bytes.

A storage is a run of elements; a tensor is a view of one, given by an offset, a shape and strides.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from graphfw.errors import CheckpointError
from graphfw.io.checkpoint import aligned, mapped, opened
from graphfw.io.crc32 import Bytes
from graphfw.io.pickles import PickleError, PickleRefusedError, read_pickle

_LOCAL_HEADER = 30
"""The bytes of an entry's header in the archive, before its name."""
_STORAGES = {
    "BoolStorage": np.bool_,
    "ByteStorage": np.uint8,
    "CharStorage": np.int8,
    "ShortStorage": np.int16,
    "IntStorage": np.int32,
    "LongStorage": np.int64,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "FloatStorage": np.float32,
    "DoubleStorage": np.float64,
    "ComplexFloatStorage": np.complex64,
    "ComplexDoubleStorage": np.complex128,
    "UntypedStorage": np.uint8,
}
_DTYPES = {
    **{name: getattr(np, name) for name in ("uint16", "uint32", "uint64")},
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
}
"""The dtypes that PyTorch has no class of storages for."""


def read_torch_zip(path: str | os.PathLike[str]) -> Any:
    """Return the object that `torch.save` wrote, with arrays for tensors, mapped into memory.

    Dicts, lists, tuples, text and numbers are kept. No code of the file is run.

    Raises:
        CheckpointError: The file is damaged or another kind of archive, or its pickle has something
            else than these, which is named.
    """

    def refused(why: str, fix: str) -> CheckpointError:
        return CheckpointError(f"cannot read {os.fspath(path)!r}: {why}", fix=fix)

    with opened(path) as file:
        content = mapped(file)
        try:
            entries = _entries(file, content)
            root = _root(entries)
            if bytes(entries.get(f"{root}byteorder", b"little")) != b"little":
                raise refused("its numbers are big-endian", "save it again on another computer")
            reading = _Reading(root, entries)
            pickle = bytes(entries[f"{root}data.pkl"])
            return read_pickle(pickle, reading.functions, reading.storage)
        except PickleRefusedError as error:
            raise refused(
                f"{error}",
                "in PyTorch, load it if you trust it, and save its tensors alone: "
                "torch.save(model.state_dict(), path)",
            ) from error
        except _OtherArchiveError as error:
            raise refused(f"it is {error}", "in PyTorch, save model.state_dict()") from error
        except _DAMAGED as error:
            raise refused(
                f"it is damaged or cut short ({error})", "use another copy of the file"
            ) from error


_DAMAGED = (
    *(PickleError, OSError, EOFError, ValueError, OverflowError, NotImplementedError),
    *(zipfile.BadZipFile, struct.error),
)
"""The errors of damaged files; `zipfile` passes on those of what it reads with."""


class _OtherArchiveError(Exception):
    """An archive is not of torch.save; the text says what it is."""


def _entries(file: Any, content: Bytes) -> dict[str, Bytes]:
    """Return the bytes of an archive's entries, by name."""
    found: dict[str, Bytes] = {}
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise _OtherArchiveError("a compressed archive, as torch.save does not write it")
            first = entry.header_offset + _LOCAL_HEADER
            header = bytes(content[entry.header_offset : first])
            for length in (header[26:28], header[28:30]):  # the lengths of what follows
                first += int.from_bytes(length, "little")
            if len(header) < _LOCAL_HEADER or first + entry.file_size > content.size:
                raise PickleError(f"the entry {entry.filename!r} lies beyond its end")
            found[entry.filename] = content[first : first + entry.file_size]
    return found


def _root(entries: Mapping[str, Bytes]) -> str:
    """Return the folder of the archive in which everything lies, with its slash."""
    names = [name for name in entries if name.rpartition("/")[2] == "data.pkl"]
    if len(names) != 1:
        raise _OtherArchiveError("a zip archive that torch.save has not written")
    root = names[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in entries:
        raise _OtherArchiveError("a program of torch.jit.save")
    return root


class _Reading:
    """The functions and values that the pickle of an archive may name."""

    def __init__(self, root: str, entries: Mapping[str, Bytes]) -> None:
        self._root, self._entries = root, entries
        kinds = {name: np.dtype(dtype) for name, dtype in _STORAGES.items()}
        self.functions: dict[str, Any] = {
            "collections.OrderedDict": dict,
            "torch.Size": tuple,
            "torch._utils._rebuild_tensor": _tensor,
            "torch._utils._rebuild_tensor_v2": _tensor,
            "torch._utils._rebuild_tensor_v3": _tensor_of_bytes,
            "torch._utils._rebuild_parameter": _parameter,
            **{f"torch.{name}": dtype for name, dtype in kinds.items()},
            "torch.storage.UntypedStorage": kinds["UntypedStorage"],
            **{f"torch.{name}": np.dtype(dtype) for name, dtype in _DTYPES.items()},
        }

    def storage(self, found: Any) -> np.ndarray[Any, Any]:
        """Return the elements of the storage that a persistent id names."""
        kind, dtype, key, _, count = found
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise PickleError("the id of a storage is none")
        name = f"{self._root}data/{key}"
        if name not in self._entries:
            raise PickleError(f"the storage {name!r} is missing")
        content = self._entries[name]
        if type(count) is not int or count < 0 or count * dtype.itemsize > content.size:
            raise PickleError(f"the storage {name!r} has fewer than {count} elements")
        return aligned(content[: count * dtype.itemsize], dtype)


def _tensor(storage: Any, offset: int, shape: Any, strides: Any, *_: Any) -> Any:
    """Return a tensor: a view of its storage."""
    sizes = [offset, *shape, *strides]
    if not isinstance(storage, np.ndarray) or any(type(s) is not int or s < 0 for s in sizes):
        raise PickleError("a tensor has no storage, offset, shape and strides")
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if 0 in shape:
        return np.empty(shape, storage.dtype)
    if last >= storage.size:
        raise PickleError(f"a tensor of shape {list(shape)} is larger than its storage")
    steps = [stride * storage.itemsize for stride in strides]
    at = offset * storage.itemsize
    view: np.ndarray[Any, Any] = np.ndarray(
        shape, storage.dtype, storage.view(np.uint8).data, at, steps
    )
    view.flags.writeable = False
    return view


def _tensor_of_bytes(
    storage: Any,
    offset: int,
    shape: Any,
    strides: Any,
    _grad: Any,
    _hooks: Any,
    dtype: Any,
    *_: Any,
) -> Any:
    """Return a tensor of a dtype that PyTorch has no class of storages for."""
    if not isinstance(dtype, np.dtype) or not isinstance(storage, np.ndarray):
        raise PickleError("a tensor has no dtype")
    return _tensor(storage.view(dtype), offset, shape, strides)


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor
