"""Updates that a user's `forward` makes: in graphs they are part of the step that trains."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn

BATCH = np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)
MEAN = np.array([2.0, 4.0], np.float32)


class Centre(nn.Module):
    """Subtracts a running mean, which training moves half of the way to the batch's."""

    def __init__(self) -> None:
        self.mean = gf.Variable(np.zeros(2), trainable=False)

    def forward(self, x):
        if self.training:
            gf.update(self.mean, 0.5 * self.mean + 0.5 * gf.mean(x, axis=0))
        return x - self.mean


class Model(nn.Module):
    def __init__(self, centre=None) -> None:
        self.centre = centre or Centre()
        self.linear = nn.Linear(2, 1)

    def forward(self, x):
        return self.linear(self.centre(x))


@pytest.fixture
def graph():
    with gf.Graph() as g:
        yield g


@pytest.fixture
def x(graph):
    return gf.placeholder(("batch", 2), name="x")


def after(graph, variable, *fetches, runs=1):
    """Return a variable's contents after runs with the batch, which give no warnings."""
    with warnings.catch_warnings(), gf.Session(graph) as session:
        warnings.simplefilter("error")
        for _ in range(runs):
            session.run(list(fetches), {"x": BATCH})
        return session[variable]


def test_a_step_includes_them(graph, x):
    model = Model()
    loss = gf.mean(model(x) ** 2)
    step = gf.optim.SGD(0.1).minimize(loss)
    np.testing.assert_allclose(after(graph, model.centre.mean, step), MEAN / 2)
    np.testing.assert_allclose(after(graph, model.centre.mean, step, runs=3), MEAN * 7 / 8)
    np.testing.assert_array_equal(after(graph, model.centre.mean, loss), [0, 0])
    moves = gf.optim.layer_updates(loss)
    assert [v.name for v, _ in moves.pairs] == ["model.centre.mean"]
    np.testing.assert_allclose(after(graph, model.centre.mean, moves), MEAN / 2)


def test_gradients_computed_elsewhere(graph, x):
    model = Model()
    loss = gf.mean(model(x) ** 2)
    pairs = [*zip(gf.grad(loss, model.parameters()), model.parameters(), strict=True)]
    step = gf.optim.SGD(0.1).apply_gradients(pairs)
    with gf.Session(graph) as session, pytest.warns(UserWarning, match=r"no step moves: model\.ce"):
        session.run(step, {"x": BATCH})
    own = graph.updates[0]
    np.testing.assert_allclose(after(graph, model.centre.mean, step, own), MEAN / 2)
    whole = gf.optim.SGD(0.1).apply_gradients(pairs, loss=loss)
    np.testing.assert_allclose(after(graph, model.centre.mean, whole), MEAN / 2)


def test_several_calls_follow_one_another(graph, x):
    model = Model()
    loss = gf.mean(model(x) ** 2) + gf.mean(model(x + 1) ** 2)
    model(x + 100)  # which the loss does not depend on
    model(x, training=False)
    step = gf.optim.SGD(0.1).minimize(loss)
    np.testing.assert_allclose(after(graph, model.centre.mean, step), MEAN / 4 + (MEAN + 1) / 2)


def test_several_results_of_one_call_are_one_update(graph, x):
    class Two(Centre):
        def forward(self, x):
            y = super().forward(x)
            return {"y": y, "more": [y * 2]}

    layer, weight = Two(), gf.Variable([1.0, 1.0])
    layer_results = [layer(x), layer(x)]
    loss = sum(gf.mean(weight * (r["y"] + r["more"][0]) ** 2) for r in layer_results)
    step = gf.optim.SGD(0.1).minimize(loss)
    np.testing.assert_allclose(after(graph, layer.mean, step), MEAN * 3 / 4)
    again = gf.parse(str(graph))
    carriers = [tensor for _, tensor in again.carried]
    assert len(carriers) == len(graph.carried) == 4


def test_what_forward_returns_is_the_caller_s(graph, x):
    class Returning(Centre):
        def forward(self, x):
            return x - self.mean, gf.update(self.mean, gf.mean(x, axis=0))

    class Around(nn.Module):
        def __init__(self) -> None:
            self.inner, self.linear = Returning(), nn.Linear(2, 1)

        def forward(self, x):
            y, self.move = self.inner(x)
            return self.linear(y)

    layer, linear = Returning(), nn.Linear(2, 1)
    y, move = layer(x)
    step = gf.optim.SGD(0.1).minimize(gf.mean(linear(y) ** 2))
    np.testing.assert_array_equal(after(graph, layer.mean, step), [0, 0])
    np.testing.assert_array_equal(after(graph, layer.mean, step, move), MEAN)
    around = Around()
    step = gf.optim.SGD(0.1).minimize(gf.mean(around(x) ** 2))
    np.testing.assert_array_equal(after(graph, around.inner.mean, step), MEAN)
    np.testing.assert_array_equal(after(graph, around.inner.mean, step, around.move), MEAN)


def test_hooks_and_layers_without_a_result(graph, x):
    seen = gf.Variable(0, trainable=False)

    class Counter(nn.Module):
        def __init__(self) -> None:
            self.calls = gf.Variable(0, trainable=False)

        def forward(self):
            gf.update(self.calls, self.calls + 1)

    class Counted(nn.Module):
        def __init__(self) -> None:
            self.counter, self.linear = Counter(), nn.Linear(2, 1)

        def forward(self, x):
            self.counter()
            return self.linear(x)

    model = Counted()
    model.linear.register_forward_hook(lambda *_: gf.update(seen, seen + 1) and None)
    step = gf.optim.SGD(0.1).minimize(gf.mean(model(x) ** 2))
    assert after(graph, model.counter.calls, step, runs=2) == 2
    assert after(graph, seen, step, runs=2) == 2


@pytest.mark.parametrize("times", [1, 3])
def test_in_a_loop(graph, x, times):
    model = Model()
    loss = gf.scan(
        lambda carry, _: (carry + gf.mean(model(x) ** 2), None),
        gf.zeros(()),
        None,
        length=times,
    )[0]
    step = gf.optim.SGD(0.1).minimize(loss)
    expected = MEAN * (1 - 0.5**times)
    np.testing.assert_allclose(after(graph, model.centre.mean, step), expected)


def test_in_a_checkpoint_and_a_branch(graph, x):
    model, other = Model(), Model()
    loss = gf.mean(gf.checkpoint(model)(x) ** 2)
    loss += gf.cond(gf.sum(x) > 0, lambda: gf.mean(other(x) ** 2), lambda: gf.zeros(()))
    step = gf.optim.SGD(0.1).minimize(loss)
    np.testing.assert_allclose(after(graph, model.centre.mean, step), MEAN / 2)
    np.testing.assert_allclose(after(graph, other.centre.mean, step), MEAN / 2)


def test_functions_make_them_in_each_call():
    model, optimizer = Model(), gf.optim.SGD(0.1)
    predict = gf.function(lambda x: model(x))

    @gf.function
    def train(x):
        loss = gf.mean(model(x) ** 2)
        optimizer.minimize(loss)
        return loss

    mean = np.zeros(2, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call in (predict, train, model, train):
            call(BATCH)
            mean = (mean + MEAN) / 2
            np.testing.assert_allclose(model.centre.mean.numpy(), mean)
        model(BATCH, training=False)
    np.testing.assert_allclose(model.centre.mean.numpy(), mean)
