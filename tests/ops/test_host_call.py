"""`gf.host_call`: how often a call is made, what its results must be, and what its errors say."""

import numpy as np
import pytest

import graphfw as gf


@pytest.fixture(params=["1", "0"], ids=["compiled", "reference"], autouse=True)
def _jit(request, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", request.param)


class Recorder:
    """A function that remembers what it was called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, *arrays):
        self.calls.append(arrays)
        return arrays[0] * 2


def run(graph: gf.Graph, fetches, feeds=None):
    # Checking what passes do would make more calls.
    with gf.Session(graph, verify="off") as session:
        return session.run(fetches, feeds or {})


def test_arrays_in_and_out(rng: np.random.Generator):
    def both(x, scale):
        assert type(x) is type(scale) is np.ndarray
        return {"sorted": np.sort(x) * scale, "few": [x.sum(), [1, 2.5]]}

    a = rng.normal(size=7).astype("float32")
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        kinds = {"sorted": x, "few": [((), "float32"), ((2,), gf.float64)]}
        found = gf.host_call(both, kinds, x + 1, np.float32(3))
        after = found["sorted"] * 2
    assert found["sorted"].shape == x.shape
    value, doubled = run(g, [found, after], {x: a})
    np.testing.assert_array_equal(value["sorted"], np.sort(a + 1) * 3)
    np.testing.assert_array_equal(doubled, np.sort(a + 1) * 6)
    np.testing.assert_allclose(value["few"][0], (a + 1).sum(), rtol=1e-6)
    assert value["few"][1].dtype == np.float64
    np.testing.assert_array_equal(value["few"][1], [1, 2.5])


def test_no_call_is_merged_folded_or_made_twice():
    record = Recorder()
    with gf.Graph() as g:
        c = gf.asarray([1.0, 2.0])
        one, same, unused = [gf.host_call(record, c, c) for _ in range(3)]
        y = one + same + one
    np.testing.assert_array_equal(run(g, y), [6, 12])
    assert len(record.calls) == 2
    assert unused.shape == (2,)


def test_pure_calls_are_merged_and_folded():
    record = Recorder()
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        c = gf.asarray([1.0, 2.0])
        y = gf.host_call(record, x, x, pure=True) + gf.host_call(record, x, x, pure=True)
        z = gf.host_call(record, c, c, pure=True)
    with gf.Session(g, verify="off") as session:
        plan = session.compile([y, z], feeds=[x])
        for _ in range(3):
            plan([1.0, 2.0])
    assert len(record.calls) == 4  # one on the constant, one a run


def test_in_loops_and_branches():
    record = Recorder()
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        loop = gf.fori_loop(0, 3, lambda i, v: gf.host_call(record, v, v), x)
        branch = gf.cond(gf.sum(x) > 0, lambda: gf.host_call(record, x, x), lambda: x)
        again = gf.cond(gf.sum(x) > 0, lambda: gf.host_call(record, x, x), lambda: x)
    np.testing.assert_array_equal(run(g, loop, {x: [1.0, 2.0]}), [8, 16])
    assert len(record.calls) == 3
    run(g, [branch, again], {x: [1.0, 2.0]})
    assert len(record.calls) == 5
    run(g, [branch, again], {x: [-1.0, -2.0]})
    assert len(record.calls) == 5


def test_in_a_function_calls_are_made_though_nothing_needs_them():
    record = Recorder()

    @gf.function
    def logged(x):
        gf.host_call(record, x, x)
        gf.host_call(record, x, x, pure=True)
        return x + 1

    logged(np.ones(2))
    logged(np.ones(3))
    assert [calls[0].shape for calls in record.calls if calls[0].size == 3] == [(3,)]


def test_what_it_keeps_and_returns_is_its_own():
    kept = []

    def keep(x):
        kept.append(x)
        x += 1  # its own copy
        return x

    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = gf.host_call(keep, x, x * 2)
        z = x * 2
    value, other = run(g, [y, z], {x: np.ones(3, np.float32)})
    np.testing.assert_array_equal(value, [3, 3, 3])
    np.testing.assert_array_equal(other, [2, 2, 2])
    kept[0][:] = 99
    np.testing.assert_array_equal(value, [3, 3, 3])


@pytest.mark.parametrize("vectorized", [True, False])
def test_batches(vectorized: bool, rng: np.random.Generator):
    calls = []

    def descending(x, y):
        calls.append(x.shape)
        return -np.sort(-x, axis=-1) + y

    xs, y = rng.normal(size=(4, 3)), rng.normal(size=3)

    def one(x):
        return gf.host_call(descending, x, x, y, pure=True, vectorized=vectorized)

    result = gf.vmap(one)(gf.asarray(xs)).numpy()
    np.testing.assert_array_equal(result, -np.sort(-xs, axis=1) + y)
    assert set(calls) == ({(4, 3)} if vectorized else {(3,)})


def test_an_exception_becomes_an_error_of_the_line():
    def lookup(x):
        raise KeyError("missing")

    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = gf.host_call(lookup, x, x) + 1  # here
    with pytest.raises(gf.ExecutionError) as caught:
        run(g, y, {x: [1.0, 2.0]})
    text = str(caught.value)
    assert "lookup (test_host_call.py:" in text
    assert "failed: KeyError: 'missing'" in text
    assert "# here" in text
    assert '"x"' in text
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (np.zeros(2), "its result is float64[2], and float32[2] in result_types"),
        (np.zeros((2, 1), np.float32), "its result is float32[2, 1], and float32[2]"),
        (1.0, "its result is float32[], and float32[2]"),
        (None, "returns None, which is not built like result_types"),
    ],
)
def test_results_are_checked(result: object, said: str):
    def wrong(x):
        return result

    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = gf.host_call(wrong, x, x)
    with pytest.raises(gf.ExecutionError) as caught:
        run(g, y, {x: [1.0, 2.0]})
    text = str(caught.value)
    assert said in text
    assert "wrong (test_host_call.py:" in text


@pytest.mark.parametrize(
    ("dtype", "fits", "does_not"),
    [
        ("int8", [100, -100], [300, 1]),
        ("int4", [7, -8], [8, 1]),
        ("float8_e4m3fn", [1.5, 400], [1e9, 1]),
        ("float16", [1, 2.5], [1e9, 1]),
    ],
)
def test_numbers_of_python_fit_or_are_refused(dtype, fits, does_not):
    for result in (fits, does_not):
        with gf.Graph() as g:
            x = gf.placeholder((2,), name="x")
            kind = gf.TensorType(dtype, (2,))
            y = gf.host_call(lambda _, result=result: result, kind, x)
        if result is fits:
            assert run(g, y, {x: [1.0, 2.0]}).astype(float).tolist() == pytest.approx(fits, rel=0.1)
            continue
        with pytest.raises(gf.ExecutionError, match=rf"and {dtype}\[2\] in result_types"):
            run(g, y, {x: [1.0, 2.0]})


def test_the_structure_of_results_is_checked():
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = gf.host_call(lambda x: (x, {"a": 1}), {"a": x, "b": x}, x)
    with pytest.raises(gf.ExecutionError) as caught:
        run(g, y, {x: [1.0, 2.0]})
    assert "returns (an array, {'a': an int}), which is not built like" in str(caught.value)


def test_gradients_are_an_error_with_a_fix():
    with gf.Graph():
        x = gf.placeholder((2,), name="x")
        y = gf.sum(gf.host_call(np.sin, x, x, pure=True))
        with pytest.raises(gf.GradientError) as caught:
            gf.grad(y, x)
        assert "the gradient of" in str(caught.value)
        assert "gf.custom_gradient" in caught.value.fix

        @gf.custom_gradient
        def sine(x):
            y = gf.host_call(np.sin, x, gf.stop_gradient(x), pure=True)
            return y, lambda ct: ct * gf.host_call(np.cos, x, x, pure=True)

        slope = gf.grad(gf.sum(sine(x)), x)
    np.testing.assert_allclose(run(slope.graph, slope, {x: [0.0, 1.0]}), np.cos([0, 1]), rtol=1e-6)


def test_mistakes():
    with gf.Graph():
        x = gf.placeholder((2,), name="x")
        with pytest.raises(gf.ArgumentError, match="fn is an int, not a function"):
            gf.host_call(3, x, x)
        with pytest.raises(gf.ArgumentError, match="result_types is empty"):
            gf.host_call(print, (), x)
        with pytest.raises(gf.ArgumentError, match="result_types is a str, which says no shape"):
            gf.host_call(print, "float32", x)
        with pytest.raises(gf.ShapeError, match="None in result_types_1 is no size"):
            gf.host_call(print, [x, ((None,), "float32")], x)
    with pytest.raises(gf.GraphError, match="a host_call that is not pure belongs to a graph"):
        gf.host_call(np.sin, gf.asarray(1.0), gf.asarray(1.0))
    y = gf.host_call(np.negative, ((1,), "float64"), np.ones(1), pure=True)
    assert float(y[0]) == -1
