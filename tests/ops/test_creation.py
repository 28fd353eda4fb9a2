import numpy as np
import pytest

import graphfw as gf


def run(graph, fetch, feeds):
    with gf.Session(graph) as session:
        return session.run(fetch, feeds)


def same(tensor, array):
    value = tensor.numpy()
    assert value.dtype == array.dtype
    assert value.shape == array.shape == tensor.shape
    assert np.array_equal(value, array)


def test_asarray_keeps_the_dtype_of_arrays(rng):
    for dtype in ("bool", "int8", "uint64", "float16", "float64", "complex128"):
        array = (rng.standard_normal((2, 3)) * 5).clip(0).astype(dtype)
        same(gf.asarray(array), array)
    same(gf.asarray(np.float16(1.5)), np.array(1.5, np.float16))


def test_asarray_gives_python_numbers_the_default_dtypes():
    assert gf.asarray(1.0).dtype is gf.float32
    assert gf.asarray([1, 2]).dtype is gf.int64
    assert gf.asarray(True).dtype is gf.bool
    assert gf.asarray([1j]).dtype is gf.complex64
    assert gf.asarray(np.float64(1.0)).dtype is gf.float32
    with gf.default_dtype("float64"):
        assert gf.asarray([1.0]).dtype is gf.float64


def test_asarray_keeps_all_digits_of_a_float64():
    assert gf.asarray(0.1, dtype="float64").item() == 0.1
    assert gf.asarray([0.1], dtype="float64").item() == 0.1


def test_asarray_returns_tensors_as_they_are():
    x = gf.zeros(3)
    assert gf.asarray(x) is x
    assert gf.asarray(x, copy=False) is x
    assert gf.asarray(x, dtype="int32").dtype is gf.int32


def test_asarray_of_a_list_of_tensors_stacks_them():
    with gf.Graph() as g:
        x = gf.placeholder((2,), "int64", name="x")
        y = gf.asarray([x, [7, 8], x * 2])
    assert y.shape == (3, 2)
    assert run(g, y, {x: [1, 2]}).tolist() == [[1, 2], [7, 8], [2, 4]]


def test_asarray_does_not_drop_a_mask():
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    with pytest.raises(gf.DTypeError, match="asarray: a masked array would lose its mask") as e:
        gf.asarray(masked)
    assert "array.filled" in e.value.fix
    with pytest.raises(gf.DTypeError, match="a masked array"):
        gf.zeros(2) + masked


def test_floats_become_integers_without_what_is_behind_the_point():
    assert gf.asarray([127.9, -128.9], dtype="int8").numpy().tolist() == [127, -128]
    assert gf.asarray(-0.5, dtype="uint8").numpy() == 0
    assert gf.asarray(-(2.0**63), dtype="int64").numpy() == -(2**63)


def test_integers_of_which_some_fit_uint64_alone_keep_all_their_bits():
    numbers = [0, 2**53 + 1, 2**64 - 1]  # for NumPy these are floats
    for options in ({}, {"dtype": "uint64"}):
        made = gf.asarray(numbers, **options)
        assert (made.dtype, made.numpy().tolist()) == (gf.uint64, numbers)
    assert gf.asarray([1.0, 2**63]).dtype == gf.float32
    assert gf.asarray([-1, 2**63], dtype="float64").numpy().tolist() == [-1, 2.0**63]
    for dtype in ("int64", "uint64"):
        with pytest.raises(gf.DTypeError, match=f"does not fit {dtype}"):
            gf.asarray([-1, 2**63], dtype=dtype)


def test_asarray_needs_to_fit_the_dtype_that_is_asked_for_alone():
    assert gf.asarray([1e300], dtype=gf.float64).numpy() == 1e300
    assert gf.asarray(1e300j, dtype=gf.complex128).numpy() == 1e300j
    with pytest.raises(gf.DTypeError, match="1e\\+300 is beyond what float32 holds"):
        gf.asarray(1e300)
    with pytest.raises(gf.DTypeError, match="complex numbers don't fit float64"):
        gf.asarray([1j], dtype=gf.float64)
    with pytest.raises(gf.DTypeError, match="'str32' is not a dtype"):
        gf.asarray(np.array(["a"]), dtype=gf.float64)


def test_asarray_does_not_see_later_writes():
    array = np.zeros(3)
    x = gf.asarray(array)
    array[0] = 1
    assert x.numpy()[0] == 0


@pytest.mark.parametrize(
    ("value", "like", "dtype"),
    [
        (1, "float16", "float16"),
        (1.5, "int32", "float32"),
        (1, "int8", "int8"),
        (2.0, "float64", "float64"),
    ],
)
def test_asarray_like_gives_scalars_a_dtype(value, like, dtype):
    x = gf.asarray(value, like=gf.zeros(2, dtype=like))
    assert x.dtype.name == dtype
    assert x.item() == value


