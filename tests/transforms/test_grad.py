"""`grad`: values of any order, what stops it, what it says, and edges without NaN."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, GradientError, GraphError, ShapeError
from graphfw.ir.build import constant, emit
from graphfw.ir.op import REGISTRY
from tests.support.gradcheck import check_gradients

# Values.


def test_grad_of_a_composition(rng: np.random.Generator):
    x = constant(rng.normal(size=(3, 4)))
    w = constant(rng.normal(size=(4, 2)))
    b = constant(rng.normal(size=2))
    y = gf.sum(gf.tanh(x @ w + b) ** 2)
    check_gradients(y, [x, w, b], rng)


def test_any_order(rng: np.random.Generator):
    x = gf.asarray(rng.uniform(0.5, 2, size=3))
    y = x**5
    for power, factor in ((4, 5), (3, 20), (2, 60), (1, 120), (0, 120)):
        y = gf.grad(gf.sum(y), x)
        np.testing.assert_allclose(y.numpy(), factor * x.numpy() ** power, rtol=1e-6)
    y = gf.grad(gf.sum(y), x, missing="zeros")
    np.testing.assert_array_equal(y.numpy(), np.zeros(3))


def test_results_come_as_the_xs_do():
    x, z = gf.asarray(2.0), gf.asarray(3.0)
    y = x * z
    assert float(gf.grad(y, x)) == 3
    assert [float(g) for g in gf.grad(y, [x])] == [3]
    assert [float(g) for g in gf.grad(y, (z, x))] == [2, 3]
    assert gf.grad(y, []) == []
    value, slope = gf.value_and_grad(y, x)
    assert value is y
    assert float(slope) == 3


def test_the_same_x_twice():
    x = gf.asarray([1.0, 2.0])
    first, second = gf.grad(gf.sum(x * x), [x, x])
    np.testing.assert_array_equal(first.numpy(), [2, 4])
    np.testing.assert_array_equal(second.numpy(), [2, 4])


def test_y_is_x():
    x = gf.asarray(2.0)
    assert float(gf.grad(x, x)) == 1
    v = gf.asarray([1.0, 2.0])
    np.testing.assert_array_equal(gf.grad(v, v, [5.0, 6.0]).numpy(), [5, 6])
    y = x * 3
    whole, by_x = gf.grad(y, [y, x])
    assert (float(whole), float(by_x)) == (1, 3)


def test_intermediate_xs():
    x = gf.asarray(2.0)
    h = x * x
    y = h * h + x
    by_h, by_x = gf.grad(y, [h, x])
    assert float(by_h) == 2 * 4
    assert float(by_x) == 4 * 8 + 1


def test_shared_subexpressions_add_up():
    x = gf.asarray(3.0)
    h = x * 2
    assert float(gf.grad(h * h + h, x)) == 2 * 2 * 6 + 2


def test_grad_y(rng: np.random.Generator):
    a = rng.normal(size=(3, 4))
    ct = rng.normal(size=(3, 4))
    x = gf.asarray(a)
    np.testing.assert_allclose(gf.grad(gf.exp(x), x, ct).numpy(), ct * np.exp(a), rtol=1e-6)
    np.testing.assert_allclose(gf.grad(gf.exp(x), x, 2.0).numpy(), 2 * np.exp(a), rtol=1e-6)
    np.testing.assert_allclose(gf.grad(gf.exp(x), x, ct[0]).numpy(), ct[0] * np.exp(a), rtol=1e-6)
    by_tensor = gf.grad(gf.exp(x), x, gf.asarray(ct))
    np.testing.assert_allclose(by_tensor.numpy(), ct * np.exp(a), rtol=1e-6)


def test_broadcast_operands_get_their_own_shape(rng: np.random.Generator):
    x = constant(rng.normal(size=(2, 1, 3)))
    b = constant(rng.normal(size=(4, 1)))
    s = constant(rng.normal(size=()))
    by_x, by_b, by_s = gf.grad(gf.sum(x * b + s), [x, b, s])
    assert (by_x.shape, by_b.shape, by_s.shape) == (x.shape, b.shape, ())
    check_gradients(x * b + s, [x, b, s], rng)


def test_dtypes_follow_the_xs():
    x = gf.asarray([1.0, 2.0], dtype=gf.float16)
    w = gf.asarray([1.0, 2.0], dtype=gf.float64)
    by_x, by_w = gf.grad(gf.sum(x * w), [x, w])
    assert by_x.dtype is gf.float16
    assert by_w.dtype is gf.float64


def test_complex_gradients_are_pytorchs():
    z = gf.asarray(np.array([1 + 2j, -0.5 + 1j]))
    loss = gf.sum(gf.real(z * gf.conj(z)))  # |z|², whose gradient is 2z
    np.testing.assert_allclose(gf.grad(loss, z).numpy(), 2 * z.numpy())
    square = gf.grad(z * z, z, np.ones(2, complex))
    np.testing.assert_allclose(square.numpy(), np.conj(2 * z.numpy()))
    r = gf.asarray(np.array([3.0, 4.0]))
    by_r = gf.grad(gf.sum(gf.real(r * z)), r)
    assert by_r.dtype is gf.float64
    np.testing.assert_allclose(by_r.numpy(), [1, -0.5])


def test_symbolic_shapes(rng: np.random.Generator):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), gf.float64, name="x")
        w = gf.placeholder((3,), gf.float64, name="w")
        y = gf.mean((x * w) ** 2)
        by_x, by_w = gf.grad(y, [x, w])
    assert by_x.type == x.type
    assert by_w.type == w.type
    a, b = rng.normal(size=(5, 3)), rng.normal(size=3)
    with gf.Session(g) as session:
        got = session.run([by_x, by_w], {x: a, w: b})
    np.testing.assert_allclose(got[0], 2 * a * b * b / 15)
    np.testing.assert_allclose(got[1], (2 * a * a * b / 15).sum(axis=0))


def test_gradients_of_variables():
    with gf.Graph() as g:
        w = gf.Variable([1.0, 2.0], name="w")
        step = gf.update(w, w - 0.5 * gf.grad(gf.sum(w * w), w))
    with gf.Session(g) as session:
        session.run(step)
        np.testing.assert_array_equal(session[w], [0, 0])


def test_gradient_nodes_have_the_forward_nodes_place():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        h = gf.exp(x)
        y = gf.sum(h * h)
        g = gf.grad(y, x)
    assert g.node.loc.line == h.node.loc.line
    assert g.node.loc.grad_of == h.node.loc
    assert gf.exp(gf.asarray(1.0)).node.loc.grad_of is None


def test_unneeded_gradients_make_no_nodes():
    with gf.Graph() as g:
        x = gf.placeholder((3, 4), name="x")
        w = gf.placeholder((4, 2), name="w")
        y = gf.sum(x @ w)
        before = len(g.nodes)
        gf.grad(y, w)
    made = [node.op.name for node in g.nodes[before:]]
    assert made.count("matmul") == 1


# What stops a gradient.


def test_no_path():
    x, z = gf.asarray(1.0), gf.asarray(2.0)
    with pytest.raises(GradientError) as caught:
        gf.grad(z * 2, x)
    text = str(caught.value)
    assert text.startswith("grad: y does not depend on x")
    assert 'pass missing="zeros" where that is meant' in text
    assert [o.label for o in caught.value.operands] == ["y", "x"]
    zeros = gf.grad(z * 2, [x, z], missing="zeros")
    assert [float(t) for t in zeros] == [0, 2]


def test_no_path_names_the_x():
    with gf.Graph():
        x = gf.placeholder((3,), name="features")
        z = gf.placeholder((3,), name="z")
        with pytest.raises(GradientError, match='grad: y does not depend on x "features"'):
            gf.grad(gf.sum(z), x)
        assert gf.grad(gf.sum(z), x, missing="zeros").type == x.type


@pytest.mark.parametrize(
    ("through", "name"),
    [
        (gf.stop_gradient, "stop_gradient"),
        (lambda x: gf.astype(gf.argmax(x), gf.float32), "argmax"),
        (lambda x: gf.astype(x > 0, gf.float32), "greater"),
        (gf.isnan, "isnan"),
        (lambda x: gf.astype(x, gf.int32), "astype"),
        (lambda x: gf.astype(x, "float8_e4m3fn"), "astype"),
    ],
)
def test_blocked_paths(through, name: str):
    x = gf.asarray([1.0, 2.0])
    y = gf.sum(gf.astype(through(x), gf.float32) * 2)
    with pytest.raises(GradientError) as caught:
        gf.grad(y, x)
    text = str(caught.value)
    assert text.startswith(f"grad: y depends on x only through {name}, which no gradient passes")
    assert 'use a differentiable function there, or pass missing="zeros"' in text
    np.testing.assert_array_equal(gf.grad(y, x, missing="zeros").numpy(), [0, 0])


def test_one_open_path_is_enough():
    x = gf.asarray(3.0)
    assert float(gf.grad(x * gf.stop_gradient(x), x)) == 3
    with gf.no_grad():
        frozen = x * x
    assert float(gf.grad(x * frozen, x)) == 9


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_integers_have_no_gradient(dtype: str):
    x = gf.asarray([1, 0], dtype=dtype)
    z = gf.asarray(2.0)
    with pytest.raises(GradientError, match=f"with respect to {dtype} values is not defined") as e:
        gf.grad(z * gf.sum(gf.astype(x, gf.float32)), x)
    assert "floating-point tensors" in str(e.value)
    with pytest.raises(GradientError, match="grad: y is int64, which has no gradient") as e:
        gf.grad(gf.sum(gf.astype(x, gf.int64)), z)
    assert "make the loss a floating-point tensor" in str(e.value)


def test_integer_operands_beside_floats():
    """Gradients pass an op that also takes indices or conditions."""
    table = gf.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows = gf.take(table, gf.asarray([2, 0, 2]), axis=0)
    np.testing.assert_array_equal(gf.grad(gf.sum(rows), table).numpy(), [[1, 1], [0, 0], [2, 2]])


def test_only_scalars_have_one_gradient():
    x = gf.asarray([1.0, 2.0])
    with pytest.raises(GradientError, match="only a scalar has one gradient") as caught:
        gf.grad(x * x, x)
    assert "reduce it first, with gf.sum or gf.mean, or pass grad_y=" in str(caught.value)
    with pytest.raises(GradientError, match="only a scalar has one gradient"):
        gf.grad(gf.reshape(gf.sum(x), (1,)), x)


def test_grad_y_must_fit():
    x = gf.asarray([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"grad: grad_y is float32\[3\] and y is float32\[2\]"):
        gf.grad(x * x, x, [1.0, 2.0, 3.0])
    with pytest.raises(ShapeError, match="grad_y is"):
        gf.grad(gf.sum(x), x, [[1.0]])


def test_wrong_arguments():
    x = gf.asarray(1.0)
    with pytest.raises(ArgumentError, match="grad: y is a float, not a tensor"):
        gf.grad(2.0, x)
    with pytest.raises(ArgumentError, match=r"grad: xs\[0\] is a float, not a tensor"):
        gf.grad(x, [2.0])
    with pytest.raises(ArgumentError, match="grad: missing='zero' is neither"):
        gf.grad(x, x, missing="zero")


def test_tensors_of_a_closed_graph():
    with gf.Graph():
        x = gf.placeholder((), name="x")
        y = x * x
    with pytest.raises(gf.GraphError, match="belongs to"):
        gf.grad(y, x)


# Edges: no NaN where the true gradient is finite, or the other branch was taken.

EDGES = [
    (lambda x: gf.where(x > 0, gf.sqrt(x), 0.0), [0.0, 4.0], [0, 0.25]),
    (lambda x: gf.where(x > 0, gf.log(x), 0.0), [0.0, 2.0], [0, 0.5]),
    (lambda x: gf.where(x != 0, gf.sin(x) / x, 1.0), [0.0], [0]),
    (lambda x: gf.where(x > 0, x**0.5, 0.0), [0.0, 4.0], [0, 0.25]),
    (lambda x: x**0, [0.0, 2.0], [0, 0]),
    (lambda x: x**1, [0.0, -2.0], [1, 1]),
    (lambda x: x**2, [0.0, -3.0], [0, -6]),
    (lambda x: x * gf.sqrt(gf.asarray(0.0)), [1.0], [0]),
    (gf.abs, [-2.0, 3.0], [-1, 1]),
    (lambda x: gf.norm(x), [3.0, 4.0], [0.6, 0.8]),
    (lambda x: gf.norm(x), [0.0, 0.0], [0, 0]),
    (lambda x: gf.std(x), [2.0, 2.0], [0, 0]),
    (lambda x: gf.prod(x), [0.0, 2.0, 3.0], [6, 0, 0]),
    (lambda x: gf.prod(x), [0.0, 0.0, 3.0], [0, 0, 0]),
    (lambda x: gf.softmax(x, axis=0)[0], [1000.0, -1000.0], [0, 0]),
    (lambda x: gf.log_softmax(x, axis=0)[1], [1000.0, -1000.0], [-1, 1]),
    (lambda x: gf.logsumexp(x), [-np.inf, 0.0], [0, 1]),
    (lambda x: gf.sigmoid(x), [1000.0, -1000.0], [0, 0]),
    (lambda x: gf.softplus(x), [1000.0, -1000.0], [1, 0]),
    (lambda x: gf.log_sigmoid(x), [1000.0, -1000.0], [0, 1]),
    (lambda x: gf.tanh(x), [1000.0, -1000.0], [0, 0]),
    (lambda x: gf.logaddexp(x, -np.inf), [0.0], [1]),
    (lambda x: gf.hypot(x, 0.0), [3.0, -4.0], [1, -1]),
    (lambda x: gf.maximum(x, 0.0), [2.0, -3.0], [1, 0]),
    (lambda x: gf.clip(x, 0.0, 1.0), [-1.0, 0.5, 3.0], [0, 1, 0]),
]


@pytest.mark.parametrize(("function", "at", "expected"), EDGES)
def test_edges_have_finite_gradients(function, at: list[float], expected: list[float]):
    x = gf.asarray(at, dtype=gf.float64)
    slope = gf.grad(gf.sum(function(x)), x, missing="zeros")
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: gf.where(x > 0, gf.sqrt(x), x),
        lambda x: gf.where(x > 0, gf.log(x), x),
        lambda x: gf.where(x > 0, 1 / x, x),
        lambda x: gf.where(x > 0, x**-0.5, x),
    ],
)
def test_second_gradients_of_branches_not_taken(function):
    x = gf.asarray([0.0, 1.0], dtype=gf.float64)
    first = gf.grad(gf.sum(function(x)), x)
    second = gf.grad(gf.sum(first), x, missing="zeros")
    assert np.isfinite(first.numpy()).all()
    assert np.isfinite(second.numpy()).all()
    assert second.numpy()[0] == 0


# Size.


@pytest.mark.slow
def test_a_chain_of_20_000_takes_linear_time():
    add = REGISTRY["add"]()
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        y = x
        for _ in range(20_000):
            y = emit(add, y, x)
        before = len(g.nodes)
        gf.grad(y, x)
    assert len(g.nodes) - before <= 2 * 20_000


def test_shared_subexpressions_are_walked_once():
    """2⁶⁰ paths from y to x."""
    x = gf.asarray(1.0, dtype=gf.float64)
    y = x
    for _ in range(60):
        y = y + y
    assert float(gf.grad(y, x)) == 2.0**60


# Arguments.


def test_xs_that_are_no_tensors():
    with pytest.raises(ArgumentError, match="xs=3 is neither a tensor nor a list of them"):
        gf.grad(gf.asarray(1.0), 3)


def test_outside_the_graph_of_y():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        y = gf.sum(x / 2.0)
    with pytest.raises(GraphError, match="grad: this line makes a node outside") as caught:
        gf.grad(y, x)
    assert caught.value.at.file == __file__
