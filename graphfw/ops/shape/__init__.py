"""Movement of elements: shapes, axes, concatenation, padding, indexing.

- `movement`: reshape, transpose, broadcast; the base `Movement` of ops that only move elements
- `flip_roll`, `concat` (with split, stack, repeat, tile): further movements
- `padding`, `stacking` (NumPy's `vstack` and its like): compositions
- `gather_scatter`, `scatter_extremes`: the ops of indexing, each with its adjoint
- `getitem`: the meaning of `x[key]`; `scatter`: functional updates at a key
- `flat_indices`: conversions between indices of a tensor and of the flattened tensor
"""
