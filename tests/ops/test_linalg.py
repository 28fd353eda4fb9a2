"""Linear algebra: values against NumPy, gradients where they are delicate, errors."""

import re
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, AxisError, DTypeError, ShapeError
from tests.support.gradcheck import check_gradients


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 2)),
        ((5, 1, 2, 3), (4, 3, 1)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
    ],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], rng: np.random.Generator) -> None:
    x, y = rng.normal(size=a), rng.normal(size=b)
    z = gf.matmul(gf.asarray(x), gf.asarray(y))
    assert z.shape == (x @ y).shape
    np.testing.assert_allclose(z.numpy(), x @ y)


def test_matmul_of_half_floats_accumulates_in_float32() -> None:
    x = gf.asarray(np.full((1, 5000), 1, np.float16))
    assert (x @ x.mT).numpy().tolist() == [[5000]]


def test_matmul_by_a_constant_of_symbolic_size() -> None:
    """It is as large as the run's array: nothing of it may be made before."""
    with gf.Graph() as g:
        x = gf.placeholder(("m", "n"), name="x")
        y = x @ gf.full((x.shape[1], x.shape[1]), 0.5)
    with gf.Session(g) as session:
        for size in (2, 3):
            assert session.run(y, {x: np.ones((1, size), np.float32)}).tolist() == [
                [size / 2] * size
            ]


def test_matmul_errors_show_the_users_operands() -> None:
    x, v = gf.identity(gf.zeros((2, 3))), gf.identity(gf.zeros((4,)))
    with pytest.raises(ShapeError) as error:
        gf.matmul(x, v)
    lines = str(error.value).splitlines()
    assert lines[0] == "matmul: contracting dims differ: x1[-1] = 3, x2[-1] = 4"
    assert re.match(r"  x1 +float32\[2, 3\] +identity +test_linalg.py:", lines[1])
    assert re.match(r"  x2 +float32\[4\] +identity +test_linalg.py:", lines[2])
    with pytest.raises(ShapeError, match=r"x1\[-1\] = 4, x2\[-2\] = 2"):
        gf.matmul(v, x)
    with pytest.raises(ShapeError, match=r"one operand is a scalar(.*\n)+.*scalars with \*"):
        gf.matmul(x, gf.asarray(2.0))
    with pytest.raises(ShapeError, match=r"x1\[-1\] = 3, x2\[-2\] = 2(.*\n)+.*: use x2.mT"):
        gf.matmul(x, x)


@pytest.mark.parametrize("axes", [0, 1, 2, ((1, 2), (1, 0)), ((-1,), (0,)), ((), ())])
def test_tensordot(axes: Any, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 3, 5))
    if axes == 2:
        y = np.moveaxis(y, 1, 0).copy()
    z = gf.tensordot(gf.asarray(x), gf.asarray(y), axes=axes)
    expected = np.tensordot(x, y, axes)
    assert z.shape == expected.shape
    np.testing.assert_allclose(z.numpy(), expected)


def test_tensordot_gradients(rng: np.random.Generator) -> None:
    a, b = gf.asarray(rng.normal(size=(2, 3, 4))), gf.asarray(rng.normal(size=(4, 5, 2)))
    check_gradients(gf.tensordot(a, b, axes=((0, 2), (2, 0))), [a, b], rng)


def test_tensordot_of_symbolic_dims() -> None:
    with gf.Graph():
        x = gf.placeholder(("n", 2, "m"), name="x")
        y = gf.placeholder(("m", 2, 5), name="y")
        assert gf.tensordot(x, y, axes=((1, 2), (1, 0))).shape == (x.shape[0], 5)


def test_tensordot_errors() -> None:
    x, y = gf.zeros((2, 3)), gf.zeros((4, 3))
    with pytest.raises(ShapeError, match=r"tensordot: contracting .*: x1\[1\] = 3, x2\[0\] = 4"):
        gf.tensordot(x, y, axes=1)
    with pytest.raises(ShapeError, match="can't sum over 3 axes of 2 and 2 dims"):
        gf.tensordot(x, y, axes=3)
    with pytest.raises(ShapeError, match="1 axis of x1 can't pair with 2 of x2"):
        gf.tensordot(x, y, axes=((1,), (0, 1)))
    with pytest.raises(AxisError, match="tensordot: axis 2 is out of range for 2 dims"):
        gf.tensordot(x, y, axes=((2,), (1,)))
    with pytest.raises(AxisError, match="names a dim twice"):
        gf.tensordot(x, y, axes=((1, 1), (1, 0)))
    for axes in (1.0, ((1,), (1,), (1,)), None):
        with pytest.raises(AxisError, match=r"tensordot: axes=.* is no int and no pair"):
            gf.tensordot(x, y, axes=axes)
    assert gf.tensordot(x, y.mT, axes=np.int64(1)).shape == (2, 4)


