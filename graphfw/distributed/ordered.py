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
        sums: The values of this process's blocks, 1-d; they may be written over.
        shards: The number of shards of all processes.
        join: Joins two arrays.
    """
    own = [tree.blocks(tree.held(shards, group.count, i), shards) for i in range(group.count)]
    size = sums[0].size
    if group.count == 1:
        return _finished(own, [np.concatenate(sums)], shards, join)
    if size * sums[0].itemsize <= _SMALL:
        found = group.all_gather(np.concatenate(sums), [len(blocks) * size for blocks in own])
        return _finished(own, found, shards, join)
    bounds = [size * i // group.count for i in range(group.count + 1)]
    ranges = [slice(*ends) for ends in itertools.pairwise(bounds)]
    mine = bounds[group.index + 1] - bounds[group.index]
    pieces = [np.concatenate([one[range_] for one in sums]) for range_ in ranges]
    found = group.all_to_all(pieces, [len(blocks) * mine for blocks in own])
    piece = _finished(own, found, shards, join)
    return np.concatenate(group.all_gather(piece, [r.stop - r.start for r in ranges]))


def joined_in_order(arrays: Sequence[Array], join: np.ufunc) -> Array:
    """Return the reduction of one array of each process; they may be written over."""
    leaves = {Subtree(number, 0): array for number, array in enumerate(arrays)}
    return tree.joined(leaves, tree.root(len(arrays)), len(arrays), join)


def _finished(
    blocks: Sequence[Sequence[Subtree]], found: Sequence[Array], shards: int, join: np.ufunc
) -> Array:
    """Return the tree's root, given for each process its blocks and their values in one array."""
    values: dict[Subtree, Array] = {}
    for own, array in zip(blocks, found, strict=True):
        values.update(zip(own, array.reshape(len(own), -1), strict=True))
    return tree.joined(values, tree.root(shards), shards, join)
