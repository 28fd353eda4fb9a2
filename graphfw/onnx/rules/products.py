"""Products of matrices, and determinants."""

from __future__ import annotations

import graphfw as gf
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import Builder, Val
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import Rule, reads, two_way, writes

two_way(Rule("Det", gf.linalg.det))


@reads("MatMul")
def _matmul(node: ModelNode, a: Tensor, b: Tensor) -> Tensor:
    return gf.matmul(a, b)


@writes("matmul")
def _write_matmul(b: Builder, node: Node, x1: Val, x2: Val) -> Val:
    return b.cast(b("MatMul", b.accumulated(x1), b.accumulated(x2)), x1.dtype)


@reads("Gemm")
def gemm(node: ModelNode, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """Multiply matrices, and add to the product, as the node's attributes say."""
    product = (a.mT if node.attr("transA", 0) else a) @ (b.mT if node.attr("transB", 0) else b)
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if alpha != 1:
        product = _scaled(product, alpha)
    if c is None or beta == 0:
        return product
    return product + (c if beta == 1 else _scaled(c, beta))


def _scaled(x: Tensor, by: float) -> Tensor:
    return gf.astype(x * by, x.dtype)


@reads("Einsum")
def _einsum(node: ModelNode, *xs: Tensor) -> Tensor:
    return gf.einsum(node.attr("equation"), *xs)
