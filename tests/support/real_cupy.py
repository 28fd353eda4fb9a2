"""CuPy itself where there is no GPU: a plugin of pytest's.

    python -m pytest -n 0 -p tests.support.real_cupy -m "not slow" \\
        tests/runtime/cupy_executor -k "not cudnn"

CuPy's wheel has CUDA's runtime linked into it. The functions of that are found by the names which
the wheel keeps, and made to jump to those of `cuda_driver.cpp`; the driver is loaded by its name,
which the stand-in has. All else of CuPy is as it is installed. Kernels, CuPy's own among them, are
compiled by the host's compiler instead of NVRTC; modules are texts that say where they lie. Tests
that want a GPU run, as far as they need no library of NVIDIA's; and of those that want the stand-in
of CuPy, `fake`, those that look at nothing which only that has.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import itertools
import mmap
import os
import platform
import re
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tests.support import cuda_host
from tests.support.fake_cublaslt import FakeCublasLt

_HERE = Path(__file__).parent
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_HOST_DEFINES = """
#define __host__
#define __device__
#define __global__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __no_return__
#define CUDARTAPI
#define CUDARTAPI_CDECL
"""
"""Definitions for a header of NVIDIA's that only comes with its compiler."""

_KERNEL = re.compile(
    r'extern "C" __global__ void\s*(?:__launch_bounds__\(\d+\)\s*)?(\w+)\s*\(([^)]*)\)'
)
_OWN_MEMORY = re.compile(r"extern __shared__ ([\w:<>]+) (\w+)\[\];")
_LIBRARIES = ("CUBLASError", "CUSOLVERError", "CuFFTError")


class _Compiler:
    """A stand-in for NVRTC."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._sources: dict[int, str] = {}
        self._options: dict[int, tuple[str, ...]] = {}

    def create_program(self, source: str, name: str, *headers: Sequence[str]) -> int:
        number = next(self._numbers)
        self._sources[number] = source
        return number

    def compile_program(self, program: int, options: tuple[str, ...]) -> None:
        self._options[program] = options

    def image(self, program: int) -> bytes:
        """Return the image that `cuModuleLoadData` of the stand-in takes."""
        source, options = self._sources[program], self._options[program]
        if "batch_scan" in source:
            _not_here()  # some of its threads have ended where others wait for all
        is_own = cuda_host._FUNCTION.search(source) is not None
        known = _own(source, "-DGF_WIDE" in options) if is_own else _cupys(source, options)
        return "\n".join(["host", *[" ".join(map(str, line)) for line in known]]).encode()


def _own(source: str, wide: bool) -> list[list[object]]:
    """Return graphfw's kernels: see `cuModuleLoadData`."""
    return [
        [one.name, _address(one._launch), _address(one._entry), one.threads, *[8] * len(one.kinds)]
        for one in cuda_host.host_module(source, wide).values()
    ]


