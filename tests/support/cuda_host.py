"""Generated CUDA C++ on the CPU: compiled by the host's compiler, threads as fibers."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support import cuda_checks
from tests.support.cuda_checks import Checks, Pointer, Room

_HERE = Path(__file__).parent
_HEADER = _HERE / "cuda_host.h"
_TEXTS = [_HEADER, *[_HERE / f"cuda_{name}" for name in ("host.cpp", "tensor_cores.h", "checks.h")]]
_FUNCTION = re.compile(
    r'extern "C" __global__ void __launch_bounds__\((\d+)(?:, \d+)?\) (\w+)\(([^)]*)\)'
)
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
# A kernel runs a few times only, so that to optimise it takes longer than it saves; the headers of
# later standards take longer to read.
_FLAGS = ["-O0", "-std=c++14", "-ffp-contract=off", "-fno-strict-aliasing", "-w", "-fPIC"]
_FOLDER = Path(__file__).parents[2] / ".pytest_cache" / "cuda_host"
_LOCK = threading.Lock()


def compiler() -> str:
    """Return a C++ compiler; skips the test where there is none."""
    found = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    if found is None:
        pytest.skip("needs a C++ compiler, to run CUDA C++ on the CPU")
    return found


@functools.cache
def can_check() -> bool:
    """Return whether the compiler has kernels say what they access: g++ 12 and newer do."""
    command = [compiler(), *cuda_checks.FLAGS, "-E", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class HostFunction:
    """A kernel's function.

    Attributes:
        threads: How many threads a block may have.
        kinds: The types of its parameters.
        checks: What checks its launches, if something does.
    """

    def __init__(
        self, module: _Module, name: str, threads: int, parameters: list[tuple[str, str]]
    ) -> None:
        self._entry = ctypes.cast(getattr(module.library, f"{name}_host"), ctypes.c_void_p)
        self._launch = module.machine.gf_launch
        self._launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 5, ctypes.c_void_p]
        self.checks = module.checks
        self._parameters = parameters
        self.name = name
        self.threads = threads
        self.kinds = [kind for kind, _ in parameters]

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        rooms: Sequence[Room] = (),
    ) -> None:
        """Run it, like a CuPy kernel: addresses and integers are given as NumPy scalars.

        Args:
            grid: How many blocks.
            block: How many threads each has.
            args: The arguments.
            shared_mem: How many bytes of memory of its own a block has.
            rooms: The memory that arguments point to, where accesses are checked.
        """
        assert len(args) == len(self.kinds), "an argument too many, or too few"
        for arg, kind in zip(args, self.kinds, strict=True):
            assert type(arg) is (np.uint64 if kind.endswith("*") else np.int64), (arg, kind)
        x, y = (*block, 1)[:2]
        assert x * y <= self.threads, "more threads than the launch bound"
        assert 0 < grid[0] < 2**31
        assert all(0 < n < 2**16 for n in grid[1:])
        assert len(args) * 8 <= 4096, "more parameters than CUDA has room for"
        values = (ctypes.c_uint64 * len(args))(*[int(arg) % 2**64 for arg in args])
        base = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(args))(*[base + 8 * i for i in range(len(args))])
        both = zip(self._parameters, args, strict=True)
        given = [
            Pointer(name, kind[:-1], int(arg)) for (kind, name), arg in both if kind[-1] == "*"
        ]
        with _LOCK:
            if self.checks:
                self.checks.prepare(given, rooms)
            failed = self._launch(self._entry, *(*grid, 1)[:2], x, y, shared_mem, pointers)
            found = self.checks.found(given, rooms, shared_mem) if self.checks else ""
        assert not found, f"{self.name}\n{found}"
        assert failed != 1, "threads wait for others that never come"
        assert failed != 3, "wrote beyond the memory of a block"
        assert not failed, "blocks are whole warps"


def host_module(source: str, wide: bool = False) -> dict[str, HostFunction]:
    """Compile a module's source; return its functions by name."""
    return _functions(source, wide, cuda_checks.seed() != 0)


class _Module(NamedTuple):
    """A module that is compiled: its library, what runs its threads, and what checks them."""

    library: ctypes.CDLL
    machine: ctypes.CDLL
    checks: Checks | None


@functools.cache
def _functions(source: str, wide: bool, is_checked: bool) -> dict[str, HostFunction]:
    functions = [
        (name, int(n), [_parameter(text) for text in given.split(", ")])
        for n, name, given in _FUNCTION.findall(source)
    ]
    lines = [f'#include "{_HEADER.name}"', *["#define GF_WIDE"] * wide, source]
    for name, _, parameters in functions:
        given = ", ".join([f"*({kind}*)a[{i}]" for i, (kind, _) in enumerate(parameters)])
        head = f'extern "C" __attribute__((no_sanitize("thread"))) void {name}_host(void** a)'
        lines.append(f"{head} {{ {name}({given}); }}")
    text = "\n".join(lines)
    (machine, _), path = _machine(is_checked), _built(text, is_checked)
    library = ctypes.CDLL(str(path))
    checks = None
    if is_checked and functions:
        first = f"{functions[0][0]}_host"
        address = ctypes.cast(getattr(library, first), ctypes.c_void_p).value
        checks = Checks(machine, path, text, (first, address or 0))
    module = _Module(library, machine, checks)
    return {name: HostFunction(module, name, n, given) for name, n, given in functions}


def _parameter(text: str) -> tuple[str, str]:
    kind, name = text.rsplit(" ", 1)
    return kind, name


def _built(text: str, is_checked: bool) -> Path:
    """Return a shared library of a text."""
    # The C++ library takes long to link, and kernels call nothing of it.
    links = [
        "-x",
        "none",
        str(_machine(is_checked)[1]),
        "-nodefaultlibs",
        "-lm",
        "-lc",
        "-Wl,-Bsymbolic",
    ]
    flags = cuda_checks.FLAGS if is_checked else []
    how = [*flags, f"-I{_precompiled(is_checked)}", "-shared", "-x", "c++", "-", *links]
    return _compiled(text, how, ".so")


@functools.cache
def _machine(is_checked: bool) -> tuple[ctypes.CDLL, Path]:
    """Return the library that runs threads, and where it lies: kernels are linked with it."""
    how = ["-O2", "-shared", *["-DGF_CHECKED"] * is_checked, str(_HERE / "cuda_host.cpp")]
    path = _compiled("", how, ".so")
    return ctypes.CDLL(str(path)), path


@functools.cache
def _precompiled(is_checked: bool) -> Path:
    """Return a folder with the header as g++ keeps it, which halves what a kernel takes."""
    flags = cuda_checks.FLAGS if is_checked else []
    made = _compiled("", [*flags, "-x", "c++-header", str(_HEADER)], ".gch")
    folder = made.with_suffix("")
    folder.mkdir(exist_ok=True)
    link = folder / f"{_HEADER.name}.gch"
    with contextlib.suppress(FileExistsError):
        link.hardlink_to(made)
    return folder


def _compiled(text: str, how: list[str], suffix: str) -> Path:
    """Return the compiler's output for a text: from an earlier run, where that is kept."""
    command = [compiler(), *_FLAGS, *how, f"-I{_HERE}"]
    content = "\0".join([text, *[one.read_text("utf-8") for one in _TEXTS], *command])
    _FOLDER.mkdir(parents=True, exist_ok=True)
    path = _FOLDER / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}{suffix}"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
        command += ["-o", str(unfinished)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        unfinished.rename(path)
    return path
