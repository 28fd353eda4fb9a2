"""Every fact about every operation, and its public function: one file a family."""

from graphfw.ops import (
    cast,
    compare,
    creation,
    cumulative,
    elementwise,
    inputs,
    linalg,
    mathfn,
    movement,
    reduce,
    select,
    sorting,
    statistics,
)

__all__ = [
    "cast",
    "compare",
    "creation",
    "cumulative",
    "elementwise",
    "inputs",
    "linalg",
    "mathfn",
    "movement",
    "reduce",
    "select",
    "sorting",
    "statistics",
]
