"""The order of sums: a binary tree over shards, which does not depend on the number of processes.

Shard 0 and shard 1 are added, shard 2 and shard 3, then both sums, and so on; the last ones have no
partner where the number of shards is no power of two. A process has successive shards. It adds what
it can of the tree by itself: the largest subtrees whose shards are all here. The rest of the tree
begins with the subtrees of all processes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple, cast

import numpy as np

from graphfw.ir.literal import Array


class Subtree(NamedTuple):
    """A node of the tree: it sums the shards from `start` on, as many as 2 ** level.

    There are fewer where the shards end.
    """

    start: int
    level: int


def held(shards: int, count: int, index: int) -> range:
    """Return the shards of a process: the first processes have one more if they don't divide."""
    each, left = divmod(shards, count)
    start = index * each + min(index, left)
    return range(start, start + each + (index < left))


def subtrees(own: range, shards: int) -> list[Subtree]:
    """Return the largest nodes of the tree whose shards are all among a process's own."""
    found: list[Subtree] = []
    start = own.start
    while start < own.stop:
        level = 0
        while start % (2 << level) == 0 and _stop(Subtree(start, level + 1), shards) <= own.stop:
            if 1 << level >= shards:
                break
            level += 1
        found.append(Subtree(start, level))
        start = _stop(found[-1], shards)
    return found


@functools.cache
def subtrees_of_all(shards: int, count: int) -> list[list[Subtree]]:
    """Return the subtrees of each of some processes."""
    return [subtrees(held(shards, count, index), shards) for index in range(count)]


def root(shards: int) -> Subtree:
    """Return the node that joins all shards."""
    return Subtree(0, (shards - 1).bit_length())


def joined(values: Mapping[Subtree, Array], node: Subtree, shards: int, join: np.ufunc) -> Array:
    """Return the value of a node of the tree, given those of nodes that it is made of.

    Arrays that are given are written over.
    """
    if node in values:
        return values[node]
    left = joined(values, Subtree(node.start, node.level - 1), shards, join)
    middle = node.start + (1 << (node.level - 1))
    if middle >= shards:
        return left
    right = joined(values, Subtree(middle, node.level - 1), shards, join)
    return cast("Array", join(left, right, out=left))


def joined_subtrees(x: Array, own: range, shards: int, join: np.ufunc) -> list[Array]:
    """Return the values of a process's subtrees, given its shards along axis 0."""
    leaves = {Subtree(number, 0): x[number - own.start].copy() for number in own}
    return [joined(leaves, node, shards, join) for node in subtrees(own, shards)]


def _stop(node: Subtree, shards: int) -> int:
    return min(node.start + (1 << node.level), shards)
