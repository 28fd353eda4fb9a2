"""Train a classifier of digits with several processes, which compute the bits of one.

    python examples/distributed_digits.py [--steps 50] [--processes 4]
    python -m graphfw.distributed run -n 4 examples/distributed_digits.py

The first command runs one process, or with `--processes` so many simulated ones. The second one
needs the extra `mpi`. All of them print the same digest of the weights and the optimiser's state.
Needs the extra `examples` (scikit-learn for the data). Takes a few seconds.
"""

from __future__ import annotations

import argparse
import hashlib
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import graphfw as gf

BATCH, SHARDS, WIDTH = 256, 8, 64
"""A batch has 256 rows in 8 shards, however many processes there are."""


class Result(NamedTuple):
    """The result of one process."""

    rank: int
    size: int
    loss: float
    accuracy: float
    digest: str


def train(mesh: gf.distributed.Mesh, steps: int) -> Result:
    """Train, as one of the processes of a mesh."""
    data = load_digits()
    images, labels = (data.data / 16.0).astype(np.float32), data.target.astype(np.int64)
    each = BATCH // mesh.size
    own = slice(mesh.rank * each, (mesh.rank + 1) * each)

    with gf.Graph(mesh=mesh) as g:
        image = gf.placeholder(("batch", 64), name="image", split={"batch": "data"})
        label = gf.placeholder(("batch",), gf.int64, name="label")
        model = gf.nn.Sequential(
            gf.nn.Linear(64, WIDTH), gf.nn.ReLU(), gf.nn.Dropout(0.2), gf.nn.Linear(WIDTH, 10)
        )
        loss = gf.nn.cross_entropy(model(image), label)  # the mean over all 256 rows
        step = gf.optim.Adam(3e-3, clip_norm=1.0).minimize(loss)

        test = gf.placeholder(("n", 64), name="test")
        predicted = gf.argmax(model(test, training=False), axis=1)

    with gf.Session(g, seed=0, threads=1, shards=SHARDS) as session:
        for batch in range(steps):
            chosen = np.random.default_rng(batch).integers(0, 1500, BATCH)[own]
            value, _ = session.run([loss, step], {image: images[chosen], label: labels[chosen]})
        right = session.run(predicted, {test: images[1500:]}) == labels[1500:]
        state = session.state_dict()
    contents = b"".join([np.asarray(state[name]).tobytes() for name in sorted(state)])
    digest = hashlib.sha256(contents).hexdigest()[:16]
    return Result(mesh.rank, mesh.size, float(value), float(right.mean()), digest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--processes", type=int, default=0, help="simulate so many")
    args = parser.parse_args()
    if args.processes:
        mesh = gf.distributed.SimulatedMesh(data=args.processes)
        results = mesh.run(lambda mesh: train(mesh, args.steps))
    else:
        results = [train(gf.distributed.Mesh(data=-1), args.steps)]
    for one in results:
        print(
            f"process {one.rank} of {one.size}: loss {one.loss:.4f}, accuracy {one.accuracy:.3f}, "
            f"digest {one.digest}"
        )


if __name__ == "__main__":
    main()
