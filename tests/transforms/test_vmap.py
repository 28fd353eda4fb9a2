"""`vmap`: what it gives is what a Python loop over the examples gives.

Long: it is tried over every other transform and kind of node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, AxisError, GraphError, ShapeError
from graphfw.ir.op import REGISTRY, Op, op

Array = np.ndarray[Any, np.dtype[Any]]


def floats(rng: np.random.Generator, *shape: int) -> gf.Tensor:
    return gf.asarray(rng.normal(size=shape).astype("float32"))


def looped(function: Callable[..., Any], *xs: gf.Tensor) -> list[Array]:
    """Apply a function of one result or several example by example, and stack."""
    rows = []
    for i in range(int(xs[0].shape[0])):
        result = function(*[x[i] for x in xs])
        rows.append(
            [t.numpy() for t in (result if isinstance(result, (tuple, list)) else [result])]
        )
    return [np.stack(column) for column in zip(*rows, strict=True)]


def check(function: Callable[..., Any], *xs: gf.Tensor) -> None:
    """See that `vmap` gives what a loop does, and its gradients: of the whole, and inside."""
    result = gf.vmap(function)(*xs)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    for t, expected in zip(results, looped(function, *xs), strict=True):
        assert t.shape == expected.shape
        np.testing.assert_allclose(t.numpy(), expected, rtol=2e-5, atol=2e-5)

    def loss(*ys: gf.Tensor) -> gf.Tensor:
        made = function(*ys)
        parts = made if isinstance(made, (tuple, list)) else (made,)
        return sum(gf.sum(gf.cos(t)) for t in parts if t.dtype.is_floating)

    inputs = [x for x in xs if x.dtype.is_floating]
    if not inputs:
        return

    def slopes(*ys: gf.Tensor) -> list[gf.Tensor]:
        own = [y for y in ys if y.dtype.is_floating]
        return gf.grad(loss(*ys), own, missing="zeros")

    expected = looped(slopes, *xs)
    inside = gf.vmap(slopes)(*xs)
    outside = gf.grad(gf.sum(gf.vmap(loss)(*xs)), inputs, missing="zeros")
    for a, b, wanted in zip(inside, outside, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), wanted, rtol=5e-5, atol=5e-5)
        np.testing.assert_allclose(b.numpy(), wanted, rtol=5e-5, atol=5e-5)


# Arguments and results.


def test_axes_of_arguments_and_results(rng: np.random.Generator):
    x, y = floats(rng, 3, 5), floats(rng, 4, 2, 5)
    expected = [y.numpy()[:, :, i] @ np.sin(x.numpy()[:2, i]) for i in range(5)]
    result = gf.vmap(lambda a, b: b @ gf.sin(a[:2]), in_axes=(1, -1), out_axes=1)(x, y)
    np.testing.assert_allclose(result.numpy(), np.stack(expected, 1), rtol=1e-5)


def test_nested_structures(rng: np.random.Generator):
    x, w, b = floats(rng, 3, 5), floats(rng, 5, 3), floats(rng, 2)

    def function(params: Any, pair: Any, *, shift: gf.Tensor) -> Any:
        v, name, nothing = pair
        assert name == "name"
        assert nothing is None
        return {"y": v * params["w"] + shift, "sizes": [gf.sum(v), None]}, params["b"] * 2

    result, same = gf.vmap(
        function, in_axes=({"w": 1, "b": None}, (0, None, 0)), out_axes=({"y": 1, "sizes": 0}, None)
    )({"w": w, "b": b}, (x, "name", None), shift=gf.asarray([1.0, 2.0, 3.0]))
    expected = x.numpy() * w.numpy().T + np.array([[1], [2], [3]])
    np.testing.assert_allclose(result["y"].numpy(), expected.T, rtol=1e-5)
    np.testing.assert_allclose(result["sizes"][0].numpy(), x.numpy().sum(1), rtol=1e-5)
    assert result["sizes"][1] is None
    np.testing.assert_array_equal(same.numpy(), b.numpy() * 2)


def test_what_is_not_mapped_is_computed_once(rng: np.random.Generator):
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 4), name="x"), gf.placeholder((4,), name="w")
        gf.vmap(lambda v: gf.sum(v * gf.exp(w)))(x)
    (exp,) = [node for node in g.nodes if node.op.name == "exp"]
    assert exp.types[0].shape == (4,)


def test_shared_results_are_repeated():
    x = gf.zeros((3, 2))
    assert gf.vmap(lambda v: 1.5)(x).numpy().tolist() == [1.5] * 3
    assert gf.vmap(lambda v: gf.arange(2), out_axes=1)(x).numpy().tolist() == [[0] * 3, [1] * 3]
    assert gf.vmap(lambda v: gf.arange(2), out_axes=None)(x).numpy().tolist() == [0, 1]
    assert gf.vmap(lambda v: ())(x) == ()


@pytest.mark.parametrize("size", [0, 1, 4])
def test_a_symbolic_number_of_examples(size: int, rng: np.random.Generator):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", "time", 3), name="x")
        w = gf.placeholder((3, 2), name="w")
        y = gf.vmap(lambda v: gf.softmax(gf.concat([v, v[::-1]]) @ w, axis=0))(x)
        slope = gf.grad(gf.sum(y * y), w)
    assert str(y.type) == "float32[batch, 2*time, 2]"
    a, b = (rng.normal(size=s).astype("float32") for s in ((size, 5, 3), (3, 2)))
    with gf.Session(g) as session:
        value, gradient = session.run([y, slope], {x: a, w: b})
    power = np.exp(np.concatenate([a, a[:, ::-1]], 1) @ b)
    np.testing.assert_allclose(value, power / power.sum(1, keepdims=True), rtol=1e-4)
    assert gradient.shape == (3, 2)


def test_a_reshape_that_is_checked_when_it_runs(rng: np.random.Generator):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", "n", 3), name="x")
        y = gf.vmap(lambda v: gf.sum(gf.reshape(v, (-1, 2)), axis=0))(x)
    a = rng.normal(size=(3, 4, 3)).astype("float32")
    with gf.Session(g) as session:
        value = session.run(y, {x: a})
        np.testing.assert_allclose(value, a.reshape(3, -1, 2).sum(1), rtol=1e-4, atol=1e-5)
        with pytest.raises(ShapeError, match="assert_shape"):
            session.run(y, {x: a[:2, :3]})


def test_vmap_nests(rng: np.random.Generator):
    x, y = floats(rng, 3, 4), floats(rng, 5, 4)
    pairs = gf.vmap(gf.vmap(lambda a, b: gf.sum(a * b), (None, 0)), (0, None))(x, y)
    np.testing.assert_allclose(pairs.numpy(), x.numpy() @ y.numpy().T, rtol=1e-5, atol=1e-6)
    table = gf.asarray(rng.integers(0, 4, size=(3, 5, 2)))
    rows = gf.vmap(gf.vmap(lambda i, v: v[i], (0, None)))(table, x)
    expected = [[x.numpy()[i][table.numpy()[i, j]] for j in range(5)] for i in range(3)]
    np.testing.assert_array_equal(rows.numpy(), expected)


# Gradients.


def test_gradients_per_example(rng: np.random.Generator):
    x, y, w = floats(rng, 6, 3), floats(rng, 6), floats(rng, 3)

    def slope(a: gf.Tensor, b: gf.Tensor) -> gf.Tensor:
        return gf.grad((gf.tanh(gf.sum(a * w)) - b) ** 2, w)

    result = gf.vmap(slope)(x, y)
    np.testing.assert_allclose(result.numpy(), looped(slope, x, y)[0], rtol=1e-5, atol=1e-6)


def test_gradients_per_example_of_a_module(rng: np.random.Generator):
    with gf.Graph() as g:
        net = gf.nn.Sequential(gf.nn.Linear(4, 5), gf.nn.ReLU(), gf.nn.Linear(5, 2))
        x = gf.placeholder(("batch", 4), name="x")
        labels = gf.placeholder(("batch",), "int64", name="labels")
        weights = list(net.parameters())

        def slope(v: gf.Tensor, label: gf.Tensor) -> list[gf.Tensor]:
            return gf.grad(gf.nn.cross_entropy(net(v[None]), label[None]), weights)

        per_example = gf.vmap(slope)(x, labels)
        whole = gf.grad(gf.nn.cross_entropy(net(x), labels), weights)
    a = rng.normal(size=(7, 4)).astype("float32")
    targets = rng.integers(0, 2, size=7)
    with gf.Session(g) as session:
        each, mean = session.run([per_example, whole], {x: a, labels: targets})
        alone = session.run(whole, {x: a[2:3], labels: targets[2:3]})
    for one, total, single in zip(each, mean, alone, strict=True):
        np.testing.assert_allclose(one.mean(0), total, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(one[2], single, rtol=1e-4, atol=1e-6)


def test_derivatives_of_second_order(rng: np.random.Generator):
    w = floats(rng, 3)

    def hessian(x: gf.Tensor) -> gf.Tensor:
        def row(e: gf.Tensor) -> gf.Tensor:
            slope = gf.grad(gf.sum(gf.sin(w * x)) ** 2, w)
            return gf.grad(gf.sum(slope * e), w)

        return gf.vmap(row)(gf.eye(3))

    x = floats(rng, 4, 3)
    result = gf.vmap(hessian)(x)
    np.testing.assert_allclose(result.numpy(), looped(hessian, x)[0], rtol=1e-4, atol=1e-5)


def test_paths_around_the_function(rng: np.random.Generator):
    """What is computed around it from `w` is part of the gradient with respect to `w`."""
    w, x = floats(rng, 3), floats(rng, 4, 3)
    slope = gf.grad(gf.sum(gf.sin(w) ** 3), w)
    hessian = gf.vmap(lambda e: gf.grad(gf.sum(slope * e), w))(gf.eye(3))
    s, c = np.sin(w.numpy()), np.cos(w.numpy())
    np.testing.assert_allclose(hessian.numpy(), np.diag(6 * s * c * c - 3 * s**3), atol=1e-5)

    double = gf.exp(w) * 2

    def inside(v: gf.Tensor, h: gf.Tensor) -> gf.Tensor:
        deeper = gf.vmap(lambda e: gf.grad(gf.sum(h * w * v * e), w))(gf.eye(3))
        return gf.scan(lambda carry, row: (carry + gf.sum(row), carry), gf.sum(v), deeper)[0]

    result = gf.vmap(lambda v: inside(v, double))(x)
    direct = 2 * np.exp(w.numpy()) * (1 + w.numpy())
    expected = (x.numpy() * (direct + 1)).sum(1)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)

    def drawn(c: gf.Tensor, _: Any) -> Any:
        return gf.dropout(c), None

    noisy = gf.scan(drawn, w, None, 2)[0]
    with pytest.raises(gf.GradientError, match="a path leads through scan, which draws"):
        gf.vmap(lambda v: gf.grad(gf.sum(noisy * v), w))(x)


def test_custom_gradients(rng: np.random.Generator):
    scale = gf.asarray(3.0)

    @gf.custom_gradient
    def odd(x: gf.Tensor, y: gf.Tensor) -> Any:
        inside = gf.exp(x)
        return x * y, lambda ct: (ct * inside * scale, ct * gf.sum(y * x))

    check(lambda x: odd(x, gf.sin(x)), floats(rng, 3, 4))
    shared = floats(rng, 4)
    x = floats(rng, 3, 4)
    result = gf.grad(gf.sum(gf.vmap(lambda v: odd(v, shared))(x)), [x, shared])
    expected = looped(lambda v: gf.grad(gf.sum(odd(v, shared)), [v, shared]), x)
    np.testing.assert_allclose(result[0].numpy(), expected[0], rtol=1e-5)
    np.testing.assert_allclose(result[1].numpy(), expected[1].sum(0), rtol=1e-4)
    check(lambda v: gf.scan(lambda c, e: (odd(c, e), c), v[0], v[1:])[0], x)


# Control flow.


def test_scan(rng: np.random.Generator):
    x, h, w = floats(rng, 4, 5, 3), floats(rng, 4, 3), floats(rng, 4, 3, 3)

    def cell(x: gf.Tensor, h: gf.Tensor, w: gf.Tensor) -> Any:
        def step(carry: Any, row: gf.Tensor) -> Any:
            number, state = carry
            state = gf.tanh(w @ state + row * gf.astype(number, "float32"))
            return (number + 1, state), (state, number)

        (count, last), (states, numbers) = gf.scan(step, (0, h), x)
        return last, states, numbers, count

    check(cell, x, h, w)


def test_products_with_shared_matrices(rng: np.random.Generator):
    w, v = floats(rng, 4, 3), floats(rng, 5, 3, 2)
    check(lambda x: w @ x, floats(rng, 6, 3))
    check(lambda x: w @ x, floats(rng, 6, 3, 2))
    check(lambda x: x @ v, floats(rng, 6, 3))
    x = floats(rng, 6, 3)
    slope = gf.grad(gf.sum(gf.vmap(lambda x: w @ x)(x) ** 2), w)
    expected = 2 * w.numpy() @ x.numpy().T @ x.numpy()
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-4, atol=1e-5)
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), name="x")
        gf.vmap(lambda x: x @ gf.zeros((3, 4)))(x)
    (product,) = [node for node in g.nodes if node.op.name == "matmul"]
    assert str(product.types[0]) == "float32[batch, 4]"


def test_a_scan_with_nothing_that_differs_is_made_once():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.vmap(lambda v: v * gf.scan(lambda c, _: (c * 2, c), gf.asarray(1.0), None, 4)[0])(x)
    (scan,) = [node for node in g.nodes if node.op.name == "scan"]
    assert scan.types[0].shape == ()
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session.run(y, {x: [1.0, 2.0]}), [16, 32])


@pytest.mark.parametrize("trips", [[3], [0], [2, 0, 5, 1], []])
def test_lanes_make_different_numbers_of_trips(trips: list[int], rng: np.random.Generator):
    table = floats(rng, 5)

    def function(x: gf.Tensor, n: gf.Tensor) -> Any:
        def body(state: Any) -> Any:
            i, v = state
            return i + 1, gf.sin(v) * 1.5 + table[i]  # i = 5 would be out of range

        return gf.while_loop(lambda state: state[0] < n, body, (gf.asarray(0), x))

    x, n = floats(rng, len(trips)), gf.asarray(np.array(trips, "int64"))
    if trips:
        check(function, x, n)
        second = gf.vmap(lambda a, b: gf.grad(gf.grad(function(a, b)[1], a), a, missing="zeros"))
        expected = looped(
            lambda a, b: gf.grad(gf.grad(function(a, b)[1], a), a, missing="zeros"), x, n
        )
        np.testing.assert_allclose(second(x, n).numpy(), expected[0], rtol=1e-4, atol=1e-5)
    else:
        assert [t.numpy().shape for t in gf.vmap(function)(x, n)] == [(0,), (0,)]


def test_nested_loops_in_nested_lanes(rng: np.random.Generator):
    table = floats(rng, 6)

    def inner(x: gf.Tensor, n: gf.Tensor) -> gf.Tensor:
        def body(state: Any) -> Any:
            i, v = state
            odd = gf.cond(i % 2 == 1, lambda: v * table[i], lambda: gf.sin(v) + 1)
            return i + 1, gf.scan(lambda c, t: (c * 0.5 + t, None), odd, table[:2])[0]

        return gf.while_loop(lambda state: state[0] < n, body, (gf.asarray(0), x))[1]

    x, n = floats(rng, 3, 4), gf.asarray(rng.integers(0, 7, size=(3, 4)))

    def rows(xs: gf.Tensor, ns: gf.Tensor) -> gf.Tensor:
        return gf.vmap(inner)(xs, ns)

    check(rows, x, n)
    expected = [looped(inner, x[i], n[i])[0] for i in range(3)]
    np.testing.assert_allclose(gf.vmap(rows)(x, n).numpy(), np.stack(expected), rtol=1e-5)


def test_a_loop_whose_condition_is_shared_stays_one_loop(rng: np.random.Generator):
    steps = gf.asarray(3)

    def function(x: gf.Tensor) -> gf.Tensor:
        return gf.fori_loop(0, steps, lambda i, v: gf.sin(v) + gf.astype(i, "float32"), x)

    check(function, floats(rng, 4, 2))
    with gf.Graph() as g:
        gf.vmap(function)(gf.placeholder(("n", 2), name="x"))
    (loop,) = [node for node in g.nodes if node.op.name == "loop"]
    assert loop.op.condition.outputs[0].node.op.name == "less"


def test_branches(rng: np.random.Generator):
    table = floats(rng, 4)

    def function(i: gf.Tensor, x: gf.Tensor) -> Any:
        lookup = gf.cond(i < 4, lambda v: gf.sin(v) * table[i], lambda v: v * 2, x)
        cheap = gf.switch(i, [lambda: x * 3, lambda: gf.exp(x), lambda: -x])
        return lookup, cheap

    check(function, gf.asarray([0, 9, 3, -2]), floats(rng, 4, 3))
    check(function, gf.asarray([7, 7]), floats(rng, 2, 3))  # a branch that nobody takes
    shared = gf.asarray(1)
    check(
        lambda x: gf.switch(shared, [lambda: x * 3, lambda: x @ gf.ones((2, 2))]), floats(rng, 3, 2)
    )
    empty = gf.vmap(function)(gf.zeros(0, dtype="int64"), gf.zeros((0, 3)))
    assert [t.numpy().shape for t in empty] == [(0, 3), (0, 3)]


def test_checkpoints_and_maps(rng: np.random.Generator):
    w = floats(rng, 3)
    check(lambda x: gf.checkpoint(lambda v: gf.exp(gf.sin(v * w)))(x), floats(rng, 4, 3))
    check(lambda x: gf.map(lambda row: gf.sum(row * w), x), floats(rng, 4, 2, 3))
    check(lambda x: gf.associative_scan(lambda a, b: a * b, x), floats(rng, 3, 5))


def test_control_flow_in_a_session(rng: np.random.Generator):
    with gf.Graph() as g:
        x = gf.placeholder(("batch",), name="x")

        def halved(v: gf.Tensor) -> gf.Tensor:
            return gf.while_loop(lambda s: s > 1, lambda s: s / 2, v)

        y = gf.vmap(halved)(x)
        slope = gf.grad(gf.sum(y), x)
    a = np.array([0.5, 9, 3, 100], "float32")
    with gf.Session(g) as session:
        value, gradient = session.run([y, slope], {x: a})
    trips = np.maximum(np.ceil(np.log2(a)), 0)
    np.testing.assert_allclose(value, a / 2**trips, rtol=1e-5)
    np.testing.assert_allclose(gradient, 1 / 2**trips, rtol=1e-5)


# Compositions of many ops.

COMPOSED: dict[str, Callable[[gf.Tensor], Any]] = {
    "softmax": lambda x: gf.softmax(x, axis=-1),
    "layer norm": lambda x: gf.layer_norm(x),
    "einsum": lambda x: gf.einsum("ij,kj->ik", x, x),
    "sort": lambda x: gf.sort(x, axis=0),
    "topk": lambda x: gf.topk(x, 2).values,
    "prod": lambda x: gf.prod(x, axis=(0, 1)),
    "cumulative": lambda x: gf.cumulative_prod(x, axis=1),
    "index": lambda x: x[[1, 0, 1], :2] * x[0, -1],
    "index set": lambda x: gf.index_set(x, ([0, 1], [1, 1]), x[0, :2] * 2),
    "pad": lambda x: gf.pad(x, 1, mode="reflect"),
    "attention": lambda x: gf.scaled_dot_product_attention(x, x * 2, x + 1, causal=True),
    "logsumexp": lambda x: gf.logsumexp(x, axis=1),
    "take along": lambda x: gf.take_along_axis(x, gf.argsort(x, axis=1), axis=1),
    "split": lambda x: gf.split(x, [1], axis=1),
    "solve": lambda x: gf.linalg.solve(x @ x.mT + 3 * gf.eye(3), x),
    "norms": lambda x: gf.linalg.matrix_norm(x),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_compositions(name: str, rng: np.random.Generator):
    check(COMPOSED[name], floats(rng, 3, 3, 4))


# Random draws.


@pytest.mark.parametrize("where", ["alone", "in a scan", "nested"])
def test_randomness(where: str):
    def draw(x: gf.Tensor) -> gf.Tensor:
        if where == "in a scan":
            return gf.scan(lambda c, _: (c, gf.random.normal((2,))), x, None, 3)[1]
        if where == "nested":
            return gf.vmap(lambda v: gf.random.normal((2,)))(gf.zeros(3))
        return gf.random.normal((2,))

    x = gf.zeros(4)
    different = gf.vmap(draw)(x).numpy().reshape(4, -1)
    assert len(np.unique(different)) == different.size
    same = gf.vmap(draw, randomness="same")(x).numpy().reshape(4, -1)
    assert (same == same[0]).all()
    assert len(np.unique(same[0])) == same[0].size
    with pytest.raises(ArgumentError, match="the function draws random numbers") as caught:
        gf.vmap(draw, randomness="error")(x)
    assert "test_vmap.py" in str(caught.value)
    assert 'randomness="different" or "same"' in str(caught.value)


def test_dropout_differs_from_example_to_example():
    x = gf.ones((5, 40))
    kept = gf.vmap(lambda v: gf.dropout(v, 0.5))(x).numpy()
    assert len(np.unique(kept, axis=0)) == 5


# Mistakes.


def message(kind: type[Exception], make: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        make()
    return str(caught.value)


def test_mistakes_in_arguments():
    x, y = gf.zeros((3, 2)), gf.zeros((4, 2))
    text = message(ShapeError, lambda: gf.vmap(lambda a, b: a + b)(x, y))
    assert "args[0] has 3 examples along axis 0, and args[1] 4 along axis 0" in text
    text = message(ShapeError, lambda: gf.vmap(lambda a, b: a, (0, {"k": 1}))(x, {"k": x}))
    assert "args[1]['k'] 2 along axis 1" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a, b: a, (0,))(x, y))
    assert "in_axes has 1 entries for 2 arguments" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, ((0, 0),))([x]))
    assert "in_axes (0, 0) does not fit args[0], a list with 1 entries" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, ("0",))(x))
    assert "in_axes '0' does not fit args[0]" in text
    text = message(AxisError, lambda: gf.vmap(lambda a: a, 2)(x))
    assert "in_axes: axis 2 is out of range for 2 dims, those of args[0]" in text
    text = message(ShapeError, lambda: gf.vmap(lambda a: a)(1.0))
    assert "args[0] is a scalar, which has no axis to map" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, None)(x))
    assert "nothing is mapped" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, randomness="equal"))
    assert "randomness='equal'" in text
    assert "'different', 'same', 'error'" in text
    assert "fn is an int" in message(ArgumentError, lambda: gf.vmap(3))  # type: ignore[arg-type]


def test_sizes_that_may_differ():
    with gf.Graph():
        x, y = gf.placeholder(("n", 2), name="x"), gf.placeholder(("m", 2), name="y")
        text = message(ShapeError, lambda: gf.vmap(lambda a, b: a)(x, y))
    assert "gf.assert_shape" in text


def test_mistakes_in_results():
    x = gf.zeros((3, 2))
    text = message(ArgumentError, lambda: gf.vmap(lambda a: "text")(x))
    assert "the function returns a str, not a tensor" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, out_axes=None)(x))
    assert "result differs from example to example, and its out_axes is None" in text
    text = message(AxisError, lambda: gf.vmap(lambda a: a, out_axes=3)(x))
    assert "out_axes: axis 3 is out of range for 2 dims, those of result" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: (a, a), out_axes=(0,))(x))
    assert "out_axes (0,) does not fit result, a tuple with 2 entries" in text


@pytest.fixture
def without_rule() -> Iterator[Op]:
    @op("without_rule")
    class WithoutRule(Op):
        vjp = None

        def shape(self, x: Any) -> Any:
            return x

        def dtype(self, x: Any) -> Any:
            return x

        def eval(self, xp: Any, x: Any) -> Any:
            return x

    yield WithoutRule()
    del REGISTRY["without_rule"]


def test_ops_without_a_rule_are_all_reported(without_rule: Op):
    from graphfw.ir.build import emit

    def function(x: gf.Tensor) -> gf.Tensor:
        first = emit(without_rule, x)
        state, _ = gf.scan(lambda c, _: (emit(without_rule, c), None), first, None, 2)
        return gf.sin(state)

    with pytest.raises(GraphError, match="no batch rule for without_rule") as caught:
        gf.vmap(function)(gf.zeros((3, 2)))
    assert len(caught.value.operands) == 2
    assert len({operand.loc.line for operand in caught.value.operands if operand.loc}) == 2
    assert emit(without_rule, gf.zeros(2)).numpy().tolist() == [0, 0]


def test_names_are_kept(rng: np.random.Generator):
    def function(x):
        with gf.name_scope("enc"):
            h = gf.identity(gf.tanh(x), name="h")
            gf.identity(h * 2, name="unused")
            shared = gf.identity(gf.asarray([1.0, 2.0]) * 3, name="shared")
            last, _ = gf.scan(lambda c, v: (gf.identity(c + v, name="c"), None), 0.0, h)
        return last + gf.sum(shared)

    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        with gf.name_scope("model"):
            gf.vmap(gf.vmap(function))(gf.expand_dims(x, axis=0))
        with pytest.raises(GraphError, match=r'the name "model.enc.h" is taken'):
            with gf.name_scope("model"):
                gf.vmap(function)(x)
    array = rng.normal(size=(4, 3)).astype(np.float32)
    with gf.Session(g) as session:
        names = [f"model.enc.{name}" for name in ("h", "unused", "shared")]
        h, unused, shared = session.run(names, {x: array})
    np.testing.assert_allclose(h, np.tanh(array)[None], rtol=1e-6)
    np.testing.assert_allclose(unused, 2 * np.tanh(array)[None], rtol=1e-6)
    np.testing.assert_array_equal(shared, [3, 6])
    (scan,) = [node for node in g.nodes if node.op.name == "scan"]
    assert [node.name for node in scan.op.body.nodes if node.name] == ["model.enc.c"]
