"""Optimisers around others: Lookahead, averages of parameters, SAM; alone, and in one another."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim
from tests.support.training_steps import STEPS, loss_terms, ours, problem_of, same, theirs

torch = pytest.importorskip("torch")


@pytest.fixture
def problem(rng):
    return problem_of(rng)


class SlowAndFast:
    """Lookahead around one of PyTorch's optimisers, by its formula."""

    def __init__(self, inner, params, k, alpha):
        self.inner, self.params, self.k, self.alpha = inner, params, k, alpha
        self.slow = [p.detach().clone() for p in params]
        self.count = 0

    def zero_grad(self):
        self.inner.zero_grad()

    def step(self):
        self.inner.step()
        self.count += 1
        if self.count % self.k == 0:
            for slow, fast in zip(self.slow, self.params, strict=True):
                slow += self.alpha * (fast.detach() - slow)
                fast.data.copy_(slow)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("k", "alpha"), [(5, 0.5), (1, 0.3), (2, 1.0)])
def test_lookahead(problem, dtype, k, alpha):
    got = ours(lambda: optim.Lookahead(optim.Adam(0.1), k, alpha), *problem, dtype)
    expected = theirs(lambda p: SlowAndFast(torch.optim.Adam(p, 0.1), p, k, alpha), *problem, dtype)
    same(got, expected, dtype)


AVERAGES = {
    "ema": (
        lambda: optim.EMA(optim.Adam(0.1), 0.8),
        {"multi_avg_fn": torch.optim.swa_utils.get_ema_multi_avg_fn(0.8)},
        lambda count: True,
    ),
    "swa": (lambda: optim.SWA(optim.Adam(0.1)), {}, lambda count: True),
    "swa late": (
        lambda: optim.SWA(optim.Adam(0.1), start=4, every=3),
        {},
        lambda count: count >= 4 and (count - 4) % 3 == 0,
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", AVERAGES)
def test_averages(problem, name, dtype):
    make, options, is_averaged = AVERAGES[name]
    starts, data = problem
    with gf.Graph() as g:
        variables = [gf.Variable(s, name=f"p{i}", dtype=dtype) for i, s in enumerate(starts)]
        target = [gf.placeholder(s.shape, dtype, name=f"d{i}") for i, s in enumerate(starts)]
        optimiser = make()
        train = optimiser.minimize(loss_terms(variables, target, gf))
        averages = [optimiser.averaged(v) for v in variables]
    kind = torch.float32 if dtype == "float32" else torch.float64
    module = torch.nn.Module()
    module.params = torch.nn.ParameterList([torch.tensor(s, dtype=kind) for s in starts])
    adam = torch.optim.Adam(module.parameters(), 0.1)
    average = torch.optim.swa_utils.AveragedModel(module, **options)
    got, expected = [], []
    with gf.Session(g) as session:
        for v, found in zip(variables, session.run(averages), strict=True):
            np.testing.assert_array_equal(found, session[v])
        for count, arrays in enumerate(data, 1):
            arrays = [np.asarray(a, dtype) for a in arrays]
            session.run(train, dict(zip(target, arrays, strict=True)))
            got.append(session.run(averages))
            adam.zero_grad()
            loss_terms(list(module.params), [torch.tensor(a) for a in arrays], torch).backward()
            adam.step()
            if is_averaged(count):
                average.update_parameters(module)
            source = average.module if average.n_averaged else module
            expected.append([p.detach().numpy().copy() for p in source.params])
        assert int(session[f"{name[:3]}.step"]) == STEPS
    same(got, expected, dtype)


def small_model(optimiser):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), name="x")
        net = gf.nn.Sequential(
            gf.nn.Linear(3, 4), gf.nn.BatchNorm(4), gf.nn.Dropout(0.5), gf.nn.Linear(4, 2)
        )
        train = optimiser.minimize(gf.mean((net(x) - 1) ** 2))
        plain = net(x, training=False)
    return g, x, net, train, plain


def test_a_model_is_evaluated_with_averages(rng):
    optimiser = optim.EMA(optim.SGD(0.1), 0.9)
    g, x, net, train, plain = small_model(optimiser)
    with g:
        smooth = optimiser.averaged(plain)
        copies = [gf.update(v, optimiser.averaged(v)) for v in net.parameters()]
    batch = rng.standard_normal((8, 3)).astype(np.float32)
    with gf.Session(g, seed=1) as session:
        for _ in range(5):
            session.run(train, {x: batch})
        found, other = session.run([smooth, plain], {x: batch})
        assert np.abs(found - other).max() > 1e-3
        session.run(copies)
        np.testing.assert_allclose(session.run(plain, {x: batch}), found, 1e-5, 1e-6)


