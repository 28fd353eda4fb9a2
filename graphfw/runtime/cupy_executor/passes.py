"""The passes of programs that are compiled for a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.passes import pipelines
from graphfw.passes.base import Pass
from graphfw.runtime.cupy_executor import attention
from graphfw.runtime.cupy_executor.convolution import channels_last
from graphfw.runtime.cupy_executor.epilogues import FuseEpilogues


def passes(capability: str) -> Sequence[Pass]:
    """Return the passes, in order, for a GPU of this compute capability."""
    return (*pipelines.DEFAULT, *last_passes(capability))


def last_passes(capability: str) -> Sequence[Pass]:
    """Return the passes that come last, and that bodies of loops and branches need once more."""
    asks = not attention.why_not(capability)
    found: list[Pass] = [attention.PassAttentionResult()] if asks else []
    if not channels_last.why_not():
        found.append(channels_last.PropagateChannelsLast())  # which makes products
    return [*found, FuseEpilogues()]
