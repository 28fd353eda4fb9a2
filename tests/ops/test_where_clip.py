"""Choosing by a mask and by bounds, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.ir import dtype as dtypes
from graphfw.ir.op import REGISTRY
from tests.ops.values import COMPLEX, FLOATS, INTEGERS, draw, gradients, same

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    "shapes", [((3, 5),) * 3, ((3, 1), (), (5,)), ((), (4,), (1,)), ((0,), (0,), ())]
)
def test_where(rng, shapes):
    for dtype in [*FLOATS, *COMPLEX, *INTEGERS, "bool"]:
        mask = draw(rng, "bool", shapes[0])
        a, b = draw(rng, dtype, shapes[1]), draw(rng, dtype, shapes[2])
        same(gf.where(gf.asarray(mask), gf.asarray(a), gf.asarray(b)), np.where(mask, a, b))


def test_where_of_bfloat16():
    x = np.array([1, 2], dtype=ml_dtypes.bfloat16)
    actual = gf.where(gf.asarray([True, False]), gf.asarray(x), 0).numpy()
    assert actual.dtype == ml_dtypes.bfloat16
    assert actual.tolist() == [1, 0]


def test_where_promotes():
    mask = gf.asarray([True, False])
    assert gf.where(mask, gf.asarray(np.float16([1, 2])), 0.5).dtype is gf.float16
    assert gf.where(mask, gf.asarray([1, 2]), 0.5).dtype is gf.float32
    assert gf.where(mask, 1, 0).dtype is gf.int64
    assert gf.where(mask, 1.0, 0).dtype is gf.float32


def test_where_wants_a_mask():
    with pytest.raises(
        gf.DTypeError, match="where: the condition must be bool, not float32"
    ) as caught:
        gf.where(gf.asarray([1.0, 0.0]), 1.0, 0.0)
    assert caught.value.fix == "write mask != 0"


def test_where_gives_the_branch_not_taken_exactly_zero():
    mask = gf.asarray([True, False, True])
    g = gradients(lambda a, b: gf.where(mask, a, b), [1.0, 2.0, 3.0], 5.0, ct=[INF, 7.0, NAN])
    np.testing.assert_array_equal(g[0], [INF, 0.0, NAN])
    assert g[1] == 7.0


@pytest.mark.parametrize(
    "shapes", [((3, 5),) * 3, ((3, 5), (), (5,)), ((5,), (3, 1), ()), ((0,), (), (1,))]
)
def test_clip(rng, shapes):
    for dtype in FLOATS + INTEGERS:
        x, low, high = (draw(rng, dtype, shape) for shape in shapes)
        with np.errstate(all="ignore"):
            expected = np.minimum(np.maximum(x, low), high)
        same(gf.clip(gf.asarray(x), gf.asarray(low), gf.asarray(high)), expected)
        same(gf.clip(gf.asarray(x), min=gf.asarray(low)), np.maximum(x, low))
        same(gf.clip(gf.asarray(x), max=gf.asarray(high)), np.minimum(x, high))


def test_clip_takes_scalars_of_the_tensors_dtype():
    for dtype in (gf.float16, gf.bfloat16, gf.float64, gf.int8, gf.uint8):
        x = gf.astype(gf.asarray([0, 2, 9]), dtype)
        clipped = gf.clip(x, 1, 5)
        assert clipped.dtype is dtype
        assert clipped.numpy().astype(float).tolist() == [1, 2, 5]


def test_clip_to_a_symbolic_size():
    with gf.Graph():
        x = gf.placeholder(("n", 2), gf.int32, name="x")
        assert gf.clip(x, 0, x.shape[0] - 1).dtype is gf.int32


def test_clip_without_bounds_is_the_tensor_itself():
    x = gf.asarray([1.0])
    assert gf.clip(x) is x


@pytest.mark.parametrize("bound", [0.5, gf.asarray([1.0]), np.float32([1])])
def test_clip_keeps_integers_from_float_bounds(bound):
    with pytest.raises(
        gf.DTypeError, match="clip: max needs float32, and the result has x's dtype"
    ):
        gf.clip(gf.asarray([1, 2]), max=bound)


def test_clip_refuses():
    with pytest.raises(gf.DTypeError, match="clip: min needs float64"):
        gf.clip(gf.asarray([1.0]), gf.asarray(np.array(0.0)))
    with pytest.raises(gf.DTypeError, match="clip: min='a' is no number and no tensor"):
        gf.clip(gf.asarray([1.0]), "a")
    with pytest.raises(gf.DTypeError, match="clip: max='float32' is no number and no tensor"):
        gf.clip(gf.asarray([1.0]), 0, "float32")
    with pytest.raises(gf.DTypeError, match="clip: -1 does not fit uint8"):
        gf.clip(gf.asarray(np.uint8([1])), -1)
    with pytest.raises(gf.DTypeError, match="clip: wants real tensors, not complex64"):
        gf.clip(gf.asarray([1j]), 0, 1)
    with pytest.raises(gf.ShapeError, match="clip: shapes don't broadcast"):
        gf.clip(gf.asarray([1.0, 2.0]), gf.asarray([0.0, 0.0, 0.0]))


def test_gradient_of_clip():
    x = [-2.0, -1.0, 0.5, 1.0, 3.0]
    assert gradients(lambda t: gf.clip(t, -1, 1), x) == [[0.0, 1.0, 1.0, 1.0, 0.0]]
    assert gradients(lambda t: gf.clip(t, min=0), x) == [[0.0, 0.0, 1.0, 1.0, 1.0]]
    assert gradients(gf.clip, x, -1.0, 1.0) == [[0.0, 1.0, 1.0, 1.0, 0.0], 1.0, 1.0]
    # Crossed bounds: the result is the upper one.
    assert gradients(gf.clip, x, 2.0, 0.0) == [[0.0] * 5, 0.0, 5.0]


def test_nan_to_num():
    x = np.array([NAN, INF, -INF, 1.5, -0.0])
    for dtype in FLOATS:
        same(gf.nan_to_num(gf.asarray(x.astype(dtype))), np.nan_to_num(x.astype(dtype)))
    actual = gf.nan_to_num(gf.asarray(x), nan=7.0, posinf=8.0, neginf=-9.0)
    same(actual, np.array([7.0, 8.0, -9.0, 1.5, -0.0]))
    assert gradients(gf.nan_to_num, x) == [[0.0, 0.0, 0.0, 1.0, 1.0]]


def test_nan_to_num_of_other_kinds():
    x = gf.asarray([1, 2])
    assert gf.nan_to_num(x) is x
    with pytest.raises(gf.DTypeError, match="nan_to_num: wants real tensors, not complex64"):
        gf.nan_to_num(gf.asarray([1j]))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_the_fast_where_is_the_plain_one_bit_for_bit(dtype, rng):
    where_op = REGISTRY["where"]()
    kernel = where_op.kernel(np, dtypes.bool_, dtype, dtype)
    for shapes in (
        [(70, 70), (70, 70), (70, 70)],
        [(70, 70), (), ()],
        [(70, 70), (70, 1), (70,)],
        [(70, 70), (2, 70, 70), ()],
        [(3,), (3,), (3,)],
        [(0, 70), (0, 70), (1, 70)],
    ):
        condition = rng.integers(0, 2, shapes[0]).astype(bool)
        bits = [rng.integers(0, 256, (*s, dtype.itemsize), np.uint8) for s in shapes[1:]]
        if dtype.is_bool:
            bits = [b % 2 for b in bits]
        x1, x2 = (b.view(dtype.dtype)[..., 0] for b in bits)
        for a, b in ((x1, x2), (x1, np.zeros((), dtype.dtype)), (np.zeros((), dtype.dtype), x2)):
            fast, plain = kernel(condition, a, b), where_op.eval(np, condition, a, b)
            assert fast.dtype == plain.dtype
            assert fast.shape == plain.shape
            assert fast.tobytes() == plain.tobytes()
        transposed = condition.T
        if x1.shape == transposed.shape:
            assert (
                kernel(transposed, x1.T, x2).tobytes() == np.where(transposed, x1.T, x2).tobytes()
            )
