"""Products of matrices."""

from __future__ import annotations

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import Call
from graphfw.onnx.table import reads


@reads("MatMul")
def _matmul(node: Call, a: Tensor, b: Tensor) -> Tensor:
    return gf.matmul(a, b)


@reads("Gemm")
def gemm(node: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
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
def _einsum(node: Call, *xs: Tensor) -> Tensor:
    return gf.einsum(node.attr("equation"), *xs)


@reads("Det")
def _det(node: Call, x: Tensor) -> Tensor:
    return gf.linalg.det(x)