def test_averages_are_saved_and_named(tmp_path, rng):
    optimiser = optim.EMA(optim.Adam(0.1), 0.9)
    g, x, _, train, plain = small_model(optimiser)
    with g:
        smooth = optimiser.averaged(plain)
    names = [v.name for v in optimiser.variables]
    assert names[:2] == ["ema.step", "ema.average.sequential.0.weight"]
    assert "adam.m.sequential.0.weight" in names
    assert not any("running" in name for name in names)
    batch = rng.standard_normal((8, 3)).astype(np.float32)
    with gf.Session(g) as session:
        session.run(train, {x: batch})
        session.save(tmp_path / "state.safetensors")
        found = session.run(smooth, {x: batch})
    with gf.Session(g, seed=9) as session:
        session.restore(tmp_path / "state.safetensors")
        np.testing.assert_array_equal(session.run(smooth, {x: batch}), found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sam(problem, dtype):
    rho = 0.3

    class Sharp(torch.optim.SGD):
        """Two passes by hand, around the loss of `training_steps`."""

        def step(self):
            params = [p for group in self.param_groups for p in group["params"]]
            norm = torch.sqrt(sum((p.grad**2).sum() for p in params))
            for number, p in enumerate(params, 1):
                # The first gradient is 2 n (p - d) + 1.5 cos(3 p): that at q has the same d.
                q = p.detach() + rho * p.grad / norm
                moved = 2 * number * (q - p.detach())
                turn = 1.5 * (torch.cos(3 * q) - torch.cos(3 * p.detach()))
                p.grad = p.grad + moved + turn
            super().step()

    got = ours(lambda: optim.SAM(optim.SGD(0.05, 0.9), rho), *problem, dtype)
    same(got, theirs(lambda p: Sharp(p, 0.05, 0.9), *problem, dtype), dtype)


def test_sam_updates_what_layers_keep_once(rng):
    batch = rng.standard_normal((8, 3)).astype(np.float32)
    kept = []
    for optimiser in (optim.SAM(optim.SGD(0.1)), optim.SGD(0.1)):
        g, x, _, train, _ = small_model(optimiser)
        with gf.Session(g, seed=3) as session:
            session.run(train, {x: batch})
            kept.append(session["sequential.1.running_mean"])
    np.testing.assert_array_equal(*kept)


GOOD, BAD = np.float32([0.5, -1.0, 2.0]), np.float32([0.5, np.inf, 2.0])


def scaled_steps(optimiser, batches):
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        w = gf.Variable(np.float32([1, 2, 3]), name="w")
        train = optimiser.minimize(gf.sum(w * x + w * w * 0.25))
    with gf.Session(g) as session:
        for batch in batches:
            session.run(train, {x: batch})
        return session.state_dict()


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: optim.Lookahead(inner, k=2),
        lambda inner: optim.EMA(inner, 0.5),
        lambda inner: optim.SWA(inner, 2),
        lambda inner: optim.SAM(inner, 0.1),
        lambda inner: optim.EMA(optim.Lookahead(inner, k=2), 0.5),
    ],
)
def test_a_loss_scale_skips_the_steps_of_what_is_in_it(around):
    outer = scaled_steps(optim.LossScale(around(optim.Adam(0.1))), [GOOD, BAD, GOOD, GOOD])
    plain = scaled_steps(around(optim.Adam(0.1)), [GOOD, GOOD, GOOD])
    for name, value in plain.items():
        np.testing.assert_allclose(outer[name], value, 1e-5, err_msg=name)
    assert outer["loss_scale.skipped"] == 1
    inner = scaled_steps(around(optim.LossScale(optim.Adam(0.1))), [GOOD, GOOD, GOOD])
    for name, value in plain.items():
        np.testing.assert_allclose(inner[name], value, 1e-5, err_msg=name)


def test_gradients_of_the_users_own(problem):
    def make():
        optimiser = optim.Lookahead(optim.SGD(0.1), k=2)
        optimiser.minimize = lambda loss, parameters: optimiser.apply_gradients(
            zip(gf.grad(loss, parameters), parameters, strict=True), loss=loss
        )
        return optimiser

    got = ours(make, *problem, "float64", list)
    same(got, ours(lambda: optim.Lookahead(optim.SGD(0.1), k=2), *problem, "float64"), "float64")
    with gf.Graph():
        w = gf.Variable(1.0, name="w")
        with pytest.raises(gf.ArgumentError, match="SAM: apply_gradients") as caught:
            optim.EMA(optim.SAM(optim.SGD(0.1))).apply_gradients([(w, w)])
        assert caught.value.fix.startswith("write minimize(loss)")


