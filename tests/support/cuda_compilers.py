"""The compilers of CUDA C++ that are installed: NVRTC as a wheel, or with CuPy, or nvcc."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from graphfw.runtime.cupy_executor.device import OPTIONS


def compiled(source: str, architecture: str, *, wide: bool = False) -> bytes:
    """Return machine code of a module, and fail where it is refused; skips without a compiler."""
    options = [f"-arch={architecture}", *OPTIONS, *(["-DGF_WIDE"] if wide else [])]
    library = nvrtc()
    if library is not None:
        return _by_nvrtc(library, source, options)
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs NVRTC (pip install nvidia-cuda-nvrtc-cu12) or nvcc")
    command = [nvcc, *options, "-cubin", "-x", "cu", "-", "-o", "/dev/stdout"]
    done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[:4000]
    return done.stdout


@functools.cache
def nvrtc() -> ctypes.CDLL | None:
    """Return the library, where one of its wheels is installed."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*[0-9]")):
            for builtins in path.parent.glob("libnvrtc-builtins.so.*[0-9]"):
                ctypes.CDLL(str(builtins))  # CUDA 13's library does not look beside itself
            return ctypes.CDLL(str(path))
    return None


def _by_nvrtc(library: ctypes.CDLL, source: str, options: list[str]) -> bytes:
    program = ctypes.c_void_p()
    text = source.encode()
    assert not library.nvrtcCreateProgram(ctypes.byref(program), text, b"m.cu", 0, None, None)
    given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    failed = library.nvrtcCompileProgram(program, len(options), given)
    try:
        log = _read(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
        assert not failed, log.decode()[:4000]
        return _read(program, library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, size: Callable[..., int], get: Callable[..., int]) -> bytes:
    length = ctypes.c_size_t()
    assert not size(program, ctypes.byref(length))
    content = ctypes.create_string_buffer(length.value)
    assert not get(program, content)
    return content.raw
