"""Activations, softmax, dropout: values and gradients against PyTorch, extremes, errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, AxisError, DTypeError, ShapeError

torch: Any = pytest.importorskip("torch")
TF = torch.nn.functional

SAMPLES = [-np.inf, -200.0, -30.0, -3.0, -1.0, -0.5, -1e-6, 0.0, 1e-6, 0.5, 1.0, 2.9, 6.5, 200.0]


def pair(
    ours: Callable[[Any], Any], theirs: Callable[[Any], Any], x: np.ndarray, ct: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return our value and gradient, then PyTorch's."""
    tensor = gf.asarray(x)
    y = ours(tensor)
    leaf = torch.tensor(x, requires_grad=True)
    z = theirs(leaf)
    z.backward(torch.tensor(ct))
    return y.numpy(), gf.grad(y, tensor, ct).numpy(), z.detach().numpy(), leaf.grad.numpy()


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "relu": (gf.relu, TF.relu),
    "relu6": (gf.relu6, TF.relu6),
    "leaky_relu": (lambda x: gf.leaky_relu(x, negative_slope=0.2), lambda x: TF.leaky_relu(x, 0.2)),
    "elu": (lambda x: gf.elu(x, alpha=0.7), lambda x: TF.elu(x, 0.7)),
    "celu": (lambda x: gf.celu(x, alpha=1.3), lambda x: TF.celu(x, 1.3)),
    "selu": (gf.selu, TF.selu),
    "gelu": (gf.gelu, TF.gelu),
    "gelu tanh": (
        lambda x: gf.gelu(x, approximate="tanh"),
        lambda x: TF.gelu(x, approximate="tanh"),
    ),
    "silu": (gf.silu, TF.silu),
    "mish": (gf.mish, TF.mish),
    "softplus": (lambda x: gf.softplus(x, beta=1.7), lambda x: TF.softplus(x, 1.7)),
    "softsign": (gf.softsign, TF.softsign),
    "hardtanh": (lambda x: gf.hardtanh(x, min=-0.5, max=2), lambda x: TF.hardtanh(x, -0.5, 2.0)),
    "hardsigmoid": (gf.hardsigmoid, TF.hardsigmoid),
    "hardswish": (gf.hardswish, TF.hardswish),
    "log_sigmoid": (gf.log_sigmoid, TF.logsigmoid),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees_with_pytorch(name: str, rng: np.random.Generator) -> None:
    ours, theirs = FUNCTIONS[name]
    x = np.array([*SAMPLES[1:], *(3 * rng.normal(size=20))])
    ct = rng.normal(size=x.shape)
    y, g, z, h = pair(ours, theirs, x, ct)
    # PyTorch keeps some constants of these in float32, also when it computes in float64.
    rtol = 1e-6 if name in ("celu", "hardsigmoid") else 1e-12
    np.testing.assert_allclose(y, z, rtol=rtol, atol=1e-15)
    np.testing.assert_allclose(g, h, rtol=rtol, atol=1e-15)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_keeps_dtype_and_shape(name: str, dtype: str) -> None:
    for shape in [(), (0, 3), (2, 1)]:
        y = FUNCTIONS[name][0](gf.zeros(shape, dtype=dtype))
        assert (y.shape, y.dtype.name) == (shape, dtype)
        assert (y.numpy().shape, y.numpy().dtype.name) == (shape, dtype)


def test_gradient_of_relu_at_zero_is_zero() -> None:
    x = gf.asarray([0.0, -0.0, 1.0])
    assert gf.grad(gf.sum(gf.relu(x)), x).numpy().tolist() == [0, 0, 1]


def test_relu_of_integers_and_nan() -> None:
    assert gf.relu(gf.asarray([-2, 3])).numpy().tolist() == [0, 3]
    assert gf.relu(gf.asarray([-2, 3])).dtype == gf.int64
    assert np.isnan(gf.relu(gf.asarray([np.nan])).numpy()).all()


def test_exponential_branches_do_not_poison_gradients() -> None:
    x = gf.asarray([1e4, -1e4, np.inf, -np.inf])
    for function in (gf.elu, gf.celu, gf.selu, gf.softplus, gf.log_sigmoid):
        assert np.isfinite(gf.grad(gf.sum(function(x)), x).numpy()).all(), function


