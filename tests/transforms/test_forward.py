"""`vjp`, `jvp`, `linearize`: values of any order, structures, and what they say."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, GradientError, ShapeError
from graphfw.ir.build import constant
from graphfw.ir.walk import ancestors
from tests.support.forwardcheck import check_tangents


def check(fn, *shapes, rng, dtype="float64"):
    """Check the tangents of a function of random arrays."""

    def several(*args):
        result = fn(*args)
        return result if isinstance(result, (list, tuple)) else [result]

    check_tangents(several, [constant(draw(rng, shape, dtype)) for shape in shapes], rng)


def draw(rng, shape, dtype):
    values = rng.normal(size=shape)
    return np.asarray(values + 1j * rng.normal(size=shape) if "complex" in dtype else values, dtype)


# Values.


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda x: gf.sin(x) * gf.exp(x) / (1 + x**2), [(3, 4)]),
        (lambda x, b: gf.tanh(x + b) * b, [(3, 1, 4), (5, 1)]),
        (lambda x, b: gf.where(x > 0, x * b, b), [(3, 4), ()]),
        (lambda x, w: (x @ w, gf.sum(w, axis=0)), [(5, 3, 4), (4, 2)]),
        (lambda x: (gf.mean(x, axis=1), gf.max(x, axis=0), gf.prod(x)), [(3, 4)]),
        (lambda x: (gf.softmax(x, axis=-1), gf.logsumexp(x), gf.var(x)), [(3, 4)]),
        (lambda x: gf.linalg.norm(gf.sort(x, axis=1)[:, ::2]), [(3, 5)]),
        (lambda x, y: gf.concat([x, y], axis=0)[1:, None], [(2, 3), (4, 3)]),
        (lambda x: gf.linalg.inv(x @ x.mT + gf.eye(3, dtype=gf.float64)), [(2, 3, 3)]),
        (lambda x: gf.cumulative_prod(x, axis=0) + gf.cumulative_sum(x, axis=1), [(3, 4)]),
        (lambda x: x, [(0, 3)]),
    ],
)
def test_against_differences(fn, shapes, rng):
    check(fn, *shapes, rng=rng)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda x: gf.exp(x) * x**2, [(3,)]),
        (lambda x, y: gf.conj(x) * y + gf.abs(x), [(3, 1), (2,)]),
        (lambda x: (gf.real(x) * gf.imag(x), gf.abs(x)), [(4,)]),
        (lambda x, w: gf.abs(x @ gf.conj(w)) ** 2, [(2, 3), (3, 2)]),
        (lambda x: gf.fft.fft(x) * x, [(5,)]),
        (lambda x: gf.fft.irfft(x), [(4,)]),
        (lambda x: gf.astype(gf.real(x), gf.complex128) * x, [(2,)]),
    ],
)
def test_complex_against_differences(fn, shapes, rng):
    check(fn, *shapes, rng=rng, dtype="complex128")


def mlp(x, w1, b1, w2):
    return gf.mean((gf.gelu(x @ w1 + b1) @ w2) ** 2)


MLP = [(6, 3), (3, 5), (5,), (5, 2)]


def test_mlp(rng):
    check(mlp, *MLP, rng=rng)


def attention(q, k, v):
    return gf.scaled_dot_product_attention(q, k, v, causal=True)


@pytest.mark.parametrize("is_op", [True, False])
def test_attention(rng, is_op):
    def composed(q, k, v):
        return gf.softmax(q @ k.mT * 0.5, axis=-1) @ v

    check(attention if is_op else composed, (2, 5, 4), (2, 5, 4), (2, 5, 3), rng=rng)


def test_against_jax(rng):
    jax = pytest.importorskip("jax")

    def ours(x, w):
        return gf.sum(gf.softmax(gf.tanh(x @ w), axis=-1) ** 2, axis=0)

    def theirs(x, w):
        return (jax.nn.softmax(jax.numpy.tanh(x @ w), axis=-1) ** 2).sum(axis=0)

    x, w, dx, dw = (rng.normal(size=s).astype("float32") for s in ((4, 3), (3, 5)) * 2)
    expected = jax.jvp(theirs, (x, w), (dx, dw))
    for a, b in zip(gf.jvp(ours, (x, w), (dx, dw)), expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-4, atol=1e-5)
    ct = rng.normal(size=5).astype("float32")
    back = gf.vjp(ours, x, w)[1](ct)
    for a, b in zip(back, jax.vjp(theirs, x, w)[1](ct), strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-4, atol=1e-5)


def test_against_torch(rng):
    torch = pytest.importorskip("torch")
    x, v = rng.normal(size=(2, 3, 4))

    def ours(x):
        return gf.cumulative_sum(gf.exp(gf.sin(x)), axis=1)

    def theirs(x):
        return torch.cumsum(torch.exp(torch.sin(x)), dim=1)

    expected = torch.autograd.functional.jvp(theirs, torch.tensor(x), torch.tensor(v))
    for a, b in zip(gf.jvp(ours, (x,), (v,)), expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_complex_against_jax(rng):
    jax = pytest.importorskip("jax")
    x, v = draw(rng, (2, 4), "complex64")
    ours = gf.jvp(lambda x: gf.conj(x) * gf.exp(x), (x,), (v,))[1]
    theirs = jax.jvp(lambda x: jax.numpy.conj(x) * jax.numpy.exp(x), (x,), (v,))[1]
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5)


# Composition.


def test_orders(rng):
    """d/dx by forward and reverse mode in any order, up to the third."""
    x = constant(np.asarray(rng.uniform(0.5, 2)))

    def forward(fn):
        return lambda x: gf.jvp(fn, (x,), (1.0,))[1]

    def reverse(fn):
        return lambda x: gf.vjp(fn, x)[1](1.0)[0]

    def by_grad(fn):
        def slope(x):
            return gf.grad(fn(x), x)

        return slope

    def fn(x):
        return gf.sin(x) * x**3

    a = float(x)
    second = (6 * a - a**3) * np.sin(a) + 6 * a**2 * np.cos(a)
    third = (6 - 9 * a**2) * np.sin(a) + (18 * a - a**3) * np.cos(a)
    modes = (forward, reverse, by_grad)
    for one in modes:
        for two in modes:
            np.testing.assert_allclose(float(one(two(fn))(x)), second, rtol=1e-9)
            for three in modes:
                np.testing.assert_allclose(float(one(two(three(fn)))(x)), third, rtol=1e-9)


def test_what_a_function_uses_besides_is_constant():
    """Perturbation confusion (Siskind and Pearlmutter, 2005): d/dx (x d/dy (x + y)) is 1."""

    def inner(x):
        return x * gf.jvp(lambda y: x + y, (x,), (1.0,))[1]

    assert float(gf.jvp(inner, (1.0,), (1.0,))[1]) == 1
    x = gf.asarray(3.0)
    _, pull = gf.vjp(lambda y: x * y, x)
    assert [float(t) for t in pull(1.0)] == [3]


def test_the_same_argument_twice():
    x = gf.asarray(2.0)
    _, pull = gf.vjp(lambda a, b: a * a * b, x, x)
    assert [float(t) for t in pull(1.0)] == [8, 4]
    assert float(gf.jvp(lambda a, b: a * a * b, (x, x), (1.0, None))[1]) == 8


def test_linearize_is_linear(rng):
    x, u, v = (constant(a) for a in rng.normal(size=(3, 4)))
    calls = []

    def fn(x):
        calls.append(x)
        return gf.exp(x) * gf.sum(x)

    y, push = gf.linearize(fn, x)
    np.testing.assert_allclose(y.numpy(), fn(x).numpy())
    np.testing.assert_allclose(
        push(2 * u - 3 * v).numpy(), 2 * push(u).numpy() - 3 * push(v).numpy(), rtol=1e-12
    )
    np.testing.assert_allclose(push(u).numpy(), gf.jvp(fn, (x,), (u,))[1].numpy())
    assert len(calls) == 3  # one call by linearize, two by this test


def test_under_vmap(rng):
    xs, vs = rng.normal(size=(2, 5, 3))

    def fn(x):
        return gf.softmax(x, axis=0) * gf.sum(x**2)

    moved = gf.vmap(lambda x, v: gf.jvp(fn, (x,), (v,))[1])(xs, vs)
    one_by_one = [gf.jvp(fn, (x,), (v,))[1].numpy() for x, v in zip(xs, vs, strict=True)]
    np.testing.assert_allclose(moved.numpy(), one_by_one, rtol=1e-12)
    over = gf.jvp(gf.vmap(fn), (xs,), (vs,))[1]
    np.testing.assert_allclose(over.numpy(), one_by_one, rtol=1e-12)
    back = gf.vmap(lambda x, v: gf.vjp(fn, x)[1](v)[0])(xs, vs)
    rows = [gf.vjp(fn, x)[1](v)[0].numpy() for x, v in zip(xs, vs, strict=True)]
    np.testing.assert_allclose(back.numpy(), rows, rtol=1e-12)


def test_pulled_back_in_a_body(rng):
    """The pullback is called inside a body, with composed attention outside of it."""
    q, k, v, ct = (constant(a) for a in rng.normal(size=(4, 5, 3)))
    _, pull = gf.vjp(lambda q, k, v: gf.softmax(q @ k.mT, axis=-1) @ v, q, k, v)
    expected = pull(ct)
    many = gf.map(pull, gf.stack([ct, 2 * ct]))
    for a, b in zip(many, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), np.stack([b.numpy(), 2 * b.numpy()]), rtol=1e-9)


def test_in_a_session_with_symbolic_dims(rng):
    with gf.Graph() as graph:
        x = gf.placeholder(("batch", 3), name="x")
        w = gf.constant(rng.normal(size=(3, 2)).astype("float32"))
        v = gf.placeholder(("batch", 3), name="v")
        y, moved = gf.jvp(lambda x: gf.softmax(x @ w, axis=-1), (x,), (v,))
        ct, pull = gf.vjp(lambda x: gf.log(1 + gf.sum(gf.exp(x), axis=1)), x)
        (back,) = pull(ct)
    assert moved.type == y.type
    assert back.type == x.type
    a, b = rng.normal(size=(2, 7, 3)).astype("float32")
    with gf.Session(graph) as session:
        ran = session.run([moved, back], {x: a, v: b})
    p = np.exp(a @ w.numpy())
    p /= p.sum(1, keepdims=True)
    t = b @ w.numpy()
    np.testing.assert_allclose(ran[0], p * (t - (p * t).sum(1, keepdims=True)), atol=1e-5)
    e = np.exp(a)
    total = 1 + e.sum(1, keepdims=True)
    np.testing.assert_allclose(ran[1], np.log(total) * e / total, rtol=1e-4)


def test_places_are_those_of_the_nodes():
    x = gf.asarray(2.0)
    _, moved = gf.jvp(lambda x: gf.sin(x), (x,), (1.0,))
    described = moved.node.loc.describe()
    assert "test_forward.py" in described
    assert described != gf.sin(x).node.loc.describe()


# What does not move.


def test_nothing_is_computed_for_what_does_not_move():
    x, w = gf.asarray([1.0, 2.0]), gf.asarray([3.0, 4.0])
    _, moved = gf.jvp(lambda x, w: gf.exp(w) + x, (x, w), (x, None))
    assert "exp" not in {node.op.name for node in ancestors([moved])}


def test_integers_have_no_tangent():
    xs = {"x": gf.asarray([1.0, 2.0]), "n": gf.asarray(1)}

    def fn(xs):
        return xs["x"][xs["n"]] ** 2, xs["n"] + 1

    tangents = {"x": gf.asarray([1.0, 1.0]), "n": None}
    (y, n), (moved, none) = gf.jvp(fn, (xs,), (tangents,))
    assert (float(y), int(n), float(moved), none) == (4, 2, 4, None)
    _, pull = gf.vjp(fn, xs)
    (back,) = pull((1.0, None))
    np.testing.assert_array_equal(back["x"].numpy(), [0, 4])
    assert back["n"] is None


def test_zeros_where_nothing_leads():
    x, z = gf.asarray([1.0, 2.0]), gf.asarray(3.0)
    ys, moved = gf.jvp(lambda x, z: (gf.floor(x), x * 2, gf.stop_gradient(z)), (x, z), (x, z))
    assert [t.numpy().tolist() for t in moved] == [[0, 0], [2, 4], 0]
    back = gf.vjp(lambda x, z: x * 2, x, z)[1](x)
    assert [t.numpy().tolist() for t in back] == [[2, 4], 0]
    assert [t.numpy().tolist() for t in gf.vjp(lambda x: (x, x), x)[1]((None, None))] == [[0, 0]]


def test_no_grad():
    """As in torch.func: an outer no_grad doesn't stop it, and is not differentiated through."""
    x = gf.asarray(3.0)
    with gf.no_grad():
        y, moved = gf.jvp(lambda x: gf.prod(gf.stack([x, x, x])), (x,), (x,))
    assert (float(y), float(moved)) == (27, 81)
    with pytest.raises(GradientError, match="only through stop_gradient"):
        gf.grad(moved, x)

    def stopped(x):
        with gf.no_grad():
            return x * x

    assert float(gf.jvp(stopped, (x,), (1.0,))[1]) == 0
    assert float(gf.vjp(stopped, x)[1](1.0)[0]) == 0


