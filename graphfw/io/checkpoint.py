"""Named arrays in a file: the old file or the new one, never half of either.

The format is safetensors, so other tools read these files. It has no complex128: such an array is
stored as float64 with a trailing axis of 2 (real, imaginary), and a metadata entry keeps its name.
Nor has it numbers of 4 bits and less with a byte for each: they are stored as uint8, and a metadata
entry keeps their names and dtypes. Checksums are metadata, too (`checksums.py`).
"""

import difflib
import errno
import json
import math
import os
import reprlib
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from graphfw.errors import CheckpointError, a_type
from graphfw.io.blocks import read_blocks, write_blocks
from graphfw.io.checksums import (
    CHECKSUMS_KEY,
    HEADER_KEY,
    checksums_of,
    damage_of_blocks,
    damage_of_header,
    from_json,
    has_checksums,
    room_for_checksums,
)
from graphfw.io.crc32 import Bytes
from graphfw.io.header import (
    DTYPES,
    METADATA,
    HeaderError,
    OtherFormatError,
    UnknownDtypeError,
    header_of,
    is_text,
    read_header,
)
from graphfw.io.work_folder import work_folder

_COMPLEX128 = np.dtype(np.complex128)
_COMPLEX128_KEY = "graphfw.complex128"  # metadata: JSON list of the entries stored as pairs
_BYTES = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in ("float4_e2m1fn", "int4", "uint4", "int2", "uint2")
}
_BYTES_OF = {dtype: name for name, dtype in _BYTES.items()}
_BYTES_KEY = "graphfw.bytes"  # metadata: JSON dict of the entries stored as bytes, to their dtypes
_KEYS = (_COMPLEX128_KEY, _BYTES_KEY, CHECKSUMS_KEY, HEADER_KEY)
_ALL = (*DTYPES.values(), _COMPLEX128, *_BYTES.values())


# ---------------------------------------------------------------------------------------- writing


def write_checkpoint(
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray[Any, Any]],
    metadata: Mapping[str, str],
) -> None:
    """Write named arrays and text to one safetensors file, all or nothing.

    At every moment the path holds the old file or the new one, also when the process is killed or
    another one writes the same path: the file is made in a private folder beside the target,
    flushed to the disk, and then replaces the target in one step. Folders of killed writers
    are removed first. A symbolic link stays one: the file it points to is replaced. A replaced
    file keeps its permissions. Checksums are written with the arrays, which `read_checkpoint`
    checks.

    Args:
        path: The file to write. Its folder must exist.
        tensors: Arrays of any shape, layout and byte order, of any dtype that graphfw has.
        metadata: Text to keep beside them.

    Raises:
        CheckpointError: An entry cannot be stored, or the file cannot be written. The old file is
            whole.
    """
    arrays, text = _encode(path, tensors, metadata)
    target = _target(path)
    try:
        # Known before writing: a file's permissions must not widen when it is replaced.
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        with work_folder(target.parent) as work:
            made = work / "checkpoint"
            if mode is None:
                mode = _default_mode(made)
            with open(made, "wb", buffering=0) as file:
                _write(file, arrays, text)
                with safe_open(made, framework="np"):
                    pass  # a file whose header can't be read back must not replace the other
                os.chmod(made, mode)
                os.fsync(file.fileno())
            os.replace(made, target)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"cannot write checkpoint {_quote(path)}: {_reason(error)}; "
            "what was at this path before is unchanged",
            fix=_write_fix(error, target),
        ) from error
    _sync_folder(path, target.parent)


def _write(
    file: FileIO, arrays: Mapping[str, np.ndarray[Any, Any]], text: Mapping[str, str]
) -> None:
    """Write a file's contents; the header last, since checksums of what follows it are in it."""
    room, positions = header_of(arrays, {**text, **room_for_checksums(arrays)})
    found = write_blocks(file, arrays, positions)
    header, _ = header_of(arrays, {**text, **checksums_of(arrays, text, found)})
    assert len(header) == len(room), "checksums have as many digits as the room for them"
    write_blocks(file, {"": np.frombuffer(header, np.uint8)}, {"": 0})


