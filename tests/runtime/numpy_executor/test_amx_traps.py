"""The machine code for AMX's tiles, on processors without: see `support.amx_traps`."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.support.amx_traps import compiled, preloaded, run_tests

_HERE = "tests/runtime/numpy_executor"

_RUN = """
import ctypes, faulthandler, mmap, sys
code, data = (bytes.fromhex(text) for text in sys.argv[1:3])
faulthandler.enable()
library = ctypes.CDLL(None)
assert library.amx_install() == 0
if sys.argv[3] == "True":
    assert library.syscall(158, 0x1023, 18) == 0
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(code + b"\\xc3")
place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
given = ctypes.create_string_buffer(data, 4096)
ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long)(place)(given, 64)
print("done")
"""

_CONFIGURE = "c4e2784907"  # ldtilecfg [rdi]
_RELEASE = "c4e27849c0"
_ZERO = "c4e27b49c0"  # tilezero tmm0
_LOAD = "c4e27b4b0c37"  # tileloadd tmm1, [rdi + rsi]
_DOT = "c4e26a5cc1"  # tdpbf16ps tmm0, tmm1, tmm2


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("amx"))


def execute(library, code, data=b"", *, asks=True):
    """Run machine code, with the address of data in rdi."""
    command = [sys.executable, "-c", _RUN, code, data.hex(), str(asks)]
    environment = preloaded(library)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def config(changes=(), tiles=8):
    """A configuration of whole tiles, some bytes of it changed."""
    memory = np.zeros(64, np.uint8)
    memory[0], memory[16 : 16 + 2 * tiles : 2], memory[48 : 48 + tiles] = 1, 64, 16
    for offset, value in changes:
        memory[offset] = value
    return memory.tobytes()


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("code", "changes", "message"),
    [
        (_CONFIGURE, [(0, 2)], "no such palette"),
        (_CONFIGURE, [(9, 1)], "reserved bytes"),
        (_CONFIGURE, [(32, 64), (56, 16)], "no such tile"),
        (_CONFIGURE, [(18, 68)], "more than 64 bytes"),
        (_CONFIGURE, [(49, 17)], "more than 16 rows"),
        (_CONFIGURE, [(49, 0)], "but not both"),
        (_ZERO, [], "before they are configured"),
        (_CONFIGURE + _RELEASE + _LOAD, [], "before they are configured"),
        (_CONFIGURE + _LOAD, [(18, 0), (49, 0)], "not configured"),
        (_CONFIGURE + _LOAD, [(18, 62)], "multiples of 4"),
        (_CONFIGURE + _LOAD, [(1, 16)], "start_row"),
        (_CONFIGURE + _DOT, [(1, 1)], "start_row"),
        (_CONFIGURE + _DOT, [(50, 15)], "differ in length"),
        (_CONFIGURE + _DOT, [(49, 15)], "rows of the left operand"),
        (_CONFIGURE + _DOT, [(20, 60)], "columns of the right operand"),
        (_CONFIGURE + "c4e2725cc1", [], "not different"),
        (_CONFIGURE + "c4e27b4b0f", [], "no SIB"),
        (_CONFIGURE + "c4627b49c0", [], "no such tile"),
    ],
)
def test_what_is_a_fault(library, code, changes, message):
    done = execute(library, code, config(changes))
    assert done.returncode == -signal.SIGABRT
    assert message in done.stderr


def test_the_system_has_to_be_asked(library):
    everything = _CONFIGURE + _ZERO + _LOAD + _DOT + _RELEASE
    done = execute(library, everything, config())
    assert done.stdout == "done\n", done.stderr
    done = execute(library, everything, config(), asks=False)
    assert done.returncode == -signal.SIGABRT
    assert "the system has not been asked" in done.stderr


def test_other_illegal_instructions_go_to_the_handler_before(library):
    done = execute(library, "0f0b")
    assert done.returncode == -signal.SIGILL
    assert "Fatal Python error: Illegal instruction" in done.stderr


@pytest.mark.slow
def test_instructions(library, tmp_path):
    counts = run_tests(library, tmp_path, f"{_HERE}/test_amx_instructions.py")
    assert all(counts.values())


@pytest.mark.slow
@pytest.mark.parametrize("what", ["matmul", "convolution"])
def test_generated_code(library, tmp_path, what):
    counts = run_tests(library, tmp_path, f"{_HERE}/test_{what}_tiles.py")
    assert counts["ldtilecfg"] == counts["tilerelease"] > 0
    assert counts["tdpbf16ps"] > 100_000
    assert counts["threads"] > 1
