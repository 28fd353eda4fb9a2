"""Random programs beside NumPy and PyTorch: `python -m tests.fuzz --minutes 5`.

The first line says the seed that all others come from. A case that fails is printed with the line
that runs it again, alone: `python -m tests.fuzz --replay vmap:1234`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping

EACH = 1_000_000
"""How many seeds a process may use up."""


def run(
    kinds: Mapping[str, Callable[[int], None]], seeds: range, minutes: float, cases: int | None
) -> int:
    """Take turns of the kinds until the time is up, or so many cases are done; count failures."""
    end, failed = time.monotonic() + 60 * minutes, 0
    turns = zip(itertools.cycle(kinds), seeds, strict=False)
    for number, (kind, seed) in enumerate(turns):
        if time.monotonic() > end or number == cases:
            break
        failed += not passes(kinds[kind], kind, seed)
    return failed


def passes(case: Callable[[int], None], kind: str, seed: int) -> bool:
    """Run a case; print what it raises, and how to raise it again."""
    try:
        case(seed)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(f"FAILED: python -m tests.fuzz --replay {kind}:{seed}\n", flush=True)
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
    options = parser.parse_args()
    if options.workers > 1:
        return _several(options)
    from tests.fuzz.checks import KINDS, seen
    from tests.fuzz.training import training

    kinds = {**KINDS, "training": training}
    if options.replay:
        kind, _, seed = options.replay.partition(":")
        return not passes(kinds[kind], kind, int(seed))
    only = options.only or list(KINDS)
    first = secrets.randbelow(2**31) * EACH if options.seed is None else options.seed
    print(f"seed {first}: {', '.join(only)}", flush=True)
    chosen = {kind: kinds[kind] for kind in only}
    failed = run(chosen, range(first, first + EACH), options.minutes, options.cases)
    print(f"seed {first}: {dict(seen)}, {failed} failed", flush=True)
    return min(failed, 1)


def _several(options: argparse.Namespace) -> int:
    first = secrets.randbelow(2**31) * EACH if options.seed is None else options.seed
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", str(options.minutes)]
    for kind in options.only or []:
        command += ["--only", kind]
    if options.cases is not None:
        command += ["--cases", str(options.cases)]
    seeds = [first + EACH * number for number in range(options.workers)]
    begun = [subprocess.Popen([*command, "--seed", str(seed)]) for seed in seeds]
    return max([process.wait() != 0 for process in begun])


if __name__ == "__main__":
    # As in the tests: what passes do is checked, one thread of OpenBLAS is enough, and kernels stay
    # out of the user's own cache. All of it is read when NumPy and graphfw are imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("GRAPHFW_VERIFY", "each")
    with tempfile.TemporaryDirectory() as kernels:
        os.environ.setdefault("GRAPHFW_CACHE", kernels)
        failed = main()
    sys.exit(failed)
