"""Running a program as it is described, node by node: `gf.Session(g, debug=True)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphfw.errors import ArgumentError, ExecutorError, a_type
from graphfw.ir import concrete
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Claim, Executor, Options
from graphfw.runtime.locations import node_table
from graphfw.runtime.program import Program
from graphfw.utils.signal_handlers import is_of_handler

Hook: TypeAlias = Callable[[Node, Sequence[Any], Sequence[Any]], object]
"""Called with each node, its inputs and its outputs: NumPy arrays, which it must not change."""


class DebugExecutable(ArrayExecutable):
    """A program without the passes' work; a hook is called with each node once it is computed.

    Args:
        program: What to run; passes have left it only.
        hook: What to call, also for the nodes in bodies of loops and branches.
    """

    def __init__(self, program: Program, hook: Hook | None) -> None:
        super().__init__(program, np)
        self._hook = hook

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        return self.outputs_of(self.walk(inputs, sizes, rng, self.watch))

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        return (
            "the debug path, node by node with NumPy: no passes, no fusion, no native code\n\n"
            f"{node_table(self.program.graph)}"
        )

    def watch(self, node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Call the hook with a node that has been computed."""
        if self._hook is None:
            return
        try:
            self._hook(node, [np.asarray(a) for a in inputs], [np.asarray(a) for a in outputs])
        except Exception as error:
            if is_of_handler(error):
                raise
            summary = f"the debug hook raised {type(error).__name__}: {error}"
            raise concrete.at_node(node, inputs, summary, "") from error


def checked_debug(debug: bool | Hook, executor: Executor, options: Options) -> None:
    """See that a session can have the debug path, if it wants it.

    Raises:
        ArgumentError: `debug` is neither a bool nor a function.
        ExecutorError: The executor has no such path, or there is a memory limit.
    """
    if not isinstance(debug, bool) and not callable(debug):
        raise ArgumentError(
            f"Session: debug is {a_type(debug)}",
            fix="pass True, or a function of a node, its inputs and its outputs",
        )
    if debug and not executor.is_host:
        raise ExecutorError(
            f'debug=True runs on NumPy arrays, which the executor "{executor.name}" does not take',
            fix='use executor="numpy"',
        )
    if debug:
        options.require_no_limit("debug=True", "leave out one of the two")
