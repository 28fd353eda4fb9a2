"""The CPU backend of the stages of compilation: see `runtime/pipeline.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphfw.ir.tensor import Tensor
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Item, Step, View
from graphfw.runtime.numpy_executor.choice import by_estimate
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.recipe import Measured
from graphfw.runtime.numpy_executor.target import CpuTarget
from graphfw.runtime.numpy_executor.tuning import Tuner
from graphfw.runtime.planning.draws import Draws, drawn_keys
from graphfw.runtime.planning.work import is_worth_a_copy
from graphfw.runtime.program import Program

_NEAR = 6 << 20
"""The bytes of prepacked weights that a shared cache still holds when the next run reads them."""


class CpuBackend:
    """Makes steps for the CPU; see `runtime.pipeline.Backend`.

    Args:
        program: The program.
        options: What the session asks for.
        measured: The times of strategies that are known.

    Attributes:
        drawn: The keys of the streams that the program draws from.
        draws: What its random nodes draw from.
        tuner: What chooses where strategies are measured.
    """

    updates_last = False
    lends_outputs = True

    def __init__(
        self, program: Program, options: Options, measured: Measured | None = None
    ) -> None:
        graph = program.graph
        self.drawn = drawn_keys(graph)
        self.draws = Draws(self.drawn)
        self.tuner = Tuner(options.threads or default_threads(), graph, measured)
        choose = self.tuner.choose if options.tune else by_estimate
        is_near = self.tuner.weights <= _NEAR
        self.target = CpuTarget(self.draws, options, choose, is_near=is_near)

    def code(self, kernel: Kernel) -> KernelCode:
        return KernelCode(kernel)

    def expanded(self, item: Item, view: Callable[[Tensor], View]) -> Sequence[Item]:
        return (item,)  # Python makes the iterations, or one native call does

    def may_overwrite(self, step: Step) -> bool:
        return not is_worth_a_copy(step)

    def may_hoist(self, step: Step) -> bool:
        return step.prepacks

    def is_in_place(self, step: Step) -> bool:
        return True
