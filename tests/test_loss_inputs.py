"""Losses that are given probabilities for scores, or scores for probabilities, in many ways."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from tests.test_loss_warnings import rows, target
from tests.test_loss_warnings import warned as warned_there


def warned(make):
    """Return the warnings of a function that describes a loss."""
    return warned_there(make, __file__)


def written_out(x):
    """Compute a softmax whose exponentials are computed twice."""
    total = gf.sum(gf.exp(x - gf.max(x, axis=1)[:, None]), axis=1)
    return gf.exp(x - gf.max(x, axis=1)[:, None]) / (total + 1e-9)[:, None]


def sigmoid_by_hand(x):
    return 1 / (1 + gf.exp(-x))


WAYS = {
    "plain": lambda make, x: make(x),
    "clip": lambda make, x: gf.clip(make(x), 1e-7, 1.0),
    "maximum": lambda make, x: gf.maximum(make(x), 1e-7),
    "where": lambda make, x: gf.where(x > 0, make(x), 0.0),
    "masked": lambda make, x: gf.where(x > 0, -gf.inf, make(x)),
    "shifted": lambda make, x: make(x) + 1e-9,
    "rows": lambda make, x: make(x)[gf.asarray([0, 0, 1])],
    "concat": lambda make, x: gf.concat([x[:, :1], make(x)[:, 1:]], axis=1),
    "cast": lambda make, x: gf.astype(gf.astype(make(x), gf.float16), gf.float32),
    "checkpoint": lambda make, x: gf.checkpoint(make)(x),
    "into checkpoint": lambda make, x: gf.checkpoint(lambda y: y + 0.0)(make(x)),
    "cond": lambda make, x: gf.cond(x[0, 0] > 0, lambda: x, lambda: make(x)),
    "scan": lambda make, x: gf.scan(lambda c, y: (c, make(y)), 0.0, x[None])[1][0],
    "loop": lambda make, x: gf.while_loop(lambda c: gf.sum(c) > 3.0, make, x),
    "vmap": lambda make, x: gf.vmap(lambda y: make(y[None])[0])(x),
    "function": lambda make, x: gf.function(make)(x),
}
KINDS = {
    "softmax": (gf.softmax, nn.cross_entropy, "softmax"),
    "softmax for a sigmoid": (gf.softmax, nn.bce_with_logits, "softmax"),
    "written out": (written_out, nn.cross_entropy, "softmax"),
    "exp": (lambda x: gf.exp(gf.log_softmax(x)), nn.cross_entropy, "softmax"),
    "sigmoid": (gf.sigmoid, nn.bce_with_logits, "sigmoid"),
    "sigmoid for a softmax": (gf.sigmoid, nn.cross_entropy, "sigmoid"),
    "by hand": (sigmoid_by_hand, nn.bce_with_logits, "sigmoid"),
    "kl_div": (gf.softmax, nn.kl_div, "softmax"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_probabilities_are_seen_through_what_hardly_changes_them(way, kind):
    make, loss, name = KINDS[kind]

    def describe():
        made = WAYS[way](make, nn.Linear(4, 3)(gf.placeholder((3, 4), name="x")))
        loss(made, gf.full((3, 3), 0.5))

    (text,) = warned(describe)
    assert f"its input is the result of a {name}, made at test_loss_inputs.py:" in text


SCORES = {
    "where": lambda x, s: gf.where(x > 0, s, 0.0),
    "choice": lambda x, s: gf.where(x > 0, s, gf.sigmoid(x)),
    "scaled": lambda x, s: s / 2.0,
    "shifted": lambda x, s: 1.0 - s,
    "residual": lambda x, s: s + x,
    "relu": lambda x, s: gf.relu(s),
    "dropout": lambda x, s: gf.dropout(s, 0.3),
    "mean": lambda x, s: gf.mean(gf.stack([s, s]), axis=0),
    "cast": lambda x, s: gf.astype(gf.reshape(s, (-1, 3)), gf.float64),
    "checkpoint": lambda x, s: gf.checkpoint(lambda y: y * 2.0)(s),
    "log": lambda x, s: gf.log_softmax(s),
}


@pytest.mark.parametrize("way", SCORES)
def test_scores_for_probabilities_are_seen_through_steps(way):
    def describe():
        x = rows(3)
        nn.bce(SCORES[way](x, nn.Linear(3, 3)(x)), gf.full_like(x, 0.5))

    (text,) = warned(describe)
    assert ", layer linear computes: pass scores to gf.nn.bce_with_logits" in text


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", [nn.nll, nn.kl_div])
def test_scores_for_logarithms(loss, bias):
    def describe():
        goal = target(gf.int64) if loss is nn.nll else target(gf.float32, 3)
        loss(nn.Linear(4, 3, bias)(rows(4)), goal)

    (text,) = warned(describe)
    assert "its input is no logarithm of probabilities, but what test_loss_inputs.py:" in text
    assert ", layer linear computes: pass" in text


@pytest.mark.parametrize("loss", [nn.bce, nn.bce_with_logits])
def test_targets_that_are_no_probabilities(loss):
    (text,) = warned(lambda: loss([0.5, 0.5], np.array([-1, 1])))
    assert "its target is outside of [0, 1]: from -1 to 1: the two classes are 0 and 1" in text


def test_what_is_right_is_not_warned_of():
    def right():
        x, y = nn.Linear(4, 3)(rows(4)), nn.Linear(4, 3)(gf.placeholder(("b", 4), name="z"))
        labels, chances = target(gf.int64), rows(3, name="p")
        nn.cross_entropy(gf.exp(x) / gf.sum(gf.exp(y), axis=-1, keepdims=True), labels)
        nn.cross_entropy(gf.log(gf.softmax(x) + 1e-9), labels)
        nn.cross_entropy(gf.softmax(x) * gf.exp(y), labels)
        nn.cross_entropy(gf.softmax(x @ y.mT) @ y, labels)
        nn.cross_entropy(nn.Linear(3, 3)(gf.sigmoid(x)), labels)
        nn.nll(x - gf.log(gf.sum(gf.exp(x), axis=-1, keepdims=True)), labels)
        scores = rows(4, name="u") @ gf.Variable(np.ones((4, 3)), name="w")
        nn.nll(scores - gf.logsumexp(scores, axis=-1, keepdims=True), labels)
        nn.bce(gf.hardsigmoid(x), chances)
        nn.bce(gf.where(x < 0, 0.0, gf.where(x > 1, 1.0, x)), chances)
        nn.bce(gf.minimum(gf.maximum(x, 0.0), 1.0), chances)
        nn.bce(0.5 + 0.5 * gf.tanh(x), chances)
        nn.bce(1.0 - gf.exp(-(x**2)), chances)
        nn.bce(gf.softmax(x) @ gf.softmax(gf.Variable(np.ones((3, 3)), name="mix")), chances)
        nn.bce(gf.softmax(x) @ np.full((3, 3), 1 / 3, np.float32), chances)
        unit = gf.normalize(x)
        nn.bce(0.5 * (1 + unit @ unit.mT), gf.full_like(unit @ unit.mT, 0.5))
        nn.bce_with_logits(x, gf.asarray([[0.0, 0.5, 1.0]]) + 0 * x)

    assert warned(right) == []
