"""Compiling programs for a GPU, and the bodies of their loops and branches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from graphfw.ir.body import Body
from graphfw.runtime.cupy_executor.backend import GpuBackend
from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.passes import last_passes
from graphfw.runtime.executor import Options
from graphfw.runtime.pipeline import Compilation
from graphfw.runtime.program import Program, body_program, without_passes


def compilation(program: Program, options: Options, capability: str) -> Compilation:
    """Return the stages of a program's compilation for a GPU of this compute capability."""
    make = partial(_body, options, capability)
    return Compilation(program, GpuBackend(program, options, capability, make))


def _body(
    options: Options, capability: str, body: Body, captures: int, carried: Iterable[int] = ()
) -> GpuProgram:
    """Compile what a loop or a branch computes; captures are to it what variables are to a plan."""
    program = body_program(body, captures, is_iteration=False, carried=carried)
    graph = program.source
    for one in last_passes(capability):  # others have been in the bodies
        graph = one(graph)
    program = without_passes(replace(program, source=graph))
    return GpuProgram(compilation(program, options, capability), is_body=True)
