"""Values that may be fed, how they are converted, and how sizes are found and checked."""

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError, FeedError, ShapeError
from graphfw.ir.dim import symbol

BFLOAT16 = ml_dtypes.bfloat16


def fed(shape, dtype, value):
    """Feed a value and fetch it."""
    with gf.Graph() as g:
        x = gf.placeholder(shape, dtype, name="x")
    with gf.Session(g) as session:
        return session.run(x, {x: value})


class Array:
    """Something with `__array__`."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array if dtype is None else self._array.astype(dtype)


class Capsule:
    """Something with `__dlpack__` and no `__array__`."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


# Values.


@pytest.mark.parametrize("wrap", [np.asarray, Array, Capsule, np.ndarray.tolist])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 2), (2, 0, 3)])
def test_arrays_lists_and_objects_that_hold_one(rng, wrap, shape):
    array = rng.random(shape, dtype=np.float32)
    if wrap is np.ndarray.tolist and 0 in shape[:-1]:
        pytest.skip("a list can't say the dims after a 0")
    got = fed((None,) * len(shape), gf.float32, wrap(array))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.T,
        lambda a: a[::-2, 1:],
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[:1], (7, 4)),
        lambda a: a.astype(">f4"),
        lambda a: a.view(np.matrix),
        lambda a: np.lib.stride_tricks.as_strided(a, (2, 2), (0, 4)),
    ],
)
def test_arrays_of_any_layout_and_byte_order(rng, change):
    array = change(rng.random((3, 4), dtype=np.float32))
    array.flags.writeable = False
    with gf.Graph() as g:
        x = gf.placeholder((None, None), name="x")
        y = x * x
    with gf.Session(g) as session:
        got = session.run(y, {x: array})
    assert type(got) is np.ndarray
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, np.multiply(np.asarray(array), np.asarray(array)))


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    np.testing.assert_array_equal(fed((2, 3), gf.float32, tensor), tensor.numpy())
    np.testing.assert_array_equal(fed((3, 2), gf.float32, tensor.T), tensor.numpy().T)
    with pytest.raises(FeedError):
        fed((2, 3), gf.float32, tensor.double())


# Dtypes.

LOSSLESS = [
    *(("float16", "float32"), ("float32", "float64"), ("uint8", "float32"), ("int8", "int64")),
    *(("uint32", "int64"), ("bool", "uint8"), ("bool", "float32"), ("float32", "complex64")),
    *(("int16", "float32"), ("int32", "float64"), ("float64", "complex128"), (">i2", "int32")),
    *((BFLOAT16, "float32"), (BFLOAT16, "float64"), ("int8", "bfloat16")),
]
LOSSY = [
    *(("float64", "float32"), ("float32", "float16"), ("float32", "int32"), ("int64", "int32")),
    *(("int64", "float32"), ("int32", "float32"), ("uint8", "int8"), ("int8", "uint8")),
    *(("uint64", "int64"), ("float32", "bool"), ("uint8", "bool"), ("complex64", "float32")),
    *(("float16", "bfloat16"), (BFLOAT16, "float16"), ("float32", "bfloat16")),
]


@pytest.mark.parametrize(("given", "wanted"), LOSSLESS)
def test_an_array_is_converted_where_nothing_is_lost(given, wanted):
    array = np.array([0, 1], given)
    got = fed((2,), wanted, array)
    assert got.dtype == gf_dtype(wanted)
    np.testing.assert_array_equal(got.astype(np.complex128), [0, 1])


def gf_dtype(name):
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


@pytest.mark.parametrize(("given", "wanted"), LOSSY)
def test_an_array_that_would_lose_something_is_refused(given, wanted):
    array = np.array([0, 1], given)
    with pytest.raises(FeedError) as caught:
        fed((2,), wanted, array)
    text = str(caught.value)
    assert f'"x" is {wanted} and is fed {array.dtype.name}' in text
    assert f'.astype("{wanted}")' in text


