"""Shape arithmetic: static shapes agree with NumPy, symbolic ones with every binding."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfw.errors import AxisError, ParseError, ShapeError
from graphfw.ir.dim import symbol
from graphfw.ir.dtype import ALL, float32, float64
from graphfw.ir.shape import (
    Requirement,
    broadcast,
    broadcast_batch,
    can_broadcast,
    listed_axes,
    normalize_axes,
    normalize_axis,
    permuted,
    reduced,
    require,
    reshaped,
    shape_text,
    size_of,
)
from graphfw.ir.types import TensorType, parse_type

n, m = symbol("n"), symbol("m")
SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@given(st.lists(SHAPES, max_size=4))
def test_broadcast_is_numpys(shapes: list[tuple[int, ...]]):
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(Requirement, match="shapes don't broadcast"):
            broadcast(*shapes)
    else:
        assert broadcast(*shapes) == expected


@given(SHAPES, SHAPES)
def test_can_broadcast_is_numpys(shape: tuple[int, ...], target: tuple[int, ...]):
    try:
        fits = np.broadcast_to(np.zeros(shape), target).shape == target
    except ValueError:
        fits = False
    assert can_broadcast(shape, target) is fits


def test_symbolic_dims_broadcast_with_1_and_themselves():
    assert broadcast((n, 1, 4), (3, 1)) == (n, 3, 4)
    assert broadcast((2 * n,), (n + n,)) == (2 * n,)
    assert broadcast((1,), (n,), (1, 1)) == (1, n)
    assert broadcast((n, m)) == (n, m)
    assert can_broadcast((n, 1), (m, n, 5))
    assert can_broadcast((1,), (n,))
    assert not can_broadcast((n,), (1,))
    assert not can_broadcast((n,), (m,))
    assert not can_broadcast((n,), (3,))


@pytest.mark.parametrize(
    ("shapes", "at", "fix"),
    [
        (((2, 3), (2, 4)), ((0, -1), (1, -1)), ""),
        (((4, 1), (1,), (3, 5)), ((0, -2), (2, -2)), ""),
        (((n,), (m,)), ((0, -1), (1, -1)), 'name both dims "n" if they are always equal'),
        (((n,), (5,)), ((0, -1), (1, -1)), "if `n` is always 5, say so with gf.assert_shape"),
        (((5,), (n,)), ((0, -1), (1, -1)), "through a placeholder with the dim `n`"),
        (((2 * n, 3), (4, 1)), ((0, -2), (1, -2)), "if `2*n` is always 4"),
        (((1,), (m, 2), (n, 2)), ((1, -2), (2, -2)), 'name both dims "m"'),
        (((symbol("_x_0"),), (n,)), ((0, -1), (1, -1)), 'name both dims "n"'),
        (((symbol("_x_0"),), (symbol("_y_0"),)), ((0, -1), (1, -1)), "give both dims one name"),
    ],
)
def test_what_does_not_broadcast(shapes, at, fix: str):
    with pytest.raises(Requirement) as caught:
        broadcast(*shapes)
    assert caught.value.at == at
    assert fix in caught.value.fix
    assert ("gf.assert_shape" in caught.value.fix) == bool(fix)
    assert caught.value.error is ShapeError


@pytest.mark.parametrize(
    ("shapes", "at"),
    [
        (((3, 8, 8), (2, 8, 8)), ((0, -3), (1, -3))),
        (((n, 8, 7), (m, 7, 8)), ((0, -3), (1, -3))),
        (((4, 1, 8, 8), (8, 8), (3, 5, 8, 8)), ((0, -4), (2, -4))),
    ],
)
def test_leading_dims_that_do_not_broadcast(shapes, at):
    """The axes are those of the whole shapes."""
    with pytest.raises(Requirement) as caught:
        broadcast_batch(*shapes)
    assert caught.value.at == at


def test_leading_dims_broadcast():
    assert broadcast_batch((n, 1, 4, 5), (3, 5, 6)) == (n, 3)
    assert broadcast_batch((4, 5), (5, 6)) == ()


@pytest.mark.parametrize(
    ("shapes", "at"),
    [
        (((n, 3), (4, 2)), ((0, -1), (1, -1))),
        (((4, n, 2), (1, m, 1), (3, n, 1)), ((0, -3), (2, -3))),
        (((n,), (5, m), (2, 1)), ((1, -2), (2, -2))),
    ],
)
def test_ints_that_clash_come_before_symbols(shapes, at):
    """Whatever the symbols are in a run, these can't broadcast."""
    with pytest.raises(Requirement, match="shapes don't broadcast") as caught:
        broadcast(*shapes)
    assert caught.value.at == at
    assert "name both" not in caught.value.fix


