"""Scattering: sums at places, embeddings that are trained, gradients of gathers, graphs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula, by_path
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import NETWORKS, contest, each, name_of, normal
from benchmarks.longtail.model import SGD, Model
from benchmarks.workload import Case, Contest

# Sums at places.  places: [n], values: [n] or [n, d]


def _scattered(n: int, length: int, width: int) -> Arrays:
    indices = np.random.default_rng(0).integers(0, length, n)
    return [indices, *normal((n, width) if width else (n,))]


def _added(xp: Any, indices: Any, values: Any, *, length: int) -> Any:
    shape = (length, *values.shape[1:])
    name = name_of(xp)
    if name == "numpy":
        out = np.zeros(shape, values.dtype)
        np.add.at(out, indices, values)
        return out
    if name == "torch":
        return values.new_zeros(shape).index_add_(0, indices, values)
    return xp.zeros(shape).at[indices].add(values)


def add_numbers(draw: Draw) -> Contest:
    n, length = draw.size(100_000, 4_000_000), draw.size(1000, 1_000_000)
    formula = Formula(functools.partial(_scattered, n, length, 0), **each(_added, length=length))
    return contest(f"{n:,} numbers added at places among {length:,}", formula, rtol=1e-3, atol=1e-4)


def add_rows(draw: Draw) -> Contest:
    n, length, width = draw.size(20_000, 500_000), draw.size(100, 50_000), draw.size(4, 128)
    n = max(64, min(n, 20_000_000 // width))
    formula = Formula(
        functools.partial(_scattered, n, length, width), **each(_added, length=length)
    )
    title = f"{n:,} rows of {width} added at places among {length:,}"
    return contest(title, formula, rtol=1e-3, atol=1e-4)


def _maxima_numpy(values: Array, indices: Array, *, length: int) -> Array:
    out = np.full(length, -np.inf, values.dtype)
    np.maximum.at(out, indices, values)
    return out


def _maxima_torch(values: Any, indices: Any, *, length: int) -> Any:
    out = values.new_full((length,), -float("inf"))
    return out.index_reduce_(0, indices, values, "amax")


def _values_first(n: int, length: int) -> Arrays:
    indices, values = _scattered(n, length, 0)
    indices[:length] = np.arange(length)  # none has no value
    return [values, indices]


def segment_max(draw: Draw) -> Contest:
    n, length = draw.size(100_000, 4_000_000), draw.size(10, 50_000)
    formula = Formula(
        functools.partial(_values_first, n, length),
        by_path("graphfw:segment_max", length),
        functools.partial(_maxima_numpy, length=length),
        functools.partial(_maxima_torch, length=length),
        by_path("jax.ops:segment_max", length),
    )
    return contest(f"the largest of each of {length:,} segments of {n:,} numbers", formula)


# Values set at places, each there once.  places: [n], values: [n]


def _permuted(n: int, length: int) -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.permutation(length)[:n], rng.standard_normal(n, np.float32)]


def _set(xp: Any, indices: Any, values: Any, *, length: int) -> Any:
    if name_of(xp) in ("graphfw", "jax"):
        return xp.zeros((length,)).at[indices].set(values)
    out = xp.zeros(length, dtype=values.dtype)
    out[indices] = values
    return out


def set_numbers(draw: Draw) -> Contest:
    length = draw.size(100_000, 4_000_000)
    n = length // draw.choice(1, 2, 10)
    inputs = functools.partial(_permuted, n, length)
    formula = Formula(inputs, **each(_set, length=length))
    return contest(f"{n:,} numbers set at places among {length:,}", formula)


# Gradients of gathers


def _table(rows: int, width: int, count: int) -> Arrays:
    indices = np.random.default_rng(0).integers(0, rows, count)
    table, cotangent = normal((rows, width), (count, width))
    return [table, indices, cotangent]


def _taken(xp: Any, table: Any, indices: Any) -> Any:
    return table[indices]


def take_grad(draw: Draw) -> Contest:
    rows, width, count = draw.size(1000, 100_000), draw.size(8, 256), draw.size(1000, 50_000)
    inputs = functools.partial(_table, rows, width, count)
    formula = Formula(inputs, **each(_taken, NETWORKS), wrt=(0,))
    title = f"{count:,} rows of {rows:,}×{width} taken, and the table's gradient"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


def _along(rows: int, columns: int, count: int) -> Arrays:
    indices = np.random.default_rng(0).integers(0, columns, (rows, count))
    x, cotangent = normal((rows, columns), (rows, count))
    return [x, indices, cotangent]


def _taken_along(xp: Any, x: Any, indices: Any) -> Any:
    if name_of(xp) == "torch":
        return xp.take_along_dim(x, indices, 1)
    return xp.take_along_axis(x, indices, axis=1)


def take_along_axis_grad(draw: Draw) -> Contest:
    rows, columns, count = draw.size(256, 4096), draw.size(128, 2048), draw.size(1, 512)
    inputs = functools.partial(_along, rows, columns, count)
    formula = Formula(inputs, **each(_taken_along, NETWORKS), wrt=(0,))
    title = f"{count} of each row of {rows}×{columns} taken, and the gradient"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


# Messages along a graph's edges, and their gradients.  x: [nodes, d], edges: [m]


def _graph(nodes: int, edges: int, width: int) -> Arrays:
    rng = np.random.default_rng(0)
    ends = [rng.integers(0, nodes, edges) for _ in range(2)]
    x, weights, cotangent = normal((nodes, width), (edges, 1), (nodes, width))
    return [x, weights, *ends, cotangent]


def _messages(xp: Any, x: Any, weights: Any, begins: Any, ends: Any) -> Any:
    sent = x[begins] * weights
    if name_of(xp) == "torch":
        return xp.zeros_like(x).index_add(0, ends, sent)
    return xp.zeros_like(x).at[ends].add(sent)


def graph_messages_grad(draw: Draw) -> Contest:
    nodes, edges, width = draw.size(2000, 50_000), draw.size(10_000, 200_000), draw.size(8, 64)
    inputs = functools.partial(_graph, nodes, edges, width)
    formula = Formula(inputs, **each(_messages, NETWORKS), wrt=(0, 1))
    title = f"messages of {width} along {edges:,} edges of {nodes:,} nodes, and gradients"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-3)


# A bag of embeddings, trained by gradient descent.  words: [batch, length]


def _rows_of_words(words: int, width: int) -> list[Array]:
    return normal((words, width))


def _bags(words: int, width: int, batch: int, length: int) -> list[Arrays]:
    rng = np.random.default_rng(1)
    return [
        [rng.integers(0, words, (batch, length)), rng.standard_normal((batch, width), np.float32)]
        for _ in range(8)
    ]


def _bag_error(xp: Any, held: Any, words: Any, wanted: Any) -> Any:
    found = xp.mean(held[0][words], axis=1)
    return xp.mean((found - wanted) ** 2)


_RATE = 10.0


def _torch_bags(model: Model) -> Case:
    """Return a step whose gradient has only the rows that occur, as PyTorch's users ask for it."""
    import itertools

    from benchmarks.frameworks import torch_module, torch_tensors

    torch = torch_module()
    torch.set_grad_enabled(True)
    (table,) = torch_tensors(model.weights())
    bag = torch.nn.EmbeddingBag.from_pretrained(table, freeze=False, mode="mean", sparse=True)
    optimiser = torch.optim.SGD(bag.parameters(), lr=model.rate)
    stream = itertools.cycle([torch_tensors(batch) for batch in model.batches()])

    def step() -> Any:
        words, wanted = next(stream)
        optimiser.zero_grad()
        loss = torch.mean((bag(words) - wanted) ** 2)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Case(step)


def embedding_bag_step(draw: Draw) -> Contest:
    words, width = draw.size(10_000, 200_000), draw.size(16, 128)
    batch, length = draw.size(32, 512), draw.size(4, 32)
    model = Model(
        functools.partial(_rows_of_words, words, width),
        functools.partial(_bags, words, width, batch, length),
        each(_bag_error, NETWORKS),
        SGD,
        _RATE,
    )
    makers = model.makers(compiled=False)
    makers["torch"] = functools.partial(_torch_bags, model)
    title = f"a training step of {words:,} embeddings of {width}, {batch} bags of {length}, SGD"
    return Contest("", title, makers, rtol=1e-3, checks=3)


FAMILIES = {
    add_numbers: 1,
    add_rows: 1,
    segment_max: 1,
    set_numbers: 1,
    take_grad: 1,
    take_along_axis_grad: 1,
    graph_messages_grad: 1,
    embedding_bag_step: 1,
}
"""Each with how many workloads a run draws from it."""
