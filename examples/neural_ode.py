"""Learn the law of motion behind noisy observations: a neural ODE, and a picture of what it learnt.

    python examples/neural_ode.py [--steps 1500] [--seed 0] [--out neural-ode-out]

A network says how fast a point moves at each place. Runge and Kutta's method, written as a
`gf.scan`, turns that into paths, and the network is fitted by the gradient through all of it.

Needs the extra `examples` (tqdm, matplotlib). Takes half a minute at most.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from tqdm import trange

import graphfw as gf

mpl.use("Agg")
from matplotlib import pyplot as plt

Array = np.ndarray[Any, Any]

STEP = 0.015  # of time, between observations
WINDOW = 80  # observations that the network must foresee from one
BATCH = 64  # windows in an update


class Spiral(NamedTuple):
    """A path as it was, [time, 2], and as it was observed."""

    path: Array
    seen: Array


class Model(NamedTuple):
    """The graph, and its tensors that the rest of the program uses."""

    graph: gf.Graph
    start: gf.Tensor
    steps: gf.Tensor
    target: gf.Tensor
    path: gf.Tensor
    speed: gf.Tensor
    loss: gf.Tensor
    update: gf.Update


def moved(speed: Callable[[Any], Any], y: Any, h: Any) -> Any:
    """Follow a speed for a time h, by Runge and Kutta's method of fourth order."""
    k1 = speed(y)
    k2 = speed(y + h / 2 * k1)
    k3 = speed(y + h / 2 * k2)
    k4 = speed(y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def observe(rng: np.random.Generator) -> Spiral:
    """Follow dy/dt = A·y³ on its way inwards, and add noise."""
    law = np.array([[-0.1, 2.0], [-2.0, -0.1]])
    path = [np.array([1.5, 0.0])]
    for _ in range(1000):
        path.append(moved(lambda y: law @ y**3, path[-1], STEP))
    exact = np.array(path, np.float32)
    return Spiral(exact, exact + 0.01 * rng.standard_normal(exact.shape, np.float32))


def describe(updates: int) -> Model:
    """Describe the network, the paths that follow from it, and how it is fitted."""
    with gf.Graph("neural_ode") as graph:
        start = gf.placeholder(("batch", 2), name="start")
        steps = gf.placeholder(("time",), name="steps")  # how long each step is
        target = gf.placeholder(("time", "batch", 2), name="target")
        network = gf.nn.Sequential(gf.nn.Linear(2, 64), gf.nn.Tanh(), gf.nn.Linear(64, 2))

        def speed(y: gf.Tensor) -> gf.Tensor:
            return network(y**3)

        def advance(y: gf.Tensor, h: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
            y = moved(speed, y, h)
            return y, y

        _, path = gf.scan(advance, start, steps)  # [time, batch, 2], for any number of steps
        loss = gf.mean(gf.abs(path - target))
        schedule = gf.optim.schedules.cosine(1e-2, updates)
        update = gf.optim.Adam(schedule).minimize(loss)
        return Model(graph, start, steps, target, path, speed(start), loss, update)


def train(
    session: gf.Session, model: Model, seen: Array, updates: int, rng: np.random.Generator
) -> list[float]:
    """Fit the network to windows of the observations; return the loss of each update."""
    losses = []
    step = session.compile(
        [model.loss, model.update], feeds=[model.start, model.steps, model.target]
    )
    durations = np.full(WINDOW, STEP, np.float32)
    with trange(updates, unit="update") as bar:
        for number in bar:
            begin = rng.integers(0, len(seen) - WINDOW, BATCH)
            ahead = begin + np.arange(1, WINDOW + 1)[:, None]
            losses.append(float(step(seen[begin], durations, seen[ahead])[0]))
            if number % 50 == 0:
                bar.set_postfix(loss=f"{losses[-1]:.4f}")
    return losses


def draw(path: Path, spiral: Spiral, learnt: Array, speeds: Array, losses: list[float]) -> None:
    """Write a picture: the learnt field with both paths, coordinates in time, the loss."""
    figure = plt.figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    field = left.subplots()
    side = np.linspace(-1.7, 1.7, len(speeds))
    field.streamplot(
        side, side, *np.moveaxis(speeds, -1, 0), color="#d0d7e2", linewidth=0.7, density=0.8
    )
    field.scatter(*spiral.seen[::4].T, s=5, color="tab:orange", label="observed", zorder=2)
    field.plot(*learnt.T, color="tab:blue", linewidth=1.3, label="learnt", zorder=3)
    field.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), aspect="equal", title="the learnt field")
    field.legend(loc="upper right")

    above, below = right.subplots(2, 1)
    times = STEP * np.arange(len(spiral.path))
    for i, name in enumerate("xy"):
        above.plot(times, spiral.path[:, i], color="black", linewidth=0.8, linestyle=":")
        above.plot(times, learnt[:, i], linewidth=1.2, label=name)
    above.set(xlabel="time", title="from the first point alone (dotted: the truth)")
    above.legend(loc="upper right", ncols=2)
    below.semilogy(losses, color="tab:blue", linewidth=0.6)
    below.set(xlabel="update", title=f"mean error, {WINDOW} observations ahead")
    figure.savefig(path, dpi=100)


def main() -> None:
    """Do it all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500, help="updates of the network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("neural-ode-out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    rng = np.random.default_rng(options.seed)
    spiral = observe(rng)
    model = describe(options.steps)
    with gf.Session(model.graph, seed=options.seed) as session:
        losses = train(session, model, spiral.seen, options.steps, rng)
        # The same graph, now from one point over the whole time.
        first, count = spiral.path[:1], len(spiral.path) - 1
        durations = np.full(count, STEP, np.float32)
        rest = session.run(model.path, {model.start: first, model.steps: durations})[:, 0]
        side = np.linspace(-1.7, 1.7, 40, dtype=np.float32)
        points = np.stack(np.meshgrid(side, side), axis=-1)
        speeds = session.run(model.speed, {model.start: points.reshape(-1, 2)})
    learnt = np.concatenate([first, rest])
    error = float(np.mean(np.abs(learnt - spiral.path)))
    print(f"{len(losses)} updates: {error:.4f} from the true path on average over {count} steps")

    picture = options.out / "neural-ode.png"
    draw(picture, spiral, learnt, speeds.reshape(points.shape), losses)
    print(f"wrote {picture}")
    if np.mean(losses[-20:]) > 0.05:
        raise SystemExit("the network did not learn the law of motion")


if __name__ == "__main__":
    main()
