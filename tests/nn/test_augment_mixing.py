"""mixup and cutmix: each result is a mixture of two examples, in the proportion of its target."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.nn import augment
from tests.support.gradcheck import check_gradients

COUNT = 60
DIMS = ("batch", 3, "height", "width")


def run(function, x, y, *, dims=None, seed=0, count=1, **options):
    """Return the mixed images and targets of each run of one session."""
    with gf.Graph() as graph:
        images = gf.placeholder(dims or x.shape, dtype=x.dtype, name="x")
        size = y.shape if dims is None else (dims[0], *y.shape[1:])
        targets = gf.placeholder(size, dtype=y.dtype, name="y")
        results = function(images, targets, **options)
    with gf.Session(graph, seed=seed) as session:
        return [session.run(results, {images: x, targets: y}) for _ in range(count)]


def batch(dtype="float32", size=(6, 10)):
    """Return images that each have one value, their number, and targets of as many classes."""
    x = np.arange(1, COUNT + 1).reshape(-1, 1, 1, 1) * np.ones((COUNT, 3, *size))
    return x.astype(dtype), np.eye(COUNT, dtype=dtype)


def others(y):
    """Return the numbers of the examples that each was mixed with."""
    rest = y * (1 - np.eye(COUNT, dtype=y.dtype))
    return np.where(rest.max(1) > 0, rest.argmax(1), np.arange(COUNT))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dims", [None, DIMS])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_mixup(dims, dtype):
    x, y = batch(dtype)
    [(mixed, targets)] = run(augment.mixup, x, y, dims=dims, alpha=1.0)
    assert mixed.dtype == targets.dtype == x.dtype
    tolerance = 5e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(targets.sum(1), 1, rtol=tolerance)
    assert ((targets > 0).sum(1) <= 2).all()
    numbers = np.arange(1, COUNT + 1)
    np.testing.assert_allclose(mixed, (targets @ numbers)[:, None, None, None] + 0 * x, tolerance)
    assert len(set(others(targets))) > COUNT * 0.8


@pytest.mark.parametrize("alpha", [0.2, 1.0, 8.0])
def test_shares_are_of_the_beta_distribution(alpha):
    x = y = np.zeros((4000, 1), np.float32)
    y = np.concatenate([y, np.ones_like(y)], 0)
    x = np.concatenate([x, np.ones_like(x)], 0)
    [(mixed, _)] = run(augment.mixup, x, y, alpha=alpha)
    # Half of those mixed are with the other kind: their values are the shares, or 1 - share.
    shares = mixed[(mixed > 0) & (mixed < 1)]
    exact = 1 / (4 * (2 * alpha + 1))
    # Some shares of small alphas round to 0 and 1, and are not seen.
    assert abs(((mixed[:4000] - 0.5) ** 2).mean() - (0.25 + exact) / 2) < 0.01
    assert abs(shares.mean() - 0.5) < 0.02


@pytest.mark.exhaustive
@pytest.mark.parametrize("dims", [None, DIMS])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_cutmix(dims, dtype):
    x, y = batch(dtype)
    [(mixed, targets)] = run(augment.cutmix, x, y, dims=dims)
    assert mixed.dtype == targets.dtype == x.dtype
    tolerance = 1e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(targets.sum(1), 1, rtol=tolerance)
    for i, partner in enumerate(others(targets)):
        replaced = mixed[i] != x[i]
        assert (mixed[i][replaced] == partner + 1).all()
        assert (replaced == replaced[:1]).all()
        rows, columns = replaced[0].any(1), replaced[0].any(0)
        np.testing.assert_array_equal(replaced[0], rows[:, None] & columns)
        if partner != i:
            assert abs(targets[i, partner] - replaced.mean()) < 1e-3
    areas = (mixed != x).mean((1, 2, 3))
    assert areas.min() < 0.1
    assert areas.max() > 0.5


def test_targets_of_more_dims_and_sequences():
    x, y = np.ones((4, 7), np.float32), np.ones((4, 2, 3), np.float64)
    [(mixed, targets)] = run(augment.mixup, x, y)
    np.testing.assert_allclose(mixed, x, rtol=1e-6)
    np.testing.assert_allclose(targets, y, rtol=1e-6)
    assert (targets.dtype, targets.shape) == (y.dtype, y.shape)


@pytest.mark.parametrize("function", [augment.mixup, augment.cutmix])
class TestBoth:
    def test_draws_repeat_by_seed_step_and_name(self, function):
        x, y = batch()
        (first, targets), (second, _) = run(function, x, y, count=2)
        [(again, same)] = run(function, x, y, dims=DIMS)
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(targets, same)
        [(other, _)] = run(function, x, y, seed=1)
        assert (first != second).any()
        assert (first != other).any()

        def after_another(x, y):
            gf.random.normal((3,))
            function(x, y)
            return function(x, y, name="mine")

        [(named, _)] = run(lambda x, y: function(x, y, name="mine"), x, y)
        [(later, _)] = run(after_another, x, y)
        np.testing.assert_array_equal(named, later)

    def test_evaluation(self, function):
        x, y = batch()
        with gf.training(False):
            mixed, targets = function(x, y)
        np.testing.assert_array_equal(mixed.numpy(), x)
        np.testing.assert_array_equal(targets.numpy(), y)

    def test_gradients(self, function, rng):
        x, y = (gf.asarray(rng.standard_normal(s)) for s in [(4, 2, 3, 5), (4, 3)])
        mixed, targets = function(x, y, alpha=2.0)
        check_gradients(mixed, [x], rng)
        check_gradients(targets, [y], rng)

    @pytest.mark.parametrize("shape", [(0, 3, 4, 5), (1, 3, 4, 5), (2, 1, 1, 1)])
    def test_empty_and_small(self, function, shape):
        x, y = np.ones(shape, np.float32), np.ones((shape[0], 2), np.float32)
        [(mixed, targets)] = run(function, x, y)
        np.testing.assert_allclose(mixed, x, rtol=1e-6)
        np.testing.assert_allclose(targets, y, rtol=1e-6)

    def test_vmap(self, function):
        x, y = batch()
        x, y = (np.stack([a, a]) for a in (x, y))
        mixed, targets = (t.numpy() for t in gf.vmap(function)(x, y))
        assert (mixed.shape, targets.shape) == (x.shape, y.shape)
        np.testing.assert_allclose(targets.sum(-1), 1, rtol=1e-6)
        assert (mixed[0] != mixed[1]).any()

    def test_bad_arguments(self, function):
        x, y = gf.ones((4, 3, 6, 5)), gf.ones((4, 2))
        for alpha in (0, -1.0, "0.2", float("inf"), None):
            with pytest.raises(gf.ArgumentError, match="must be a number above 0"):
                function(x, y, alpha=alpha)
        with pytest.raises(gf.ShapeError, match="and y is"):
            function(x, gf.ones((3, 2)))
        with pytest.raises(gf.DTypeError, match="targets must be floats, not int64") as caught:
            function(x, gf.asarray([0, 1, 2, 1]))
        assert caught.value.fix == "blend probabilities: gf.one_hot(y, count, dtype=gf.float32)"
        with pytest.raises(gf.DTypeError, match="floating-point tensors, not uint8") as caught:
            function(gf.ones((4, 3, 6, 5), dtype=gf.uint8), y)
        assert caught.value.fix == "convert it before: gf.astype(x, gf.float32) / 255"


def test_cutmix_of_what_are_no_images():
    with pytest.raises(gf.ShapeError, match=r"images must be \[N, C, H, W\]; x has 2 dims"):
        augment.cutmix(gf.ones((4, 3)), gf.ones((4, 2)))
