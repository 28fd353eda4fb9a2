"""The passes of a compilation, in order.

An executor chooses which: `NODEWISE` where each node is computed by itself, `DEFAULT` where many
are computed together, so that to compute one of them twice may cost nothing.
"""

from __future__ import annotations

from graphfw.passes import arithmetic, movement
from graphfw.passes.attention import ComposeAttention, FuseAttention
from graphfw.passes.base import Pass
from graphfw.passes.cse import CSE
from graphfw.passes.economise import Economise
from graphfw.passes.fold import Fold
from graphfw.passes.joins import NestJoins
from graphfw.passes.prune import Prune
from graphfw.passes.regions import (
    HoistInvariants,
    InlineCheckpoints,
    MergeScans,
    OptimiseBodies,
    PruneRegions,
    SelectBranches,
)
from graphfw.passes.rules import RuleSet
from graphfw.passes.stacks import SplitStacks
from graphfw.passes.weights import ScaleWeights

SIMPLIFY = RuleSet("simplify", (*arithmetic.RULES, *movement.RULES))

# Attention is found twice: at first just where `grad` has found it, before anything is rewritten;
# then in what the rules have made plain.
_FIRST: tuple[Pass, ...] = (
    InlineCheckpoints(),
    MergeScans(),
    PruneRegions(),
    SelectBranches(),
    FuseAttention(),
    Fold(),
    CSE(),
)

# Merging shows rules that two operands are one; what rules leave is folded and merged again.
_PLAIN: tuple[Pass, ...] = (
    *_FIRST,
    SIMPLIFY,
    SplitStacks(),
    Fold(),
    CSE(),
    FuseAttention(),
    ComposeAttention(),
    ScaleWeights(),
    PruneRegions(),
    Prune(),
)

NODEWISE: tuple[Pass, ...] = (*_PLAIN, OptimiseBodies(_PLAIN), HoistInvariants())

DEFAULT: tuple[Pass, ...] = (*NODEWISE, NestJoins(), Economise())

BEFORE_MIXED: tuple[Pass, ...] = (*_FIRST, OptimiseBodies(_FIRST))
"""The passes before mixed precision: forward and backward parts that compute the same are one."""
