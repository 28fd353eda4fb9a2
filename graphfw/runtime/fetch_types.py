"""The types of fetches, feeds and results, by which type checkers know what a run returns.

Results are typed as NumPy arrays, which executors on CPUs return, and any with `host=True`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update

if TYPE_CHECKING:  # defaults are in `typing` from Python 3.13 on
    from typing_extensions import TypeVar

    ResultT_co = TypeVar("ResultT_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    ResultT_co = TypeVar("ResultT_co", covariant=True)

KeyT = TypeVar("KeyT")
FetchT = TypeVar("FetchT", bound="Tensor | str")
"""A fetch with a value: all but updates."""

FedT = TypeVar("FedT", bound="Tensor | str")
"""A key of feeds; a `Mapping` is of one type of keys."""

Fetches: TypeAlias = "Tensor | Update | str | Sequence[Fetches] | Mapping[Any, Fetches]"
"""A tensor, variable, update or name, or lists, tuples, named tuples and dicts of these, nested."""