# Structures.


def test_structures(rng):
    parameters = {"w": rng.normal(size=(3, 2)), "layers": [(rng.normal(size=2), None)]}

    def fn(x, p):
        return {"y": x @ p["w"] + p["layers"][0][0], "sum": (gf.sum(p["w"]), None)}

    x = rng.normal(size=(4, 3))
    ys, moved = gf.jvp(fn, (x, parameters), (x, parameters))
    assert list(moved) == ["y", "sum"]
    assert moved["sum"][1] is None
    np.testing.assert_allclose(
        moved["y"].numpy(), 2 * x @ parameters["w"] + parameters["layers"][0][0], rtol=1e-12
    )
    ys, pull = gf.vjp(fn, x, parameters)
    to_x, to_p = pull(ys)
    assert to_x.shape == (4, 3)
    assert to_p["layers"][0][0].shape == (2,)
    assert to_p["layers"][0][1] is None


def test_aux():
    def fn(x):
        return x * x, {"twice": 2 * x, "name": "square"}

    y, moved, aux = gf.jvp(fn, (3.0,), (1.0,), has_aux=True)
    assert (float(y), float(moved), float(aux["twice"]), aux["name"]) == (9, 6, 6, "square")
    y, pull, aux = gf.vjp(fn, 3.0, has_aux=True)
    assert (float(y), float(pull(1.0)[0]), aux["name"]) == (9, 6, "square")
    y, push, aux = gf.linearize(fn, 3.0, has_aux=True)
    assert (float(y), float(push(1.0)), aux["name"]) == (9, 6, "square")


