"""`Augment`: augmentations as layers of models."""

import copy
import pickle

import numpy as np
import pytest

import graphfw as gf
from graphfw.nn import augment

X = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4)


def results(build, count=1, seed=0):
    """Return the results of runs, fed `X`, of the tensor that a function builds."""
    with gf.Graph() as graph:
        x = gf.placeholder(X.shape, name="x")
        y = build(x)
    with gf.Session(graph, seed=seed) as session:
        return [session.run(y, {x: X}) for _ in range(count)]


def test_it_augments_in_training_only():
    def evaluated(x):
        return augment.Augment(augment.random_flip, p=1.0).eval()(x)

    def called_for_evaluation(x):
        return gf.nn.Sequential(augment.Augment(augment.random_flip, p=1.0))(x, training=False)

    (trained,) = results(augment.Augment(augment.random_flip, p=1.0))
    np.testing.assert_array_equal(trained, X[..., ::-1])
    for build in (evaluated, called_for_evaluation):
        np.testing.assert_array_equal(results(build)[0], X)


def test_draws_are_of_the_layer():
    def twice(x):
        layers = gf.nn.Sequential(
            *[augment.Augment(augment.random_erasing, p=1.0) for _ in range(2)]
        )
        other = augment.Augment(augment.random_erasing, p=1.0, name="other")
        return gf.stack([layers[0](x), layers[1](x), other(x)])

    first, second = results(twice, 2)
    assert all((first[i] != first[j]).any() for i, j in [(0, 1), (0, 2), (1, 2)])
    assert (first != second).any()
    (alone,) = results(lambda x: augment.Augment(augment.random_erasing, p=1.0, name="other")(x))
    np.testing.assert_array_equal(alone, first[2])


def test_its_text_and_copies():
    layer = augment.Augment(augment.random_crop, (2, 3), padding=1)
    assert repr(layer) == "Augment(random_crop, (2, 3), padding=1)"
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert repr(copied) == repr(layer)
        assert copied(gf.asarray(X)).shape == (2, 1, 2, 3)


def test_a_call_in_its_place():
    with pytest.raises(gf.ArgumentError, match="function is a Tensor, not a function") as caught:
        augment.Augment(augment.random_flip(X))
    assert "without a call" in caught.value.fix


def test_options_that_the_function_does_not_have():
    with pytest.raises(gf.CallError, match="random_flip"):
        augment.Augment(augment.random_flip, probability=0.5)(X)


FUNCTIONS = {
    "random_flip": {},
    "random_crop": {"size": 4, "padding": 1},
    "random_erasing": {"value": 1},
    "random_affine": {"degrees": 20, "translate": (0.2, 0.2), "scale": 0.2, "fill": 0.5},
    "color_jitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1},
    "random_grayscale": {"p": 0.5},
    "mixup": {"alpha": 1.0},
    "cutmix": {},
}


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", [gf.float16, gf.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_low_precision(rng, name, dtype):
    """The same draws, and what float32 gives as far as the dtype goes."""
    x, y = rng.random((6, 3, 5, 6)).astype(np.float32), np.eye(6, dtype=np.float32)
    options = dict(FUNCTIONS[name])
    more = [options.pop("size")] if "size" in options else []
    found = []
    for kind in (gf.float32, dtype):
        with gf.Graph() as graph:
            images, targets = gf.asarray(x, dtype=kind), gf.asarray(y, dtype=kind)
            more = [targets] if name in ("mixup", "cutmix") else more
            result = getattr(augment, name)(images, *more, **options)
            results = result if isinstance(result, tuple) else (result,)
            assert all(tensor.dtype == kind for tensor in results)
            wide = [gf.astype(tensor, gf.float32) for tensor in results]
        with gf.Session(graph, seed=5) as session:
            found.append(session.run(wide))
    for exact, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, exact, atol=8 * float(gf.finfo(dtype).eps))


def test_all_are_listed():
    assert {*FUNCTIONS, "Augment"} == {*augment.__all__}


@pytest.mark.slow
def test_a_training_step_in_one_plan(rng):
    """Compiled with a model: a symbolic batch, mixed precision, and gradients of its weights."""
    with gf.Graph() as graph:
        images = gf.placeholder(("batch", 3, 8, 8), name="images")
        labels = gf.placeholder(("batch",), dtype="int64", name="labels")
        x = augment.random_flip(augment.random_crop(images, 8, padding=2))
        x = augment.random_affine(x, degrees=10, scale=0.1)
        x = augment.color_jitter(x, brightness=0.2, contrast=0.2, saturation=0.2, hue=0.05)
        x = augment.random_erasing(x)
        x, targets = augment.cutmix(x, gf.one_hot(labels, 4, dtype=gf.float32))
        model = gf.nn.Sequential(gf.nn.Conv2d(3, 4, 3), gf.nn.Flatten(), gf.nn.Linear(144, 4))
        loss = gf.nn.cross_entropy(model(x), targets)
        train = gf.optim.SGD(0.05).minimize(loss)
    batch = rng.random((12, 3, 8, 8)).astype(np.float32)
    batch[:, 0] *= np.arange(12)[:, None, None] % 4 / 3
    with gf.Session(graph, seed=0, precision="mixed-bf16") as session:
        feeds = {images: batch, labels: np.arange(12) % 4}
        losses = [float(session.run([loss, train], feeds)[0]) for _ in range(60)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
