import re

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients


def run(graph, fetch, feeds):
    with gf.Session(graph) as session:
        return session.run(fetch, feeds)


def same(tensor, array):
    value = tensor.numpy()
    assert value.dtype == array.dtype
    assert value.shape == array.shape == tensor.shape
    assert np.array_equal(value, array)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_concat_is_numpys(rng, axis):
    arrays = [rng.standard_normal((3, 4, 2)) for _ in range(3)]
    same(gf.concat(arrays, axis=axis), np.concatenate(arrays, axis))


def test_concat_of_other_sizes_and_dtypes(rng):
    a = rng.integers(0, 9, (2, 3)).astype("int8")
    b = rng.standard_normal((0, 3)).astype("float32")
    c = rng.standard_normal((1, 3))
    same(gf.concat([a, b, c]), np.concatenate([a, b, c]))
    x = gf.asarray(a)
    assert gf.concat([x]) is x


def test_concat_of_symbolic_dims_adds_them():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2), "float64", name="x")
        y = gf.concat([x, gf.ones((3, 2), dtype="float64"), x])
    assert y.shape == (2 * x.shape[0] + 3, 2)
    fed = np.arange(4.0).reshape(2, 2)
    assert np.array_equal(run(g, y, {x: fed}), np.concatenate([fed, np.ones((3, 2)), fed]))


def test_concat_tells_operands_and_axis():
    with gf.Graph():
        x = gf.placeholder(("batch", 3), name="left")
        y = gf.placeholder(("batch", 4), name="right")
        z = gf.placeholder(("other", 4), name="third")
        with pytest.raises(gf.ShapeError) as caught:
            gf.concat([x, y])
        text = str(caught.value)
        assert "concat: dims beside axis 0 differ: x0[1] = 3, x1[1] = 4" in text
        assert '"left"' in text
        assert '"right"' in text
        assert caught.value.fix == "join them along axis=1, or make the dims equal"
        with pytest.raises(gf.ShapeError, match="beside axis 1 differ") as caught:
            gf.concat([y, y, z], axis=1)
        assert [operand.name for operand in caught.value.operands] == ["right", "third"]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_stack_and_unstack(rng, axis):
    arrays = [rng.standard_normal((2, 3)) for _ in range(4)]
    stacked = gf.stack(arrays, axis=axis)
    same(stacked, np.stack(arrays, axis))
    back = gf.unstack(stacked, axis=axis)
    assert len(back) == 4
    for tensor, array in zip(back, arrays, strict=True):
        same(tensor, array)
    assert gf.unstack(gf.zeros((2, 0)), axis=1) == ()


@pytest.mark.parametrize(
    ("sections", "axis"),
    [(2, 0), (3, 1), (1, -1), ((1, 3), 0), ((0, 2, 2), 1), ((-2,), 1), ((), 0)],
)
def test_split_is_numpys(rng, sections, axis):
    array = rng.standard_normal((4, 3))
    ours = gf.split(gf.asarray(array), sections, axis)
    for tensor, section in zip(ours, np.split(array, sections, axis), strict=True):
        same(tensor, section)


def test_split_of_symbolic_dims():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2), "float64", name="x")
        n = x.shape[0]
        halves = gf.split(gf.concat([x, 2 * x]), 2)
        cut = gf.split(gf.concat([x, 2 * x]), (1, n))
    assert [section.shape for section in halves] == [(n, 2)] * 2
    assert [section.shape for section in cut] == [(1, 2), (n - 1, 2), (n, 2)]
    fed = np.arange(6.0).reshape(3, 2)
    values = run(g, [*halves, *cut], {x: fed})
    expected = [fed, 2 * fed, fed[:1], fed[1:], 2 * fed]
    assert all(np.array_equal(v, e) for v, e in zip(values, expected, strict=True))


