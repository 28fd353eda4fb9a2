"""MultiSteps: beside one large batch, and beside the definition of `optax.MultiSteps`."""

import copy
import pickle

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim
from graphfw.optim import multi_steps

K, STEPS = 4, 5


def regression(optimizer, layers=None, dtype="float64"):
    """Return a graph with a training step, its placeholder, and the model."""
    with gf.Graph() as g, gf.default_dtype(dtype):
        x = gf.placeholder(("batch", 3), dtype, name="x")
        net = gf.nn.Sequential(*(layers() if layers else [gf.nn.Linear(3, 2)]))
        loss = gf.mean((net(x) - gf.sum(x, axis=1, keepdims=True)) ** 2)
        train = optimizer.minimize(loss)
    return g, x, net, train, loss


def batches_of(rng, count=K * STEPS, dtype="float64"):
    return rng.normal(size=(count, 8, 3)).astype(dtype)


def history(made, batches):
    """Return the parameters after each batch."""
    g, x, net, train, _ = made
    found = []
    with gf.Session(g, seed=1) as session:
        for batch in batches:
            session.run(train, {x: batch})
            found.append([session[v] for v in net.parameters()])
    return found


OPTIMISERS = {
    "SGD": lambda: optim.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: optim.Adam(0.01),
    "decay": lambda: optim.AdamW(0.01, weight_decay=0.1),
    "clip": lambda: optim.SGD(0.1, clip_norm=0.5),
    "clip value": lambda: optim.Adam(0.1, clip_value=0.1),
    "schedule": lambda: optim.SGD(optim.schedules.cosine(0.2, 4)),
    "Lookahead": lambda: optim.Lookahead(optim.Adam(0.01), k=2),
    "EMA": lambda: optim.EMA(optim.Adam(0.01), 0.5),
    "Muon": lambda: optim.Muon(0.01),
    "Adafactor": lambda: optim.Adafactor(0.01),
}


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_it_is_the_step_of_the_large_batch(make, rng):
    batches = batches_of(rng)
    start = history(regression(optim.SGD(0.0)), batches[:1])[0]
    small = history(regression(optim.MultiSteps(make(), K)), batches)
    large = history(regression(make()), batches.reshape(STEPS, -1, 3))
    for number, got in enumerate(small, 1):
        expected = large[number // K - 1] if number >= K else start
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, 1e-9, 1e-12, err_msg=str(number))


def test_it_is_as_optax_defines(rng):
    """The mean of gradients so far, the inner update at the last of k, and zeros in between."""
    gradients = rng.normal(size=(K * STEPS, 3))
    with gf.Graph() as g:
        x = gf.placeholder((3,), "float64", name="x")
        w = gf.Variable(np.ones(3), name="w", dtype="float64")
        train = optim.MultiSteps(optim.SGD(0.1, momentum=0.9), K).minimize(gf.sum(w * x))
    p, mean, trace, mini = np.ones(3), np.zeros(3), np.zeros(3), 0
    with gf.Session(g) as session:
        for gradient in gradients:
            session.run(train, {x: gradient})
            mean += (gradient - mean) / (mini + 1)
            mini = (mini + 1) % K
            if mini == 0:
                trace = mean + 0.9 * trace
                p = p - 0.1 * trace
                mean = np.zeros(3)
            np.testing.assert_allclose(session[w], p, 1e-12)


def test_one_batch_a_step_is_the_optimiser(rng):
    batches = batches_of(rng)
    for a, b in zip(
        history(regression(optim.MultiSteps(optim.Adam(0.1), 1)), batches),
        history(regression(optim.Adam(0.1)), batches),
        strict=True,
    ):
        np.testing.assert_array_equal(
            np.concatenate([v.ravel() for v in a]), np.concatenate([v.ravel() for v in b])
        )


def test_statistics_follow_each_batch(rng):
    def layers():
        return [gf.nn.Linear(3, 4), gf.nn.BatchNorm(4), gf.nn.Linear(4, 2)]

    batches = batches_of(rng, K)
    g, x, net, train, loss = regression(optim.MultiSteps(optim.SGD(0.1), K), layers)
    with g:
        moves = optim.layer_updates(loss)
    with gf.Session(g, seed=1) as session, gf.Session(g, seed=1) as still:
        before = session[net[0].weight]
        for number, batch in enumerate(batches, 1):
            still.run(moves, {x: batch})
            session.run(train, {x: batch})
            for variable in net.buffers():
                np.testing.assert_allclose(session[variable], still[variable], 1e-12)
            assert (number == K) == (not np.array_equal(session[net[0].weight], before))