def _encode(
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray[Any, Any]],
    metadata: Mapping[str, str],
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    def refuse(why: str, fix: str) -> CheckpointError:
        return CheckpointError(f"cannot write checkpoint {_quote(path)}: {why}", fix=fix)

    for key, note in metadata.items():
        if not is_text(key) or not is_text(note):
            raise refuse(f"metadata {key!r}: {note!r} is not text", "pass Unicode str for both")
        if key in _KEYS:
            raise refuse(f"the metadata key {key!r} is reserved", "choose another key")

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    pairs: list[str] = []
    kept: dict[str, str] = {}
    for name, value in tensors.items():
        if not is_text(name) or name == METADATA:
            raise refuse(f"{name!r} cannot name an entry", "choose another name, a Unicode str")
        if not isinstance(value, np.ndarray):
            raise refuse(f"entry {name!r} is {a_type(value)}", "pass a numpy.ndarray")
        dtype = value.dtype.newbyteorder("=")
        if dtype not in _ALL:
            known = ", ".join(d.name for d in _ALL)
            raise refuse(f"entry {name!r} has dtype {value.dtype}", f"cast it to one of {known}")
        array = np.asarray(value, dtype=dtype, order="C")
        if dtype == _COMPLEX128:
            pairs.append(name)
            array = array.reshape(-1).view(np.float64).reshape(*value.shape, 2)
        if dtype in _BYTES_OF:
            kept[name] = _BYTES_OF[dtype]
            array = array.view(np.uint8)
        arrays[name] = array

    text = dict(metadata)
    if pairs:
        text[_COMPLEX128_KEY] = json.dumps(pairs)
    if kept:
        text[_BYTES_KEY] = json.dumps(kept)
    return arrays, text


def _target(path: str | os.PathLike[str]) -> Path:
    """The file that a write to `path` replaces: links followed, everything but a file refused."""

    def refuse(why: str, fix: str) -> CheckpointError:
        return CheckpointError(f"cannot write checkpoint {_quote(path)}: {why}", fix=fix)

    written = _text_of(path)
    if not _is_path(written):
        raise refuse("this is not a file's path", "pass a non-empty str or a pathlib.Path")
    target = Path(os.path.realpath(written))
    if os.path.islink(target):
        raise refuse("it is a symbolic link that leads to itself", "remove the link")
    if os.path.isdir(target) or written.endswith((os.sep, os.altsep or os.sep)):
        raise refuse("it is a folder", "add a file name, as in 'model.safetensors'")
    if os.path.exists(target) and not os.path.isfile(target):
        # A rename would put a plain file in the place of, say, /dev/null.
        raise refuse("it is a device, a pipe or a socket", "write to a plain file")
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise refuse("the file is read-only", "make it writable, or write to another path")
    if not os.path.isdir(target.parent):
        raise refuse(f"there is no folder {str(target.parent)!r}", "create the folder first")
    return target


def _default_mode(path: Path) -> int:
    """The permissions a new file gets here; to read the umask itself is not thread-safe."""
    with open(path, "xb") as file:
        return stat.S_IMODE(os.fstat(file.fileno()).st_mode)


