"""The names for packages that add ops, passes and executors to graphfw.

`gf.Op`, `gf.op` and `gf.apply` make an op; here is what its rules are written with.
"""

from graphfw.ir.op import (
    ALIAS,
    COMMUTATIVE,
    EFFECT,
    ELEMENTWISE,
    IDEMPOTENT,
    INVOLUTION,
    NONDIFF,
    PURE,
    RANDOM,
    TRANSPARENT,
    Cost,
    Rng,
    Trait,
    bad,
    lookup,
    ok,
)
from graphfw.ir.rebuild import derive, rebuild
from graphfw.ir.shape import broadcast, reduced, require
from graphfw.ops.batching import MappedAxis, along_axes, leading
from graphfw.ops.data_dependent.measuring_ops import Measuring, measure
from graphfw.ops.numerics.wide import native, rounded
from graphfw.passes.base import Pass
from graphfw.passes.control_flow import OptimiseBodies
from graphfw.passes.manager import run_pipeline
from graphfw.passes.rules import RuleSet, rule
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Executable, Executor, Options
from graphfw.runtime.feeding import host_array
from graphfw.runtime.kernels.handwritten_cuda import HandwrittenCode, Launch, Variant
from graphfw.runtime.kernels.ir import Buffer
from graphfw.runtime.kernels.lowerings import lowers
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.program import Program

__all__ = [
    "ALIAS",
    "COMMUTATIVE",
    "EFFECT",
    "ELEMENTWISE",
    "IDEMPOTENT",
    "INVOLUTION",
    "NONDIFF",
    "PURE",
    "RANDOM",
    "TRANSPARENT",
    "ArrayExecutable",
    "Buffer",
    "Cost",
    "Executable",
    "Executor",
    "HandwrittenCode",
    "Launch",
    "MappedAxis",
    "Measuring",
    "OptimiseBodies",
    "Options",
    "Pass",
    "Program",
    "Rng",
    "RuleSet",
    "Step",
    "Trait",
    "Variant",
    "View",
    "along_axes",
    "bad",
    "broadcast",
    "derive",
    "host_array",
    "leading",
    "lookup",
    "lowers",
    "measure",
    "native",
    "ok",
    "rebuild",
    "reduced",
    "require",
    "rounded",
    "rule",
    "run_pipeline",
]