def test_softplus_is_exact_far_out() -> None:
    x = np.array([-745.0, -40.0, 40.0, 1e308])
    expected = np.array([np.exp(-745.0), np.exp(-40.0), 40 + np.exp(-40.0), 1e308])
    np.testing.assert_allclose(gf.softplus(gf.asarray(x)).numpy(), expected, rtol=1e-15)


def test_prelu_broadcasts_its_slopes(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(2, 3, 4)), rng.normal(size=3)
    a, b = gf.asarray(x), gf.asarray(w[:, None])
    y = gf.prelu(a, b)
    tx, tw = (torch.tensor(v, requires_grad=True) for v in (x, w))
    z = TF.prelu(tx, tw)
    z.sum().backward()
    np.testing.assert_allclose(y.numpy(), z.detach().numpy())
    ga, gb = gf.grad(gf.sum(y), [a, b])
    np.testing.assert_allclose(ga.numpy(), tx.grad.numpy())
    np.testing.assert_allclose(gb.numpy()[:, 0], tw.grad.numpy())


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_glu(axis: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 6, 2))
    y = gf.glu(gf.asarray(x), axis=axis)
    np.testing.assert_allclose(y.numpy(), TF.glu(torch.tensor(x), axis).numpy(), rtol=1e-12)


def test_glu_of_symbolic_dims() -> None:
    with gf.Graph():
        x = gf.placeholder(("n", 3), name="x")
        both = gf.concat([x, x], axis=0)
        assert gf.glu(both, axis=0).shape == x.shape
        with pytest.raises(ShapeError, match="glu: dim 0 must be even to be halved, and it is n"):
            gf.glu(x, axis=0)
    with pytest.raises(ShapeError, match="dim -1 must be even to be halved, and it is 3"):
        gf.glu(gf.zeros((2, 3)))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_softmax_agrees_with_pytorch(name: str, axis: int, rng: np.random.Generator) -> None:
    x = 50 * rng.normal(size=(3, 5, 4))
    ct = rng.normal(size=x.shape)
    ours, theirs = getattr(gf, name), getattr(TF, name)
    y, g, z, h = pair(lambda t: ours(t, axis=axis), lambda t: theirs(t, dim=axis), x, ct)
    np.testing.assert_allclose(y, z, rtol=1e-12)
    np.testing.assert_allclose(g, h, rtol=1e-9, atol=1e-14)


def test_softmax_over_several_axes(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 5, 4))
    y = gf.softmax(gf.asarray(x), axis=(0, 2)).numpy()
    np.testing.assert_allclose(y.sum(axis=(0, 2)), np.ones(5), rtol=1e-12)
    assert gf.softmax(gf.asarray(x), axis=None).numpy().sum() == pytest.approx(1)


def test_softmax_of_masked_entries() -> None:
    inf = np.inf
    x = gf.asarray([[0.0, -inf, 0.0], [-inf, -inf, -inf], [1e38, -1e38, -inf]])
    y = gf.softmax(x)
    assert y.numpy().tolist() == [[0.5, 0, 0.5], [0, 0, 0], [1, 0, 0]]
    weights = gf.asarray([1.0, 2.0, 3.0])
    g = gf.grad(gf.sum(y * weights), x)
    np.testing.assert_allclose(g.numpy(), [[-0.5, 0, 0.5], [0, 0, 0], [0, 0, 0]], atol=1e-7)
    logs = gf.log_softmax(x)
    assert logs.numpy()[1].tolist() == [-inf] * 3
    kept = gf.where(gf.isfinite(logs), logs, 0)
    assert np.isfinite(gf.grad(gf.sum(kept), x).numpy()).all()


def test_softmax_shows_nan() -> None:
    assert np.isnan(gf.softmax(gf.asarray([np.nan, 1.0])).numpy()).all()


def test_softmax_of_half_floats_is_computed_in_float32(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 5000)).astype(np.float16)
    y = gf.softmax(gf.asarray(x)).numpy()
    wide = np.exp(x.astype(np.float64))
    exact = (wide / wide.sum(axis=1, keepdims=True)).astype(np.float16)
    np.testing.assert_allclose(y.astype("f"), exact.astype("f"), rtol=2**-10)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("dtype", [gf.float16, gf.bfloat16, gf.float32, gf.float64])
