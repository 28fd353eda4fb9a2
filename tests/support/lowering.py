"""Lowering a graph for the interpreter, and comparing with the reference evaluation."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from graphfw.ir.dim_text import evaluate
from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import derive
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse import Partition
from graphfw.passes.manager import run_pipeline
from graphfw.passes.pipelines import DEFAULT
from graphfw.passes.values import SampleInputs, evaluated
from graphfw.runtime.cupy_executor.codegen import CudaCode, HandwrittenCode
from graphfw.runtime.kernels.lower import Item
from graphfw.runtime.kernels.steps import ReferenceStep, Step
from graphfw.runtime.numpy_executor.codegen import KernelCode
from tests.support import cuda_kernels, kernel_interpreter
from tests.support.native_kernels import Native, execute

Array = np.ndarray[Any, np.dtype[Any]]

How: TypeAlias = Literal["interpreted", "native", "cuda"]

TOLERANCE = {"float16": 5e-3, "bfloat16": 4e-2, "float32": 2e-4, "float64": 1e-9}


def lowered(
    g: Graph, outputs: Sequence[Tensor], target: kernel_interpreter.Interpreted | None = None
) -> tuple[Graph, Partition, list[Item]]:
    """Optimise, partition and lower what the outputs need."""
    graph = run_pipeline(derive(g, list(outputs)), DEFAULT, verify="off").graph
    return (graph, *kernel_interpreter.compiled(graph, target))


def draw(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> dict[Node, Array]:
    """Draw values for placeholders and variables; integers from 0 to 2."""
    rng = np.random.default_rng(seed)
    feeds: dict[Node, Array] = {}
    for node in graph.nodes:
        if node.op.name not in ("placeholder", "variable"):
            continue
        dtype = node.types[0].dtype
        shape = [evaluate(dim, sizes) for dim in node.types[0].shape]
        values = rng.normal(size=shape) if dtype.is_inexact else rng.integers(0, 3, shape)
        if node.outputs[0].name.startswith("adam.v"):
            values = np.abs(values)
        feeds[node] = np.asarray(values).astype(dtype.dtype)
    return feeds


def assert_lowered(
    g: Graph,
    outputs: Sequence[Tensor],
    sizes: Mapping[str, int],
    *,
    how: How = "interpreted",
    most_numbers: int = sys.maxsize,
) -> list[Item]:
    """See that interpreting the steps gives what evaluating the nodes does; or running them."""
    targets = {
        "interpreted": kernel_interpreter.Interpreted,
        "native": Native,
        "cuda": cuda_kernels.Cuda,
    }
    target = targets[how]()
    target.most_numbers = most_numbers
    graph, groups, items = lowered(g, outputs, target)
    feeds = draw(graph, sizes)
    kernels = KernelCode | CudaCode | HandwrittenCode
    steps = [s for s in items if isinstance(s, Step) and isinstance(s.code, kernels)]
    run = {
        "interpreted": lambda steps: None,
        "native": execute,
        "cuda": cuda_kernels.execute,
    }[how](steps)
    found = kernel_interpreter.run(graph, groups, items, feeds, sizes, run)
    for tensor, a, b in zip(
        graph.outputs, found, evaluated(graph, SampleInputs(feeds, sizes)), strict=True
    ):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if not tensor.dtype.is_inexact:
            np.testing.assert_array_equal(a, b)
            continue
        tolerance = TOLERANCE[tensor.dtype.real.name]
        kind = tensor.dtype.real.is_low_precision
        a, b = (a.astype(np.float64), b.astype(np.float64)) if kind else (a, b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=str(tensor.type))
    return items


def reference_names(items: Sequence[Item]) -> list[str]:
    """Return the ops that are not lowered."""
    return [item.node.op.name for item in items if isinstance(item, ReferenceStep)]
