"""Steps that train what was called for evaluation warn, and no others do."""

import warnings

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn


def model():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm(8), nn.Dropout(0.5), nn.Linear(8, 2))


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


@pytest.fixture
def x():
    return gf.placeholder(("batch", 4), name="x")


def minimized(y, parameters=None, optimizer=None):
    """Return the warnings of a training step."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (optimizer or gf.optim.SGD(0.1)).minimize(gf.mean(y**2), parameters)
    return caught


def test_eval_before_the_loss_warns_at_the_user_s_lines(x):
    net = model()
    net.eval()(x)  # to look at
    y = net(x)
    (warning,) = minimized(y)
    assert warning.filename == __file__
    text = str(warning.message)
    assert text.startswith('the step trains "sequential" as it was called for evaluation at test_e')
    assert "were sequential.1 (BatchNorm), sequential.2 (Dropout). Call train() before" in text
    assert text.endswith("or write training=False in that call, if it is meant")


@pytest.mark.parametrize(
    "within",
    [
        lambda net, x: gf.checkpoint(lambda t: net(t))(x),
        lambda net, x: gf.cond(gf.sum(x) > 0, lambda: net(x), lambda: gf.zeros((x.shape[0], 2))),
        lambda net, x: gf.scan(lambda c, t: (c, net(t[None])), 0.0, x)[1],
        lambda net, x: gf.fori_loop(0, 2, lambda i, c: gf.checkpoint(net)(x) + c, net(x) * 0),
        lambda net, x: gf.vmap(lambda t: net(t[None]))(x),
    ],
    ids=["checkpoint", "cond", "scan", "nested", "vmap"],
)
def test_calls_within_bodies_are_found(within, x):
    net = model()
    inside = within(net.eval(), x)
    assert len(minimized(inside)) >= 1
    net.train()
    assert not minimized(net(x), optimizer=gf.optim.SGD(0.1, name="other"))


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm(4)),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)),
        lambda: nn.MultiHeadAttention(4, 2, dropout=0.1),
        lambda: nn.LSTM(4, 4, num_layers=2, dropout=0.1),
    ],
)
def test_layers_that_differ(layer):
    x = gf.placeholder(("batch", 3, 4) if "Seq" not in repr(layer()) else ("batch", 4), name="x")
    made = layer()
    with gf.training(False):
        y = made(x)
    assert len(minimized(y[0] if isinstance(y, tuple) else y)) == 1


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm(4, track_running_stats=False)),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()),
        lambda: nn.Linear(4, 4),
    ],
)
def test_layers_that_do_not_differ(layer, x):
    assert not minimized(layer().eval()(x))


def test_what_is_meant_or_not_trained_does_not_warn(x):
    net, head = model(), nn.Linear(2, 1)
    assert not minimized(net(x, training=False))
    # Evaluated beside the loss, and shared inputs.
    net.eval()(x)
    net.train()
    assert not minimized(net(x))
    # A body that is kept.
    assert not minimized(head(net.eval()(x)), head.parameters())
    # One layer of a model in training.
    net.train()
    net[1].eval()
    assert not minimized(net(x))


def test_other_steps(x):
    net = model().eval()
    y = net(x)
    scaled = gf.optim.LossScale(gf.optim.SGD(0.1))
    assert len(minimized(y, optimizer=scaled)) == 1
    loss = gf.mean(y)
    pairs = list(zip(gf.grad(loss, net.parameters()), net.parameters(), strict=True))
    with pytest.warns(UserWarning, match="called for evaluation"):
        gf.optim.SGD(0.1).apply_gradients(pairs, loss=loss)
    with pytest.warns(UserWarning, match="called for evaluation"):
        gf.optim.SGD(0.1).apply_gradients([(2 * d, v) for d, v in pairs])


def test_a_submodule_of_the_model_warns(x):
    class Net(nn.Module):
        def __init__(self):
            self.body, self.head = model(), nn.Linear(2, 1)

        def forward(self, x):
            return self.head(self.body(x))

    net = Net()
    net.body.eval()(x)
    (warning,) = minimized(net(x))
    assert 'trains "net.body"' in str(warning.message)
    assert not minimized(net(x), net.head.parameters())


def test_the_step_is_that_of_evaluation(graph, x):
    net = model().eval()
    loss = gf.mean(net(x, training=False) ** 2)
    step = gf.optim.SGD(0.1).minimize(loss)
    with gf.Session(graph) as session:
        before = session[net[1].running_mean]
        session.run(step, {x: np.ones((3, 4), np.float32)})
        np.testing.assert_array_equal(session[net[1].running_mean], before)