def _cupys(source: str, options: Sequence[str]) -> list[list[object]]:
    """Return CuPy's kernels: see `cuModuleLoadData`."""
    source = _OWN_MEMORY.sub(r"\1* const \2 = (\1*)gf_dynamic();", source)
    # What is compiled is kept by its text.
    helpers = (_HERE / "cupy_host.h").read_text("utf-8")
    text, counts = [f"// of CuPy {_cupy().__version__}", helpers, source], {}
    for name, parameters in _KERNEL.findall(source):
        kinds = [
            re.sub(r"\bconst\b|__restrict__", "", one).rsplit(None, 1)[0]
            for one in re.split(r",(?![^<]*>)", parameters)
        ]
        counts[name] = len(kinds)
        given = ", ".join([f"*({kind}*)a[{i}]" for i, kind in enumerate(kinds)])
        text.append(f'extern "C" void {name}_host(void** a) {{ {name}({given}); }}')
        sizes = ", ".join([f"sizeof({kind})" for kind in kinds])
        text.append(f'extern "C" size_t {name}_sizes[] = {{{sizes}}};')
    machine, path = cuda_host._machine(False)
    how = ["-D__CUDACC_VER_MAJOR__=12", "-D__CUDACC_VER_MINOR__=9", f"-I{_HERE}", *_headers()]
    how += [option for option in options if option.startswith(("-I", "-D"))]
    how += ["-std=c++17", "-O1", "-shared", "-x", "c++", "-", "-x", "none", str(path)]
    library = ctypes.CDLL(str(cuda_host._compiled("\n".join(text), how, ".so")))
    # A thread after the other is quicker than fibers.
    launch = machine.gf_launch if "__syncthreads" in source else library.gf_in_a_row
    known: list[list[object]] = []
    for name, count in counts.items():
        entry = _address(getattr(library, f"{name}_host"))
        sizes = (ctypes.c_size_t * count).in_dll(library, f"{name}_sizes")
        known.append([name, _address(launch), entry, 1024, *sizes])
    return known


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def _headers() -> list[str]:
    """Return how the compiler finds NVIDIA's headers."""
    nvidia = importlib.util.find_spec("nvidia")
    folders = [*(nvidia.submodule_search_locations or ())] if nvidia is not None else []
    found = [path.parent for each in folders for path in Path(each).glob("*/include/cuda.h")]
    if not found:
        pytest.exit("needs CUDA's headers: pip install nvidia-cuda-runtime-cu12, or without -cu12")
    own = cuda_host._FOLDER / "headers"
    (own / "crt").mkdir(parents=True, exist_ok=True)
    (own / "crt" / "host_defines.h").write_text(_HOST_DEFINES)
    return [f"-isystem{own}", f"-isystem{found[0]}"]


@functools.cache
def _driver() -> ctypes.CDLL:
    """Build the stand-in, and load it: whoever asks for the driver has it from then on."""
    how = ["-O1", "-std=c++17", "-shared", "-Wl,-soname,libcuda.so.1", *_headers()]
    sources = [_HERE / name for name in ("cuda_queues.h", "cuda_driver.cpp")]
    text = "".join([source.read_text("utf-8") for source in sources])
    path = cuda_host._compiled(text, [*how, "-x", "c++", "-"], ".so")
    made = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    made.gf_submit.argtypes = [ctypes.c_void_p, _WORK, ctypes.c_void_p]
    return made


def _functions_of(path: str) -> Iterator[tuple[str, int, int]]:
    """Yield the functions in an ELF library's table of symbols: name, place, bytes."""
    content = Path(path).read_bytes()
    (begin,) = struct.unpack_from("<40xQ", content)
    size, count = struct.unpack_from("<58xHH", content)
    sections = [struct.unpack_from("<4xI16xQQI", content, begin + size * n) for n in range(count)]
    for kind, at, nbytes, link in sections:
        if kind == 2:  # the table of all symbols, not only of those that others may use
            names = sections[link][1]
            for entry in range(at, at + nbytes, 24):
                name, info, value, length = struct.unpack_from("<IB3xQQ", content, entry)
                if info & 15 == 2:
                    start = names + name
                    yield content[start : content.index(0, start)].decode(), value, length


def _exchange(module: Any, driver: ctypes.CDLL) -> None:
    """Have the functions of CUDA's runtime in a module of CuPy's jump to those of the stand-in."""
    functions = [*_functions_of(module.__file__)]
    (known,) = [address for name, address, _ in functions if name == "PyInit_runtime"]
    base = _address(ctypes.PyDLL(module.__file__).PyInit_runtime) - known
    protect = ctypes.CDLL(None).mprotect
    for name, address, length in functions:
        if not re.match("cuda[A-Z]", name):
            continue
        jump = b"\xff\x25\0\0\0\0" + struct.pack(
            "<Q", _address(getattr(driver, name, driver.gf_unsupported))
        )
        assert length >= len(jump), name
        page = (base + address) // mmap.PAGESIZE * mmap.PAGESIZE
        failed = protect(ctypes.c_void_p(page), ctypes.c_size_t(2 * mmap.PAGESIZE), 7)
        assert not failed, "memory of code can't be written to"
        ctypes.memmove(base + address, jump, len(jump))


