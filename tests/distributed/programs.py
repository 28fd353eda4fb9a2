"""Programs for several processes, which tests run on simulated meshes and by `mpiexec`.

mpiexec -n 2 python -m tests.distributed.programs train 5
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import graphfw as gf
from graphfw.distributed import Mesh
from graphfw.ir.mesh import Reduction

SHARDS = 8
_ROWS = 6


def train(mesh: Mesh, steps: int = 5, reduction: Reduction = "ordered") -> str:
    """Train a small network on shards, with dropout and clipping; return a digest of all state."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(SHARDS, _ROWS, 20)).astype(np.float32)
    labels = rng.integers(0, 5, (SHARDS, _ROWS))
    own = mesh.shards("data", SHARDS)
    with gf.Graph(mesh=mesh) as g:
        x = gf.placeholder(("shards", _ROWS, 20), name="x")
        y = gf.placeholder(("shards", _ROWS), gf.int64, name="y")
        kept = gf.placeholder(("shards", _ROWS, 16), name="kept")
        hidden, out = gf.nn.Linear(20, 16), gf.nn.Linear(16, 5)
        parameters = [*hidden.parameters(), *out.parameters()]

        def shard(of: tuple[gf.Tensor, ...]) -> list[gf.Tensor]:
            x, y, kept = of
            loss = gf.nn.cross_entropy(out(gf.tanh(hidden(x)) * kept), y)
            return [loss, *gf.grad(loss, parameters)]

        found = gf.map(shard, (x, y, kept))
        loss, *gradients = [
            gf.distributed.all_reduce(t, "data", shards=SHARDS) / SHARDS for t in found
        ]
        optimizer = gf.optim.Adam(1e-2, clip_norm=0.5)
        step = optimizer.apply_gradients(list(zip(gradients, parameters, strict=True)))
    rows = slice(own.start, own.stop)
    with gf.Session(g, threads=1, reduction=reduction) as session:
        for number in range(steps):
            # A draw of the whole batch, of which a process uses its rows.
            mask = np.random.default_rng(number).random((SHARDS, _ROWS, 16)) < 0.8
            feeds = {x: images[rows], y: labels[rows], kept: mask[rows].astype(np.float32)}
            value, _ = session.run([loss, step], feeds)
        state = session.state_dict()
    return digest_of(state, value)


def digest_of(state: Mapping[str, np.ndarray], value: np.ndarray) -> str:
    """Return a digest of contents and a loss."""
    texts = [f"{name} {np.asarray(state[name]).tobytes().hex()}" for name in sorted(state)]
    return hashlib.sha256("\n".join([*texts, value.tobytes().hex()]).encode()).hexdigest()


def train_split(mesh: Mesh, steps: int = 5) -> str:
    """Train such a network on rows that are split; return a digest of all state."""
    rows = SHARDS * _ROWS
    rng = np.random.default_rng(0)
    images = rng.normal(size=(rows, 20)).astype(np.float32)
    labels = rng.integers(0, 5, rows)
    with gf.Graph(mesh=mesh) as g:
        x = gf.placeholder(("batch", 20), name="x", split={"batch": "data"})
        y = gf.placeholder(("batch",), gf.int64, name="y")
        hidden, out = gf.nn.Linear(20, 16), gf.nn.Linear(16, 5)
        kept = gf.nn.Dropout(0.2)(gf.tanh(hidden(x)))
        loss = gf.nn.cross_entropy(out(kept), y)
        step = gf.optim.Adam(1e-2, clip_norm=0.5).minimize(loss)
    own = mesh.shards("data", rows)
    feeds = {x: images[own.start : own.stop], y: labels[own.start : own.stop]}
    with gf.Session(g, threads=1, shards=SHARDS) as session:
        for _ in range(steps):
            value, _ = session.run([loss, step], feeds)
        return digest_of(session.state_dict(), value)


def failing(mesh: Mesh, how: str, check_finite: bool = False) -> tuple[list[str], list[float]]:
    """Run four steps, the second of which fails in the last process in some way.

    Returns:
        "ok" or the error of each step, and the variable's contents at the end.
    """
    last = mesh.rank == mesh.size - 1

    def refuse(x: np.ndarray, now: np.ndarray) -> np.ndarray:
        if now:
            raise RuntimeError("boom")
        return x

    with gf.Graph(mesh=mesh) as g:
        x = gf.placeholder(("n",), name="x")
        now = gf.placeholder((), gf.bool, name="now")
        w = gf.Variable(np.zeros(3, np.float32), name="w")
        a = gf.sum(x)
        if how == "before":
            a = gf.host_call(refuse, a.type, a, now)
        b = gf.distributed.all_reduce(a, "data")
        if how == "between":
            b = gf.host_call(refuse, b.type, b, now)
        c = gf.distributed.all_reduce(2 * b, "data")
        if how == "after":
            c = gf.host_call(refuse, c.type, c, now)
        if how == "nan":
            c = c + gf.where(now, gf.log(-gf.abs(a)), 0.0)
        if how == "check":
            gf.check(~now, "now is true")
        step = gf.update(w, w + c)
        everything = gf.distributed.all_gather(x, "data")
    found = []
    with gf.Session(g, threads=1, check_finite=check_finite) as session:
        for number in range(4):
            fails = last and number == 1
            rows = np.ones((2, 2) if fails and how == "feed" else 2, np.float32)
            fetches = [step, "nothing"] if fails and how == "fetch" else [step, c]
            if how == "sizes":
                fetches, rows = [step, everything], np.ones(3 if fails else 2, np.float32)
            if how == "plan" and fails:
                fetches = [step, b]
            try:
                session.run(fetches, {x: rows, now: fails})
                found.append("ok")
            except gf.GraphfwError as error:
                found.append(f"{type(error).__name__}: {error}")
        return found, session["w"].tolist()


def dying(mesh: Mesh, how: str) -> None:
    """Train, and end the last process in the middle without a word."""
    with gf.Graph(mesh=mesh) as g:
        x = gf.placeholder((), name="x")
        total = gf.distributed.all_reduce(x, "data")
    with gf.Session(g) as session:
        for number in range(1000):
            if mesh.rank == mesh.size - 1 and number == 10:
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if how == "raise":
                    raise ValueError("no more data")
                return
            session.run(total, {x: number})
            time.sleep(0.001)


if __name__ == "__main__":
    name, out, *arguments = sys.argv[1:]
    processes = Mesh(data=-1)
    if name == "train":
        how: Reduction = "fast" if "fast" in arguments else "ordered"
        text = train(processes, int(arguments[0]), how)
    elif name == "train_split":
        text = train_split(processes, int(arguments[0]))
    elif name == "failing":
        steps, contents = failing(processes, arguments[0], arguments[0] == "nan")
        text = "; ".join([str(contents), *[step.splitlines()[0] for step in steps]])
    else:
        dying(processes, arguments[0])
        text = ""
    # Not to the standard output: launchers mix the lines of processes.
    Path(out, str(processes.rank)).write_text(text)
