import re

import numpy as np
import pytest

import graphfw as gf

ROWS = [
    ("reshape", lambda x: gf.reshape(x, (4, -1)), lambda x: x.reshape(4, -1)),
    ("reshape to a dim", lambda x: gf.reshape(x, 24), lambda x: x.reshape(24)),
    ("flatten", gf.flatten, np.ravel),
    ("flatten a part", lambda x: gf.flatten(x, 1, 2), lambda x: x.reshape(2, 12)),
    ("permute_dims", lambda x: gf.permute_dims(x, (2, 0, -2)), lambda x: x.transpose(2, 0, 1)),
    ("reversed dims", gf.permute_dims, np.transpose),
    ("swapaxes", lambda x: gf.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, -1)),
    ("matrix_transpose", gf.matrix_transpose, lambda x: x.swapaxes(-1, -2)),
    ("moveaxis", lambda x: gf.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1)),
    (
        "moveaxis of two",
        lambda x: gf.moveaxis(x, (2, 0), (0, 1)),
        lambda x: np.moveaxis(x, (2, 0), (0, 1)),
    ),
    ("broadcast_to", lambda x: gf.broadcast_to(x, (5, 2, 3, 4)), lambda x: np.stack([x] * 5)),
    ("expand_dims", lambda x: gf.expand_dims(x, axis=-2), lambda x: x[:, :, None]),
    ("flip", gf.flip, np.flip),
    ("flip some", lambda x: gf.flip(x, axis=(0, -1)), lambda x: np.flip(x, (0, -1))),
    ("roll", lambda x: gf.roll(x, 5), lambda x: np.roll(x, 5)),
    ("roll an axis", lambda x: gf.roll(x, -7, axis=1), lambda x: np.roll(x, -7, 1)),
    ("roll axes", lambda x: gf.roll(x, (1, 2), axis=(2, 0)), lambda x: np.roll(x, (1, 2), (2, 0))),
]


NAMES = [row[0] for row in ROWS]
CASES = [row[1:] for row in ROWS]


@pytest.mark.parametrize(("ours", "numpys"), CASES, ids=NAMES)
def test_values_are_numpys(rng, ours, numpys):
    array = rng.integers(0, 100, (2, 3, 4))
    result = ours(gf.asarray(array))
    expected = numpys(array)
    assert result.shape == expected.shape
    assert np.array_equal(result.numpy(), expected)


@pytest.mark.parametrize(("ours", "numpys"), CASES, ids=NAMES)
def test_gradients_move_back(rng, ours, numpys):
    x = gf.asarray(rng.standard_normal((2, 3, 4)))
    y = ours(x)
    weights = rng.standard_normal(y.shape)
    (slope,) = gf.grad(y, [x], weights)
    moved = rng.standard_normal((2, 3, 4))
    assert np.allclose((slope.numpy() * moved).sum(), (weights * numpys(moved)).sum())


def test_what_does_nothing_makes_no_node():
    x = gf.zeros((2, 3))
    assert gf.reshape(x, (2, -1)) is x
    assert gf.permute_dims(x, (0, 1)) is x
    assert gf.broadcast_to(x, (2, 3)) is x
    assert gf.flip(x, axis=()) is x


def test_symbolic_sizes():
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 4, 6), "float64", name="x")
        batch = x.shape[0]
        assert gf.flatten(x).shape == (24 * batch,)
        assert gf.flatten(x, 1).shape == (batch, 24)
        assert gf.moveaxis(x, 0, 1).shape == (4, batch, 6)
        rolled = gf.roll(x, batch - 1, axis=0)
    fed = np.arange(72.0).reshape(3, 4, 6)
    with gf.Session(g) as session:
        assert np.array_equal(session.run(rolled, {x: fed}), np.roll(fed, 2, 0))


def test_broadcast_arrays():
    a, b, c = gf.broadcast_arrays(gf.zeros((3, 1)), 2, gf.ones(4))
    assert a.shape == b.shape == c.shape == (3, 4)
    assert b.numpy().tolist() == [[2] * 4] * 3
    assert gf.broadcast_arrays() == []


def test_properties_of_tensors():
    x = gf.asarray(np.arange(6).reshape(2, 3))
    assert x.T.numpy().tolist() == x.mT.numpy().tolist() == [[0, 3], [1, 4], [2, 5]]


def test_flatten_makes_a_scalar_a_vector():
    assert gf.flatten(gf.asarray(2.0)).shape == (1,)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda x: x.reshape(5, 5), gf.ShapeError, "24 elements don't fill shape"),
        (lambda x: x.reshape(-1, -1), gf.ShapeError, "more than one -1"),
        (lambda x: x.reshape(-2, 12), gf.ShapeError, "a dim can't be -2"),
        (lambda x: x.reshape(2.0, 12), gf.ShapeError, "2.0 is no dim"),
        (lambda x: x.T, gf.ShapeError, "wants 2 dims, and float32.2, 3, 4. has 3"),
        (lambda x: gf.flatten(x, 2, 1), gf.AxisError, "end=1 lies before start=2"),
        (lambda x: gf.swapaxes(x, 0, 3), gf.AxisError, "swapaxes: axis 3 is out of range"),
        (lambda x: gf.matrix_transpose(x[0, 0]), gf.AxisError, "out of range for 1 dim"),
        (lambda x: gf.moveaxis(x, (0, 1), 2), gf.ShapeError, "2 sources for 1 destination"),
        (lambda x: gf.moveaxis(x, (0, -3), (1, 2)), gf.AxisError, "names a dim twice"),
        (lambda x: gf.permute_dims(x, (0, 1)), gf.ShapeError, "each of the 3 dims once"),
        (lambda x: gf.permute_dims(x, 5), gf.AxisError, "permute_dims: axis 5 is out of range"),
        (lambda x: gf.permute_dims(x, "abc"), gf.AxisError, "axis 'abc' is no int and no seq"),
        (lambda x: gf.expand_dims(x, "a"), gf.AxisError, "expand_dims: axis 'a' is no int"),
        (lambda x: gf.moveaxis(x, "a", 0), gf.AxisError, "moveaxis: axis 'a' is no int"),
        (lambda x: gf.flip(x, axis=1.0), gf.AxisError, "flip: axis 1.0 is no int"),
        (lambda x: gf.squeeze(x, 1), gf.ShapeError, "dim 1 has size 3, not 1"),
        (lambda x: gf.broadcast_to(x, (2, 3, 5)), gf.ShapeError, "does not broadcast"),
        (
            lambda x: gf.broadcast_arrays(x, gf.zeros(3)),
            gf.ShapeError,
            r"roadcast: dim -1 of \[2, 3, 4\] and dim -1 of \[3\]",
        ),
        (lambda x: gf.flip(x, axis=3), gf.AxisError, "flip: axis 3"),
        (lambda x: gf.roll(x, 0.5, axis=0), gf.ArgumentError, "the shift 0.5 is no int"),
        (lambda x: gf.roll(x, (1, 2), axis=0), gf.ArgumentError, "2 shifts for 1 axis"),
    ],
)
def test_refusals(make, error, match):
    with pytest.raises(error) as caught:
        make(gf.zeros((2, 3, 4)))
    assert re.search(match, caught.value.summary)  # the whole text has this test's line
