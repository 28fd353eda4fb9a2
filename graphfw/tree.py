"""Nested tuples, lists and dicts: functions of their leaves, named as those of `jax.tree`.

Named tuples are nodes as well, and None is one without leaves. Everything else is a leaf: arrays,
tensors, numbers, modules. Leaves are in the order of a dict's keys, as Python keeps it; JAX sorts
the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from graphfw.errors import ArgumentError, a_type, counted
from graphfw.hints.calls import explained
from graphfw.hints.names import hints_for_module
from graphfw.ops.composed import callback, demand
from graphfw.utils import nest
from graphfw.utils.nest import TreeStructure

__all__ = ["flatten", "leaves", "map", "structure", "unflatten"]


@explained
def map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Return a tree with a function's result in place of each leaf.

    Args:
        fn: Takes a leaf of `tree`, and the leaf at the same path of each of `rest`.
        tree: Nested tuples, lists and dicts.
        rest: Trees of the same structure; their dicts may have the keys in another order.

    Returns:
        The results, nested like `tree`.

    Raises:
        ArgumentError: One of `rest` has another structure; `fn` is no function.

    >>> import graphfw as gf
    >>> gf.tree.map(lambda p, g: p - 0.5 * g, {"w": 1.0, "b": [2.0]}, {"b": [4.0], "w": 2.0})
    {'w': 0.0, 'b': [0.0]}
    """
    fn = callback("tree.map", "fn", fn, "fn(leaf, …)")
    others = [list(_like(tree, other, number, "tree")) for number, other in enumerate(rest)]
    results = [fn(*found) for found in zip(leaves(tree), *others, strict=True)]
    return TreeStructure(tree).pack(results)


@explained
def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree, in order.

    >>> import graphfw as gf
    >>> gf.tree.leaves({"w": 1, "b": [2, None, (3, 4)]})
    [1, 2, 3, 4]
    """
    return [leaf for leaf in nest.leaves(tree) if leaf is not None]


@explained
def flatten(tree: Any) -> tuple[list[Any], TreeStructure]:
    """Return the leaves of a tree and its structure, from which `unflatten` makes it again.

    >>> import graphfw as gf
    >>> gf.tree.flatten({"w": 1, "b": [2, None]})
    ([1, 2], TreeStructure({'w': *, 'b': [*, None]}))
    """
    return leaves(tree), TreeStructure(tree)


@explained
def structure(tree: Any) -> TreeStructure:
    """Return the structure of a tree, which can be compared and is a key of dicts.

    >>> import graphfw as gf
    >>> gf.tree.structure((1, 2)) == gf.tree.structure((3, "text"))
    True
    """
    return TreeStructure(tree)


@explained
def unflatten(structure: TreeStructure, leaves: Iterable[Any]) -> Any:
    """Return the tree that has a structure and these leaves.

    Args:
        structure: What `flatten` or `structure` returned.
        leaves: As many leaves as it has, in order.

    Raises:
        ArgumentError: There are more or fewer leaves; `structure` is none.

    >>> import graphfw as gf
    >>> found, structure = gf.tree.flatten({"w": 1, "b": [2]})
    >>> gf.tree.unflatten(structure, [x * 10 for x in found])
    {'w': 10, 'b': [20]}
    """
    message = f"tree.unflatten: structure is {a_type(structure)}"
    demand(isinstance(structure, TreeStructure), message, fix="pass gf.tree.structure(tree)")
    values = list(leaves)
    demand(
        len(values) == structure.num_leaves,
        f"tree.unflatten: {counted(len(values), 'leaf', 'leaves')}, and the structure has "
        f"{structure.num_leaves}",
        fix=f"pass a leaf for each * of {structure!r}",
    )
    return structure.pack(values)


def _like(tree: Any, other: Any, number: int, path: str) -> Iterator[Any]:
    """Yield the leaves of a tree in the order of those of another.

    Args:
        tree: The tree whose order it is.
        other: The tree whose leaves it yields.
        number: The index of `other` among the arguments after the first tree.
        path: The expression of `tree` in the first tree.

    Raises:
        ArgumentError: Their structures differ.
    """
    kind = _kind(tree)
    if kind != _kind(other):
        _fail(path, kind, number, _kind(other))
    if isinstance(tree, Mapping) and tree.keys() != other.keys():
        _fail(path, f"a dict of {[*tree]}", number, f"one of {[*other]}")
    if isinstance(tree, (Mapping, list, tuple)):
        if len(tree) != len(other):
            _fail(path, f"{kind} of {len(tree)}", number, f"one of {len(other)}")
        for key, value in nest.children(tree):
            yield from _like(value, other[key], number, path + nest.accessor(tree, key))
    elif tree is not None:
        yield other


def _kind(tree: Any) -> str:
    if isinstance(tree, Mapping):
        return "a dict"
    if isinstance(tree, (list, tuple)):
        return a_type(tree)
    return "None" if tree is None else "a leaf"


def _fail(path: str, first: str, number: int, second: str) -> None:
    raise ArgumentError(
        f"tree.map: {path} is {first}, and in rest[{number}] it is {second}",
        fix="use the same nesting of tuples, lists and dicts, with the same keys",
    )


if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.tree", __name__, __all__)
