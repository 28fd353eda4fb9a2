"""All workloads of a device by name, in the order in which they run."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads import (
    attention,
    checkpoints,
    compile,
    convnets,
    distances,
    elementwise,
    everyday,
    generation,
    gpt,
    gpu,
    load,
    loops,
    matmul,
    mlp,
    models,
    normalise,
    ocr,
    optimiser,
    overhead,
    pipelines,
    programs,
    recurrent,
    rows,
    tiny,
    transforms,
    windows,
)

_MODULES = (
    elementwise,
    rows,
    normalise,
    optimiser,
    matmul,
    mlp,
    gpt,
    generation,
    attention,
    distances,
    loops,
    recurrent,
    transforms,
    everyday,
    tiny,
    overhead,
    compile,
    programs,
    models,
    windows,
    ocr,
    load,
    checkpoints,
    pipelines,
    convnets,
)

WORKLOADS: dict[str, dict[str, Workload]] = {
    "cpu": {w.name: w for module in _MODULES for w in module.WORKLOADS},
    "cuda": {w.name: w for w in gpu.WORKLOADS},
}
