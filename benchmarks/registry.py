"""All workloads by name, in the order in which they run."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads import (
    attention,
    distances,
    elementwise,
    gpt,
    matmul,
    mlp,
    normalise,
    optimiser,
    overhead,
    programs,
    rows,
    tiny,
)

_MODULES = (
    elementwise,
    rows,
    normalise,
    optimiser,
    matmul,
    mlp,
    gpt,
    attention,
    distances,
    tiny,
    overhead,
    programs,
)

WORKLOADS: dict[str, Workload] = {w.name: w for module in _MODULES for w in module.WORKLOADS}
