"""Data on its way to a training step: batches of arrays and of image files, and whole epochs.

PyTorch's programs use its DataLoader, which PyTorch's users write; Keras computes by JAX; "numpy"
is a loop that makes batches by hand. A call is one epoch.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frameworks import Array
from benchmarks.workload import Case, Contest, Target

_BATCH = 64
_ROWS, _FEATURES = 16384, 256
_IMAGES, _SIDE, _CLASSES = 256, 64, 10


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # there as long as the process


def _columns() -> dict[str, Array]:
    """Return columns that lie in memory-mapped files."""
    rng = np.random.default_rng(0)
    made = {
        "x": rng.standard_normal((_ROWS, _FEATURES), np.float32),
        "y": rng.integers(0, _CLASSES, _ROWS),
    }
    found = {}
    for name, array in made.items():
        path = Path(_folder().name) / f"{name}.npy"
        np.save(path, array)
        found[name] = np.load(path, mmap_mode="r")
    return found


def _image_folder() -> str:
    """Return a folder of PNG files, in a folder for each class."""
    from PIL import Image

    rng = np.random.default_rng(0)
    root = Path(_folder().name) / "images"
    for number in range(_IMAGES):
        path = root / f"class{number % _CLASSES}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = rng.integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(np.kron(coarse, np.ones((8, 8, 1), np.uint8))).save(path)
    return str(root)


def _weights() -> list[Array]:
    rng = np.random.default_rng(1)
    sizes = ((_FEATURES, 512), (512, _CLASSES))
    return [rng.standard_normal(size).astype(np.float32) / 16 for size in sizes]


# Arrays: batches alone, and a training of a small network with them.


def _graphfw_arrays(trains: bool) -> Case:
    import graphfw as gf

    columns = _columns()
    with gf.Graph() as g:
        x = gf.placeholder(("batch", _FEATURES), name="x")
        y = gf.placeholder(("batch",), "int64", name="y")
        first, last = [gf.Variable(w) for w in _weights()]
        loss = gf.nn.cross_entropy(gf.relu(x @ first) @ last, y)
        step = gf.optim.SGD(0.01).minimize(loss)
        count = gf.dim_size(x, 0)
    session = gf.Session(g)
    rows = session.compile(count, feeds=[x, y])
    plan = session.compile([loss, step], feeds=[x, y])

    def epoch() -> float:
        data = gf.data.batches(columns, _BATCH, seed=0)
        with gf.data.feeds(data, plan if trains else rows) as feeds:
            if trains:
                return float(np.mean([float(plan(*feed.values())[0]) for feed in feeds]))
            return sum([len(feed[x]) for feed in feeds])

    return Case(epoch, check=lambda: _ROWS)


def _torch_arrays(trains: bool) -> Case:
    import torch

    columns = {name: torch.from_numpy(np.array(array)) for name, array in _columns().items()}
    dataset = torch.utils.data.TensorDataset(*columns.values())
    weights = [torch.nn.Parameter(torch.from_numpy(w)) for w in _weights()]
    optimizer = torch.optim.SGD(weights, lr=0.01)

    def epoch() -> float:
        loader = torch.utils.data.DataLoader(dataset, batch_size=_BATCH, shuffle=True)
        losses: list[float] = []
        rows = 0
        for x, y in loader:
            rows += len(x)
            if trains:
                optimizer.zero_grad()
                logits = torch.relu(x @ weights[0]) @ weights[1]
                loss = torch.nn.functional.cross_entropy(logits, y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return float(np.mean(losses)) if trains else rows

    return Case(epoch, check=lambda: _ROWS)


def _keras() -> Any:
    os.environ["KERAS_BACKEND"] = "jax"  # as long as it is not imported
    import keras

    return keras


def _keras_arrays() -> Case:
    keras = _keras()
    columns = {name: np.array(array) for name, array in _columns().items()}
    layers = [
        keras.layers.Dense(512, activation="relu", use_bias=False),
        keras.layers.Dense(_CLASSES, use_bias=False),
    ]
    model = keras.Sequential([keras.Input((_FEATURES,)), *layers])
    model.set_weights(_weights())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss)

    def epoch() -> float:
        found = model.fit(columns["x"], columns["y"], batch_size=_BATCH, verbose=0)
        return float(found.history["loss"][0])

    return Case(epoch, check=lambda: _ROWS)


def _numpy_arrays() -> Case:
    columns = _columns()

    def epoch() -> float:
        order = np.random.default_rng(0).permutation(_ROWS)
        rows = 0
        for first in range(0, _ROWS, _BATCH):
            chosen = order[first : first + _BATCH]
            batch = {name: column[chosen] for name, column in columns.items()}
            rows += len(batch["x"])
        return rows

    return Case(epoch, check=lambda: _ROWS)


# Images: read, decoded, flipped at random, normalised, and reduced to their means.


def _graphfw_images() -> Case:
    import graphfw as gf

    data = gf.data.images(_image_folder())
    with gf.Graph() as g:
        image = gf.placeholder(("batch", 3, _SIDE, _SIDE), "uint8", name="image")
        scaled = gf.astype(image, gf.float32) / 255
        mean = gf.mean((gf.nn.augment.random_flip(scaled) - 0.5) / 0.25)
    session = gf.Session(g)
    plan = session.compile(mean, feeds=[image])

    def epoch() -> float:
        batches = gf.data.batches(data, _BATCH, seed=0)
        with gf.data.feeds(batches, plan) as feeds:
            return float(np.mean([float(plan(*feed.values())) for feed in feeds]))

    return Case(epoch)


def _torch_images() -> Case:
    import torch
    from PIL import Image

    paths = sorted(Path(_image_folder()).rglob("*.png"))

    class Images(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> Any:
            with Image.open(paths[index]) as image:
                pixels = np.asarray(image.convert("RGB"))
            x = torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float() / 255
            x = x.flip(-1) if torch.rand(()) < 0.5 else x
            return (x - 0.5) / 0.25

    def epoch() -> float:
        loader: Iterable[Any] = torch.utils.data.DataLoader(
            Images(), batch_size=_BATCH, shuffle=True
        )
        return float(np.mean([float(batch.mean()) for batch in loader]))

    return Case(epoch)


def _keras_images() -> Case:
    keras = _keras()
    from PIL import Image

    paths = sorted(Path(_image_folder()).rglob("*.png"))

    class Images(keras.utils.PyDataset):  # type: ignore[misc, name-defined]  # made at run time
        def __init__(self) -> None:
            super().__init__()
            self.order = np.random.default_rng(0).permutation(len(paths))

        def __len__(self) -> int:
            return len(paths) // _BATCH

        def __getitem__(self, index: int) -> Any:
            chosen = self.order[index * _BATCH : (index + 1) * _BATCH]
            pixels = [np.asarray(Image.open(paths[i]).convert("RGB")) for i in chosen]
            return (np.stack(pixels).astype(np.float32) / 255,)

    layers = [
        keras.layers.RandomFlip("horizontal"),
        keras.layers.Rescaling(4.0, -2.0),
        keras.layers.GlobalAveragePooling2D(),
    ]
    model = keras.Sequential([keras.Input((_SIDE, _SIDE, 3)), *layers])

    def epoch() -> float:
        return float(np.mean(model.predict(Images(), verbose=0)))

    return Case(epoch)


# The trainer beside the loop that a user would write.


def _loop(of_trainer: bool) -> Case:
    import graphfw as gf

    with gf.Graph() as g:
        x = gf.placeholder(("batch", 4), name="x")
        w = gf.Variable(np.zeros(4, np.float32), trainable=True)
        loss = gf.mean((x - w) ** 2)
        step = gf.optim.SGD(0.01).minimize(loss)
    session = gf.Session(g)
    plan = session.compile([step, [loss]], feeds=[x])
    batch = {"x": np.ones((8, 4), np.float32)}
    batches = [batch] * 2000
    trainer = gf.train.Trainer(session, step, {"loss": loss}, feeds=[x], progress=False)

    def by_hand() -> float:
        losses = [float(plan(*feed.values())[1][0]) for feed in gf.data.feeds(batches, plan)]
        return float(len(losses))

    def trained() -> float:
        return float(trainer.fit(batches, every=500).step)

    return Case(trained if of_trainer else by_hand)


def _contest(
    name: str, title: str, makers: dict[str, Callable[[], Case]], target: Target
) -> Contest:
    return Contest(f"data-{name}", title, makers, (target,))


WORKLOADS = [
    _contest(
        "batches",
        f"an epoch of {_ROWS} shuffled rows of {_FEATURES} float32, in batches of {_BATCH}",
        {
            "graphfw": functools.partial(_graphfw_arrays, False),
            "torch": functools.partial(_torch_arrays, False),
            "numpy": _numpy_arrays,
        },
        Target(1.0),
    ),
    _contest(
        "training",
        f"the same epoch with a step of a network of {_FEATURES}-512-{_CLASSES} for each batch",
        {
            "graphfw": functools.partial(_graphfw_arrays, True),
            "torch": functools.partial(_torch_arrays, True),
            "keras": _keras_arrays,
        },
        Target(1.0, "torch"),
    ),
    _contest(
        "images",
        f"an epoch of {_IMAGES} PNG files of {_SIDE}×{_SIDE}: decoded, flipped, normalised",
        {"graphfw": _graphfw_images, "torch": _torch_images, "keras": _keras_images},
        Target(1.0),
    ),
    _contest(
        "trainer",
        "2,000 steps of a tiny model by gf.train.Trainer; copy: a loop by hand",
        {"graphfw": functools.partial(_loop, True), "copy": functools.partial(_loop, False)},
        Target(1.2, "copy"),
    ),
]
