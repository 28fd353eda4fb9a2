"""`jacobian`, `hessian`, `hvp`: both modes, structures, and what they say."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, GradientError
from graphfw.ir.build import constant
from graphfw.ir.walk import ancestors

MODES = ("forward", "reverse", "auto")
modes = pytest.mark.parametrize("mode", MODES)


def numeric(fn, x):
    """The Jacobian of a function of one array, column by column: [*Y, *X]."""
    step = 1e-6
    columns = []
    for unit in np.eye(x.size).reshape(x.size, *x.shape):
        forward, backward = (fn(constant(np.asarray(x + h * unit))).numpy() for h in (step, -step))
        columns.append((forward - backward) / (2 * step))
    shape = (*fn(constant(x)).shape, *x.shape)
    return np.stack(columns, axis=-1).reshape(shape)


FUNCTIONS = {
    "tall": (lambda x: gf.concat([gf.sin(x), x[::-1] * x, x[:2]], axis=0), (3,)),
    "wide": (lambda x: gf.tanh(x @ gf.ones((4, 2), dtype=x.dtype)) * x[0, 0], (3, 4)),
    "to a scalar": (lambda x: gf.prod(gf.sin(x)), (2, 3)),
    "of a scalar": (lambda x: x * gf.asarray(np.arange(4.0)), ()),
    "scalar": (lambda x: x**3, ()),
    "matrices": (lambda x: gf.linalg.inv(x + 4 * gf.eye(2, dtype=x.dtype)), (3, 2, 2)),
    "constant": (lambda x: gf.ones((2,), dtype=x.dtype), (3,)),
    "scan": (lambda x: gf.scan(lambda c, e: (gf.sin(c) * e, c), x[0], x)[1], (4,)),
    "while": (
        lambda x: gf.while_loop(lambda v: v[1] < 3, lambda v: (gf.sin(v[0]) + x, v[1] + 1), (x, 0))[
            0
        ],
        (3,),
    ),
    "branch": (lambda x: gf.cond(gf.sum(x) > 0, lambda: gf.exp(x), lambda: x * x), (3,)),
    "checkpoint": (gf.checkpoint(lambda x: gf.exp(gf.sin(x)) * gf.sum(x)), (3,)),
}


@pytest.mark.exhaustive
@modes
@pytest.mark.parametrize(("fn", "shape"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_jacobian(fn, shape, mode, rng):
    x = np.asarray(rng.uniform(0.5, 1.5, size=shape))
    result = gf.jacobian(fn, mode=mode)(x)
    np.testing.assert_allclose(result.numpy(), numeric(fn, x), rtol=1e-6, atol=1e-7)


@modes
@pytest.mark.parametrize("shapes", [((0,), (2,)), ((2,), (0,)), ((0,), (0,)), ((1,), (1,))])
def test_sizes_0_and_1(shapes, mode):
    source, target = shapes
    result = gf.jacobian(lambda x: gf.sum(x) * gf.ones(target), mode=mode)(gf.ones(source))
    np.testing.assert_array_equal(result.numpy(), np.ones((*target, *source)))


@modes
def test_structures(mode, rng):
    x, w, b = (constant(rng.normal(size=s)) for s in ((4, 3), (3, 2), (2,)))

    def fn(x, p):
        return {"y": x @ p["w"] + p["b"], "total": (gf.sum(p["b"] ** 2), None)}

    p = {"w": w, "b": b}
    one = gf.jacobian(fn, 1, mode=mode)(x, p)
    assert one["y"]["w"].shape == (4, 2, 3, 2)
    assert one["total"][1] is None
    np.testing.assert_allclose(one["total"][0]["b"].numpy(), 2 * b.numpy())
    several = gf.jacobian(fn, (-2, 1), mode=mode)(x, p)
    by_x, by_p = several["y"]
    np.testing.assert_array_equal(by_p["w"].numpy(), one["y"]["w"].numpy())
    expected = np.einsum("ik,lj->ijkl", np.eye(4), w.numpy())
    np.testing.assert_allclose(by_x.numpy(), expected)
    np.testing.assert_array_equal(several["total"][0][0].numpy(), np.zeros((4, 3)))


def test_fewer_passes_are_chosen():
    """Tall functions are differentiated forward; the loop in this one shows which way it was."""

    def backwards(outputs, inputs):
        def fn(x):
            last, _ = gf.scan(lambda c, _: (gf.sin(c), None), gf.sum(x), length=3)
            return last * gf.ones((outputs,))

        made = ancestors([gf.jacobian(fn)(gf.ones((inputs,)))])
        return any(node.op.name == "scan" and node.op.backwards for node in made)

    assert not backwards(5, 2)
    assert backwards(2, 5)


@modes
def test_symbolic_dims(mode, rng):
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 2), name="x")
        result = gf.jacobian(lambda x: gf.sum(x**2, axis=1), mode=mode)(x)
    assert str(result.shape) == "(n, n, 2)"
    with gf.Session(graph) as session:
        for n in (1, 3):
            a = rng.normal(size=(n, 2)).astype("float32")
            expected = np.einsum("ij,jk->ijk", np.eye(n), 2 * a)
            np.testing.assert_allclose(session.run(result, {x: a}), expected, rtol=1e-6)


def test_against_jax(rng):
    jax = pytest.importorskip("jax")
    x, w = rng.normal(size=3).astype("float32"), rng.normal(size=(3, 2)).astype("float32")

    def fn(lib):
        return lambda x, w: lib.exp(lib.sin(x) @ w) * lib.sum(w**2)

    ours = gf.hessian(fn(gf), (0, 1))(x, w)
    theirs = jax.hessian(fn(jax.numpy), (0, 1))(x, w)
    for a, b in zip(ours, theirs, strict=True):
        for one, two in zip(a, b, strict=True):
            assert one.shape == two.shape
            np.testing.assert_allclose(one.numpy(), two, rtol=1e-3, atol=1e-4)


# Second derivatives.


def mlp(x, p):
    return gf.mean((gf.tanh(x @ p["w1"] + p["b1"]) @ p["w2"]) ** 2)


@pytest.fixture
def parameters(rng):
    return {n: rng.normal(size=s) for n, s in {"w1": (3, 4), "b1": (4,), "w2": (4, 2)}.items()}


def test_hvp_is_the_gradient_of_the_gradient(rng, parameters):
    x = rng.normal(size=(5, 3))
    p = {n: constant(a) for n, a in parameters.items()}
    v = {n: constant(rng.normal(size=a.shape)) for n, a in parameters.items()}
    value, (none, product) = gf.hvp(mlp, (x, p), (None, v))
    assert none.shape == x.shape
    np.testing.assert_allclose(value.numpy(), mlp(x, p).numpy())
    first = gf.grad(mlp(x, p), list(p.values()))
    along = sum(gf.sum(g * t) for g, t in zip(first, v.values(), strict=True))
    for a, b in zip(product.values(), gf.grad(along, list(p.values())), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)


def test_hvp_is_the_hessian_times_the_vector(rng, parameters):
    x = rng.normal(size=(5, 3))
    p = {n: constant(a) for n, a in parameters.items()}
    v = {n: constant(rng.normal(size=a.shape)) for n, a in parameters.items()}
    whole = gf.hessian(mlp, 1)(x, p)
    _, (_, product) = gf.hvp(mlp, (x, p), (None, v))
    for name, row in whole.items():
        total = sum(
            np.tensordot(block.numpy(), v[other].numpy(), axes=v[other].ndim)
            for other, block in row.items()
        )
        np.testing.assert_allclose(product[name].numpy(), total, rtol=1e-9, atol=1e-12)
        for other in row:
            one, two = row[other].numpy(), whole[other][name].numpy()
            order = (*range(one.ndim - v[other].ndim, one.ndim), *range(v[name].ndim))
            np.testing.assert_allclose(one.transpose(order), two, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("is_op", [True, False])
def test_hvp_through_attention(is_op, rng):
    """The gradient of attention that is composed is that of the op, whose tangent is taken."""
    k, v = (constant(a) for a in rng.normal(size=(2, 2, 6, 4)))

    def fn(q):
        if is_op:
            return gf.sum(gf.scaled_dot_product_attention(q, k, v, causal=True) ** 2)
        return gf.sum((gf.softmax(q @ k.mT * 0.5, axis=-1) @ v) ** 2)

    q, t = rng.normal(size=(2, 2, 6, 4))
    expected = numeric(lambda h: gf.vjp(fn, q + h * t)[1](1.0)[0], np.zeros(()))
    _, (product,) = gf.hvp(fn, (q,), (t,))
    np.testing.assert_allclose(product.numpy(), expected, rtol=1e-6, atol=1e-7)


def test_hessian_of_several_results(rng):
    x = rng.normal(size=3)
    result = gf.hessian(lambda x: x**3 * x[0])(x)
    expected = numeric(lambda x: gf.jacobian(lambda x: x**3 * x[0])(x), x)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-7)


def test_hessian_of_a_loop(rng):
    x = rng.uniform(0.5, 1.5, size=3)

    def fn(x):
        return gf.sum(gf.scan(lambda c, e: (gf.sin(c * e), c * x), x, x)[1])

    expected = numeric(gf.jacobian(fn), x)
    np.testing.assert_allclose(gf.hessian(fn)(x).numpy(), expected, rtol=1e-6, atol=1e-7)


# Complex numbers.

MATRIX = np.array([[1 + 2j, -1j, 0.5], [2, 1 - 1j, -3 + 1j]])


def mixed(z):
    return gf.tanh(MATRIX @ (z * z)) * gf.exp(z[:2])


def mixed_slope(z):
    """The complex derivative of `mixed`.  z: [3] -> [2, 3]"""
    inside = np.tanh(MATRIX @ (z * z))
    slope = (1 - inside**2)[:, None] * MATRIX * (2 * z) + np.diag(inside) @ np.eye(2, 3)
    return slope * np.exp(z[:2])[:, None]


@modes
@pytest.mark.parametrize("is_real", [False, True])
def test_complex_derivatives(mode, is_real, rng):
    z = rng.normal(size=3) + (0 if is_real else 1j * rng.normal(size=3))
    found = gf.jacobian(mixed, mode=mode, holomorphic=not is_real)(z).numpy()
    np.testing.assert_allclose(found, mixed_slope(z), rtol=1e-10)


def test_the_gradient_is_the_conjugate_of_the_complex_derivative():
    z = gf.asarray(1 + 2j)
    np.testing.assert_allclose(gf.jacobian(gf.exp, holomorphic=True)(z).numpy(), np.exp(1 + 2j))
    np.testing.assert_allclose(gf.grad(gf.exp(z), z).numpy(), np.exp(1 - 2j))


@pytest.mark.parametrize("is_real", [False, True])
def test_complex_second_derivatives(is_real, rng):
    z = rng.normal(size=3) + (0 if is_real else 1j * rng.normal(size=3))
    found = gf.hessian(lambda z: 1j * gf.sum(z**3) * z[0], holomorphic=not is_real)(z).numpy()
    wanted = np.diag(6 * z * z[0])
    wanted[0] += 3 * z**2
    wanted[:, 0] += 3 * z**2
    np.testing.assert_allclose(found, 1j * wanted, rtol=1e-10)


# Mistakes.

X = np.ones((2, 3), "float32")


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: gf.jacobian(gf.sin, mode="backward"), ArgumentError, "mode='backward'"),
        (lambda: gf.jacobian(X), ArgumentError, "jacobian: fn is .*, not a function"),
        (
            lambda: gf.jacobian(gf.sin, 1)(X),
            ArgumentError,
            "argnums=1, and the function is called with 1 argument",
        ),
        (
            lambda: gf.jacobian(gf.sin, 0.5),
            ArgumentError,
            "argnums=0.5 is neither a number nor several",
        ),
        (lambda: gf.jacobian(gf.exp)(X * 1j), GradientError, "an argument is complex64"),
        (
            lambda: gf.jacobian(gf.exp, holomorphic=True)(X),
            GradientError,
            "an argument is float32, not complex: holomorphic=True",
        ),
        (
            lambda: gf.jacobian(gf.real, holomorphic=True)(X * 1j),
            GradientError,
            "a result is float32, not complex: holomorphic=True",
        ),
        (
            lambda: gf.jacobian(lambda x: gf.argmax(x))(X),
            GradientError,
            "jacobian: a result is int64, not floating-point",
        ),
        (
            lambda: gf.jacobian(lambda x, n: x * n, (0, 1))(X, 2),
            GradientError,
            "jacobian: an argument is int64",
        ),
        (
            lambda: gf.hvp(gf.sin, (X,), (X,)),
            GradientError,
            r"hvp: fn returns float32\[2, 3\], and only a scalar has a Hessian",
        ),
        (lambda: gf.hvp(gf.sum, X, X), ArgumentError, "hvp: primals is .*, not a tuple"),
        (lambda: gf.hvp(gf.sum, (X,), ()), ArgumentError, "hvp: the tangents and the primals have"),
    ],
)
def test_mistakes(call, error, match):
    with pytest.raises(error, match=match) as caught:
        call()
    assert caught.value.fix
