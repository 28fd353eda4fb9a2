"""Metrics over many batches: the same as over all data at once."""

import itertools

import numpy as np
import pytest

import graphfw as gf
from graphfw.nn import metrics

NAMES = ("precision", "recall", "f1", "iou")


@pytest.fixture
def labels(rng):
    return rng.integers(-1, 5, (2, 37))


def batches(*arrays):
    """Yield batches of unequal sizes, an empty one among them."""
    ends = [0, 10, 11, 11, 30, len(arrays[0])]
    for begin, end in itertools.pairwise(ends):
        yield [a[begin:end] for a in arrays]


def test_a_confusion_matrix_of_batches_is_that_of_all(labels):
    said, wanted = labels
    with gf.Graph() as g:
        x = gf.placeholder(("batch",), gf.int64, name="x")
        y = gf.placeholder(("batch",), gf.int64, name="y")
        matrix = metrics.ConfusionMatrix(5)
        step, reset, count = matrix.update(x, y), matrix.reset(), matrix.result()
        averages = ("macro", "micro", None)
        fetches = [getattr(matrix, name)(average=a) for name in NAMES for a in averages]
        accuracy = matrix.accuracy()
    whole = metrics.confusion_matrix(said, wanted, 5).numpy()
    with gf.Session(g) as session:
        for _ in range(2):
            session.run(reset)
            assert session.run(count).tolist() == np.zeros((5, 5)).tolist()
            assert np.isnan(session.run(accuracy))
            for one, other in batches(said, wanted):
                session.run(step, {x: one, y: other})
            np.testing.assert_array_equal(session.run(count), whole)
        got = session.run(fetches)
        np.testing.assert_allclose(session.run(accuracy), whole.trace() / whole.sum(), 1e-6)
    expected = [getattr(metrics, n)(said, wanted, 5, average=a) for n in NAMES for a in averages]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other.numpy())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
def test_a_mean_of_batches_is_that_of_all(rng, dtype):
    values = (3 * rng.normal(size=(37, 2))).astype(dtype)
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 2), dtype, name="x")
        mean = metrics.Mean()
        step, result, reset = mean.update(x), mean.result(), mean.reset()
    assert result.dtype == gf.float32
    with gf.Session(g) as session:
        for _ in range(2):
            assert np.isnan(session.run(result))
            for (batch,) in batches(values):
                session.run(step, {x: batch})
            expected = values.astype(np.float64).mean()
            np.testing.assert_allclose(session.run(result), expected, 1e-6)
            session.run(reset)


def test_weights_count_each_value_or_the_whole_batch(rng):
    values, weights = rng.normal(size=(2, 37)).astype(np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(("batch",), name="x")
        w = gf.placeholder(("batch",), name="w")
        by_value, by_batch = metrics.Mean(), metrics.Mean()
        step = gf.group(
            by_value.update(x, gf.abs(w)),
            by_batch.update(gf.mean(x), weight=x.shape[0]),  # of an empty batch, NaN times 0
        )
        results = [by_value.result(), by_batch.result()]
    with gf.Session(g) as session:
        for one, other in batches(values, weights):
            session.run(step, {x: one, w: other})
        got = session.run(results)
    expected = [np.average(values, weights=np.abs(weights)), values.mean()]
    np.testing.assert_allclose(got, expected, 1e-5)


def test_a_result_has_the_batches_of_the_runs_before():
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        mean = metrics.Mean(name="loss")
        fetches = [mean.result(), mean.update(x)]
    with gf.Session(g) as session:
        assert np.isnan(session.run(fetches, {x: 1.0})[0])
        assert session.run(fetches, {x: 3.0})[0] == 1
        assert session.run(fetches, {x: 3.0})[0] == 2
        state = session.state_dict()
        assert (state["loss.total"], state["loss.weight"]) == (7, 3)
    assert not mean.parameters()


def test_streams_of_a_function_and_a_loop(rng):
    values = rng.normal(size=(4, 3)).astype(np.float32)
    with gf.Graph() as g:
        mean = metrics.Mean()
    with gf.Session(g) as session:

        @gf.function(session=session)
        def seen(x):
            mean.update(x)
            return gf.sum(x)

        @gf.function(session=session)
        def looped(xs):
            return gf.scan(lambda _, x: ((), (mean.update(x), gf.sum(x))[1]), (), xs)[1]

        @gf.function(session=session)
        def so_far():
            return mean.result()

        seen(values[0])
        seen(values[1])
        looped(values[2:])
        np.testing.assert_allclose(np.asarray(so_far()), values.mean(), 1e-5)


def test_a_metric_of_a_model_is_not_trained():
    with gf.Graph():
        x = gf.placeholder(("batch", 3), name="x")

        class Model(gf.nn.Module):
            def __init__(self):
                self.layer = gf.nn.Linear(3, 2)
                self.seen = metrics.ConfusionMatrix(2)

            def forward(self, x):
                return self.layer(x)

        model = Model()
        model(x)
    assert [v.name for v in model.parameters()] == ["model.layer.weight", "model.layer.bias"]
    assert "(seen): ConfusionMatrix(2)" in repr(model)


MISTAKES = [
    (lambda: metrics.ConfusionMatrix(0), gf.ArgumentError,
     "ConfusionMatrix: classes=0 must be 1 or more", "use classes=1"),
    (lambda: metrics.ConfusionMatrix(3).update([0.5], [1]), gf.DTypeError,
     "confusion_matrix: prediction must be integers, not float32", "convert it"),
    (lambda: metrics.ConfusionMatrix(3).f1(average="mean"), gf.ArgumentError,
     "f1: average='mean' is none of", "use "),
    (lambda: metrics.Mean().update([1.0], [1.0, 2.0]), gf.ShapeError,
     "Mean: the weights' shape [2] does not broadcast to [1]", "give each value a weight"),
    (lambda: metrics.Mean().update([1j]), gf.DTypeError, "Mean: wants floating-point", "take gf."),
    (lambda: metrics.Mean().update(), gf.CallError,
     "update: missing a required argument: 'values'", "its arguments are: values, weight"),
    (lambda: metrics.ConfusionMatrix(3).iou("micro"), gf.CallError,
     "iou: too many positional arguments", "metrics.ConfusionMatrix(3).iou(average='micro')"),
    (lambda: metrics.ConfusionMatrix(), gf.CallError,
     "ConfusionMatrix: missing a required argument: 'classes'", "its arguments are: classes"),
    (lambda: metrics.Mean()([1.0]), gf.GraphError, "Mean is no layer", "write update(…) for a"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "text", "fix"), MISTAKES)
def test_mistakes(make, error, text, fix):
    with gf.Graph(), pytest.raises(error) as caught:
        make()
    assert text in caught.value.summary
    assert caught.value.fix.startswith(fix)
