"""Optimisers, step by step, against PyTorch's; Lion against its formula; their names and state."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim
from tests.support.training_steps import loss_terms, ours, problem_of, same, theirs

torch = pytest.importorskip("torch")


@pytest.fixture
def problem(rng):
    return problem_of(rng)


PAIRS = {
    "sgd": (lambda: optim.SGD(0.05), lambda p: torch.optim.SGD(p, 0.05)),
    "sgd decay": (
        lambda: optim.SGD(0.05, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.1),
    ),
    "momentum": (
        lambda: optim.SGD(0.05, 0.9, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.05, 0.9, weight_decay=0.1),
    ),
    "dampening": (
        lambda: optim.SGD(0.05, 0.9, 0.3),
        lambda p: torch.optim.SGD(p, 0.05, 0.9, 0.3),
    ),
    "nesterov": (
        lambda: optim.SGD(0.05, 0.8, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.05, 0.8, nesterov=True),
    ),
    "nesterov decay": (
        lambda: optim.SGD(0.05, 0.8, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.05, 0.8, nesterov=True, weight_decay=0.1),
    ),
    "amsgrad decay": (
        lambda: optim.AdamW(0.1, (0.9, 0.5), amsgrad=True, weight_decay=0.3),
        lambda p: torch.optim.AdamW(p, 0.1, (0.9, 0.5), amsgrad=True, weight_decay=0.3),
    ),
    "adam": (lambda: optim.Adam(0.1), lambda p: torch.optim.Adam(p, 0.1)),
    "adam options": (
        lambda: optim.Adam(0.1, (0.7, 0.9), 1e-3, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, 0.1, (0.7, 0.9), 1e-3, weight_decay=0.1),
    ),
    "amsgrad": (
        lambda: optim.Adam(0.1, (0.9, 0.5), amsgrad=True),
        lambda p: torch.optim.Adam(p, 0.1, (0.9, 0.5), amsgrad=True),
    ),
    "adamw": (lambda: optim.AdamW(0.1), lambda p: torch.optim.AdamW(p, 0.1)),
    "adamw decay": (
        lambda: optim.AdamW(0.1, weight_decay=0.5),
        lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.5),
    ),
    "rmsprop": (
        lambda: optim.RMSprop(weight_decay=0.1),
        lambda p: torch.optim.RMSprop(p, weight_decay=0.1),
    ),
    "rmsprop centered": (
        lambda: optim.RMSprop(0.01, 0.9, 1e-6, momentum=0.5, centered=True),
        lambda p: torch.optim.RMSprop(p, 0.01, 0.9, 1e-6, momentum=0.5, centered=True),
    ),
    "adamax": (
        lambda: optim.Adamax(weight_decay=0.1),
        lambda p: torch.optim.Adamax(p, weight_decay=0.1),
    ),
    "adamax options": (
        lambda: optim.Adamax(0.1, (0.7, 0.9), 1e-3),
        lambda p: torch.optim.Adamax(p, 0.1, (0.7, 0.9), 1e-3),
    ),
    "nadam": (
        lambda: optim.NAdam(weight_decay=0.1),
        lambda p: torch.optim.NAdam(p, weight_decay=0.1),
    ),
    "nadam options": (
        lambda: optim.NAdam(
            0.1, (0.7, 0.9), 1e-3, 0.1, weight_decay=0.1, decoupled_weight_decay=True
        ),
        lambda p: torch.optim.NAdam(p, 0.1, (0.7, 0.9), 1e-3, 0.1, 0.1, True),
    ),
    "radam": (lambda: optim.RAdam(0.1), lambda p: torch.optim.RAdam(p, 0.1)),
    "radam options": (
        lambda: optim.RAdam(0.1, (0.7, 0.9), 1e-3, weight_decay=0.1, decoupled_weight_decay=True),
        lambda p: torch.optim.RAdam(p, 0.1, (0.7, 0.9), 1e-3, 0.1, True),
    ),
    "radam decay": (
        lambda: optim.RAdam(0.1, (0.9, 0.95), weight_decay=0.1),
        lambda p: torch.optim.RAdam(p, 0.1, (0.9, 0.95), weight_decay=0.1),
    ),
    "radam of a short mean": (
        lambda: optim.RAdam(0.05, (0.9, 0.5)),
        lambda p: torch.optim.RAdam(p, 0.05, (0.9, 0.5)),
    ),
    "adadelta": (lambda: optim.Adadelta(), lambda p: torch.optim.Adadelta(p)),
    "adadelta options": (
        lambda: optim.Adadelta(0.5, 0.7, 1e-3, weight_decay=0.1),
        lambda p: torch.optim.Adadelta(p, 0.5, 0.7, 1e-3, weight_decay=0.1),
    ),
    "adagrad": (lambda: optim.Adagrad(0.1), lambda p: torch.optim.Adagrad(p, 0.1)),
    "adagrad options": (
        lambda: optim.Adagrad(0.1, 0.2, 1e-4, 0.5, weight_decay=0.1),
        lambda p: torch.optim.Adagrad(
            p, 0.1, 0.2, eps=1e-4, initial_accumulator_value=0.5, weight_decay=0.1
        ),
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PAIRS)
def test_against_torch(problem, name, dtype):
    make, make_theirs = PAIRS[name]
    got, expected = ours(make, *problem, dtype), theirs(make_theirs, *problem, dtype)
    same(got, expected, dtype)
    assert all((a != b).any() for a, b in zip(got[0], got[-1], strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lion(problem, dtype):
    lr, b1, b2, decay = 0.02, 0.8, 0.95, 0.1
    starts, data = problem
    got = ours(lambda: optim.Lion(lr, (b1, b2), weight_decay=decay), starts, data, dtype)
    params = [s.astype(dtype) for s in starts]
    means = [np.zeros_like(p) for p in params]
    expected = []
    for arrays in data:
        for i, d in enumerate(arrays):
            gradient = 2 * (i + 1) * (params[i] - d.astype(dtype)) + 1.5 * np.cos(3 * params[i])
            direction = np.sign(b1 * means[i] + (1 - b1) * gradient)
            params[i] = params[i] - lr * (direction + decay * params[i])
            means[i] = b2 * means[i] + (1 - b2) * gradient
        expected.append([np.asarray(p, dtype) for p in params])
    same(got, expected, dtype)


def test_groups(problem):
    got = ours(
        lambda: optim.Adam(0.1, weight_decay=0.2), *problem, "float64",
        lambda v: [{"parameters": v[0], "lr": 0.01, "betas": (0.5, 0.9)},
                   {"parameters": v[1:], "weight_decay": 0.0}],
    )  # fmt: skip
    expected = theirs(
        lambda p: torch.optim.Adam(
            [{"params": p[0], "lr": 0.01, "betas": (0.5, 0.9)},
             {"params": p[1:], "weight_decay": 0.0}], 0.1, weight_decay=0.2),
        *problem, "float64",
    )  # fmt: skip
    same(got, expected, "float64")


def test_clipping(problem):
    class Clipped(torch.optim.SGD):
        def step(self):
            params = [p for group in self.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_value_(params, 2.0)
            torch.nn.utils.clip_grad_norm_(params, 1.5)
            super().step()

    got = ours(lambda: optim.SGD(0.1, clip_value=2.0, clip_norm=1.5), *problem, "float32")
    expected = theirs(lambda p: Clipped(p, 0.1), *problem, "float32")
    same(got, expected, "float32")


def test_schedule_drives_the_rate(problem):
    got = ours(lambda: optim.Adam(optim.schedules.cosine(0.1, 8)), *problem, "float64")
    expected = theirs(
        lambda p: torch.optim.Adam(p, 0.1), [*problem[0]], problem[1][:8], "float64",
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8),
    )  # fmt: skip
    same(got[:8], expected, "float64")
    for a, b in zip(got[7], got[-1], strict=True):
        np.testing.assert_array_equal(a, b)  # the rate has come to 0


def one(make, **variable):
    """A graph with one variable, a quadratic loss, and an update."""
    with gf.Graph() as g:
        w = gf.Variable([3.0, -2.0], name="w", **variable)
        optimiser = make()
        train = optimiser.minimize(gf.sum(w * w))
    return g, w, optimiser, train


def test_rate_as_a_tensor():
    with gf.Graph() as g:
        w = gf.Variable([1.0], name="w")
        rate = gf.placeholder((), name="rate")
        optimiser = optim.SGD(rate)
        train = optimiser.minimize(gf.sum(w))
        shown = optimiser.learning_rate()
    with gf.Session(g) as session:
        value, _ = session.run([shown, train], {rate: 0.25})
        assert float(value) == 0.25
        assert float(session[w][0]) == 0.75


def test_learning_rate_follows_the_steps():
    with gf.Graph() as g:
        w = gf.Variable([1.0], name="w")
        optimiser = optim.SGD(lambda step: 1 / (step + 1.0))
        rates = optimiser.learning_rate()
        train = optimiser.minimize(gf.sum(w))
        fixed = optim.SGD(0.5).learning_rate()
    with gf.Session(g) as session:
        assert [float(session.run([rates, train])[0]) for _ in range(3)] == [1, 0.5, 1 / 3]
        assert float(session.run(fixed)) == 0.5
        assert int(session["sgd.step"]) == 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "make",
    [optim.Adam, optim.Adamax, optim.NAdam, optim.RAdam, optim.RMSprop, optim.Adadelta,
     lambda lr: optim.SGD(lr, 0.9)],
)  # fmt: skip
def test_low_precision(make, dtype):
    g, w, optimiser, train = one(lambda: make(1e-3), dtype=dtype)
    slots = optimiser.variables[1:]
    assert slots
    assert all(s.dtype is gf.float32 and not s.trainable for s in slots)
    with gf.Session(g) as session:
        for _ in range(5):
            session.run(train)
        assert session[w].dtype == w.dtype
        for slot in slots:
            assert np.isfinite(session[slot]).all()
            assert session[slot].any()


@pytest.mark.parametrize("make", [optim.Adamax, optim.NAdam, optim.RAdam, optim.Adadelta])
def test_empty_parameters(make):
    with gf.Graph() as g:
        w, empty = gf.Variable([3.0, -2.0], name="w"), gf.Variable(np.ones((0, 3)), name="empty")
        train = make(weight_decay=0.1).minimize(gf.sum(w * w) + gf.sum(empty))
    with gf.Session(g) as session:
        session.run(train)
        assert session[empty].shape == (0, 3)
        assert (np.abs(session[w]) < [3, 2]).all()


def test_slots_of_other_shapes():
    class Counting(optim.Optimizer):
        def slots_for(self, shape):
            return {"rows": (1.0, shape[:1]), "calls": (0.0, ())}

        def rule(self, p, g, slots, shared):
            calls = slots["calls"] + 1.0
            return p - g, {"rows": slots["rows"] + gf.sum(g, axis=1) * 0, "calls": calls}

    with gf.Graph() as graph:
        w = gf.Variable(np.ones((2, 3)), name="w")
        train = Counting(0.1).minimize(gf.sum(w))
    with gf.Session(graph) as session:
        session.run(train)
        session.run(train)
        assert session["counting.rows.w"].tolist() == [1, 1]
        assert session["counting.calls.w"] == 2


def test_complex_parameters():
    with gf.Graph() as g:
        w = gf.Variable(np.array([1 + 2j, -1j]), name="w", dtype="complex128")
        loss = gf.sum(gf.abs(w) ** 2)
        train = optim.SGD(0.25).minimize(loss)
        with pytest.raises(gf.ArgumentError, match='Adam: it trains real variables, and "w"'):
            optim.Adam().minimize(loss)
    with gf.Session(g) as session:
        session.run(train)
        np.testing.assert_allclose(session[w], [0.5 + 1j, -0.5j])


def test_slot_names_follow_the_layers():
    with gf.Graph() as g:
        layer = gf.nn.Linear(2, 1, bias=False)
        optimiser = optim.Adam(amsgrad=True)
        optimiser.minimize(gf.sum(layer(gf.ones((1, 2)))))
        gf.nn.Sequential(layer)
        names = [v.name for v in optimiser.variables]
        assert names == [
            "adam.step", "adam.m.sequential.0.weight", "adam.v.sequential.0.weight",
            "adam.v_max.sequential.0.weight",
        ]  # fmt: skip
        second = optim.Adam()
        second.minimize(gf.sum(layer(gf.ones((1, 2)))))
        assert second.variables[0].name == "adam_1.step"
        named = optim.SGD(0.1, name="slow")
        named.minimize(gf.sum(layer(gf.ones((1, 2)))))
        assert [v.name for v in named.variables] == ["slow.step"]
    g.check_names()


def test_slots_are_not_trained():
    with gf.Graph() as g:
        w = gf.Variable([1.0], name="w")
        optim.Adam().minimize(gf.sum(w * w))
        before = len(g.variables)
        again = optim.SGD(0.1)
        update = again.minimize(gf.sum(w * w))
    assert [v.name for v, _ in update.pairs] == ["sgd.step", "w"]
    assert len(g.variables) == before + 1


def test_one_optimiser_may_make_several_updates():
    with gf.Graph() as g:
        a, b = gf.Variable(1.0, name="a"), gf.Variable(1.0, name="b")
        optimiser = optim.Adam(0.1)
        first = optimiser.minimize(a * a)
        second = optimiser.minimize(b * b)
        again = optimiser.minimize(a * a * 2)
        assert len(optimiser.variables) == 5
    with gf.Session(g) as session:
        session.run([first, second])
        assert int(session["adam.step"]) == 1
        session.run(again)
        assert int(session["adam.step"]) == 2


def test_nodes_are_in_the_optimisers_scope_and_on_the_users_line():
    g, _, _, train = one(lambda: optim.SGD(0.1))
    new = train.pairs[1][1]
    assert new.node.loc.layer == "sgd"
    assert new.node.loc.function == "one"


def test_training_goes_on_from_a_checkpoint(tmp_path, problem):
    starts, data = problem

    def make():
        return optim.Adam(optim.schedules.linear(0.1, 20))

    whole = ours(make, starts, data, "float64")
    with gf.Graph() as g:
        variables = [gf.Variable(s, name=f"p{i}", dtype=s.dtype) for i, s in enumerate(starts)]
        target = [gf.placeholder(s.shape, gf.float64, name=f"d{i}") for i, s in enumerate(starts)]
        train = make().minimize(loss_terms(variables, target, gf))
    path = tmp_path / "half.safetensors"
    with gf.Session(g) as session:
        for arrays in data[:6]:
            session.run(train, dict(zip(target, arrays, strict=True)))
        session.save(path)
    with gf.Session(g, seed=9) as session:
        session.restore(path)
        for arrays in data[6:]:
            session.run(train, dict(zip(target, arrays, strict=True)))
        for v, expected in zip(variables, whole[-1], strict=True):
            np.testing.assert_array_equal(session[v], expected)


@pytest.mark.parametrize(
    ("slots", "rule", "text", "fix"),
    [
        ({}, lambda p, g: p - g, "rule() returns a Tensor, not a pair", "return p - rate * g"),
        ({}, lambda p, g: (p - g, None), "rule() returns a tuple, not a pair", "return p"),
        ({"m": 0.0}, lambda p, g: (p, {"n": g}), "returns a slot 'n'", "slots() has: m"),
        ({}, lambda p, g: (gf.sum(p), {}), 'returns () for "w", which has the shape (2,)', "ret"),
        ({"m": 0.0}, lambda p, g: (p, {"m": 1.0}), "returns a float for the slot 'm'", "return a"),
        (["m"], lambda p, g: (p, {}), "slots() returns a list, not a dict", 'return {"m": 0.0}'),
        ({"m": None}, lambda p, g: (p, {}), "slots() returns a NoneType for 'm'", "return the"),
        ({"m": 0.0}, lambda p, g: (p, {}), "no value for some of the slots", "return those"),
    ],
)
def test_what_a_rule_of_ones_own_returns_is_checked(slots, rule, text, fix):
    class Own(optim.Optimizer):
        def slots(self):
            return slots

        def rule(self, p, g, slots, shared):
            return rule(p, g)

    with gf.Graph():
        w = gf.Variable([1.0, 2.0], name="w")
        with pytest.raises(gf.ArgumentError) as caught:
            Own(0.1).minimize(gf.sum(w * w))
    assert text in caught.value.summary
    assert caught.value.fix.startswith(fix)


def test_slots_that_a_rule_makes_in_another_dtype_keep_theirs():
    class Counting(optim.Optimizer):
        def slots(self):
            return {"m": 0.0}

        def rule(self, p, g, slots, shared):
            return p, {"m": gf.astype(slots["m"], gf.float64) + 1.0}

    with gf.Graph() as graph:
        w = gf.Variable([1.0, 2.0], name="w")
        train = Counting(0.1).minimize(gf.sum(w * w))
    with gf.Session(graph) as session:
        session.run(train)
        session.run(train)
        np.testing.assert_array_equal(session["counting.m.w"], np.float32([2, 2]))


@pytest.mark.parametrize(
    ("method", "called"),
    [("rule", "rule(p, g, slots, shared)"), ("shared", "shared(lr, count)")],
)
def test_a_method_with_other_parameters_is_refused(method, called):
    class Own(gf.optim.Optimizer):
        def rule(self, p, g, slots, shared):
            return p - g, {}

    setattr(Own, method, lambda self: None)
    with gf.Graph():
        w = gf.Variable([1.0], name="w")
        with pytest.raises(gf.CallError, match=f"Own: {method} is called with") as caught:
            Own(0.1).minimize(gf.sum(w * w))
    assert called in caught.value.fix
