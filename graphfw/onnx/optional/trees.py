"""Ensembles of decision trees: the domain ai.onnx.ml."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import ModelNode, Value
from graphfw.onnx.optional.features import ML, POST_TRANSFORMS, labelled, transformed, two_classes
from graphfw.onnx.table import reads

Array: TypeAlias = np.ndarray[Any, Any]

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""The comparisons of nodes, by their numbers in opset 5; 6 is membership in a set."""
_MEMBER = 6
_MOST_WEIGHTS = 1 << 26


class _Trees(NamedTuple):
    """All nodes of all trees, leaves included: these lead to themselves.

    Attributes:
        feature: Which feature a node looks at.
        split: What it compares with.
        mode: How: see `_MODES`.
        yes: The node that comes next where the comparison holds.
        no: The node that comes next where it doesn't.
        missing: Whether NaN takes the way of `yes`.
        roots: The first node of each tree.
        weights: [nodes, targets] What a leaf gives to each target.
        given: [nodes, targets] Whether it does.
        sets: [nodes, most] The members of each node's set, padded with NaN.
    """

    feature: Array
    split: Array
    mode: Array
    yes: Array
    no: Array
    missing: Array
    roots: Array
    weights: Array
    given: Array
    sets: Array | None = None


@reads("TreeEnsemble", domain=ML)
def _tree_ensemble(node: ModelNode, x: Tensor) -> Tensor:
    splits, modes = np.asarray(node.attr("nodes_splits")), np.asarray(node.attr("nodes_modes"))
    weights = np.asarray(node.attr("leaf_weights"))
    count, leaves = len(splits), len(weights)
    ways = []
    for which in ("true", "false"):
        to = _ints(node, f"nodes_{which}nodeids", count)
        is_leaf = _ints(node, f"nodes_{which}leafs", count).astype(bool)
        ways.append(np.where(is_leaf, to + count, to))  # leaves are numbered after the nodes
    own = np.arange(count, count + leaves)
    tracks = node.attr("nodes_missing_value_tracks_true", (0,) * count)
    trees = _Trees(
        _extended(_ints(node, "nodes_featureids", count), leaves),
        _extended(splits, leaves),
        _extended(modes.astype(np.int64), leaves),
        np.concatenate([ways[0], own]),
        np.concatenate([ways[1], own]),
        _extended(np.asarray(tracks, bool), leaves),
        np.asarray(node.attr("tree_roots"), np.int64),
        *_tables(
            node,
            node.attr("n_targets", 1),
            count + leaves,
            own,
            node.attr("leaf_targetids"),
            weights,
        ),
        _members(node, modes, leaves, splits.dtype),
    )
    kind = node.attr("aggregate_function", 1)
    node.require(0 <= kind <= 3, f"aggregate_function is {kind}")
    total = _aggregated(node, x, trees, ("AVERAGE", "SUM", "MIN", "MAX")[kind])
    transform = node.attr("post_transform", 0)
    node.require(0 <= transform < len(POST_TRANSFORMS), f"post_transform is {transform}")
    return gf.astype(transformed(total, POST_TRANSFORMS[transform]), x.dtype)


@reads("TreeEnsembleRegressor", domain=ML)
def _regressor(node: ModelNode, x: Tensor) -> Tensor:
    count = node.attr("n_targets", 1)
    trees = _read(node, "target", count)
    how = node.choice("aggregate_function", "SUM", ("AVERAGE", "MAX", "MIN", "SUM"))
    total = _aggregated(node, x, trees, how)
    base = _numbers(node, "base_values")
    if len(base):
        node.require(
            len(base) == count, f"{len(base)} base_values don't fit {counted(count, 'target')}"
        )
        total = total + gf.constant(base.astype(np.float32))
    return transformed(total, node.choice("post_transform", "NONE", POST_TRANSFORMS))


@reads("TreeEnsembleClassifier", domain=ML)
def _classifier(node: ModelNode, x: Tensor) -> tuple[Value, Tensor]:
    labels = node.attr("classlabels_strings", ()) or node.attr("classlabels_int64s", ())
    trees = _read(node, "class", max(len(labels), 1))
    transform = node.choice("post_transform", "NONE", POST_TRANSFORMS)
    total = _aggregated(node, x, trees, "SUM")
    base = _numbers(node, "base_values").astype(np.float32)
    used = np.flatnonzero(trees.given.any(axis=0))
    is_probability = bool((trees.weights >= 0).all())
    bound = 0.5 if is_probability else 0.0
    if len(labels) == 2 and used.tolist() == [0]:
        score = total[:, 0] + float(base[-1]) if len(base) else total[:, 0]
        return two_classes(node, score, labels, transform, bound, adds_up=is_probability)
    if len(base):
        node.require(
            len(base) == len(labels),
            f"{len(base)} base_values for {counted(len(labels), 'class', 'classes')}",
        )
        total = total + gf.constant(base)
    if len(labels) == 2 and used.tolist() == [1]:
        indices = gf.astype(total[:, 1] > bound, gf.int64)
    else:
        indices = gf.argmax(total, axis=-1)
    return labelled(node, indices, labels), transformed(total, transform)