WEAK = [
    *((3, "int8"), (3, "float16"), (True, "int64"), (2.5, "bfloat16"), (1, "complex64")),
    *((2.5, "complex128"), (255, "uint8"), (-128, "int8"), (2**63, "uint64"), (True, "bool")),
    *((0.1, "float32"), (0.1, "float64"), (np.float64(0.1), "float32"), (1e300, "float64")),
    *((float("inf"), "float16"), (2**24 + 1, "float64"), (1 + 1e-12j, "complex128")),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("value", "wanted"), WEAK)
@pytest.mark.parametrize("form", ["scalar", "list", "nested"])
def test_python_numbers_take_the_placeholders_dtype(value, wanted, form):
    structure = {"scalar": value, "list": [value, value], "nested": ([value], (value,))}[form]
    shape = {"scalar": (), "list": (2,), "nested": (2, 1)}[form]
    got = fed(shape, wanted, structure)
    assert got.dtype == gf_dtype(wanted)
    np.testing.assert_array_equal(got, np.full(shape, value).astype(gf_dtype(wanted)))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        *((300, "uint8"), (-1, "uint8"), (2**31, "int32"), (2**63, "int64"), (1.0, "int32")),
        *((1, "bool"), (0.0, "bool"), (1j, "float32"), (1e39, "float32"), (70000, "float16")),
        *((-1e200, "bfloat16"), (1e39 + 0j, "complex64")),
    ],
)
@pytest.mark.parametrize("in_list", [False, True])
def test_python_numbers_that_do_not_fit_are_refused(value, wanted, in_list):
    with pytest.raises(FeedError, match=f'"x" is {wanted}, which can\'t hold'):
        fed((2,) if in_list else (), wanted, [value, value] if in_list else value)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("text", '"x": can.t make an array|"x": .*dtype'),
        (None, '"x": None is neither a tensor nor a number'),
        ([[1.0], [1.0, 2.0]], '"x": can.t make an array(.|\n)*same length'),
        (np.array(["a"]), '"x": '),
        (np.array([None]), '"x": '),
        (np.array([1], "M8[s]"), '"x": '),
        (np.zeros(1, [("a", "f4")]), '"x": '),
        (np.ma.masked_array([1.0], [True]), "a masked array would lose its mask"),
        (object(), '"x": can.t make an array'),
    ],
)
def test_what_is_no_array_of_numbers(value, match):
    with pytest.raises(FeedError, match=match):
        fed((None,), gf.float32, value)


@pytest.mark.parametrize(
    "value",
    [
        np.array(["a"]),
        np.array([b"abc"]),
        np.array([None]),
        np.array([1], "M8[s]"),
        np.array([1], "m8[s]"),
        np.zeros(1, [("a", "f4")]),
        np.zeros(1, "V4"),
        np.str_("a"),
    ],
)
def test_elements_that_are_no_numbers(value):
    with pytest.raises(FeedError) as caught:
        fed((None,), gf.float32, value)
    assert caught.value.summary == f'"x": elements of dtype {value.dtype} are not numbers'
    assert "did you mean" not in caught.value.fix
    assert "astype" in caught.value.fix


class Failing:
    """It has an array, but raises an error when it is asked for it."""

    def __init__(self, error):
        self.error = error

    def __array__(self, dtype=None, copy=None):
        raise self.error


class FailingCapsule:
    def __dlpack__(self, **options):
        raise BufferError("it is lent already")

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (Failing(RuntimeError("the file is gone")), "RuntimeError: the file is gone"),
        (Failing(KeyError("a")), "KeyError: 'a'"),
        (FailingCapsule(), "BufferError: it is lent already"),
    ],
)
def test_what_gives_no_array(value, what):
    with pytest.raises(FeedError) as caught:
        fed((None,), gf.float32, value)
    assert caught.value.summary == f'"x": a {type(value).__name__} gives no array: {what}'
    assert caught.value.__cause__ is not None
    assert what.startswith(type(caught.value.__cause__).__name__)