def test_groups_and_rates(problem):
    def groups(v):
        return [{"parameters": v[0], "lr": 0.01}, {"parameters": v[1:]}]

    got = ours(lambda: optim.EMA(optim.Adam(0.1)), *problem, "float64", groups)
    same(got, ours(lambda: optim.Adam(0.1), *problem, "float64", groups), "float64")
    with gf.Graph() as g:
        w = gf.Variable(1.0, name="w")
        optimiser = optim.SAM(optim.EMA(optim.SGD(optim.schedules.linear(1.0, 4))))
        train, rate = optimiser.minimize(w * w), optimiser.learning_rate()
    with gf.Session(g) as session:
        assert [float(session.run([rate, train])[0]) for _ in range(3)] == [1.0, 0.75, 0.5]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("make", [optim.Lookahead, optim.EMA, optim.SWA, optim.SAM])
def test_low_precision_and_empty_parameters(make, dtype):
    with gf.Graph() as g:
        w = gf.Variable([3.0, -2.0], name="w", dtype=dtype)
        empty = gf.Variable(np.ones((0, 2)), name="empty", dtype=dtype)
        optimiser = make(optim.SGD(0.125))
        train = optimiser.minimize(gf.sum(w * w) + gf.sum(empty))
        shown = optimiser.averaged(w) if hasattr(optimiser, "decay") else w
    assert shown.dtype == w.dtype
    slots = [v for v in optimiser.variables if v.name.endswith(".w")]
    assert all(v.dtype is gf.float32 for v in slots)
    with gf.Session(g) as session:
        for _ in range(6):
            session.run(train)
        assert session[w].dtype == w.dtype
        assert (np.abs(session.run(shown).astype(np.float32)) < 3).all()
        assert session[empty].shape == (0, 2)


def test_in_a_loop_and_in_a_function():
    """A run of many steps is as many runs of one."""
    batches = np.random.default_rng(0).standard_normal((7, 4, 3)).astype(np.float32)

    def made():
        return optim.EMA(optim.SAM(optim.Lookahead(optim.Adam(0.1), k=3), 0.1), 0.5)

    def loss_of(w, x):
        return gf.mean((x @ w - gf.sum(x, axis=1)) ** 2)

    with gf.Graph() as g:
        x = gf.placeholder((4, 3), name="x")
        w = gf.Variable(np.zeros(3, np.float32), name="w")
        optimiser = made()
        train, smooth = optimiser.minimize(loss_of(w, x)), optimiser.averaged(w)
    with gf.Session(g) as session:
        for batch in batches:
            session.run(train, {x: batch})
        expected = session[w], session.run(smooth)
    looped = made()

    @gf.function
    def epoch(xs):
        w = gf.Variable(np.zeros(3, np.float32), name="w")

        def step(_, x):
            looped.minimize(loss_of(w, x))
            return (), w

        gf.scan(step, (), xs)
        return w, looped.averaged(w)

    epoch(batches)
    for got, wanted in zip(epoch(batches[:0]), expected, strict=True):
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: optim.Lookahead(0.1), "Lookahead: optimizer is a float, no optimiser"),
        (lambda: optim.Lookahead(optim.SGD(0.1), 0), "k=0 must be at least 1"),
        (lambda: optim.Lookahead(optim.SGD(0.1), alpha=2), "alpha=2 must be above 0, up to 1"),
        (lambda: optim.EMA(optim.SGD(0.1), 1), "EMA: decay=1 must be at least 0 and below 1"),
        (lambda: optim.SWA(optim.SGD(0.1), 0), "SWA: start=0 must be at least 1"),
        (lambda: optim.SAM(optim.SGD(0.1), 0), "SAM: rho=0 must be above 0"),
    ],
)
def test_bad_options(make, text):
    with pytest.raises(gf.ArgumentError) as caught:
        make()
    assert text in caught.value.summary
    assert caught.value.fix
    assert caught.value.at.file == __file__


def test_attributes_of_other_frameworks_are_answered():
    for make in (optim.EMA, optim.SAM, optim.LossScale):
        with pytest.raises(gf.UnknownNameError) as caught:
            make(optim.SGD(0.1)).zero_grad()
        assert caught.value.fix.startswith("leave it out: gradients are made in the graph")


def test_mistakes_with_averages():
    optimiser = optim.EMA(optim.SGD(0.1))
    with gf.Graph():
        w = gf.Variable(1.0, name="w")
        with pytest.raises(gf.ArgumentError, match="depends on no parameter that is averaged"):
            optimiser.averaged(w)
        optimiser.minimize(w * w)
        with pytest.raises(gf.ArgumentError, match="is given a float, no tensor"):
            optimiser.averaged(1.0)
        with pytest.raises(gf.ArgumentError, match="depends on no parameter") as caught:
            optimiser.averaged(gf.ones((2,)))
        assert caught.value.at.file == __file__
    with gf.Graph(), pytest.raises(gf.GraphError, match="this EMA belongs to another graph"):
        optimiser.averaged(gf.Variable(1.0, name="v") * 2)
