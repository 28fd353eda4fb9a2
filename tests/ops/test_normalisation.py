"""Normalisation: values and gradients against PyTorch, dtypes, errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, AxisError, ShapeError

torch: Any = pytest.importorskip("torch")
TF = torch.nn.functional


def check(ours: Callable[..., Any], theirs: Callable[..., Any], *xs: np.ndarray) -> None:
    """Compare values and all gradients."""
    a = [gf.asarray(x) for x in xs]
    b = [torch.tensor(x, requires_grad=True) for x in xs]
    y, z = ours(*a), theirs(*b)
    ct = np.random.default_rng(y.numpy().size).normal(size=y.shape)
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=1e-9, atol=1e-12)
    z.backward(torch.tensor(ct))
    for mine, leaf in zip(gf.grad(y, a, ct), b, strict=True):
        np.testing.assert_allclose(mine.numpy(), leaf.grad.numpy(), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("dims", [1, 2])
def test_layer_norm(dims: int, rng: np.random.Generator) -> None:
    x = 100 + 3 * rng.normal(size=(4, 3, 5))
    shape = x.shape[-dims:]
    axis = tuple(range(-dims, 0))
    check(
        lambda x, w, b: gf.layer_norm(x, w, b, axis=axis),
        lambda x, w, b: TF.layer_norm(x, shape, w, b),
        x,
        rng.normal(size=shape),
        rng.normal(size=shape),
    )


def test_layer_norm_over_a_leading_axis(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(4, 3)), rng.normal(size=4)
    y = gf.layer_norm(gf.asarray(x), w, axis=0)
    z = TF.layer_norm(torch.tensor(x.T), (4,), torch.tensor(w)).numpy().T
    np.testing.assert_allclose(y.numpy(), z, rtol=1e-10)


def test_rms_norm(rng: np.random.Generator) -> None:
    check(
        lambda x, w: gf.rms_norm(x, w, eps=1e-3),
        lambda x, w: TF.rms_norm(x, (5,), w, 1e-3),
        rng.normal(size=(4, 5)),
        rng.normal(size=5),
    )


@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 4, 5)])
def test_batch_norm(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    mean, var, w, b = rng.normal(size=3), rng.uniform(0.1, 2, size=3), *rng.normal(size=(2, 3))
    check(
        lambda x, w, b: gf.batch_norm(x, mean, var, w, b),
        lambda x, w, b: TF.batch_norm(x, torch.tensor(mean), torch.tensor(var), w, b),
        rng.normal(size=shape),
        w,
        b,
    )


def test_batch_norm_of_channels_last(rng: np.random.Generator) -> None:
    x, mean, var = rng.normal(size=(2, 4, 3)), rng.normal(size=3), rng.uniform(0.1, 2, size=3)
    y = gf.batch_norm(gf.asarray(x), mean, var, axis=-1, eps=0.0)
    np.testing.assert_allclose(y.numpy(), (x - mean) / np.sqrt(var), rtol=1e-12)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups: int, rng: np.random.Generator) -> None:
    check(
        lambda x, w, b: gf.group_norm(x, groups, w, b),
        lambda x, w, b: TF.group_norm(x, groups, w, b),
        rng.normal(size=(2, 6, 3, 4)),
        rng.normal(size=6),
        rng.normal(size=6),
    )


def test_group_norm_of_channels_last(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(2, 5, 6)), rng.normal(size=6)
    y = gf.group_norm(gf.asarray(x), 2, w, axis=-1)
    z = TF.group_norm(torch.tensor(np.moveaxis(x, -1, 1)), 2, torch.tensor(w)).numpy()
    np.testing.assert_allclose(y.numpy(), np.moveaxis(z, 1, -1), rtol=1e-10)


def test_instance_norm(rng: np.random.Generator) -> None:
    check(
        lambda x, w, b: gf.instance_norm(x, w, b),
        lambda x, w, b: TF.instance_norm(x, weight=w, bias=b),
        rng.normal(size=(2, 3, 4, 5)),
        rng.normal(size=3),
        rng.normal(size=3),
    )


@pytest.mark.parametrize("ord", [1, 2, 3])
def test_normalize(ord: int, rng: np.random.Generator) -> None:
    check(
        lambda x: gf.normalize(x, axis=0, ord=ord),
        lambda x: TF.normalize(x, p=ord, dim=0),
        rng.normal(size=(4, 3)),
    )


def test_normalize_of_zeros_has_finite_gradients() -> None:
    x = gf.zeros((2, 3))
    y = gf.normalize(x)
    assert (y.numpy() == 0).all()
    assert np.isfinite(gf.grad(gf.sum(y), x).numpy()).all()


def test_half_floats_are_normalised_in_float32(rng: np.random.Generator) -> None:
    x = (1000 + rng.normal(size=(3, 64))).astype(np.float16)
    y = gf.layer_norm(gf.asarray(x))
    assert y.dtype == gf.float16
    wide = x.astype(np.float64)
    exact = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y.numpy().astype("f"), exact, rtol=2e-3, atol=1e-3)
    huge = gf.asarray(np.full((2, 4), 300, np.float16))
    assert gf.rms_norm(huge).numpy().tolist() == [[1, 1, 1, 1]] * 2
    assert gf.layer_norm(huge, gf.ones((4,))).dtype == gf.float16


def test_symbolic_shapes() -> None:
    with gf.Graph():
        x = gf.placeholder(("batch", 4, "h", "w"), name="x")
        w = gf.ones((4,))
        for y in (
            gf.layer_norm(x),
            gf.batch_norm(x, w, w, w, w),
            gf.group_norm(x, 2, w, w),
            gf.instance_norm(x, w),
            gf.normalize(x, axis=1),
        ):
            assert y.shape == x.shape


def test_errors() -> None:
    x = gf.zeros((2, 6, 4))
    with pytest.raises(ShapeError, match=r"weight must have shape \[4\], as x has at axis 2, not"):
        gf.layer_norm(x, gf.ones((6,)))
    with pytest.raises(ShapeError, match=r"batch_norm: var must have shape \[6\](.*\n)+  var +fl"):
        gf.batch_norm(x, gf.zeros(6), gf.zeros(4))
    with pytest.raises(ShapeError, match="group_norm: 6 channels don't divide into 4 groups"):
        gf.group_norm(x, 4)
    with pytest.raises(ArgumentError, match="group_norm: groups=0 must be positive"):
        gf.group_norm(x, 0)
    with pytest.raises(ArgumentError, match="axis=0 is the batch's, where the channels should be"):
        gf.instance_norm(x, axis=0)
    with pytest.raises(ArgumentError, match="rms_norm: eps=-1 must not be negative"):
        gf.rms_norm(x, eps=-1)
    with pytest.raises(ArgumentError, match="rms_norm: eps=None is not a number"):
        gf.rms_norm(x, eps=None)
    with pytest.raises(AxisError, match="layer_norm: axis 3 is out of range for 3 dims"):
        gf.layer_norm(x, axis=3)
    with gf.Graph(), pytest.raises(ShapeError, match="group_norm: c channels don't divide"):
        gf.group_norm(gf.placeholder((2, "c"), name="x"), 2)
