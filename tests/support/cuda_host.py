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
from typing import Any

import numpy as np
import pytest

_HERE = Path(__file__).parent
_HEADER = _HERE / "cuda_host.h"
_TEXTS = [_HEADER, _HERE / "cuda_host.cpp", _HERE / "cuda_tensor_cores.h"]
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


class HostFunction:
    """A kernel's function.

    Attributes:
        threads: How many threads a block may have.
        kinds: The types of its parameters.
    """

    def __init__(self, library: ctypes.CDLL, name: str, threads: int, kinds: list[str]) -> None:
        self._entry = getattr(library, f"{name}_host")
        self._launch = _machine()[0].gf_launch
        self._launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 5, ctypes.c_void_p]
        self.name = name
        self.threads = threads
        self.kinds = kinds

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
    ) -> None:
        """Run it, like a CuPy kernel: addresses and integers are given as NumPy scalars."""
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
        entry = ctypes.cast(self._entry, ctypes.c_void_p)
        with _LOCK:
            failed = self._launch(entry, *(*grid, 1)[:2], x, y, shared_mem, pointers)
        assert failed != 1, "threads wait for others that never come"
        assert failed != 3, "wrote beyond the memory of a block"
        assert not failed, "blocks are whole warps"


@functools.cache
def host_module(source: str, wide: bool = False) -> dict[str, HostFunction]:
    """Compile a module's source; return its functions by name."""
    functions = [(name, int(n), kinds) for n, name, kinds in _FUNCTION.findall(source)]
    lines = [f'#include "{_HEADER.name}"', *["#define GF_WIDE"] * wide, source]
    kinds_of = {}
    for name, _, text in functions:
        kinds = kinds_of[name] = [part.rsplit(" ", 1)[0] for part in text.split(", ")]
        given = ", ".join([f"*({kind}*)a[{i}]" for i, kind in enumerate(kinds)])
        lines.append(f'extern "C" void {name}_host(void** a) {{ {name}({given}); }}')
    text = "\n".join(lines)
    library = ctypes.CDLL(str(_built(text)))
    return {name: HostFunction(library, name, n, kinds_of[name]) for name, n, _ in functions}


def _built(text: str) -> Path:
    """Return a shared library of a text."""
    # The C++ library takes long to link, and kernels call nothing of it.
    links = ["-x", "none", str(_machine()[1]), "-nodefaultlibs", "-lm", "-lc"]
    return _compiled(text, [f"-I{_precompiled()}", "-shared", "-x", "c++", "-", *links], ".so")


@functools.cache
def _machine() -> tuple[ctypes.CDLL, Path]:
    """Return the library that runs threads, and where it lies: kernels are linked with it."""
    path = _compiled("", ["-O2", "-shared", str(_HERE / "cuda_host.cpp")], ".so")
    return ctypes.CDLL(str(path)), path


@functools.cache
def _precompiled() -> Path:
    """Return a folder with the header as g++ keeps it, which halves what a kernel takes."""
    made = _compiled("", ["-x", "c++-header", str(_HEADER)], ".gch")
    folder = made.with_suffix("")
    folder.mkdir(exist_ok=True)
    link = folder / f"{_HEADER.name}.gch"
    with contextlib.suppress(FileExistsError):
        link.hardlink_to(made)
    return folder


def _compiled(text: str, how: list[str], suffix: str) -> Path:
    """Return what the compiler makes, of standard input: by an earlier run, where that is kept."""
    command = [compiler(), *_FLAGS, *how, f"-I{_HERE}"]
    content = "\0".join([text, *[one.read_text("utf-8") for one in _TEXTS], *command])
    _FOLDER.mkdir(parents=True, exist_ok=True)
    path = _FOLDER / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}{suffix}"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
        command += ["-o", str(part)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        part.rename(path)
    return path