@pytest.mark.parametrize(
    ("repeats", "axis"),
    [(2, None), (0, 1), (3, -1), ([1, 0, 2], 1), (np.array([2, 1]), 0), ([2], 0)],
)
def test_repeat_is_numpys(rng, repeats, axis):
    array = rng.standard_normal((2, 3))
    same(gf.repeat(array, repeats, axis=axis), np.repeat(array, repeats, axis))


@pytest.mark.parametrize("times", [2, (2,), (2, 1), (1, 0), (3, 1, 2), 1])
def test_tile_is_numpys(rng, times):
    array = rng.standard_normal((2, 3))
    same(gf.tile(array, times), np.tile(array, times))


def test_repeat_and_tile_by_dims():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2), "float64", name="x")
        n = x.shape[0]
        y, z = gf.repeat(x, n, axis=0), gf.tile(x, (1, n))
    assert y.shape == (n * n, 2)
    assert z.shape == (n, 2 * n)
    fed = np.arange(6.0).reshape(3, 2)
    repeated, tiled = run(g, [y, z], {x: fed})
    assert np.array_equal(repeated, np.repeat(fed, 3, 0))
    assert np.array_equal(tiled, np.tile(fed, (1, 3)))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_meshgrid_is_numpys(indexing, count):
    axes = [np.arange(n, dtype="float64") for n in (2, 3, 4)][:count]
    ours = gf.meshgrid(*axes, indexing=indexing)
    for tensor, grid in zip(ours, np.meshgrid(*axes, indexing=indexing), strict=True):
        same(tensor, grid)


WIDTHS = [0, 2, (1, 3), ((0, 4), (7, 0)), ((2, 1),), np.int64(1)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("width", WIDTHS, ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (1, 2)], ids=str)
def test_pad_is_numpys(rng, shape, width, mode):
    array = rng.standard_normal(shape)
    same(gf.pad(array, width, mode=mode), np.pad(array, width, mode=mode))
    with gf.Graph() as g:
        x = gf.placeholder((None, None), "float64", name="x")
        y = gf.pad(x, width, mode=mode)
    assert np.array_equal(run(g, y, {x: array}), np.pad(array, width, mode=mode))


def test_pad_with_a_value_and_by_dims():
    same(gf.pad(gf.ones(2), (1, 0), constant_values=-2.5), np.array([-2.5, 1, 1], "float32"))
    same(gf.pad(gf.zeros((0, 1)), 1, constant_values=3), np.full((2, 3), np.float32(3)))
    with gf.Graph() as g:
        x = gf.placeholder(("n",), "float64", name="x")
        y = gf.pad(x, (x.shape[0], 1))
    assert y.shape == (2 * x.shape[0] + 1,)
    assert run(g, y, {x: [1, 2]}).tolist() == [0, 0, 1, 2, 0]


