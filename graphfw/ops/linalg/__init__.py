"""Linear algebra: products, decompositions, linear equations, norms.

- `products`: matmul, tensordot, vecdot, outer, diagonal, trace; `einsum`; `kronecker`
- `matrix_rules`: type rules and helpers that the ops on matrices share
- `cholesky_qr`, `triangular_lu`, `eigen_svd`: decompositions
- `solve`: linear equations, inverses, determinants, rank, powers
- `norms`, `matrix_functions`: compositions
- `fused_matmul`: a product with the epilogue that a GPU's library computes along with it
"""
