"""Weights of PyTorch's in files and folders, as PyTorch and Hugging Face write them."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from graphfw.errors import CheckpointError
from graphfw.io.checkpoint import map_checkpoint, opened
from graphfw.io.header import PICKLE, ZIP, other_format
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
    place = _place(path)
    with opened(place) as file:
        kind = other_format(file.read(8) or b"")
    if str(place).endswith(".json"):
        return _read_index(Path(place))
    if kind == ZIP:
        found = read_torch_zip(place)
        if not isinstance(found, dict):
            raise CheckpointError(
                f"{os.fspath(place)!r} holds one {type(found).__name__}, and no dict of tensors",
                fix="in PyTorch, save model.state_dict()",
            )
        return found
    if kind == PICKLE:
        raise CheckpointError(
            f"{os.fspath(place)!r} is a pickle, or a file of torch.save before PyTorch 1.6",
            fix="save it again in PyTorch: torch.save(torch.load(path, weights_only=True), path)",
        )
    arrays, metadata = map_checkpoint(place)
    if any(key.startswith(_OWN) for key in metadata):
        raise CheckpointError(
            f"{os.fspath(place)!r} holds graphfw's weights, not PyTorch's",
            fix="write session.restore(path) for a file of session.save, and "
            "model.load(session, path) for one of model.save",
        )
    return dict(arrays)


def _place(path: Any) -> Any:
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
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not all(isinstance(p, str) for p in places.values()):
        raise refused('it has no "weight_map" from names to files')
    files = sorted(set(places.values()))
    for file in files:
        if not _is_name(file):
            raise refused(f"{file!r} is not the name of a file beside it")
    absent = [file for file in files if not (path.parent / file).is_file()]
    if absent:
        raise refused(f"of {len(files)} files, these are missing: {', '.join(map(repr, absent))}")
    read = {file: read_pytorch(path.parent / file) for file in files}
    lost = [name for name, file in places.items() if name not in read[file]]
    if lost:
        raise refused(f"{places[lost[0]]!r} has no entry {lost[0]!r}")
    return {name: read[file][name] for name, file in places.items()}


_WHOLE = "use a whole copy of the folder"


def _is_name(file: str) -> bool:
    """Return whether a text is a file's name alone, on every system; not that of an index."""
    is_plain = PurePosixPath(file).name == file and PureWindowsPath(file).name == file
    return is_plain and file not in ("", "..") and "\0" not in file and not file.endswith(".json")