def test_softmax_of_an_empty_axis(is_known: bool, dtype: gf.DType) -> None:
    with gf.Graph() as g:
        x = gf.placeholder((2, 0 if is_known else "n"), dtype=dtype, name="x")
        results = [f(x, axis=-1) for f in (gf.softmax, gf.log_softmax, gf.softmin)]
        over_all = gf.softmax(x, axis=None)
        gradients = [gf.grad(y, x, grad_y=gf.ones_like(y)) for y in results]
        along_other = gf.softmax(x, axis=0)
    with gf.Session(g) as session:
        fetched = [*results, over_all, *gradients, along_other]
        for y in session.run(fetched, {x: np.zeros((2, 0), dtype.dtype)}):
            assert (y.shape, y.dtype) == ((2, 0), dtype.dtype)


@pytest.mark.parametrize("is_known", [True, False])
def test_logsumexp_of_an_empty_axis_is_the_logarithm_of_0(is_known: bool) -> None:
    with gf.Graph() as g:
        x = gf.placeholder((2, 0 if is_known else "n"), name="x")
        y = gf.logsumexp(x, axis=1)
        gradient = gf.grad(gf.sum(y), x)
    with gf.Session(g) as session:
        result, slope = session.run([y, gradient], {x: np.zeros((2, 0), np.float32)})
    np.testing.assert_array_equal(result, [-np.inf, -np.inf])
    assert slope.shape == (2, 0)


def test_softmax_second_gradient(rng: np.random.Generator) -> None:
    x, v = rng.normal(size=5), rng.normal(size=5)
    a = gf.asarray(x)
    (g,) = gf.grad(gf.sum(gf.softmax(a) ** 2), [a])
    hv = gf.grad(gf.sum(g * v), a).numpy()
    expected = torch.autograd.functional.hvp(
        lambda t: (torch.softmax(t, 0) ** 2).sum(), torch.tensor(x), torch.tensor(v)
    )[1]
    np.testing.assert_allclose(hv, expected.numpy(), rtol=1e-10)


def test_dropout_drops_and_scales() -> None:
    x = gf.ones((100, 100))
    y = gf.dropout(x, 0.2).numpy()
    assert set(np.unique(y)) == {0, np.float32(1) / np.float32(0.8)}
    assert (y == 0).mean() == pytest.approx(0.2, abs=0.03)


def test_dropout_gradient_has_the_same_mask() -> None:
    x = gf.ones((50,))
    y = gf.dropout(x, 0.5)
    g = gf.grad(gf.sum(y), x)
    both = gf.stack([y, g]).numpy()
    np.testing.assert_array_equal(both[0], both[1])


def test_dropout_that_does_nothing() -> None:
    x = gf.ones((3,))
    assert gf.dropout(x, 0.0) is x
    assert gf.dropout(x, 0.5, training=False) is x


def test_argument_errors() -> None:
    x = gf.ones((3,))
    with pytest.raises(ArgumentError, match="dropout: p=1 must be at least 0 and below 1"):
        gf.dropout(x, 1)
    with pytest.raises(ArgumentError, match=r"p=50 must[^\n]*\n(.*\n)*  fix  use p=0.5"):
        gf.dropout(x, 50)
    with pytest.raises(ArgumentError, match='approximate=True is none of "none", "tanh"'):
        gf.gelu(x, approximate=True)
    with pytest.raises(ArgumentError, match="softplus: beta=0 must be positive"):
        gf.softplus(x, beta=0)
    with pytest.raises(ArgumentError, match="celu: alpha must not be 0"):
        gf.celu(x, alpha=0)
    with pytest.raises(ArgumentError, match="hardtanh: min=1 must be below max=1"):
        gf.hardtanh(x, min=1, max=1)
    with pytest.raises(AxisError, match="softmax: axis 1 is out of range for 1 dim"):
        gf.softmax(x, axis=1)
    with pytest.raises(DTypeError, match="gelu: wants floating-point tensors, not complex64"):
        gf.gelu(gf.zeros(3, dtype="complex64"))
