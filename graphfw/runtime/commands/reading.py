"""A program from the text of a graph."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from graphfw.errors import ArgumentError
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.parser import parse
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Tensor
from graphfw.passes.base import Pass
from graphfw.runtime.program import Program, lower


def add_graph(parser: argparse.ArgumentParser) -> None:
    """Let a command take the file of a graph."""
    parser.add_argument("graph", help="the file of the graph's text; - is standard input")
    parser.add_argument(
        "--constants",
        metavar="FILE.npz",
        help="the arrays that the text names by digest: np.savez(FILE, **graph.constants())",
    )


def read_program(options: argparse.Namespace, passes: Sequence[Pass]) -> Program:
    """Return the program that computes a graph's outputs and updates, fed all its placeholders.

    Args:
        options: The command's arguments: see `add_graph`.
        passes: What the program's graph goes through.

    Raises:
        ArgumentError: A file can't be read, or the graph has neither outputs nor updates.
        ParseError: A line of the text can't be read.
    """
    graph = parse(_text(options.graph), constants=_constants(options.constants))
    if not (graph.outputs or graph.updates):
        raise ArgumentError(
            f"the graph in {options.graph!r} has neither outputs nor updates",
            fix='end it with a line such as "  output %3"',
        )
    feeds = _placeholders(graph)
    return lower(graph.outputs, graph.updates, feeds, graph, None, lambda: tuple(passes))


def _placeholders(graph: Graph) -> list[Tensor]:
    return [t for node in graph.nodes if isinstance(node.op, Placeholder) for t in node.outputs]


def _text(name: str) -> str:
    try:
        if name == "-":
            return sys.stdin.read()
        with open(name, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise ArgumentError(f"can't read {name!r}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ArgumentError(
            f"{name!r} is no text: {error.reason} at byte {error.start}",
            fix="give the file of a graph's text, as str(graph) returns it",
        ) from error


def _constants(name: str | None) -> Mapping[str, Array]:
    if name is None:
        return {}
    try:
        with np.load(name) as found:
            return dict(found)
    except (OSError, ValueError, TypeError) as error:
        raise ArgumentError(
            f"can't read constants of {name!r}: {error}",
            fix="write the file with np.savez(file, **graph.constants())",
        ) from error
