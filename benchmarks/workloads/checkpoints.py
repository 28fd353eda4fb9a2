"""Checkpoints: a model's variables written to a file and read again, with all checksums; and the
weights of a PyTorch model in a folder of safetensors files, as published ones are.

PyTorch's and NumPy's files are ZIP archives; both write their CRC-32, and NumPy checks it. Only
graphfw waits until the disk has the file, so that a crash of the machine loses nothing. "copy" is
the least that this takes: the bytes written to a new file, and waited for, or read into new memory.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.frameworks import Array
from benchmarks.workload import Case, Contest, Target

SIZES = {"2MiB": (8, 256), "256MiB": (16, 2048)}
"""The number of square matrices of float32, and of the rows of each."""


def _arrays(size: str) -> dict[str, Array]:
    count, rows = SIZES[size]
    rng = np.random.default_rng(0)
    return {f"w{i}": rng.standard_normal((rows, rows), np.float32) for i in range(count)}


def _case(way: str, write: Callable[[str], object], read: Callable[[str], object]) -> Case:
    """Return a contender; what is compared is what was read, of which `read` returns a part."""
    folder = tempfile.TemporaryDirectory()  # there as long as the functions that name it

    def path() -> str:
        return str(Path(folder.name) / "checkpoint.npz")  # NumPy adds the suffix to other names

    write(path())
    how = write if way == "save" else read
    return Case(lambda: how(path()), check=lambda: read(path()))


def _graphfw(way: str, size: str) -> Case:
    import graphfw as gf

    arrays = _arrays(size)
    with gf.Graph() as g:
        variables = [gf.Variable(array, name=name) for name, array in arrays.items()]
    session = gf.Session(g)

    def read(path: str) -> object:
        session.restore(path)
        return session.run(variables[-1])[0]

    session.run(variables)  # which gives them their contents
    return _case(way, session.save, read)


def _torch(way: str, size: str) -> Case:
    import torch

    state = {name: torch.from_numpy(array) for name, array in _arrays(size).items()}

    def read(path: str) -> object:
        for name, tensor in torch.load(path).items():
            state[name].copy_(tensor)
        return state[name][0].numpy()

    return _case(way, functools.partial(torch.save, state), read)


def _numpy(way: str, size: str) -> Case:
    state = _arrays(size)

    def write(path: str) -> None:
        np.savez(path, **state)

    def read(path: str) -> object:
        with np.load(path) as archive:
            for name in archive:
                state[name][...] = archive[name]
        return state[name][0]

    return _case(way, write, read)


def _copy(way: str, size: str) -> Case:
    state = _arrays(size)

    def write(path: str) -> None:
        with open(path, "wb", buffering=0) as file:
            for array in state.values():
                content = array.reshape(-1).view(np.uint8)
                for first in range(0, content.size, _PIECE):
                    file.write(content[first : first + _PIECE].data)
            os.fsync(file.fileno())

    def read(path: str) -> object:
        with open(path, "rb", buffering=0) as file:
            for array in state.values():
                found = np.empty_like(array)
                file.readinto(found.data)
        return found[0]

    return _case(way, write, read)


_PIECE = 1 << 20
_MAKERS = {"graphfw": _graphfw, "copy": _copy, "torch": _torch, "numpy": _numpy}


def _contest(way: str, size: str) -> Contest:
    verb = {"save": "writes", "restore": "reads"}[way]
    count, rows = SIZES[size]
    makers = {name: functools.partial(make, way, size) for name, make in _MAKERS.items()}
    title = f"{verb} a checkpoint of {count} matrices {rows}×{rows}, {size}"
    return Contest(f"checkpoint-{way}-{size.lower()}", title, makers, (Target(1.0),))


# A folder of weights: square matrices in PyTorch's layout, which graphfw's layers transpose.

_LAYERS, _WIDTH = 16, 4096
_HEADER = 128


@functools.cache
def _weight_folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()  # there as long as the process
    rng = np.random.default_rng(0)
    files = {}
    for layer in range(_LAYERS):
        name, file = f"{layer}.weight", f"model-{layer}.safetensors"
        weight = rng.standard_normal((_WIDTH, _WIDTH), np.float32)
        entry = {"dtype": "F32", "shape": weight.shape, "data_offsets": (0, weight.nbytes)}
        header = json.dumps({name: entry}).ljust(_HEADER).encode()
        # Without checksums, as others write such files.
        content = len(header).to_bytes(8, "little") + header + weight.tobytes()
        (Path(folder.name) / file).write_bytes(content)
        files[name] = file
    index = json.dumps({"metadata": {}, "weight_map": files})
    (Path(folder.name) / "model.safetensors.index.json").write_text(index)
    return folder


def _weight_files() -> list[Path]:
    return [Path(_weight_folder().name) / f"model-{layer}.safetensors" for layer in range(_LAYERS)]


def _graphfw_weights() -> Case:
    import graphfw as gf

    with gf.Graph() as g:
        layers = [gf.nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(_LAYERS)]
        model = gf.nn.ModuleList(layers)
    session = gf.Session(g)
    folder = _weight_folder().name

    def load() -> None:
        model.load_pytorch(session, folder)

    def first_row() -> Array:
        load()
        return session[layers[-1].weight][:, 0]

    return Case(load, check=first_row)


def _torch_weights() -> Case:
    import torch
    from safetensors.torch import load_file

    layers = [torch.nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(_LAYERS)]
    model = torch.nn.ModuleList(layers)
    files = _weight_files()

    def load() -> None:
        for file in files:
            model.load_state_dict(load_file(file), strict=False)

    def first_row() -> Array:
        load()
        return layers[-1].weight[0].detach().numpy()

    return Case(load, check=first_row)


def _read_weights() -> Case:
    files = _weight_files()

    def read() -> None:
        contents = [np.empty(path.stat().st_size, np.uint8) for path in files]
        for path, content in zip(files, contents, strict=True):
            with open(path, "rb", buffering=0) as file:
                file.readinto(content.data)

    def first_row() -> Array:
        return np.fromfile(files[-1], np.float32, _WIDTH, offset=_HEADER + 8)

    return Case(read, check=first_row)


_WEIGHTS = Contest(
    "checkpoint-pytorch-1gib",
    f"loads the weights of {_LAYERS} linear layers {_WIDTH}×{_WIDTH} from a folder of safetensors "
    "files, 1 GiB; copy: reads the files",
    {"graphfw": _graphfw_weights, "copy": _read_weights, "torch": _torch_weights},
    (Target(1.2, "copy"),),
)

WORKLOADS = [_contest(way, size) for size in SIZES for way in ("save", "restore")] + [_WEIGHTS]
