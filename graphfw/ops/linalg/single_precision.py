"""Decompositions of float32 and complex64 matrices in single precision.

`numpy.linalg` computes in double precision always, and rounds the results. Its module of ufuncs has
loops in single precision, too, which take about half the time. That module is not public: where a
version of NumPy has not the ufunc or the loop, there is no such function here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from graphfw.ir.dtype import DType

_MODULE = "numpy.linalg._umath_linalg"


class _Loops(NamedTuple):
    """The loops of a ufunc for single precision.

    Attributes:
        ufunc: Which ufunc has them.
        real: Its signature for float32.
        complex: And for complex64.
    """

    ufunc: str
    real: str
    complex: str


_LOOPS = {
    "eigh": _Loops("eigh_lo", "f->ff", "F->fF"),
    "eigvalsh": _Loops("eigvalsh_lo", "f->f", "F->f"),
    "svd": _Loops("svd_s", "f->fff", "F->FfF"),
    "full svd": _Loops("svd_f", "f->fff", "F->FfF"),
    "svdvals": _Loops("svd", "f->f", "F->f"),
}


def single_precision(xp: Any, dtype: DType, name: str) -> Callable[..., Any] | None:
    """Return a function of LAPACK's in single precision.

    Args:
        xp: The array module.
        dtype: Of the matrices.
        name: One of `eigh`, `eigvalsh`, `svd`, `full svd` and `svdvals`.

    Returns:
        A function that takes an array and raises NumPy's error where LAPACK gives up; None where
        there is none.
    """
    if xp is not np or dtype.name not in ("float32", "complex64"):
        return None
    loops = _LOOPS[name]
    signature = loops.complex if dtype.is_complex else loops.real
    try:
        ufunc: Any = getattr(import_module(_MODULE), loops.ufunc, None)
    except ImportError:
        return None
    if signature not in getattr(ufunc, "types", ()):
        return None

    def compute(x: Any) -> Any:
        # LAPACK's failures are told as invalid operations, as to `numpy.linalg`.
        with np.errstate(all="ignore", invalid="call", call=_give_up):
            return ufunc(x, signature=signature)

    return compute


def _give_up(error: str, flag: int) -> None:
    raise np.linalg.LinAlgError(error)
