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
