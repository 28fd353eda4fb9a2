"""Movement of elements: shapes, axes, concatenation, padding, indexing.

- `movement`: reshape, permute_dims, broadcast_to; the base `Movement` of ops that move elements
- `flip_roll`, `concat` (with split): further movements
- `axes`, `stacking` (stack, repeat, tile, NumPy's `vstack` and its like), `padding`: compositions
- `gather_scatter`, `scatter_extremes`: the ops of indexing, each with its adjoint
- `getitem`: the meaning of `x[key]`; `scatter`: functional updates at a key
- `flat_indices`: conversions between indices of a tensor and of the flattened tensor
"""
