"""The kernels after a product for what cuBLASLt does not take up.

They are there for every product that takes something up, since only the library says, once sizes
are known, what it has algorithms for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, NoReturn

from graphfw.ir.dim import DimLike
from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import derive
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ops.creation.inputs import placeholder
from graphfw.ops.linalg.fused_matmul import FusedProduct
from graphfw.passes.base import no_ambient
from graphfw.passes.fuse import partition
from graphfw.passes.pipelines import DEFAULT
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.lower import CanCompile, lower
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View


def unfused_steps(node: Node, storages: Mapping[str, Storage]) -> list[Step]:
    """Return the steps that follow a plain product, which lies where the result will.

    They may need memory besides.

    Args:
        node: A `fused_product`.
        storages: Where its operands and results lie whole, by name: "b", those of `op.others`
            but the residual, which is in the plain product, and those of `op.results`.
    """
    op = node.op
    assert isinstance(op, FusedProduct)
    rest = _rest(op, node.types[0], tuple([tensor.type for tensor in node.inputs]))
    storage_of: dict[Storage, Storage] = {t: storages[name] for t, name in rest.names.items()}
    steps = []
    for step in rest.steps:
        for storage in step.operands:
            if storage not in storage_of:
                storage_of[storage] = Temp(storage.dtype, storage.size, "what follows a product")
        operands = tuple([storage_of[storage] for storage in step.operands])
        steps.append(replace(step, nodes=(node,), operands=operands))
    return steps


class _Rest(NamedTuple):
    """Steps that are not yet any node's.

    Attributes:
        steps: What they do.
        names: What their tensors stand for.
    """

    steps: list[Step]
    names: dict[Tensor, str]


@lru_cache(maxsize=256)
def _rest(op: FusedProduct, result: TensorType, types: tuple[TensorType, ...]) -> _Rest:
    names = ("b", *op.others)
    with no_ambient(), Graph() as graph:
        product = placeholder(result.shape, result.dtype, name="product")
        placeholders = {
            name: placeholder(one.shape, one.dtype, name=name)
            for name, one in zip(names, types[1:], strict=True)
        }
        made = op.rest(product, *placeholders.values())
    graph = derive(graph, [product, *placeholders.values(), *made])
    for one in DEFAULT:
        graph = one(graph)
    count = 1 + len(placeholders)
    known = dict(zip(graph.outputs, ("result", *placeholders), strict=False))
    outputs = dict(zip(graph.outputs[count:], op.results, strict=True))
    outputs = {tensor: name for tensor, name in outputs.items() if tensor not in known}
    graph = derive(graph, list(outputs))
    target = _KernelsOnly()
    steps = []
    for item in lower(graph, partition(graph, CanCompile(target)), target):
        assert isinstance(item, Step)
        steps.append(item)
    # It is written over by the kernel that reads it, so no other may.
    readers = [step for step in steps if any(read is product for read in step.operands)]
    assert len(readers) <= 1
    return _Rest(steps, known | outputs)


class _KernelsOnly:
    """A target that makes kernels, and nothing else."""

    most_numbers = sys.maxsize
    narrow = 0

    def kernel(self, kernel: Kernel, sizes: Sequence[DimLike]) -> CudaCode:
        del sizes
        return CudaCode(kernel)

    def scratch(self, kernel: Kernel) -> tuple[int, int]:
        return 0, 0

    def multiplies(self, node: Node) -> bool:
        return False

    keeps_rows = fills = multiplies

    def lower_node(
        self, node: Node, inputs: Sequence[View], outputs: Sequence[View]
    ) -> Sequence[Step]:
        return ()

    def drawn(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("nothing random follows a product")

    computes_operand = product = drawn
