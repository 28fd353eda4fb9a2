"""Recurrent layers, many small products, and chains of contractions."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.frameworks import Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import contest, each, name_of, normal
from benchmarks.workload import Contest
from benchmarks.workloads import recurrent


def _layer(draw: Draw, cell: str, backward: bool) -> Contest:
    steps, batch = draw.size(50, 400, least=8), draw.size(1, 64)
    layer = recurrent.Layer(cell, steps, batch, draw.size(32, 256), draw.size(32, 320))
    return recurrent.contest("", layer, backward)


def lstm(draw: Draw) -> Contest:
    return _layer(draw, "lstm", False)


def lstm_grad(draw: Draw) -> Contest:
    return _layer(draw, "lstm", True)


def gru(draw: Draw) -> Contest:
    return _layer(draw, "gru", False)


def gru_grad(draw: Draw) -> Contest:
    return _layer(draw, "gru", True)


# Many small products.  x, y: [b, n, n]


def _product(xp: Any, x: Any, y: Any) -> Any:
    return x @ y


def _products(draw: Draw, low: int, high: int) -> Contest:
    count, n = draw.size(500, 20_000), draw.size(low, high, least=2)
    count, dtype = max(8, min(count, 2_000_000 // (n * n))), draw.choice("float32", "float64")
    inputs = functools.partial(normal, (count, n, n), (count, n, n), dtype=dtype)
    formula = Formula(inputs, **each(_product))
    title = f"{count:,} products of {n}×{n} {dtype}"
    return contest(title, formula, dtype=dtype, compiled=True, rtol=1e-3, atol=1e-4)


def tiny_products(draw: Draw) -> Contest:
    return _products(draw, 2, 8)


def small_products(draw: Draw) -> Contest:
    return _products(draw, 9, 64)


# Affine maps one after the other: a chain of poses.  x: [b, 4, 4]


def _poses(xp: Any, x: Any, y: Any, z: Any) -> Any:
    moved = x @ y @ z
    return moved[:, :3, :3] @ y[:, :3, 3:] + moved[:, :3, 3:]


def pose_chain(draw: Draw) -> Contest:
    n = draw.size(1000, 100_000)
    formula = Formula(functools.partial(normal, *[(n, 4, 4)] * 3), **each(_poses))
    title = f"{n:,} chains of poses, 4×4"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


# Contractions


def _contracted(xp: Any, *arrays: Any, equation: str) -> Any:
    if name_of(xp) == "numpy":
        return xp.einsum(equation, *arrays, optimize=True)
    return xp.einsum(equation, *arrays)


def _einsum(draw: Draw, equation: str, low: int, high: int) -> Contest:
    sizes = {letter: draw.size(low, high) for letter in sorted(set(equation) - set(",->"))}
    shapes = [tuple(sizes[i] for i in term) for term in equation.split("->")[0].split(",")]
    formula = Formula(functools.partial(normal, *shapes), **each(_contracted, equation=equation))
    title = f"{equation} with {', '.join(f'{i} {n}' for i, n in sizes.items())}"
    return contest(title, formula, rtol=1e-3, atol=1e-4)


def einsum_chain(draw: Draw) -> Contest:
    return _einsum(draw, draw.choice("ij,jk,kl,lm->im", "ij,jk,kl,l->i", "ai,ij,jb->ab"), 32, 512)


def einsum_tensors(draw: Draw) -> Contest:
    equation = draw.choice("bi,bj,ijk->bk", "abc,bd,ce,af->fde", "ijk,ilm,njm,nlk->", "bij,bjk->ik")
    return _einsum(draw, equation, 8, 64)


FAMILIES = {
    lstm: 1,
    lstm_grad: 1,
    gru: 1,
    gru_grad: 1,
    tiny_products: 1,
    small_products: 1,
    pose_chain: 1,
    einsum_chain: 1,
    einsum_tensors: 1,
}
"""Each with how many workloads a run draws from it."""
