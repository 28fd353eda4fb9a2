"""Mistakes that were found by trying to break things, and must not come back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import graphfw as gf


def test_a_cut_behind_the_end_of_a_dim_is_an_error():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        head, tail = gf.split(x, [1])
    with gf.Session(g) as session:
        first, rest = session.run([head, tail], {x: [5.0]})
        assert first.tolist() == [5.0]
        assert rest.shape == (0,)
        with pytest.raises(gf.ExecutionError, match="a cut of dim 0 lies outside its size 0"):
            session.run(head, {x: np.zeros(0, np.float32)})


@pytest.mark.parametrize(
    "function",
    [
        lambda b: b[:, 0] + b[:, 1],
        lambda b: b[:] - b[::-1],
        lambda b: b[1:] + b[:-1],
        lambda b: gf.diff(b, axis=0),
        lambda b: gf.tril(b) + b,
        lambda b: gf.eye(b.shape[0]) @ b,
        lambda b: gf.linspace(0.0, 1.0, b.shape[0], dtype=gf.float64) + b[:, 0],
        lambda b: gf.one_hot(gf.argmax(b, axis=0), b.shape[0], dtype=gf.float64) @ b,
        lambda b: gf.topk(b, 2, axis=0).values,
        lambda b: gf.scaled_dot_product_attention(b, b, b, causal=True) + b,
        lambda b: gf.grad(gf.sum(gf.sort(b, axis=0)), b),
        lambda b: gf.grad(gf.sum(gf.diagonal(b)), b),
        lambda b: gf.grad(gf.sum(gf.index_set(b, (slice(None), [0]), 2 * b[:, :1])), b),
        lambda b: gf.grad(gf.nn.cross_entropy(b, gf.argmax(b, axis=1)), b),
    ],
)
def test_sizes_whose_formula_may_be_negative(
    function: Callable[[gf.Tensor], gf.Tensor], rng: np.random.Generator
):
    # A tensor of n - 1 rows: nothing may say max(n - 1, 0) of it, which would not fit it.
    array = rng.normal(size=(5, 3))
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), gf.float64, name="x")
        result = function(gf.split(x, [1])[1])
    expected = function(gf.asarray(array[1:])).numpy()
    with gf.Session(g) as session:
        found = session.run(result, {x: array})
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.shape == expected.shape


def test_gradient_through_a_reshape_that_the_run_must_check(rng: np.random.Generator):
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), gf.float64, name="x")
        y = gf.sum(gf.reshape(x, (-1, 2)) ** 3 * gf.asarray([1.0, 2.0]).astype(gf.float64))
        first = gf.grad(y, x)
        second = gf.grad(gf.sum(first), x)
    with gf.Session(g) as session:
        for shape in ((3, 4), (2, 1), (0, 3), (2, 0)):
            array = rng.normal(size=shape)
            factor = np.tile([1.0, 2.0], array.size // 2).reshape(shape)
            found = session.run([first, second], {x: array})
            np.testing.assert_allclose(found[0], 3 * array**2 * factor, rtol=1e-12)
            np.testing.assert_allclose(found[1], 6 * array * factor, rtol=1e-12)
        with pytest.raises(gf.ShapeError, match=r"^reshape: 9 elements don.t divide"):
            session.run(first, {x: np.zeros((3, 3))})


@pytest.mark.parametrize("dtype", [gf.float16, gf.bfloat16])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_short_floats_keeps_its_digits(dtype: gf.DType, approximate: str):
    x = gf.asarray([-3.0, -2.0, -1.0, 0.5, 3.0]).astype(dtype)
    found = gf.gelu(x, approximate=approximate)
    assert found.dtype is dtype
    exact = gf.gelu(x.astype(gf.float64), approximate=approximate).numpy()
    precision = gf.finfo(dtype).eps
    np.testing.assert_allclose(found.astype(gf.float64).numpy(), exact, rtol=precision)


def test_uniform_over_more_than_the_dtype_holds():
    with pytest.raises(gf.ArgumentError, match="from -40000 to 40000 is farther than float16"):
        gf.random.uniform((3,), -40000, 40000, gf.float16)
    with pytest.raises(gf.ArgumentError, match="farther than float32 reaches"):
        gf.random.uniform((3,), -gf.inf, 0.0)
    draws = gf.random.uniform((1000,), -30000, 30000, gf.float16).numpy()
    assert len(np.unique(draws)) > 100


@pytest.mark.parametrize("given", [1.0, np.ones(2), {"a": 1}])
def test_custom_gradients_of_something_else_than_tensors(given: object):
    @gf.custom_gradient
    def wrong_rule(x: gf.Tensor):
        return x * 2, lambda ct: given

    @gf.custom_gradient
    def wrong_result(x: gf.Tensor):
        return given, lambda ct: ct

    x = gf.asarray([1.0, 2.0])
    with pytest.raises(gf.GradientError, match=f"returns a {type(given).__name__}, not a tensor"):
        gf.grad(gf.sum(wrong_rule(x)), x)
    with pytest.raises(
        gf.GradientError, match="wrong_result returns a result that is not a tensor"
    ):
        wrong_result(x)


def test_an_unsigned_index_does_not_wrap():
    with gf.Graph() as g:
        i = gf.placeholder((1,), gf.uint64, name="i")
        picked = gf.take(gf.asarray([1, 2, 3]), i)
    with gf.Session(g) as session:
        assert session.run(picked, {i: np.asarray([2], np.uint64)}).tolist() == [3]
        with pytest.raises(gf.ExecutionError, match="index 18446744073709551615 is out of range"):
            session.run(picked, {i: np.asarray([2**64 - 1], np.uint64)})


def test_a_name_means_what_it_means_when_the_run_is_made():
    """A variable is renamed when its layer becomes a submodule; another may take its name."""

    class Layer(gf.nn.Module):
        def __init__(self, value: float):
            super().__init__()
            self.w = gf.Variable(value, name="w")

    class Model(gf.nn.Module):
        def __init__(self, layer: Layer):
            super().__init__()
            self.layer = layer

    with gf.Graph() as g:
        first = Layer(1.0)
        session = gf.Session(g)
        name = first.w.name
        assert session.run(name) == 1.0
        Model(first)
        second = Layer(2.0)
        second.w.rename(lambda: name)
    assert first.w.name != name
    assert session.run(name) == 2.0


def test_equal_keys_of_other_types_are_other_fetches():
    with gf.Graph() as g:
        y = gf.ones(())
    with gf.Session(g) as session:
        assert [type(k) for k in session.run({1: y})] == [int]
        assert [type(k) for k in session.run({True: y})] == [bool]


def test_python_floats_beyond_a_dtype_are_refused():
    with pytest.raises(gf.DTypeError, match=r"-1000000000\.0 is beyond what float16 holds"):
        gf.where(gf.asarray([True]), gf.ones(1, dtype=gf.float16), -1e9)
    assert float(gf.where(gf.asarray(False), gf.ones((), dtype=gf.float16), -gf.inf)) == -np.inf
    assert float(gf.asarray(np.array(1e300), dtype=gf.float32)) == np.inf


def test_a_name_under_no_grad_is_that_of_the_result():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        with gf.no_grad():
            h = gf.identity(x * 2, name="h")
        with pytest.raises(gf.GradientError, match="no gradient passes"):
            gf.grad(gf.sum(g.find("h")), x)
    assert g.find("h") is h


def test_an_index_that_is_summed_up_in_chunks():
    with gf.Graph() as g:
        x, i = gf.placeholder(("n",), name="x"), gf.placeholder(("n",), "int64", name="i")
        y = gf.take(x, gf.sum(i), axis=0) * 2
    with gf.Session(g) as session:
        assert session.run(y, {x: [0.5, 3.0, 4.0], i: [0, 1, 1]}) == 8


def test_a_constant_that_a_loop_uses_has_a_gradient():
    w = gf.asarray(3.0)
    last, _ = gf.scan(lambda carry, _: (carry * w, None), gf.asarray(2.0), None, 4)
    assert float(gf.grad(last, w)) == 2 * 4 * 3**3


def test_groups_that_grew_around_each_other_make_no_cycle():
    """A group of numbers was read early and grew late, by what reads a sum of its readers."""
    with gf.Graph() as g:
        x, scale, other = (gf.placeholder(shape, gf.float64) for shape in (("n",), (), (4, "n")))
        y = gf.softmax(x, axis=0) + gf.tanh(scale)
        last = gf.tanh(other)
        total = gf.sum(last * 0.1) + gf.sum(y * 0.1) + gf.sum(y * 0.1)
        found = gf.grad(total, [x, scale, other])
    rng = np.random.default_rng(0)
    feeds = {x: rng.normal(size=3), scale: 0.3, other: rng.normal(size=(4, 3))}
    with gf.Session(g) as session:
        values = session.run([y, *found], feeds)
    weights = np.exp(feeds[x]) / np.exp(feeds[x]).sum()
    np.testing.assert_allclose(values[0], weights + np.tanh(0.3))
    np.testing.assert_allclose(values[1], 0, atol=1e-12)
    np.testing.assert_allclose(values[2], 0.2 * 3 * (1 - np.tanh(0.3) ** 2))
    np.testing.assert_allclose(values[3], 0.1 * (1 - np.tanh(feeds[other]) ** 2))
