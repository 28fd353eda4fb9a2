"""Complex numbers in kernels: pairs of floats, against NumPy."""

import itertools

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import bool_, complex64, complex128, float32
from graphfw.runtime.kernels.complex_numbers import NoComplexFormError, Pair
from graphfw.runtime.kernels.ir import Expr
from graphfw.runtime.kernels.scalars import Scalars
from tests.runtime.kernels.test_scalars import Given, interpret
from tests.support.samples import OWN

SPECIAL = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan]
FORMS = "add subtract multiply divide negative abs equal not_equal exp conj real imag".split()
TOLERANCE = {"complex64": 2e-6, "complex128": 1e-14}


def elements(dtype, rng):
    """Numbers whose components are special ones, each with each, and random ones."""
    special = [complex(*components) for components in itertools.product(SPECIAL, SPECIAL)]
    drawn = rng.normal(size=(300, 2)) * 10.0 ** rng.uniform(-3, 3, (300, 2))
    return np.concatenate([special, drawn.view(complex)[:, 0]]).astype(dtype.dtype)


def given(x, dtype):
    components = [
        Given(np.ascontiguousarray(component), dtype.real) for component in (x.real, x.imag)
    ]
    return Pair(dtype, *components)


@pytest.mark.parametrize("dtype", [complex64, complex128], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_scalar_is_eval(name, dtype, rng):
    op = OWN[name]()
    xs = [elements(dtype, rng) for _ in op.labels]
    for x in xs[1:]:
        rng.shuffle(x)
    with np.errstate(all="ignore"):
        wanted = op.eval(np, *xs)
        found = interpret(op.scalar(Scalars(), *[given(x, dtype) for x in xs]))
    if wanted.dtype == bool:
        np.testing.assert_array_equal(found, wanted)
        return
    # Of infinite operands C leaves open which results are infinite and which NaN.
    settled = np.all([np.isfinite(x) for x in xs], axis=0) & np.isfinite(wanted)
    if name != "divide":
        settled |= np.isfinite(np.abs(wanted))
    tolerance = TOLERANCE[dtype.name]
    for component in ("real", "imag"):
        a, b = getattr(found, component)[settled], getattr(wanted, component)[settled]
        scale = np.abs(wanted)[settled]
        assert np.all((np.abs(a - b) <= tolerance * scale) | (a == b)), name


def test_the_exponentials_of_infinities_are_those_of_c(rng):
    x = elements(complex128, rng)[: len(SPECIAL) ** 2]
    with np.errstate(all="ignore"):
        found, wanted = interpret(Scalars().exp(given(x, complex128))), np.exp(x)
    for a, b in zip(found, wanted, strict=True):
        # Which sign an infinity of an angle without a sign has is open.
        np.testing.assert_allclose(abs(a.real), abs(b.real), rtol=1e-14)
        np.testing.assert_allclose(abs(a.imag), abs(b.imag), rtol=1e-14)


@pytest.mark.parametrize("x", [1, -2.0, 3j, np.inf, complex(np.nan, 1)])
def test_division_by_zero_is_numpys(x):
    k, zero = Scalars(), np.zeros(3, np.complex128)
    with np.errstate(all="ignore"):
        wanted = np.full(3, x, np.complex128) / zero
        found = interpret(
            k.div(given(np.full(3, x, np.complex128), complex128), given(zero, complex128))
        )
    np.testing.assert_array_equal(found, wanted)


def test_conversions_and_choices(rng):
    k, x = Scalars(), elements(complex64, rng)
    z = given(x, complex64)
    np.testing.assert_array_equal(interpret(k.cast(z, bool_)), x.astype(bool))
    np.testing.assert_array_equal(interpret(k.cast(z, complex128)), x.astype(np.complex128))
    np.testing.assert_array_equal(interpret(k.cast(Given(x.real, float32), complex64)), x.real + 0j)
    mask = rng.random(len(x)) < 0.5
    found = interpret(k.select(Given(mask, bool_), z, 2j))
    np.testing.assert_array_equal(found, np.where(mask, x, np.complex64(2j)))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(interpret(k.pow(z, 2)), interpret(k.mul(z, z)))


@pytest.mark.parametrize("function", ["log", "sin", "lt", "max", "floor"])
def test_other_functions_have_no_form(function):
    k, z = Scalars(), Expr(complex64)
    with pytest.raises(NoComplexFormError):
        k.call(function, *[z] * (2 if function in ("lt", "max") else 1))
    with pytest.raises(NoComplexFormError):
        k.pow(z, 3)
    with pytest.raises(NoComplexFormError):
        k.cast(z, float32)


def drawn(rng, shape, dtype):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def laid_out(array, layout):
    """The same elements, lying otherwise."""
    if layout == "transposed":
        return np.asfortranarray(array)
    if layout == "strided":
        return np.repeat(array, 2, axis=-1)[..., ::2]
    return np.ascontiguousarray(array[..., ::-1])[..., ::-1] if layout == "reversed" else array


def natively(session, outputs, feeds):
    """Whether all is computed by native code."""
    report = str(session.compile(outputs, feeds=[*feeds]).profile(*feeds.values()))
    return "outside of native code" not in report and "Python makes" not in report


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layout", ["dense", "transposed", "strided", "reversed"])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 5), (17, 33), (130, 257)], ids=str)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_sessions(rng, dtype, shape, layout, threads):
    a, b = drawn(rng, shape, dtype), drawn(rng, shape[1:], dtype)
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), dtype, name="x")
        y = gf.placeholder(("m",), dtype, name="y")
        z = gf.where(gf.real(x) > 0, x * y, x / (y + 2)) - 1j
        outputs = [
            gf.exp(z) * gf.conj(z),
            gf.abs(z) ** 2 + gf.imag(z),
            gf.sum(z, axis=0),
            gf.sum(z * 2, axis=1, keepdims=True),
            gf.cumulative_sum(z.mT, axis=0),
            gf.complex(gf.imag(x), 1.0) == z,
            gf.concat([z[::2], x[:1]], axis=0),
            gf.astype(z.mT[1:] + 1, "complex128"),
        ]
    session = gf.Session(g, threads=threads)
    assert natively(session, outputs[:6], {x: a, y: b})
    found = session.run(outputs, {x: laid_out(a, layout), y: b})
    with np.errstate(all="ignore"):
        z = np.where(a.real > 0, a * b, a / (b + 2)) - np.asarray(1j, dtype)
        wanted = [
            np.exp(z) * z.conj(),
            np.abs(z) ** 2 + z.imag,
            z.sum(axis=0),
            (z * 2).sum(axis=1, keepdims=True),
            z.T.cumsum(axis=0),
            (a.imag + 1j) == z,
            np.concatenate([z[::2], a[:1]]),
            (z.T[1:] + 1).astype(np.complex128),
        ]
    tolerance = 100 * TOLERANCE[dtype]
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_loops_carry_complex_numbers_natively(rng):
    a, x = drawn(rng, 37, "complex64") / 2, drawn(rng, (50, 3, 37), "complex64")
    with gf.Graph() as g:
        p, q = gf.placeholder((37,), "complex64"), gf.placeholder(("t", 3, 37), "complex64")

        def step(h, row):
            h = p * h + row
            return h, gf.real(h * gf.conj(h))

        last, powers = gf.scan(step, gf.zeros((3, 37), dtype="complex64"), q)
    session = gf.Session(g)
    h, wanted = np.zeros((3, 37), np.complex64), []
    for row in x:
        h = a * h + row
        wanted.append((h * h.conj()).real)
    found = session.run([last, powers], {p: a, q: x})
    np.testing.assert_allclose(found[0], h, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], wanted, rtol=1e-5, atol=1e-4)
    assert natively(session, [last, powers], {p: a, q: x})


