"""Random draws: exact ranges, distributions, gradients, errors."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, AxisError, DTypeError, ShapeError
from graphfw.ir.concrete import evaluate
from graphfw.ir.op import Rng
from graphfw.ops.numerics import random_bits, stream_key

DRAWS: dict[str, Callable[..., Any]] = {
    "uniform": lambda **kw: gf.random.uniform((5,), **kw),
    "normal": lambda **kw: gf.random.normal((5,), **kw),
    "truncated_normal": lambda **kw: gf.random.truncated_normal((5,), **kw),
    "exponential": lambda **kw: gf.random.exponential((5,), **kw),
    "gumbel": lambda **kw: gf.random.gumbel((5,), **kw),
    "bernoulli": lambda **kw: gf.random.bernoulli(0.5, (25,), **kw),
    "randint": lambda **kw: gf.random.randint(0, 1000, (5,), **kw),
    "permutation": lambda **kw: gf.random.permutation(20, **kw),
    "categorical": lambda **kw: gf.random.categorical(np.zeros(100), (5,), **kw),
    "laplace": lambda **kw: gf.random.laplace((5,), **kw),
    "cauchy": lambda **kw: gf.random.cauchy((5,), **kw),
    "gamma": lambda **kw: gf.random.gamma((5,), 0.7, **kw),
    "beta": lambda **kw: gf.random.beta((5,), 2.0, 3.0, **kw),
    "dirichlet": lambda **kw: gf.random.dirichlet(np.float32([1, 2, 3]), (5,), **kw),
    "student_t": lambda **kw: gf.random.student_t((5,), 3.0, **kw),
    "poisson": lambda **kw: gf.random.poisson(np.float32([3, 300]), (5, 2), **kw),
    "multinomial": lambda **kw: gf.random.multinomial(50, np.ones(4), (5,), **kw),
    "choice": lambda **kw: gf.random.choice(1000, (5,), **kw),
}

FLOATS = ["uniform", "normal", "truncated_normal", "exponential", "gumbel"]


def values(*tensors: Any, seed: int = 0, step: int = 0) -> list[np.ndarray]:
    return evaluate(list(tensors), rng=Rng(seed, step))


def one(tensor: Any, seed: int = 0, step: int = 0) -> np.ndarray:
    return values(tensor, seed=seed, step=step)[0]


# Shapes and dtypes.


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 1), 4, [2, 3], np.int64(3)])
def test_shapes(shape: Any) -> None:
    dims = tuple(np.atleast_1d(shape).tolist()) if not isinstance(shape, tuple) else shape
    for name in FLOATS:
        x = getattr(gf.random, name)(shape)
        assert x.shape == dims
        assert x.numpy().shape == dims
    assert gf.random.randint(0, 2, shape).numpy().shape == dims
    assert gf.random.bernoulli(0.5, shape).numpy().shape == dims


def test_symbolic_shapes() -> None:
    with gf.Graph():
        x = gf.placeholder(("batch", 3), name="x")
        n = x.shape[0]
        for name in FLOATS:
            assert getattr(gf.random, name)(x.shape).shape == x.shape
        assert gf.random.randint(0, 2**40, x.shape).shape == x.shape
        assert gf.random.bernoulli(x).shape == x.shape
        assert gf.random.permutation(n).shape == (n,)
        assert gf.random.permutation(x).shape == x.shape
        assert gf.random.categorical(x).shape == (n,)
        assert gf.dropout(x).shape == x.shape
        assert gf.random.normal((2 * n, 4)).shape == (2 * n, 4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", FLOATS)
def test_dtypes(name: str, dtype: str) -> None:
    x = getattr(gf.random, name)((1000,), dtype=dtype)
    assert x.dtype.name == dtype
    assert x.numpy().dtype.name == dtype
    assert np.isfinite(x.numpy().astype("d")).all()
    with gf.default_dtype("float64"):
        assert getattr(gf.random, name)(1).dtype == gf.float64


def test_dtype_of_parameters() -> None:
    wide = np.ones(3)
    for mean in (gf.asarray(wide), wide):
        assert gf.random.normal(3, mean=mean).dtype == gf.float64
        assert gf.random.normal(3, mean=mean, dtype="float32").dtype == gf.float32
    assert gf.random.normal(3, mean=2).dtype == gf.float32
    assert gf.random.uniform(3, high=gf.asarray([1, 2, 3])).dtype == gf.float32


# Distributions: bounds are exact, the rest within five standard errors.


def check_moments(x: np.ndarray, mean: float, var: float) -> None:
    assert abs(x.mean() - mean) < 5 * math.sqrt(var / x.size)
    assert abs(x.var() - var) < 5 * var * math.sqrt(10 / x.size)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform(dtype: str) -> None:
    p = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype]
    x = gf.random.uniform((200, 100), dtype=dtype).numpy().astype("d")
    assert x.min() >= 0
    assert x.max() < 1
    assert (x * 2.0**p % 1 == 0).all()
    check_moments(x, 0.5 - 2.0 ** -(p + 1), 1 / 12)


@pytest.mark.parametrize(
    ("low", "high"), [(1, 1.0000002), (1e8, 1e8 + 16), (-3, -1), (-1e38, 1e38)]
)
def test_uniform_never_reaches_high(low: float, high: float) -> None:
    x = gf.random.uniform((20000,), low, high).numpy()
    assert x.min() >= np.float32(low)
    assert x.max() < np.float32(high)


def test_uniform_between_tensors() -> None:
    low = gf.asarray([[0.0], [10.0]])
    x = gf.random.uniform((2, 5000), low, low + 2)
    check_moments(x.numpy()[0], 1, 1 / 3)
    check_moments(x.numpy()[1], 11, 1 / 3)


def test_normal() -> None:
    x = gf.random.normal((300, 300), mean=2.0, std=3.0).numpy().astype("d")
    check_moments(x, 2, 9)
    z = (x - 2) / 3
    within = [(np.abs(z) < s).mean() for s in (0.5, 1, 2, 3)]
    exact = [math.erf(s / math.sqrt(2)) for s in (0.5, 1, 2, 3)]
    np.testing.assert_allclose(within, exact, atol=5 * 0.5 / 300)


@pytest.mark.parametrize(("dtype", "words", "ulp"), [("float32", 1, 4), ("float64", 2, 14)])
def test_normal_inverts_the_distribution_function(dtype: str, words: int, ulp: int) -> None:
    mpmath = pytest.importorskip("mpmath")
    p = 24 if words == 1 else 53
    with gf.Graph():
        z = one(gf.random.normal((200,), dtype=dtype, name="z"))
    steps = random_bits(np, stream_key(0, "/z"), 0, 200, words) >> (32 * words - p)
    with mpmath.workdps(30):
        exact = [
            mpmath.sqrt(2) * mpmath.erfinv(mpmath.mpf(2 * int(k) + 1) / 2**p - 1) for k in steps
        ]
        errors = [abs(mpmath.mpf(float(a)) - b) for a, b in zip(z, exact, strict=True)]
    units = np.spacing(np.abs(z)).astype("d")
    assert max(float(e) / u for e, u in zip(errors, units, strict=True)) <= ulp


def test_normal_gradients_flow_to_mean_and_std() -> None:
    mean, std = gf.asarray(np.zeros(3)), gf.asarray(np.full(3, 2.0))
    x = gf.random.normal((100, 3), mean, std)
    g_mean, g_std = gf.grad(gf.sum(x), [mean, std])
    draw, slope = values(x, g_std)
    np.testing.assert_allclose(slope, (draw / 2).sum(axis=0))
    assert g_mean.numpy().tolist() == [100] * 3


def test_normal_of_no_spread() -> None:
    assert gf.random.normal(3, mean=5.0, std=0.0).numpy().tolist() == [5, 5, 5]


@pytest.mark.parametrize(("low", "high"), [(-2, 2), (0.5, 1), (-9, 9), (2, 40)])
def test_truncated_normal(low: float, high: float) -> None:
    x = gf.random.truncated_normal((20000,), low, high).numpy().astype("d")
    assert x.min() >= low
    assert x.max() <= high

    def density(t: float) -> float:
        return math.exp(-t * t / 2) / math.sqrt(2 * math.pi)

    mass = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    mean = (density(low) - density(high)) / mass
    var = 1 + (low * density(low) - high * density(high)) / mass - mean**2
    check_moments(x, mean, var)
    y = gf.random.truncated_normal((5000,), -1, 1, mean=10.0, std=0.1).numpy()
    assert np.abs(y - 10).max() <= 0.1 + 1e-6


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponential_and_gumbel(dtype: str) -> None:
    x = gf.random.exponential((30000,), scale=2.0, dtype=dtype).numpy().astype("d")
    assert x.min() > 0
    check_moments(x, 2, 4)
    g = gf.random.gumbel((30000,), dtype=dtype).numpy().astype("d")
    check_moments(g, 0.5772156649, math.pi**2 / 6)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_bernoulli(p: float) -> None:
    x = gf.random.bernoulli(p, (20000,))
    assert x.dtype == gf.bool
    assert abs(x.numpy().mean() - p) <= 5 * math.sqrt(p * (1 - p) / 20000)


def test_bernoulli_of_a_tensor() -> None:
    p = gf.asarray(np.array([0.0, 0.25, 1.0]))
    assert gf.random.bernoulli(p).shape == (3,)
    x = gf.random.bernoulli(p, (10000, 3)).numpy().mean(axis=0)
    assert x[0] == 0
    assert x[2] == 1
    assert x[1] == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 1, "int64"),
        (-3, 4, "int8"),
        (-128, 128, "int8"),
        (0, 256, "uint8"),
        (-(2**31), 2**31, "int32"),
        (0, 2**32, "uint32"),
        (5, 2**33, "int64"),
        (-(2**63), 2**63, "int64"),
        (-(2**63), -(2**63) + 2, "int64"),
        (2**63, 2**64, "uint64"),
        (0, 2**64, "uint64"),
        (1, 2**63, "int64"),
    ],
)
def test_randint(low: int, high: int, dtype: str) -> None:
    x = gf.random.randint(low, high, (6000,), dtype=dtype)
    assert x.dtype.name == dtype
    drawn = x.numpy()
    assert drawn.dtype.name == dtype
    assert int(drawn.min()) >= low
    assert int(drawn.max()) < high
    if high - low >= 256:
        check_moments((drawn.astype("d") + 0.5 - low) / (high - low), 0.5, 1 / 12)
    else:
        counts = np.bincount((drawn.astype(np.int64) - low).astype(int), minlength=high - low)
        expected = 6000 / (high - low)
        assert (np.abs(counts - expected) <= 5 * math.sqrt(expected)).all()


@pytest.mark.parametrize("count", [3, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 7, 2**63 + 5, 2**64 - 1])
def test_randint_is_a_product_rounded_down(count: int) -> None:
    with gf.Graph():
        x = one(gf.random.randint(0, count, (200,), dtype="uint64", name="x"))
    wide = count > 2**32
    bits = random_bits(np, stream_key(0, "/x"), 0, 400 if wide else 200, 2).tolist()
    if wide:
        pairs = zip(bits[::2], bits[1::2], strict=True)
        expected = [(((a << 64) + b) * count) >> 128 for a, b in pairs]
    else:
        expected = [(a * count) >> 64 for a in bits]
    assert x.tolist() == expected


def test_randint_between_tensors() -> None:
    low = gf.asarray([-(2**62), 0, 100])
    high = gf.asarray([2**62 + 5, 1, 103])
    x = gf.random.randint(low, high, (1000, 3)).numpy()
    assert (x >= low.numpy()).all()
    assert (x < high.numpy()).all()
    assert set(x[:, 2].tolist()) == {100, 101, 102}
    y = gf.random.randint(low[1:], 128, (1000, 2), dtype="int8")
    assert y.dtype == gf.int8
    assert y.numpy()[:, 1].min() >= 100
    assert gf.random.randint(0, 2**63, 5000).numpy().max() > 2**62
    assert gf.random.randint(gf.asarray(0), 2**63, 5000).numpy().max() > 2**62


def test_permutation(rng: np.random.Generator) -> None:
    assert sorted(gf.random.permutation(50).numpy().tolist()) == list(range(50))
    assert gf.random.permutation(0).numpy().tolist() == []
    x = rng.normal(size=(4, 6, 2))
    y = gf.random.permutation(gf.asarray(x), axis=1).numpy()
    order = [int(np.argmax(x[0, :, 0] == v)) for v in y[0, :, 0]]
    assert sorted(order) == list(range(6))
    np.testing.assert_array_equal(y, x[:, order])


def test_permutations_are_equally_likely() -> None:
    orders = [tuple(one(gf.random.permutation(3)).tolist()) for _ in range(1200)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert max(abs(c - 200) for c in counts) <= 5 * math.sqrt(200)


def test_categorical() -> None:
    chances = np.array([[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
    with np.errstate(divide="ignore"):
        logits = gf.asarray(np.log(chances))
    assert gf.random.categorical(logits).shape == (2,)
    x = gf.random.categorical(logits, (10000, 2))
    assert x.dtype == gf.int64
    shares = [np.bincount(x.numpy()[:, i], minlength=3) / 10000 for i in range(2)]
    np.testing.assert_allclose(shares[0], chances[0], atol=0.025)
    np.testing.assert_array_equal(shares[1], chances[1])
    y = gf.random.categorical(logits.mT, (10000, 2), axis=0).numpy()
    assert (y[:, 1] == 0).all()


# Errors.


def test_errors_of_shapes() -> None:
    with pytest.raises(ShapeError, match=r"random.normal: a dim can't be -1"):
        gf.random.normal((2, -1))
    with pytest.raises(ShapeError, match=r"uniform: 'batch' is no dim(.*\n)+.*x.shape"):
        gf.random.uniform(("batch", 2))
    with pytest.raises(ShapeError, match=r"2.5 is no dim"):
        gf.random.randint(0, 2, 2.5)
    match = r"normal: mean's shape \[3\] does not broadcast to \[2\]\n  mean"
    with pytest.raises(ShapeError, match=match):
        gf.random.normal(2, mean=gf.zeros(3))
    with pytest.raises(ShapeError, match=r"p's shape \[2, 1\] does not broadcast to \[2\]"):
        gf.random.bernoulli(gf.zeros((2, 1)), 2)
    with pytest.raises(ShapeError, match=r"logits for \[2\] don't broadcast to \[3\]"):
        gf.random.categorical(gf.zeros((2, 5)), 3)
    with pytest.raises(ShapeError, match="there are no classes"):
        gf.random.categorical(gf.zeros((2, 0)))
    with pytest.raises(AxisError, match=r"random.permutation: axis 1 is out of range for 1 dim"):
        gf.random.permutation(gf.zeros(3), axis=1)
    with pytest.raises(AxisError, match=r"random.categorical: axis 2 is out of range"):
        gf.random.categorical(gf.zeros((2, 3)), axis=2)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: gf.random.uniform(0, 1, (3,)), r"uniform: high=\(3,\) is a tuple"),
        (lambda: gf.random.uniform(0.0, 1.0, (3,)), r"uniform: high=\(3,\) is a tuple"),
        (lambda: gf.random.uniform(3, [1.0], 2.0), r"uniform: low=\[1.0\] is a list"),
        (lambda: gf.random.normal(0, 1, (3,)), r"normal: std=\(3,\) is a tuple"),
        (lambda: gf.random.normal(0, (3,)), r"normal: mean=\(3,\) is a tuple"),
        (lambda: gf.random.truncated_normal(0, 1, [3]), r"truncated_normal: high=\[3\] is a list"),
        (lambda: gf.random.exponential(1, (3,)), r"exponential: scale=\(3,\) is a tuple"),
        (lambda: gf.random.randint((3,), 0, 10), r"randint: low=\(3,\) is a tuple"),
    ],
)
def test_a_shape_in_the_place_of_a_parameter(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        draw()
    function = str(caught.value).split(":")[0]
    order = "low, high, shape" if function == "random.randint" else "shape, "
    assert f"the order is {function}({order}" in caught.value.fix


@pytest.mark.parametrize("name", ["normal", "uniform", "exponential", "truncated_normal", "gumbel"])
def test_dims_as_several_arguments_are_refused(name: str) -> None:
    function = getattr(gf.random, name)
    second = list(inspect.signature(function).parameters)[1]
    with pytest.raises(ArgumentError) as caught:
        function(3, 4)
    assert caught.value.summary == (f"random.{name}(3, 4): is 4 a dim, or the parameter {second}?")
    assert caught.value.fix == (
        f"write gf.random.{name}((3, 4)) for a shape"
        f"{f', or gf.random.{name}((3,), {second}=4)' if name != 'gumbel' else ''}"
    )
    with gf.Graph():
        n = gf.placeholder(("n",)).shape[0]
        with pytest.raises(ArgumentError, match=rf"random\.{name}\(n, 4, 5\)"):
            function(n, 4, 5)


@pytest.mark.parametrize(
    ("draw", "fix"),
    [
        (
            lambda: gf.random.beta(2, 3, 4),
            "write gf.random.beta((2, 3, 4), a=…, b=…) for a shape, "
            "or gf.random.beta((2,), a=3, b=4)",
        ),
        (lambda: gf.random.beta(2.0, 3.0), "the order is random.beta(shape, a, b)"),
        (
            lambda: gf.random.gamma(2.0, 1.0),
            "the order is random.gamma(shape, concentration, scale)",
        ),
        (
            lambda: gf.random.multinomial(gf.asarray([0.5, 0.5]), 10),
            "the order is random.multinomial(count, p, shape)",
        ),
    ],
    ids=["beta of ints", "beta", "gamma", "multinomial"],
)
def test_parameters_in_other_libraries_order(draw: Callable[[], Any], fix: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        draw()
    assert caught.value.fix == fix


def test_one_dim_may_stand_without_parentheses() -> None:
    assert gf.random.normal(3).shape == (3,)
    assert gf.random.normal(3, 4.0).shape == (3,)
    assert gf.random.normal(3, mean=4).shape == (3,)
    assert gf.random.normal((3,), 4).shape == (3,)


def test_errors_of_values() -> None:
    with pytest.raises(ArgumentError, match=r"random.uniform: low=1 must be below high=1"):
        gf.random.uniform((3,), 1, 1)
    with pytest.raises(ArgumentError, match=r"random.normal: std=-1 must not be negative"):
        gf.random.normal((3,), std=-1)
    with pytest.raises(ArgumentError, match="truncated_normal: low=2 must be below high=-2"):
        gf.random.truncated_normal((3,), 2, -2)
    with pytest.raises(ArgumentError, match="low=0 must be below high=inf, and both finite"):
        gf.random.truncated_normal((3,), 0, math.inf)
    with pytest.raises(ArgumentError, match="too little of the distribution is between 5 and 6"):
        gf.random.truncated_normal((3,), 5, 6)
    with pytest.raises(ArgumentError, match="exponential: scale=-2 must not be negative"):
        gf.random.exponential((3,), -2)
    with pytest.raises(ArgumentError, match=r"random.bernoulli: p=1.5 must be between 0 and 1"):
        gf.random.bernoulli(1.5)
    with pytest.raises(ArgumentError, match="must be between 0 and 1") as caught:
        gf.random.bernoulli((3, 4))  # the shape, where other draws have it
    assert caught.value.fix == "the order is random.bernoulli(p, shape)"
    for p in ([0.5, np.nan], np.array([-0.1]), gf.asarray([0.2, 1.1])):
        with pytest.raises(ArgumentError, match="must be between 0 and 1"):
            gf.random.bernoulli(p)
    with pytest.raises(ArgumentError, match=r"random.randint: low=3 must be below high=3"):
        gf.random.randint(3, 3, 2)
    with pytest.raises(ArgumentError, match=r"from 0 to 256 don't fit uint8(.*\n)+.*wider"):
        gf.random.randint(0, 257, 2, dtype="uint8")
    with pytest.raises(ArgumentError, match=r"random.permutation: x=-1 must not be negative"):
        gf.random.permutation(-1)


def test_errors_of_dtypes() -> None:
    with pytest.raises(DTypeError, match=r"int32 is not a floating-point dtype(.*\n)+.*randint"):
        gf.random.normal(3, dtype="int32")
    with pytest.raises(DTypeError, match="normal: complex64 is not a floating-point dtype"):
        gf.random.normal(3, mean=gf.asarray(1j))
    with pytest.raises(DTypeError, match="randint: float32 is not an integer dtype"):
        gf.random.randint(0, 2, 3, dtype="float32")
    with pytest.raises(DTypeError, match="randint: low must be integers, not float32"):
        gf.random.randint(0.0, 2, 3)
    with pytest.raises(DTypeError, match="randint: high must be integers, not bool"):
        gf.random.randint(0, True, 3)


def _layers(x: gf.Tensor) -> list[gf.Tensor]:
    """Return the results of all layers that draw."""
    attention = gf.nn.MultiHeadAttention(4, 2, dropout=0.5)
    recurrent = gf.nn.LSTM(4, 4, num_layers=3, dropout=0.5)
    return [gf.nn.Dropout(0.5)(x), attention(x), recurrent(x)[0]]


def test_a_draw_beside_layers_moves_none_of_theirs() -> None:
    def keys(draws: int) -> list[str]:
        with gf.Graph() as g, gf.name_scope("model"):
            for _ in range(draws):
                gf.random.normal((3,))
                gf.random.bernoulli(0.5, (3,))
            _layers(gf.placeholder((2, 3, 4)))
        return [n.op.key for n in g.nodes if n.op.name == "random_bits"][2 * draws :]

    assert len(keys(0)) >= 4
    assert keys(0) == keys(1) == keys(3)


def test_a_name_pins_a_draw() -> None:
    def key(before: int, name: str | None) -> str:
        with gf.Graph() as g:
            for _ in range(before):
                gf.random.normal((3,))
            gf.random.normal((3,), name=name)
        return next(n.op.key for n in reversed(g.nodes) if n.op.name == "random_bits")

    assert key(0, "noise") == key(2, "noise")
    assert key(0, None) != key(2, None)  # counted in its scope
