"""Warnings of losses that compute something else than was meant, each with what to write."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn


def warned(make, file=__file__):
    """Return the warnings of a function that describes a loss; each is at a line of a file."""
    with warnings.catch_warnings(record=True) as caught, gf.Graph():
        warnings.simplefilter("always")
        make()
    assert all(w.category is UserWarning and w.filename == file for w in caught)
    return [str(w.message) for w in caught]


def rows(*sizes, dtype=gf.float32, name="x"):
    return gf.placeholder(("b", *sizes), dtype, name=name)


def target(dtype=gf.float32, *sizes):
    return rows(*sizes, dtype=dtype, name="y")


def by_hand(x):
    exponentials = gf.exp(x)
    return exponentials / gf.sum(exponentials, axis=-1, keepdims=True)


@pytest.mark.parametrize("softmax", [gf.softmax, by_hand, lambda x: gf.softmax(x)[:, :3]])
def test_a_softmax_below_a_loss_of_scores(softmax):
    def probabilities():
        return softmax(nn.Linear(4, 3)(rows(4)))

    (text,) = warned(lambda: nn.cross_entropy(probabilities(), target(gf.int64)))
    assert "cross_entropy: its input is the result of a softmax, made at test_loss_warn" in text
    assert "pass the scores themselves, as the loss has its own softmax" in text
    (text,) = warned(lambda: nn.nll(probabilities(), target(gf.int64)))
    assert "pass gf.log_softmax(scores), or scores to gf.nn.cross_entropy" in text
    (text,) = warned(lambda: nn.kl_div(probabilities(), target(gf.float32, 3)))
    assert "pass logarithms: gf.log_softmax(scores)" in text


def test_a_sigmoid_below_a_loss_of_scores():
    def loss():
        return nn.bce_with_logits(gf.sigmoid(nn.Linear(4, 1)(rows(4)))[:, 0], target())

    (text,) = warned(loss)
    assert "bce_with_logits: its input is the result of a sigmoid, made at test_loss_w" in text
    assert "pass the scores themselves, or probabilities to gf.nn.bce" in text


@pytest.mark.parametrize("bias", [False, True])
def test_scores_for_probabilities(bias):
    def loss():
        return nn.bce(gf.squeeze(nn.Linear(4, 1, bias)(rows(4)), axis=-1), target())

    (text,) = warned(loss)
    assert "bce: its input is no probability, but what test_loss_warnings.py:" in text
    assert ", layer linear computes: pass scores to gf.nn.bce_with_logits, or gf.sig" in text


@pytest.mark.parametrize("values", [[3.0, 0.5], [0.5, -0.1], [np.nan, 0.5]])
def test_values_outside_of_probabilities(values):
    (text,) = warned(lambda: nn.bce(values, [1.0, 0.0]))
    assert "bce: its input is outside of [0, 1]: from " in text


def test_what_is_right_is_not_warned_of():
    def right():
        scores = nn.Linear(4, 3)(rows(4))
        labels, chances = target(gf.int64), rows(3, name="p")
        nn.cross_entropy(scores, labels)
        nn.cross_entropy(scores, gf.softmax(chances))  # a teacher's probabilities
        nn.nll(gf.log_softmax(scores), labels)
        nn.kl_div(gf.log_softmax(scores), chances)
        nn.bce(gf.sigmoid(scores), chances)
        nn.bce(gf.softmax(scores), chances)
        nn.bce(gf.clip(scores, 0.0, 1.0), chances)
        nn.bce(chances, chances)  # what is fed is not known
        nn.bce([0.0, 1.0], [1.0, 1.0])
        nn.bce_with_logits(scores, chances)
        nn.bce_with_logits(gf.sigmoid(scores) @ gf.ones((3, 3)), chances)
        nn.cross_entropy(scores / gf.sum(scores, axis=-1, keepdims=True), labels)

    assert warned(right) == []


def step(loss):
    return gf.optim.SGD(0.1).minimize(loss)


def test_a_loss_of_each_element_with_each_other():
    def loss():
        p = nn.Linear(4, 1)(rows(4))
        step(gf.mean((p - target()) ** 2))

    (text,) = warned(loss)
    assert "the loss depends on subtract of [b, 1] and [b], which is [b, b]: each" in text
    assert "Drop the dim of 1, with gf.squeeze(x, axis=-1), or write y[None, :]" in text


def test_other_ways_to_compare_each_with_each():
    def swapped():
        step(gf.mean(gf.abs(target() - nn.Linear(4, 1)(rows(4)))))

    def unnamed():
        x = gf.placeholder((None, 4), name="x")
        step(gf.mean(nn.Linear(4, 1)(x) * x[:, 0]))

    assert len(warned(swapped)) == len(warned(unnamed)) == 1


def test_pairs_that_are_meant_are_not_warned_of():
    def pairs():
        x = nn.Linear(4, 1)(rows(4))
        assert (x - target()).ndim == 2  # which reaches no loss
        step(gf.mean((x - x[None, :, 0]) ** 2))  # written out

    def masked():
        x = nn.Linear(4, 4)(gf.placeholder(("b", "t", 4), name="x"))
        at = gf.arange(x.shape[1])
        scores = gf.where(at[:, None] >= at, x @ x.mT, -1e9)  # of positions, not of what is trained
        step(gf.mean(gf.softmax(scores) @ x))

    def columns():
        x = nn.Linear(4, 4)(rows(4))
        step(gf.mean(x - gf.mean(x, axis=1, keepdims=True) + gf.ones(4)))

    def vectors():
        x = nn.Linear(4, 1)(rows(4))
        step(gf.mean((x - target(gf.float32, 1)) ** 2))

    for make in (pairs, masked, columns, vectors):
        assert warned(make) == []


BODIES = {
    "checkpoint": lambda f, p: gf.checkpoint(f)(p),
    "scan": lambda f, p: gf.scan(lambda c, q: (c + f(q), c), 0.0, gf.stack([p, p]))[0],
    "cond": lambda f, p: gf.cond(gf.sum(p) > 0, lambda: f(p), lambda: 0.0 * gf.sum(p)),
    "fori_loop": lambda f, p: gf.fori_loop(0, 2, lambda i, c: c + f(p), 0.0),
    "nested": lambda f, p: gf.checkpoint(
        lambda q: gf.scan(lambda c, r: (c + f(r), c), 0.0, gf.stack([q, q]))[0]
    )(p),
    "vmap": lambda f, p: gf.mean(gf.vmap(lambda k: f(p * k))(gf.ones(3))),
}


@pytest.mark.parametrize("within", BODIES)
def test_losses_within_bodies_are_looked_into(within):
    def loss():
        p, y = nn.Linear(4, 1)(rows(4)), target()
        step(BODIES[within](lambda q: gf.mean((q - y) ** 2), p))

    def masked():
        p, y = nn.Linear(4, 1)(rows(4)), target()
        step(BODIES[within](lambda q: gf.mean(q * gf.sum(y[:, None] - y)), p))

    (text, *more) = warned(loss)
    assert "each element with each other" in text
    assert within == "nested" or not more
    assert warned(masked) == []


def test_steps_along_gradients_are_looked_into():
    def loss():
        layer = nn.Linear(4, 1)
        return gf.mean((layer(rows(4)) - target()) ** 2), layer.parameters()

    def by_loss():
        y, parameters = loss()
        pairs = zip(gf.grad(y, parameters), parameters, strict=True)
        gf.optim.SGD(0.1).apply_gradients(pairs, loss=y)

    def by_gradients():
        y, parameters = loss()
        clipped, _ = gf.optim.clip_by_global_norm(gf.grad(y, parameters), 1.0)
        gf.optim.SGD(0.1).apply_gradients(zip(clipped, parameters, strict=True))

    for make in (by_loss, by_gradients):
        (text,) = warned(make)
        assert "each element with each other" in text


@pytest.mark.parametrize("loss", [nn.cross_entropy, nn.nll])
def test_classes_that_may_be_at_either_axis(loss):
    def images(**axis):
        loss(gf.log_softmax(rows(5, 5, 5)), target(gf.int64, 5, 5), **axis)

    (text,) = warned(images)
    assert "the target fits logits of shape [b, 5, 5, 5] with classes at axis 3, and at" in text
    assert text.endswith("axis 1, too, where PyTorch has them: say axis=1 or axis=3")
    assert warned(lambda: images(axis=1)) == warned(lambda: images(axis=-1)) == []

    def clear():
        loss(gf.log_softmax(rows(7, 5)), target(gf.int64, 7))
        pairs = gf.log_softmax(gf.placeholder(("b", "n", "n"), name="pairs"))
        loss(pairs, gf.placeholder(("b", "n"), gf.int64, name="which"))
        loss(gf.log_softmax(rows(1, 1, name="one")), rows(1, dtype=gf.int64, name="zero"))

    assert warned(clear) == []
