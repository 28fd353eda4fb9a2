"""`python -m graphfw.distributed run -n 4 train.py …`: start a program in several processes."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_STOPPED = 130
"""The exit status of a program that Ctrl-C has ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Start a program, again after failures, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m graphfw.distributed")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="start a program in several processes")
    run.add_argument("-n", type=_positive, required=True, metavar="N", help="processes")
    run.add_argument(
        "--restarts",
        type=_natural,
        default=0,
        metavar="N",
        help="start it again after failures, so many times: it goes on from its last checkpoint",
    )
    run.add_argument("program", help="a file of Python code")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own arguments")
    options = parser.parse_args(arguments)
    if not Path(options.program).is_file():
        parser.error(f"there is no file {options.program}")
    launcher = _launcher()
    if launcher is None:
        parser.error(
            "there is neither mpiexec nor, in a job of Slurm, srun; install the extra mpi: "
            'pip install -e ".[mpi]" in a clone of graphfw'
        )
    program = [sys.executable, options.program, *options.arguments]
    return _repeated([*launcher, "-n", str(options.n), *program], options.restarts)


def _repeated(command: Sequence[str], restarts: int) -> int:
    """Run a command until it succeeds, or has failed once more than it may be started again."""
    for attempt in range(restarts + 1):
        try:
            status = subprocess.run(command, check=False).returncode
        except KeyboardInterrupt:  # the launcher has got it, too
            return _STOPPED
        if status in (0, _STOPPED):
            return status
        left = restarts - attempt
        again = f"starting it again, {left} more" if left else "that was the last time"
        sys.stderr.write(f"the program has failed with status {status}: {again}\n")
        time.sleep(min(2**attempt, 30) if left else 0)
    return status if 0 < status < 256 else 1


def _launcher() -> list[str] | None:
    """Return the command that starts processes, with its options, or None."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if "SLURM_JOB_ID" in os.environ and not beside.exists() and shutil.which("srun"):
        return ["srun", "--mpi=pmix", "--label"]
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" in said.stdout + said.stderr:
        root = ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        return [found, "--oversubscribe", "--output", "tag", *root]
    return [found, "-prepend-rank"]


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is no number of processes")
    return int(text)


def _natural(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is no number")
    return int(text)
