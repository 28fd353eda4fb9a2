"""Train a small convolutional network on handwritten digits, with augmentation in the graph.

    python examples/convnet.py [--epochs 40] [--seed 0] [--out convnet-out] [--resume]

Each training step turns, moves, zooms and shears its images at random (`gf.nn.augment`), so
augmentation is compiled with the rest and follows the session's seed. It makes half the mistakes
that `digits.py`'s classifier makes, with as many parameters.

`gf.train.Trainer` keeps the last checkpoints and the best one in the folder `--out`. Stop it by
Ctrl-C, or kill it, and go on with `--resume`: the weights are those of a run that was not stopped.

Needs the extra `examples` (scikit-learn for the data, tqdm). Takes about ten seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

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
        varied = gf.nn.augment.random_affine(
            image, degrees=12, translate=(0.06, 0.06), scale=(0.85, 1.15), shear=5
        )
        scores = model(varied)
        loss = gf.nn.cross_entropy(scores, label, label_smoothing=0.05)
        schedule = gf.optim.schedules.cosine(4e-3, steps)
        step = gf.optim.AdamW(schedule, weight_decay=1e-2).minimize(loss)
        # The same weights, the running statistics, and the images as they are.
        accuracy = gf.nn.metrics.accuracy(model(image, training=False), label)
    return Network(graph, image, label, loss, step, accuracy)


def main() -> None:
    """Train it and say how often it is right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("convnet-out"))
    parser.add_argument("--resume", action="store_true", help="go on from the latest checkpoint")
    options = parser.parse_args()
    train_x, test_x, train_y, test_y = load()
    data = gf.data.batches(
        {"image": train_x, "label": train_y}, 32, seed=options.seed, epochs=options.epochs
    )
    test = gf.data.batches({"image": test_x, "label": test_y}, len(test_x))
    net = describe(len(data))
    with gf.Session(net.graph, seed=options.seed) as session:
        trainer = gf.train.Trainer(
            session,
            net.step,
            {"loss": net.loss},
            feeds=[net.image, net.label],
            evaluation={"accuracy": net.accuracy},
            monitor="accuracy",
            maximize=True,
            checkpoints=gf.train.Checkpoints(options.out),
            loggers=[gf.train.JsonLines(options.out / "log.jsonl")],
        )
        result = trainer.fit(data, eval_data=test, every=100, resume=options.resume)
    right = result.history[-1]["eval/accuracy"]
    print(
        f"{result.step} steps, ended by {result.ended_by}; {right:.2%} of the test digits are right"
    )
    if result.ended_by == "data" and right < 0.985:
        raise SystemExit("the network did not learn as it should")


if __name__ == "__main__":
    main()