def test_schedules_and_counts_are_of_steps(rng):
    optimizer = optim.MultiSteps(optim.Adam(optim.schedules.linear(1.0, 4)), K)
    g, x, _, train, _ = regression(optimizer)
    with g:
        rate = optimizer.learning_rate()
    with gf.Session(g) as session:
        rates = [float(session.run([rate, train], {x: b})[0]) for b in batches_of(rng, 9)]
        assert (int(session["multi_steps.step"]), int(session["adam.step"])) == (9, 2)
    assert rates == [1.0] * 4 + [0.75] * 4 + [0.5]


def test_averages_inside_follow_each_step(rng):
    ema = optim.EMA(optim.SGD(0.1), decay=0.5)
    optimizer = optim.MultiSteps(ema, K)
    g, x, net, train, _ = regression(optimizer)
    with g:
        averaged = ema.averaged(gf.identity(net[0].weight))
    with gf.Session(g) as session:
        expected = None
        for number, batch in enumerate(batches_of(rng), 1):
            session.run(train, {x: batch})
            if number % K == 0:
                w = session[net[0].weight]
                expected = w if expected is None else 0.5 * expected + 0.5 * w
            if expected is not None:
                np.testing.assert_allclose(session.run(averaged), expected, 1e-12)


def test_it_goes_on_from_a_checkpoint_between_two_steps(rng, tmp_path):
    made = regression(optim.MultiSteps(optim.Adam(0.1), K))
    g, x, net, train, _ = made
    batches = batches_of(rng)
    expected = history(made, batches)[-1]
    with gf.Session(g, seed=1) as session:
        for batch in batches[:6]:
            session.run(train, {x: batch})
        session.save(tmp_path / "state.safetensors")
    with gf.Session(g, seed=2) as session:
        session.restore(tmp_path / "state.safetensors")
        for batch in batches[6:]:
            session.run(train, {x: batch})
        for v, value in zip(net.parameters(), expected, strict=True):
            np.testing.assert_array_equal(session[v], value)
    names = [v.name for v in g.variables if v.name.startswith("multi_steps")]
    assert names == [
        "multi_steps.step",
        "multi_steps.gradient.sequential.0.weight",
        "multi_steps.gradient.sequential.0.bias",
    ]


def test_gradients_of_the_users_own_and_groups(rng):
    batches = batches_of(rng)

    class Given(optim.MultiSteps):
        def minimize(self, loss, parameters=None):
            parameters = [v for v in loss.graph.variables if v.trainable]
            return self.apply_gradients(zip(gf.grad(loss, parameters), parameters, strict=True))

    class Grouped(optim.MultiSteps):
        def minimize(self, loss, parameters=None):
            w, b = [v for v in loss.graph.variables if v.trainable]
            groups = [{"parameters": [w], "lr": 0.01}, {"parameters": b}]
            return super().minimize(loss, groups)

    class Plain(optim.Adam):
        def minimize(self, loss, parameters=None):
            w, b = [v for v in loss.graph.variables if v.trainable]
            return super().minimize(loss, [{"parameters": [w], "lr": 0.01}, {"parameters": b}])

    large = batches.reshape(STEPS, -1, 3)
    for small, whole in ((Given, optim.Adam), (Grouped, Plain)):
        got = history(regression(small(optim.Adam(0.1), K)), batches)[-1]
        expected = history(regression(whole(0.1)), large)[-1]
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, 1e-9, 1e-12)


def test_a_loss_scale_around_it_skips_single_batches():
    def trained(optimizer, batches):
        with gf.Graph() as g:
            x = gf.placeholder((3,), name="x")
            w = gf.Variable(np.float32([1, 2, 3]), name="w")
            train = optimizer.minimize(gf.sum(w * x + w * w * 0.25))
        with gf.Session(g) as session:
            for batch in batches:
                session.run(train, {x: batch})
            return session.state_dict()

    good, bad = np.float32([0.5, -1.0, 2.0]), np.float32([0.5, np.inf, 2.0])
    plain = trained(optim.MultiSteps(optim.Adam(0.1), 2), [good, good * 2, good])
    outer = optim.LossScale(optim.MultiSteps(optim.Adam(0.1), 2))
    found = trained(outer, [good, bad, good * 2, bad, good])
    for name, value in plain.items():
        np.testing.assert_allclose(found[name], value, 1e-5, err_msg=name)
    assert found["loss_scale.skipped"] == 2
    inner = optim.MultiSteps(optim.LossScale(optim.Adam(0.1)), 2)
    found = trained(inner, [good, bad, good, good * 2, good])  # skips the step
    for name, value in plain.items():
        if not name.startswith("multi_steps."):  # whose gradients are scaled
            np.testing.assert_allclose(found[name], value, 1e-5, err_msg=name)


