"""The Kronecker product."""

from __future__ import annotations

from graphfw.ir.functions import F, public
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor

__all__ = ["kron"]


@public
def kron(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Put x2, times each element of x1, in the place of that element.

    x1: [*A], x2: [*B] -> [*A times B]. The one of fewer dims gets dims of size 1 in front.

    Raises:
        DTypeError: A tensor is bool.

    >>> import graphfw as gf
    >>> gf.kron([[1, 10]], [[1, 2], [3, 4]])
    Tensor([[ 1,  2, 10, 20],
            [ 3,  4, 30, 40]], dtype=int64)
    """
    first, second = as_tensor(x1), as_tensor(x2)
    rank = max(first.ndim, second.ndim)
    outer = (1,) * (rank - first.ndim) + first.shape
    inner = (1,) * (rank - second.ndim) + second.shape
    apart = F.reshape(first, tuple([size for dim in outer for size in (dim, 1)]))
    beside = F.reshape(second, tuple([size for dim in inner for size in (1, dim)]))
    sizes = [a * b for a, b in zip(outer, inner, strict=True)]
    return F.reshape(apart * beside, tuple(sizes))
