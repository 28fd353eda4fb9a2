"""The passes of a compilation, in order."""

from __future__ import annotations

from graphfw.passes import arithmetic, movement
from graphfw.passes.attention import FuseAttention
from graphfw.passes.base import Pass
from graphfw.passes.cse import CSE
from graphfw.passes.fold import Fold
from graphfw.passes.prune import Prune
from graphfw.passes.rules import RuleSet

SIMPLIFY = RuleSet("simplify", (*arithmetic.RULES, *movement.RULES))

# Merging shows rules that two operands are one; what rules leave is folded and merged again.
DEFAULT: tuple[Pass, ...] = (Fold(), CSE(), SIMPLIFY, Fold(), CSE(), FuseAttention(), Prune())
