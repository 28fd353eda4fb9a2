"""Executors, which make programs run: the `Executor` interface, and the executors by name.

A third party adds one with an entry point in the group `graphfw.executors` whose object is called
with the text after a colon in the name (`"mine:1"` gives `"1"`, `"mine"` gives `""`).
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from graphfw.errors import ExecutionError, ExecutorError, a_type, did_you_mean
from graphfw.hints.devices import executor_for
from graphfw.ir import ambient, time_limits
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Variable
from graphfw.passes.base import Pass
from graphfw.runtime.limits import (
    Precision,
    byte_count,
    checked_precision,
    checked_switch,
    checked_threads,
)
from graphfw.runtime.memory import MemoryReport
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program
from graphfw.runtime.unsettled import Unsettled
from graphfw.utils.records import record

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Executable", "Executor", "Options", "executor_names", "find_executor"]


Claim: TypeAlias = "Callable[[], Array | None]"


@record
class Options:
    """The options of a session for its executor.

    Attributes:
        threads: How many threads a run may use; all cores where it is None.
        memory_limit: How many bytes a run's own memory may be; None for no limit.
        matmul_precision: Whether products of float32 may be a little less exact where that is
            quicker; an executor that has no such way takes "high" for "highest". None is "highest"
            for matrix products, and permits Winograd's convolutions.
        winograd: Whether convolutions may be computed by Winograd's algorithms.
        tune: Whether the ways to compute a node are measured. That changes no result otherwise than
            another way does; executors that know one way alone have nothing to measure.
        unsettled: Where runs are noted that return before it is known whether they fail; None where
            none may.
    """

    threads: int | None = None
    memory_limit: int | None = None
    matmul_precision: Precision | None = None
    winograd: bool = True
    tune: bool = False
    unsettled: Unsettled | None = None

    @property
    def may_use_winograd(self) -> bool:
        """Whether nothing speaks against Winograd's algorithms."""
        return self.winograd and self.matmul_precision != "highest"

    def require_no_limit(
        self, executor: str, fix: str = 'leave it out, or use executor="numpy"'
    ) -> None:
        """Refuse a memory limit, for executors that can't keep it.

        Raises:
            ExecutorError: There is a limit.
        """
        if self.memory_limit is not None:
            raise ExecutorError(
                f"{executor} does not plan its memory, so it can't keep a memory_limit", fix=fix
            )


def checked_options(
    threads: int | None,
    memory_limit: int | str | None,
    matmul_precision: Precision | None,
    *,
    winograd: bool,
    tune: bool,
) -> Options:
    """Return a session's options for its executor.

    Raises:
        ArgumentError: One of them is wrong.
    """
    return Options(
        checked_threads(threads),
        byte_count(memory_limit),
        checked_precision(matmul_precision),
        checked_switch("winograd", winograd),
        checked_switch("tune", tune),
    )


class Replayed(NamedTuple):
    """A step that has been run by itself.

    Attributes:
        nodes: What it computes.
        values: What it has made, as NumPy arrays that hold it until the next step is asked for; in
            the right order, though not always of the right shape.
    """

    nodes: tuple[Node, ...]
    values: list[tuple[Tensor, Array]]


