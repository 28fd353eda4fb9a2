"""Everyday functions of arrays that the Array API standard does not have, as `gf` exports them."""

from graphfw.ops.elementwise.isclose import allclose, isclose
from graphfw.ops.linalg.kronecker import kron
from graphfw.ops.reduce.covariance import corrcoef, cov
from graphfw.ops.reduce.cumulative import cumulative_max, cumulative_min
from graphfw.ops.reduce.nan_reductions import (
    nanargmax,
    nanargmin,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
)
from graphfw.ops.reduce.segments import (
    segment_max,
    segment_mean,
    segment_min,
    segment_prod,
    segment_sum,
)
from graphfw.ops.reduce.statistics import average
from graphfw.ops.shape.flat_indices import ravel_multi_index, unravel_index
from graphfw.ops.shape.scatter import index_max, index_min, index_multiply, put_along_axis
from graphfw.ops.shape.stacking import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_shapes,
    column_stack,
    diag,
    dstack,
    hstack,
    rot90,
    vstack,
)
from graphfw.ops.signal.polynomials import convolve, polyfit, polyval, vander
from graphfw.ops.signal.sampled_functions import ediff1d, gradient, interp, sinc, trapezoid, unwrap
from graphfw.ops.sorting.histograms import Histogram, bincount, digitize, histogram
from graphfw.ops.sorting.quantiles import (
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)

__all__ = [
    "Histogram",
    "allclose",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "average",
    "bincount",
    "broadcast_shapes",
    "column_stack",
    "convolve",
    "corrcoef",
    "cov",
    "cumulative_max",
    "cumulative_min",
    "diag",
    "digitize",
    "dstack",
    "ediff1d",
    "gradient",
    "histogram",
    "hstack",
    "index_max",
    "index_min",
    "index_multiply",
    "interp",
    "isclose",
    "kron",
    "median",
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanpercentile",
    "nanprod",
    "nanquantile",
    "nanstd",
    "nansum",
    "nanvar",
    "percentile",
    "polyfit",
    "polyval",
    "put_along_axis",
    "quantile",
    "ravel_multi_index",
    "rot90",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "sinc",
    "trapezoid",
    "unravel_index",
    "unwrap",
    "vander",
    "vstack",
]
