"""The passes of programs that are compiled for a CPU."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.passes import pipelines
from graphfw.passes.base import Pass
from graphfw.passes.pools import PoolFirst
from graphfw.runtime.numpy_executor.convolution import pools_while_computed


def passes() -> Sequence[Pass]:
    """Return them, in order."""
    return (*pipelines.DEFAULT, PoolFirst(pools_while_computed))