def _read(node: ModelNode, what: str, targets: int) -> _Trees:
    """Return the trees as opsets 1 and 3 write them: nodes with the numbers of their trees."""
    trees = np.asarray(node.attr("nodes_treeids"), np.int64)
    count = len(trees)
    ids = _ints(node, "nodes_nodeids", count)
    rows = {key: row for row, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    node.require(len(rows) == count, "two of its nodes have one number")
    words = node.attr("nodes_modes")
    known = len(words) == count and {*words} <= {*_MODES, "LEAF"}
    node.require(known, f"nodes_modes are not {count} of {', '.join(_MODES)}, LEAF")
    is_leaf = np.asarray([word == "LEAF" for word in words], bool)
    mode = np.asarray([0 if word == "LEAF" else _MODES.index(word) for word in words], np.int64)
    ways = [
        np.asarray(
            [
                row if leaf else rows.get((tree, to), -1)
                for row, (leaf, tree, to) in enumerate(
                    zip(
                        is_leaf.tolist(),
                        trees.tolist(),
                        _ints(node, f"nodes_{which}nodeids", count).tolist(),
                        strict=True,
                    )
                )
            ],
            np.int64,
        )
        for which in ("true", "false")
    ]
    tracks = node.attr("nodes_missing_value_tracks_true", ()) or (0,) * count
    inner = ~is_leaf
    led_to = np.zeros(count, bool)
    for way in ways:
        led_to[way[inner & (way >= 0)]] = True
    leaf_trees = node.attr(f"{what}_treeids")
    at = zip(leaf_trees, _ints(node, f"{what}_nodeids", len(leaf_trees)).tolist(), strict=True)
    leaves = np.asarray([rows.get(key, -1) for key in at], np.int64)
    weights = _numbers(node, f"{what}_weights")
    roots = np.flatnonzero(~led_to)
    one_each = np.array_equal(np.sort(trees[roots]), np.unique(trees))
    node.require(one_each, "its nodes are not trees: each should have one root")
    given, is_given = _tables(node, targets, count, leaves, node.attr(f"{what}_ids"), weights)
    yes, no = ways
    return _Trees(
        np.where(is_leaf, 0, _ints(node, "nodes_featureids", count)),
        _numbers(node, "nodes_values"),
        mode,
        yes,
        no,
        np.asarray(tracks, bool),
        roots,
        given,
        is_given,
    )


def _tables(
    node: ModelNode, targets: int, count: int, leaves: Array, ids: Any, weights: Array
) -> tuple[Array, Array]:
    """Return each leaf's weights for all targets, and whether it has one for each."""
    indices = np.asarray(ids, np.int64)
    node.require(len(indices) == len(weights) == len(leaves), "its leaves' numbers don't fit")
    node.require(0 < targets and targets * count <= _MOST_WEIGHTS, f"it has {targets} targets")
    fits = (leaves >= 0).all() and ((indices >= 0) & (indices < targets)).all()
    node.require(fits, "a leaf is none of its nodes, or gives to a target that there is not")
    table = np.zeros((count, targets), np.float64)
    np.add.at(table, (leaves, indices), weights)
    given = np.zeros((count, targets), bool)
    given[leaves, indices] = True
    return table, given


def _aggregated(node: ModelNode, x: Tensor, trees: _Trees, how: str) -> Tensor:
    """Aggregate the weights of the leaves that each row reaches.  x: [N, F] -> [N, targets]

    All rows go down all trees at once, a level at a time.
    """
    depth = _depth(node, trees)
    node.require(x.ndim == 2, f"x has {counted(x.ndim, 'dim')}, not 2")
    features = int(trees.feature.max(initial=0)) + 1
    enough = not isinstance(x.shape[1], int) or features <= x.shape[1]
    node.require(
        enough and trees.feature.min(initial=0) >= 0, f"x has no {counted(features, 'feature')}"
    )
    if not x.dtype.is_floating:
        x = gf.astype(x, gf.float32)
    split = gf.constant(trees.split.astype(x.dtype.dtype))
    feature, mode, missing, yes, no = map(
        gf.constant, (trees.feature, trees.mode, trees.missing, trees.yes, trees.no)
    )
    sets = None if trees.sets is None else gf.constant(trees.sets.astype(x.dtype.dtype))
    kinds = np.unique(trees.mode).tolist()

    def level(at: Tensor, _: Tensor) -> tuple[Tensor, None]:
        value = gf.take_along_axis(x, feature[at], axis=1)
        holds = _compared(value, split[at], mode[at], kinds)
        if sets is not None:
            inside = gf.any(gf.equal(gf.expand_dims(value, -1), sets[at]), axis=-1)
            holds = gf.where(mode[at] == _MEMBER, inside, holds)
        if trees.missing.any():
            holds = gf.logical_or(holds, gf.logical_and(missing[at], gf.isnan(value)))
        return gf.where(holds, yes[at], no[at]), None

    roots = gf.broadcast_to(gf.constant(trees.roots), (x.shape[0], len(trees.roots)))
    at, _ = gf.scan(level, roots, gf.arange(depth))
    dtype = x.dtype if node.op_type == "TreeEnsemble" else gf.float32
    weights = trees.weights
    if how in ("SUM", "AVERAGE"):
        total = gf.sum(gf.constant(weights.astype(dtype.dtype))[at], axis=1)
        return total / max(len(trees.roots), 1) if how == "AVERAGE" else total
    weights = np.where(trees.given, weights, np.inf if how == "MIN" else -np.inf)
    join = gf.min if how == "MIN" else gf.max
    made: Tensor = join(gf.constant(weights.astype(dtype.dtype))[at], axis=1)
    return made


def _compared(value: Tensor, split: Tensor, mode: Tensor, kinds: list[int]) -> Tensor:
    """Compare by the nodes' modes, of which only a few kinds occur."""
    made = value <= split
    others = (gf.less, gf.greater_equal, gf.greater, gf.equal, gf.not_equal)
    for number, compare in enumerate(others, 1):
        if number in kinds:
            made = gf.where(mode == number, compare(value, split), made)
    return made


def _depth(node: ModelNode, trees: _Trees) -> int:
    """Return how many levels the deepest tree has."""
    count = len(trees.yes)
    for table in (trees.feature, trees.split, trees.mode, trees.missing):
        node.require(
            len(table) == count, f"its tables have {len(table)} and {counted(count, 'node')}"
        )
    ways = np.stack([trees.yes, trees.no])
    own = np.arange(count)
    inner = (ways != own).any(axis=0)
    inside = (ways >= 0).all() and (ways < count).all()
    node.require(inside and (trees.roots >= 0).all(), "a node leads to none of its nodes")
    node.require((trees.roots < count).all(), "a tree begins with none of its nodes")
    led_to = ways[:, inner]
    parents = np.bincount(led_to[:, :][inner[led_to]], minlength=count)
    node.require((parents <= 1).all(), "its nodes are not trees: two lead to one")
    level, depth = trees.roots[inner[trees.roots]], 0
    seen = 0
    while len(level):
        seen += len(level)
        level = ways[:, level].ravel()
        level = level[inner[level]]
        depth += 1
        node.require(depth <= count, "its nodes are in a circle")
    node.require(seen == inner.sum(), "no tree leads to one of its nodes")
    return depth


def _members(node: ModelNode, modes: Array, leaves: int, dtype: Any) -> Array | None:
    """Return the members of each node's set, padded with NaN, which equals nothing."""
    values = node.attr("membership_values", None)
    if values is None or not (modes == _MEMBER).any():
        return None
    groups: list[list[float]] = [[]]
    for value in np.asarray(values).ravel().tolist():
        if np.isnan(value):
            groups.append([])
        else:
            groups[-1].append(value)
    width = max(len(g) for g in groups)
    table = np.full((len(modes) + leaves, max(width, 1)), np.nan, dtype)
    for position, group in zip(np.flatnonzero(modes == _MEMBER), groups, strict=False):
        table[position, : len(group)] = group
    return table


def _numbers(node: ModelNode, name: str) -> Array:
    """Return numbers, if there are any; opset 3 may have them as a tensor of another name."""
    tensor = node.attr(f"{name}_as_tensor", None)
    return np.asarray(node.attr(name, ()) if tensor is None else tensor)


def _ints(node: ModelNode, name: str, count: int) -> Array:
    values = np.asarray(node.attr(name), np.int64)
    node.require(len(values) == count, f"{name} has {counted(len(values), 'element')}, not {count}")
    return values


def _extended(table: Array, count: int) -> Array:
    return np.concatenate([table, np.zeros(count, table.dtype)])