class Executable(abc.ABC):
    """A program that an executor has made ready; called from many threads at once."""

    @abc.abstractmethod
    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        """Run the program.

        Args:
            inputs: The fed arrays, then the variables' contents; not to be written to.
            sizes: What the program's `symbols` stand for in this run.
            rng: What random ops draw from.
            version: Another number whenever the contents of the variables that the program does not
                update may be others.
            claim: To be called before the contents of the variables that are updated are written
                over; where it gives None, they must not be. Of all or none, after everything that
                can fail, in one native call that at its end writes a 1 to the array that it gives.

        Returns:
            The outputs. Where `program.copied` says so they are copies, so that each belongs to
            whom it is handed to.

        Raises:
            ExecutionError: An operation fails.
        """

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        """Return a text on the steps: what is inside each, what it takes, why it is not larger."""
        del sizes
        return ""

    def source(self) -> str:
        """Return the generated code."""
        raise _unplanned("generates no code")

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        """Return the memory that a run takes."""
        raise _unplanned("does not plan its memory")

    def profile(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Profile:
        """Run once, changing nothing, and return where the time went."""
        raise _unplanned("does not time its steps")

    def replay(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Iterator[Replayed]:
        """Run once more, changing nothing, and yield what each step makes, where it has steps."""
        return iter(())

    @abc.abstractmethod
    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        """Run again and say where a value that is not finite comes from."""


def _unplanned(what: str) -> ExecutorError:
    return ExecutorError(f"this executor {what}", fix='use executor="numpy", without GRAPHFW_JIT=0')


class Executor(abc.ABC):
    """Makes programs run on one kind of machine, with arrays of its own kind."""

    name: ClassVar[str]
    holds_values: ClassVar[bool] = True
    """Whether variables have contents: false for an executor that only looks at shapes."""
    keeps_time_limits: ClassVar[bool] = False
    """Whether runs end when `ir.time_limits.check` says so, or before."""
    is_host: ClassVar[bool] = False
    """Whether a NumPy array of the right dtype is taken as it is."""

    def checked_timeout(self, timeout: float | None) -> float | None:
        """Return a run's timeout in seconds, if it is one that this executor keeps to.

        Raises:
            ArgumentError: It is no positive number.
            ExecutorError: The executor can't end runs.
        """
        found = time_limits.checked_timeout(timeout)
        if found is not None and not self.keeps_time_limits:
            raise ExecutorError(
                f'the executor "{self.name}" can\'t end a run, so it takes no timeout',
                fix='leave the timeout out, or use executor="numpy"',
            )
        return found

    @abc.abstractmethod
    def load(self, program: Program, options: Options) -> Executable:
        """Make a program ready to run."""

    def passes(self) -> Sequence[Pass]:
        """Return the passes that make `program.graph` of what the user has described.

        By default those that are of use where each node is computed by itself.
        """
        # Not at the top: who has the code of a program already needs no passes.
        found: Sequence[Pass] = import_module("graphfw.passes.pipelines").NODEWISE
        return found

    @abc.abstractmethod
    def feed(self, placeholder: Tensor, value: Any) -> Any:
        """Return a fed value as an array with the placeholder's dtype, as its executables take it.

        Its `shape` is checked by the caller.

        Raises:
            FeedError: The value is no array, or converting it would lose something.
        """

    @abc.abstractmethod
    def from_host(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a copy of a NumPy array as an array of this executor."""

    def from_hosts(
        self, arrays: Iterable[np.ndarray[Any, Any]], sizes: Sequence[int]
    ) -> Sequence[Any]:
        """Return copies of NumPy arrays, as `from_host` does of one.

        Args:
            arrays: Made when they are asked for, so that each can go before the next one comes.
            sizes: Their bytes.
        """
        return [self.from_host(array) for array in arrays]

    def adopted(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a NumPy array that nobody else has as an array of this executor: perhaps itself.

        Args:
            array: C-contiguous and writable.
        """
        return self.from_host(array)

    @abc.abstractmethod
    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a copy of an array of this executor as a NumPy array."""

    def with_kept_variables(self, program: Program) -> Program:
        """Return a program that reads and writes variables' contents as they are kept."""
        return program

    def kept_type(self, variable: Variable) -> TensorType:
        """Return the type in which a variable's contents are kept: by default its own."""
        return variable.type

    def to_kept(self, contents: Array) -> Array:
        """Return a variable's contents as they are kept, of `kept_type`; perhaps as they are."""
        return contents

    def from_kept(self, variable: Variable, array: Array) -> Array:
        """Return an array of `to_kept` in the variable's own type; perhaps as it is."""
        return array

    def release(self) -> None:  # noqa: B027  (most keep nothing)
        """Let go of memory that is kept for later runs: a session that used it is closed."""

    def to_hosts(self, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Return arrays that nobody else has as NumPy arrays: themselves, where they are such."""
        return list(arrays) if self.is_host else [self.to_host(array) for array in arrays]


_BUILT_IN = {
    "numpy": ("graphfw.runtime.numpy_executor", "NumpyExecutor"),
    "cupy": ("graphfw.runtime.cupy_executor", "CupyExecutor"),
    "meta": ("graphfw.runtime.meta_executor", "MetaExecutor"),
}
_GROUP = "graphfw.executors"


def executor_names() -> list[str]:
    """Return the names of the executors that are installed, whether or not they can run here."""
    return sorted({*_BUILT_IN, *_entry_points().names(_GROUP)})


def find_executor(choice: str | Executor | None) -> Executor:
    """Return an executor by name (`"numpy"`, `"cupy:1"`), or itself; the default one for None.

    Raises:
        ExecutorError: There is none of that name, or it can't run on this machine.
    """
    if choice is None:
        return _default_executor()
    if isinstance(choice, Executor):
        return choice
    if not isinstance(choice, str):
        is_class = isinstance(choice, type) and issubclass(choice, Executor)
        fix = f"make one: {choice.__name__}()" if is_class else 'use a name, such as "numpy"'
        raise ExecutorError(f"{choice!r} is no executor", fix=fix)
    name, _, device = choice.partition(":")
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name]
        made = getattr(import_module(module), attribute)(device)
    else:
        near = executor_for(choice) or did_you_mean(name, executor_names())
        hint = near or f"there are: {', '.join(executor_names())}"
        made = _entry_points().load(_GROUP, name, "executor", ExecutorError, hint)(device)
    if not isinstance(made, Executor):
        raise ExecutorError(f'the executor "{name}" is {a_type(made)}, no Executor')
    return made


def _default_executor() -> Executor:
    name, origin = ambient.default_executor_with_origin()
    try:
        return find_executor(name)
    except ExecutorError as error:
        error.why = f"{origin} chose it" if origin else error.why
        raise


def _entry_points() -> ModuleType:
    # Not at the top: reading packages' metadata takes a tenth of `import graphfw`.
    return import_module("graphfw.runtime.entry_points")
