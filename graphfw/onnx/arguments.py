"""The feeds of a model on the command line: arrays from files, else random numbers."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, ValueInfoProto

from graphfw.errors import ArgumentError, FeedError, ShapeError, did_you_mean
from graphfw.onnx.errors import ValueNeeded
from graphfw.onnx.importer import Import
from graphfw.onnx.reader import Model
from graphfw.onnx.running import specialised


def prepared(
    model: Model, inputs: Sequence[str], dims: Sequence[str]
) -> tuple[Import, dict[str, Any]]:
    """Load a model for arrays that files have, and random ones for its other inputs.

    Args:
        model: The model.
        inputs: `FILE.npz`, `NAME=FILE.npy`, or `FILE.npy` for the only input that there is.
        dims: `NAME=SIZE`: sizes that the model leaves open; others are 1.

    Raises:
        FeedError: A file can't be read, or is of no input.
        ArgumentError: A dim's name or size makes no sense.
        OnnxError, ShapeError, DTypeError: See `gf.onnx.load`.
    """
    infos = _inputs(model)
    arrays = _arrays_by_name(inputs, [info.name for info in infos])
    sizes = sizes_of(dims, model)
    made = {info.name: _made_up(info, sizes) for info in infos if info.name not in arrays}
    feeds = {**made, **arrays}
    try:
        return specialised(model, feeds), feeds
    except (ShapeError, ValueNeeded) as error:
        if made:  # instead of what it says of Python
            names = _listed(made)
            error.fix = f"random numbers stand for {names}: give arrays, --inputs NAME=FILE.npy"
        raise


def general(model: Model, inputs: Sequence[str], dims: Sequence[str]) -> Import:
    """Load a model with open sizes, if arrays need not be given; else as `prepared` does."""
    if not inputs and all(_is_numbers(info) for info in _inputs(model)):
        try:
            return Import(model, {}, {}, measures=False)
        except ValueNeeded:
            pass
    return prepared(model, inputs, dims)[0]


def _inputs(model: Model) -> list[ValueInfoProto]:
    """Return the inputs that have no default."""
    graph = model.proto.graph
    weights = {tensor.name for tensor in graph.initializer}
    return [info for info in graph.input if info.name not in weights]


def _arrays_by_name(texts: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, _, path = text.rpartition("=")
        loaded = _loaded(path)
        if not isinstance(loaded, dict):
            if not name and len(names) != 1:
                raise FeedError(
                    f"{path} doesn't say which input it is for",
                    fix=f"write --inputs NAME={path}; the inputs are {_listed(names)}",
                )
            found[name or names[0]] = loaded
        elif name:
            raise FeedError(
                f"{path} has arrays of several names",
                fix=f"write --inputs {path}; its arrays are {_listed(loaded)}",
            )
        else:
            found.update(loaded)
    for name in found:
        if name not in names:
            raise FeedError(
                f"{name!r} is no input of the model",
                fix=did_you_mean(name, names) or f"its inputs are {_listed(names)}",
            )
    return found


def _loaded(path: str) -> Any:
    """Return a file's array, or its arrays by name."""
    try:
        loaded = np.load(path, allow_pickle=False)
        return dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
    except OSError as error:
        raise FeedError(f"{path} can't be read: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise FeedError(
            f"{path} can't be read: it has no numbers or strings of NumPy's",
            fix="save it by numpy.save or numpy.savez",
        ) from None


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"


# Sizes


def sizes_of(texts: Sequence[str], model: Model) -> dict[str, int]:
    """Return the sizes that are given for dims, by their names as `plain` writes them.

    Raises:
        ArgumentError: One is no size, or of no dim.
    """
    names = [name for info in _inputs(model) for name in _open_dims(info) if name]
    known = {plain(name): name for name in names}
    found = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not (size.isascii() and size.isdigit()):
            raise ArgumentError(f"--dim {text}: that is no size", fix="write --dim batch=8")
        if plain(name) not in known:
            raise ArgumentError(
                f"--dim {name}: the inputs have no such dim",
                fix=did_you_mean(name, names) or f"they have {_listed(known.values())}",
            )
        found[plain(name)] = int(size)
    return found


def plain(name: str) -> str:
    """Return a dim's name without what a symbol of the graph can't have."""
    return re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_")


def _open_dims(info: ValueInfoProto) -> Iterator[str]:
    """Return the name of each of an input's dims that is open, and "" for the others."""
    for axis, dim in enumerate(info.type.tensor_type.shape.dim):
        is_open = not dim.HasField("dim_value") or dim.dim_value < 0
        own = dim.dim_param if plain(dim.dim_param) else f"{info.name}_{axis}"
        yield own if is_open else ""


def _made_up(info: ValueInfoProto, sizes: Mapping[str, int]) -> Any:
    """Return random numbers for an input; integers are 0 or 1.

    Raises:
        FeedError: It has no numbers.
    """
    if not info.type.HasField("tensor_type"):
        raise FeedError(
            f"the input {info.name!r} is no tensor, and nothing is made up for it",
            fix=f"run it from Python: gf.onnx.run(path, {{{info.name!r}: …}})",
        )
    if not _is_numbers(info):
        raise FeedError(
            f"the input {info.name!r} has strings, and none are made up",
            fix=f"--inputs {info.name}=FILE.npy",
        )
    kind = info.type.tensor_type
    rng = np.random.default_rng(0)
    dims = zip(kind.shape.dim, _open_dims(info), strict=True)
    shape = [sizes.get(plain(name), 1) if name else dim.dim_value for dim, name in dims]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    is_float = dtype.kind in "fV"
    numbers = rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape)
    return np.asarray(numbers).astype(dtype)


def _is_numbers(info: ValueInfoProto) -> bool:
    kind = info.type
    return kind.HasField("tensor_type") and kind.tensor_type.elem_type != TensorProto.STRING
