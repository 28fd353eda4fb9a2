"""Gradient clipping against PyTorch's."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_global_norm(rng, max_norm):
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (), (5,), (0, 2))]
    clipped, norm = optim.clip_by_global_norm([gf.asarray(a) for a in arrays], max_norm)
    params = [torch.zeros(a.shape) for a in arrays]
    for p, a in zip(params, arrays, strict=True):
        p.grad = torch.tensor(a)
    expected = torch.nn.utils.clip_grad_norm_(params, max_norm)
    np.testing.assert_allclose(norm.numpy(), expected.numpy(), 1e-6)
    assert norm.shape == ()
    for ours, p in zip(clipped, params, strict=True):
        np.testing.assert_allclose(ours.numpy(), p.grad.numpy(), 1e-5)


def test_small_gradients_are_untouched(rng):
    array = rng.standard_normal(7).astype(np.float32)
    (same,), _ = optim.clip_by_global_norm([gf.asarray(array)], 1e3)
    np.testing.assert_array_equal(same.numpy(), array)


def test_mixed_dtypes():
    grads = [gf.asarray([300.0], dtype=gf.float16), gf.asarray([400.0]), gf.asarray([0j])]
    clipped, norm = optim.clip_by_global_norm(grads, 1.0)
    assert float(norm) == 500.0
    assert [g.dtype for g in clipped] == [g.dtype for g in grads]
    np.testing.assert_allclose(clipped[0].numpy(), [0.6], 1e-3)


def test_zero_and_bad_gradients():
    (zero,), norm = optim.clip_by_global_norm([gf.zeros((3,))], 1.0)
    assert not zero.numpy().any()
    assert float(norm) == 0
    (bad,), norm = optim.clip_by_global_norm([gf.asarray([1.0, float("nan")])], 1.0)
    assert np.isnan(float(norm))
    assert np.isnan(bad.numpy()).all()


def test_by_value(rng):
    array = rng.standard_normal((4, 5)).astype(np.float32)
    (got,) = optim.clip_by_value([gf.asarray(array)], 0.5)
    np.testing.assert_array_equal(got.numpy(), array.clip(-0.5, 0.5))


def test_mistakes():
    with pytest.raises(gf.ArgumentError, match="max_norm=0 must be above 0"):
        optim.clip_by_global_norm([gf.ones(2)], 0)
    with pytest.raises(gf.ArgumentError, match="there are no gradients"):
        optim.clip_by_global_norm([], 1.0)
    with pytest.raises(gf.ArgumentError, match="limit=-1 must be above 0"):
        optim.clip_by_value([gf.ones(2)], -1)
