"""All workloads by name, in the order in which they run."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads import (
    attention,
    compile,
    distances,
    elementwise,
    gpt,
    loops,
    matmul,
    mlp,
    models,
    normalise,
    optimiser,
    overhead,
    programs,
    recurrent,
    rows,
    tiny,
    transforms,
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
    loops,
    recurrent,
    transforms,
    tiny,
    overhead,
    compile,
    programs,
    models,
)

WORKLOADS: dict[str, Workload] = {w.name: w for module in _MODULES for w in module.WORKLOADS}
