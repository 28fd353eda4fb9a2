"""Train a classifier on the UCI handwritten digits, save it, load it, and draw what it learnt.

    python examples/digits.py [--epochs 30] [--seed 0] [--out digits-out]

Needs the extra `examples` (scikit-learn for the data, tqdm, matplotlib). Takes a few seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import graphfw as gf

mpl.use("Agg")
from matplotlib import pyplot as plt

Array = np.ndarray


class Digits(NamedTuple):
    """8×8 images of handwritten digits, as 64 numbers from 0 to 1, with their labels."""

    train_x: Array
    test_x: Array
    train_y: Array
    test_y: Array


class Classifier(NamedTuple):
    """The graph, and its tensors that the rest of the program uses."""

    graph: gf.Graph
    image: gf.Tensor
    label: gf.Tensor
    loss: gf.Tensor
    step: gf.Update
    prediction: gf.Tensor
    accuracy: gf.Tensor


def load() -> Digits:
    """Read the digits that scikit-learn ships and keep a quarter for testing."""
    data = load_digits()
    images = (data.data / 16.0).astype(np.float32)
    return Digits(
        *train_test_split(images, data.target, test_size=0.25, random_state=0, stratify=data.target)
    )


def describe(steps: int) -> Classifier:
    """Describe the model, its loss and its training step; nothing is computed here."""
    with gf.Graph("digits") as graph:
        image = gf.placeholder(("batch", 64), gf.float32, name="image")
        label = gf.placeholder(("batch",), gf.int64, name="label")
        model = gf.nn.Sequential(
            gf.nn.Linear(64, 256),
            gf.nn.ReLU(),
            gf.nn.Dropout(0.2),
            gf.nn.Linear(256, 128),
            gf.nn.ReLU(),
            gf.nn.Linear(128, 10),
        )
        print(model)
        loss = gf.nn.cross_entropy(model(image), label, label_smoothing=0.05)
        schedule = gf.optim.schedules.cosine(3e-3, steps)
        step = gf.optim.AdamW(schedule, weight_decay=1e-2).minimize(loss)

        scores = model(image, training=False)  # the same weights, without dropout
        prediction = gf.argmax(scores, axis=1)
        accuracy = gf.nn.metrics.accuracy(scores, label)
    return Classifier(graph, image, label, loss, step, prediction, accuracy)


def batches(
    x: Array, y: Array, size: int, rng: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """Yield the examples in random order; the last batch is smaller, and nothing recompiles."""
    order = rng.permutation(len(x))
    for start in range(0, len(x), size):
        chosen = order[start : start + size]
        yield x[chosen], y[chosen]


def train(
    session: gf.Session, net: Classifier, data: Digits, epochs: int, seed: int
) -> tuple[list[float], list[float]]:
    """Train, showing progress; return the loss and the test accuracy of each epoch."""
    losses, accuracies = [], []
    rng = np.random.default_rng(seed)
    step = session.compile([net.loss, net.step], feeds=[net.image, net.label])
    test = session.compile(net.accuracy, feeds=[net.image, net.label])
    with tqdm(range(epochs), unit="epoch") as bar:
        for _ in bar:
            seen = [float(step(x, y)[0]) for x, y in batches(data.train_x, data.train_y, 32, rng)]
            losses.append(float(np.mean(seen)))
            accuracies.append(float(test(data.test_x, data.test_y)))
            bar.set_postfix(loss=f"{losses[-1]:.4f}", accuracy=f"{accuracies[-1]:.2%}")
    return losses, accuracies


def draw(
    path: Path, losses: list[float], accuracies: list[float], data: Digits, predicted: Array
) -> None:
    """Write a picture: the learning curve, and test digits with what they were taken for."""
    figure = plt.figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    axis = left.subplots()
    axis.plot(losses, color="tab:blue", label="training loss")
    axis.set(xlabel="epoch", ylabel="loss", title=f"test accuracy {accuracies[-1]:.2%}")
    other = axis.twinx()
    other.plot(accuracies, color="tab:orange", label="test accuracy")
    other.set_ylabel("accuracy")
    figure.legend(handles=[*axis.lines, *other.lines], loc="outside lower left", ncols=2)
    right.suptitle("test digits as they were read, mistakes first")
    # The mistakes first: they are what one wants to see.
    order = np.argsort(predicted == data.test_y, kind="stable")
    for index, cell in zip(order, right.subplots(3, 6).flat, strict=False):
        right_answer = predicted[index] == data.test_y[index]
        cell.imshow(data.test_x[index].reshape(8, 8), cmap="gray_r")
        cell.set_title(
            f"{predicted[index]}"
            if right_answer
            else f"{data.test_y[index]} as {predicted[index]}",
            color="black" if right_answer else "tab:red",
        )
        cell.axis("off")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Do it all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("digits-out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    checkpoint = options.out / "digits.safetensors"

    data = load()
    net = describe(steps=options.epochs * -(-len(data.train_x) // 32))
    with gf.Session(net.graph, seed=options.seed) as session:
        losses, accuracies = train(session, net, data, options.epochs, options.seed)
        predicted = session.run(net.prediction, {net.image: data.test_x})
        session.save(checkpoint)
        print(f"saved {checkpoint} after {len(losses)} epochs: {accuracies[-1]:.2%} right")

    with gf.Session(net.graph) as other:
        other.restore(checkpoint)
        again = other.run(net.prediction, {"image": data.test_x})
        same = bool(np.array_equal(predicted, again))
        print(
            f"loaded into a second session: predictions are {'the same' if same else 'DIFFERENT'}"
        )

    picture = options.out / "digits.png"
    draw(picture, losses, accuracies, data, predicted)
    print(f"wrote {picture}")
    if not same or accuracies[-1] < 0.97:
        raise SystemExit("the model did not learn as it should")


if __name__ == "__main__":
    main()
