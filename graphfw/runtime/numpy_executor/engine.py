"""Machine code from LLVM text: compiled on all cores, kept in memory and on disk, never unloaded.

One engine serves the process. A function is found by the content that it is generated from
(`Code.key`), so that equal kernels of all plans are one function. llvmlite is imported when the
first code is asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphfw.errors import ExecutorError
from graphfw.ir.literal import Literal
from graphfw.runtime.cache import Cache, folder
from graphfw.runtime.kernels.steps import LlvmCode, with_parts
from graphfw.runtime.numpy_executor.bundles import Bundle, collect
from graphfw.runtime.numpy_executor.bundles import keep as keep_bundle
from graphfw.runtime.numpy_executor.machine import machine
from graphfw.runtime.numpy_executor.names import name_of
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.recipe import Recipe, restored

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from graphfw.runtime.kernels.steps import Code


def compile_codes(codes: Sequence[Code]) -> list[int]:
    """Return the addresses of the functions of `codes`, in order.

    Raises:
        ExecutorError: LLVM refuses the text of one, or it calls what this process does not have.
    """
    return _engine().addresses(codes)


@contextlib.contextmanager
def ahead(code: Code) -> Iterator[None]:
    """Compile what will be asked for inside, if there is another core that can do it meanwhile."""
    if default_threads() == 1 or _engine().has(code):
        yield
        return
    thread = threading.Thread(target=_tried, args=(code,))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _tried(code: Code) -> None:
    with contextlib.suppress(ExecutorError):  # who asks for it is told
        compile_codes([code])


def recalled(key: str, own: Sequence[Literal]) -> tuple[Recipe, list[int]] | None:
    """Return the recipe that is kept under `key`, with the addresses of its functions.

    Args:
        key: What it is kept under.
        own: The program's constants.

    Returns:
        None where it is not kept, or not all of its functions.
    """
    return _engine().recalled(key, own)


def keep(key: str, recipe: Recipe, own: Sequence[Literal]) -> None:
    """Keep a recipe on disk, where it is one that can be stored; see `recalled`."""
    content = recipe.stored(own)
    if content is not None:
        _engine().cache.store(key, content)


def disk() -> Cache:
    """Return where everything is kept."""
    return _engine().cache


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


_EACH = 2
"""How many groups of functions a worker compiles at most: the second evens out how long the first
has taken."""
_LEAST = 400
"""The least cost of a group: a module takes as long as a hundred, whatever is in it."""

_LLVM = range(20, 23)
"""The versions of LLVM whose options are known."""


def _cost(text: str) -> int:
    """Return how long code generation takes, about, in lines."""
    return text.count("\n") + 6 * text.count("br ")


def _groups(texts: Mapping[str, str], most: int) -> list[dict[str, str]]:
    """Return texts that are compiled together, in so many groups at most; the largest first."""
    costs = {name: _cost(text) for name, text in texts.items()}
    count = max(min(most, sum(costs.values()) // _LEAST), 1)
    groups: list[tuple[int, dict[str, str]]] = [(0, {}) for _ in range(count)]
    for name in sorted(texts, key=costs.__getitem__, reverse=True):
        place = min(range(len(groups)), key=lambda i: groups[i][0])
        cost, group = groups[place]
        groups[place] = cost + costs[name], {**group, name: texts[name]}
    return [group for _, group in sorted(groups, key=lambda g: -g[0]) if group]


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
            names = [name_of(code) for code in codes]
            if any([name not in self._found for name in names]):
                self._load({name_of(code): code for code in with_parts(codes)})
            return [self._found[name] for name in names]

    def recalled(self, key: str, own: Sequence[Literal]) -> tuple[Recipe, list[int]] | None:
        """Return the recipe that is kept under `key`, if its functions are there too."""
        content = self.cache.load(key)
        if content is None:
            return None
        try:
            recipe = restored(content, own)
        except (ValueError, KeyError, TypeError, IndexError):
            return None
        with _lock:
            bundles, absent = collect(self.cache, recipe.functions, self._found)
            if absent:
                return None
            self._link(bundles)
            return recipe, [self._found[name] for name in recipe.functions]

    def has(self, code: Code) -> bool:
        """Say whether a code's function is loaded."""
        return name_of(code) in self._found

    @contextlib.contextmanager
    def optimised(self, code: Code) -> Iterator[tuple[Any, Any]]:
        """Yield the module of `code` after LLVM's passes, and the target machine."""
        with _lock:
            target = self._target()
            with self._module([_llvm(code, name_of(code))], target) as module:
                self._optimise(module, target, _is_tidy(code))
                yield module, target

    def pause(self) -> None:
        """Keep every thread out of LLVM until `go_on`."""
        self._llvm.ffi.lib._lock.__enter__()

    def go_on(self) -> None:
        """Let threads into LLVM again."""
        self._llvm.ffi.lib._lock.__exit__()

    def _load(self, codes: Mapping[str, Code]) -> None:
        """Compile what is neither loaded nor on the disk, and link."""
        bundles, absent = collect(self.cache, codes, self._found)
        if absent:
            with self._quick():
                bundles += self._all_compiled(absent, codes)
        self._link(bundles)

    def _all_compiled(self, names: Sequence[str], codes: Mapping[str, Code]) -> list[Bundle]:
        """Return the machine code of functions, made on all cores; see `_compiled`."""
        workers = default_threads()
        tidy = [name for name in names if _is_tidy(codes[name])]
        others = [name for name in names if not _is_tidy(codes[name])]
        most = _EACH * workers // (2 if tidy and others else 1)
        with _thread_pool()(workers) as pool:
            made: list[Iterator[Bundle]] = []
            # The texts of the others are written while LLVM has the first.
            for kind in (tidy, others):
                texts = {name: _llvm(codes[name], name) for name in kind}
                compiled = functools.partial(self._compiled, beside=codes, tidy=kind is tidy)
                made.append(pool.map(compiled, _groups(texts, most)))
            return [*itertools.chain.from_iterable(made)]

    @contextlib.contextmanager
    def _quick(self) -> Iterator[None]:
        """Leave out LLVM's reduction of strides in loops: a fifth of the time of code generation.

        Generated loops are as fast without. Only measured on x86-64; and a version of LLVM that did
        not know the option would end the process.
        """
        llvm = self._llvm
        if machine().architecture != "x86_64" or llvm.llvm_version_info[0] not in _LLVM:
            yield
            return
        llvm.set_option("graphfw", "-disable-lsr=true")
        try:
            yield
        finally:  # the option is the process's, which others may use LLVM in
            llvm.set_option("graphfw", "-disable-lsr=false")

    def _link(self, bundles: Sequence[Bundle]) -> None:
        """Load bundles, which may call each other's functions and those loaded before."""
        if not bundles:
            return
        library = self._llvm.JITLibraryBuilder().add_current_process()
        for name, address in self.defined.items():
            library.import_symbol(name, address)
        names = {name for bundle in bundles for name in bundle.defines}
        for name in {name for bundle in bundles for name in bundle.calls} - names:
            library.import_symbol(name, self._found[name])
        for bundle in bundles:
            library.add_object_img(bundle.content)
        for name in names:
            library.export_symbol(name)
        try:
            linked = library.link(self._jit, f"graphfw{next(self._numbers)}")
        except RuntimeError as error:
            raise ExecutorError(f"generated code can't be loaded: {error}") from None
        self._libraries.append(linked)
        self._found.update((name, linked[name]) for name in names)

    def _compiled(self, texts: Mapping[str, str], beside: Container[str], tidy: bool) -> Bundle:
        """Return the machine code of some functions, made now and stored.

        Args:
            texts: Their modules, by their names.
            beside: The functions that they may call.
            tidy: Whether there is nothing in them for LLVM to simplify.
        """
        target = self._target()
        with self._module(texts.values(), target) as module:
            calls: list[str] = []
            for name in [function.name for function in module.functions if function.is_declaration]:
                if name in beside:
                    calls.append(name)
                    continue
                known = name in self.defined or self._llvm.address_of_symbol(name)
                if not known and not name.startswith("llvm."):
                    raise ExecutorError(
                        f"generated code calls {name}, which this process does not have"
                    )
            self._optimise(module, target, tidy)
            made = Bundle(tuple(texts), tuple(calls), self._emit(module, target))
        keep_bundle(self.cache, made)
        return made

    def _target(self) -> Any:
        here = machine()
        features = here.features
        if here.architecture == "x86_64":
            # For each division of 64-bit integers LLVM would write two ways, one with 32 bits. They
            # are done a few times a cell, so that only code generation would notice.
            features += ",-idivq-to-divl"
        return self._llvm.Target.from_triple(here.triple).create_target_machine(
            cpu=here.cpu, features=features, opt=3, reloc="pic", codemodel="small", jit=True
        )

    @contextlib.contextmanager
    def _module(self, texts: Iterable[str], target: Any) -> Iterator[Any]:
        """Yield one module of several texts.

        It is closed at the end, also after an error, whose traceback may keep it: the garbage
        collector could take the context first, and the process would crash.
        """
        # A context of its own: modules of one context can't be compiled at the same time.
        context = self._llvm.create_context()
        modules: list[Any] = []
        with contextlib.ExitStack() as opened:
            try:
                for text in texts:
                    module = opened.enter_context(self._llvm.parse_assembly(text, context))
                    module.triple = machine().triple
                    module.data_layout = str(target.target_data)
                    module.verify()
                    modules.append(module)
            except RuntimeError as error:
                raise ExecutorError(f"LLVM refuses generated code: {error}") from None
            first, *rest = modules
            for other in rest:
                first.link_in(other)
            yield first

    def _optimise(self, module: Any, target: Any, tidy: bool) -> None:
        # Half the time of LLVM's own pipelines, -O1 to -O3, and code as fast: what they do more is
        # for loops over scalars, and generated code has explicit vectors. Functions are inlined
        # where they say `alwaysinline`.
        passes = self._llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()
        if not tidy:  # it takes an eighth of LLVM's time
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


@functools.cache
def _thread_pool() -> type[ThreadPoolExecutor]:
    # Not at the top: importing it takes longer than loading a plan's code from the disk.
    from concurrent.futures import ThreadPoolExecutor

    # Thread pools have a lock that a fork takes, too, and who compiles waits for both. Who was
    # registered last comes first: now, that is the engine's lock.
    if hasattr(os, "register_at_fork"):
        free = _lock.release
        os.register_at_fork(before=_lock.acquire, after_in_parent=free, after_in_child=free)
    return ThreadPoolExecutor


def _llvm(code: Code, symbol: str) -> str:
    assert isinstance(code, LlvmCode), "it is for another kind of processor"
    return code.llvm(symbol)


def _is_tidy(code: Code) -> bool:
    return getattr(code, "tidy", False)