def test_gradients_of_complex_chains(rng):
    a = drawn(rng, (5, 7), "complex128")
    with gf.Graph() as g:
        x = gf.placeholder((5, 7), "complex128")
        gradient = gf.grad(gf.sum(gf.abs(gf.exp(x * 1j) / (x + 3)) ** 2), x)
    found = gf.Session(g).run(gradient, {x: a})

    def loss(z):
        return (np.abs(np.exp(z * 1j) / (z + 3)) ** 2).sum()

    for at in [(0, 0), (2, 3), (4, 6)]:
        step = np.zeros_like(a)
        step[at] = 1e-6
        along = [(loss(a + d) - loss(a - d)) / 2e-6 for d in (step, step * 1j)]
        np.testing.assert_allclose(found[at], complex(*along), rtol=1e-5)


def test_complex_has_its_components_as_they_are():
    components = np.array([1.0, np.inf, np.nan, -0.0], np.float32)
    with gf.Graph() as g:
        x = gf.placeholder((4,), name="x")
        z = gf.complex(x, gf.flip(x))
    found = gf.Session(g).run(z, {x: components})
    assert found.dtype == np.complex64
    np.testing.assert_array_equal(found.real, components)
    np.testing.assert_array_equal(found.imag, components[::-1])
    with pytest.raises(gf.DTypeError, match="complex: wants floating-point tensors"):
        gf.complex(gf.complex(1.0, 2.0), 1.0)


@pytest.mark.parametrize("axis", [0, 1])
def test_inputs_of_a_concatenation_are_written_where_they_belong(rng, axis):
    a, b = drawn(rng, (5, 7), "complex64"), drawn(rng, (5, 7), "complex64")
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), "complex64", name="x")
        y = gf.placeholder(("n", "m"), "complex64", name="y")
        z = gf.concat([x * y, x + y], axis=axis)
        outputs = [z, gf.concat([gf.real(x) * 2.0, gf.imag(y)], axis=axis), z * 2]
    found = gf.Session(g).run(outputs, {x: a, y: b})
    joined = np.concatenate([a * b, a + b], axis=axis)
    wanted = [joined, np.concatenate([a.real * 2, b.imag], axis=axis), joined * 2]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