def _sync_folder(path: str | os.PathLike[str], folder: Path) -> None:
    """Make the rename itself durable, where the system can do that for a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except PermissionError:
        return  # Windows, or a folder one may write to but not list
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOTSUP):
            return  # a file system that syncs no folders
        raise CheckpointError(
            f"checkpoint {_quote(path)} is written, but may not survive a power failure: "
            f"{_reason(error)}",
            fix="check the disk and write it again",
        ) from error


def _write_fix(error: OSError | SafetensorError, target: Path) -> str:
    if isinstance(error, PermissionError):
        return f"get permission to write in {str(target.parent)!r}, or write to another folder"
    return f"check the free space and the state of {str(target.parent)!r}, or use another disk"


# ---------------------------------------------------------------------------------------- reading


def read_checkpoint(
    path: str | os.PathLike[str],
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """Read a safetensors file, one of `write_checkpoint` or of another tool.

    Checksums are checked where the file has them. A file of another tool has none, nor has one of
    graphfw 0.1: there, damage of an array's bytes can't be seen.

    Returns:
        The arrays, in the order of their names, and the metadata. The arrays own their memory,
        are writable, C-contiguous and in native byte order.

    Raises:
        CheckpointError: There is no such file, it is damaged or of another format, or it has an
            entry of a dtype that NumPy and graphfw do not have.
    """
    arrays, text, _ = read_and_verify(path)
    return arrays, text


def read_and_verify(
    path: str | os.PathLike[str],
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str], bool]:
    """Read a safetensors file as `read_checkpoint` does; return also whether it has checksums.

    Raises:
        CheckpointError: As `read_checkpoint`.
    """
    with opened(path) as file, _explained(path):
        header = read_header(file)
        text = header.metadata
        arrays = {name: np.empty(e.shape, e.dtype) for name, e in header.entries.items()}
        positions = {name: e.position for name, e in header.entries.items()}
        checked = has_checksums(text)
        damage = damage_of_header(arrays, text) if checked else ""
        if not damage:
            found = read_blocks(file, arrays, positions, checked=checked)
            damage = damage_of_blocks(arrays, text, found) if checked else ""
    if damage:
        raise _refused(path, damage, "use another copy of the file")
    text.pop(CHECKSUMS_KEY, None)
    text.pop(HEADER_KEY, None)
    for name in _complex_names(path, text.pop(_COMPLEX128_KEY, "[]"), arrays):
        pair = arrays[name]
        arrays[name] = pair.reshape(-1).view(_COMPLEX128).reshape(pair.shape[:-1]).copy()
    for name, dtype in _kept_dtypes(path, text.pop(_BYTES_KEY, "{}"), arrays).items():
        arrays[name] = arrays[name].view(_BYTES[dtype]).copy()
    return arrays, text, checked


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the metadata of a safetensors file, and no arrays.

    Raises:
        CheckpointError: As `read_checkpoint`; but arrays are not checked.
    """
    with opened(path) as file, _explained(path):
        return read_header(file).metadata


