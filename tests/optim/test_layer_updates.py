"""Statistics of layers follow batches without `minimize`, and runs that forget them warn."""

import warnings

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn


class Setting:
    """A model with statistics, its loss, and accumulators of its gradients."""

    def __init__(self):
        self.x = gf.placeholder(("batch", 4), name="x")
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm(8), nn.Linear(8, 2))
        self.loss = gf.mean(self.net(self.x) ** 2)
        self.parameters = self.net.parameters()
        self.gradients = gf.grad(self.loss, self.parameters)
        self.sums = [
            gf.Variable(nn.init.zeros, shape=p.shape, trainable=False) for p in self.parameters
        ]
        added = zip(self.sums, self.gradients, strict=True)
        self.adding = gf.group(*[gf.update(s, s + d) for s, d in added])

    def step(self, optimizer, **more):
        return optimizer.apply_gradients(zip(self.sums, self.parameters, strict=True), **more)


@pytest.fixture
def graph():
    with gf.Graph() as g:
        yield g


@pytest.fixture
def setting(graph):
    return Setting()


def compiled(graph, *fetches):
    """Return the warnings of compiling a run."""
    feeds = [t for t in graph.placeholders if t.name == "x"]
    with warnings.catch_warnings(record=True) as caught, gf.Session(graph) as session:
        warnings.simplefilter("always")
        session.compile(list(fetches), feeds)
    return [(w.filename, str(w.message)) for w in caught]


def test_statistics_follow_each_of_several_batches(graph, setting, rng):
    moves = gf.optim.layer_updates(setting.loss)
    accumulate = gf.group(setting.adding, moves)
    assert not compiled(graph, accumulate)
    batches = rng.normal(size=(3, 16, 4)).astype(np.float32)
    norm = setting.net[1]
    with gf.Session(graph) as session:
        w, b = session[setting.net[0].weight], session[setting.net[0].bias]
        mean = np.zeros(8, np.float32)
        for batch in batches:
            session.run(accumulate, {setting.x: batch})
            mean += 0.1 * ((batch @ w + b).mean(axis=0) - mean)
        np.testing.assert_allclose(session[norm.running_mean], mean, rtol=1e-5, atol=1e-6)


def test_forgotten_statistics_warn_where_the_run_is_compiled(graph, setting):
    ((file, text),) = compiled(graph, setting.adding)
    assert file == __file__
    assert text.startswith(
        "this run trains layers whose statistics no step moves: sequential.1.running_mean, "
        "sequential.1.running_var. Pass the loss, apply_gradients(pairs, loss=loss); or, where"
    )
    assert "fetch gf.optim.layer_updates(loss) with each of them" in text


def test_applied_gradients_of_the_batch_itself_warn(graph, setting):
    optimizer = gf.optim.SGD(0.1)
    pairs = list(zip(setting.gradients, setting.parameters, strict=True))
    assert len(compiled(graph, optimizer.apply_gradients(pairs))) == 1
    assert not compiled(graph, optimizer.apply_gradients(pairs, loss=setting.loss))


def test_gradients_that_are_fetched_and_fed_warn(graph, setting):
    fed = [gf.placeholder(p.shape, name=f"d{i}") for i, p in enumerate(setting.parameters)]
    step = gf.optim.SGD(0.1).apply_gradients(zip(fed, setting.parameters, strict=True))
    with gf.Session(graph) as session:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = session.run(setting.gradients, {setting.x: np.ones((3, 4), np.float32)})
        with pytest.warns(UserWarning, match="this run trains layers whose statistics no step mov"):
            session.run(step, dict(zip(fed, found, strict=True)))
    gf.optim.layer_updates(setting.loss)  # for the runs that compute the gradients
    with gf.Session(graph) as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        session.run(step, dict(zip(fed, found, strict=True)))


@pytest.mark.parametrize("norm", [lambda: nn.BatchNorm(4, momentum=None), lambda: nn.BatchNorm(4)])
def test_all_variables_are_named(graph, norm):
    x = gf.placeholder(("batch", 4), name="x")
    layer = norm()
    (d,) = gf.grad(gf.sum(layer(x) ** 2), [layer.weight])
    ((_, text),) = compiled(graph, gf.update(layer.weight, layer.weight - d))
    assert all(v.name in text for v in layer.buffers())


def test_instance_norm_warns(graph):
    x = gf.placeholder(("batch", 4, 5), name="x")
    layer = nn.InstanceNorm1d(4, affine=True, track_running_stats=True)
    (d,) = gf.grad(gf.sum(layer(x) ** 2), [layer.weight])
    assert len(compiled(graph, gf.update(layer.weight, layer.weight - d))) == 1


def test_what_moves_them_or_trains_nothing_does_not_warn(graph, setting):
    assert not compiled(graph, setting.gradients, setting.loss)  # nothing is committed
    forward = gf.Variable(0.0, name="ema", trainable=False)
    assert not compiled(graph, gf.update(forward, setting.loss))  # no gradient
    evaluated = gf.mean(setting.net(setting.x, training=False) ** 2)
    (d,) = gf.grad(evaluated, [setting.net[0].bias])
    assert not compiled(graph, gf.update(setting.net[0].bias, d))
    # The last step passes the loss: the statistics follow one of the batches.
    setting.step(gf.optim.SGD(0.1), loss=setting.loss)
    assert not compiled(graph, setting.adding)


def test_a_gradient_in_a_loop(graph):
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm(3))
    x = gf.placeholder((3, 8, 4), name="x")
    weight = net[0].weight

    def body(total, batch):
        (d,) = gf.grad(gf.mean(net(batch) ** 2), [weight])
        return total + d, None

    total, _ = gf.scan(body, gf.zeros(weight.shape), x)
    ((_, text),) = compiled(graph, gf.update(weight, weight - total))
    assert "running_mean" in text

    def moving(total, batch):
        loss = gf.mean(net(batch) ** 2)
        gf.optim.layer_updates(loss)
        (d,) = gf.grad(loss, [weight])
        return total + d, None

    total, _ = gf.scan(moving, gf.zeros(weight.shape), x)
    assert not compiled(graph, gf.update(weight, weight - total))


def test_functions_warn():
    @gf.function
    def step(x):
        net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm(3))
        loss = gf.mean(net(x) ** 2)
        pairs = zip(gf.grad(loss, net.parameters()), net.parameters(), strict=True)
        gf.optim.SGD(0.1).apply_gradients(pairs)
        return loss

    @gf.function
    def whole(x):
        loss = gf.mean(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm(3))(x) ** 2)
        gf.optim.SGD(0.1).minimize(loss)
        return loss

    x = np.ones((5, 4), np.float32)
    with pytest.warns(UserWarning, match=r"no step moves: sequential\.1\.running_mean"):
        step(x)
    whole(x)


def test_without_such_layers_nothing_changes(graph):
    x = gf.placeholder(("batch", 4), name="x")
    moves = gf.optim.layer_updates(gf.sum(nn.Linear(4, 2)(x)))
    assert moves.pairs == ()
    with gf.Session(graph) as session:
        assert session.run(moves) is None


def test_layer_updates_of_something_else(setting):
    with pytest.raises(gf.ArgumentError, match="the loss is a float, no tensor"):
        gf.optim.layer_updates(1.0)
    with gf.Graph(), pytest.raises(gf.GraphError, match="belongs to another graph") as caught:
        gf.optim.layer_updates(setting.loss)
    assert caught.value.fix == "call it inside `with` of the loss's graph"
