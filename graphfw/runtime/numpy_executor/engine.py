"""Machine code from LLVM text: compiled on all cores, kept in memory and on disk, never unloaded.

One engine serves the process. A function is found by the content that it is generated from
(`Code.key`), so that equal kernels of all plans are one function. llvmlite is imported when the
first code is asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphfw.errors import ExecutorError
from graphfw.runtime.numpy_executor.cache import Cache, folder
from graphfw.runtime.numpy_executor.machine import machine
from graphfw.runtime.numpy_executor.pool import default_threads

if TYPE_CHECKING:
    from graphfw.runtime.kernels.steps import Code


def compile_codes(codes: Sequence[Code]) -> list[int]:
    """Return the addresses of the functions of `codes`, in order.

    Raises:
        ExecutorError: LLVM refuses the text of one, or it calls what this process does not have.
    """
    return _engine().addresses(codes)


def define(name: str, address: int) -> None:
    """Make a function that lies at `address` known to generated code, under a name."""
    _engine().defined[name] = address


def optimised(code: Code) -> str:
    """Return the LLVM text of `code` as it is after LLVM's passes."""
    with _engine().optimised(code) as (module, _):
        return str(module)


def assembly(code: Code) -> str:
    """Return the assembler text of `code`, for this machine."""
    with _engine().optimised(code) as (module, target):
        text: str = target.emit_assembly(module)
        return text