def test_vecdot(rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 1, 3)) + 1j * rng.normal(size=(4, 1, 3))
    y = rng.normal(size=(5, 3)) + 1j
    np.testing.assert_allclose(gf.vecdot(x, y).numpy(), np.vecdot(x, y))
    a, b = rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 1, 4))
    np.testing.assert_allclose(gf.vecdot(a, b, axis=-3).numpy(), (a * b).sum(axis=0))
    small = gf.asarray([1, 2], dtype="int8")
    assert gf.vecdot(small, small).dtype == gf.int8


def test_vecdot_errors() -> None:
    with pytest.raises(ShapeError, match=r"vecdot: contracting .*: x1\[-1\] = 1, x2\[-1\] = 3"):
        gf.vecdot(gf.zeros(1), gf.zeros(3))
    with pytest.raises(AxisError, match=r"axis 0 is out of range(.*\n)+.*the end: use -1 to -1"):
        gf.vecdot(gf.zeros(3), gf.zeros(3), axis=0)


def test_outer(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=3), rng.normal(size=4)
    np.testing.assert_array_equal(gf.outer(x, y).numpy(), np.outer(x, y))
    with pytest.raises(ShapeError, match="outer: wants two vectors, not 2 and 1 dim"):
        gf.outer(gf.zeros((2, 2)), gf.zeros(2))


@pytest.mark.parametrize("offset", [-9, -2, -1, 0, 1, 3, 9])
@pytest.mark.parametrize("axes", [(-2, -1), (0, 1), (2, 0)])
def test_diagonal_and_trace(offset: int, axes: tuple[int, int], rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4, 5))
    axis1, axis2 = axes
    expected = np.diagonal(x, offset, axis1, axis2)
    y = gf.diagonal(gf.asarray(x), offset=offset, axis1=axis1, axis2=axis2)
    assert y.shape == expected.shape
    np.testing.assert_array_equal(y.numpy(), expected)
    t = gf.trace(gf.asarray(x), offset=offset, axis1=axis1, axis2=axis2)
    np.testing.assert_allclose(t.numpy(), expected.sum(axis=-1))


@pytest.mark.parametrize("offset", [-2, 0, 1, 7])
def test_diagonal_gradient(offset: int, rng: np.random.Generator) -> None:
    x = gf.asarray(rng.normal(size=(2, 4, 3)))
    check_gradients(gf.diagonal(x, offset=offset) ** 2, [x], rng)


def test_trace_dtypes() -> None:
    x = gf.asarray(np.eye(3, dtype=np.int8))
    assert gf.trace(x).dtype == gf.int64
    assert gf.trace(x, dtype="float32").dtype == gf.float32


def test_diagonal_errors() -> None:
    with pytest.raises(AxisError, match="axis1 and axis2 must differ, and both are 0"):
        gf.diagonal(gf.zeros((2, 2)), axis1=0, axis2=0)
    with pytest.raises(AxisError, match="diagonal: axis -2 is out of range for 1 dim"):
        gf.diagonal(gf.zeros(2))


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, -1, -2.5, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [0, -1])
def test_vector_norm(ord: float, axis: int, rng: np.random.Generator) -> None:
    for x in (rng.normal(size=(3, 4)), rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))):
        x[0, 0] = 0
        with np.errstate(divide="ignore"):
            expected = np.linalg.vector_norm(x, axis=axis, ord=ord)
        y = gf.vector_norm(gf.asarray(x), axis=axis, ord=ord)
        assert y.dtype == gf.float64
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12)
        kept = gf.vector_norm(gf.asarray(x), axis=axis, ord=ord, keepdims=True)
        assert kept.shape == np.expand_dims(expected, axis).shape


def test_vector_norm_over_all_and_several(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 4))
    assert gf.vector_norm(gf.asarray(x)).item() == pytest.approx(np.sqrt((x * x).sum()))
    y = gf.vector_norm(gf.asarray(x), axis=(0, 2), ord=3)
    np.testing.assert_allclose(y.numpy(), (np.abs(x) ** 3).sum(axis=(0, 2)) ** (1 / 3))


