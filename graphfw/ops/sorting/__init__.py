"""Order: sorting, searching, counting.

- `sort_search`: sort, argsort, topk and searchsorted; ops and public functions
- `quantiles`: quantiles and medians; compositions
- `histograms`: counts of integers and of elements in bins; compositions
"""