def test_memory_that_an_array_lacks_is_no_mistake_of_the_feed():
    with pytest.raises(MemoryError, match="too large") as caught:
        fed((None,), gf.float32, Failing(MemoryError("too large")))
    assert not isinstance(caught.value, gf.GraphfwError)


@pytest.mark.parametrize("value", [{}, {"a": 1.0}, {1: 2}])
def test_a_dict_is_no_array(value):
    with pytest.raises(FeedError, match=r'"x": can.t make an array of dict') as caught:
        fed((None,), gf.float32, value)
    assert "position" not in str(caught.value)


def test_a_tensor_has_no_value_to_feed():
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = x + 1
    with gf.Session(g) as session, pytest.raises(FeedError) as caught:
        session.run(y, {x: y})
    assert '"x" is fed a tensor, which has no value yet' in str(caught.value)
    assert "fetch the tensor in one run" in str(caught.value)


# Shapes.


@pytest.mark.parametrize(
    ("shape", "given", "match"),
    [
        ((4, 3), (4, 5), r'"x" is \[4, 3\] and is fed \[4, 5\]: dim 1 is 5, not 3'),
        ((4, 3), (3, 4), r"another order: use array.transpose"),
        (("n", 3), (3,), r"1 dim, not 2(.|\n)*array\[None\] makes a batch of one"),
        (("n",), (4, 1), r"2 dims, not 1(.|\n)*remove a dim"),
        (("n", "n"), (2, 3), r'dim `n` is 2 in "x" \(dim 0\) and 3 in "x" \(dim 1\)'),
        ((), (1,), r"1 dim, not 0"),
        ((2,), (), r"0 dims, not 1"),
        (("n", "m"), (), r"0 dims, not 2(.|\n)*feed an array of shape \[n, m\]"),
        (("n", "m", 4, 3), (3, 4), r"2 dims, not 4(.|\n)*feed an array of shape \[n, m, 4, 3\]"),
    ],
)
def test_a_wrong_shape_says_what_was_expected(shape, given, match):
    with pytest.raises(FeedError, match=match) as caught:
        fed(shape, gf.float32, np.zeros(given, np.float32))
    assert "test_feeding.py" in str(caught.value)
    assert issubclass(FeedError, ValueError)


def test_a_placeholder_without_a_name_is_called_by_its_line():
    with gf.Graph() as g:
        x = gf.placeholder((2,))
    with (
        gf.Session(g) as session,
        pytest.raises(FeedError, match=r"the placeholder at test_feed.*:\d+ is"),
    ):
        session.run(x, {x: [1.0]})