def test_custom_gradient(rng):
    @gf.custom_gradient
    def scaled(x, w):
        return x * w, lambda ct: (ct * 10.0, gf.sum(ct * w))

    x, v = rng.normal(size=(2, 3))
    w, u = 2.0, 5.0
    _, moved = gf.jvp(scaled, (constant(x), constant(np.asarray(w))), (v, constant(np.asarray(u))))
    np.testing.assert_allclose(moved.numpy(), 10 * v + u * w, rtol=1e-12)


# Mistakes.


def test_rule_that_is_not_linear():
    @gf.custom_gradient
    def clipped(x):
        return x, lambda ct: gf.clip(ct, -1.0, 1.0)

    with pytest.raises(GradientError, match="custom_gradient is not linear in the cotangent"):
        gf.jvp(clipped, (1.0,), (1.0,))


X = np.ones((2, 3), "float32")


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: gf.jvp(gf.sin, X, X), ArgumentError, "jvp: primals is .*, not a tuple"),
        (lambda: gf.jvp(gf.sin, (X,), X), ArgumentError, "jvp: tangents is .*, not a tuple"),
        (
            lambda: gf.jvp(gf.sin, (X,), (X, X)),
            ArgumentError,
            "the tangents and the primals have different structures: 2 and 1 tensor",
        ),
        (
            lambda: gf.jvp(gf.sin, (X,), ([X],)),
            ArgumentError,
            "jvp: the tangents and the primals have different structures",
        ),
        (
            lambda: gf.linearize(gf.sin, X)[1](),
            ArgumentError,
            "linearize: the tangents and the primals have different structures: 0 and 1",
        ),
        (
            lambda: gf.vjp(gf.sin, X)[1]((X,)),
            ArgumentError,
            "vjp: the cotangents and fn's result have different structures",
        ),
        (
            lambda: gf.jvp(gf.sin, (X,), (X[0],)),
            ShapeError,
            r"jvp: the tangents have float32\[3\] where float32\[2, 3\] belongs",
        ),
        (
            lambda: gf.jvp(gf.sin, (X,), (X.astype("float64"),)),
            DTypeError,
            r"have float64\[2, 3\] where float32\[2, 3\] belongs",
        ),
        (lambda: gf.vjp(gf.sin, X)[1](1.0), ShapeError, r"vjp: the cotangents have float32\[\]"),
        (lambda: gf.jvp(gf.sin, (1.0,), (1j,)), DTypeError, "have complex64"),
        (lambda: gf.jvp(lambda n: n, (3,), (1,)), GradientError, "no argument is a floating-point"),
        (lambda: gf.vjp(lambda n: n), GradientError, "vjp: no argument is a floating-point"),
        (
            lambda: gf.jvp(lambda x, n: x, (1.0, 3), (1.0, 1)),
            GradientError,
            "the tangents have an entry for int64 values, which have no derivative",
        ),
        (
            lambda: gf.vjp(lambda x: gf.argmax(x), X[0])[1](1),
            GradientError,
            "the cotangents have an entry for int64 values",
        ),
        (
            lambda: gf.vjp(lambda x: "result", X),
            ArgumentError,
            "vjp: fn returns something other than tensors: can't make an array of str",
        ),
        (
            lambda: gf.jvp(lambda x: None, (X,), (X,)),
            ArgumentError,
            "fn returns a NoneType and no tensor",
        ),
        (
            lambda: gf.jvp(gf.sin, ("x",), (X,)),
            ArgumentError,
            "jvp: fn is called with something other than tensors",
        ),
        (lambda: gf.vjp(X, X), ArgumentError, "vjp: fn is .*, not a function"),
        (
            lambda: gf.linearize(gf.sin, X, has_aux=True),
            ArgumentError,
            "linearize: has_aux=True, and fn returns .*, not a pair",
        ),
    ],
)
def test_mistakes(call, error, match):
    with pytest.raises(error, match=match) as caught:
        call()
    assert caught.value.fix
    assert len(str(caught.value).splitlines()) <= 6


def test_after_a_collected_error():
    with pytest.raises(gf.GraphErrors) as caught, gf.Graph(collect_errors=True):
        x = gf.placeholder((2, 3), name="x")
        _, moved = gf.jvp(lambda x: x @ gf.ones((2, 2)), (x,), (x,))
        _, pull = gf.vjp(lambda x: gf.sum(x @ gf.ones((2, 2))), x)
        gf.sum(moved) + gf.sum(pull(1.0)[0])
    assert len(caught.value.errors) == 2
