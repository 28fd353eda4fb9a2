"""Tests in a process that has AMX, on processors without it: see `amx_traps.c`.

    counts = run_tests(compiled(folder), folder, "tests/test_of_tiles.py")

runs the tests of a file in a process of their own, with AMX's instructions where they would
otherwise use emulated tiles (`FORM`). This module is pytest's plugin there.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from graphfw.runtime.numpy_executor.machine import machine, matrix_unit_here
from graphfw.runtime.numpy_executor.matmul.amx import Form

NAMES = (
    "ldtilecfg",
    "sttilecfg",
    "tilerelease",
    "tilezero",
    "tileloadd",
    "tileloaddt1",
    "tilestored",
    "tdpbf16ps",
)
"""The instructions, in the order of their counts."""

_SOURCE = Path(__file__).with_name("amx_traps.c")
_ROOT = Path(__file__).parents[2]
_REPORT = "GRAPHFW_TEST_AMX_REPORT"
"""The file in which the process says how often each instruction was run."""

IS_TRAPPED = _REPORT in os.environ
"""Whether this process is one that the handler is in."""

FORM: Form = "amx" if IS_TRAPPED or matrix_unit_here() == "amx" else "emulated"
"""The instructions that multiply tiles in this process: the processor's own where it has them."""


def compiled(folder: Path) -> Path:
    """Compile the handler; skips the test where that, or what it is written for, is missing."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        pytest.skip("needs Linux on x86-64")
    features = llvm.get_host_cpu_features()
    if not machine().has("avx512f"):
        pytest.skip("needs AVX-512, which processors with AMX have")
    if features.get("amx-bf16", False):
        pytest.skip("AMX is here: its instructions do not trap")
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("needs a C compiler")
    path = folder / "amx_traps.so"
    options = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-mavx512f"]
    subprocess.run([compiler, *options, str(_SOURCE), "-o", str(path)], check=True)
    return path


def preloaded(library: Path) -> dict[str, str]:
    """Return the environment of a process that the handler is for."""
    return {**os.environ, "LD_PRELOAD": str(library)}


def run_tests(library: Path, folder: Path, *paths: str) -> dict[str, int]:
    """Run the tests of files, which must pass, in a process that has AMX.

    Args:
        library: The handler, from `compiled`.
        folder: Where a file may be written.
        paths: The files.

    Returns:
        How often each instruction was run; as "threads", how many threads ran any.
    """
    report = folder / "counts.json"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "-p", __name__]
    # The handler's last words would be kept, and pytest's own handler called before.
    command += ["--capture=sys", "-p", "no:faulthandler", "-p", "no:cacheprovider", *paths]
    environment = {**preloaded(library), _REPORT: str(report)}
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    counts: dict[str, int] = json.loads(report.read_text())
    return counts


def installed() -> Any:
    """Set the handler, in a process that its library was preloaded into; return the library."""
    known = ctypes.CDLL(None)
    assert known.amx_install() == 0
    return known


_known: list[Any] = []
"""The library, in a process that has AMX."""


def pytest_configure() -> None:
    """Make the process one that runs on a processor with AMX."""
    _known.append(installed())
    features = llvm.get_host_cpu_features()
    features.update({"amx-tile": True, "amx-bf16": True})
    llvm.get_host_cpu_features = lambda: features
    # Its instructions are put into another order than those for this processor.
    llvm.get_host_cpu_name = lambda: "sapphirerapids"
    assert matrix_unit_here() == "amx", "the system does not give tiles, or they are not trusted"


def pytest_runtest_teardown() -> None:
    """Check that nothing has kept its tiles."""
    assert _known[0].amx_configured() == 0, "a thread has not released its tiles"


def pytest_unconfigure() -> None:
    """Report what was run."""
    numbers = (ctypes.c_long * len(NAMES))()
    _known[0].amx_counts(numbers)
    counts = dict(zip(NAMES, numbers, strict=True)) | {"threads": _known[0].amx_threads()}
    Path(os.environ[_REPORT]).write_text(json.dumps(counts))
