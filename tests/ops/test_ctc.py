"""The CTC loss: against an enumeration of alignments, PyTorch, and differences."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.errors import ArgumentError, DTypeError, GraphfwError, ShapeError
from tests.support.gradcheck import check_gradients


def enumerated(logits: np.ndarray, target: list[int], blank: int = 0) -> float:
    """Return the loss of one sequence, of all its alignments one by one."""
    chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    total = 0.0
    for path in itertools.product(range(logits.shape[1]), repeat=logits.shape[0]):
        labels = [c for c, _ in itertools.groupby(path) if c != blank]
        if labels == target:
            total += np.prod(chances[np.arange(len(path)), path])
    return -np.log(total) if total else np.inf


@pytest.mark.parametrize("target", [[1], [1, 2], [1, 1], [2, 2, 1], [1, 2, 1, 2], []])
@pytest.mark.parametrize("steps", [0, 1, 3, 5])
def test_the_loss_is_that_of_all_alignments(
    target: list[int], steps: int, rng: np.random.Generator
) -> None:
    logits = rng.normal(size=(steps, 3))
    labels = np.array(target, np.int64)
    expected = enumerated(logits, target)
    loss = nn.ctc(logits, labels, reduction="none")
    np.testing.assert_allclose(float(loss), expected, rtol=1e-12)
    finite = nn.ctc(logits, labels, zero_infinity=True, reduction="none")
    np.testing.assert_allclose(float(finite), 0 if np.isinf(expected) else expected, rtol=1e-12)


def test_another_blank(rng: np.random.Generator) -> None:
    logits = rng.normal(size=(4, 3))
    loss = nn.ctc(logits, [0, 1], blank=2, reduction="sum")
    np.testing.assert_allclose(float(loss), enumerated(logits, [0, 1], 2), rtol=1e-12)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("seed", range(4))
def test_values_and_gradients_are_those_of_pytorch(seed: int, reduction: str) -> None:
    torch: Any = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    steps, batch, classes, room = rng.integers(8, 20), 7, 4, 5
    logits = 2 * rng.normal(size=(batch, steps, classes))
    target = rng.integers(1, classes, size=(batch, room))
    ends, counts = rng.integers(1, steps + 1, batch), rng.integers(0, room + 1, batch)
    lengths = {"input_lengths": ends, "target_lengths": counts}
    x = gf.asarray(logits)
    loss = nn.ctc(x, target, **lengths, zero_infinity=True, reduction=reduction)
    y = torch.tensor(logits, requires_grad=True)
    theirs = torch.nn.functional.ctc_loss(
        torch.log_softmax(y.transpose(0, 1), -1),
        *map(torch.tensor, (target, ends, counts)),
        zero_infinity=True,
        reduction=reduction,
    )
    np.testing.assert_allclose(loss.numpy(), theirs.detach().numpy(), rtol=1e-10)
    theirs.sum().backward()
    slopes = gf.grad(gf.sum(loss), x)
    np.testing.assert_allclose(slopes.numpy(), y.grad.numpy(), rtol=1e-8, atol=1e-12)


def test_gradients_are_those_of_differences(rng: np.random.Generator) -> None:
    x = gf.asarray(rng.normal(size=(3, 5, 4)))
    counts = [3, 1, 0]
    loss = nn.ctc(x, [[1, 2, 2], [3, 0, 0], [0, 0, 0]], target_lengths=counts, reduction="none")
    check_gradients(loss, [x], rng)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_targets_without_an_alignment_have_no_gradient(zero_infinity: bool) -> None:
    x = gf.asarray([[[0.1, 0.2, 0.3]] * 2] * 2)
    loss = nn.ctc(x, [[1, 1], [1, 2]], zero_infinity=zero_infinity, reduction="none")
    assert (loss.numpy() == (0 if zero_infinity else np.inf)).tolist() == [True, False]
    slopes = gf.grad(gf.sum(loss), x).numpy()
    assert (slopes[0] == 0).all()
    assert np.isfinite(slopes[1]).all()
    assert slopes[1].any()


def test_classes_that_are_masked_out() -> None:
    x = gf.asarray([[0.0, -np.inf, 0.0]] * 3)
    loss = nn.ctc(x, [2], reduction="sum")
    np.testing.assert_allclose(float(loss), -np.log(6 / 8), rtol=1e-6)
    assert np.isfinite(gf.grad(loss, x).numpy()).all()
    assert float(nn.ctc(x, [1])) == np.inf


def test_log_probabilities_serve_as_logits(rng: np.random.Generator) -> None:
    x, target = rng.normal(size=(2, 6, 4)), [[1, 2], [3, 3]]
    expected = nn.ctc(x, target).numpy()
    np.testing.assert_allclose(nn.ctc(gf.log_softmax(x), target).numpy(), expected, rtol=1e-12)


def test_padding_is_of_no_account(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 6, 4))
    target = np.array([[1, 2, -1], [3, 99, 0]])
    lengths = {"input_lengths": [4, 9], "target_lengths": [2, 1]}  # above the steps counts as all
    loss = nn.ctc(x, target, **lengths, reduction="none").numpy()
    each = [enumerated(x[0, :4], [1, 2]), enumerated(x[1], [3])]
    np.testing.assert_allclose(loss, each, rtol=1e-12)
    mean = float(nn.ctc(x, target, **lengths))
    np.testing.assert_allclose(mean, (each[0] / 2 + each[1]) / 2, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_each_dtype_is_kept_and_computed_in_float32_at_least(
    dtype: str, rng: np.random.Generator
) -> None:
    x = gf.asarray(rng.normal(size=(2, 50, 4)), dtype=dtype)
    target = rng.integers(1, 4, size=(2, 9))
    loss = nn.ctc(x, target)
    assert loss.dtype.name == dtype
    exact = float(nn.ctc(gf.astype(x, gf.float64), target))
    precision = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(float(loss), exact, rtol=precision)


def test_symbolic_and_empty_dims(rng: np.random.Generator) -> None:
    with gf.Graph() as g:
        x = gf.placeholder(("batch", "time", "classes"), gf.float64, name="x")
        t = gf.placeholder(("batch", "labels"), gf.int64, name="t")
        loss = nn.ctc(x, t, reduction="none")
        slopes = gf.grad(gf.sum(loss), x)
    assert loss.shape == x.shape[:1]
    with gf.Session(g) as session:
        for batch, steps, labels in ((2, 6, 2), (0, 6, 2), (3, 6, 0), (2, 0, 0), (1, 1, 1)):
            logits = rng.normal(size=(batch, steps, 4))
            target = rng.integers(1, 4, size=(batch, labels))
            got, gradient = session.run([loss, slopes], {x: logits, t: target})
            expected = [enumerated(one, list(t)) for one, t in zip(logits, target, strict=True)]
            np.testing.assert_allclose(got, expected, rtol=1e-12)
            assert gradient.shape == logits.shape
            assert np.isfinite(gradient).all()


def test_it_is_mapped(rng: np.random.Generator) -> None:
    x, target = gf.asarray(rng.normal(size=(3, 5, 4))), gf.asarray([[1, 2], [3, 3], [1, 1]])
    ends, counts = gf.asarray([5, 4, 3]), gf.asarray([2, 1, 2])

    def loss(*args: Any) -> Any:
        logits, labels, *lengths = args
        named = dict(zip(("input_lengths", "target_lengths"), lengths, strict=False))
        return nn.ctc(logits, labels, **named, reduction="none")

    for args in ((x, target), (x, target, ends, counts)):
        np.testing.assert_allclose(gf.vmap(loss)(*args).numpy(), loss(*args).numpy(), rtol=1e-12)


def test_more_dims_of_a_batch(rng: np.random.Generator) -> None:
    x, target = rng.normal(size=(2, 3, 5, 4)), rng.integers(1, 4, size=(2, 3, 2))
    loss = nn.ctc(x, target, reduction="none").numpy()
    flat = nn.ctc(x.reshape(6, 5, 4), target.reshape(6, 2), reduction="none").numpy()
    np.testing.assert_array_equal(loss, flat.reshape(2, 3))


def test_a_model_learns_to_spell() -> None:
    with gf.Graph() as g:
        w = gf.Variable(np.zeros((1, 8, 4), np.float32), name="w")
        loss = nn.ctc(w, [[1, 2, 2, 3]])
        train = gf.optim.Adam(0.3).minimize(loss)
        best = gf.argmax(w[0], axis=-1)
    with gf.Session(g) as session:
        for _ in range(60):
            value, _ = session.run([loss, train])
        path = session.run(best)
    assert value < 0.05
    assert [c for c, _ in itertools.groupby(path.tolist()) if c] == [1, 2, 2, 3]


X, TARGET = np.zeros((2, 5, 4)), np.ones((2, 3), np.int64)
MISTAKES: list[tuple[Any, type[GraphfwError], str, str]] = [
    (lambda: nn.ctc(X[0, 0], TARGET), ShapeError, "ctc: needs scores of each step", "add a dim"),
    (lambda: nn.ctc(X, TARGET + 0.0), DTypeError, "target must be integers, not float64", "conv"),
    (lambda: nn.ctc(X, TARGET[0]), ShapeError, "target must have shape [2, S], not [3]", "pad"),
    (
        lambda: nn.ctc(X.swapaxes(0, 1), TARGET),
        ShapeError,
        "ctc: for logits of shape [5, 2, 4], target must have shape [5, S], not [2, 3]",
        "the batch goes first: gf.swapaxes(logits, 0, 1)",
    ),
    (lambda: nn.ctc(X, TARGET, blank=4), ArgumentError, "blank=4 is none of 4 classes", "use bl"),
    (lambda: nn.ctc(X, TARGET, blank=-1), ArgumentError, "blank=-1 is none of 4", "use blank=0"),
    (
        lambda: nn.ctc(X, TARGET, input_lengths=[5]),
        ShapeError,
        "ctc: input_lengths must have shape [2], not [1]",
        "give one length",
    ),
    (
        lambda: nn.ctc(X, TARGET, target_lengths=[3.0, 2.0]),
        DTypeError,
        "ctc: target_lengths must be integers, not float32",
        "convert it",
    ),
    (lambda: nn.ctc(X, TARGET, reduction="avg"), ArgumentError, "reduction='avg' is none", "use"),
]


@pytest.mark.parametrize(("make", "error", "text", "fix"), MISTAKES)
def test_mistakes(make: Any, error: type[GraphfwError], text: str, fix: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert text in caught.value.summary
    assert caught.value.fix.startswith(fix)


def test_labels_that_are_no_class_are_errors_of_the_run() -> None:
    with pytest.raises(gf.ExecutionError, match=r"ctc: class index 4 is out of range: there are 4"):
        nn.ctc(gf.asarray(X), gf.asarray([[1, 2, 3], [1, 4, 2]])).numpy()


def test_probabilities_for_scores_are_warned_of() -> None:
    with gf.Graph(), pytest.warns(UserWarning, match="ctc: its input is the result of a softmax"):
        nn.ctc(gf.softmax(nn.Linear(4, 4)(gf.placeholder((2, 5, 4), name="x"))), TARGET)