COMPOSED = {
    "concat": lambda x: gf.concat([x, 2 * x, x[:, :0]], axis=1),
    "stack": lambda x: gf.stack([x, x * x], axis=1),
    "unstack": lambda x: gf.unstack(x)[0] * gf.unstack(x)[2],
    "split": lambda x: gf.split(x, (1, 3), axis=1)[1],
    "repeat": lambda x: gf.repeat(x, 2, axis=0),
    "repeat by numbers": lambda x: gf.repeat(x, [2, 0, 1], axis=0),
    "tile": lambda x: gf.tile(x, (2, 1)),
    "meshgrid": lambda x: gf.meshgrid(x[0], x[1, :2])[0],
    "pad": lambda x: gf.pad(x, ((1, 0), (2, 3)), constant_values=4),
    "pad edge": lambda x: gf.pad(x, (1, 2), mode="edge"),
    "pad reflect": lambda x: gf.pad(x, (5, 2), mode="reflect"),
    "pad symmetric": lambda x: gf.pad(x, (5, 2), mode="symmetric"),
    "pad wrap": lambda x: gf.pad(x, (5, 2), mode="wrap"),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_gradients(rng, name):
    x = gf.asarray(rng.standard_normal((3, 4)))
    check_gradients(COMPOSED[name](x), [x], rng)


def batch_by_3():
    return gf.placeholder(("batch", 3), name="x")


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda x: gf.concat([]), gf.ShapeError, "wants one tensor or more"),
        (lambda x: gf.concat(x), gf.ArgumentError, "concat: wants a list of tensors"),
        (lambda x: gf.concat([x, x[0]]), gf.ShapeError, "x1 has 1 dim and x0 2"),
        (lambda x: gf.concat([x, x], axis=2), gf.AxisError, "concat: axis 2"),
        (lambda x: gf.concat([1, 2]), gf.AxisError, "concat: axis 0 is out of range for 0 dims"),
        (
            lambda x: gf.stack([x, x[:, :2]]),
            gf.ShapeError,
            "shapes differ: .batch, 3. and .batch, 2.",
        ),
        (lambda x: gf.stack([x], axis=3), gf.AxisError, "stack: axis 3"),
        (lambda x: gf.unstack(x), gf.ShapeError, "dim 0 has the symbolic size batch"),
        (lambda x: gf.split(x, 2), gf.ShapeError, "dim 0 of size batch doesn't divide into 2"),
        (lambda x: gf.split(x, 2, axis=1), gf.ShapeError, "dim 1 of size 3 doesn't divide into 2"),
        (lambda x: gf.split(x, 1.5), gf.ArgumentError, "the number of sections 1.5 is no int"),
        (lambda x: gf.split(x, (0.5,)), gf.ArgumentError, "the position 0.5 is no int"),
        (lambda x: gf.tile(x, (2, -1)), gf.ShapeError, "tile: a dim can't be -1"),
        (lambda x: gf.split(x, 0), gf.ArgumentError, "split: can't make 0 sections"),
        (lambda x: gf.split(x, (2, 1), axis=1), gf.ArgumentError, "not in order between 0 and 3"),
        (lambda x: gf.split(x, (4,), axis=1), gf.ArgumentError, "not in order between 0 and 3"),
        (lambda x: gf.repeat(x, [1, 2]), gf.ShapeError, "2 repeats for dim 0 of size 3.batch"),
        (lambda x: gf.repeat(x, -1), gf.ArgumentError, "repeat: repeats=-1"),
        (lambda x: gf.repeat(x[0], [1, -2, 0]), gf.ArgumentError, "repeats=.* -2"),
        (lambda x: gf.repeat(x, 1.5), gf.DTypeError, "repeats must be integers"),
        (
            lambda x: gf.repeat(x, gf.argmax(x, axis=0), axis=0),
            gf.ShapeError,
            "a symbolic dim broad",
        ),
        (lambda x: gf.meshgrid(x), gf.ShapeError, "meshgrid: wants 1 dim, not 2"),
        (lambda x: gf.meshgrid(indexing="yx"), gf.ArgumentError, "indexing='yx'"),
        (lambda x: gf.pad(x, -1), gf.ArgumentError, "pad: the width -1 is negative"),
        (lambda x: gf.pad(x, ((1, 2),) * 3), gf.ShapeError, "does not fit 2 dims"),
        (lambda x: gf.pad(x, (1, 2, 3)), gf.ShapeError, "does not fit 2 dims"),
        (lambda x: gf.pad(x, 1, mode="mirror"), gf.ArgumentError, "mode='mirror'"),
        (lambda x: gf.pad(x[:0], 1, mode="edge"), gf.ShapeError, "dim 0 has none"),
        (lambda x: gf.pad(x, 1.5), gf.ArgumentError, "the width 1.5 is no int"),
    ],
)
def test_refusals(make, error, match):
    with gf.Graph():
        x = batch_by_3()
        with pytest.raises(error) as caught:
            make(x)
    assert re.search(match, caught.value.summary)  # the whole text has this test's line
