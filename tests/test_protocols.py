"""Code of other libraries, written for the Array API standard or for NumPy, describes graphs.

What works with sizes that are not known yet, what needs known sizes, and what can't work: see
docs/array-api.md.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import graphfw as gf


def fed(shape, *arrays, make):
    """Describe with placeholders of a shape, and return the value that a run gives."""
    with gf.Graph() as g:
        xs = [gf.placeholder(shape, a.dtype, name=f"x{i}") for i, a in enumerate(arrays)]
        fetch = make(*xs)
    with gf.Session(g) as session:
        return session.run(fetch, dict(zip(xs, arrays, strict=True)))


@pytest.fixture
def data():
    return np.random.default_rng().normal(size=(6, 4)).astype(np.float32)


# array-api-compat: how code for the standard finds the namespace.


def test_compat(data):
    compat = pytest.importorskip("array_api_compat")
    x = gf.asarray(data)
    assert compat.array_namespace(x, 1.0, None) is gf
    assert compat.is_array_api_obj(x)
    assert compat.device(x) == "graph"
    assert compat.to_device(x, "graph") is x
    assert compat.size(x) == 24
    assert not compat.is_lazy_array(x)
    with gf.Graph():
        y = gf.placeholder((2, 3), name="y")
        assert compat.array_namespace(y) is gf
        assert compat.is_lazy_array(y)
        with pytest.raises(TypeError, match="n` as an int"):
            compat.size(gf.placeholder(("n",), name="z"))


# array-api-extra.

EXTRA_OF_ANY_SIZE = {
    "apply_where": (lambda xpx, x: xpx.apply_where(x > 0, x, gf.sqrt, fill_value=-1.0)),
    "isclose": (lambda xpx, x: xpx.isclose(x, x + 1e-9)),
    "one_hot": (lambda xpx, x: xpx.one_hot(gf.argmax(x, axis=1), 4)),
    "atleast_nd": (lambda xpx, x: xpx.atleast_nd(x, ndim=3)),
    "nan_to_num": (lambda xpx, x: xpx.nan_to_num(x)),
    "sinc": (lambda xpx, x: xpx.sinc(x)),
}
EXTRA_OF_KNOWN_SIZES = {
    "cov": (lambda xpx, x: xpx.cov(x)),
    "kron": (lambda xpx, x: xpx.kron(x, x[:2, :2])),
    "argpartition": (lambda xpx, x: xpx.argpartition(x, 3, axis=0)),
    "partition": (lambda xpx, x: xpx.partition(x, 2, axis=1)),
}
EXPECTED = {
    "apply_where": lambda x: np.where(x > 0, np.sqrt(np.abs(x)), np.float32(-1)),
    "isclose": lambda x: np.isclose(x, x + np.float32(1e-9)),
    "one_hot": lambda x: np.eye(4, dtype="float32")[np.argmax(x, axis=1)],
    "atleast_nd": lambda x: x[None],
    "nan_to_num": np.nan_to_num,
    "sinc": np.sinc,
    "cov": np.cov,
    "kron": lambda x: np.kron(x, x[:2, :2]),
    "argpartition": lambda x: np.argsort(x, axis=0),
    "partition": lambda x: np.sort(x, axis=1),
}


@pytest.mark.parametrize("name", EXTRA_OF_ANY_SIZE)
def test_extra(name, data):
    xpx = pytest.importorskip("array_api_extra")
    value = fed(("n", 4), data, make=lambda x: EXTRA_OF_ANY_SIZE[name](xpx, x))
    np.testing.assert_allclose(value, EXPECTED[name](data), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", EXTRA_OF_KNOWN_SIZES)
def test_extra_with_known_sizes(name, data):
    xpx = pytest.importorskip("array_api_extra")
    value = fed(data.shape, data, make=lambda x: EXTRA_OF_KNOWN_SIZES[name](xpx, x))
    np.testing.assert_allclose(value, EXPECTED[name](data), rtol=1e-5, atol=1e-6)


def test_extra_with_known_values():
    xpx = pytest.importorskip("array_api_extra")
    x = gf.asarray([3, 1, 3])
    assert int(xpx.nunique(x)) == 2
    np.testing.assert_array_equal(xpx.setdiff1d(x, gf.asarray([3])).numpy(), [1])


def test_extra_that_writes_is_refused():
    xpx = pytest.importorskip("array_api_extra")
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        with pytest.raises(gf.ConcreteValueError, match="tensors don't change") as caught:
            xpx.at(x)[0].set(1.0)
    assert "x.at[i].set(v)" in caught.value.fix


# einops, by its module for the standard.

EINOPS = {
    "split": (lambda e, x: e.rearrange(x, "n (a b) -> a n b", a=2), (2, 6, 2)),
    "merge": (lambda e, x: e.rearrange(x, "n d -> (n d)"), (24,)),
    "reduce": (lambda e, x: e.reduce(x, "n d -> d", "mean"), (4,)),
    "pool": (lambda e, x: e.reduce(x, "n (d two) -> n d", "max", two=2), (6, 2)),
    "repeat": (lambda e, x: e.repeat(x, "n d -> n r d", r=3), (6, 3, 4)),
    "stack": (lambda e, x: e.rearrange([x, x], "s n d -> n d s"), (6, 4, 2)),
    "pack": (lambda e, x: e.pack([x, x], "n *")[0], (6, 8)),
    "unpack": (lambda e, x: e.unpack(x, [(1,), (3,)], "n *")[1], (6, 3)),
}


@pytest.mark.parametrize("name", EINOPS)
@pytest.mark.parametrize("rows", ["n", 6])
def test_einops(name, rows, data):
    pytest.importorskip("einops")
    import einops
    import einops.array_api

    make, shape = EINOPS[name]
    value = fed((rows, 4), data, make=lambda x: make(einops.array_api, x))
    assert value.shape == shape
    np.testing.assert_allclose(value, make(einops, data), rtol=1e-6, atol=1e-6)


def test_einops_agrees_in_gradients(data):
    ea = pytest.importorskip("einops.array_api")

    def slope(x):
        return gf.grad(gf.sum(ea.reduce(x * x, "n (a b) -> n a", "max", b=2)), x)

    value = fed(("n", 4), data, make=slope)
    pairs = (data**2).reshape(6, 2, 2)
    is_largest = pairs == pairs.max(-1, keepdims=True)
    np.testing.assert_allclose(value, 2 * data * is_largest.reshape(6, 4), rtol=1e-6)


# NumPy's protocols, as SciPy's ufuncs use them.


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("erf", "erf"), ("expit", "sigmoid"), ("gammaln", "lgamma"), ("psi", "digamma")],
)
def test_ufuncs_of_scipy_make_nodes(theirs, ours, data):
    special = pytest.importorskip("scipy.special")
    value = fed(("n", 4), data, make=lambda x: getattr(special, theirs)(x))
    np.testing.assert_allclose(value, getattr(gf, ours)(data).numpy(), rtol=1e-5, atol=1e-6)
    with gf.Graph():
        x = gf.placeholder(("n",), name="x")
        assert getattr(special, theirs)(x).node.op.name == getattr(gf, ours)(x).node.op.name


def test_a_ufunc_of_scipy_that_graphfw_lacks():
    special = pytest.importorskip("scipy.special")
    with pytest.raises(TypeError, match=r"^jv of a graphfw tensor: graphfw has no such function"):
        special.jv(1, gf.asarray([1.0]))


@pytest.mark.parametrize("function", [np.trace, np.diagonal])
@pytest.mark.parametrize(
    "options", [{}, {"offset": 1}, {"axis1": 1, "axis2": 2}, {"offset": -1, "axis1": 2, "axis2": 0}]
)
def test_diagonals_are_numpys(function, options, rng):
    """Of the first two axes, where the standard's functions of these names take the last two."""
    x = rng.normal(size=(3, 4, 3))
    found = function(gf.asarray(x), **options)
    np.testing.assert_allclose(found.numpy(), function(x, **options), rtol=1e-12)


