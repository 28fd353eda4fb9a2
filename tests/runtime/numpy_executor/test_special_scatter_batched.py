"""index_add and index_set with leading indices that count: each batch is indexed by itself."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ir.build import emit
from graphfw.ops.shape.gather_scatter import IndexAdd, IndexSet
from graphfw.ops.shape.scatter_extremes import IndexMax
from graphfw.runtime.numpy_executor.special import scatter
from graphfw.runtime.numpy_executor.special.indices import batched
from tests.runtime.numpy_executor.special_runs import same


@pytest.fixture(autouse=True, params=["one work item", "many work items"])
def work_items(request, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    if request.param == "many work items":
        monkeypatch.setattr(scatter, "_WORK_ITEM", 1)
        monkeypatch.setattr(scatter, "_BLOCK", 3)


@pytest.fixture
def counted(monkeypatch):
    """Return how many indices of each node were found to count."""
    found = []

    def watched(*args):
        result = batched(*args)
        found.append(result.counting)
        return result

    monkeypatch.setattr(scatter, "batched", watched)
    return found


def check(op, x, values, *indices, first=None):
    """Compare a program with `eval`; `first` names the first dim of all arrays."""
    with gf.Graph() as g:

        def fed(array):
            return gf.placeholder((first or array.shape[0], *array.shape[1:]), array.dtype)

        target, added = fed(x), fed(values)
        named = [index(target) if callable(index) else fed(index) for index in indices]
        y = emit(op, target, added, *named)
    takes = [target, added, *[t for t in named if t.node.op.name == "placeholder"]]
    arrays = [index for index in indices if not callable(index)]
    with gf.Session(g) as session:
        got = session.compile(y, takes)(x, values, *arrays)
    known = [index(gf.constant(x)).numpy() if callable(index) else index for index in indices]
    same(got, op.eval(np, x, values, *known))


def along(axis, shape):
    """Return the index 0, 1, 2, … along an axis of x, in a shape with -1 for that."""
    return lambda x: gf.reshape(gf.arange(x.shape[axis]), shape)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bool"])
@pytest.mark.parametrize("op", [IndexAdd(0), IndexSet(0)])
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("first", [None, "n"])
def test_columns_of_each_row(rng, counted, op, dtype, rows, first):
    if dtype == "bool" and isinstance(op, IndexAdd):
        return
    x, values = [rng.standard_normal((rows, n)).astype(dtype) for n in (9, 14)]
    check(op, x, values, along(0, (-1, 1)), rng.integers(-9, 9, (rows, 14)), first=first)
    assert counted == [1]


@pytest.mark.parametrize("shape", [(4, 3, 20), (1, 3, 20), (4, 1, 20), (1, 1, 20), (20,)])
@pytest.mark.parametrize("op", [IndexAdd(1), IndexSet(1)])
def test_batches_that_share_indices(rng, counted, op, shape):
    x = rng.standard_normal((2, 4, 3, 11, 5)).astype(np.float32)
    values = rng.standard_normal((2, 4, 3, 20, 5)).astype(np.float32)
    indices = rng.integers(-11, 11, shape)
    check(op, x, values, along(1, (-1, 1, 1)), along(2, (-1, 1)), indices)
    assert counted == [2]


def test_several_indices_of_each_batch(rng, counted):
    x = rng.standard_normal((3, 4, 6, 7)).astype(np.float32)
    values = rng.standard_normal((3, 4, 5, 8)).astype(np.float32)
    rows, columns = rng.integers(0, 6, (3, 1, 5, 8)), rng.integers(0, 7, (5, 1))
    batch, channel = along(0, (-1, 1, 1, 1)), along(1, (-1, 1, 1))
    check(IndexAdd(0), x, values, batch, channel, rows, columns)
    check(IndexSet(0), x, values, batch, channel, rows, columns)
    assert counted == [2, 2]


@pytest.mark.parametrize("op", [IndexAdd(0), IndexSet(0)])
def test_more_indices_than_they_have_dims(rng, op):
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    value, values = (rng.standard_normal(shape).astype(np.float32) for shape in [(5,), (3,)])
    check(op, x, value, *[lambda x, i=i: gf.constant(np.array(i)) for i in (2, -1)])
    check(op, x, values, along(0, (-1,)), np.array([3, 0, -1]), np.array([1, 1, 4]))


def test_what_only_seems_to_count(rng, counted):
    x, values = [rng.standard_normal((5, n)).astype(np.float32) for n in (9, 4)]
    columns = rng.integers(0, 9, (5, 4))
    for row in (
        lambda x: gf.flip(gf.arange(5))[:, None],
        lambda x: gf.constant(np.array([0, 1, 2, 3, 3]))[:, None],
        lambda x: gf.arange(4),
        rng.integers(0, 5, (5, 1)),
    ):
        check(IndexAdd(0), x, values, row, columns)
    check(IndexAdd(0), x, x, lambda x: gf.arange(5))
    assert counted == [0] * 5


def test_sums_of_integers_and_extremes(rng):
    x, values = rng.integers(0, 99, (6, 9)), rng.integers(0, 99, (6, 40))
    columns = rng.integers(0, 9, (6, 40))
    for op in (IndexAdd(0), IndexSet(0), IndexMax(0)):
        check(op, x, values, along(0, (-1, 1)), columns)


def test_a_wrong_index_of_a_batch_is_named(rng):
    x, values = [rng.standard_normal((5, n)).astype(np.float32) for n in (9, 4)]
    columns = rng.integers(0, 9, (5, 4))
    columns[3, 2] = 9
    with pytest.raises(ExecutionError, match="9"):
        check(IndexAdd(0), x, values, along(0, (-1, 1)), columns)


def test_the_gradient_of_a_grid_sample(rng):
    images = rng.standard_normal((2, 3, 7, 8)).astype(np.float32)
    grid = rng.uniform(-1.2, 1.2, (2, 5, 4, 2)).astype(np.float32)
    with gf.Graph() as g:
        x, points = gf.placeholder(("n", 3, 7, 8)), gf.placeholder(("n", 5, 4, 2))
        loss = gf.sum(gf.grid_sample(x, points) ** 2)
        gradients = gf.grad(loss, [x, points])
    found = gf.Session(g).compile(gradients, [x, points])(images, grid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHFW_JIT", "0")
        wanted = gf.Session(g).compile(gradients, [x, points])(images, grid)
    for got, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