def test_sam_goes_around_it(rng):
    batches = batches_of(rng)
    with pytest.raises(gf.ArgumentError, match="SAM differentiates more than once") as caught:
        regression(optim.MultiSteps(optim.SAM(optim.SGD(0.1)), K))
    assert "gf.optim.SAM(gf.optim.MultiSteps(optimizer, k))" in str(caught.value)
    made = regression(optim.SAM(optim.MultiSteps(optim.SGD(0.1), K), 0.01))
    found = history(made, batches)
    for a, b in zip(found[K], found[K + 1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(found[K - 1][0], found[K - 2][0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_adds_in_float32(dtype):
    with gf.Graph() as g:
        x = gf.placeholder((), dtype, name="x")
        w = gf.Variable([3.0, -2.0], name="w", dtype=dtype)
        empty = gf.Variable(np.ones((0, 2)), name="empty", dtype=dtype)
        optimizer = optim.MultiSteps(optim.SGD(1.0), 2)
        train = optimizer.minimize(gf.sum(w * x) + gf.sum(empty))
    assert all(v.dtype in (gf.float32, gf.int64) for v in optimizer.variables)
    with gf.Session(g) as session:
        for value in (1.0, 2.0):
            session.run(train, {x: np.asarray(value, session[w].dtype)})
        np.testing.assert_array_equal(session[w].astype(np.float32), [1.5, -3.5])


def test_in_a_scan():
    batches = np.random.default_rng(0).standard_normal((8, 4, 3)).astype(np.float32)

    def loss_of(w, x):
        return gf.mean((x @ w - gf.sum(x, axis=1)) ** 2)

    with gf.Graph() as g:
        xs = gf.placeholder(("steps", 4, 3), name="xs")
        w = gf.Variable(np.zeros(3, np.float32), name="w")
        optimizer = optim.MultiSteps(optim.Adam(0.1), 3)

        def step(carry, x):
            optimizer.minimize(loss_of(w, x))
            return carry, ()

        done, _ = gf.scan(step, gf.asarray(0.0), xs)
    with gf.Graph() as plain:
        x = gf.placeholder((4, 3), name="x")
        v = gf.Variable(np.zeros(3, np.float32), name="w")
        train = optim.MultiSteps(optim.Adam(0.1), 3).minimize(loss_of(v, x))
    with gf.Session(g) as session, gf.Session(plain) as other:
        session.run([done, *g.updates], {xs: batches})
        for batch in batches:
            other.run(train, {x: batch})
        np.testing.assert_allclose(session[w], other[v], 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("make", "branches"),
    [
        (lambda: optim.Muon(0.01), 1),
        (lambda: optim.LossScale(optim.Muon(0.01)), 1),
        (lambda: optim.Adam(0.01, clip_norm=1.0), 0),
    ],
    ids=["Muon", "LossScale", "Adam"],
)
def test_products_are_computed_in_a_branch(make, branches, rng, monkeypatch):
    def layers():
        return [gf.nn.Linear(3, 120), gf.nn.Linear(120, 100), gf.nn.Linear(100, 2)]

    def trained():
        made = regression(optim.MultiSteps(make(), 2), layers, dtype="float32")
        with gf.Session(made[0], seed=1) as session:
            for batch in batches:
                session.run(made[3], {made[1]: batch})
            return made[0], session.state_dict()

    batches = batches_of(rng, 5, "float32")
    graph, found = trained()
    assert len([node for node in graph.nodes if node.op.name == "branch"]) == branches
    monkeypatch.setattr(multi_steps, "_MANY", np.inf)
    graph, expected = trained()
    assert not [node for node in graph.nodes if node.op.name == "branch"]
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_copies_of_its_graph(rng):
    g, x, _, train, _ = regression(optim.MultiSteps(optim.SGD(0.1), 2))
    batches = batches_of(rng, 4)
    states = []
    for graph in (g, copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        with gf.Session(graph, seed=1) as session:
            for batch in batches:
                session.run(graph.updates[-1], {"x": batch})
            states.append(session.state_dict())
    for state in states[1:]:
        for name, value in states[0].items():
            np.testing.assert_array_equal(state[name], value)


@pytest.mark.parametrize("k", [0, -1, 2.5, True, None, "4"])
def test_bad_options(k):
    with pytest.raises((gf.ArgumentError, gf.CallError)) as caught:
        optim.MultiSteps(optim.SGD(0.1), k)
    assert "MultiSteps" in caught.value.summary
    assert caught.value.fix
    with pytest.raises(gf.ArgumentError, match="optimizer is a float, no optimiser"):
        optim.MultiSteps(0.1, 2)
