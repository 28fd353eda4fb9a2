"""Reductions over processes in the order of `tree.py`, whatever library moves the arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from graphfw.distributed import tree
from graphfw.distributed.processes import ProcessGroup
from graphfw.distributed.tree import Subtree
from graphfw.ir.literal import Array

_SMALL = 16 << 10
"""Bytes up to which each process gets whole arrays, which saves one of two exchanges."""


def all_reduce(group: ProcessGroup, sums: Sequence[Array], shards: int, join: np.ufunc) -> Array:
    """Return the reduction of the shards of all processes.

    Each process finishes the tree for a piece of the elements, so that together they send as many
    bytes as in a ring.

    Args:
        group: The processes.
        sums: The values of this process's subtrees, 1-d.
        shards: The number of shards of all processes.
        join: Joins two arrays.
    """
    own = tree.subtrees_of_all(shards, group.count)
    size = sums[0].size
    if group.count == 1 or size * sums[0].itemsize <= _SMALL:
        found = group.all_gather(_joined(sums), [len(subtrees) * size for subtrees in own])
        return _finished(own, found, size, shards, join)
    bounds = [size * i // group.count for i in range(group.count + 1)]
    pieces = [slice(*ends) for ends in itertools.pairwise(bounds)]
    sizes = [piece.stop - piece.start for piece in pieces]
    mine = sizes[group.index]
    sent = sums[0] if len(sums) == 1 else _joined([one[piece] for piece in pieces for one in sums])
    found = group.all_to_all(
        sent, [len(sums) * n for n in sizes], [len(subtrees) * mine for subtrees in own]
    )
    return group.all_gather(_finished(own, found, mine, shards, join), sizes)


def reduced(found: Array, count: int, join: np.ufunc) -> Array:
    """Return the reduction of the arrays of all processes, which are rows of one array."""
    leaves = [[Subtree(number, 0)] for number in range(count)]
    return _finished(leaves, found, found.size // count, count, join)


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _finished(
    subtrees: Sequence[Sequence[Subtree]], found: Array, size: int, shards: int, join: np.ufunc
) -> Array:
    """Return the tree's root.

    Args:
        subtrees: Those of each process.
        found: Their values, one after the other; they are written over.
        size: The size of a value.
        shards: The number of shards.
        join: Joins two arrays.
    """
    order = itertools.chain.from_iterable(subtrees)
    values = {one: found[i * size : (i + 1) * size] for i, one in enumerate(order)}
    return tree.joined(values, tree.root(shards), shards, join)
