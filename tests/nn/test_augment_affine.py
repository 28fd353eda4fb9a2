"""Affine maps of images: exact ones, torchvision's matrices, and what is drawn."""

import math

import numpy as np
import pytest

import graphfw as gf
from graphfw.nn import augment
from tests.support.gradcheck import check_gradients

DIMS = ("batch", 3, "height", "width")


def run(x, *, dims=None, seed=0, count=1, function=augment.random_affine, **options):
    """Return the results of runs of one session on the same images."""
    with gf.Graph() as graph:
        fed = gf.placeholder(dims or x.shape, dtype=x.dtype, name="x")
        result = function(fed, **options)
    with gf.Session(graph, seed=seed) as session:
        return [session.run(result, {fed: x}) for _ in range(count)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("dims", [None, DIMS])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_quarter_turns(rng, dims, dtype):
    x = rng.random((3, 3, 5, 5)).astype(dtype)
    for quarters in (-1, 1, 2):
        (got,) = run(x, dims=dims, degrees=(90 * quarters, 90 * quarters))
        assert got.dtype == x.dtype
        expected = np.rot90(x, -quarters, (2, 3))  # clockwise
        np.testing.assert_allclose(got, expected, atol=2e-3 if dtype == "float16" else 1e-5)


def test_shifts():
    x = np.ones((4000, 1, 1, 1)) * np.arange(10.0)[:, None] * 10 + np.arange(20.0)
    (got,) = run(x, translate=(0.2, 0.3))
    # Shifts of 4 columns and 3 rows at most, of 1 and 10 each.
    shifts = x[0, 0, 5, 10] - got[:, 0, 5, 10]
    assert abs(shifts.mean()) < 1
    assert 31 < np.abs(shifts).max() < 34 + 1e-3


def test_shifts_by_whole_elements(rng):
    x = rng.random((30, 2, 6, 8)).astype(np.float32)
    (got,) = run(x, translate=(0.25, 0.5), mode="nearest")
    padded = np.pad(x, [(0, 0), (0, 0), (3, 3), (2, 2)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (6, 8), (2, 3))
    found = [
        np.argwhere((image[:, None, None] == there).all((0, 3, 4)))
        for image, there in zip(got, windows, strict=True)
    ]
    assert all(len(at) == 1 for at in found)
    assert len({tuple(at[0]) for at in found}) > 10


def test_zoom():
    rows, columns = np.mgrid[-3.5:4, -4.5:5]
    x = np.stack([rows, columns])[None] * np.ones((50, 1, 1, 1))
    (got,) = run(x, scale=(2, 4))
    # An element at r from the middle comes from r / factor.
    factors = rows / got[:, 0]
    np.testing.assert_allclose(columns / got[:, 1], factors, rtol=1e-4)
    np.testing.assert_allclose(factors, factors[:, :1, :1] * np.ones((8, 10)), rtol=1e-4)
    assert 2 <= factors.min() < 2.2
    assert 3.7 < factors.max() <= 4.0001


def sampled(x, matrix, fill):
    """Return an image under a map of the positions of the result, in elements from the middle."""
    channels, height, width = x.shape
    result = np.zeros(x.shape)
    for i in range(height):
        for j in range(width):
            across, down = matrix @ [j - (width - 1) / 2, i - (height - 1) / 2, 1]
            column, row = across + (width - 1) / 2, down + (height - 1) / 2
            for r in (math.floor(row), math.floor(row) + 1):
                for c in (math.floor(column), math.floor(column) + 1):
                    weight = (1 - abs(row - r)) * (1 - abs(column - c))
                    inside = 0 <= r < height and 0 <= c < width
                    result[:, i, j] += weight * (x[:, r, c] if inside else np.full(channels, fill))
    return result


def inverse_matrix(degrees, factor, shear):
    """Return torchvision's matrix, `_get_inverse_affine_matrix` around the middle."""
    rotation, lean = math.radians(degrees), math.radians(shear)
    a, b = math.cos(rotation), -math.cos(rotation) * math.tan(lean) - math.sin(rotation)
    c, d = math.sin(rotation), -math.sin(rotation) * math.tan(lean) + math.cos(rotation)
    return np.array([[d, -b, 0], [-c, a, 0]]) / factor


@pytest.mark.exhaustive
@pytest.mark.parametrize("fill", [0.0, 0.5])
@pytest.mark.parametrize(
    ("degrees", "factor", "shear"), [(30, 1, 0), (0, 1.5, 0), (0, 1, 20), (-50, 0.7, -35)]
)
def test_all_together(rng, degrees, factor, shear, fill):
    x = rng.random((1, 2, 5, 8))
    options = {"degrees": (degrees,) * 2, "scale": (factor,) * 2, "shear": (shear,) * 2}
    (got,) = run(x, **options, fill=fill)
    expected = sampled(x[0], inverse_matrix(degrees, factor, shear), fill)
    np.testing.assert_allclose(got[0], expected, atol=1e-5)


def test_torchvisions_images(rng):
    functional = pytest.importorskip("torchvision.transforms.functional")
    torch = pytest.importorskip("torch")
    x = rng.random((1, 3, 7, 10)).astype(np.float32)
    (got,) = run(x, degrees=(25, 25), scale=(1.2, 1.2), shear=(15, 15))
    bilinear = functional.InterpolationMode.BILINEAR
    theirs = functional.affine(torch.tensor(x), 25, [0, 0], 1.2, [15, 0], bilinear)
    np.testing.assert_allclose(got, theirs.numpy(), atol=1e-4)


def test_nothing_to_move(rng):
    x = rng.random((2, 3, 5, 6)).astype(np.float32)
    (got,) = run(x, degrees=0)
    np.testing.assert_array_equal(got, x)
    (got,) = run(x, degrees=0, translate=(0, 1e-9))
    np.testing.assert_allclose(got, x, atol=1e-5)


def test_draws_repeat_by_seed_step_and_name(rng):
    x = rng.random((6, 3, 7, 8)).astype(np.float32)
    options = {"degrees": 20, "translate": (0.1, 0.1), "scale": 0.2, "shear": 10}
    first, second = run(x, count=2, **options)
    (again,) = run(x, dims=DIMS, **options)
    (other,) = run(x, seed=1, **options)
    np.testing.assert_allclose(first, again, atol=1e-5)
    assert all((first[i] != second[i]).any() for i in range(6))
    assert (first != other).any()

    def after_another(x, **options):
        augment.random_affine(x, degrees=1)
        return augment.random_affine(x, name="mine", **options)

    (named,) = run(x, name="mine", **options)
    np.testing.assert_array_equal(named, run(x, function=after_another, **options)[0])


def test_evaluation(rng):
    x = rng.random((6, 3, 7, 8))
    with gf.training(False):
        np.testing.assert_array_equal(augment.random_affine(x, degrees=90).numpy(), x)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_gradients(rng, mode):
    x = gf.asarray(rng.standard_normal((3, 2, 4, 5)))
    y = augment.random_affine(
        x, degrees=30, translate=(0.1, 0.1), scale=0.2, shear=10, fill=0.3, mode=mode
    )
    check_gradients(y, [x], rng)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (3, 4, 5), (2, 2, 3, 1, 1), (2, 0, 4, 5)])