def test_fix_names_a_symbol_or_none():
    """Of two expressions neither has a name to use for both."""
    with pytest.raises(Requirement) as caught:
        broadcast((2 * n,), (3 * m,))
    assert '"None"' not in caught.value.fix
    assert "gf.assert_shape" in caught.value.fix


@pytest.mark.parametrize(("axis", "expected"), [(0, 0), (2, 2), (-1, 2), (-3, 0)])
def test_normalize_axis(axis: int, expected: int):
    assert normalize_axis(axis, 3) == expected


@pytest.mark.parametrize(
    ("axis", "ndim", "fix"),
    [(3, 3, "use -3 to 2"), (-4, 3, "use -3 to 2"), (0, 0, "a 0-d tensor has no axes")],
)
def test_axis_out_of_range(axis: int, ndim: int, fix: str):
    with pytest.raises(Requirement) as caught:
        normalize_axis(axis, ndim)
    assert caught.value.message == f"axis {axis} is out of range for {ndim} dims"
    assert caught.value.fix == fix
    assert caught.value.error is AxisError


@pytest.mark.parametrize("axis", [np.int64(-1), np.uint8(2), 2, -1])
def test_axes_are_ints_of_any_kind(axis):
    index = normalize_axis(axis, 3)
    assert (index, type(index)) == (2, int)
    assert normalize_axes(axis, 3) == listed_axes([axis], 3) == (2,)


@pytest.mark.parametrize("axis", ["a", 1.0, None, True, (0, 1), n, np.float32(1)])
def test_what_is_no_axis(axis):
    with pytest.raises(Requirement, match="is no int") as caught:
        normalize_axis(axis, 3)
    assert caught.value.error is AxisError
    with pytest.raises(Requirement, match="is no int"):
        normalize_axes([0, axis], 3)


@pytest.mark.parametrize("axes", ["a", "", 1.0, True, n])
def test_what_is_no_sequence_of_axes(axes):
    with pytest.raises(Requirement, match="is no int and no sequence of ints"):
        normalize_axes(axes, 3)


def test_listed_axes_keep_their_order():
    assert listed_axes(np.array([2, -3]), 3) == (2, 0)
    assert listed_axes(range(3)[::-1], 3) == (2, 1, 0)


def test_normalize_axes():
    assert normalize_axes(None, 3) == (0, 1, 2)
    assert normalize_axes(None, 0) == ()
    assert normalize_axes(-1, 3) == (2,)
    assert normalize_axes((2, -3), 3) == (0, 2)
    assert normalize_axes([], 3) == ()
    with pytest.raises(Requirement, match=r"axis \(1, -1\) names a dim twice"):
        normalize_axes((1, -1), 2)


@given(SHAPES, st.data())
def test_reduced_is_numpys(shape: tuple[int, ...], data: st.DataObject):
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1))) if shape else set()
    for keepdims in (False, True):
        expected = np.zeros(shape).sum(axis=tuple(sorted(axes)), keepdims=keepdims).shape
        assert reduced(shape, sorted(axes), keepdims) == expected


@given(SHAPES, st.data())
def test_permuted_is_numpys(shape: tuple[int, ...], data: st.DataObject):
    axes = data.draw(st.permutations(range(len(shape))))
    assert permuted(shape, axes) == np.zeros(shape).transpose(axes).shape


@given(SHAPES, st.lists(st.integers(-1, 6), max_size=3).map(tuple))
def test_reshaped_is_numpys(shape: tuple[int, ...], target: tuple[int, ...]):
    try:
        expected = np.zeros(shape).reshape(target).shape
    except ValueError:
        with pytest.raises(Requirement):
            reshaped(shape, target)
    else:
        assert reshaped(shape, target) == expected


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ((n, 4), (-1,), (4 * n,)),
        ((n, 4), (2, -1), (2, 2 * n)),
        ((n, 4), (n, 2, -1), (n, 2, 2)),
        ((n, 4), (4 * n,), (4 * n,)),
        ((n, m), (m, -1), (m, n)),
        ((n, 3), (-1, 2), (3 * n // 2, 2)),  # checked when the graph runs
    ],
)
def test_symbolic_reshape(shape, target, expected):
    assert reshaped(shape, target) == expected


