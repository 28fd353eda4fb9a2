"""Feeds and assignments where dtypes for storage are on either side."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import DTypeError, FeedError
from graphfw.ir.dtype import ALL, BY_NAME, STORAGE

every = pytest.mark.parametrize("dtype", STORAGE, ids=str)
FLOATS = tuple(d for d in STORAGE if d.holds_floats)
INTEGERS = tuple(d for d in STORAGE if not d.holds_floats)


@pytest.fixture(params=["numpy", "stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def executor(request):
    if request.param == "stand-in":
        request.getfixturevalue("fake")
    return "numpy" if request.param == "numpy" else "cupy"


def fed(dtype, value, executor="numpy"):
    """Feed a value and fetch it."""
    with gf.Graph() as g:
        x = gf.placeholder(np.shape(value), dtype, name="x")
    with gf.Session(g, executor=executor) as session:
        return session.run(x, {x: value}, host=True)


def all_numbers(dtype):
    """Every number of a dtype for storage."""
    return np.arange(2**dtype.bits, dtype=np.uint8).view(dtype.dtype)


@every
def test_arrays_are_taken_where_every_number_is_kept(dtype):
    array = all_numbers(dtype)
    numbers = array.astype(np.float64)
    for wanted in ALL:
        through = wanted.real if wanted.is_complex else wanted
        with np.errstate(all="ignore"):
            back = array.astype(through.dtype).astype(np.float64)
        if np.array_equal(back, numbers, equal_nan=True):
            found = fed(wanted, array)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found.astype(np.complex128), numbers)
        else:
            with pytest.raises(FeedError, match="can't be converted without loss"):
                fed(wanted, array)


@every
def test_no_array_of_another_dtype_is_taken(dtype):
    for other in (*ALL, *STORAGE):
        array = np.ones(2, other.dtype)
        if other is dtype:
            assert fed(dtype, array).dtype == dtype.dtype
            continue
        message = f'"x" is {dtype.name} and is fed {other.name}, which'
        with pytest.raises(FeedError, match=message) as caught:
            fed(dtype, array)
        assert caught.value.fix.endswith(f'.astype("{dtype.name}")')


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("numbers", "given", "wanted"),
    [
        ([1.5, 448, np.nan, -9], "float8_e4m3fn", "int4"),
        ([127], "int8", "float8_e4m3fn"),
        ([57344], "float8_e5m2fnuz", "float8_e4m3fn"),
        ([100], "int8", "float4_e2m1fn"),
        ([0], "int8", "float8_e8m0fnu"),
        ([2.0**100], "float8_e8m0fnu", "float16"),
    ],
)
def test_nothing_is_lost_unasked(executor, numbers, given, wanted):
    array = np.array(numbers).astype(BY_NAME[given].dtype)
    with pytest.raises(FeedError, match=f'"x" is {wanted} and is fed {given}'):
        fed(wanted, array, executor)
    with gf.Graph() as g:
        v = gf.Variable(None, name="v", shape=array.shape, dtype=wanted)
    with gf.Session(g, executor=executor) as session:
        with pytest.raises(DTypeError, match=f'"v" is {wanted} and is given {given}'):
            session[v] = array
        with pytest.raises(gf.CheckpointError):
            session.load_state_dict({"v": array})


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_python_floats_are_rounded(executor, dtype):
    numbers = [1, 1.4, 2, 5.9]
    wanted = np.array(numbers).astype(dtype.dtype)
    np.testing.assert_array_equal(fed(dtype, numbers, executor), wanted)
    assert fed(dtype, 1.4) == wanted[1]
    with gf.Graph() as g:
        v = gf.Variable(None, name="v", shape=(4,), dtype=dtype)
        made = gf.Variable(numbers, dtype=dtype)
    with gf.Session(g, executor=executor) as session:
        session[v] = numbers
        np.testing.assert_array_equal(gf.to_numpy(session[v]), wanted)
        np.testing.assert_array_equal(gf.to_numpy(session[made]), wanted)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_python_integers_within_the_limits(executor, dtype):
    info = gf.iinfo(dtype)
    numbers = [info.min, 0, True, info.max]
    wanted = np.array(numbers).astype(dtype.dtype)
    np.testing.assert_array_equal(fed(dtype, numbers, executor), wanted)
    np.testing.assert_array_equal(gf.asarray(numbers, dtype=dtype).numpy(), wanted)
    with gf.Graph() as g:
        v = gf.Variable(0, name="v", dtype=dtype)
    with gf.Session(g, executor=executor) as session:
        session[v] = info.max
        assert int(gf.to_numpy(session[v])) == info.max
        for number in (info.min - 1, info.max + 1, 1.0):
            with pytest.raises(FeedError, match=f'"x" is {dtype.name}, which can\'t hold'):
                fed(dtype, [0, number], executor)
            with pytest.raises(DTypeError, match=f'"v" is {dtype.name}, which can\'t hold'):
                session[v] = number


BEYOND = {
    "float8_e4m3fn": (1000, -1000.0, np.inf),
    "float8_e4m3fnuz": (1000, -1000.0, np.inf),
    "float8_e5m2": (100_000, -100_000.0),
    "float8_e5m2fnuz": (100_000, -100_000.0, np.inf),
    "float8_e8m0fnu": (0, -1.0, 1e39, np.inf),
    "float4_e2m1fn": (7, -100.0, np.inf, np.nan),
}


@pytest.mark.parametrize(
    ("dtype", "number"), [(d, n) for d in FLOATS for n in BEYOND[d.name]], ids=str
)
def test_what_floats_for_storage_lack(dtype, number):
    limits = gf.finfo(dtype)
    for value in (number, [1, number]):
        with pytest.raises(FeedError, match=f'"x" is {dtype.name}, which can\'t hold'):
            fed(dtype, value)
        with pytest.raises(DTypeError, match=f"does not fit {dtype.name}") as caught:
            gf.asarray(value, dtype=dtype)
        assert caught.value.fix.startswith(f"it holds {limits.min:g} to {limits.max:g}:")
    with pytest.raises(DTypeError, match=f"does not fit {dtype.name}"):
        gf.full((2,), number, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_floats_for_storage_have(dtype):
    limits = gf.finfo(dtype)
    for number in (limits.min, limits.max, limits.max * 1.01):
        rounded = float(fed(dtype, number))
        assert rounded == float(gf.asarray(number, dtype=dtype).numpy())
        assert rounded == (limits.min if number == limits.min else limits.max)
    if dtype.name != "float4_e2m1fn":
        assert np.isnan(float(fed(dtype, float("nan"))))
    if dtype.name == "float8_e5m2":
        assert float(fed(dtype, float("inf"))) == np.inf


def test_lists_of_numbers_for_storage_are_arrays_of_them():
    narrow = BY_NAME["float8_e4m3fn"].dtype.type
    np.testing.assert_array_equal(fed("float32", [narrow(1.5), narrow(-2)]), [1.5, -2])
    with pytest.raises(FeedError, match='"x" is int8 and is fed float8_e4m3fn'):
        fed("int8", [narrow(1.5), narrow(-2)])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_python_integers_do_not_wrap(dtype):
    x = gf.asarray([0], dtype=dtype)
    for number in (300, gf.iinfo(dtype).min - 1):
        for make in (
            lambda n: x == n,
            lambda n: gf.asarray([n], dtype=dtype),
            lambda n: gf.full((2,), n, dtype=dtype),
            lambda n: gf.full_like(x, n),
            lambda n: gf.where([True], x, n),
            lambda n: gf.pad(x, 1, constant_values=n),
            lambda n: gf.index_set(x, 0, n),
        ):
            with pytest.raises(DTypeError, match=f"{number} does not fit {dtype.name}"):
                make(number)
        with gf.Graph(), pytest.raises(DTypeError, match=f"{number} does not fit {dtype.name}"):
            gf.Variable(number, dtype=dtype)
