"""The base of executables with planned memory: layouts of sizes, limits, the reference path."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.ir.literal import Array
from graphfw.ir.op import LOOSE, Rng
from graphfw.ops.control.effects import quiet
from graphfw.ops.control.shape_checks import hold
from graphfw.ops.shape.gather_scatter import names_nothing
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Claim, Executable, Options
from graphfw.runtime.memory import MemoryReport, too_much
from graphfw.runtime.program import Program
from graphfw.utils import forks
from graphfw.utils.collecting import without_collection
from graphfw.utils.recent import Recent

LAYOUTS = 256
"""The layouts of so many different sizes are kept."""


class SizedLayout(Protocol):
    """Everything that depends on the sizes.

    Attributes:
        sizes: What the symbols stand for.
        is_unchecked: Whether there are indices that generated code does not look at, as they name
            elements of nothing.
    """

    sizes: dict[str, int]
    is_unchecked: bool


L = TypeVar("L", bound=SizedLayout)


class PlannedExecutable(Executable, Generic[L]):
    """A program as generated code on planned memory.

    What is wrong with values and sizes the reference path says, which computes node by node.

    Args:
        program: The program.
        options: What the session asks for.

    Attributes:
        program: The program.
    """

    _code: ClassVar[str]
    """The name of the code that refuses values, for errors."""

    def __init__(self, program: Program, options: Options) -> None:
        self.program = program
        self._limit = options.memory_limit
        self._layouts: Recent[tuple[int, ...], L] = Recent(LAYOUTS)
        self._lock = forks.renewed_lock()

    @abstractmethod
    def _laid_out(self, sizes: tuple[int, ...]) -> L:
        """Lay out sizes.

        Raises:
            ArithmeticError: A size divides by 0, or a step does not take these sizes.
        """

    @abstractmethod
    def _memory(self, layout: L) -> MemoryReport:
        """Return the memory that a run takes."""

    def layout(self, sizes: tuple[int, ...], claim: Claim | None = None) -> L:
        """Return the layout of some sizes.

        Raises:
            ArithmeticError: A size divides by 0, or a step or a check does not take these sizes.
            MemoryLimitError: A run of these takes more memory than the session may.
        """
        return self._layouts.get(sizes) or self._new_layout(sizes, claim)

    def _new_layout(self, sizes: tuple[int, ...], claim: Claim | None = None) -> L:
        """Lay out sizes that have not been seen lately."""
        with self._lock:
            layout = self._layouts.get(sizes)
            if layout is None:
                program = self.program
                with without_collection():
                    layout = self._laid_out(sizes)
                if not hold(program.shape_checks, program.symbols, sizes):
                    raise ArithmeticError
                self._check_limit(layout, claim)
                layout.is_unchecked = names_nothing(program.source, layout.sizes)
                self._layouts.keep(sizes, layout)
        return layout

    def _check_limit(self, layout: L, claim: Claim | None) -> None:
        if self._limit is not None:
            found = self._memory(layout)
            needed = found.needed(in_place=claim is not None)
            if needed > self._limit:
                raise too_much(found, needed, self._limit, layout.sizes)

    # The reference path.

    @cached_property
    def _reference(self) -> ArrayExecutable:
        return ArrayExecutable(self.program, np)

    def _on_host(self, inputs: Sequence[Any]) -> Sequence[Array]:
        """Return the inputs of a run as NumPy arrays."""
        return inputs

    def _check_by_reference(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng
    ) -> list[Any]:
        """Run on the host, for the checks that generated code does not make at these sizes.

        Raises:
            ExecutionError: One fails.
        """
        with quiet():  # what there is to see is seen elsewhere
            return self._reference(self._on_host(inputs), sizes, rng, 0, None)

    def _instead(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> list[Any]:
        """Return the reference path's results where generated code has refused values.

        Raises:
            ExecutionError: It refuses them, too, or it would be wrong that only one does.
        """
        if not any([LOOSE in node.op.traits for node in self.program.graph.nodes]):
            raise self._refusal(inputs, sizes, rng)
        return self._check_by_reference(inputs, sizes, rng)

    def _refused(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng
    ) -> ExecutionError | None:
        """Return the reference path's error, if it has one."""
        try:
            self._check_by_reference(inputs, sizes, rng)
        except ExecutionError as error:
            return error
        return None

    def _refusal(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        """Say what is wrong with values or sizes."""
        return self._refused(inputs, sizes, rng) or ExecutionError(
            f"{self._code} refuses values that the operations themselves accept",
            fix="this is a mistake in graphfw; gf.Session(g, debug=True) runs node by node",
        )

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        return self._reference.blame(self._on_host(inputs), sizes, rng)
