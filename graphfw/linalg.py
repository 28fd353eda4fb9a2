"""Linear algebra: the extension `linalg` of the Python Array API standard.

Besides: `eig` and `eigvals`, which its next version has, `lstsq`, `lu`, `matrix_exp`,
`solve_triangular`, and NumPy's `norm`.
"""

from typing import TYPE_CHECKING

from graphfw.hints.names import hints_for_module
from graphfw.ops.linalg.cholesky_qr import QRResult, cholesky, qr
from graphfw.ops.linalg.contractions import cross, outer, tensordot, trace, vecdot
from graphfw.ops.linalg.eigen_svd import (
    EigResult,
    SVDResult,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    svd,
    svdvals,
)
from graphfw.ops.linalg.matrix_functions import matrix_exp, matrix_power
from graphfw.ops.linalg.norms import matrix_norm, norm, vector_norm
from graphfw.ops.linalg.products import diagonal, matmul
from graphfw.ops.linalg.solve import (
    SlogdetResult,
    det,
    inv,
    lstsq,
    matrix_rank,
    pinv,
    slogdet,
    solve,
)
from graphfw.ops.linalg.triangular_lu import LUResult, lu, solve_triangular
from graphfw.ops.shape.axes import matrix_transpose

__all__ = [
    "EigResult",
    "LUResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "lu",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.linalg", __name__, __all__)
