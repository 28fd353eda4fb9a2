"""Damaged models by the thousand, in a process with little memory and time."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def fuzzed(seed, count):
    done = subprocess.run(
        [sys.executable, "-m", "tests.onnx.fuzz", str(seed), str(count)],
        cwd=ROOT,
        env={**os.environ, "GRAPHFW_JIT": "1", "GRAPHFW_VERIFY": "off"},  # as users run them
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *findings, ends = done.stdout.splitlines()
    assert not findings, "\n".join([*findings, done.stderr[-3000:]])
    return ast.literal_eval(ends)


@pytest.mark.slow
def test_a_few_damaged_models():
    ends = fuzzed(0, 120)
    assert sum(ends.values()) == 120
    assert ends["refused"] > 40
    assert ends["run"] > 12


@pytest.mark.slow  # 5 to 10 seconds each
@pytest.mark.parametrize("seed", range(100_000, 112_000, 3_000))
def test_thousands_of_damaged_models(seed):
    fuzzed(seed, 3_000)