def test_empty_and_other_batches(shape):
    (got,) = run(np.ones(shape, np.float32), degrees=10)
    assert got.shape == shape


def test_vmap_draws_for_each(rng):
    x = np.tile(rng.random((3, 5, 5)), (10, 1, 1, 1))
    got = gf.vmap(lambda x: augment.random_affine(x, degrees=45))(x).numpy()
    assert got.shape == x.shape
    assert len({tuple(image.ravel()) for image in got}) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degrees": -10}, "degrees=-10 must be finite and not negative"),
        ({"degrees": (30, 10)}, "is not in order"),
        ({"translate": 0.1}, "translate=0.1 must be two shares"),
        ({"translate": (0.1, 1.5)}, "must be two shares"),
        ({"translate": (-0.1, 0.5)}, "must be two shares"),
        ({"scale": (0, 1)}, "reaches 0"),
        ({"scale": 1.0}, "reaches 0"),
        ({"scale": (-1, 1)}, "reaches below 0"),
        ({"shear": 90}, "inside of ±90 degrees"),
        ({"fill": "black"}, "fill='black' is no finite number"),
        ({"fill": float("nan")}, "fill=nan is no finite number"),
        ({"mode": "area"}, "mode='area' is none of"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(gf.ArgumentError, match=message) as caught:
        augment.random_affine(gf.ones((3, 4, 5)), **options)
    assert caught.value.fix


def test_images_that_do_not_fit():
    with pytest.raises(gf.DTypeError, match="floating-point tensors, not uint8"):
        augment.random_affine(gf.ones((3, 4, 5), dtype=gf.uint8), degrees=10)
    with pytest.raises(gf.ShapeError, match="images must be"):
        augment.random_affine(gf.ones((4, 5)), degrees=10)