def test_asarray_takes_dims(monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" has no sizes for dims of no tensor
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), "float64", name="x")
        sizes = gf.asarray([x.shape[0], 5, x.shape[1]])
    assert run(g, sizes, {x: np.zeros((4, 3))}).tolist() == [4, 5, 3]


@pytest.mark.parametrize(
    ("value", "options", "error", "match"),
    [
        ("text", {}, gf.DTypeError, "asarray: can't make an array of str"),
        ([object()], {}, gf.DTypeError, "elements are not numbers"),
        ([1, [2]], {}, gf.ArgumentError, "same length"),
        (300, {"dtype": "uint8"}, gf.DTypeError, "300 does not fit uint8"),
        ([1, -1], {"dtype": "uint8"}, gf.DTypeError, "-1 does not fit uint8"),
        ([1.0, 128.0], {"dtype": "int8"}, gf.DTypeError, "128.0 does not fit int8"),
        (-1.0, {"dtype": "uint8"}, gf.DTypeError, "-1.0 does not fit uint8"),
        (2.0**63, {"dtype": "int64"}, gf.DTypeError, "does not fit int64"),
        ([1.0, float("nan")], {"dtype": "int32"}, gf.DTypeError, "nan does not fit int32"),
        (float("-inf"), {"dtype": "int4"}, gf.DTypeError, "-inf does not fit int4"),
        (1j, {"dtype": "float32"}, gf.DTypeError, "complex numbers don't fit float32"),
        ([1], {"copy": False}, gf.ArgumentError, "copy=False"),
        (1, {"device": "cuda:0"}, gf.ArgumentError, "no device"),
        (300, {"like": gf.zeros(1, dtype="int8")}, gf.DTypeError, "300 does not fit int8"),
    ],
)
def test_asarray_refuses(value, options, error, match):
    with pytest.raises(error, match=match):
        gf.asarray(value, **options)


