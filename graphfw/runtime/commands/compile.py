"""`python -m graphfw compile`: the text of a graph at each stage of its compilation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from graphfw.errors import ExecutorError
from graphfw.ir.printer import graph_text
from graphfw.passes.base import Pass
from graphfw.runtime.commands.reading import add_graph, read_program
from graphfw.runtime.cupy_executor import compiling as gpu
from graphfw.runtime.cupy_executor import passes as gpu_passes
from graphfw.runtime.executor import Options
from graphfw.runtime.numpy_executor import backend as cpu
from graphfw.runtime.numpy_executor import passes as cpu_passes
from graphfw.runtime.pipeline import Compilation
from graphfw.runtime.pipeline_text import STAGES, text
from graphfw.runtime.program import Program


def main(arguments: Sequence[str]) -> None:
    """Do what follows `python -m graphfw compile`.

    Raises:
        ArgumentError: A file can't be read.
        ParseError: A line of the text can't be read.
        ExecutorError: The program has numbers of more than 64 bits.
    """
    options = _parser().parse_args(arguments)
    program = read_program(options, _passes(options))
    try:
        made = text(_compilation(program, options), options.stop_after)
    except OverflowError as error:
        raise ExecutorError(
            "it has numbers of more than 64 bits, so nothing is compiled"
        ) from error
    graph = graph_text(program.graph, locations=False)
    sys.stdout.write(f"{graph}\n\n{made}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m graphfw compile",
        description="Compile a graph up to a stage; print the optimised graph and the result.",
    )
    add_graph(parser)
    parser.add_argument(
        "--stop-after", choices=STAGES, default=STAGES[-1], help="the stage; allocate by default"
    )
    parser.add_argument(
        "--executor", choices=("numpy", "cupy"), default="numpy", help="numpy by default"
    )
    parser.add_argument(
        "--capability",
        type=_capability,
        default="90",
        metavar="NUMBER",
        help="the compute capability of the GPU, of which there need be none; 90 by default",
    )
    return parser


def _capability(text: str) -> str:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no compute capability such as 90")
    return text


def _passes(options: argparse.Namespace) -> Sequence[Pass]:
    if options.executor == "numpy":
        return cpu_passes.passes()
    return gpu_passes.passes(options.capability)


def _compilation(program: Program, options: argparse.Namespace) -> Compilation:
    if options.executor == "numpy":
        return Compilation(program, cpu.CpuBackend(program, Options()))
    return gpu.compilation(program, Options(), options.capability)
