"""Teach a network that others have trained something new, by training its last layers.

    pip install -e ".[examples,onnx]" rapidocr-onnxruntime
    python examples/finetune.py [--steps 150] [--seed 0]

The network comes in ONNX's format: PaddleOCR's, which says of a line of print whether it stands on
its head. Of rows of handwritten digits it knows little. The weights of its last layers become
variables, everything before stays as it is, and some hundred steps later it knows those too.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from tqdm import trange

import graphfw as gf

Array = np.ndarray[Any, Any]

LAST_LAYERS = ("fc_0", "conv_last", "conv12", "conv11")
"""The first letters of the names of the weights that are trained."""


class Rows(NamedTuple):
    """Rows of digits, as the network wants its lines, and whether each stands on its head."""

    images: Array
    inverted: Array


def rows(digits: Array, count: int, rng: np.random.Generator) -> Rows:
    """Write rows of four digits each.  digits: [N, 8, 8] -> images: [count, 3, 48, 192]"""
    inverted = rng.integers(0, 2, count)
    images = np.empty((count, 3, 48, 192), np.float32)
    for image, is_inverted in zip(images, inverted, strict=True):
        chosen = digits[rng.choice(len(digits), 4)]
        row = Image.fromarray(
            (255 - chosen * (255 / 16)).astype(np.uint8).swapaxes(0, 1).reshape(8, 32)
        )
        pixels = np.asarray(row.resize((192, 48), Image.Resampling.BICUBIC), np.float32)
        image[:] = (pixels[::-1, ::-1] if is_inverted else pixels) / 127.5 - 1
    return Rows(images, inverted)


class Task(NamedTuple):
    """The imported graph, with a loss and a training step added to it."""

    graph: gf.Graph
    loss: gf.Tensor
    step: gf.Update
    accuracy: gf.Tensor


def describe(path: Path) -> Task:
    """Read the network and add to its graph what trains the last layer."""
    graph = gf.onnx.load(path, trainable=lambda name: name.startswith(LAST_LAYERS))
    (chances,) = graph.outputs  # [batch, 2]: upright, on its head
    with graph:
        label = gf.placeholder((chances.shape[0],), gf.int64, name="label")
        scores = gf.log(gf.clip(chances, 1e-7, 1.0))
        loss = gf.nn.cross_entropy(scores, label)
        step = gf.optim.Adam(1e-3).minimize(loss)
        accuracy = gf.nn.metrics.accuracy(chances, label)
    count = sum(int(np.prod(v.shape)) for v in graph.variables)  # type: ignore[arg-type]  # ints
    print(f"trains {count:,} numbers of {len(graph.variables)} tensors")
    return Task(graph, loss, step, accuracy)


def network() -> Path:
    """Return the network's file, in the package that ships it."""
    found = importlib.util.find_spec("rapidocr_onnxruntime")
    if found is None or not found.submodule_search_locations:
        sys.exit("the network is missing: pip install rapidocr-onnxruntime")
    folder = Path(found.submodule_search_locations[0]) / "models"
    return folder / "ch_ppocr_mobile_v2.0_cls_infer.onnx"


def main() -> None:
    """Say how often the network is right before and after."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    digits = load_digits().images
    # Digits that are tested are none of those that are trained with.
    train, test = digits[:1200], rows(digits[1200:], 200, rng)
    task = describe(network())
    with gf.Session(task.graph, seed=options.seed) as session:
        tested = {"x": test.images, "label": test.inverted}
        before = float(session.run(task.accuracy, tested))
        with trange(options.steps, unit="step") as bar:
            for _ in bar:
                images, inverted = rows(train, 16, rng)
                feeds = {"x": images, "label": inverted}
                loss, _ = session.run([task.loss, task.step], feeds)
                bar.set_postfix(loss=f"{float(loss):.4f}")
        after = float(session.run(task.accuracy, tested))
    print(f"right before: {before:.1%}, after: {after:.1%}")
    if after < before + 0.1:
        raise SystemExit("the network did not learn as it should")


if __name__ == "__main__":
    main()
