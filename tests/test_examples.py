"""The examples run as a user would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str, folder: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_digits(tmp_path):
    """The main job: trains to 97 % or more, saves, loads, draws; it fails by itself otherwise."""
    said = run("digits.py", "--out", "out", folder=tmp_path)
    assert "50,826 parameters" in said
    assert "predictions are the same" in said
    assert (tmp_path / "out" / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "digits.safetensors").stat().st_size > 50_826 * 4
