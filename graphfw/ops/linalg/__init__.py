"""Linear algebra: products, decompositions, linear equations, norms.

- `products`: matmul and diagonal
- `contractions` (tensordot, vecdot, outer, cross, trace), `einsum`, `kronecker`: compositions
- `matrix_rules`: type rules and helpers that the ops on matrices share
- `cholesky_qr`, `triangular_lu`, `eigen_svd`: decompositions
- `solve`: linear equations, inverses, determinants, rank
- `norms`, `matrix_functions` (powers and the exponential): compositions
- `fused_matmul`: a product with the epilogue that a GPU's library computes along with it
"""
