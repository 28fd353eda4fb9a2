"""Functions that use layers made outside of graphs: one session of all, and builds that follow."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import graphfw as gf


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal((32, 3)).astype(np.float32)
    return x, x.sum(axis=1, keepdims=True)


def trained(model: Any, optimizer: gf.optim.Optimizer) -> gf.Function:
    @gf.function
    def step(x: gf.Tensor, y: gf.Tensor) -> gf.Tensor:
        loss = gf.mean((model(x) - y) ** 2)
        optimizer.minimize(loss)
        return loss

    return step


def test_a_step_trains_what_lives_in_the_model(data):
    model = gf.nn.Sequential(gf.nn.Linear(3, 16), gf.nn.Tanh(), gf.nn.Linear(16, 1))
    step = trained(model, gf.optim.Adam(0.05))
    losses = [float(step(*data)) for _ in range(100)]
    assert losses[-1] < losses[0] / 10
    assert np.mean((model(data[0]) - data[1]) ** 2) < losses[0] / 10
    assert step.session is model.session


def test_it_is_as_in_a_graph_with_a_session(data):
    """The same weights, bit for bit, as the same program with Graph and Session."""
    model = gf.nn.Linear(3, 1)
    start = model.state_dict()
    step = trained(model, gf.optim.Adam(0.05))
    losses = [step(*data) for _ in range(5)]
    with gf.Graph() as g:
        other = gf.nn.Linear(3, 1)
        x, y = gf.placeholder(("n", 3)), gf.placeholder(("n", 1))
        loss = gf.mean((other(x) - y) ** 2)
        update = gf.optim.Adam(0.05).minimize(loss)
    session = gf.Session(g)
    other.load_state_dict(session, start)
    again = [session.run([loss, update], {x: data[0], y: data[1]})[0] for _ in range(5)]
    np.testing.assert_array_equal(losses, again)
    np.testing.assert_array_equal(model.weight.numpy(), session[other.weight])


def test_statistics_move(data):
    model = gf.nn.Sequential(gf.nn.Linear(3, 4), gf.nn.BatchNorm1d(4), gf.nn.Linear(4, 1))
    step = trained(model, gf.optim.SGD(0.01))
    before = model[1].running_mean.numpy()
    step(*data)
    assert not np.array_equal(model[1].running_mean.numpy(), before)


def test_two_models_become_one_session(data):
    x, y = data
    a, b = gf.nn.Linear(3, 1), gf.nn.Linear(3, 1)
    step_a, step_b = trained(a, gf.optim.Adam(0.05)), trained(b, gf.optim.Adam(0.05))
    # As if they had never met.
    alone = gf.nn.Linear(3, 1)
    alone.load_state_dict(b.state_dict())
    step_alone = trained(alone, gf.optim.Adam(0.05))
    for _ in range(3):
        step_a(x, y), step_b(x, y), step_alone(x, y)
    before = a(x) + b(x)
    sessions = {a.session, b.session}
    both = gf.function(lambda x: a(x) + b(x))
    np.testing.assert_allclose(both(x), before, rtol=1e-6)
    assert a.session is b.session is both.session is step_a.session is step_b.session
    for _ in range(3):
        step_a(x, y), step_b(x, y), step_alone(x, y)
    np.testing.assert_array_equal(b.weight.numpy(), alone.weight.numpy(), "optimisers go on")
    names = list(a.session.state_dict())
    assert len(names) == len(set(names))
    (gone,) = sessions - {a.session}
    with pytest.raises(gf.SessionError, match="belong to another session"):
        gone.state_dict()


def test_two_optimisers_of_one_session(data):
    with gf.Graph() as g:
        a, b = gf.nn.Linear(3, 1), gf.nn.Linear(3, 1)
    with gf.Session(g) as session:
        for model in (a, b):
            optimizer = gf.optim.Adam(0.05)

            @gf.function(session=session)
            def step(x, y, model=model, optimizer=optimizer):
                loss = gf.mean((model(x) - y) ** 2)
                optimizer.minimize(loss)
                return loss

            assert step(*data) > step(*data)
        assert {"adam.step", "adam.step_1"} <= session.state_dict().keys()


def test_a_checkpoint_of_all(data, tmp_path):
    model = gf.nn.Linear(3, 1)
    step = trained(model, gf.optim.Adam(0.05))
    step(*data)
    step.session.save(tmp_path / "all.safetensors")
    losses = [step(*data) for _ in range(3)]
    step.session.restore(tmp_path / "all.safetensors")
    np.testing.assert_array_equal([step(*data) for _ in range(3)], losses)


def test_another_model_of_the_name(data):
    """As in a notebook, where the cell that makes the model is run again."""
    space: dict[str, Any] = {"gf": gf, "__name__": "cells"}
    exec("model = gf.nn.Linear(3, 1); optimizer = gf.optim.SGD(0.1)", space)
    exec(
        "def loss_of(x, y):\n    return gf.mean((model(x) - y) ** 2)\n"
        "@gf.function\ndef step(x, y):\n    loss = loss_of(x, y)\n"
        "    optimizer.minimize(loss)\n    return loss",
        space,
    )
    step = space["step"]
    step(*data), step(*data)
    old = weakref.ref(space["model"])
    exec("model = gf.nn.Linear(3, 1)", space)
    before = space["model"].weight.numpy()
    expected = np.mean((space["model"](data[0]) - data[1]) ** 2)
    np.testing.assert_allclose(step(*data), expected, rtol=1e-5)
    assert not np.array_equal(space["model"].weight.numpy(), before)
    gc.collect()
    assert old() is None
    exec("def loss_of(x, y):\n    return 0 * gf.mean((model(x) - y) ** 2)", space)
    assert step(*data) == 0


def test_a_step_in_a_closure_follows(data):
    model = gf.nn.Linear(3, 1)
    predict = gf.function(lambda x: model(x))
    predict(data[0])
    model = gf.nn.Linear(3, 1)
    np.testing.assert_allclose(predict(data[0]), model(data[0]), rtol=1e-6)


def test_a_method_follows_the_attributes_of_its_object(data):
    class Trainer:
        def __init__(self) -> None:
            self.model = gf.nn.Linear(3, 1)
            self.predict = gf.function(self.forward)

        def forward(self, x):
            return self.model(x)

    trainer = Trainer()
    trainer.predict(data[0])
    trainer.model = gf.nn.Linear(3, 1)
    np.testing.assert_allclose(trainer.predict(data[0]), trainer.model(data[0]), rtol=1e-6)


def test_a_method_of_a_module_keeps_its_optimiser(data):
    class Trained(gf.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = gf.nn.Linear(3, 3), gf.nn.Linear(3, 1)
            self.optimizer = gf.optim.Adam(0.1)

        def step(self, x, y):
            loss = gf.mean((self.head(self.body(x)) - y) ** 2)
            self.optimizer.minimize(loss)
            return loss

    model = Trained()
    step = gf.function(model.step)
    step(*data), step(*data)
    model.head = gf.nn.Linear(3, 1)
    step(*data)
    assert step.session.state_dict()["adam.step"] == 3


def test_a_partial_follows_what_its_function_calls(data):
    def applied(x):
        return model(x)

    def scaled(factor, x):
        return applied(x) * factor

    model = gf.nn.Linear(3, 1)
    doubled = gf.function(functools.partial(scaled, 2))
    doubled(data[0])
    model = gf.nn.Linear(3, 1)
    np.testing.assert_allclose(doubled(data[0]), 2 * model(data[0]), rtol=1e-6)


def test_a_partial_follows(data):
    def scaled(factor, x):
        return model(x) * factor

    model = gf.nn.Linear(3, 1)
    double = functools.partial(scaled, 2)
    doubled = gf.function(double)
    within = gf.function(lambda x: double(x))
    doubled(data[0]), within(data[0])
    model = gf.nn.Linear(3, 1)
    expected = 2 * model(data[0])
    np.testing.assert_allclose(doubled(data[0]), expected, rtol=1e-6)
    np.testing.assert_allclose(within(data[0]), expected, rtol=1e-6)


def test_the_optimiser_of_a_step_that_is_gone_is_let_go(data):
    model, sizes = gf.nn.Linear(3, 1), []
    for _ in range(3):
        step = trained(model, gf.optim.Adam(0.05))
        step(*data)
        names = set(model.session.state_dict())
        assert {"adam.step", "adam.m.linear.weight"} <= names
        assert not any(name.endswith("_1") for name in names)
        sizes.append(len(model.weight.graph.nodes))
        del step
        gc.collect()
    assert len(set(sizes)) == 1


def test_executors_that_differ(data):
    model = gf.nn.Linear(3, 1)
    model(data[0])
    meta = gf.function(executor="meta")(lambda x: model(x))
    with pytest.raises(gf.GraphError, match="the weights of the other are on 'numpy'"):
        meta(data[0])
    np.testing.assert_array_equal(model(data[0]).shape, (32, 1))


def test_threads(data):
    """Runs of two models go on while a third function joins them."""
    x, y = data
    a, b = gf.nn.Linear(3, 1), gf.nn.Linear(3, 1)
    step_a, step_b = trained(a, gf.optim.SGD(0.01)), trained(b, gf.optim.SGD(0.01))
    step_a(x, y), step_b(x, y)
    failures: list[BaseException] = []
    counts = {step_a: 0, step_b: 0}
    end = threading.Event()

    def work(step: gf.Function) -> None:
        try:
            while not end.is_set():
                step(x, y)
                counts[step] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(step,)) for step in counts]
    for thread in threads:
        thread.start()
    both = gf.function(lambda x: a(x) + b(x))
    both(x)
    for _ in range(20):
        both(x)
    end.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert a.session is b.session
    assert min(counts.values()) > 0


def test_no_update_is_lost_when_models_join(data):
    x, y = data
    count_a, count_b = gf.Variable(0.0), gf.Variable(0.0)

    @gf.function
    def tick_a():
        gf.update(count_a, count_a + 1)
        return count_a

    @gf.function
    def tick_b():
        gf.update(count_b, count_b + 1)
        return count_b

    tick_a(), tick_b()
    done = [0]

    def work() -> None:
        for _ in range(500):
            tick_b()
            done[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    gf.function(lambda: count_a + count_b)()
    thread.join()
    assert done == [500]
    assert float(count_b) == 501
    assert float(count_a) == 1


def test_variables_of_a_function_and_a_model(data):
    model = gf.nn.Linear(3, 1)

    @gf.function
    def predict(x):
        count = gf.Variable(0, name="count")
        gf.update(count, count + 1)
        return model(x) * 0 + count

    assert predict(data[0])[0] == 0
    assert predict(data[0][:3])[0] == 1
    assert predict(data[0])[0] == 2


def test_draws_differ_between_models(data):
    x = np.ones((64, 3), np.float32)
    a, b = gf.nn.Dropout(0.5), gf.nn.Dropout(0.5)
    assert not np.array_equal(a(x), a(x))
    assert not np.array_equal(a(x), b(x))


@pytest.mark.parametrize(
    "make", [gf.optim.Adam, lambda lr: gf.optim.MultiSteps(gf.optim.Adam(lr), 2)]
)
def test_two_functions_have_one_optimiser(data, make):
    x, y = data
    model, alone = gf.nn.Linear(3, 1), gf.nn.Linear(3, 1)
    alone.load_state_dict(model.state_dict())
    optimizer, other = make(0.05), make(0.05)
    first, second = trained(model, optimizer), trained(model, optimizer)
    step = trained(alone, other)
    for count in (3, 2, 1):
        for one in (first, second):
            for _ in range(count):
                np.testing.assert_array_equal(one(x, y), step(x, y))
    del first
    gc.collect()
    for _ in range(3):
        # Other sizes, for which it is built anew.
        np.testing.assert_array_equal(second(x[:1], y[:1]), step(x[:1], y[:1]))
    np.testing.assert_array_equal(model.weight.numpy(), alone.weight.numpy())
    assert sum(name.endswith("adam.step") for name in model.session.state_dict()) == 1


def test_averages_in_another_function(data):
    model = gf.nn.Linear(3, 1)
    optimizer = gf.optim.EMA(gf.optim.SGD(0.1), decay=0.5)
    step = trained(model, optimizer)
    mean = None
    for _ in range(4):
        step(*data)
        now = model.weight.numpy()
        mean = now if mean is None else mean + (now - mean) * np.float32(0.5)
    bias = model.bias.numpy()

    @gf.function
    def averaged(x: gf.Tensor) -> gf.Tensor:
        return optimizer.averaged(model(x) - model.bias)

    np.testing.assert_allclose(averaged(data[0]), data[0] @ mean, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(model.bias.numpy(), bias)


def test_a_failed_build_loses_no_state(data):
    x, y = data
    model, alone = gf.nn.Linear(3, 1), gf.nn.Linear(3, 1)
    alone.load_state_dict(model.state_dict())
    optimizer = gf.optim.Adam(0.05)
    first, step = trained(model, optimizer), trained(alone, gf.optim.Adam(0.05))
    first(x, y), step(x, y)
    fails = [True]

    @gf.function
    def second(x: gf.Tensor, y: gf.Tensor) -> gf.Tensor:
        loss = gf.mean((model(x) - y) ** 2)
        optimizer.minimize(loss)
        if fails:
            raise RuntimeError
        return loss

    with pytest.raises(RuntimeError):
        second(x, y)
    fails.clear()
    for one in (second, first, second):
        np.testing.assert_array_equal(one(x, y), step(x, y))
