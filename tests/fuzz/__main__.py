"""Random programs beside NumPy and PyTorch: `python -m tests.fuzz --minutes 5`.

The first line says the seed that all others come from. A case that fails is printed with the line
that runs it again, alone: `python -m tests.fuzz --replay vmap:1234`. So is a case that a signal
ended: the cases run in worker processes.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.fuzz import guard

EACH = 1_000_000
"""The most seeds that a process uses."""

_REPLAY = "python -m tests.fuzz --replay"


def run(
    kinds: Mapping[str, Callable[[int], None]],
    seeds: range,
    minutes: float,
    cases: int | None,
    begin: Callable[[str], object] = lambda case: None,
) -> int:
    """Take turns of the kinds until the time is up, or so many cases are done; count failures.

    Args:
        kinds: The functions that run a case.
        seeds: Of the cases, in this order.
        minutes: After so many no case is begun.
        cases: How many are run at most.
        begin: Called before each case with what replays it.
    """
    end, failed = time.monotonic() + 60 * minutes, 0
    turns = zip(itertools.cycle(kinds), seeds, strict=False)
    for number, (kind, seed) in enumerate(turns):
        if time.monotonic() > end or number == cases:
            break
        begin(replay(kind, seed))
        failed += not passes(kinds[kind], kind, seed)
    return failed


def replay(kind: str, seed: int) -> str:
    """Return the line that runs a case of this process again."""
    return f"{_REPLAY} {kind}:{seed}{' --guard' * guard.is_installed()}"


def passes(case: Callable[[int], None], kind: str, seed: int) -> bool:
    """Run a case; print what it raises, and how to raise it again."""
    guard.poison_for(seed)
    try:
        case(seed)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(f"FAILED: {replay(kind, seed)}\n", flush=True)
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--cases", type=int, help="stop after so many")
    parser.add_argument("--seed", type=int, help="what a run printed, to repeat it")
    parser.add_argument("--only", action="append", help="a kind of cases; may be said repeatedly")
    parser.add_argument("--replay", metavar="KIND:SEED", help="one case")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--guard", action="store_true", help="find accesses outside of arrays")
    parser.add_argument("--running", type=Path, help=argparse.SUPPRESS)  # where a worker notes it
    options = parser.parse_args()
    if options.replay or options.running:
        return _work(options)
    first = secrets.randbelow(2**31) * EACH if options.seed is None else options.seed
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", str(options.minutes)]
    command += [word for kind in options.only or [] for word in ("--only", kind)]
    command += ["--guard"] * options.guard
    if options.cases is not None:
        command += ["--cases", str(options.cases)]
    seeds = [first + EACH * number for number in range(options.workers)]
    return watch([[*command, "--seed", str(seed)] for seed in seeds])


def _work(options: argparse.Namespace) -> int:
    """Run cases in this process."""
    faulthandler.enable()
    if options.guard:
        guard.install()
    from tests.fuzz.checks import KINDS, seen
    from tests.fuzz.training import training

    kinds = {**KINDS, "training": training}
    if options.replay:
        kind, _, seed = options.replay.partition(":")
        return not passes(kinds[kind], kind, int(seed))
    only = options.only or list(KINDS)
    first = options.seed
    print(f"seed {first}: {', '.join(only)}", flush=True)
    chosen = {kind: kinds[kind] for kind in only}
    seeds = range(first, first + EACH)
    failed = run(chosen, seeds, options.minutes, options.cases, options.running.write_text)
    print(f"seed {first}: {dict(seen)}, {failed} failed", flush=True)
    return min(failed, 1)


def watch(commands: Sequence[Sequence[str]]) -> int:
    """Run workers beside each other; of one that a signal ends, print how to replay its case.

    Args:
        commands: Each takes `--running FILE` and keeps in the file the line that replays its case.

    Returns:
        1 if a worker has failed or was ended, otherwise 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        notes = [Path(folder, str(number)) for number in range(len(commands))]
        begun = [
            subprocess.Popen([*command, "--running", str(note)])
            for command, note in zip(commands, notes, strict=True)
        ]
        for process, note in zip(begun, notes, strict=True):
            if process.wait() < 0:
                name = signal.Signals(-process.returncode).name
                case = note.read_text() if note.exists() else "before its first case"
                print(f"ENDED by {name}: {case}\n", flush=True)
    return max([process.returncode != 0 for process in begun])


if __name__ == "__main__":
    # As in the tests: what passes do is checked, one thread of OpenBLAS is enough, and kernels stay
    # out of the user's own cache. All of it is read when NumPy and graphfw are imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("GRAPHFW_VERIFY", "each")
    with tempfile.TemporaryDirectory() as kernels:
        os.environ.setdefault("GRAPHFW_CACHE", kernels)
        failed = main()
    sys.exit(failed)
