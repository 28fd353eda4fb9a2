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
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphfw.errors import ExecutorError
from graphfw.ir.literal import Literal
from graphfw.runtime.cache import Cache, folder
from graphfw.runtime.kernels.steps import LlvmCode, with_callees
from graphfw.runtime.numpy_executor.bundles import Bundle, collect
from graphfw.runtime.numpy_executor.bundles import keep as keep_bundle
from graphfw.runtime.numpy_executor.machine import machine
from graphfw.runtime.numpy_executor.names import name_of
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.recipe import Recipe, restored
from graphfw.utils import forks

if TYPE_CHECKING:
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
    with contextlib.suppress(ExecutorError):  # who asks for it gets the error
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


def keep(key: str, recipe: Recipe, own: Sequence[Literal]) -> bool:
    """Keep a recipe on disk, where it is one that can be stored; see `recalled`. Says whether."""
    content = recipe.stored(own)
    if content is not None:
        _engine().cache.store(key, content)
    return content is not None


def disk() -> Cache:
    """Return where everything is kept."""
    return _engine().cache


def keeps() -> bool:
    """Return whether anything is kept on disk."""
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
"""The most groups of functions that a worker compiles: the second evens out how long the first has
taken."""
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
        index = min(range(len(groups)), key=lambda i: groups[i][0])
        cost, group = groups[index]
        group[name] = texts[name]
        groups[index] = cost + costs[name], group
    return [group for _, group in sorted(groups, key=lambda g: -g[0]) if group]


class Engine:
    """The compiler and loader of machine code.

    Args:
        cache: Where machine code is kept.
    """

    def __init__(self, cache: Cache) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.defined: dict[str, int] = {}
        self._llvm: Any = llvm
        # Taken outside of `uncut`, too, when objects of LLVM are collected.
        forks.last_waited_for(llvm.ffi.lib._lock._lock)
        self.cache = cache
        self._found: dict[str, int] = {}
        # Unlike the older linkers of LLVM, JITLink puts all sections of an object side by side,
        # which the code model "small" relies on, and it reports what is missing instead of
        # aborting.
        self._jit = llvm.create_lljit_compiler(
            self._target(), use_jit_link=True, suppress_errors=True
        )
        self._libraries: list[Any] = []
        """The libraries that keep the machine code."""
        self._numbers = itertools.count()
        self._quickened: int | None = None
        """The thread that has made LLVM quick."""

    def addresses(self, codes: Sequence[Code]) -> list[int]:
        """Return the addresses of the functions of `codes`, in order."""
        with _lock:
            names = [name_of(code) for code in codes]
            if any([name not in self._found for name in names]):
                self._load({name_of(code): code for code in with_callees(codes)})
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
        """Return whether a code's function is loaded."""
        return name_of(code) in self._found

    @contextlib.contextmanager
    def optimised(self, code: Code) -> Iterator[tuple[Any, Any]]:
        """Yield the module of `code` after LLVM's passes, and the target machine."""
        with _lock, forks.uncut():
            target = self._target()
            with self._module([_llvm(code, name_of(code))], target) as module:
                self._optimise(module, target, _is_tidy(code))
                yield module, target

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
        at_once = threading.Semaphore(workers)

        def compiled(texts: Mapping[str, str], is_tidy: bool) -> Bundle:
            with forks.uncut():
                made = self._compiled(texts, codes, is_tidy)
            keep_bundle(self.cache, made)
            return made

        begun: list[_Worker] = []
        try:
            # The texts of the others are written while LLVM has the first.
            for kind in (tidy, others):
                for texts in _groups({name: _llvm(codes[name], name) for name in kind}, most):
                    work = functools.partial(compiled, texts, kind is tidy)
                    begun.append(_Worker(at_once, work))
        finally:
            for worker in begun:
                worker.join()
        return [worker.made() for worker in begun]

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
        self._quickened = threading.get_ident()
        llvm.set_option("graphfw", "-disable-lsr=true")
        try:
            yield
        finally:  # the option is the process's, which others may use LLVM in
            llvm.set_option("graphfw", "-disable-lsr=false")
            self._quickened = None

    def after_fork(self) -> None:
        """Do what a thread that this process does not have would have done."""
        if self._quickened not in (None, threading.get_ident()):
            self._llvm.set_option("graphfw", "-disable-lsr=false")
            self._quickened = None

    def _link(self, bundles: Sequence[Bundle]) -> None:
        """Load bundles, which may call each other's functions and those loaded before."""
        if not bundles:
            return
        with forks.uncut():
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
        """Return the machine code of some functions, made now.

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
            return Bundle(tuple(texts), tuple(calls), self._emit(module, target))

    def _target(self) -> Any:
        here = machine()
        features = here.features
        if here.architecture == "x86_64":
            # For each division of 64-bit integers LLVM would write two ways, one with 32 bits. They
            # are done a few times a work item, so that only code generation would notice.
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
_lock = forks.renewed_lock()
"""Held while the engine is made, and while it works."""


def _engine() -> Engine:
    with _lock, forks.uncut():
        if not _made:
            _made.append(Engine(Cache(folder())))
        return _made[0]


def _after_fork() -> None:
    for engine in _made:
        engine.after_fork()


forks.in_child(_after_fork)


class _Worker(threading.Thread):
    """Compiles in a thread of its own: importing thread pools takes as long as a small plan.

    Args:
        at_once: How many do so at once.
        work: What is to be done.
    """

    def __init__(self, at_once: threading.Semaphore, work: Callable[[], Bundle]) -> None:
        super().__init__()
        self._at_once = at_once
        self._work = work
        self._made: Bundle | Exception | None = None
        self.start()

    def run(self) -> None:
        with self._at_once:
            try:
                self._made = self._work()
            except Exception as error:
                self._made = error

    def made(self) -> Bundle:
        """Return the result of a thread that has ended, or raise its error."""
        if self._made is None:  # the thread was lost in a fork
            return self._work()
        if isinstance(self._made, Exception):
            raise self._made
        return self._made


def _llvm(code: Code, symbol: str) -> str:
    assert isinstance(code, LlvmCode), "it is for another kind of processor"
    return code.llvm(symbol)


def _is_tidy(code: Code) -> bool:
    return getattr(code, "tidy", False)
