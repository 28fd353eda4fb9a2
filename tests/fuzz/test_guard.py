"""Arrays before a page that may not be touched: each test runs in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from tests.fuzz import guard

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or guard.compiler() is None, reason="needs POSIX and a C compiler"
)

PRELUDE = """
import ctypes
from tests.fuzz import guard
guard.install()
import numpy as np
import graphfw as gf
from graphfw.runtime.numpy_executor.buffer_pool import Arenas, OutputPool, aligned

def end(array):
    return array.ctypes.data + array.nbytes
"""


def ran(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_arrays_end_at_a_page_and_hold_poison():
    done = ran("""
        import mmap
        made = [np.empty(5, "int8"), np.empty((3, 7), "float32"), aligned(1000), aligned(17 << 20)]
        made += [OutputPool(np.dtype("float64")).maker((n,), 8 * n)() for n in (3, 5001)]
        made.append(Arenas().take(12345).array)
        for array in made:
            assert end(array) % mmap.PAGESIZE == 0, array.shape
            owner = array
            while owner.base is not None:
                owner = owner.base
            assert guard.handler_of(owner) == "guard"
        assert np.isnan(made[1]).all() and (made[2] == 255).all() and np.isnan(made[5]).all()
        assert not np.zeros(3000).any() and not aligned(100, np.zeros).any()
        guard.poison_for(2 * 7)
        assert (np.empty(3, "int8") == 7).all()
        grown = np.arange(1000)
        grown.resize(5000, refcheck=False)
        assert grown.sum() == 499500 and np.fromiter(iter(range(100)), "int16").sum() == 4950
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    "touch",
    [
        "ctypes.string_at(end(np.empty(5)), 1)",
        "ctypes.memset(end(aligned(64)), 0, 1)",
        "ctypes.string_at(end(np.asarray(gf.constant(np.ones(9000)) * 2)), 1)",
        "x = np.ones(5); address = x.ctypes.data; del x; ctypes.string_at(address, 1)",
    ],
)
def test_an_access_outside_ends_the_process(touch):
    assert ran(touch).returncode == -signal.SIGSEGV


@pytest.mark.slow  # some seconds
def test_cases_run_guarded():
    command = [sys.executable, "-m", "tests.fuzz", "--guard", "--cases", "2", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout


def test_a_case_that_fails_is_replayed_guarded():
    done = ran("""
        from tests.fuzz.__main__ import passes
        assert not passes(lambda seed: 1 // 0, "plain", 7)
    """)
    assert "FAILED: python -m tests.fuzz --replay plain:7 --guard\n" in done.stdout, done.stderr
