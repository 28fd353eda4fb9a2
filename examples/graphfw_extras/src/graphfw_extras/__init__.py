"""Ops, a pass and an executor for graphfw, from outside."""

from graphfw_extras.executor import CountingExecutor
from graphfw_extras.moving_average import moving_average
from graphfw_extras.ops import softcap
from graphfw_extras.passes import SplitSoftcap

__all__ = ["CountingExecutor", "SplitSoftcap", "moving_average", "softcap"]
