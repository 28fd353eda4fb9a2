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


CLASS_METRICS = {
    "precision": "precision_score",
    "recall": "recall_score",
    "f1": "f1_score",
    "iou": "jaccard_score",
}


@pytest.mark.parametrize("average", ["macro", "micro", None])
@pytest.mark.parametrize("name", CLASS_METRICS)
def test_metrics_of_classes(rng, sklearn_metrics, name, average):
    said, wanted = rng.integers(0, 5, (2, 30, 2))
    said[said == 2], wanted[wanted == 3] = 1, 0  # one is never predicted, one is never wanted
    theirs = getattr(sklearn_metrics, CLASS_METRICS[name])
    labels = range(6) if average is None else None  # the last occurs nowhere
    options = {"average": average, "labels": labels, "zero_division": 0}
    expected = theirs(wanted.ravel(), said.ravel(), **options)
    got = getattr(metrics, name)(said, wanted, 6, average=average)
    np.testing.assert_allclose(value(got), expected, 1e-6)
    assert got.dtype == gf.float32


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_metrics_of_yes_or_no(rng, sklearn_metrics, name):
    theirs, ours = getattr(sklearn_metrics, CLASS_METRICS[name]), getattr(metrics, name)
    said, wanted = rng.integers(0, 2, (2, 4, 10))
    expected = theirs(wanted.ravel(), said.ravel())
    for kind in (np.bool_, np.int64, np.float32):
        np.testing.assert_allclose(value(ours(said > 0, wanted.astype(kind))), expected, 1e-6)
    no = np.zeros(4, bool)
    assert value(ours(no, no)) == theirs(no, no, zero_division=0) == 0
    assert value(ours(no[:0], no[:0])) == 0


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_metrics_of_no_elements(name):
    none = np.zeros((0, 3), int)
    assert np.isnan(value(getattr(metrics, name)(none, none, 3)))
    assert value(getattr(metrics, name)(none, none, 3, average="micro")) == 0
    assert value(getattr(metrics, name)(none, none, 3, average=None)).tolist() == [0, 0, 0]


def test_labels_outside_of_the_classes_are_ignored(rng):
    said, wanted = rng.integers(0, 3, (2, 50))
    ignored = np.where(np.arange(50) % 3 == 0, 255, wanted)
    kept = np.arange(50) % 3 != 0
    for name in CLASS_METRICS:
        metric = getattr(metrics, name)
        expected = value(metric(said[kept], wanted[kept], 3))
        np.testing.assert_array_equal(value(metric(said, ignored, 3)), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("ties", [False, True])
def test_roc_auc(rng, sklearn_metrics, ties, dtype):
    scores, target = rng.normal(size=(6, 50)), rng.integers(0, 2, (6, 50))
    if ties:
        scores = np.round(2 * scores)
    scores = scores.astype(dtype)
    expected = sklearn_metrics.roc_auc_score(target.ravel(), scores.ravel().astype(float))
    for wanted in (target, target > 0, target.astype(np.float32)):
        np.testing.assert_allclose(value(metrics.roc_auc(scores, wanted)), expected, 1e-6)


def test_roc_auc_at_its_ends():
    assert value(metrics.roc_auc([0.1, 0.2, 0.9], [0, 0, 1])) == 1
    assert value(metrics.roc_auc([0.9, 0.2, 0.1], [0, 1, 1])) == 0
    assert value(metrics.roc_auc([0.5] * 4, [0, 0, 0, 1])) == 0.5
    assert value(metrics.roc_auc([-np.inf, np.inf, 0.0], [0, 1, 0])) == 1
    for scores, target in (([0.5, 0.7], [1, 1]), ([0.5, 0.7], [0, 0]), ([], [])):
        assert np.isnan(value(metrics.roc_auc(scores, target)))
    assert np.isnan(value(metrics.roc_auc([np.nan, 0.7, 0.2], [0, 1, 0])))


def test_perplexity(rng):
    logits, target = rng.normal(size=(3, 7, 5)), rng.integers(0, 7, (3, 5))
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    picked = np.take_along_axis(logs, target[:, None], 1)[:, 0]
    got = metrics.perplexity(logits, target, axis=1, ignore_index=2)
    np.testing.assert_allclose(value(got), np.exp(-picked[target != 2].mean()), 1e-6)
    low = metrics.perplexity(gf.zeros((2, 50000), dtype="float16"), [1, 2])
    assert low.dtype == gf.float32
    np.testing.assert_allclose(value(low), 50000, 1e-4)
    assert np.isnan(value(metrics.perplexity(np.zeros((0, 3)), np.zeros(0, int))))


def test_r2(rng, sklearn_metrics):
    target = rng.normal(size=(40, 3))
    said = target + 0.3 * rng.normal(size=(40, 3))
    expected = sklearn_metrics.r2_score(target, said, multioutput="raw_values")
    np.testing.assert_allclose(value(metrics.r2(said, target, axis=0)), expected, 1e-6)
    whole = sklearn_metrics.r2_score(target.ravel(), said.ravel())
    np.testing.assert_allclose(value(metrics.r2(said, target)), whole, 1e-6)
    for other in ([1.0, 1.0], [1.0, 2.0]):
        expected = sklearn_metrics.r2_score([1, 1], other)
        assert value(metrics.r2(other, [1, 1])) == expected


def test_metrics_of_a_symbolic_batch(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("a", "b"), name="x")
        y = gf.placeholder(("a", "b"), gf.int64, name="y")
        fetches = [
            metrics.iou(gf.astype(x > 0, gf.int64), y, 2),
            metrics.f1(x > 0, y),
            metrics.roc_auc(x, y),
            metrics.r2(x, y, axis=0),
            metrics.perplexity(gf.stack([x, -x], axis=-1), y),
        ]
    assert [f.shape for f in fetches] == [(), (), (), x.shape[1:], ()]
    values, labels = rng.normal(size=(5, 4)).astype(np.float32), rng.integers(0, 2, (5, 4))
    with gf.Session(g) as session:
        got = session.run(fetches, {x: values, y: labels})
    expected = [
        metrics.iou((values > 0).astype(int), labels, 2),
        metrics.f1(values > 0, labels),
        metrics.roc_auc(values, labels),
        metrics.r2(values, labels, axis=0),
        metrics.perplexity(np.stack([values, -values], axis=-1), labels),
    ]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, value(other), 1e-5)


