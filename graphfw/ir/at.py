"""`x.at[key].set(values)`: a tensor with other elements at a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphfw.hints.calls import explained
from graphfw.hints.names import Answering
from graphfw.ir.functions import OVERRIDABLE
from graphfw.ir.operators import typed

if TYPE_CHECKING:
    from graphfw.ir.tensor import Tensor


class At:
    """The object `x.at`: index it."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __getitem__(self, key: Any) -> Selection:
        return Selection(self._x, key)

    def __repr__(self) -> str:
        return "x.at[key].set(values), .add, .multiply, .max or .min make another tensor"


@explained
class Selection(Answering):
    """The object `x.at[key]`: its methods return x with the elements at `x[key]` changed.

    Values broadcast to `x[key]` and must fit x's dtype. Where a key names an element twice, all its
    values are added, multiplied or compared; of those that are set, the last counts.
    """

    __slots__ = ("_key", "_x")

    _answers_as = "Selection"

    def __init__(self, x: Tensor, key: Any) -> None:
        self._x = x
        self._key = key

    def set(self, values: Any) -> Tensor:
        """Return x with `x[key]` replaced: `gf.index_set`."""
        return self._put("index_set", values)

    def add(self, values: Any) -> Tensor:
        """Return x with values added to `x[key]`: `gf.index_add`."""
        return self._put("index_add", values)

    def multiply(self, values: Any) -> Tensor:
        """Return x with `x[key]` multiplied by values: `gf.index_multiply`."""
        return self._put("index_multiply", values)

    def max(self, values: Any) -> Tensor:
        """Return x with the larger of `x[key]` and values: `gf.index_max`."""
        return self._put("index_max", values)

    def min(self, values: Any) -> Tensor:
        """Return x with the smaller of `x[key]` and values: `gf.index_min`."""
        return self._put("index_min", values)

    def _put(self, name: str, values: Any) -> Tensor:
        return typed(OVERRIDABLE[name](self._x, self._key, values))

    def __repr__(self) -> str:
        return f"x.at[{self._key!r}]: write .set(values), .add, .multiply, .max or .min behind it"