def graph_of(*shapes):
    """Return a graph with a placeholder for each shape, and a tensor that needs all of them."""
    with gf.Graph() as g:
        xs = [gf.placeholder(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
        total = gf.stack([gf.sum(x) for x in xs])
    return g, xs, total


def run_shapes(g, xs, total, *shapes):
    with gf.Session(g) as session:
        feeds = {x: np.ones(shape, np.float32) for x, shape in zip(xs, shapes, strict=True)}
        return session.run(total, feeds).tolist()


def test_a_symbol_is_one_size_in_all_feeds():
    g, xs, total = graph_of(("n", 2), ("n",), ("m", "n"))
    assert run_shapes(g, xs, total, (3, 2), (3,), (5, 3)) == [6, 3, 15]
    with pytest.raises(FeedError) as caught:
        run_shapes(g, xs, total, (3, 2), (3,), (5, 4))
    text = str(caught.value)
    assert 'the dim `n` is 3 in "x0" (dim 0) and 4 in "x2" (dim 1)' in text
    assert "feed arrays whose `n` agrees" in text


def test_dims_that_are_expressions():
    n = symbol("n")
    g, xs, total = graph_of((n, 2 * n + 1), (n // 2,))
    assert run_shapes(g, xs, total, (3, 7), (1,)) == [21, 1]
    with pytest.raises(FeedError, match=r"dim 1 is 6, not 2\*n \+ 1 = 7"):
        run_shapes(g, xs, total, (3, 6), (1,))
    with pytest.raises(FeedError, match="dim 0 is 2, not n//2 = 1"):
        run_shapes(g, xs, total, (3, 7), (2,))


def test_a_size_is_found_from_a_multiple():
    with gf.Graph() as g:
        n = gf.placeholder(("n",)).shape[0]
        x = gf.placeholder((3 * n + 2,), name="x")
        y = gf.reshape(x[2:], (n, 3))
    with gf.Session(g) as session:
        plan = session.compile(y, feeds=[x])
        assert plan(np.ones(14, np.float32)).shape == (4, 3)
        assert plan(np.ones(2, np.float32)).shape == (0, 3)
        for size in (1, 3):
            with pytest.raises(FeedError, match=rf"dim 0 is {size}, which is no 3\*n \+ 2"):
                plan(np.ones(size, np.float32))


def test_a_size_is_never_found_to_be_negative():
    with gf.Graph() as g:
        n = gf.placeholder(("n",)).shape[0]
        x = gf.placeholder((n + 2,), name="x")
        y = x[n:]
    with gf.Session(g) as session:
        assert session.run(y, {x: [1.0, 2.0]}).shape == (2,)
        with pytest.raises(FeedError, match=r"dim 0 is 1, which is no n \+ 2"):
            session.run(y, {x: [1.0]})


def test_the_order_of_feeds_does_not_matter_for_finding_sizes():
    with gf.Graph() as g:
        n = gf.placeholder(("n",), name="n").shape[0]
        double = gf.placeholder((2 * n,), name="double")
        y = gf.sum(double) + gf.sum(gf.zeros((n,)))
    with gf.Session(g) as session:
        for order in (["n", "double"], ["double", "n"]):
            plan = session.compile(y, feeds=order)
            sizes = {"n": 3, "double": 6}
            assert plan(*[np.ones(sizes[name], np.float32) for name in order]) == 6
            sizes["double"] = 8
            with pytest.raises(FeedError, match=r"dim 0 is 8, not 2\*n = 6"):
                plan(*[np.ones(sizes[name], np.float32) for name in order])


def test_a_dim_that_no_feed_tells_is_an_error_when_compiled():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        other = gf.placeholder(("m", 3), name="other")
        y = gf.sum(x) + gf.zeros((other.shape[0],))
    with gf.Session(g) as session:
        with pytest.raises(FeedError) as caught:
            session.compile(y, feeds=[x])
        text = str(caught.value)
        assert "the size of the dim `m` is needed, and nothing that is fed tells it" in text
        assert '`m` is dim 0 of "other"' in text
        assert "feed a placeholder that has the dim `m`" in text
        got = session.run(y, {x: [1.0, 2.0], other: np.zeros((4, 3), np.float32)})
        np.testing.assert_array_equal(got, [3, 3, 3, 3])


def test_unnamed_dims_are_apart():
    g, xs, total = graph_of((None, None), (None,))
    assert run_shapes(g, xs, total, (2, 3), (4,)) == [6, 4]


# assert_shape.


def test_assert_shape_brings_symbols_and_checks_them():
    with gf.Graph() as g:
        x = gf.placeholder((None, 4), name="x")
        y = gf.placeholder(("batch", 4), name="y")
        z = gf.assert_shape(x, ("batch", 4)) + y
    with gf.Session(g) as session:
        plan = session.compile(z, feeds=[x, y])
        assert plan(np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)).shape == (3, 4)
        with pytest.raises(ShapeError) as caught:
            plan(np.ones((1, 4), np.float32), np.ones((3, 4), np.float32))
    text = str(caught.value)
    assert "assert_shape: the dim `x.shape[0]` is 1 in this run, not batch = 3" in text
    assert "gf.assert_shape(x" in text


def test_a_symbol_that_only_assert_shape_brings():
    with gf.Graph() as g:
        x = gf.placeholder((None, None), name="x")
        square = gf.assert_shape(x, ("k", "k"))
        y = gf.reshape(square, (square.shape[0] * square.shape[1],)) + 0
    with gf.Session(g) as session:
        plan = session.compile(y, feeds=[x])
        assert plan(np.ones((3, 3), np.float32)).shape == (9,)
        with pytest.raises(ShapeError, match=r"`x.shape\[1\]` is 2 in this run, not k = 3"):
            plan(np.ones((3, 2), np.float32))


def test_an_expression_of_a_symbol_that_assert_shape_brings_is_checked():
    with gf.Graph() as g:
        x = gf.placeholder((None,), name="x")
        k = gf.assert_shape(x, ("k",))
        y = gf.placeholder((2 * k.shape[0],), name="y")
        z = gf.sum(k) + gf.sum(y)
    with gf.Session(g) as session:
        plan = session.compile(z, feeds=[x, y])
        assert plan(np.ones(2, np.float32), np.ones(4, np.float32)) == 6
        # 2*k alone would make k = 3; it has to agree with what is asserted.
        with pytest.raises((FeedError, ShapeError), match="k"):
            plan(np.ones(2, np.float32), np.ones(6, np.float32))


def test_assert_shape_of_a_number_is_checked_before_anything_is_computed():
    with gf.Graph() as g:
        x = gf.placeholder((None,), name="x")
        count = gf.Variable(0, name="count", trainable=False)
        tick = gf.update(count, count + 1)
        y = gf.assert_shape(x, (3,)) * 2
    with gf.Session(g) as session:
        session.run([y, tick], {x: np.ones(3, np.float32)})
        with pytest.raises(ShapeError, match=r"the dim `x.shape\[0\]` is 4 in this run, not 3"):
            session.run([y, tick], {x: np.ones(4, np.float32)})
        assert session[count] == 1


def test_a_division_by_a_size_of_zero_is_an_error_that_says_so():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        m = gf.placeholder(("m",), name="m").shape[0]
        y = gf.zeros((m // x.shape[0],))
    with gf.Session(g) as session:
        plan = session.compile(y, feeds=[x, "m"])
        assert plan(np.ones(2, np.float32), np.ones(9, np.float32)).shape == (4,)
        with pytest.raises(ExecutionError, match=r"m//n(.|\n)*test_feeding.py"):
            plan(np.ones(0, np.float32), np.ones(9, np.float32))


def test_a_tensor_with_a_value_is_fed_as_its_value():
    np.testing.assert_array_equal(fed(("n",), "float32", gf.asarray([1.0, 2.0]) * 2), [2, 4])
    with pytest.raises(FeedError, match='"x" is float32 and is fed int64, which'):
        fed(("n",), "float32", gf.asarray([1, 2]))


def test_a_feed_of_another_graph_and_one_fed_twice_have_a_fix():
    with gf.Graph():
        other = gf.placeholder((), name="x")
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
    with gf.Session(g) as session:
        with pytest.raises(FeedError, match="belongs to another graph") as caught:
            session.run(x, {other: 1.0})
        assert caught.value.fix == "feed a placeholder of the session's graph"
        with pytest.raises(FeedError, match='"x" is fed twice') as caught:
            session.run(x, {x: 1.0, "x": 2.0})
        assert caught.value.fix == "feed it once, by the tensor or by its name"


@pytest.mark.parametrize("exchanged", [False, True])
def test_feeds_that_are_no_dict_are_an_error(exchanged):
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = gf.sum(x)
    given, kind = ({x: np.zeros(3, np.float32)}, "a Tensor") if exchanged else (y, "an int")
    with gf.Session(g) as session, pytest.raises(FeedError, match=f"feeds is {kind}, not a dict"):
        session.run(given, y if exchanged else 5)