def test_metrics_are_mapped(rng):
    scores, target = np.round(rng.normal(size=(3, 8)), 1), rng.integers(0, 2, (3, 8))
    mapped = gf.vmap(metrics.roc_auc)(gf.asarray(scores), gf.asarray(target))
    each = [value(metrics.roc_auc(s, t)) for s, t in zip(scores, target, strict=True)]
    np.testing.assert_allclose(value(mapped), each)
    mapped = gf.vmap(lambda s, t: metrics.f1(s > 0, t))(gf.asarray(scores), gf.asarray(target))
    each = [value(metrics.f1(s > 0, t)) for s, t in zip(scores, target, strict=True)]
    np.testing.assert_allclose(value(mapped), each)


@pytest.mark.parametrize(
    ("make", "error", "text", "fix"),
    [
        (lambda: metrics.precision(np.ones(4, int), np.ones(4, int)), gf.DTypeError,
         "precision: without classes, prediction must be bools, not int64",
         "compare scores: precision(scores > 0, target); or say how many classes: precision(pred"),
        (lambda: metrics.recall(np.ones((4, 3)), np.ones(4, int), 3), gf.ShapeError,
         "the shapes differ: [4, 3] and [4]", "predict classes first: gf.argmax(logits"),
        (lambda: metrics.f1(np.ones(4, int), np.ones(4, int), 0), gf.ArgumentError,
         "f1: classes=0 must be 1 or more", "use classes=1"),
        (lambda: metrics.iou(np.ones(4, int), np.ones(4, int), 2, average="mean"),
         gf.ArgumentError, "iou: average='mean' is none of \"macro\", \"micro\"", "use "),
        (lambda: metrics.roc_auc(np.ones((4, 1)), np.ones(4, int)), gf.ShapeError,
         "roc_auc: the shapes differ: [4, 1] and [4]", "reshape one of them"),
        (lambda: metrics.r2(np.ones((4, 1)), np.ones(4)), gf.ShapeError,
         "r2: the shapes differ: [4, 1] and [4]", "reshape one of them"),
        (lambda: metrics.r2([1j], [1.0]), gf.DTypeError, "r2: wants floating-point tensors", ""),
        (lambda: metrics.roc_auc([1j], [1.0]), gf.DTypeError, "roc_auc: wants floating-", ""),
        (lambda: metrics.r2([1.0], [1.0], axis=1), gf.AxisError, "r2: axis 1 is out of", "use"),
        (lambda: metrics.r2([1.0], [1.0], axis="a"), gf.AxisError, "r2: axis 'a' is no", "name"),
        (lambda: metrics.perplexity(np.ones((4, 3)), np.ones(4, int), ignore_index="a"),
         gf.ArgumentError, "ignore_index='a' is no int", "use ignore_index=-100"),
        (lambda: metrics.perplexity(np.ones((4, 3)), np.ones(3, int)), gf.ShapeError,
         "perplexity: target must have shape [4], not [3]", ""),
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
