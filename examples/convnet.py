"""Train a small convolutional network on handwritten digits, with augmentation in the graph.

    python examples/convnet.py [--epochs 40] [--seed 0]

Each training step turns, moves and stretches its images at random: `gf.random` draws the maps and
`gf.grid_sample` applies them, so augmentation is compiled with the rest and follows the session's
seed. It makes half the mistakes that `digits.py`'s classifier makes, with as many parameters.

Needs the extra `examples` (scikit-learn for the data, tqdm). Takes about ten seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import trange

import graphfw as gf

Array = np.ndarray[Any, Any]


class Network(NamedTuple):
    """The graph, and its tensors that the rest of the program uses."""

    graph: gf.Graph
    image: gf.Tensor
    label: gf.Tensor
    loss: gf.Tensor
    step: gf.Update
    accuracy: gf.Tensor


def load() -> list[Array]:
    """Return the digits that scikit-learn ships: images to train and to test, labels of both."""
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)  # [N, 1, 8, 8]
    split: list[Array] = train_test_split(
        images, data.target, test_size=0.25, random_state=0, stratify=data.target
    )
    return split


def augmented(image: gf.Tensor) -> gf.Tensor:
    """Turn, stretch and move each image a little.  image: [N, 1, H, W] -> the same"""
    count = image.shape[0]
    angle = gf.random.normal((count,), 0.0, 0.12)
    size = gf.random.uniform((count, 2), 0.85, 1.15)
    move = gf.random.normal((count, 2), 0.0, 0.06)
    cos, sin = gf.cos(angle), gf.sin(angle)
    rows = (
        gf.stack([cos * size[:, 0], -sin * size[:, 1], move[:, 0]], axis=-1),
        gf.stack([sin * size[:, 0], cos * size[:, 1], move[:, 1]], axis=-1),
    )
    grid = gf.affine_grid(gf.stack(rows, axis=1), image.shape)
    return gf.grid_sample(image, grid)


def describe(steps: int) -> Network:
    """Describe the network, its loss and its training step; nothing is computed here."""
    with gf.Graph("convnet") as graph:
        image = gf.placeholder(("batch", 1, 8, 8), gf.float32, name="image")
        label = gf.placeholder(("batch",), gf.int64, name="label")
        model = gf.nn.Sequential(
            gf.nn.Conv2d(1, 24, 3, padding=1),
            gf.nn.BatchNorm2d(24),
            gf.nn.ReLU(),
            gf.nn.Conv2d(24, 48, 3, padding=1),
            gf.nn.BatchNorm2d(48),
            gf.nn.ReLU(),
            gf.nn.MaxPool2d(2),
            gf.nn.Conv2d(48, 80, 3, padding=1),
            gf.nn.BatchNorm2d(80),
            gf.nn.ReLU(),
            gf.nn.AdaptiveAvgPool2d(1),
            gf.nn.Flatten(),
            gf.nn.Linear(80, 10),
        )
        print(model)
        scores = model(augmented(image))
        loss = gf.nn.cross_entropy(scores, label, label_smoothing=0.05)
        schedule = gf.optim.schedules.cosine(4e-3, steps)
        step = gf.optim.AdamW(schedule, weight_decay=1e-2).minimize(loss)
        # The same weights, the running statistics, and the images as they are.
        accuracy = gf.nn.metrics.accuracy(model(image, training=False), label)
    return Network(graph, image, label, loss, step, accuracy)


def batches(x: Array, y: Array, size: int, rng: np.random.Generator) -> Iterator[list[Array]]:
    """Yield the examples in random order."""
    order = rng.permutation(len(x))
    for start in range(0, len(x), size):
        chosen = order[start : start + size]
        yield [x[chosen], y[chosen]]


def main() -> None:
    """Train it and say how often it is right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train_x, test_x, train_y, test_y = load()
    net = describe(options.epochs * -(-len(train_x) // 32))
    rng = np.random.default_rng(options.seed)
    with gf.Session(net.graph, seed=options.seed) as session:
        step = session.compile([net.loss, net.step], feeds=[net.image, net.label])
        test = session.compile(net.accuracy, feeds=[net.image, net.label])
        right = 0.0
        with trange(options.epochs, unit="epoch") as bar:
            for _ in bar:
                losses = [float(step(x, y)[0]) for x, y in batches(train_x, train_y, 32, rng)]
                right = float(test(test_x, test_y))
                bar.set_postfix(loss=f"{np.mean(losses):.4f}", accuracy=f"{right:.2%}")
    print(f"{right:.2%} of the test digits are right")
    if right < 0.985:
        raise SystemExit("the network did not learn as it should")


if __name__ == "__main__":
    main()
