"""Colours: each change against Python's `colorsys` and NumPy."""

import colorsys

import numpy as np
import pytest

import graphfw as gf
from graphfw.nn import augment
from tests.support.gradcheck import check_gradients

WEIGHTS = np.array([0.2989, 0.587, 0.114]).reshape(3, 1, 1)
DIMS = ("batch", 3, "height", "width")


def run(function, x, *, dims=None, seed=0, count=1, **options):
    """Return the results of runs of one session on the same images."""
    with gf.Graph() as graph:
        fed = gf.placeholder(dims or x.shape, dtype=x.dtype, name="x")
        result = function(fed, **options)
    with gf.Session(graph, seed=seed) as session:
        return [session.run(result, {fed: x}) for _ in range(count)]


@pytest.fixture
def x(rng):
    """Images of random colours; those of the first are grey, black and white among them."""
    images = rng.random((5, 3, 4, 6))
    images[0] = images[0, :1]
    images[0, :, 0, :2] = [0, 1]
    return images


def with_hue(x, turn):
    """Return images with another hue, element by element."""
    rows = np.moveaxis(x, -3, -1).reshape(-1, 3)
    hsv = [colorsys.rgb_to_hsv(*row) for row in rows]
    rgb = np.array([colorsys.hsv_to_rgb((h + turn) % 1, s, v) for h, s, v in hsv])
    return np.moveaxis(rgb.reshape(np.moveaxis(x, -3, -1).shape), -1, -3)


def changed(x, label, amount):
    """Return images with another brightness, contrast, saturation or hue."""
    grey = (WEIGHTS * x).sum(-3, keepdims=True) if x.shape[-3] == 3 else x
    if label == "hue":
        return with_hue(x, amount)
    centre = {"brightness": 0, "contrast": grey.mean((-3, -2, -1), keepdims=True)}
    return np.clip(amount * x + (1 - amount) * centre.get(label, grey), 0, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dims", [None, DIMS])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("label", "amounts"),
    [
        ("brightness", [0.0, 0.6, 1.7]), ("contrast", [0.0, 0.4, 1.8]),
        ("saturation", [0.0, 0.5, 2.0]), ("hue", [-0.5, -0.3, 0.1, 0.5]),
    ],
)  # fmt: skip
def test_each_change(x, label, amounts, dtype, dims):
    x = x.astype(dtype)
    for amount in amounts:
        (got,) = run(augment.color_jitter, x, dims=dims, **{label: (amount, amount)})
        assert got.dtype == x.dtype
        tolerance = 2e-3 if dtype == "float16" else 2e-6
        expected = changed(x.astype(np.float64), label, amount)
        np.testing.assert_allclose(got, expected, atol=tolerance)


def test_the_order_of_changes(x):
    amounts = {"brightness": 1.3, "contrast": 0.7, "saturation": 1.6, "hue": 0.2}
    (got,) = run(augment.color_jitter, x, **{k: (v, v) for k, v in reversed(amounts.items())})
    for label, amount in amounts.items():
        x = changed(x, label, amount)
    np.testing.assert_allclose(got, x, atol=1e-6)


def test_images_of_one_channel(x):
    grey = x[:, :1]
    for label in ("brightness", "contrast"):
        (got,) = run(augment.color_jitter, grey, **{label: (0.5, 0.5)})
        np.testing.assert_allclose(got, changed(grey, label, 0.5), atol=1e-6)


@pytest.mark.parametrize(
    ("brightness", "low", "high"), [(0.3, 0.7, 1.3), (1.5, 0, 2.5), ((0.2, 0.4), 0.2, 0.4)]
)
def test_factors_are_drawn_for_each_image(brightness, low, high):
    x = np.full((2000, 1, 1, 2), 0.25, np.float32)
    (got,) = run(augment.color_jitter, x, brightness=brightness)
    factors = got[:, 0, 0, 0] * 4
    np.testing.assert_array_equal(got[..., 0], got[..., 1])
    assert low <= factors.min() < low + 0.02 * (high - low)
    assert high - 0.02 * (high - low) < factors.max() <= high
    assert abs(factors.mean() - (low + high) / 2) < 0.03 * (high - low)


def test_a_change_more_moves_no_other_draw(x):
    (first,) = run(augment.color_jitter, x[:, :, :1, :1], brightness=0.1)
    (second,) = run(augment.color_jitter, x[:, :, :1, :1], brightness=0.1, saturation=(1, 1.001))
    np.testing.assert_allclose(first, second, atol=2e-3)


