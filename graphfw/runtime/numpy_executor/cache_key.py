"""The key of a program's recipe on disk: a hash of all that it is made from."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphfw.ir.body import Body
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType
from graphfw.ir.literal import Literal
from graphfw.ir.tensor import Node, Tensor
from graphfw.runtime.executor import Options
from graphfw.runtime.numpy_executor.engine import keeps
from graphfw.runtime.numpy_executor.machine import machine, matrix_unit_here
from graphfw.runtime.numpy_executor.names import sources
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.program import Program
from graphfw.utils.hashing import blake2b

_SHORT = 64
"""Bytes of a constant that are as short as its hash."""

_TRACES = ("GRAPHFW_DUMP", "GRAPHFW_STOP_AFTER")
"""The variables of the environment that ask to see passes at work."""

enabled = True
"""Whether recipes are kept; tests of the compiler turn it off."""


def key_of(program: Program, options: Options) -> str | None:
    """Return the name that the recipe of a program has on disk.

    Returns:
        None where none is kept: nothing is, somebody wants to look at the compiler's work, or an
        operation is not graphfw's own, so that nobody knows whether it is still the same.
    """
    watched = program.level != "off" or any(map(os.environ.get, _TRACES))
    if not enabled or watched or options.memory_limit is not None or not keeps():
        return None
    try:
        # Any number of threads runs the same steps, except where they were measured with it.
        threads = (options.threads or default_threads()) if options.tune else None
        # What a session notes while it runs is no choice.
        asked = replace(options, threads=threads, unsettled=None)
        chosen = f"{asked} {matrix_unit_here()}"
        lines = [machine().key, _compiler(), chosen, *_described(program)]
    except _UnknownError:
        return None
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    return f"gp_{blake2b(text, digest_size=20).hexdigest()}"


@functools.cache
def _compiler() -> str:
    """All that makes recipes of programs, as one word."""
    package = Path(__file__).parent.parent.parent
    return f"{sources(package)} NumPy {np.__version__} Python {sys.version}"


class _UnknownError(Exception):
    """Something is in a program of which no text says all."""


def _described(program: Program) -> list[str]:
    """Return texts that are equal for programs with equal recipes."""
    numbers = {node: number for number, node in enumerate(program.source.nodes)}
    indices = {variable: index for index, variable in enumerate(program.variables)}
    lines = [
        ",".join(program.symbols),
        ",".join([str(numbers.get(t.node)) for t in program.feeds]),
        ",".join([str(numbers.get(t.node)) for t in program.variables]),
        ",".join([str(indices[t]) for t in program.updated]),
        _references(program.source.outputs, numbers),
        str(program.fetch_count),
        str(program.carried),
        str(program.layouts),
    ]
    return [*lines, *[_line(node, numbers) for node in numbers]]


def _line(node: Node, numbers: Mapping[Node, int]) -> str:
    op = node.op
    if not type(op).__module__.startswith("graphfw."):
        raise _UnknownError
    return f"{op.name}({_references(node.inputs, numbers)}){_text(op.values)}"


def _references(tensors: Sequence[Tensor], numbers: Mapping[Node, int]) -> str:
    return ",".join([f"{numbers[t.node]}.{t.index}" for t in tensors])


def _body(body: Body) -> str:
    """Return a text that equal bodies have."""
    parameters = [t.node for t in body.parameters]
    numbers = {node: number for number, node in enumerate([*parameters, *body.nodes])}
    kinds = ",".join([str(t.type) for t in body.parameters])
    lines = "\n".join([_line(node, numbers) for node in body.nodes])
    return f"body({kinds}){{{lines}}}{_references(body.outputs, numbers)}{body.sizes}"


def _text(value: Any) -> str:
    """Return a text of a field's value, which no other value has."""
    kind = type(value)
    if kind is tuple:
        return f"({','.join(map(_text, value))})"
    if kind in _PLAIN:
        return repr(value)
    if kind is Dim:
        return f"dim {value}"
    if kind is DType:
        return f"dtype {value.name}"
    if kind is Body:
        return _body(value)
    if kind is slice:
        return f"slice{_text((value.start, value.stop, value.step))}"
    if kind is Literal:
        array = value.array
        short = array.nbytes <= _SHORT
        return f"{array.dtype.name}{array.shape}{array.tobytes().hex() if short else value.digest}"
    raise _UnknownError


_PLAIN = (bool, int, float, complex, str, type(None))
