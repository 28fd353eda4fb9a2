"""Helpers of the tests of passes: graphs of expressions, their structure, and hard inputs."""

import functools

import numpy as np

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.dim import symbol
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import BY_NAME
from graphfw.ir.functions import FUNCTIONS
from graphfw.ir.graph import Graph
from graphfw.ir.op import REGISTRY
from graphfw.ir.rebuild import derive, live_nodes
from graphfw.ir.types import parse_type
from graphfw.passes.values import SampleInputs, evaluated


def raw(name, *inputs, **fields):
    """Emit an op as it is, without what its public function saves."""
    return emit(REGISTRY[name](**fields), *inputs)


def graph_of(*expressions: str, takes: str) -> Graph:
    """The graph of expressions over placeholders: takes="x: float32[3, n]; y: bool[]"."""
    names = {
        **FUNCTIONS,
        **BY_NAME,
        "n": symbol("n"),
        "raw": raw,
        "inf": np.inf,
        "np": np,
        "functools": functools,
    }
    with gf.Graph() as graph:
        for declaration in filter(None, takes.split(";")):
            name, kind = declaration.split(":")
            parsed = parse_type(kind)
            names[name.strip()] = gf.placeholder(parsed.shape, parsed.dtype, name=name.strip())
        outputs = [eval(expression, names) for expression in expressions]
    return derive(graph, outputs)


def structure(graph: Graph) -> list[str]:
    """One line a node, the same for graphs that differ only in order and places."""
    numbers, lines = {}, []

    def visit(node):
        if node not in numbers:
            inputs = [f"{visit(t.node)}.{t.index}" for t in node.inputs]
            numbers[node] = len(numbers)
            name = node.name if node.op.name == "placeholder" else ""
            lines.append(f"{node.op!r}{name}({', '.join(inputs)})")
        return numbers[node]

    outputs = [f"-> {visit(t.node)}.{t.index}" for t in graph.outputs]
    return lines + outputs


def ops_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 0.1, 65504.0, 2.5]


def hard_draw(graph: Graph, rng: np.random.Generator, n: int = 4) -> SampleInputs:
    """Inputs full of special floats and of integers that overflow."""
    feeds = {}
    for node in live_nodes(graph):
        if node.op.name != "placeholder":
            continue
        dtype = node.types[0].dtype
        shape = tuple(evaluate(d, {"n": n}) for d in node.types[0].shape)
        if dtype.is_bool:
            array = rng.random(shape) < 0.5
        elif dtype.is_integer:
            limits = np.iinfo(dtype.dtype)
            array = rng.choice([0, 1, 2, limits.min, limits.max], shape)
        else:
            array = np.where(
                rng.random(shape) < 0.8, rng.choice(SPECIAL, shape), rng.standard_normal(shape)
            )
            if dtype.is_complex:
                array = np.asarray(array + 0j)
                array.imag = rng.choice(SPECIAL, shape)
        with np.errstate(all="ignore"):
            feeds[node] = np.asarray(array).astype(dtype.dtype)
    return SampleInputs(feeds, {"n": n})


def assert_same_bits(before: Graph, after: Graph, draw: SampleInputs) -> None:
    """The outputs agree bit for bit, but for the bits inside a NaN."""
    for a, b in zip(evaluated(before, draw), evaluated(after, draw), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        components = [(a.real, b.real), (a.imag, b.imag)] if np.iscomplexobj(a) else [(a, b)]
        for x, y in components:
            if x.dtype.kind in "biu":
                np.testing.assert_array_equal(x, y)
                continue
            x, y = x.astype(np.float64), y.astype(np.float64)
            np.testing.assert_array_equal(x, y)
            number = ~np.isnan(x)
            np.testing.assert_array_equal(np.signbit(x[number]), np.signbit(y[number]))
