"""Random graphs compute in several processes what they compute in one, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.distributed import Mesh, SimulatedMesh
from graphfw.errors import ShardingError

ROWS = 24
_rng = np.random.default_rng(99)
X = _rng.normal(size=(ROWS, 4)).astype(np.float32)
Z = _rng.normal(size=(3, ROWS)).astype(np.float32)
LABELS = _rng.integers(0, 50, ROWS)


class Builder:
    """A graph that grows by random calls on what it has.

    Args:
        rng: The source of choices.
        split: Whether the dim of rows is split.
    """

    def __init__(self, rng: np.random.Generator, split: bool) -> None:
        self.rng = rng
        how = {"batch": "data"} if split else None
        self.x = gf.placeholder(("batch", 4), name="x", split=how)
        self.z = gf.placeholder((3, "batch"), name="z")
        self.labels = gf.placeholder(("batch",), gf.int64, name="labels")
        self.w = gf.Variable(rng.normal(size=(4, 4)).astype(np.float32), name="w")
        self.rows = self.x.shape[0]
        self.tensors = [self.x, self.z, gf.astype(self.labels, gf.float32), self.w, self.w[0]]
        self.calls: list[Callable[[], gf.Tensor]] = [
            self.elementwise,
            self.elementwise,
            self.reduction,
            self.reduction,
            self.product,
            self.moved,
            self.reshaped,
            self.window,
            self.along_an_axis,
            self.of_rows,
            self.by_index,
            self.looped,
            self.gradient,
        ]

    def grow(self) -> list[gf.Tensor]:
        """Make some calls, and return all results."""
        known = len(self.tensors)
        for _ in range(int(self.rng.integers(4, 12))):
            call = self.any_of(self.calls)
            try:
                found = call()
            except gf.GraphfwError:  # shapes that don't fit
                continue
            if found.ndim < 5:
                self.tensors.append(found)
        return self.tensors[known:]

    def any_of(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def tensor(self, ndim: int = 0) -> gf.Tensor:
        """Return a tensor with so many axes or more."""
        found: gf.Tensor = self.any_of([t for t in self.tensors if t.ndim >= ndim])
        return found

    def axis(self, x: gf.Tensor) -> int:
        return int(self.rng.integers(x.ndim))

    def elementwise(self) -> gf.Tensor:
        x, y = self.tensor(), self.tensor()
        made = [gf.tanh(x), gf.abs(x) + 1]
        calls = [gf.add, gf.multiply, gf.maximum, lambda x, y: gf.where(x > 0, x, y)]
        return self.any_of(made) if self.rng.integers(2) else self.any_of(calls)(x, y)

    def reduction(self) -> gf.Tensor:
        x = self.tensor(1)
        call = self.any_of([gf.sum, gf.mean, gf.max, gf.min, gf.var, gf.logsumexp])
        axis = None if self.rng.integers(3) == 0 else self.axis(x)
        return call(x, axis=axis, keepdims=bool(self.rng.integers(2)))

    def product(self) -> gf.Tensor:
        x, y = self.tensor(2), self.tensor(2)
        return gf.matmul(gf.matrix_transpose(x) if self.rng.integers(2) else x, y)

    def moved(self) -> gf.Tensor:
        x = self.tensor(2)
        return gf.permute_dims(x, [int(axis) for axis in self.rng.permutation(x.ndim)])

    def reshaped(self) -> gf.Tensor:
        x = self.tensor(1)
        shapes = [(-1,), (-1, 2), (*x.shape[:-1], -1, 1), (1, *x.shape), (2, -1)]
        return gf.reshape(x, self.any_of(shapes))

    def window(self) -> gf.Tensor:
        x = self.tensor(1)
        index: list[Any] = [slice(None)] * x.ndim
        index[self.axis(x)] = self.any_of([slice(1, None), slice(None, None, 2), 0, -1])
        return x[tuple(index)]

    def along_an_axis(self) -> gf.Tensor:
        x = self.tensor(1)
        axis = self.axis(x)
        made = [
            lambda: gf.softmax(x, axis=axis),
            lambda: gf.sort(x, axis=axis),
            lambda: gf.cumulative_sum(x, axis=axis),
            lambda: gf.roll(x, 1, axis=axis),
            lambda: gf.concat([x, x * 2], axis=axis),
            lambda: gf.astype(gf.argmax(x, axis=axis), gf.float32),
        ]
        return self.any_of(made)()

    def of_rows(self) -> gf.Tensor:
        made = [
            lambda: gf.astype(gf.arange(self.rows), gf.float32),
            lambda: gf.ones((self.rows, 2)) * 0.5,
            lambda: gf.random.normal((self.rows, 4)),
            lambda: gf.random.uniform((3, self.rows)),
            lambda: gf.astype(gf.dim_size(self.x, 0), gf.float32),
        ]
        return self.any_of(made)()

    def by_index(self) -> gf.Tensor:
        x = self.tensor(1)
        axis = self.axis(x)
        size = x.shape[axis]
        made = [
            lambda: gf.take(x, self.labels % (size if isinstance(size, int) else 3), axis=axis),
            lambda: gf.take_along_axis(self.x, (self.labels % 4)[:, None], axis=1),
            lambda: gf.astype(gf.one_hot(self.labels % 4, 4), gf.float32),
            lambda: gf.segment_sum(x, self.labels % 3, 3),
        ]
        return self.any_of(made)()

    def looped(self) -> gf.Tensor:
        x, y = self.tensor(), self.tensor()
        made = [
            lambda: gf.scan(lambda c, _: (gf.tanh(c) + 0.5 * x, None), x * 1, length=3)[0],
            lambda: gf.scan(lambda c, row: (c, gf.sin(row) * x), 0.0, gf.stack([y, y * 2]))[1],
            lambda: gf.scan(lambda c, _: (gf.tanh(c @ self.w), c), self.x, length=2)[1],
            lambda: gf.scan(lambda c, row: (c + gf.sum(x * row), row), 0.0, self.w)[0],
            lambda: gf.cond(gf.sum(self.w) > 0, lambda: gf.sin(x), lambda: x * 2),
            lambda: gf.checkpoint(lambda x: gf.tanh(x) * gf.sum(self.w) + gf.mean(x))(x),
        ]
        return self.any_of(made)()

    def gradient(self) -> gf.Tensor:
        loss = gf.mean(gf.tanh(self.tensor()) ** 2)
        return gf.grad(loss, self.any_of([self.w, self.x, self.z]))


def values(mesh: Mesh, seed: int, split: bool, **options: Any) -> list[Any]:
    """Return the values of a random graph's tensors, each with its split axis, or None."""
    with gf.Graph(mesh=mesh) as g:
        builder = Builder(np.random.default_rng(seed), split)
        found = builder.grow()
    own = mesh.shards("data", ROWS)
    rows = slice(own.start, own.stop)
    feeds = {builder.x: X[rows], builder.z: Z[:, rows], builder.labels: LABELS[rows]}
    results: list[Any] = []
    for tensor in found:
        axes = [axis for axis, dim in enumerate(tensor.shape) if "batch" in str(dim)]
        # A session for each, as runs that are refused make no step of random draws.
        with gf.Session(g, seed=1, threads=1, **options) as session:
            try:
                results.append((session.run(tensor, feeds), axes))
            except ShardingError:
                results.append(None)
    return results


def check(seed: int, count: int, **options: Any) -> list[bytes | None]:
    """Compare with one process, and return the bits."""
    (whole,) = SimulatedMesh(data=1).run(lambda mesh: values(mesh, seed, False))
    processes = SimulatedMesh(data=count).run(lambda m: values(m, seed, True, **options))
    bits: list[bytes | None] = []
    for expected, found in zip(whole, zip(*processes, strict=True), strict=True):
        if found[0] is None:
            bits.append(None)
            continue
        arrays, (axes, *_) = zip(*found, strict=True)
        array = np.concatenate(arrays, axis=axes[0]) if axes else arrays[0]
        if not axes:
            assert all(np.array_equal(array, one, equal_nan=True) for one in arrays)
        assert array.shape == expected[0].shape
        np.testing.assert_allclose(array, expected[0], rtol=2e-4, atol=2e-4)
        bits.append(array.tobytes())
    return bits


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs(seed: int):
    alone, two = check(seed, 1, shards=4), check(seed, 2, shards=4)
    assert alone == two
    assert any(bits is not None for bits in two)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 60))
def test_more_random_graphs(seed: int):
    assert check(seed, 1, shards=4) == check(seed, 4, shards=4)
    check(seed, 2)
    check(seed, 2, reduction="fast")