@pytest.mark.parametrize("ord", [1, 1.5, 2, 3, 0.5, np.inf])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_vector_norm_gradient_at_zero_is_zero(ord: float, dtype: str) -> None:
    x = gf.asarray(np.array([[0.0, 0.0], [3.0, 0.0]], dtype))
    g = gf.grad(gf.sum(gf.vector_norm(x, axis=1, ord=ord)), x).numpy()
    assert np.isfinite(g).all()
    if ord != np.inf:
        assert g[0].tolist() == [0, 0]
    np.testing.assert_allclose(g[1], [1, 0], rtol=1e-12)


@pytest.mark.parametrize("ord", [-1, -0.5])
def test_vector_norm_of_negative_order_has_finite_gradients(ord: float) -> None:
    x = gf.asarray(np.array([[0.0, 2.0], [0.0, 0.0], [1.0, 1.0]]))
    g = gf.grad(gf.sum(gf.vector_norm(x, axis=1, ord=ord)), x).numpy()
    assert g[:2].tolist() == [[0, 0], [0, 0]]
    np.testing.assert_allclose(g[2], 2 ** (1 / ord - 1))


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_matrix_norm_gradient_at_zero_is_finite(ord: Any) -> None:
    x = gf.asarray(np.zeros((2, 3, 2)))
    assert np.isfinite(gf.grad(gf.sum(gf.matrix_norm(x, ord=ord)), x).numpy()).all()


@pytest.mark.parametrize("ord", [2, 3, 1.5])
def test_vector_norm_gradients(ord: float, rng: np.random.Generator) -> None:
    signs = rng.choice([-1, 1], size=(3, 4))
    x = gf.asarray(signs * rng.uniform(0.5, 2, size=(3, 4)))
    check_gradients(gf.vector_norm(x, axis=0, ord=ord), [x], rng)


def test_vector_norm_shows_nan() -> None:
    for ord in (1, 2, 3):
        assert np.isnan(gf.vector_norm(gf.asarray([np.nan, 1.0]), ord=ord).item())


def test_vector_norm_of_half_floats_does_not_overflow() -> None:
    x = gf.asarray(np.full(4, 1000, np.float16))
    assert gf.vector_norm(x).item() == 2000
    assert gf.vector_norm(x).dtype == gf.float16


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_matrix_norm(ord: Any, keepdims: bool, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 4))
    y = gf.matrix_norm(gf.asarray(x), ord=ord, keepdims=keepdims)
    expected = np.linalg.matrix_norm(x, ord=ord, keepdims=keepdims)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.numpy(), expected)


@pytest.mark.parametrize(
    ("ord", "axis"),
    [
        (None, None),
        (None, 1),
        (None, (0, 2)),
        (3, 0),
        (1, (0, 1)),
        (1, (1, 0)),
        ("fro", (2, 0)),
        (np.inf, (-1, 0)),
    ],
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_norm(ord: Any, axis: Any, keepdims: bool, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 4))
    y = gf.norm(gf.asarray(x), ord=ord, axis=axis, keepdims=keepdims)
    expected = np.linalg.norm(x, ord=ord, axis=axis, keepdims=keepdims)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.numpy(), expected)


def test_norm_of_all_axes(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4))
    for ord in (1, "fro", np.inf):
        assert gf.norm(gf.asarray(x), ord=ord).item() == pytest.approx(np.linalg.norm(x, ord))
    assert gf.norm([3, 4]).item() == 5


def test_norm_errors() -> None:
    x = gf.zeros((2, 3))
    with pytest.raises(ArgumentError, match=r"ord='max' must be \"fro\", .*, inf or -inf\n"):
        gf.matrix_norm(x, ord="max")
    with pytest.raises(ShapeError, match="matrix_norm: wants 2 dims or more, not 1"):
        gf.matrix_norm(gf.zeros(2))
    with pytest.raises(ArgumentError, match="norm: ord='fro' is not a norm of vectors"):
        gf.norm(x, ord="fro", axis=0)
    with pytest.raises(ArgumentError, match="ord=1 is for one axis or two, not 3"):
        gf.norm(gf.zeros((2, 2, 2)), ord=1)
    with pytest.raises(DTypeError, match="wants numeric tensors, not bool"):
        gf.matmul(gf.zeros((2, 2), dtype="bool"), gf.zeros((2, 2), dtype="bool"))
