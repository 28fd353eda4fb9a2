"""Metrics against scikit-learn's, and NumPy."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.nn import metrics


@pytest.fixture(scope="module")
def sklearn_metrics():
    """Imported by the tests that compare: it takes longer than all of them."""
    return pytest.importorskip("sklearn.metrics")


def value(tensor):
    return tensor.numpy()


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_accuracy(rng, axis):
    scores = rng.standard_normal((50, 4, 3))
    target = rng.integers(0, scores.shape[axis], np.delete(scores.shape, axis))
    expected = (scores.argmax(axis) == target).mean()
    got = value(metrics.accuracy(scores, target, axis=axis))
    np.testing.assert_allclose(got, expected, 1e-6)
    assert got.dtype == np.float32


def test_topk_accuracy(rng, sklearn_metrics):
    scores, target = rng.standard_normal((80, 7)), rng.integers(0, 7, 80)
    for k in (1, 3, 6):
        got = value(metrics.topk_accuracy(scores, target, k))
        expected = sklearn_metrics.top_k_accuracy_score(target, scores, k=k, labels=range(7))
        np.testing.assert_allclose(got, expected, 1e-6)
    got = value(metrics.topk_accuracy(scores.T, target, 3, axis=0))
    expected = sklearn_metrics.top_k_accuracy_score(target, scores, k=3, labels=range(7))
    np.testing.assert_allclose(got, expected, 1e-6)


def test_binary_accuracy(rng):
    scores, target = rng.standard_normal((5, 6)), rng.integers(0, 2, (5, 6))
    expected = ((scores > 0) == (target == 1)).mean()
    np.testing.assert_allclose(value(metrics.binary_accuracy(scores, target)), expected, 1e-6)
    probabilities = 1 / (1 + np.exp(-scores))
    got = metrics.binary_accuracy(probabilities, target.astype(np.float64), threshold=0.5)
    np.testing.assert_allclose(value(got), expected, 1e-6)


def test_confusion_matrix(rng, sklearn_metrics):
    said, wanted = rng.integers(0, 5, (2, 40, 2))
    got = value(metrics.confusion_matrix(said, wanted, 5))
    expected = sklearn_metrics.confusion_matrix(wanted.ravel(), said.ravel(), labels=range(5))
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(
        value(metrics.confusion_matrix([0, -1, 2], [0, 1, 1], 2)), [[1, 0], [0, 0]]
    )


@pytest.mark.parametrize(
    ("make", "error", "text", "fix"),
    [
        (lambda: metrics.accuracy(np.ones((4, 3)), np.ones((4, 1), int)), gf.ShapeError,
         "accuracy: target must have shape [4], not [4, 1]", ""),
        (lambda: metrics.accuracy(np.ones((4, 3)), np.ones((4, 3))), gf.ShapeError,
         "target must have shape [4], not [4, 3]", "for one-hot rows use gf.argmax(target, axis="),
        (lambda: metrics.accuracy(np.ones(4, int), np.ones((4, 3))), gf.ShapeError,
         "target must have shape [], not [4, 3]", "the scores come first: accuracy(scores, "),
        (lambda: metrics.accuracy(np.ones((4, 3)), np.ones(4)), gf.DTypeError,
         "accuracy: target classes must be integers, not float64", ""),
        (lambda: metrics.accuracy(np.ones((4, 3)), np.ones(4, int), axis=2), gf.AxisError,
         "accuracy: axis 2 is out of range", "use -2 to 1"),
        (lambda: metrics.topk_accuracy(np.ones((4, 3)), np.ones(4, int), 4), gf.ArgumentError,
         "topk_accuracy: k=4 of 3 classes", ""),
        (lambda: metrics.topk_accuracy(np.ones((4, 3)), np.ones(4, int), 0), gf.ArgumentError,
         "topk_accuracy: k=0 must be 1 or more", ""),
        (lambda: metrics.binary_accuracy(np.ones((4, 1)), np.ones(4)), gf.ShapeError,
         "binary_accuracy: the shapes differ: [4, 1] and [4]", ""),
        (lambda: metrics.confusion_matrix(np.ones((4, 3)), np.ones(4, int), 3), gf.ShapeError,
         "the shapes differ", "predict classes first: gf.argmax(logits, axis=-1)"),
        (lambda: metrics.confusion_matrix(np.ones(4), np.ones(4, int), 3), gf.DTypeError,
         "prediction must be integers, not float64", ""),
        (lambda: metrics.confusion_matrix([0], [0], 0), gf.ArgumentError,
         "classes=0 must be 1 or more", ""),
    ],
)  # fmt: skip
def test_mistakes(make, error, text, fix):
    with pytest.raises(error) as caught:
        make()
    assert text in caught.value.summary
    assert caught.value.fix.startswith(fix)
