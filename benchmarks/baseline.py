"""graphfw as it is here beside an earlier commit: `python -m benchmarks baseline COMMIT`.

A short list of workloads stands for all kernels. Both versions run in turns, so each round gives a
pair of times taken on the same machine in the same second; the ratio of a pair is the new time over
the old. A workload is slower if the median of its ratios is above 1.03 and the 95 % interval of
that median lies above 1; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import machine, timing
from benchmarks.registry import WORKLOADS
from benchmarks.results import difference
from benchmarks.workers import Worker
from benchmarks.workload import Contest, Failure, Settings

NAMES = (
    "gelu-recycled",
    "chain-fresh",
    "black-scholes",
    "topk-256x5000",
    "picked-rows",
    "softmax",
    "cross-entropy-grad",
    "layer-norm-grad",
    "batch-norm-grad",
    "adam",
    "matmul-gelu-128x512x784",
    "matmul-2048x2048x2048",
    "widened-matmul-1x2048x2048",
    "mlp-step-128",
    "gpt-step",
    "attention-causal-1024-grad",
    "attention-cached-1024",
    "k-means",
    "newton-while",
    "ode-scan-lorenz-grad",
    "lstm-grad",
    "hvp-mlp",
    "two-ops",
    "function-call",
    "logistic-step",
    "conv-3x3-128-128-28",
    "max-pool-grad-64x64x32x32",
    "resnet18-train-32",
)
"""The short list: one or two of each kind of kernel, and what a call costs."""

SLOWER = 1.03
"""The least median ratio that is no noise."""


class Ratios(NamedTuple):
    """The ratios of a workload's pairs.

    Attributes:
        median: The median of new time over old time.
        low, high: Its 95 % interval.
    """

    median: float
    low: float
    high: float

    @property
    def slower(self) -> bool:
        """Whether the new version is slower beyond the noise."""
        return self.low > 1 and self.median > SLOWER


def main(arguments: list[str]) -> None:
    """Read the command line and compare; the exit status is 1 if a workload is slower."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks baseline", description=__doc__)
    parser.add_argument("commit", help="what to compare with: v0.1.0, HEAD~3")
    parser.add_argument("workloads", nargs="*", help="others than the short list")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of each workload (15)")
    parser.add_argument("--threads", type=machine.threads, default="2", help="for each (2)")
    options = parser.parse_args(arguments)
    known = {name: w for name, w in WORKLOADS["cpu"].items() if isinstance(w, Contest)}
    names = options.workloads or NAMES
    for name in names:
        if name not in known:
            parser.error(f"no workload that can be compared is named {name!r}")
    print("| workload | before | now | now / before | 95 % interval | |\n|---|---|---|---|---|---|")
    settings, slower = Settings(("graphfw",), options.threads), []
    with package(options.commit) as folder:
        workers = [Worker("graphfw", settings, folder), Worker("graphfw", settings)]
        try:
            for name in names:
                slower += [name] * _compare(known[name], workers, options.rounds)
        finally:
            for worker in workers:
                worker.stop()
    print(f"\n{len(names)} workloads, slower: {', '.join(slower) or 'none'}")
    sys.exit(bool(slower))


@contextlib.contextmanager
def package(commit: str) -> Iterator[str]:
    """Give a folder that has the package of a commit, and nothing else."""
    root = Path(__file__).parent.parent
    packed = subprocess.run(
        ["git", "archive", commit, "graphfw"], cwd=root, capture_output=True, check=False
    )
    if packed.returncode:
        sys.exit(packed.stderr.decode().strip())
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield folder


def _compare(workload: Contest, workers: Sequence[Worker], rounds: int) -> bool:
    """Print the row of a workload; return whether it is slower, or fails."""
    try:
        times = _times(workload, workers, rounds)
    except Failure as error:
        print(f"| {workload.name} | | | | | failed: {error} |", flush=True)
        return True
    before, now = [statistics.median(each) for each in zip(*times, strict=True)]
    found = ratios([new / old for old, new in times])
    print(
        f"| {workload.name} | {timing.text(before)} | {timing.text(now)} | {found.median:.3f} "
        f"| {found.low:.3f} to {found.high:.3f} | {'slower' if found.slower else ''} |",
        flush=True,
    )
    return found.slower


def _times(workload: Contest, workers: Sequence[Worker], rounds: int) -> list[tuple[float, float]]:
    """Return the times of both versions, round by round; they take turns in going first."""
    for worker in workers:
        worker.tell("prepare", workload.makers["graphfw"], workload.checks)
    before, now = [worker.answer() for worker in workers]
    differs = difference(now, before, workload.rtol, workload.atol)
    if differs:
        raise Failure(differs)
    for worker in workers:
        worker.ask("warm")
    found: list[tuple[float, float]] = []
    for number in range(rounds):
        order = [0, 1] if number % 2 else [1, 0]
        taken = {side: workers[side].ask("round") for side in order}
        found.append((taken[0], taken[1]))
    for worker in workers:
        worker.ask("drop")
    return found


def ratios(found: Sequence[float]) -> Ratios:
    """Return the median of ratios and its 95 % interval, whatever their distribution is.

    The k-th smallest of n lies above the true median with the probability that at most k - 1 of n
    coins show heads (H. A. David, Order Statistics, section 7.1). Fewer than six have no interval.
    """
    count, kept, tail = len(found), 0, 0.5 ** len(found)
    while kept < count // 2 and tail <= 0.025:
        kept += 1
        tail += math.comb(count, kept) * 0.5**count
    ordered = sorted(found)
    low, high = (ordered[kept - 1], ordered[count - kept]) if kept else (0.0, math.inf)
    return Ratios(statistics.median(found), low, high)
