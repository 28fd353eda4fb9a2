"""Variables of less than 8 bits an element, which a session keeps packed in bytes.

    %1 = variable "w": int4[4096, 1024]     becomes     %1 = variable "w": uint8[2097216]
                                                        %2 = unpack_bits(%1, (4096, 1024), int4)

What reads the variable reads `%2`, which kernels compute where they read it: so only packed bytes
are read from memory. New contents are packed at the end of the run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from graphfw.ir.build import emit
from graphfw.ir.dtype import as_dtype, uint8
from graphfw.ir.graph import current_graph
from graphfw.ir.literal import Array
from graphfw.ir.rebuild import rebuild
from graphfw.ir.sources import VariableOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Variable
from graphfw.ops.elementwise.packed_bits import PackBits, UnpackBits, is_packed, packed_size
from graphfw.runtime.program import Program


def packed_type(variable: Variable) -> TensorType:
    """Return the type in which a variable's contents are kept."""
    if not is_packed(variable.dtype):
        return variable.type
    return TensorType(uint8, (packed_size(variable.dtype, variable.size),))


def packed(contents: Array) -> Array:
    """Return a variable's contents as they are kept: where they are not packed, themselves."""
    dtype = as_dtype(contents.dtype)
    kept: Array = PackBits(dtype).eval(np, contents) if is_packed(dtype) else contents
    return kept


def unpacked(variable: Variable, kept: Array) -> Array:
    """Return an array of `packed` in the variable's own type."""
    if not is_packed(variable.dtype):
        return kept
    contents: Array = UnpackBits(variable.shape, variable.dtype).eval(np, kept)
    return contents


def with_packed_variables(program: Program) -> Program:
    """Return a program that reads and writes variables of few bits as they are kept."""
    few = {v.node: v for v in program.variables if is_packed(v.dtype)}
    if not few:
        return program
    kept: dict[Tensor, Tensor] = {}

    def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
        if node not in few:
            return None
        variable = few[node]
        kept[variable] = _kept(variable)
        return emit(UnpackBits(variable.shape, variable.dtype), kept[variable])

    source = rebuild(program.source, rewrite)
    outputs = list(source.outputs)
    with source:
        for index, variable in enumerate(program.updated, program.fetch_count):
            if variable.node in few:
                kept.setdefault(variable, _kept(variable))
                source.provenance = outputs[index].node.loc
                outputs[index] = emit(PackBits(variable.dtype), outputs[index])
    source.provenance = None
    source.outputs = tuple(outputs)
    # Who runs a program asks for no more than tensors have.
    variables = cast("tuple[Variable, ...]", tuple([kept.get(v, v) for v in program.variables]))
    updated = cast("tuple[Variable, ...]", tuple([kept.get(v, v) for v in program.updated]))
    return replace(program, source=source, variables=variables, updated=updated)


def _kept(variable: Variable) -> Tensor:
    """Make what stands for a variable's packed contents, in the open graph."""
    graph, kind = current_graph(), packed_type(variable)
    op = VariableOp(kind.shape, kind.dtype)
    return graph.append(Node(op, (), (kind,), variable.node.loc, variable.name, graph))[0]