@functools.cache
def _cupy() -> Any:
    """Import CuPy, with what it calls of CUDA exchanged."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.exit("knows CuPy's wheels for Linux on x86-64")
    assert "cupy" not in sys.modules
    os.environ["CUPY_ACCELERATORS"] = ""  # of CUB
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
    _exchange(importlib.import_module("cupy_backends.cuda.api.runtime"), _driver())
    cupy = importlib.import_module("cupy")
    compiler, nvrtc = _Compiler(), cupy.cuda.nvrtc
    nvrtc.createProgram = compiler.create_program
    nvrtc.compileProgram = compiler.compile_program
    nvrtc.getCUBIN = nvrtc.getPTX = compiler.image
    nvrtc.getVersion = lambda: (12, 9)
    nvrtc.getProgramLog = lambda program: ""
    nvrtc.destroyProgram = lambda program: None
    nvrtc.addNameExpression = _not_here
    for name in ("sort", "argsort", "lexsort"):
        setattr(cupy.cuda.thrust, name, _not_here)
    return cupy


_KEPT: list[Any] = []
"""Work that graphs may do again."""


def _perform(work: Callable[[], None], stream: int) -> None:
    """Do a piece of work of Python's on a stream."""
    _KEPT.append(_WORK(lambda _: work()))
    failed = _driver().gf_submit(ctypes.c_void_p(stream), _KEPT[-1], None)
    assert not failed, failed


def _not_here(*_: object) -> NoReturn:
    pytest.skip("a kernel of CuPy's that runs on GPUs only")


class _Fake:
    """CuPy, for tests that want its stand-in."""

    def __getattr__(self, name: str) -> Any:
        if not hasattr(_cupy(), name):
            pytest.skip(f"looks at {name} of CuPy's stand-in")
        return getattr(_cupy(), name)

    def __setattr__(self, name: str, value: object) -> None:
        if (name, value) != ("devices", 2):
            pytest.skip(f"tells CuPy's stand-in what {name} is")


@contextmanager
def _unchanged() -> Iterator[None]:
    """Undo what a test exchanges in CuPy."""
    cuda = _cupy().cuda
    modules = [vars(one) for one in (_cupy(), cuda, cuda.nvrtc, cuda.runtime, cuda.driver)]
    before = [dict(names) for names in modules]
    try:
        yield
    finally:
        for names, known in zip(modules, before, strict=True):
            names.update(known)


def pytest_configure() -> None:
    """Exchange CUDA before tests are collected."""
    cupy = _cupy()
    os.environ |= {"GRAPHFW_CACHE": "off", "GRAPHFW_CUDNN": "0"}
    # Its wheel for CUDA finds the driver, and calls what the stand-in lacks.
    sys.modules["torch"] = None  # type: ignore[assignment]  # none can be imported
    cublaslt = FakeCublasLt()
    cublaslt.perform = _perform
    importlib.import_module("graphfw.runtime.cupy_executor.device").load = lambda cuda: cublaslt
    strict_xp = importlib.import_module("tests.strict_xp")
    plain = strict_xp.plain_array
    strict_xp.plain_array = lambda array: (
        cupy.asnumpy(array) if isinstance(array, cupy.ndarray) else plain(array)
    )


def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Any:
    """Have `fake` be CuPy itself."""
    if fixturedef.argname != "fake":
        return None
    request.getfixturevalue("cublaslt").perform = _perform
    made = _Fake()
    fixturedef.cached_result = (made, fixturedef.cache_key(request), None)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Any:
    """End tests that need a library of NVIDIA's, which finds no GPU."""
    try:
        with _unchanged(), np.errstate(all="ignore"):
            return (yield)
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if type(cause).__name__ in _LIBRARIES or "Failure finding" in str(cause):
                pytest.skip(f"{type(cause).__name__}: a library that runs on GPUs only")
            cause = cause.__cause__ or cause.__context__
        raise
