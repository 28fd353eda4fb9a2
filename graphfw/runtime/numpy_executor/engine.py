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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphfw.errors import ExecutorError
from graphfw.runtime.numpy_executor.cache import Cache, folder
from graphfw.runtime.numpy_executor.machine import machine
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.recipe import Recipe, restored

if TYPE_CHECKING:
    from graphfw.runtime.kernels.steps import Code


def compile_codes(codes: Sequence[Code]) -> list[int]:
    """Return the addresses of the functions of `codes`, in order.

    Raises:
        ExecutorError: LLVM refuses the text of one, or it calls what this process does not have.
    """
    return _engine().addresses(codes)


def function_names(codes: Sequence[Code]) -> list[str]:
    """Return under which names `codes` are kept; equal names are one function."""
    return [_name(code) for code in codes]


def recalled(key: str) -> tuple[Recipe, list[int]] | None:
    """Return the recipe that is kept under `key`, with the addresses of its functions.

    Returns:
        None where it is not kept, or not all of its functions.
    """
    return _engine().recalled(key)


def keep(key: str, recipe: Recipe) -> None:
    """Keep a recipe on disk, where it is one that can be stored."""
    content = recipe.stored()
    if content is not None:
        _engine().cache.store(key, content)


def keeps() -> bool:
    """Say whether anything is kept on disk."""
    return _engine().cache.path is not None


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


def sources(*folders: Path) -> str:
    """Return the state of the source files in folders, as one word."""
    parts: list[str] = []
    todo = [str(folder) for folder in folders]
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".ll")):
                    # Times instead of contents: reading the sources would cost more than loading
                    # the code.
                    state = entry.stat()
                    parts.append(f"{entry.path} {state.st_size} {state.st_mtime_ns}")
                elif entry.name != "__pycache__" and entry.is_dir():
                    todo.append(entry.path)
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


@functools.cache
def _generator() -> str:
    """What generates LLVM text, in one word: machine code of another generator is not used."""
    here = Path(__file__).parent
    return sources(here, here.parent / "kernels")


def _name(code: Code) -> str:
    text = f"{code.key}\0{machine().key}\0{_generator()}"
    return "gf_" + hashlib.sha256(text.encode()).hexdigest()[:40]


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
        self.cache = cache
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
            names = function_names(codes)
            missing = {n: c for n, c in zip(names, codes, strict=True) if n not in self._found}
            if missing:
                self._load(missing)
            return [self._found[name] for name in names]

    def recalled(self, key: str) -> tuple[Recipe, list[int]] | None:
        """Return the recipe that is kept under `key`, if its functions are there too."""
        content = self.cache.load(key)
        if content is None:
            return None
        try:
            recipe = restored(content)
        except (ValueError, KeyError, TypeError):
            return None
        with _lock:
            missing = [name for name in recipe.functions if name not in self._found]
            objects = [found for name in missing if (found := self.cache.load(name)) is not None]
            if len(objects) < len(missing):
                return None
            self._link(missing, objects)
            return recipe, [self._found[name] for name in recipe.functions]

    @contextlib.contextmanager
    def optimised(self, code: Code) -> Iterator[tuple[Any, Any]]:
        """Yield the module of `code` after LLVM's passes, and the target machine."""
        with _lock:
            target = self._target()
            module = self._parsed(code.llvm(_name(code)), target)
            self._optimise(module, target)
            yield module, target

    def pause(self) -> None:
        """Keep every thread out of LLVM until `go_on`."""
        self._llvm.ffi.lib._lock.__enter__()

    def go_on(self) -> None:
        """Let threads into LLVM again."""
        self._llvm.ffi.lib._lock.__exit__()

    def _load(self, codes: Mapping[str, Code]) -> None:
        """Compile what is not on the disk, and link."""
        objects = {name: self.cache.load(name) for name in codes}
        absent = [name for name, found in objects.items() if found is None]
        texts = {name: codes[name].llvm(name) for name in absent}
        # The longest first: it would be the last to end otherwise, with nobody beside it.
        absent.sort(key=lambda name: len(texts[name]), reverse=True)
        workers = min(len(absent), default_threads())
        if workers > 1:
            # Importing it takes longer than loading a plan's code from the disk.
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(workers) as pool:
                made = list(pool.map(lambda name: self._compiled(texts[name], name), absent))
        else:
            made = [self._compiled(texts[name], name) for name in absent]
        objects.update(zip(absent, made, strict=True))
        self._link(list(objects), list(objects.values()))

    def _link(self, names: Sequence[str], objects: Sequence[bytes | None]) -> None:
        library = self._llvm.JITLibraryBuilder().add_current_process()
        for name, address in self.defined.items():
            library.import_symbol(name, address)
        for name, content in zip(names, objects, strict=True):
            library.add_object_img(content).export_symbol(name)
        try:
            linked = library.link(self._jit, f"graphfw{next(self._numbers)}")
        except RuntimeError as error:
            raise ExecutorError(f"generated code can't be loaded: {error}") from None
        self._libraries.append(linked)
        self._found.update((name, linked[name]) for name in names)

    def _compiled(self, text: str, symbol: str) -> bytes:
        """Return the object code of `symbol`, made now and stored."""
        target = self._target()
        module = self._parsed(text, target)
        for name in [function.name for function in module.functions if function.is_declaration]:
            known = name in self.defined or self._llvm.address_of_symbol(name)
            if not known and not name.startswith("llvm."):
                raise ExecutorError(
                    f"generated code calls {name}, which this process does not have"
                )
        self._optimise(module, target)
        content = self._emit(module, target)
        self.cache.store(symbol, content)
        return content

    def _target(self) -> Any:
        here = machine()
        return self._llvm.Target.from_triple(here.triple).create_target_machine(
            cpu=here.cpu, features=here.features, opt=3, reloc="pic", codemodel="small", jit=True
        )

    def _parsed(self, text: str, target: Any) -> Any:
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
