"""Ops whose shapes depend on elements, so that a size is known only when the graph runs.

- `measuring_ops`: nonzero, unique, sizes, non-maximum suppression
- `sets`: distinct elements and membership, NumPy's set functions; compositions
"""
