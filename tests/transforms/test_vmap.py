"""`vmap`: what it gives is what a Python loop over the examples gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ShapeError
from tests.support.mapped import check, floats, looped

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
    """Tensors computed around it from `w` are part of the gradient with respect to `w`."""
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
