"""Losses with margins, of rare classes, of masks, of pairs, and likelihoods."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.errors import ArgumentError, AxisError, DTypeError, GraphfwError, ShapeError
from tests.support.gradcheck import check_gradients

Case = tuple[Callable[..., Any], Callable[..., Any], list[np.ndarray]]


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def chances(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.1, 0.9, size=shape)


SIGNS = np.where(floats(9, 5, 4) > 0, 1.0, -1.0)
ROWS = np.array([1.0, -1.0, -1.0, 1.0, 1.0])
CLASSES = np.array([3, 0, 1, 1, 2])
WEIGHT = np.array([0.5, 2.0, 1.0, 0.1])
COUNTS = np.array([0.0, 1.0, 2.0, 7.0])
NEAR, FAR = floats(1, 5, 4), floats(2, 5, 4)

OURS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "hinge": (lambda x, **kw: nn.hinge(x, SIGNS, **kw), [2 * NEAR]),
    "squared hinge": (lambda x, **kw: nn.hinge(x, SIGNS, power=2, margin=0.5, **kw), [NEAR]),
    "binary_focal": (lambda x, **kw: nn.binary_focal(x, SIGNS > 0, **kw), [3 * NEAR]),
    "binary_focal of chances": (
        lambda x, **kw: nn.binary_focal(x, chances(3, 5, 4), gamma=0.5, alpha=None, **kw),
        [NEAR],
    ),
    "focal": (lambda x, **kw: nn.focal(x, CLASSES, weight=WEIGHT, gamma=1.5, **kw), [NEAR]),
    "dice": (lambda x, **kw: nn.dice(x, SIGNS > 0, axis=-1, **kw), [chances(4, 5, 4)]),
    "multi_margin": (lambda x, **kw: nn.multi_margin(x, CLASSES, weight=WEIGHT, **kw), [NEAR]),
    "multi_margin of squares": (
        lambda x, **kw: nn.multi_margin(x, CLASSES, power=2, margin=0.7, **kw),
        [NEAR],
    ),
    "margin_ranking": (
        lambda x, y, **kw: nn.margin_ranking(x, y, SIGNS, margin=0.3, **kw),
        [NEAR, FAR],
    ),
    "triplet_margin": (nn.triplet_margin, [floats(5, 5, 4), NEAR, FAR]),
    "triplet_margin with swap": (
        lambda *xs, **kw: nn.triplet_margin(*xs, swap=True, ord=1, margin=3.0, **kw),
        [floats(5, 5, 4), NEAR, FAR],
    ),
    "cosine_embedding": (
        lambda x, y, **kw: nn.cosine_embedding(x, y, ROWS, margin=0.1, **kw),
        [NEAR, FAR],
    ),
    "info_nce": (lambda x, y, **kw: nn.info_nce(x, y, temperature=0.5, **kw), [NEAR, FAR]),
    "symmetric info_nce": (
        lambda x, y, t, **kw: nn.info_nce(x, y, temperature=t, symmetric=True, **kw),
        [NEAR, FAR, np.array(0.3)],
    ),
    "gaussian_nll": (
        lambda x, y, v, **kw: nn.gaussian_nll(x, y, v, full=True, **kw),
        [NEAR, FAR, chances(6, 5, 1)],
    ),
    "poisson_nll": (lambda x, **kw: nn.poisson_nll(x, COUNTS + 0 * NEAR, **kw), [NEAR]),
    "poisson_nll of rates": (
        lambda x, **kw: nn.poisson_nll(x, COUNTS + 0 * NEAR, log_input=False, full=True, **kw),
        [chances(7, 5, 4)],
    ),
}


@pytest.mark.parametrize("name", OURS)
def test_gradients_are_those_of_differences(name: str, rng: np.random.Generator) -> None:
    loss, values = OURS[name]
    leaves = [gf.asarray(x) for x in values]
    check_gradients(loss(*leaves, reduction="none"), leaves, rng)


@pytest.mark.parametrize("name", OURS)
def test_reductions_agree(name: str) -> None:
    loss, values = OURS[name]
    each = loss(*values, reduction="none").numpy()
    np.testing.assert_allclose(loss(*values, reduction="sum").numpy(), each.sum(), rtol=1e-12)
    if name != "focal":  # whose mean is weighted
        np.testing.assert_allclose(loss(*values).numpy(), each.mean(), rtol=1e-12)


MAPPED: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "hinge": (nn.hinge, [NEAR, SIGNS]),
    "binary_focal": (nn.binary_focal, [NEAR, SIGNS > 0]),
    "focal": (nn.focal, [np.stack([NEAR, FAR]), np.stack([CLASSES, CLASSES])]),
    "dice": (nn.dice, [chances(1, 5, 4), SIGNS > 0]),
    "multi_margin": (nn.multi_margin, [np.stack([NEAR, FAR]), np.stack([CLASSES, CLASSES])]),
    "margin_ranking": (nn.margin_ranking, [NEAR, FAR, SIGNS]),
    "triplet_margin": (nn.triplet_margin, [np.stack([NEAR, FAR]) + i for i in range(3)]),
    "cosine_embedding": (
        nn.cosine_embedding,
        [np.stack([NEAR, FAR]), np.stack([FAR, NEAR + 1]), np.stack([ROWS, ROWS])],
    ),
    "info_nce": (nn.info_nce, [np.stack([NEAR, FAR]), np.stack([FAR + 1, NEAR + 1])]),
    "gaussian_nll": (nn.gaussian_nll, [NEAR, FAR, chances(1, 5, 4)]),
    "poisson_nll": (nn.poisson_nll, [NEAR, COUNTS + 0 * NEAR]),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", MAPPED)
def test_each_dtype_is_kept_and_computed_in_float32_at_least(name: str, dtype: str) -> None:
    loss, values = MAPPED[name]
    typed = [gf.asarray(x, dtype=dtype if x.dtype == float else None) for x in values]
    got = loss(*typed)
    assert got.dtype.name == dtype
    exact = loss(*[gf.astype(x, gf.float64) if x.dtype.is_floating else x for x in typed])
    precision = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(float(got), float(exact), rtol=precision)


@pytest.mark.parametrize("name", MAPPED)
def test_losses_are_mapped(name: str) -> None:
    loss, values = MAPPED[name]
    mapped = gf.vmap(loss)(*[gf.asarray(x) for x in values])
    one_by_one = [float(loss(*[gf.asarray(x[i]) for x in values])) for i in range(len(values[0]))]
    np.testing.assert_allclose(mapped.numpy(), one_by_one, rtol=1e-12)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("name", MAPPED)
def test_losses_of_a_symbolic_batch(name: str) -> None:
    """The sizes, 0 among them, are known in the run only."""
    loss, values = MAPPED[name]
    ndim, last = values[0].ndim, values[0].shape[-1:]
    with gf.Graph() as g:
        feeds = []
        for i, x in enumerate(values):
            shape = ("a", "b")[: ndim - 1] + (last if x.ndim == ndim else ())
            feeds.append(gf.placeholder(shape, str(x.dtype), name=f"x{i}"))
        total = loss(*feeds, reduction="sum")
        slopes = gf.grad(total, feeds[0])
    with gf.Session(g) as session:
        given = dict(zip(feeds, values, strict=True))
        got, gradient = session.run([total, slopes], given)
        expected = loss(*[gf.asarray(x) for x in values], reduction="sum")
        np.testing.assert_allclose(got, float(expected), rtol=1e-12)
        assert np.isfinite(gradient).all()
        none = {x: value[:0] for x, value in given.items()}
        assert session.run(total, none) == 0


def test_the_losses_are_those_of_pytorch() -> None:
    torch: Any = pytest.importorskip("torch")
    F, T = torch.nn.functional, torch.tensor
    anchor, var, counts = floats(5, 5, 4), chances(6, 5, 1), COUNTS + 0 * NEAR
    theirs = {
        "multi_margin": F.multi_margin_loss(T(NEAR), T(CLASSES), weight=T(WEIGHT)),
        "multi_margin of squares": F.multi_margin_loss(T(NEAR), T(CLASSES), p=2, margin=0.7),
        "margin_ranking": F.margin_ranking_loss(T(NEAR), T(FAR), T(SIGNS), margin=0.3),
        "triplet_margin": F.triplet_margin_loss(T(anchor), T(NEAR), T(FAR)),
        "triplet_margin with swap": F.triplet_margin_loss(
            T(anchor), T(NEAR), T(FAR), margin=3.0, p=1, swap=True
        ),
        "cosine_embedding": F.cosine_embedding_loss(T(NEAR), T(FAR), T(ROWS), margin=0.1),
        "gaussian_nll": F.gaussian_nll_loss(T(NEAR), T(FAR), T(var), full=True),
        "poisson_nll": F.poisson_nll_loss(T(NEAR), T(counts)),
        "poisson_nll of rates": F.poisson_nll_loss(
            T(chances(7, 5, 4)), T(counts), log_input=False, full=True
        ),
    }
    for name, expected in theirs.items():
        loss, values = OURS[name]
        np.testing.assert_allclose(loss(*values).numpy(), expected.numpy(), rtol=1e-9, err_msg=name)


def test_the_losses_are_those_of_their_formulas() -> None:
    p = 1 / (1 + np.exp(-3 * NEAR))
    right = np.where(SIGNS > 0, p, 1 - p)
    expected = -np.where(SIGNS > 0, 0.25, 0.75) * (1 - right) ** 2 * np.log(right)
    np.testing.assert_allclose(nn.binary_focal(3 * NEAR, SIGNS > 0).numpy(), expected.mean())
    q = np.exp(NEAR) / np.exp(NEAR).sum(1, keepdims=True)
    q = q[np.arange(5), CLASSES]
    each = -WEIGHT[CLASSES] * (1 - q) ** 1.5 * np.log(q)
    got = nn.focal(NEAR, CLASSES, weight=WEIGHT, gamma=1.5)
    np.testing.assert_allclose(got.numpy(), each.sum() / WEIGHT[CLASSES].sum())
    over = np.maximum(0, 1 - SIGNS * NEAR)
    np.testing.assert_allclose(nn.hinge(NEAR, SIGNS).numpy(), over.mean())
    cosines = gf.nn.cosine_similarity(NEAR[:, None], FAR[None]).numpy() / 0.2
    logs = np.log(np.exp(cosines).sum(1)) - np.diag(cosines)
    np.testing.assert_allclose(nn.info_nce(NEAR, FAR, temperature=0.2).numpy(), logs.mean())


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("axis", [0, 1])
def test_focal_without_gamma_is_the_cross_entropy(axis: int, weight: np.ndarray | None) -> None:
    x, target = (NEAR, CLASSES) if axis else (NEAR.T, CLASSES)
    options: Any = {"axis": axis, "weight": weight, "ignore_index": 1}
    same = nn.cross_entropy(x, target, **options)
    np.testing.assert_array_equal(nn.focal(x, target, gamma=0, **options).numpy(), same.numpy())
    sharp = nn.focal(x, target, reduction="none", **options).numpy()
    assert (sharp == 0).tolist() == (CLASSES == 1).tolist()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_gradients_are_finite_where_all_is_right_or_wrong(gamma: float) -> None:
    x = gf.asarray([[1e4, -1e4], [-1e4, 1e4], [0.0, 0.0]])
    for loss in (
        nn.focal(x, [0, 0, 0], gamma=gamma),
        nn.binary_focal(x, [[1, 0], [1, 0], [1, 0]], gamma=gamma),
    ):
        assert np.isfinite(float(loss))
        assert np.isfinite(gf.grad(loss, x).numpy()).all()


def test_binary_focal_without_gamma_is_the_cross_entropy() -> None:
    t = chances(3, 5, 4)
    got = nn.binary_focal(NEAR, t, gamma=0, alpha=None)
    np.testing.assert_array_equal(got.numpy(), nn.bce_with_logits(NEAR, t).numpy())


def test_dice_of_masks() -> None:
    mask = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert float(nn.dice(mask, mask)) == 0
    assert nn.dice(mask, mask, axis=1, reduction="none").numpy().tolist() == [0, 0]
    assert float(nn.dice(mask, 1 - mask)) == pytest.approx(1, abs=1e-6)
    halves = nn.dice(mask, np.ones((2, 3)), axis=0, reduction="none")
    np.testing.assert_allclose(halves.numpy(), [1 / 3, 1 / 3, 1], atol=1e-6)


def test_gaussian_variances_below_eps_are_raised() -> None:
    var = gf.asarray([1e-9, 1.0])
    loss = nn.gaussian_nll([0.0, 0.0], [0.0, 1.0], var, eps=1e-3, reduction="none")
    np.testing.assert_allclose(loss.numpy(), [0.5 * np.log(1e-3), 0.5], rtol=1e-6)
    np.testing.assert_allclose(gf.grad(gf.sum(loss), var).numpy(), [500, 0], rtol=1e-6)


def test_targets_of_signs() -> None:
    x = [0.5, -2.0]
    assert float(nn.hinge(x, [True, False])) == float(nn.hinge(x, [1, -1])) == 0.25
    with pytest.warns(UserWarning, match="hinge: its target has other values than -1 and 1: pass"):
        nn.hinge(x, [1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gf.Graph():
            y = gf.placeholder((2,), name="y")
            nn.hinge(y, y)


def test_probabilities_for_scores_are_warned_of() -> None:
    with gf.Graph():
        x = gf.placeholder((3, 4), name="x")
        y = gf.placeholder((3,), gf.int64, name="y")
        layer = nn.Linear(4, 4)
        with pytest.warns(UserWarning, match="focal: its input is the result of a softmax"):
            nn.focal(gf.softmax(layer(x)), y)
        with pytest.warns(UserWarning, match="binary_focal: its input is the result of a sigmoid"):
            nn.binary_focal(gf.sigmoid(layer(x)), x)
        with pytest.warns(UserWarning, match=r"dice: its input is no probability, .*: pass gf.sig"):
            nn.dice(layer(x), x)


X, Y = np.ones((3, 4)), np.ones(3)
MISTAKES: list[tuple[Callable[[], Any], type[GraphfwError], str, str]] = [
    (lambda: nn.hinge(X, Y), ShapeError, "hinge: the shapes differ: [3, 4] and [3]", "they are"),
    (lambda: nn.hinge(X, X, power=3), ArgumentError, "hinge: power=3 must be 1 or 2", "use power"),
    (
        lambda: nn.hinge(X, X, weight=np.ones(3)),
        ShapeError,
        "hinge: shapes don't broadcast",
        "",
    ),
    (lambda: nn.binary_focal(X, X, alpha=2), ArgumentError, "alpha=2 must be between 0 and", "use"),
    (lambda: nn.binary_focal(X, X, gamma=-1), ArgumentError, "gamma=-1 must not be nega", "use"),
    (lambda: nn.focal(X, Y), DTypeError, "focal: target class indices must be integers", "conv"),
    (lambda: nn.focal(X, CLASSES), ShapeError, "must have shape [3], not [5]", "give one class"),
    (lambda: nn.focal(X, CLASSES[:3], gamma=-2), ArgumentError, "gamma=-2 must not be", "use"),
    (lambda: nn.dice(X, Y), ShapeError, "dice: the shapes differ: [3, 4] and [3]", "they"),
    (lambda: nn.dice(X, X, axis=2), AxisError, "axis 2 is out of range", "use"),
    (lambda: nn.dice(X, X, eps=0), ArgumentError, "dice: eps=0 must be positive", "use eps=1e-6"),
    (lambda: nn.multi_margin(X, CLASSES[:3], power=0), ArgumentError, "power=0 must be 1 or", "u"),
    (lambda: nn.multi_margin(X, CLASSES), ShapeError, "must have shape [3], not [5]", "give one"),
    (lambda: nn.margin_ranking(X, X, Y), ShapeError, "differ: [3, 4] and [3, 4] and [3]", "they"),
    (lambda: nn.triplet_margin(X, X, Y), ShapeError, "differ: [3, 4] and [3, 4] and [3]", "they"),
    (lambda: nn.triplet_margin(X, X, X, margin=0), ArgumentError, "margin=0 must be posit", "use"),
    (lambda: nn.triplet_margin(X, X, X, axis=2), AxisError, "triplet_margin: axis 2 is out", "use"),
    (
        lambda: nn.cosine_embedding(X, X, X),
        ShapeError,
        "cosine_embedding: for vectors of shape [3, 4] along axis -1, target must have shape [3], "
        "not [3, 4]",
        "give one sign",
    ),
    (lambda: nn.cosine_embedding(X, X, Y, margin=2), ArgumentError, "between -1 and 1", "use"),
    (lambda: nn.info_nce(Y, Y), ShapeError, "info_nce: needs a batch of vectors, not", "pass a"),
    (lambda: nn.info_nce(X, X, temperature=0), ArgumentError, "temperature=0 must be posi", "use"),
    (
        lambda: nn.info_nce(X, X, temperature=Y),
        ShapeError,
        "info_nce: temperature must be one number, not of shape [3]",
        "reshape it",
    ),
    (
        lambda: nn.focal(X, CLASSES[:3], ignore_index=None),
        ArgumentError,
        "focal: ignore_index=None is no int",
        "use ignore_index=-100",
    ),
    (lambda: nn.gaussian_nll(X, X, X, eps=0), ArgumentError, "eps=0 must be positive", "use eps"),
    (
        lambda: nn.gaussian_nll(X[:1], X[:1], X),
        ShapeError,
        "gaussian_nll: var's shape [3, 4] does not broadcast to [1, 4]",
        "each of its dims",
    ),
    (lambda: nn.poisson_nll(X, Y), ShapeError, "poisson_nll: the shapes differ", "they are"),
    (lambda: nn.poisson_nll(X, X, eps=-1), ArgumentError, "eps=-1 must not be negative", "use"),
    (lambda: nn.poisson_nll(X + 1j, X), DTypeError, "poisson_nll: wants floating-point", "take"),
    (lambda: nn.hinge(X, X, reduction="avg"), ArgumentError, "reduction='avg' is none of", "use"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "text", "fix"), MISTAKES)
def test_mistakes(make: Any, error: type[GraphfwError], text: str, fix: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert text in caught.value.summary
    assert caught.value.fix.startswith(fix)


def test_classes_that_do_not_exist_are_errors_of_the_run() -> None:
    for loss in (nn.focal, nn.multi_margin):
        with pytest.raises(gf.ExecutionError, match=r"class index 4 is out of range: there are 4"):
            loss(gf.asarray(X), gf.asarray([0, 1, 4])).numpy()
