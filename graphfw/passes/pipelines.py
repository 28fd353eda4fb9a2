"""The passes of a compilation, in order.

An executor chooses which: `NODEWISE` where each node is computed by itself, `DEFAULT` where many
are computed together, so that to compute one of them twice may cost nothing.
"""

from __future__ import annotations

from graphfw.passes import arithmetic, movement
from graphfw.passes.attention import DecomposeAttention, FuseAttention
from graphfw.passes.base import Pass
from graphfw.passes.complex_sums import SplitComplexSums
from graphfw.passes.control_flow import (
    ConvertIfs,
    EliminateDeadBodyValues,
    FuseScans,
    HoistInvariants,
    InlineCheckpoints,
    OptimiseBodies,
)
from graphfw.passes.cse import CSE
from graphfw.passes.dce import EliminateDeadCode
from graphfw.passes.fold_constants import FoldConstants
from graphfw.passes.fold_scale_into_weights import FoldScaleIntoWeights
from graphfw.passes.nest_concats import NestConcats
from graphfw.passes.rematerialise_elementwise import RematerialiseElementwise
from graphfw.passes.rules import RuleSet
from graphfw.passes.scalarise_stacks import ScalariseStacks
from graphfw.passes.sink_elementwise import SinkElementwiseBelowViews
from graphfw.passes.sink_products import SinkProductsBelowSlices

SIMPLIFY = RuleSet("simplify", (*arithmetic.RULES, *movement.RULES))

# Attention is found twice: at first just where `grad` has found it, before anything is rewritten;
# then in what the rules have made plain.
_FIRST: tuple[Pass, ...] = (
    InlineCheckpoints(),
    FuseScans(),
    EliminateDeadBodyValues(),
    ConvertIfs(),
    FuseAttention(),
    FoldConstants(),
    CSE(),
)

# Merging shows rules that two operands are one; what rules leave is folded and merged again.
_PLAIN: tuple[Pass, ...] = (
    *_FIRST,
    SIMPLIFY,
    ScalariseStacks(),
    FoldConstants(),
    CSE(),
    FuseAttention(),
    DecomposeAttention(),
    FoldScaleIntoWeights(),
    SinkProductsBelowSlices(),
    EliminateDeadBodyValues(),
    EliminateDeadCode(),
)

NODEWISE: tuple[Pass, ...] = (*_PLAIN, OptimiseBodies(_PLAIN), HoistInvariants())

_COMPILED: tuple[Pass, ...] = (SplitComplexSums(), SinkElementwiseBelowViews())

DEFAULT: tuple[Pass, ...] = (
    *NODEWISE,
    *_COMPILED,
    OptimiseBodies(_COMPILED),
    NestConcats(),
    RematerialiseElementwise(),
)

BEFORE_MIXED: tuple[Pass, ...] = (*_FIRST, OptimiseBodies(_FIRST))
"""The passes before mixed precision: forward and backward graphs that compute the same are one."""
