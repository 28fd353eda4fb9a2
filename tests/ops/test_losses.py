"""Losses: values and gradients against PyTorch, masked and smoothed targets, errors."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, GraphfwError, ShapeError

torch: Any = pytest.importorskip("torch")
TF = torch.nn.functional

REDUCTIONS = ["mean", "sum", "none"]


def check(
    ours: Callable[..., Any], theirs: Callable[..., Any], *xs: np.ndarray, rtol: float = 1e-10
) -> None:
    """Compare values and the gradients of all inputs that are floats."""
    a = [gf.asarray(x) for x in xs]
    b = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in xs]
    y, z = ours(*a), theirs(*b)
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=rtol, atol=1e-12)
    leaves = [i for i, x in enumerate(xs) if x.dtype.kind == "f"]
    gradients = gf.grad(gf.sum(y), [a[i] for i in leaves], missing="zeros")
    z.sum().backward()
    for i, gradient in zip(leaves, gradients, strict=True):
        np.testing.assert_allclose(gradient.numpy(), b[i].grad.numpy(), rtol=rtol, atol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_indices(
    reduction: str, smoothing: float, weighted: bool, rng: np.random.Generator
) -> None:
    x, target = 5 * rng.normal(size=(7, 4)), rng.integers(0, 4, size=7)
    target[2] = -100
    w = rng.uniform(0.1, 2, size=4) if weighted else None
    check(
        lambda a, t: gf.nn.cross_entropy(
            a, t, weight=w, label_smoothing=smoothing, reduction=reduction
        ),
        lambda a, t: TF.cross_entropy(
            a,
            t,
            None if w is None else torch.tensor(w),
            label_smoothing=smoothing,
            reduction=reduction,
        ),
        x,
        target,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_of_probabilities(
    reduction: str, smoothing: float, rng: np.random.Generator
) -> None:
    x, w = rng.normal(size=(5, 3)), rng.uniform(0.1, 2, size=3)
    chances = rng.dirichlet(np.ones(3), size=5)
    check(
        lambda a, t: gf.nn.cross_entropy(
            a, t, weight=w, label_smoothing=smoothing, reduction=reduction
        ),
        lambda a, t: TF.cross_entropy(
            a, t, torch.tensor(w), label_smoothing=smoothing, reduction=reduction
        ),
        x,
        chances,
    )


def test_cross_entropy_with_classes_in_dim_1(rng: np.random.Generator) -> None:
    x, target = rng.normal(size=(2, 3, 4, 5)), rng.integers(0, 3, size=(2, 4, 5))
    w = rng.uniform(0.1, 2, size=3)
    check(
        lambda a, t: gf.nn.cross_entropy(a, t, axis=1, weight=w, ignore_index=1),
        lambda a, t: TF.cross_entropy(a, t, torch.tensor(w), ignore_index=1),
        x,
        target,
    )


def test_cross_entropy_of_one_element(rng: np.random.Generator) -> None:
    check(gf.nn.cross_entropy, TF.cross_entropy, rng.normal(size=4), np.array(2))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_cross_entropy_takes_any_integers(dtype: str) -> None:
    loss = gf.nn.cross_entropy([[0.0, 0.0], [0.0, 0.0]], gf.asarray([0, 1], dtype=dtype))
    assert float(loss) == pytest.approx(np.log(2))


def test_cross_entropy_of_masked_classes() -> None:
    x = gf.asarray([[0.0, -np.inf, 0.0]])
    by_index = gf.nn.cross_entropy(x, [0])
    by_chance = gf.nn.cross_entropy(x, [[0.5, 0.0, 0.5]])
    for loss in (by_index, by_chance):
        assert float(loss) == pytest.approx(np.log(2))
        assert np.isfinite(gf.grad(loss, x).numpy()).all()
    assert float(gf.nn.cross_entropy(x, [1])) == np.inf


def test_cross_entropy_of_huge_logits() -> None:
    x = gf.asarray([[1e30, -1e30], [-1e30, 1e30]])
    loss = gf.nn.cross_entropy(x, [0, 1])
    assert float(loss) == 0
    assert np.isfinite(gf.grad(loss, x).numpy()).all()


def test_cross_entropy_where_all_is_ignored() -> None:
    x = gf.zeros((2, 3))
    assert np.isnan(float(gf.nn.cross_entropy(x, [-100, -100])))
    assert float(gf.nn.cross_entropy(x, [-100, -100], reduction="sum")) == 0


def test_cross_entropy_of_half_floats_is_reduced_in_float32() -> None:
    x = gf.zeros((70000, 2), dtype="float16")
    loss = gf.nn.cross_entropy(x, gf.zeros(70000, dtype="int64"))
    assert loss.dtype == gf.float16
    assert float(loss) == pytest.approx(np.log(2), rel=1e-3)


@pytest.mark.parametrize("index", [-1, -3, 3, 100])
def test_indices_of_no_class_are_errors_of_the_run(index: int) -> None:
    with gf.Graph() as g:
        x = gf.placeholder(("batch", "classes"), name="x")
        t = gf.placeholder(("batch",), gf.int64, name="t")
        loss = gf.nn.cross_entropy(x, t)
        gradient = gf.grad(loss, x)
    feeds = {x: np.zeros((2, 3), np.float32), t: [0, index]}
    for wanted in (loss, gradient):
        with gf.Session(g) as session, pytest.raises(gf.ExecutionError) as caught:
            session.run(wanted, feeds)
        assert caught.value.summary == (
            f"cross_entropy: class index {index} is out of range: "
            "there are 3 classes (ignore_index is -100)"
        )
        assert caught.value.fix == "use indices from 0 on, below 3"


def test_cross_entropy_of_a_symbolic_batch() -> None:
    with gf.Graph():
        x = gf.placeholder(("batch", 10), name="x")
        t = gf.placeholder(("batch",), gf.int64, name="t")
        assert gf.nn.cross_entropy(x, t).shape == ()
        assert gf.nn.cross_entropy(x, t, reduction="none").shape == x.shape[:1]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss(reduction: str, rng: np.random.Generator) -> None:
    x, target, w = rng.normal(size=(6, 3)), rng.integers(0, 3, size=6), rng.uniform(size=3)
    check(
        lambda a, t: gf.nn.nll(a, t, weight=w, ignore_index=0, reduction=reduction),
        lambda a, t: TF.nll_loss(a, t, torch.tensor(w), ignore_index=0, reduction=reduction),
        x,
        target,
    )


ELEMENTWISE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mse": (gf.nn.mse, TF.mse_loss),
    "l1": (gf.nn.l1, TF.l1_loss),
    "huber": (
        lambda x, y, **kw: gf.nn.huber(x, y, delta=0.7, **kw),
        lambda x, y, **kw: TF.huber_loss(x, y, delta=0.7, **kw),
    ),
    "smooth l1": (
        lambda x, y, **kw: gf.nn.smooth_l1(x, y, beta=1.3, **kw),
        lambda x, y, **kw: TF.smooth_l1_loss(x, y, beta=1.3, **kw),
    ),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_losses(name: str, reduction: str, rng: np.random.Generator) -> None:
    ours, theirs = ELEMENTWISE[name]
    x, y = 2 * rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    x[0, 0] = y[0, 0]
    check(
        lambda a, b: ours(a, b, reduction=reduction),
        lambda a, b: theirs(a, b, reduction=reduction),
        x,
        y,
    )


def test_huber_gradient_of_huge_errors_is_finite() -> None:
    x = gf.asarray([1e30, np.inf])
    g = gf.grad(gf.nn.huber(x, [0.0, 0.0], reduction="sum"), x)
    assert g.numpy().tolist() == [1, 1]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction: str, rng: np.random.Generator) -> None:
    p, t, w = rng.uniform(0.01, 0.99, size=(2, 4)), rng.uniform(size=(2, 4)), rng.uniform(size=4)
    check(
        lambda a: gf.nn.bce(a, t, weight=w, reduction=reduction),
        lambda a: TF.binary_cross_entropy(a, *map(torch.tensor, (t, w)), reduction=reduction),
        p,
    )


def test_binary_cross_entropy_at_the_ends() -> None:
    p = gf.asarray([0.0, 1.0, 0.0, 1.0])
    loss = gf.nn.bce(p, [0, 1, 1, 0], reduction="none")
    assert loss.numpy().tolist() == [0, 0, 100, 100]
    assert np.isfinite(gf.grad(gf.sum(loss), p).numpy()).all()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_with_logits(reduction: str, rng: np.random.Generator) -> None:
    x, t = 10 * rng.normal(size=(3, 4)), rng.uniform(size=(3, 4))
    w, pw = rng.uniform(size=(3, 1)), rng.uniform(0.5, 3, size=4)
    check(
        lambda a: gf.nn.bce_with_logits(a, t, weight=w, pos_weight=pw, reduction=reduction),
        lambda a: TF.binary_cross_entropy_with_logits(
            a, *map(torch.tensor, (t, w)), pos_weight=torch.tensor(pw), reduction=reduction
        ),
        x,
    )


def test_binary_cross_entropy_with_logits_is_exact_far_out() -> None:
    x = np.array([-800.0, -30.0, 30.0, 800.0])
    ones = gf.nn.bce_with_logits(x, [1, 1, 1, 1], reduction="none")
    zeros = gf.nn.bce_with_logits(x, [False] * 4, reduction="none")
    expected = np.array([800, 30 + np.log1p(np.exp(-30)), np.log1p(np.exp(-30)), 0])
    np.testing.assert_allclose(ones.numpy(), expected, rtol=1e-14)
    np.testing.assert_allclose(zeros.numpy(), expected[::-1], rtol=1e-14)


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
@pytest.mark.parametrize("log_target", [False, True])
def test_kl_div(reduction: str, log_target: bool, rng: np.random.Generator) -> None:
    x = np.log(rng.dirichlet(np.ones(4), size=3))
    t = rng.dirichlet(np.ones(4), size=3)
    t[0] = [0.5, 0, 0, 0.5]
    if log_target:
        with np.errstate(divide="ignore"):
            t = np.where(t == 0, -1e3, np.log(t))
    ours = gf.nn.kl_div(gf.asarray(x), gf.asarray(t), log_target=log_target, reduction=reduction)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its "mean" may change
        theirs = TF.kl_div(*map(torch.tensor, (x, t)), log_target=log_target, reduction=reduction)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)


def test_kl_div_of_what_has_no_chance() -> None:
    x = gf.asarray([[0.0, -np.inf]])
    loss = gf.nn.kl_div(x, [[1.0, 0.0]], reduction="batchmean")
    assert float(loss) == 0
    assert np.isfinite(gf.grad(loss, x).numpy()).all()
    logs = gf.nn.kl_div(x, [[0.0, -np.inf]], log_target=True, reduction="batchmean")
    assert float(logs) == 0


def test_cosine_similarity(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(4, 5)), rng.normal(size=(4, 5))
    check(
        lambda a, b: gf.nn.cosine_similarity(a, b, axis=0),
        lambda a, b: TF.cosine_similarity(a, b, dim=0),
        x,
        y,
    )
    zero = gf.zeros((2, 3))
    s = gf.nn.cosine_similarity(zero, zero)
    assert s.numpy().tolist() == [0, 0]
    assert np.isfinite(gf.grad(gf.sum(s), zero).numpy()).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_losses_keep_the_dtype(dtype: str) -> None:
    x = gf.zeros((2, 3), dtype=dtype)
    nn = gf.nn
    for loss in (nn.mse, nn.l1, nn.huber, nn.bce_with_logits):
        for reduction in REDUCTIONS:
            assert loss(x, x, reduction=reduction).dtype.name == dtype
    assert gf.nn.cross_entropy(x, [0, 1]).dtype.name == dtype


def test_errors_of_class_targets() -> None:
    x = gf.identity(gf.zeros((8, 3)))
    with pytest.raises(ShapeError) as error:
        gf.nn.cross_entropy(x, gf.zeros((7,), dtype="int64"))
    text = str(error.value)
    assert "cross_entropy: for logits of shape [8, 3] with classes at axis 1, target class" in text
    assert "must have shape [8], not [7]" in text
    assert re.search(r"\n  logits +float32\[8, 3\] +identity +test_losses.py:\d+", text)
    assert re.search(r"\n  target +int64\[7\] ", text)
    with pytest.raises(ShapeError, match="drop the last dim"):
        gf.nn.cross_entropy(x, gf.zeros((8, 1), dtype="int64"))
    with pytest.raises(ShapeError, match="for one-hot rows give floats"):
        gf.nn.cross_entropy(x, gf.zeros((8, 3), dtype="int64"))
    for wrong in (gf.nn.cross_entropy, gf.nn.nll):
        with pytest.raises(
            GraphfwError, match=rf"scores come first: {wrong.__name__}\(scores, target"
        ):
            wrong(gf.zeros((8,), dtype="int64"), x)
    with pytest.raises(ShapeError, match="where the classes are in dim 1, say axis=1"):
        gf.nn.cross_entropy(gf.zeros((2, 3, 4)), gf.zeros((2, 4), dtype="int64"))
    with pytest.raises(ShapeError, match=r"the logits' shape \[8, 3\], not \[8\](.*\n)*.*use int"):
        gf.nn.cross_entropy(x, gf.zeros((8,)))
    kinds = "must be integers or probabilities of the logits' shape, not bool"
    with pytest.raises(DTypeError, match=f"cross_entropy: target class indices {kinds}"):
        gf.nn.cross_entropy(x, gf.zeros((8,), dtype="bool"))
    with pytest.raises(DTypeError, match="nll: target class indices must be integers, not f"):
        gf.nn.nll(x, gf.zeros((8,)))
    with pytest.raises(ShapeError, match=r"one entry a class, shape \[3\], not \[2\]"):
        gf.nn.cross_entropy(x, gf.zeros((8,), dtype="int64"), weight=[1.0, 2.0])


def test_errors_of_pairs() -> None:
    x, y = gf.zeros((8, 1)), gf.zeros((8,))
    with pytest.raises(ShapeError) as error:
        gf.nn.mse(x, y)
    text = str(error.value)
    assert text.startswith("mse: the shapes differ: [8, 1] and [8]\n")
    assert "prediction" in text
    assert "fix  drop the prediction's last dim: gf.squeeze(prediction, axis=-1)" in text
    with pytest.raises(ShapeError, match="drop the target's last dim"):
        gf.nn.l1(y, x)
    with pytest.raises(ShapeError, match=r"weight's shape \[3\] does not broadcast to \[1\]"):
        gf.nn.bce([0.5], [1.0], weight=[1.0, 1.0, 1.0])
    with pytest.raises(DTypeError, match="mse: wants floating-point tensors, not complex64"):
        gf.nn.mse([1j], [1.0])


def test_errors_of_arguments() -> None:
    x, y = gf.zeros((2, 3)), gf.zeros((2,), dtype="int64")
    choices = 'is none of "mean", "sum", "none"\n'
    with pytest.raises(ArgumentError, match=f"reduction='avg' {choices}"):
        gf.nn.cross_entropy(x, y, reduction="avg")
    with pytest.raises(ArgumentError, match='none of "mean", "sum", "none", "batchmean"') as caught:
        gf.nn.kl_div(x, x, reduction="average")
    assert caught.value.fix == 'use reduction="mean"'
    with pytest.raises(ArgumentError, match=r"label_smoothing=1.5 must be between 0 and 1"):
        gf.nn.cross_entropy(x, y, label_smoothing=1.5)
    for loss in (gf.nn.cross_entropy, gf.nn.nll):  # a comparison with None is a bool, no mask
        with pytest.raises(ArgumentError, match="ignore_index=None is no int") as caught:
            loss(gf.log_softmax(x), y, ignore_index=None)
        assert caught.value.fix == "use ignore_index=-100"
    with pytest.raises(ArgumentError, match="huber: delta=0 must be positive"):
        gf.nn.huber(x, x, delta=0)
    with pytest.raises(ArgumentError, match="smooth_l1: beta=0 must be positive"):
        gf.nn.smooth_l1(x, x, beta=0)
