"""`gf.function`, called again with arguments that look like earlier ones, or nearly so."""

import inspect

import numpy as np
import pytest

import graphfw as gf


def counted(fn):
    """Return the function of a function, and a list that grows with each call of the latter."""
    calls = []

    def traced(*args, **kwargs):
        calls.append(args)
        return fn(*args, **kwargs)

    traced.__signature__ = inspect.signature(fn)
    return gf.function(traced), calls


def test_calls_like_earlier_ones_take_the_same_build():
    def combined(x, y=2.0, *rest, w=None, **more):
        total = x * y
        for value in (*rest, *more.values()):
            total = total + value
        return total if w is None else total @ w

    function, calls = counted(combined)
    rng = np.random.default_rng(1)
    a, b, c = (rng.normal(size=(3, 3)) for _ in range(3))
    for args, named, wanted in (
        ((a,), {}, a * 2),
        ((a, b), {}, a * b),
        ((b, a), {"w": c}, b * a @ c),
        ((a, b), {"w": a}, a * b @ a),
        ((), {"y": b, "x": a}, a * b),
        ((), {"x": b, "y": c}, b * c),
        ((a, b, c), {"w": a, "z": b}, (a * b + c + b) @ a),
        ((a, b, c), {"z": b, "w": a}, (a * b + c + b) @ a),
        ((a, b), {"z": c, "v": a}, a * b + c + a),
        ((a.T, b[::-1]), {}, a.T * b[::-1]),
    ):
        for _ in range(3):
            np.testing.assert_allclose(function(*args, **named), wanted)
    built = len(calls)
    function(c, a, b, z=b, w=c)
    assert len(calls) == built


def test_arrays_among_the_defaults():
    shift = np.ones(2)
    function = gf.function(lambda x, s=shift, t=3.0: x * t + s)
    x = np.float64([1, 2])
    for _ in range(3):
        np.testing.assert_array_equal(function(x), x * 3 + 1)
        np.testing.assert_array_equal(function(x, t=x), x * x + 1)
        np.testing.assert_array_equal(function(x, x), x * 3 + x)
    shift[:] = 5
    np.testing.assert_array_equal(function(x), x * 3 + 5)


def test_equal_values_of_other_kinds_are_other_calls():
    function, calls = counted(lambda x, value: (x, gf.asarray(repr(value) == "True")))
    x = np.ones(2)
    for number, value in enumerate((1, True, 1.0, 1 + 0j, "1", b"1", None, 0.0, -0.0, (1,), [1])):
        for _ in range(3):
            assert function(x, value)[1] == (value is True)
        assert len(calls) == number + 1
    nan = float("nan")
    for _ in range(3):
        function(x, nan)
        function(x, float("nan"))
    assert len(calls) == 12
    for _ in range(3):  # keys of dicts
        function({1: x}, 0)
        function({True: x}, 0)
    assert len(calls) == 14


def test_objects_are_told_apart_as_they_say_themselves():
    class Setting:
        def __init__(self, rate):
            self.rate = rate

        def __eq__(self, other):
            return isinstance(other, Setting) and self.rate == other.rate

        def __hash__(self):
            return hash(self.rate)

    function, calls = counted(lambda x, setting: x * setting.rate)
    x = np.ones(2)
    for rate in (2, 3, 2, 3):
        np.testing.assert_array_equal(function(x, Setting(rate)), x * rate)
    assert len(calls) == 2


def test_a_call_that_looks_like_an_earlier_one_is_looked_at():
    class Special(np.ndarray):
        pass

    function = gf.function(lambda x, y: gf.add(x, y))
    x = np.ones(3)
    for _ in range(2):
        np.testing.assert_array_equal(function(x, x), x + 1)
    np.testing.assert_array_equal(function(x.view(Special), x), x + 1)
    np.testing.assert_array_equal(function(x, np.float64(4)), x + 4)
    np.testing.assert_array_equal(function(x, np.float64(5)), x + 5)
    np.testing.assert_array_equal(function(x, np.array(6.0)), x + 6)
    with pytest.raises(gf.DTypeError, match="a masked array would lose its mask"):
        function(x, np.ma.array(x))
    with pytest.raises(gf.ArgumentError, match="neither an array nor hashable"):
        function(x, {1, 2})
    with pytest.raises(gf.ArgumentError, match="neither an array nor hashable"):
        function(x, [{1, 2}])
    with pytest.raises(TypeError, match="too many positional arguments"):
        function(x, x, x)
    with pytest.raises(TypeError, match="missing a required argument: 'y'"):
        function(x)
    assert isinstance(function(gf.asarray(1.0), x), gf.Tensor)
    with gf.Graph():
        assert isinstance(function(x, x), gf.Tensor)
    assert function(x, x).tolist() == [2, 2, 2]
    function.session.close()
    with pytest.raises(gf.SessionError, match="closed"):
        function(x, x)


def test_the_surroundings_of_a_call_count_each_time():
    function = gf.function(lambda x: x * gf.ones((3,)))
    dropped = gf.function(lambda x: gf.nn.Dropout(0.5)(x))
    x = np.ones(3, np.float32)
    for _ in range(3):
        assert function(x).dtype == np.float32
        with gf.default_dtype(gf.float64):
            assert function(x).dtype == np.float64
        dropped(x)
        with gf.training(False):
            np.testing.assert_array_equal(dropped(x), x)


def test_updates_happen_in_calls_like_earlier_ones():
    @gf.function
    def stepped(x):
        total = gf.Variable(0.0, name="total")
        return {"now": total + x, "update": gf.update(total, total + x), "nothing": None, "x": x}

    for number in range(5):
        found = stepped(np.float32(2))
        assert found == {"now": 2 * number + 2, "update": None, "nothing": None, "x": 2}