BEYOND_THE_STANDARD = {
    "median": lambda x: np.median(x, axis=(0, 1)),
    "quantile": lambda x: np.quantile(x, [0.2, 0.5], axis=0),
    "nanmean": lambda x: np.nanmean(x, axis=0),
    "cov": np.cov,
    "histogram": lambda x: np.histogram(x, bins=4)[0],
    "digitize": lambda x: np.digitize(x, [0.0, 1.0]),
    "gradient": lambda x: np.gradient(x, axis=1),
    "unwrap": np.unwrap,
    "vstack": lambda x: np.vstack([x, x]),
    "interp": lambda x: np.interp(x, [0.0, 1.0], [1.0, 2.0]),
    "trapezoid": lambda x: np.trapezoid(x, dx=0.5, axis=0),
    "isclose": lambda x: np.isclose(x, x),
    "rot90": lambda x: np.rot90(x, k=2),
}


@pytest.mark.parametrize("name", BEYOND_THE_STANDARD)
def test_functions_beyond_the_standard_are_numpys(name, rng):
    x = rng.normal(size=(4, 3))
    result = BEYOND_THE_STANDARD[name](gf.asarray(x))
    np.testing.assert_allclose(result.numpy(), BEYOND_THE_STANDARD[name](x), rtol=1e-12)


def test_resizing_is_not_numpys():
    with pytest.raises(TypeError, match=r"^np\.resize of a graphfw tensor: graphfw has no"):
        np.resize(gf.zeros((2, 3)), (3, 3))


SCIPY = """
import numpy as np, graphfw as gf
from scipy import fft, integrate, optimize, special, stats

data = np.random.default_rng().uniform(0.5, 2.0, 6).astype(np.float32)
anywhere = [
    special.softmax, special.xlogy, integrate.trapezoid, integrate.cumulative_trapezoid,
    optimize.rosen, fft.fft,
]
known = [
    stats.gmean, stats.skew, stats.kurtosis, stats.variation, stats.sem, stats.tmean,
    stats.gstd, stats.circmean,
]
for shape, array, options, functions in (
    (("n",), data, {}, anywhere),
    # Of a single axis SciPy 1.18 has to know whether there is NaN.
    ((3, 2), data.reshape(3, 2), {"axis": 0}, known),
):
    for function in functions:
        arity = 2 if function is special.xlogy else 1
        with gf.Graph() as g:
            x = gf.placeholder(shape, name="x")
            fetch = function(*[x] * arity, **options)
        with gf.Session(g) as session:
            value = session.run(fetch, {x: array})
        expected = function(*[array] * arity, **options)
        np.testing.assert_allclose(value, expected, rtol=2e-4, atol=1e-5, err_msg=function.__name__)
        print(function.__name__)
"""


@pytest.mark.slow
def test_scipy_describes_graphs():
    """In a process of its own: SciPy reads its environment when it is imported."""
    pytest.importorskip("scipy")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCIPY], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 14
