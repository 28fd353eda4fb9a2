"""Numbers that are nearly equal."""

from __future__ import annotations

from graphfw.ir.dtype import float64
from graphfw.ir.functions import F, public
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, converted, promoted
from graphfw.ops.composed import wide

__all__ = ["allclose", "isclose"]


@public
def isclose(
    x1: TensorLike,
    x2: TensorLike,
    /,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    """Return where elements are close: |x1 - x2| <= atol + rtol |x2|.  [*A], [*A] -> [*A] bool

    The tensors broadcast and promote. Equal infinities are close. Integers are compared in float64,
    float16 and bfloat16 in float32.

    Args:
        x1: The numbers.
        x2: What they should be.
        rtol: How far they may be apart, as a fraction of |x2|.
        atol: How far they may be apart, besides.
        equal_nan: Whether NaN is close to NaN.

    Raises:
        ShapeError: The shapes don't broadcast.

    >>> import graphfw as gf
    >>> gf.isclose(gf.asarray([1.0, 2.0]), gf.asarray([1.000001, 2.1]))
    Tensor([ True, False], dtype=bool)
    """
    given = promoted("isclose", x1, x2)
    a, b = (wide(x) if x.dtype.is_inexact else converted(x, float64) for x in given)
    near = F.abs(a - b) <= atol + rtol * F.abs(b)
    # The distance of infinities is NaN, and atol + rtol * inf is above every distance.
    close = (near & F.isfinite(b)) | (a == b)
    result: Tensor = close | (F.isnan(a) & F.isnan(b)) if equal_nan else close
    return result


@public
def allclose(
    x1: TensorLike,
    x2: TensorLike,
    /,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    """Return whether all elements are nearly equal: see `isclose`.  [*A], [*A] -> [] bool

    Raises:
        ShapeError: The shapes don't broadcast.

    >>> import graphfw as gf
    >>> bool(gf.allclose(gf.asarray([1.0, 2.0]), [1.000001, 2.0]))
    True
    """
    return F.all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))
