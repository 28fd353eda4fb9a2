"""Results of many elements each: reductions over axes, running sums, statistics.

- `reductions`: sum, prod, max, min, argmax, argmin, all, any; ops and public functions
- `cumulative`: cumulative sums, products and extremes, first-order recurrences, differences
- `segments`: reductions of the elements with one segment number
- `statistics` and `covariance`: means, variances, covariances; compositions
- `nan_reductions`: reductions that leave out NaN; compositions
"""