@pytest.mark.parametrize(
    ("shape", "target", "message", "fix"),
    [
        ((6,), (4,), "6 elements don't fill shape [4], which has 4", ""),
        ((6,), (-1, 4), "6 elements don't divide into shape [-1, 4]", ""),
        ((6,), (-1, 0), "6 elements don't divide into shape [-1, 0]", ""),
        ((6,), (-1, -1), "shape [-1, -1] has more than one -1", ""),
        ((6,), (-2, 3), "shape [-2, 3] has a negative dim", ""),
        ((n, 4), (32, 4), "4*n elements don't fill shape [32, 4], which has 128", "use -1 for"),
        ((n, 4), (m, 4), "4*n elements don't fill shape [m, 4], which has 4*m", "use -1 for"),
    ],
)
def test_what_does_not_reshape(shape, target, message: str, fix: str):
    with pytest.raises(Requirement) as caught:
        reshaped(shape, target)
    assert caught.value.message == message
    assert caught.value.fix.startswith(fix)


def test_require():
    require(True, "holds")
    with pytest.raises(Requirement) as caught:
        require(False, "fails", [(0, 1)], "mend it", AxisError)
    failed = caught.value
    assert (failed.message, failed.at, failed.fix) == ("fails", ((0, 1),), "mend it")
    assert failed.error is AxisError


def test_sizes_and_texts():
    assert size_of((2, 3)) == 6
    assert size_of(()) == 1
    assert size_of((n, 0)) == 0
    assert shape_text((n, 3)) == "[n, 3]"
    assert shape_text(()) == "[]"


# Types.


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (n, 4), (2 * n + 1, (n - 1) // 2, n % 8)])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_types_round_trip_through_text(dtype, shape):
    kind = TensorType(dtype, shape)
    assert parse_type(str(kind)) == kind
    assert hash(parse_type(repr(kind))) == hash(kind)
    assert kind.ndim == len(shape)
    assert kind.nbytes == kind.size * dtype.itemsize
    assert kind.is_static == all(isinstance(dim, int) for dim in shape)
    assert kind.size == (math.prod(shape) if kind.is_static else size_of(shape))


def test_types_with_calls_in_dims():
    kind = parse_type("float32[max(n, 3), min(n, m, 7)]")
    assert kind.ndim == 2
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize("text", ["float32", "float33[2]", "[2]", "", "float32[2] x", "float32(2)"])
def test_what_is_no_type(text: str):
    with pytest.raises(ParseError, match="is not a tensor type") as caught:
        parse_type(text)
    assert "write it like float32[batch, 64]" in str(caught.value)


@pytest.mark.parametrize("text", ["float32[2", "float32[n!]", "float32[n+]"])
def test_what_is_no_dim(text: str):
    with pytest.raises((ParseError, ValueError)):
        parse_type(text)


def test_equal_types_are_one_object():
    n = symbol("n")
    assert TensorType(float32, (n, 3)) is TensorType(float32, (symbol("n"), 3))
    assert TensorType(float32, (n, 3)) is not TensorType(float64, (n, 3))
    assert pickle.loads(pickle.dumps(TensorType(float32, (3,)))) is TensorType(float32, (3,))


def test_types_keep_to_the_ints_of_python():
    """An int of NumPy is equal to one of Python's, and has another text."""
    odd = TensorType(float32, (np.int64(12345),))
    assert odd == TensorType(float32, (12345,))
    assert type(TensorType(float32, (12345,)).shape[0]) is int
    assert repr(TensorType(float32, (12345,)).shape) == "(12345,)"


def test_types_are_immutable():
    kind = TensorType(float32, (2,))
    with pytest.raises(AttributeError, match="immutable"):
        kind.shape = (3,)  # type: ignore[misc]  # the mistake
    assert kind != "float32[2]"
    assert kind != TensorType(float32, (n,))
