"""Flips, crops and erased rectangles: what is drawn, and NumPy's slices."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.nn import augment
from tests.support.gradcheck import check_gradients

SIZES = ("batch", 3, "height", "width")


def runs(function, x, count=1, seed=0, dims=None):
    """Return the results of runs of one session on the same images."""
    with gf.Graph() as graph:
        fed = gf.placeholder(x.shape if dims is None else dims, dtype=x.dtype, name="x")
        result = function(fed)
    with gf.Session(graph, seed=seed) as session:
        return [session.run(result, {fed: x}) for _ in range(count)]


def numbered(*shape, dtype="float32"):
    """Return images without two equal elements."""
    return np.arange(1, np.prod(shape) + 1).reshape(shape).astype(dtype)


# Flips.


@pytest.mark.exhaustive
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("dims", [None, SIZES])
def test_each_image_is_flipped_or_not(axis, dtype, dims):
    x = numbered(40, 3, 2, 3, dtype=dtype)
    (got,) = runs(lambda x: augment.random_flip(x, axis=axis), x, dims=dims)
    assert got.dtype == x.dtype
    flipped = np.flip(x, axis)
    is_flipped = (got == flipped).all((1, 2, 3))
    np.testing.assert_array_equal(got, np.where(is_flipped[:, None, None, None], flipped, x))
    assert 0 < is_flipped.sum() < 40


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_share_of_flips(p):
    x = numbered(1, 1, 2) * np.ones((50, 80, 1, 1, 1), np.float32)
    (got,) = runs(lambda x: augment.random_flip(x, p=p), x)
    assert got.shape == x.shape
    assert abs((got[..., 0] == 2).mean() - p) <= 0.03 * (0 < p < 1)


def test_one_image_without_a_batch():
    x = numbered(3, 4, 5)
    got = augment.random_flip(x, axis=2, p=1).numpy()
    np.testing.assert_array_equal(got, x[..., ::-1])


# Crops.


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [3, (2, 4), (6, 9)])
@pytest.mark.parametrize("padding", [0, 1, (1, 2)])
@pytest.mark.parametrize("dims", [None, SIZES])
def test_crops_are_windows(size, padding, dims):
    x = numbered(30, 3, 6, 9)
    (got,) = runs(lambda x: augment.random_crop(x, size, padding=padding), x, dims=dims)
    height, width = size if isinstance(size, tuple) else (size, size)
    down, across = padding if isinstance(padding, tuple) else (padding, padding)
    padded = np.pad(x, [(0, 0), (0, 0), (down, down), (across, across)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), (2, 3))
    assert got.shape == (30, 3, height, width)
    for image, there in zip(got, windows, strict=True):
        assert (image[:, None, None] == there).all((0, 3, 4)).any()


def test_all_positions_are_equally_likely():
    x = np.broadcast_to(numbered(1, 4, 5), (4000, 1, 4, 5))
    (got,) = runs(lambda x: augment.random_crop(x, (3, 3)), x)
    first, counts = np.unique(got[:, 0, 0, 0], return_counts=True)
    assert first.tolist() == [1, 2, 3, 6, 7, 8]
    assert counts.min() > 4000 / 6 * 0.85
    assert counts.max() < 4000 / 6 * 1.15


def test_crops_of_padding_that_mirrors():
    x = numbered(2, 1, 3, 3, dtype="int32")
    got = augment.random_crop(x, 7, padding=2, padding_mode="reflect").numpy()
    np.testing.assert_array_equal(got, np.pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)], "reflect"))


def test_a_crop_that_is_larger_than_the_images():
    x = gf.ones((2, 3, 8, 6))
    with pytest.raises(gf.ShapeError, match="window's width is 9, and the padded images are") as e:
        augment.random_crop(x, 9, padding=(1, 0))
    assert e.value.fix == "use size=6 or less, or padding=2 more"
    with pytest.raises(gf.ExecutionError, match="height is 9, and the padded images have fewer"):
        runs(lambda x: augment.random_crop(x, 9), numbered(2, 3, 8, 9), dims=SIZES)


# Erasing.


def test_erased_rectangles():
    x = np.ones((300, 2, 20, 30), np.float32)
    options = {"p": 0.7, "scale": (0.05, 0.2), "ratio": (0.5, 2), "value": 5.0}
    dims = ("batch", 2, "height", "width")
    (got,) = runs(lambda x: augment.random_erasing(x, **options), x, dims=dims)
    erased = got == 5
    assert (erased[:, :1] == erased).all()
    assert (got[~erased] == 1).all()
    holes = erased[:, 0]
    tall, broad = holes.any(2).sum(1), holes.any(1).sum(1)
    np.testing.assert_array_equal(tall * broad, holes.sum((1, 2)))
    # Nothing is between the first and the last row or column.
    for sides, lengths in ((holes.any(2), tall), (holes.any(1), broad)):
        for side, length in zip(sides, lengths, strict=True):
            at = np.flatnonzero(side)
            assert not length or at[-1] - at[0] + 1 == length
    is_erased = tall > 0
    assert abs(is_erased.mean() - 0.7) < 0.08
    shares = (tall * broad)[is_erased] / 600
    assert 0.03 < shares.min() < 0.08
    assert 0.17 < shares.max() < 0.23
    ratios = (tall / np.maximum(broad, 1))[is_erased]
    assert 0.4 < ratios.min() < 0.6
    assert 1.7 < ratios.max() < 2.5
    assert (ratios < 1).any()


def test_erased_rectangles_fit_into_long_images():
    x = np.ones((100, 1, 4, 100), np.float32)
    options = {"p": 1.0, "scale": (0.25, 0.25), "ratio": (0.01, 3.0)}
    (got,) = runs(lambda x: augment.random_erasing(x, **options), x)
    counts = (got == 0).sum((1, 2, 3))
    assert abs(counts.mean() - 100) < 12
    assert (np.abs(counts - 100) <= 50).all()
    assert ((got == 0).any(3).sum((1, 2)) <= 4).all()


def test_the_whole_image_and_nothing_can_be_erased():
    x = numbered(4, 3, 5, 7, dtype="uint8")
    erase = augment.random_erasing
    assert (erase(x, p=1, scale=(1, 1), ratio=(5 / 7, 5 / 7), value=255).numpy() == 255).all()
    np.testing.assert_array_equal(erase(x, p=1, scale=(0, 0)).numpy(), x)
    np.testing.assert_array_equal(erase(x, p=0).numpy(), x)


# All of them.

FUNCTIONS = {
    "random_flip": lambda x, **how: augment.random_flip(x, **how),
    "random_crop": lambda x, **how: augment.random_crop(x, (4, 3), padding=1, **how),
    "random_erasing": lambda x, **how: augment.random_erasing(x, **how),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
class TestEach:
    def test_draws_repeat_by_seed_and_step(self, function):
        x = numbered(20, 3, 6, 5)
        first, second = runs(function, x, 2, seed=1)
        again, _ = runs(function, x, 2, seed=1, dims=SIZES)
        np.testing.assert_array_equal(first, again)
        (other,) = runs(function, x, seed=2)
        assert (first != second).any()
        assert (first != other).any()

    def test_draws_are_of_the_name_and_not_of_the_dtype(self, function):
        x = numbered(20, 3, 6, 5)

        def after_another(x):
            augment.random_flip(x)
            return function(x, name="mine")

        (first,) = runs(lambda x: function(x, name="mine"), x)
        (second,) = runs(after_another, x.astype("float16"))
        np.testing.assert_array_equal(first, second)

    def test_evaluation(self, function):
        x = numbered(5, 3, 6, 5)

        def evaluated(x):
            with gf.training(False):
                return function(x)

        (got,) = runs(evaluated, x, dims=SIZES)
        expected = x[:, :, 1:5, 1:4] if got.shape != x.shape else x
        np.testing.assert_array_equal(got, expected)

    def test_gradients(self, function, rng):
        x = gf.asarray(rng.standard_normal((4, 2, 5, 4)))
        check_gradients(function(x), [x], rng)

    @pytest.mark.parametrize("shape", [(0, 3, 6, 5), (2, 0, 6, 5), (1, 1, 4, 3)])
    def test_empty_and_small(self, function, shape):
        x = np.ones(shape, np.float32)
        (got,) = runs(function, x)
        assert got.shape[:2] == shape[:2]
        if "random_crop" not in str(function.__code__.co_names):
            assert got.shape == shape

    def test_vmap_draws_for_each(self, function):
        x = numbered(30, 3, 6, 5)
        got = gf.vmap(function)(x).numpy()
        assert got.shape[:2] == (30, 3)
        changes = {tuple((got[i] - 90 * i).ravel()) for i in range(30)}
        assert len(changes) > 1

    def test_too_few_dims(self, function):
        with pytest.raises(gf.ShapeError, match=r"images must be \[\*B, C, H, W\]; x has 2 dims"):
            function(gf.ones((6, 5)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: augment.random_flip(x, p=1.5), "p=1.5 must be a number from 0 to 1"),
        (lambda x: augment.random_flip(x, p=-0.1), "p=-0.1 must be"),
        (lambda x: augment.random_flip(x, p="half"), "p='half' must be"),
        (lambda x: augment.random_flip(x, axis=-3), "axis=-3 is neither -1"),
        (lambda x: augment.random_flip(x, axis=0), "axis=0 is neither -1"),
        (lambda x: augment.random_crop(x, 0), "size=0 must be 1 or more"),
        (lambda x: augment.random_crop(x, (1, 2, 3)), "does not fit 2 spatial dims"),
        (lambda x: augment.random_crop(x, 2.5), "size=2.5 does not fit"),
        (lambda x: augment.random_crop(x, 2, padding=-1), "padding=-1 must be 0 or more"),
        (
            lambda x: augment.random_crop(x, 2, padding=1, padding_mode="zeros"),
            "padding_mode='zeros' is",
        ),
        (lambda x: augment.random_erasing(x, p=2), "p=2 must be"),
        (lambda x: augment.random_erasing(x, scale=0.3), "scale=0.3 is no pair"),
        (lambda x: augment.random_erasing(x, scale=(0.3, 0.1)), "is not in order"),
        (lambda x: augment.random_erasing(x, scale=(0.3, 1.1)), "from 0 to 1"),
        (lambda x: augment.random_erasing(x, scale=(-0.3, 0.1)), "from 0 to 1"),
        (lambda x: augment.random_erasing(x, ratio=(0, 1)), "must be above 0"),
        (lambda x: augment.random_erasing(x, ratio=(1, float("inf"))), "finite"),
        (lambda x: augment.random_erasing(x, value="random"), "value='random' is no number"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(gf.ArgumentError, match=message) as caught:
        call(gf.ones((2, 3, 4, 5)))
    assert caught.value.fix


def test_values_that_the_images_cannot_hold():
    x = gf.ones((3, 4, 5), dtype=gf.uint8)
    for value in (0.5, float("nan"), float("inf")):
        with pytest.raises(gf.ArgumentError, match="is no number that uint8 has"):
            augment.random_erasing(x, value=value)
    with pytest.raises(gf.DTypeError, match="random_erasing: 300 does not fit uint8"):
        augment.random_erasing(x, value=300)
