"""Rules between the entries of PyTorch's layers and graphfw's, each declared once for both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from graphfw.nn.weight_names import renaming

State = dict[str, Any]
"""Arrays by names relative to a layer."""


class TorchRule(Protocol):
    """A difference between the entries of PyTorch's layer and of graphfw's.

    Entries that a state lacks stay missing, whoever loads it names them.
    """

    def moved(self, names: Iterable[str]) -> Sequence[str]:
        """Return the names whose entries have other names in PyTorch."""

    def from_torch(self, state: State) -> State:
        """Return PyTorch's entries as graphfw's layer has them."""

    def to_torch(self, state: State) -> State:
        """Return graphfw's entries as PyTorch's layer has them."""


@dataclass(frozen=True, slots=True)
class Transposed:
    """Matrices that PyTorch keeps transposed.

    Attributes:
        names: A pattern of their names: * stands for any text.
    """

    names: str

    def moved(self, names: Iterable[str]) -> Sequence[str]:
        """Return none of the names."""
        return ()

    def from_torch(self, state: State) -> State:
        """Transpose the matrices."""
        return {n: a.T if fnmatchcase(n, self.names) else a for n, a in state.items()}

    to_torch = from_torch


@dataclass(frozen=True, slots=True)
class Renamed:
    """An entry with another name in PyTorch."""

    theirs: str
    own: str

    def moved(self, names: Iterable[str]) -> Sequence[str]:
        """Return the entry's name, if it is there."""
        return [name for name in names if name == self.own]

    def from_torch(self, state: State) -> State:
        """Give the entry graphfw's name."""
        return {self.own if name == self.theirs else name: a for name, a in state.items()}

    def to_torch(self, state: State) -> State:
        """Give the entry PyTorch's name."""
        return {self.theirs if name == self.own else name: a for name, a in state.items()}


@dataclass(frozen=True, slots=True)
class RenamedScopes:
    """Scopes with other names in PyTorch.

    Attributes:
        table: From the begins of PyTorch's names to those of graphfw's, as `load_pytorch` takes it;
            but rows may fit no entry. Of rows with one right side the last is what PyTorch writes,
            and those before are what it wrote once.
    """

    table: Mapping[str, str]

    def moved(self, names: Iterable[str]) -> Sequence[str]:
        """Return the names that a row fits."""
        rename = self._to_theirs()
        return [name for name in names if rename(name) != name]

    def from_torch(self, state: State) -> State:
        """Give the entries graphfw's names."""
        rename = renaming(self.table)
        return {rename(name): a for name, a in state.items()}

    def to_torch(self, state: State) -> State:
        """Give the entries PyTorch's names."""
        rename = self._to_theirs()
        return {rename(name): a for name, a in state.items()}

    def _to_theirs(self) -> Callable[[str], str]:
        return renaming({own: theirs for theirs, own in self.table.items()})


@dataclass(frozen=True, slots=True)
class Concatenated:
    """Entries that PyTorch keeps as one, one after the other along its first axis.

    Attributes:
        theirs: PyTorch's name.
        own: graphfw's names, in order.
        rows: The sizes along that axis; None where they are equal.
    """

    theirs: str
    own: Sequence[str]
    rows: Sequence[int] | None = None

    def moved(self, names: Iterable[str]) -> Sequence[str]:
        """Return the entries' names that are there."""
        return [name for name in names if name in self.own]

    def from_torch(self, state: State) -> State:
        """Split PyTorch's entry, if its size permits; otherwise it stays, and does not fit."""
        joined = state.get(self.theirs)
        if joined is None or not joined.ndim:
            return state
        rows = self.rows or [joined.shape[0] // len(self.own)] * len(self.own)
        if sum(rows) != joined.shape[0]:
            return state
        sections = np.split(joined, [*accumulate(rows)][:-1])
        others = {name: a for name, a in state.items() if name != self.theirs}
        return others | dict(zip(self.own, sections, strict=True))

    def to_torch(self, state: State) -> State:
        """Concatenate graphfw's entries, if all are there."""
        if not all(name in state for name in self.own):
            return state
        others = {name: a for name, a in state.items() if name not in self.own}
        return others | {self.theirs: np.concatenate([state[name] for name in self.own])}


@dataclass(frozen=True, slots=True)
class OfConvolutions:
    """Matrices that PyTorch keeps as kernels of convolutions over windows of one element.

    Attributes:
        names: A pattern of their names: * stands for any text.
    """

    names: str

    def moved(self, names: Iterable[str]) -> Sequence[str]:
        """Return none of the names."""
        return ()

    def from_torch(self, state: State) -> State:
        """Take the dims of the windows off."""
        return {n: a.reshape(a.shape[:2]) if self._is_one(n) else a for n, a in state.items()}

    def to_torch(self, state: State) -> State:
        """Add dims of windows of one element."""
        return {n: a.reshape(*a.shape, 1, 1) if self._is_one(n) else a for n, a in state.items()}

    def _is_one(self, name: str) -> bool:
        return fnmatchcase(name, self.names)


@dataclass(frozen=True, slots=True)
class TheirsAlone:
    """An integer that PyTorch keeps and graphfw does not need; zero says as much to PyTorch."""

    theirs: str

    def moved(self, names: Iterable[str]) -> Sequence[str]:
        """Return none of the names."""
        return ()

    def from_torch(self, state: State) -> State:
        """Leave the entry out."""
        return {name: a for name, a in state.items() if name != self.theirs}

    def to_torch(self, state: State) -> State:
        """Add the entry."""
        return state | {self.theirs: np.zeros((), np.int64)}
