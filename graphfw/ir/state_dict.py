"""Whose layouts weights have: graphfw's (`StateDict`), or PyTorch's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from graphfw.errors import ArgumentError


class StateDict(dict[str, Any]):
    """Arrays by names of variables, as graphfw lays them out: what `state_dict` returns.

    A plain dict of arrays does not say whether matrices are transposed, as PyTorch's are, and nor
    do entries that are set later: those are known that are still what they were in the beginning.
    """

    __slots__ = ("_given",)

    def __init__(self, arrays: Mapping[str, Any] = {}) -> None:
        super().__init__(arrays)
        self._given = dict(arrays)

    def known(self) -> set[str]:
        """Return the names of the entries that nobody has set since."""
        return {name for name, array in self.items() if self._given.get(name) is array}

    def copy(self) -> StateDict:
        """Return a copy, which knows as much."""
        copied = StateDict(self._given)
        copied.clear()
        copied.update(self)
        return copied

    def __or__(self, other: Any) -> Any:
        joined = self.copy()
        joined.update(other)
        return joined


def is_torch_tensor(value: object) -> bool:
    """Return whether something is a tensor of PyTorch's."""
    torch = sys.modules.get("torch")  # whoever has one has imported it
    return torch is not None and isinstance(value, torch.Tensor)


def refuse_square(what: str, value: object) -> None:
    """See that a value for a matrix which is the transpose of PyTorch's is no square tensor of its.

    Raises:
        ArgumentError: It is.
    """
    if is_torch_tensor(value):
        shape = tuple(getattr(value, "shape", ()))
        if len(shape) == 2 and shape[0] == shape[1]:
            raise ArgumentError(
                f"{what} is given a square tensor of PyTorch's, and nothing says whether it is "
                "transposed",
                fix="pass tensor.T.numpy(force=True) if it is the weight of PyTorch's layer, and "
                "tensor.numpy(force=True) if it is transposed already",
            )
