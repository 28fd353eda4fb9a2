"""The record of a run, by which it can be made again."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from graphfw.hints.calls import explained
from graphfw.runtime.plan import Plan
from graphfw.runtime.session import Session

_SECONDS = 10
"""The longest that git may take to look at a work tree."""


@explained
def run_record(session: Session, plan: Plan) -> dict[str, str | int | bool | None]:
    """Return a record of a run: its plan, seed, versions, command and commit.

    It has `plan` (the plan's digest), the session's `seed` and `executor`, the versions of
    `graphfw`, `numpy` and `python`, the kind of `machine`, the `command` line, and the time of its
    beginning, `begun`. `commit` is the git commit of the main program, or of the working folder if
    the program has no file; `dirty` is whether tracked files have changed since. Without git, or
    outside of its work trees, these two are None.

    The command line is kept as it is: don't pass secrets in it.

    Args:
        session: The session.
        plan: The plan of a step.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder((), name="x")
    ...     y = x * x
    >>> with gf.Session(g, seed=3) as session:
    ...     record = gf.train.run_record(session, session.compile(y, feeds=[x]))
    >>> record["seed"], record["executor"], len(record["plan"])
    (3, 'numpy', 32)
    """
    commit, dirty = _commit_of(_program_folder())
    return {
        "plan": plan.digest(),
        "seed": session.seed,
        "executor": session.executor.name,
        "graphfw": sys.modules["graphfw"].__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
    }


def _program_folder() -> Path:
    """Return the folder of the main program, or the working folder."""
    file: Any = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).resolve().parent if file else Path.cwd()


def _commit_of(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit of a folder's git repository, and whether its files have changed since."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError, ValueError):
        return None, None
    return commit.strip(), bool(changes)


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", os.fspath(folder), *arguments],
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
        check=True,
        encoding="utf-8",
    ).stdout
