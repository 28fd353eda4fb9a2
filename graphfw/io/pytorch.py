"""Weights of PyTorch's in files and folders, as PyTorch and Hugging Face write them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from graphfw.errors import CheckpointError
from graphfw.io.checkpoint import map_checkpoint, opened, write_checkpoint
from graphfw.io.header import DTYPES, PICKLE, ZIP, other_format
from graphfw.io.torch_zip import read_torch_zip

_STANDARD = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""The names that Hugging Face's libraries look for in a folder, in this order."""
_KINDS = ("*.index.json", "*.safetensors", "*.bin", "*.pt", "*.pth")
_OWN = "graphfw/"
"""The begin of the names of the metadata that graphfw's own checkpoints have."""


def read_pytorch(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arrays of a file or folder of PyTorch's weights, with PyTorch's names and layouts.

    Arrays are mapped into memory where the file permits: they can't be written to, and are read
    when they are used. No code of a file is run.

    Args:
        path: A safetensors file, a file of `torch.save`, an index of several such files
            (`model.safetensors.index.json`), or a folder that has one of these.

    Returns:
        The arrays by name; of a file of `torch.save`, the dict that was saved, which may have
        dicts, lists, text and numbers in it.

    Raises:
        CheckpointError: There is no such file, it is damaged or of another kind, or its pickle has
            other things than tensors.
    """
    location = _location(path)
    with opened(location) as file:
        kind = other_format(file.read(8) or b"")
    if str(location).endswith(".json"):
        return _read_index(Path(location))
    if kind == ZIP:
        found = read_torch_zip(location)
        if not isinstance(found, dict):
            raise CheckpointError(
                f"{os.fspath(location)!r} holds one {type(found).__name__}, and no dict of tensors",
                fix="in PyTorch, save model.state_dict()",
            )
        return found
    if kind == PICKLE:
        raise CheckpointError(
            f"{os.fspath(location)!r} is a pickle, or a file of torch.save before PyTorch 1.6",
            fix="save it again in PyTorch: torch.save(torch.load(path, weights_only=True), path)",
        )
    arrays, metadata = map_checkpoint(location)
    if any(key.startswith(_OWN) for key in metadata):
        raise CheckpointError(
            f"{os.fspath(location)!r} holds graphfw's weights, not PyTorch's",
            fix="write session.restore(path) for a file of session.save, and "
            "model.load(session, path) for one of model.save",
        )
    return dict(arrays)


def write_pytorch(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """Write arrays with PyTorch's names and layouts to a safetensors file, all or nothing.

    Raises:
        CheckpointError: An entry has a dtype that the format does not have, or the file can't be
            written: see `write_checkpoint`.
    """
    for name, array in tensors.items():
        if array.dtype not in DTYPES.values():
            raise CheckpointError(
                f"cannot write {os.fspath(path)!r} for PyTorch: the entry {name!r} is of "
                f"{array.dtype.name}, which safetensors files do not have",
                fix="use model.save(session, path), whose files graphfw reads",
            )
    write_checkpoint(path, tensors, {"format": "pt"})


def _location(path: Any) -> Any:
    """Return the file in a folder that has the weights; what is no folder, as it is."""
    if not isinstance(path, str | os.PathLike) or not os.path.isdir(path):
        return path
    root = Path(path)
    for name in _STANDARD:
        if (root / name).is_file():
            return root / name
    for kind in _KINDS:
        files = sorted(root.glob(kind))
        if len(files) == 1:
            return files[0]
        if files:
            raise CheckpointError(
                f"the folder {str(root)!r} has {len(files)} files of weights: "
                + ", ".join(repr(file.name) for file in files[:4]),
                fix=f"name one of them: {str(files[0])!r}",
            )
    raise CheckpointError(
        f"the folder {str(root)!r} has no weights: no file named {', '.join(_KINDS)}",
        fix="check the path",
    )


def _read_index(path: Path) -> dict[str, Any]:
    """Return the arrays of the files that an index names."""

    def refused(why: str) -> CheckpointError:
        return CheckpointError(f"cannot read the index {str(path)!r}: {why}", fix=_WHOLE)

    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise refused(f"it is no JSON ({error})") from error
    files_of = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files_of, dict) or not all(isinstance(p, str) for p in files_of.values()):
        raise refused('it has no "weight_map" from names to files')
    files = sorted(set(files_of.values()))
    for file in files:
        if not _is_name(file):
            raise refused(f"{file!r} is not the name of a file beside it")
    absent = [file for file in files if not (path.parent / file).is_file()]
    if absent:
        raise refused(f"of {len(files)} files, these are missing: {', '.join(map(repr, absent))}")
    read = {file: read_pytorch(path.parent / file) for file in files}
    lost = [name for name, file in files_of.items() if name not in read[file]]
    if lost:
        raise refused(f"{files_of[lost[0]]!r} has no entry {lost[0]!r}")
    return {name: read[file][name] for name, file in files_of.items()}


_WHOLE = "use a whole copy of the folder"


def _is_name(file: str) -> bool:
    """Return whether a text is a file's name alone, on every system; not that of an index."""
    is_plain = PurePosixPath(file).name == file and PureWindowsPath(file).name == file
    return is_plain and file not in ("", "..") and "\0" not in file and not file.endswith(".json")