@functools.cache
def _generator() -> str:
    """What generates LLVM text, in one word: machine code of another generator is not used."""
    parts = []
    here = Path(__file__).parent
    for root in (here, here.parent / "kernels"):
        for path in sorted(root.rglob("*.*")):
            # Times instead of contents: reading the sources would cost more than loading the code.
            if path.suffix in (".py", ".ll"):
                state = path.stat()
                parts.append(f"{path.name} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class Engine:
    """What compiles and loads.

    Args:
        cache: Where machine code is kept.
    """

    def __init__(self, cache: Cache) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.defined: dict[str, int] = {}
        self._llvm: Any = llvm
        self._cache = cache
        self._found: dict[str, int] = {}
        # Unlike the older linkers of LLVM, JITLink puts all parts of an object side by side, which
        # the code model "small" relies on, and it reports what is missing instead of aborting.
        self._jit = llvm.create_lljit_compiler(
            self._target(), use_jit_link=True, suppress_errors=True
        )
        self._libraries: list[Any] = []
        """What keeps the machine code."""
        self._numbers = itertools.count()

    def addresses(self, codes: Sequence[Code]) -> list[int]:
        """Return the addresses of the functions of `codes`, in order."""
        with _lock:
            missing = {code.key: code for code in codes if code.key not in self._found}
            if missing:
                self._load(list(missing.values()))
            return [self._found[code.key] for code in codes]

    @contextlib.contextmanager
    def optimised(self, code: Code) -> Iterator[tuple[Any, Any]]:
        """Yield the module of `code` after LLVM's passes, and the target machine."""
        with _lock:
            target = self._target()
            module = self._parsed(code, self._symbol(code), target)
            self._optimise(module, target)
            yield module, target

    def pause(self) -> None:
        """Keep every thread out of LLVM until `go_on`."""
        self._llvm.ffi.lib._lock.__enter__()

    def go_on(self) -> None:
        """Let threads into LLVM again."""
        self._llvm.ffi.lib._lock.__exit__()

    def _load(self, codes: list[Code]) -> None:
        symbols = [self._symbol(code) for code in codes]
        objects = [self._cache.load(symbol) for symbol in symbols]
        absent = [i for i, found in enumerate(objects) if found is None]
        workers = min(len(absent), default_threads())
        if workers > 1:
            # Importing it takes longer than loading a plan's code from the disk.
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(workers) as pool:
                made = list(pool.map(lambda i: self._compiled(codes[i], symbols[i]), absent))
        else:
            made = [self._compiled(codes[i], symbols[i]) for i in absent]
        for i, new in zip(absent, made, strict=True):
            objects[i] = new
        library = self._llvm.JITLibraryBuilder().add_current_process()
        for name, address in self.defined.items():
            library.import_symbol(name, address)
        for symbol, content in zip(symbols, objects, strict=True):
            library.add_object_img(content).export_symbol(symbol)
        try:
            linked = library.link(self._jit, f"graphfw{next(self._numbers)}")
        except RuntimeError as error:
            raise ExecutorError(f"generated code can't be loaded: {error}") from None
        self._libraries.append(linked)
        self._found.update((code.key, linked[s]) for code, s in zip(codes, symbols, strict=True))

    def _symbol(self, code: Code) -> str:
        text = f"{code.key}\0{machine().key}\0{_generator()}"
        return "gf_" + hashlib.sha256(text.encode()).hexdigest()[:40]

    def _compiled(self, code: Code, symbol: str) -> bytes:
        """Return the object code of `symbol`, made now and stored."""
        target = self._target()
        module = self._parsed(code, symbol, target)
        for name in [function.name for function in module.functions if function.is_declaration]:
            known = name in self.defined or self._llvm.address_of_symbol(name)
            if not known and not name.startswith("llvm."):
                raise ExecutorError(
                    f"generated code calls {name}, which this process does not have"
                )
        self._optimise(module, target)
        content = self._emit(module, target)
        self._cache.store(symbol, content)
        return content

    def _target(self) -> Any:
        here = machine()
        return self._llvm.Target.from_triple(here.triple).create_target_machine(
            cpu=here.cpu, features=here.features, opt=3, reloc="pic", codemodel="small", jit=True
        )

    def _parsed(self, code: Code, symbol: str, target: Any) -> Any:
        text = code.llvm(symbol)
        try:
            # A context of its own: modules of one context can't be compiled at the same time.
            module = self._llvm.parse_assembly(text, self._llvm.create_context())
            module.triple = machine().triple
            module.data_layout = str(target.target_data)
            module.verify()
        except RuntimeError as error:
            raise ExecutorError(f"LLVM refuses generated code: {error}") from None
        return module

    def _optimise(self, module: Any, target: Any) -> None:
        # Half the time of LLVM's own pipelines, -O1 to -O3, and code as fast: what they do more is
        # for loops over scalars, and generated code has explicit vectors. Functions are inlined
        # where they say `alwaysinline`.
        passes = self._llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_loop_rotate_pass()
        passes.add_instruction_combine_pass()
        options = self._llvm.create_pipeline_tuning_options()
        builder = self._llvm.create_pass_builder(target, options)
        _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)

    def _emit(self, module: Any, target: Any) -> bytes:
        lib = self._llvm.ffi.lib
        with self._llvm.ffi.OutputString() as message:
            memory = _unlocked("LLVMPY_TargetMachineEmitToMemory")(target, module, 1, message)
            if not memory:
                raise ExecutorError(f"LLVM can't compile generated code: {message}")
        try:
            size = lib.LLVMPY_GetBufferSize(memory)
            return ctypes.string_at(lib.LLVMPY_GetBufferStart(memory), size)
        finally:
            lib.LLVMPY_DisposeMemoryBuffer(memory)


@functools.cache
def _unlocked(name: str) -> Any:
    """Return a function of llvmlite's library without llvmlite's lock.

    llvmlite runs one call at a time. LLVM needs that only for modules that share a context, and the
    two long calls are made for modules with contexts of their own.
    """
    from llvmlite.binding import ffi

    locked = getattr(ffi.lib, name)
    function = getattr(ctypes.CDLL(ffi.lib._name), name)
    function.argtypes = locked.argtypes
    function.restype = locked.restype
    return function


_made: list[Engine] = []
_lock = threading.RLock()
"""Held while the engine is made, and while it works."""


def _engine() -> Engine:
    with _lock:
        if not _made:
            _made.append(Engine(Cache(folder())))
        return _made[0]


def _before_fork() -> None:
    # A child made while another thread compiles would find LLVM half changed, and locks held for
    # ever. llvmlite's lock is taken outside the engine too, when objects of LLVM are collected.
    _lock.acquire()
    if _made:
        _made[0].pause()


def _after_fork() -> None:
    if _made:
        _made[0].go_on()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
