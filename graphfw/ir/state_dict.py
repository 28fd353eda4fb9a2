"""`StateDict`: contents of variables that are known to have graphfw's layouts."""

from __future__ import annotations

from typing import Any


class StateDict(dict[str, Any]):
    """Arrays by names of variables, as graphfw lays them out: what `state_dict` returns.

    A plain dict of arrays does not say whether matrices are transposed, as PyTorch's are.
    """

    __slots__ = ()
