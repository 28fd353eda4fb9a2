"""Nested structures: lists, tuples, named tuples and dicts of tensors, or of things to fetch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any


def leaves(structure: Any) -> Iterator[Any]:
    """Yield the leaves of a nested structure, in order."""
    if isinstance(structure, Mapping):
        for value in structure.values():
            yield from leaves(value)
    elif isinstance(structure, (list, tuple)):
        for value in structure:
            yield from leaves(value)
    else:
        yield structure


def paths(structure: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves, in order, each after the expression that leads to it: `xs['w'][0]`.

    Args:
        structure: The nested structure.
        name: The expression of the structure itself, such as `xs`.
    """
    if not isinstance(structure, (Mapping, list, tuple)):
        yield name, structure
        return
    for key, value in children(structure):
        yield from paths(value, name + accessor(structure, key))


def children(structure: Mapping[Any, Any] | Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Return the keys or indices of a dict, list or tuple, each with what it leads to."""
    items = structure.items() if isinstance(structure, Mapping) else enumerate(structure)
    return iter(items)


def accessor(structure: Mapping[Any, Any] | Sequence[Any], key: Any) -> str:
    """Return the text of the entry of a key or index: `['w']`, `[0]`, `.x`."""
    fields = getattr(type(structure), "_fields", ())
    return f".{fields[key]}" if fields else f"[{key!r}]"


def packer(structure: Any) -> Callable[[Iterator[Any]], Any]:
    """Return a function that puts as many values as there are leaves into the same structure."""
    if isinstance(structure, Mapping):
        keys = list(structure)
        packers = [packer(value) for value in structure.values()]
        return lambda values: {k: pack(values) for k, pack in zip(keys, packers, strict=True)}
    if isinstance(structure, tuple):
        packers = [packer(value) for value in structure]
        make = getattr(type(structure), "_make", tuple)
        return lambda values: make([pack(values) for pack in packers])
    if isinstance(structure, list):
        packers = [packer(value) for value in structure]
        return lambda values: [pack(values) for pack in packers]
    return next


class TreeStructure:
    """The nesting of tuples, lists and dicts, without the leaves; None holds none.

    Two are equal if their leaves are nested alike, and in the same order: that of the keys in a
    dict counts.

    Args:
        tree: Anything that is nested so.

    Attributes:
        num_leaves: The number of leaves.
    """

    def __init__(self, tree: Any) -> None:
        self._is_leaf = [leaf is not None for leaf in leaves(tree)]
        self._pack = packer(tree)
        self.num_leaves = sum(self._is_leaf)
        self._example = self.pack(repeat(_LEAF))
        self._key = key(self._example, str)

    def pack(self, values: Iterable[Any]) -> Any:
        """Return as many values as there are leaves, nested so."""
        rest = iter(values)
        return self._pack(iter([next(rest) if is_leaf else None for is_leaf in self._is_leaf]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeStructure) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"TreeStructure({self._example!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeStructure, (self._example,)


class _Leaf:
    def __repr__(self) -> str:
        return "*"


_LEAF = _Leaf()


def key(structure: Any, named: Callable[[str], Any]) -> Any:
    """Return a hashable key of a structure: objects count by identity, names as what they name."""
    if isinstance(structure, str):
        return named(structure)
    if isinstance(structure, Mapping):
        names = tuple([(type(k), k) for k in structure])  # 1 == True, but they are two keys
        return ("dict", names, tuple([key(v, named) for v in structure.values()]))
    if isinstance(structure, (list, tuple)):
        return (type(structure), *[key(v, named) for v in structure])
    return id(structure)