def test_nothing_to_change(x):
    (got,) = run(augment.color_jitter, x)
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("p", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("dims", [None, DIMS])
def test_grey_images(p, dims, rng):
    x = rng.random((500, 3, 2, 3)).astype(np.float32)
    (got,) = run(augment.random_grayscale, x, p=p, dims=dims)
    is_grey = (got == got[:, :1]).all((1, 2, 3))
    grey = np.broadcast_to((WEIGHTS * x).sum(1, keepdims=True), x.shape)
    np.testing.assert_allclose(got[is_grey], grey[is_grey], atol=1e-6)
    np.testing.assert_array_equal(got[~is_grey], x[~is_grey])
    assert abs(is_grey.mean() - p) <= 0.07 * (0 < p < 1)


FUNCTIONS = {
    "color_jitter": lambda x, **how: augment.color_jitter(
        x, brightness=0.3, contrast=0.3, saturation=0.3, hue=0.2, **how
    ),
    "random_grayscale": lambda x, **how: augment.random_grayscale(x, p=0.5, **how),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
class TestEach:
    def test_draws_repeat_by_seed_step_and_name(self, function, rng):
        x = rng.random((20, 3, 2, 3))
        first, second = run(function, x, count=2)
        (again,) = run(function, x, dims=DIMS)
        (other,) = run(function, x, seed=1)
        np.testing.assert_allclose(first, again, atol=1e-12)  # means are summed otherwise
        assert (first != second).any()
        assert (first != other).any()

        def after_another(x):
            function(x)
            return function(x, name="mine")

        (named,) = run(function, x, name="mine")
        np.testing.assert_array_equal(named, run(after_another, x)[0])

    def test_evaluation(self, function, x):
        with gf.training(False):
            np.testing.assert_array_equal(function(x).numpy(), x)

    def test_gradients(self, function, rng):
        # Away from 0 and 1, where changes are cut off, and from equal channels.
        base = np.array([0.3, 0.45, 0.6]).reshape(3, 1, 1)
        x = gf.asarray(base + rng.uniform(-0.05, 0.05, (3, 3, 2, 2)))
        check_gradients(function(x), [x], rng, order=1)

    @pytest.mark.parametrize("shape", [(0, 3, 4, 5), (3, 4, 5), (2, 2, 3, 1, 1)])
    def test_empty_and_other_batches(self, function, shape):
        (got,) = run(function, np.full(shape, 0.5, np.float32))
        np.testing.assert_allclose(got, 0.5, atol=0.3)
        assert got.shape == shape

    def test_vmap_draws_for_each(self, function):
        x = np.tile(np.array([0.2, 0.5, 0.7]).reshape(3, 1, 1), (20, 1, 1, 1))
        got = gf.vmap(function)(x).numpy()
        assert got.shape == x.shape
        assert len({tuple(image.ravel()) for image in got}) > 1

    def test_images_that_do_not_fit(self, function):
        with pytest.raises(gf.DTypeError, match="floating-point tensors, not uint8") as caught:
            function(gf.ones((2, 3, 4, 5), dtype=gf.uint8))
        assert caught.value.fix == "convert it before: gf.astype(x, gf.float32) / 255"
        with pytest.raises(gf.ShapeError, match="images must have 3 channels") as caught:
            function(gf.ones((2, 4, 5, 3)))
        assert caught.value.fix == "move channels that come last: gf.moveaxis(x, -1, -3)"
        with pytest.raises(gf.ShapeError, match="images must have 3 channels") as caught:
            function(gf.ones((2, 4, 5, 6)))
        assert caught.value.fix == "give each image 3 channels, as x[..., :3, :, :] does of more"
        with pytest.raises(gf.ShapeError, match="images must be"):
            function(gf.ones((4, 5)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"brightness": -0.1}, "brightness=-0.1 must be finite and not negative"),
        ({"contrast": float("nan")}, "contrast=nan must be finite"),
        ({"saturation": (1.2, 0.8)}, "is not in order"),
        ({"saturation": (-0.2, 0.8)}, "reaches below 0"),
        ({"brightness": (0, float("inf"))}, "no pair of finite numbers"),
        ({"hue": 0.6}, "hue=0.6 reaches above 0.5"),
        ({"hue": (0, 0.6)}, "reaches above 0.5"),
        ({"contrast": "strong"}, "contrast='strong' is no pair"),
        ({"contrast": (1, 2, 3)}, "is no pair"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(gf.ArgumentError, match=message) as caught:
        augment.color_jitter(gf.ones((3, 4, 5)), **options)
    assert caught.value.fix


def test_a_share_of_more_than_all():
    with pytest.raises(gf.ArgumentError, match=r"p=1\.1 must be a number from 0 to 1"):
        augment.random_grayscale(gf.ones((3, 4, 5)), p=1.1)