class Elsewhere:
    """An array on a GPU, as CuPy's and PyTorch's: it is not copied home unasked."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("call get()")


@pytest.mark.parametrize("make", [gf.asarray, gf.Variable, lambda x: gf.ones(2) + x])
def test_arrays_that_stay_where_they_are(make):
    message = "an Elsewhere stays where it is: call get"
    with gf.Graph(), pytest.raises(gf.ArgumentError, match=message) as caught:
        make(Elsewhere())
    assert "gf.to_numpy(array) of CuPy" in caught.value.fix


def test_from_dlpack(rng):
    array = rng.standard_normal((3, 1))
    same(gf.from_dlpack(array), array)
    torch = pytest.importorskip("torch")
    same(gf.from_dlpack(torch.arange(3)), np.arange(3))
    same(gf.asarray(torch.ones(2)), np.ones(2, np.float32))
    with pytest.raises(gf.ArgumentError, match="a list has no __dlpack__"):
        gf.from_dlpack([1])


def test_filled_tensors():
    same(gf.zeros((2, 0, 3)), np.zeros((2, 0, 3), np.float32))
    same(gf.zeros(3, dtype="bool"), np.zeros(3, bool))
    same(gf.ones((), dtype="int8"), np.ones((), np.int8))
    same(gf.empty(2), np.zeros(2, np.float32))
    same(gf.full((2, 2), 7), np.full((2, 2), 7))
    same(gf.full(2, 0.5), np.full(2, np.float32(0.5)))
    same(gf.full(2, True), np.full(2, True))
    same(gf.full((np.int64(2),), gf.asarray(3)), np.full(2, 3))
    same(gf.zeros(2, dtype="bfloat16", device="graph"), np.zeros(2, gf.bfloat16))


def test_like_functions_take_symbolic_shapes():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), "int16", name="x")
        made = [gf.zeros_like(x), gf.ones_like(x), gf.full_like(x, 9)]
        made.append(gf.empty_like(x, dtype="bool"))
    assert [str(t.type) for t in made] == ["int16[n, 3]"] * 3 + ["bool[n, 3]"]
    zeros, ones, nines, empty = run(g, made, {x: np.zeros((0, 3), np.int16)})
    assert zeros.shape == ones.shape == nines.shape == empty.shape == (0, 3)
    assert run(g, made[2], {x: np.zeros((2, 3), np.int16)}).tolist() == [[9] * 3] * 2


def test_full_of_a_tensor_has_a_gradient():
    value = gf.asarray(2.0)
    (slope,) = gf.grad(gf.sum(gf.full((2, 3), value)), [value])
    assert slope.item() == 6


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: gf.zeros((2, -1)), gf.ShapeError, "zeros: a dim can't be -1"),
        (lambda: gf.zeros(2.5), gf.ShapeError, "zeros: 2.5 is no dim"),
        (lambda: gf.ones((True,)), gf.ShapeError, "ones: True is no dim"),
        (lambda: gf.ones(np.array([2.0])), gf.ShapeError, r"ones: np.float64\(2.0\) is no dim"),
        (lambda: gf.ones((np.array([2]), 3)), gf.ShapeError, r"ones: array\(\[2\]\) is no dim"),
        (lambda: gf.ones(np.array([[2]])), gf.ShapeError, r"ones: array\(\[\[2\]\]\) is no dim"),
        (lambda: gf.full(2, [1, 2]), gf.ShapeError, "full: the value to fill with must be 0-d"),
        (lambda: gf.full(2, 300, dtype="int8"), gf.DTypeError, "300 does not fit int8"),
        (lambda: gf.full(2, gf.inf, dtype="int8"), gf.DTypeError, "inf does not fit int8"),
        (lambda: gf.zeros(2, dtype="flat32"), gf.DTypeError, "float32"),
    ],
)
def test_filling_refuses(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize(
    "numbers", [(5,), (2, 7), (0,), (7, 2), (7, 2, -2), (1, 8, 3), (3, -4, -1), (-3,)]
)
def test_arange_of_ints_is_numpys(numbers):
    same(gf.arange(*numbers), np.arange(*numbers))
    same(gf.arange(*numbers, dtype="float32"), np.arange(*numbers, dtype="float32"))


@pytest.mark.parametrize(
    "numbers", [(0.5,), (0, 1, 0.1), (1.0, 0.0, -0.3), (2.5, 1), (0, 1, 1 / 3)]
)
def test_arange_of_floats_has_numpys_length(numbers):
    expected = np.arange(*numbers, dtype="float64")
    same(gf.arange(*numbers, dtype="float64"), expected)
    counted = gf.arange(*numbers)
    assert counted.dtype is gf.float32
    assert np.allclose(counted.numpy(), expected, rtol=1e-6)


def test_arange_of_whole_floats_fits_integers():
    same(gf.arange(3.0, dtype="int32"), np.arange(3, dtype="int32"))
    assert gf.arange(3.0).dtype is gf.float32


@pytest.mark.parametrize("dtype", ["int4", "float8_e4m3fn", "float4_e2m1fn"])
def test_dtypes_for_storage_hold_small_counts_and_diagonals(dtype):
    stored = gf.asarray([0], dtype=dtype).numpy().dtype
    same(gf.arange(-2, 3, dtype=dtype), np.arange(-2, 3).astype(stored))
    same(gf.eye(3, k=1, dtype=dtype), np.eye(3, k=1).astype(stored))
    if dtype != "int4":
        same(gf.arange(0, 2, 0.5, dtype=dtype), np.arange(0, 2, 0.5).astype(stored))
    square = gf.ones((3, 3), dtype=dtype)
    same(gf.tril(square), np.tri(3).astype(stored))


def test_powers_of_two_alone_hold_no_zero():
    only_powers = "float8_e8m0fnu"
    for make in (
        lambda: gf.zeros((2,), dtype=only_powers),
        lambda: gf.eye(2, dtype=only_powers),
        lambda: gf.tril(gf.ones((2, 2), dtype=only_powers)),
    ):
        with pytest.raises(gf.DTypeError, match="0 does not fit float8_e8m0fnu"):
            make()


def test_arange_of_dims():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), "float64", name="x")
        n = x.shape[0]
        made = [gf.arange(n), gf.arange(2, n), gf.arange(n, 0, -2), gf.arange(0, 2 * n, 3)]
    assert made[0].shape == (n,)
    for size in (0, 1, 2, 5):
        values = run(g, made, {x: np.zeros(size)})
        expected = [range(size), range(2, size), range(size, 0, -2), range(0, 2 * size, 3)]
        assert [v.tolist() for v in values] == [list(e) for e in expected]


@pytest.mark.parametrize(
    ("numbers", "options", "error", "match"),
    [
        ((0, 3, 0), {}, gf.ArgumentError, "step=0"),
        ((0.5,), {"dtype": "int32"}, gf.DTypeError, "does not fit int32"),
        ((300,), {"dtype": "uint8"}, gf.DTypeError, "299 does not fit uint8"),
        ((9,), {"dtype": "int4"}, gf.DTypeError, "arange: 8 does not fit int4"),
        ((0, 1, 0.5), {"dtype": "int4"}, gf.DTypeError, "does not fit int4"),
        ((1000,), {"dtype": "float8_e4m3fn"}, gf.DTypeError, "999 does not fit float8_e4m3fn"),
        ((0, 500, 0.5), {"dtype": "float8_e4m3fn"}, gf.DTypeError, "499.5 does not fit"),
        ((3,), {"dtype": "float8_e8m0fnu"}, gf.DTypeError, "0 does not fit float8_e8m0fnu"),
        ((3,), {"dtype": "bool"}, gf.DTypeError, "can't count in bool"),
        ((float("inf"),), {}, gf.ArgumentError, "not finite"),
        (("a",), {}, gf.ArgumentError, "'a' is not a real number"),
        ((1j,), {}, gf.ArgumentError, "1j is not a real number"),
    ],
)
def test_arange_refuses(numbers, options, error, match):
    with pytest.raises(error, match=match):
        gf.arange(*numbers, **options)


def test_arange_refuses_dims_with_fractions():
    with gf.Graph():
        n = gf.placeholder(("n",)).shape[0]
        with pytest.raises(gf.ArgumentError, match="no whole numbers"):
            gf.arange(0.5, n)
        with pytest.raises(gf.ArgumentError, match="not known until the graph runs"):
            gf.arange(0, 5, n)


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("num", [0, 1, 2, 7])
def test_linspace_is_numpys(num, endpoint):
    expected = np.linspace(-1.5, 2, num, endpoint=endpoint)
    same(gf.linspace(-1.5, 2, num, endpoint=endpoint, dtype="float64"), expected)
    same(gf.linspace(-1.5, 2, num, endpoint=endpoint), expected.astype("float32"))


def test_linspace_of_a_dim_and_tensors_meets_both_ends():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), "float64", name="x")
        spaced = gf.linspace(0.1, x[1], x.shape[0])
        open_end = gf.linspace(0, 1, x.shape[0], endpoint=False, dtype="float64")
    for size in (2, 5):
        given = np.full(size, 0.7)
        values, fractions = run(g, [spaced, open_end], {x: given})
        assert values[0] == 0.1
        assert values[-1] == 0.7
        assert np.allclose(values, np.linspace(0.1, 0.7, size), rtol=1e-15)
        assert np.allclose(fractions, np.arange(size) / size, rtol=1e-15)


def test_linspace_refuses_integers():
    with pytest.raises(gf.DTypeError, match="int32 has no fractions"):
        gf.linspace(0, 5, 3, dtype="int32")
    with pytest.raises(gf.DTypeError, match="int4 has no fractions"):
        gf.linspace(0, 5, 3, dtype="int4")
    with pytest.raises(gf.DTypeError, match="float8_e4m3fn is for storage alone") as caught:
        gf.linspace(0, 5, 3, dtype="float8_e4m3fn")
    assert caught.value.fix.endswith('gf.astype(gf.linspace(…), "float8_e4m3fn")')
    with pytest.raises(gf.ShapeError, match="linspace: a dim can't be -1"):
        gf.linspace(0, 5, -1)


@pytest.mark.parametrize("k", [-(2**40), -4, -1, 0, 2, 9])
def test_eye_and_triangles(rng, k):
    same(gf.eye(3, 4, k=k), np.eye(3, 4, k=k, dtype="float32"))
    same(gf.eye(3, k=k, dtype="bool"), np.eye(3, k=k, dtype="bool"))
    for shape in ((3, 5), (2, 4, 1), (0, 2), (2, 3, 0)):
        x = rng.standard_normal(shape)
        same(gf.tril(x, k=k), np.tril(x, k))
        same(gf.triu(x, k=k), np.triu(x, k))


def test_triangles_want_matrices():
    with pytest.raises(gf.ShapeError, match="tril: wants 2 dims or more, not 1"):
        gf.tril(gf.zeros(3))


def test_diagonals_beyond_int64():
    same(gf.eye(2, 3, k=2**70), np.zeros((2, 3), "float32"))
    same(gf.tril(gf.ones((2, 3)), k=2**70), np.ones((2, 3), "float32"))
    same(gf.tril(gf.ones((2, 3)), k=-(2**70)), np.zeros((2, 3), "float32"))


def test_eye_of_dims():
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), "float64", name="x")
        square = gf.eye(*x.shape, k=1)
    assert square.shape == x.shape
    assert np.array_equal(run(g, square, {x: np.zeros((2, 3))}), np.eye(2, 3, k=1, dtype="float32"))


def test_a_shape_may_be_an_array():
    shape = np.array([3, 4])
    assert gf.zeros(shape).shape == gf.full(shape, 1.0).shape == (3, 4)
    assert gf.reshape(gf.zeros(12), shape).shape == gf.random.normal(shape).shape == (3, 4)
    assert gf.ones(np.array(3)).shape == (3,)
