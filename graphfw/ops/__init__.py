"""Every fact about every operation, and its public function: one file a family."""

from graphfw.ops import (
    creation,
    cumulative,
    elementwise,
    inputs,
    linalg,
    movement,
    reduce,
    sorting,
    statistics,
)

__all__ = [
    "creation",
    "cumulative",
    "elementwise",
    "inputs",
    "linalg",
    "movement",
    "reduce",
    "sorting",
    "statistics",
]
