"""Nested structures: lists, tuples, named tuples and dicts of tensors, or of things to fetch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    if isinstance(structure, Mapping):
        for key, value in structure.items():
            yield from paths(value, f"{name}[{key!r}]")
    elif isinstance(structure, (list, tuple)):
        fields = getattr(type(structure), "_fields", ())
        for index, value in enumerate(structure):
            yield from paths(value, f"{name}.{fields[index]}" if fields else f"{name}[{index}]")
    else:
        yield name, structure


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