def map_checkpoint(
    path: str | os.PathLike[str],
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """Read the header of a safetensors file, and map its arrays into memory.

    A file with checksums is read instead, and checked: see `read_checkpoint`.

    Returns:
        The arrays, in the order of their names, and the metadata. Mapped arrays can't be written
        to, and are read from the file when they are used.

    Raises:
        CheckpointError: As `read_checkpoint`.
    """
    with opened(path) as file, _explained(path):
        header = read_header(file)
        content = None if has_checksums(header.metadata) else mapped(file)
    if content is None:
        return read_checkpoint(path)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, entry in header.entries.items():
        nbytes = math.prod(entry.shape) * entry.dtype.itemsize
        values = aligned(content[entry.position : entry.position + nbytes], entry.dtype)
        arrays[name] = values.reshape(entry.shape)
    return arrays, header.metadata


def mapped(file: FileIO) -> Bytes:
    """Return the bytes of a file, not to be written to, which are read when they are used."""
    size = os.fstat(file.fileno()).st_size
    return np.memmap(file, np.uint8, "r").view(np.ndarray) if size else np.empty(0, np.uint8)


def aligned(content: Bytes, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return bytes as elements of a dtype: a view, or a copy where they lie between addresses."""
    is_aligned = content.ctypes.data % dtype.alignment == 0
    return (content if is_aligned else content.copy()).view(dtype)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[FileIO]:
    """Open a file to read from.

    Raises:
        CheckpointError: It is no file, there is none, or it must not be read.
    """
    written = _text_of(path)
    if not _is_path(written):
        fix = "pass a non-empty str or a pathlib.Path"
        raise _refused(path, "this is not a file's path", fix)
    if os.path.isdir(written):
        raise _refused(path, "it is a folder", "add the name of a file in it")
    if os.path.exists(written) and not os.path.isfile(written):
        raise _refused(path, "it is a device, a pipe or a socket", "read from a plain file")
    try:
        file = open(written, "rb", buffering=0)
    except FileNotFoundError as error:
        fix = _missing_fix(Path(written))
        raise _refused(path, "there is no such file", fix) from error
    except PermissionError as error:
        raise _refused(path, _reason(error), "get permission to read it") from error
    except OSError as error:
        raise _refused(path, _reason(error), "use another copy") from error
    with file:
        yield file


@contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise a CheckpointError for what is wrong with a file of the format."""
    try:
        yield
    except UnknownDtypeError as error:
        raise _refused(path, str(error), f"convert it to one of {', '.join(DTYPES)}") from error
    except OtherFormatError as error:
        raise _refused(
            path,
            f"it is {error}, and not a safetensors file",
            "PyTorch's weights are loaded by model.load_pytorch(session, path); read others with "
            "their library, and give what they hold to session.load_state_dict",
        ) from error
    except (OSError, HeaderError) as error:
        raise _refused(
            path,
            f"it is damaged, cut short or not a safetensors file ({_reason(error)})",
            "use another copy; session.save never leaves half a file",
        ) from error


def _refused(path: str | os.PathLike[str], why: str, fix: str) -> CheckpointError:
    return CheckpointError(f"cannot read checkpoint {_quote(path)}: {why}", fix=fix)


def _kept_dtypes(
    path: str | os.PathLike[str], marker: str, arrays: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, str]:
    kept = from_json(marker)
    if isinstance(kept, dict) and all(
        isinstance(dtype, str)
        and dtype in _BYTES
        and name in arrays
        and arrays[name].dtype == np.uint8
        for name, dtype in kept.items()
    ):
        return kept
    why = f"give uint8 entries one of the dtypes {', '.join(_BYTES)}"
    raise _false_marker(path, _BYTES_KEY, why)


def _complex_names(
    path: str | os.PathLike[str], marker: str, arrays: Mapping[str, np.ndarray[Any, Any]]
) -> set[str]:
    names = from_json(marker)
    if isinstance(names, list) and all(
        isinstance(name, str)
        and name in arrays
        and arrays[name].dtype == np.float64
        and arrays[name].shape[-1:] == (2,)
        for name in names
    ):
        return set(names)
    raise _false_marker(path, _COMPLEX128_KEY, "name float64 entries with a last axis of 2")


def _false_marker(path: str | os.PathLike[str], key: str, task: str) -> CheckpointError:
    return CheckpointError(
        f"cannot read checkpoint {_quote(path)}: its metadata {key!r} does not {task}",
        fix="remove that metadata, or use another copy of the file",
    )


def _missing_fix(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r} either: check the path"
    files: list[str] = []
    with suppress(OSError):  # a folder that cannot be listed gives no hints
        files = [entry.name for entry in os.scandir(path.parent) if entry.is_file()]
    near = difflib.get_close_matches(path.name, sorted(files), n=3)
    if not near:
        return f"nothing in {str(path.parent)!r} has a name like it: check the path"
    return "did you mean " + " or ".join(repr(str(path.with_name(name))) for name in near) + "?"


# ------------------------------------------------------------------------------------------ words


def _text_of(path: object) -> object:
    """Return the text of a path; what is none stays what it is, for `_is_path` to refuse."""
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def _is_path(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value != "" and "\0" not in value


def _quote(path: object) -> str:
    text = _text_of(path)
    return repr(text) if isinstance(text, str) else reprlib.repr(text)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
