"""Training steps in two processes, beside PyTorch: `python -m benchmarks.distributed`.

A perceptron of 784-W-W/2-10 with Adam is trained by data parallelism, one thread a process, on one
machine. Shown are medians in milliseconds a step. The programs are run in turns, several times;
beside each is the smallest of the medians. graphfw's processes are connected by MPI (the extra
`mpi`), PyTorch's DistributedDataParallel by gloo.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

SHARDS = 8
ROOT = Path(__file__).parent.parent


def median_ms(step: Callable[[], object], steps: int) -> float:
    """Return the median time of a step."""
    times = []
    for number in range(steps + 5):
        begin = time.perf_counter()
        step()
        if number >= 5:
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def batch(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of one process."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 784)).astype(np.float32), rng.integers(0, 10, rows)


def graphfw_step(width: int, rows: int, how: str) -> tuple[int, Callable[[], object]]:
    """Return the rank, and a step of graphfw with one of the kinds of sums that `main` names."""
    import graphfw as gf

    mesh = gf.distributed.Mesh(data=-1)
    images, labels = batch(rows // mesh.size)
    with gf.Graph(mesh=mesh) as g:
        sizes = [784, width, width // 2, 10]
        layers = [gf.nn.Linear(a, b) for a, b in pairwise(sizes)]
        model = gf.nn.Sequential(layers[0], gf.nn.ReLU(), layers[1], gf.nn.ReLU(), layers[2])
        parameters = list(model.parameters())

        def gradients(rows: tuple[gf.Tensor, ...]) -> tuple[gf.Tensor, ...]:
            loss = gf.nn.cross_entropy(model(rows[0]), rows[1])
            return loss, *gf.grad(loss, parameters)

        split = {"batch": "data"} if how == "split" else None
        x = gf.placeholder(("batch", 784), name="x", split=split)
        y = gf.placeholder(("batch",), gf.int64, name="y")
        if how == "sharded":
            x = gf.placeholder(("shards", rows // SHARDS, 784), name="images")
            y = gf.placeholder(("shards", rows // SHARDS), gf.int64, name="labels")
            found = gf.map(gradients, (x, y))
            loss, *sums = [gf.distributed.all_reduce(t, "data", shards=SHARDS) for t in found]
            scale = SHARDS
            images = images.reshape(-1, rows // SHARDS, 784)
            labels = labels.reshape(-1, rows // SHARDS)
        elif how in ("plain", "split"):
            (loss, *sums), scale = gradients((x, y)), 1
        else:
            loss, *own = gradients((x, y))
            sums, scale = [gf.distributed.all_reduce(t, "data") for t in own], mesh.size
        pairs = [(total / scale, p) for total, p in zip(sums, parameters, strict=True)]
        train = gf.optim.Adam(1e-3).apply_gradients(pairs)
    reduction = "fast" if how == "fast" else "ordered"
    shards = SHARDS if split else None
    session = gf.Session(g, threads=1, reduction=reduction, shards=shards)
    plan = session.compile([loss, train], feeds=[x, y])
    return mesh.rank, lambda: plan(images, labels)


def torch_step(width: int, rows: int) -> tuple[int, Callable[[], object]]:
    """Return the rank, and a step of PyTorch."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    images, labels = map(torch.from_numpy, batch(rows // distributed.get_world_size()))
    sizes = [784, width, width // 2, 10]
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    relu = torch.nn.ReLU()
    network = torch.nn.Sequential(layers[0], relu, layers[1], relu, layers[2])
    model = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return distributed.get_rank(), step


def child(name: str, width: int, rows: int, steps: int) -> None:
    rank, step = torch_step(width, rows) if name == "torch" else graphfw_step(width, rows, name)
    found = median_ms(step, steps)
    if rank == 0:
        print(f"median {found}", flush=True)


def launched(name: str, processes: int, width: int, rows: int, steps: int) -> float:
    """Run a program in some processes, and return the median time of its step."""
    own = [sys.executable, "-m", "benchmarks.distributed", "--child", name]
    own += [str(width), str(rows), str(steps)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if name == "torch":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command = [*torchrun, f"--nproc-per-node={processes}", "-m", *own[2:]]
    elif name == "plain":
        command = own
    else:
        mpiexec = str(Path(sys.executable).with_name("mpiexec"))
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        command = [mpiexec, *root, "-n", str(processes), *own]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return float(done.stdout.split("median")[1].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        name, *numbers = args.child
        child(name, *map(int, numbers))
        return
    programs = [("plain", 1), ("sharded", 1), ("split", 1), ("ordered", 2), ("fast", 2)]
    programs += [("sharded", 2), ("split", 2), ("torch", 2)]
    for width, rows in ((512, 128), (512, 1024), (2048, 256)):
        times: dict[tuple[str, int], list[float]] = {program: [] for program in programs}
        for _ in range(args.repeat):
            for program in programs:
                times[program].append(launched(*program, width, rows, args.steps))
        peer = statistics.median(times["torch", 2])
        print(f"\nW {width}, batch {rows}: ms a step, median (smallest), and by PyTorch's median")
        for (name, count), found in times.items():
            middle = statistics.median(found)
            row = f"{middle:8.2f} ({min(found):.2f})  {middle / peer:.2f}"
            print(f"  {name:8} {count} processes  {row}")


if __name__ == "__main__":
    main()
