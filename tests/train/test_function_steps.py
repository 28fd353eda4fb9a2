"""`gf.train` with steps that are functions: as with a session, bit for bit."""

import os
import signal
import sys

import numpy as np
import pytest

import graphfw as gf
from tests.support.trainings import columns, data, weights


class Net:
    """A regression outside of graphs, with a step and an evaluation."""

    def __init__(self, *, seed=0, dropout=0.2, make=gf.optim.Adam, lr=1e-2):
        gf.set_seed(seed)
        self.layers = layers = gf.nn.Sequential(
            gf.nn.Linear(4, 8), gf.nn.ReLU(), gf.nn.Dropout(dropout), gf.nn.Linear(8, 1)
        )
        self.optimizer = optimizer = make(lr)

        @gf.function
        def step(x, y):
            loss = gf.mean((layers(x) - y) ** 2)
            optimizer.minimize(loss)
            return loss

        @gf.function
        def evaluate(x, y):
            return {"error": gf.mean((layers(x, training=False) - y) ** 2)}

        self.step, self.evaluate = step, evaluate

    def trainer(self, **options):
        return gf.train.Trainer(self.step, **options)


def by_hand(count=36):
    """Return the losses of a loop over calls, and the weights and optimiser's state after it."""
    net = Net()
    losses = [float(net.step(**batch)) for batch in data()[:count]]
    return losses, weights(net.step.session)


def of_session(net):
    """Return a trainer with a session and an evaluation, with the weights of a net."""
    with gf.Graph() as g:
        x, y = gf.placeholder(("n", 4), name="x"), gf.placeholder(("n", 1), name="y")
        layers = gf.nn.Sequential(
            gf.nn.Linear(4, 8), gf.nn.ReLU(), gf.nn.Dropout(0.0), gf.nn.Linear(8, 1)
        )
        loss = gf.mean((layers(x) - y) ** 2)
        step = gf.optim.Adam(1e-2).minimize(loss)
        error = gf.mean((layers(x, training=False) - y) ** 2)
    session = gf.Session(g)
    layers.load_state_dict(session, net.layers.state_dict())
    metrics, evaluation = {"loss": loss}, {"error": error}
    trainer = gf.train.Trainer(session, step, metrics, feeds=[x, y], evaluation=evaluation)
    return trainer, lambda: layers.state_dict(session)


def metrics_of(history):
    own = ("seconds", "waiting", "memory")
    return [{k: v for k, v in report.items() if k not in own} for report in history]


class TestSteps:
    def test_it_is_the_training_of_a_session(self):
        net = Net(dropout=0.0)
        trainer, state = of_session(net)
        held = gf.data.batches(columns(50), 16)
        expected = trainer.fit(data(), eval_data=held, every=10)
        found = net.trainer(evaluation=net.evaluate).fit(data(), eval_data=held, every=10)
        assert metrics_of(found.history) == metrics_of(expected.history)
        assert (found.best, found.best_step) == (expected.best, expected.best_step)
        assert [r.keys() for r in found.history] == [r.keys() for r in expected.history]
        own = net.layers.state_dict()
        assert {k: v.tobytes() for k, v in own.items()} == {
            k: v.tobytes() for k, v in state().items()
        }

    def test_it_is_a_loop_that_calls_the_function(self):
        losses, after = by_hand()
        net = Net()
        result = net.trainer().fit(data(), every=10)
        assert (result.step, result.ended_by) == (36, "data")
        means = [np.mean(losses[begin : begin + 10]) for begin in (0, 10, 20, 30)]
        np.testing.assert_allclose([r["loss"] for r in result.history], means, rtol=1e-6)
        assert weights(net.step.session) == after
        assert net.trainer().session is net.step.session is net.layers.session

    @pytest.mark.parametrize("kind", ["tuples", "lists", "generator", "more columns", "torch"])
    def test_batches(self, kind):
        net = Net()
        batches = list(data())
        if kind == "torch":
            torch = pytest.importorskip("torch")
            batches = [{k: torch.from_numpy(v) for k, v in batch.items()} for batch in batches]
        elif kind in ("tuples", "lists"):
            make = tuple if kind == "tuples" else list
            batches = [make(batch.values()) for batch in batches]
        elif kind == "more columns":
            batches = [batch | {"path": ["a"] * 8} for batch in batches]
        net.trainer().fit(iter(batches) if kind == "generator" else batches)
        assert weights(net.step.session) == by_hand()[1]

    def test_nested_arrays_defaults_and_further_columns(self):
        layer = gf.nn.Linear(4, 1)

        @gf.function
        def step(x, scale=2.0, **further):
            loss = gf.mean((layer(x["a"]) - further["y"]) ** 2) * scale
            gf.optim.SGD(0.1).minimize(loss)
            return {"loss": loss, "rows": x["a"].shape[0] * gf.ones(())}

        batches = [{"x": {"a": batch["x"]}, "y": batch["y"]} for batch in data()]
        before = layer.weight.numpy()
        (report,) = gf.train.Trainer(step).fit(batches).history
        assert report["rows"] == 8
        assert not np.array_equal(layer.weight.numpy(), before)

    def test_one_array(self):
        layer = gf.nn.Linear(4, 1)

        @gf.function
        def step(x):
            loss = gf.mean(layer(x) ** 2)
            gf.optim.SGD(0.1).minimize(loss)
            return loss

        result = gf.train.Trainer(step).fit([columns()["x"]] * 3)
        assert result.history[0]["loss"] > 0

    def test_the_last_batch_may_be_smaller(self):
        """Also where the function is built for a size of the batch."""
        net = Net()
        reshaped = gf.function(lambda x, y: net.step.fn(gf.reshape(x, (int(x.shape[0]), 4)), y))
        assert gf.train.Trainer(reshaped).fit(gf.data.batches(columns(20), 8)).step == 3

    def test_a_session_can_be_the_functions(self):
        with gf.Graph() as g:
            layer = gf.nn.Linear(4, 1)
        session = gf.Session(g, seed=3)

        @gf.function(session=session)
        def step(x, y):
            loss = gf.mean((layer(x) - y) ** 2)
            gf.optim.SGD(0.1).minimize(loss)
            return loss

        trainer = gf.train.Trainer(step)
        assert trainer.fit(data(), every=12).history[-1]["loss"] < 2
        assert trainer.session is session

    def test_methods(self):
        """A decorated method has its object as an argument; `gf.function` binds it."""

        class Learner:
            def __init__(self):
                self.layer, self.optimizer = gf.nn.Linear(4, 1), gf.optim.SGD(0.1)

            def step(self, x, y):
                loss = gf.mean((self.layer(x) - y) ** 2)
                self.optimizer.minimize(loss)
                return loss

            @gf.function
            def decorated(self, x, y):
                return self.step(x, y)

        losses = []
        for name in ("step", "decorated"):
            gf.set_seed(0)
            method = getattr(Learner(), name)
            losses.append(gf.train.Trainer(gf.function(method)).fit(data()).history[0]["loss"])
            with pytest.raises(gf.ArgumentError, match="the session is a method"):
                gf.train.Trainer(method)
        assert losses[0] == losses[1]

    def test_metrics_over_all_batches(self):
        """Of an evaluation that keeps counts in variables."""
        net, mean = Net(), gf.nn.metrics.Mean()

        @gf.function
        def evaluate(x, y):
            found = net.layers(x, training=False)
            mean.update(found)
            return {"mean": gf.mean(found)}

        exact = gf.train.evaluate(evaluate, data=gf.data.batches(columns(), 8))["mean"]
        assert float(gf.function(lambda: mean.result())()) == pytest.approx(exact, rel=1e-5)

    def test_averages(self):
        net = Net(make=lambda lr: gf.optim.EMA(gf.optim.Adam(lr), decay=0.9))

        @gf.function
        def evaluate(x, y):
            error = gf.mean((net.layers(x, training=False) - y) ** 2)
            return {"error": error, "averaged": net.optimizer.averaged(error)}

        held = gf.data.batches(columns(50), 16)
        trainer = net.trainer(evaluation=evaluate, monitor="averaged")
        result = trainer.fit(data(), eval_data=held, every=12)
        assert result.best == min(report["eval/averaged"] for report in result.history)
        assert result.history[-1]["eval/averaged"] != result.history[-1]["eval/error"]


class TestEnds:
    def test_patience_callbacks_and_loggers(self):
        logged = []
        net = Net(lr=0.0)
        trainer = net.trainer(
            evaluation=net.evaluate, monitor="error", patience=2,
            loggers=[lambda step, values: logged.append((step, sorted(values)))],
        )  # fmt: skip
        result = trainer.fit(data(), eval_data=gf.data.batches(columns(50), 16), every=4)
        assert (result.ended_by, result.step) == ("patience", 12)
        assert [step for step, _ in logged] == [4, 8, 12]
        assert {"eval/error", "loss", "seconds", "waiting"} <= set(logged[0][1])
        stopped = net.trainer(callbacks=[lambda now: now.step == 8]).fit(data(), every=4)
        assert (stopped.ended_by, stopped.step) == ("callback", 8)

    def test_a_loss_that_is_not_finite(self):
        columns_ = columns()
        columns_["x"][40] = np.nan
        with pytest.raises(gf.ExecutionError, match="'loss' is nan after step 8"):
            Net().trainer().fit(gf.data.batches(columns_, 8), every=4)

    @pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
    def test_ctrl_c_ends_after_the_step_with_a_checkpoint(self, tmp_path):
        checkpoints = gf.train.Checkpoints(tmp_path)

        def dataset():
            for number, batch in enumerate(data()):
                if number == 7:
                    os.kill(os.getpid(), signal.SIGINT)
                yield batch

        result = Net().trainer(checkpoints=checkpoints).fit(dataset(), ahead=0)
        assert (result.ended_by, result.step) == ("interrupt", 8)
        net = Net(seed=9)
        trained = net.trainer(checkpoints=checkpoints).fit((b for b in data()), resume=True)
        assert (trained.step, trained.ended_by) == (36, "data")
        assert weights(net.step.session) == by_hand()[1]


class TestCheckpoints:
    @pytest.fixture
    def checkpoints(self, tmp_path):
        return gf.train.Checkpoints(tmp_path / "runs", keep_last=2)

    def test_a_run_goes_on_from_the_latest(self, checkpoints):
        held = {"eval_data": gf.data.batches(columns(50), 16), "every": 5}
        options = {"checkpoints": checkpoints, "monitor": "error"}
        net = Net()
        first = net.trainer(evaluation=net.evaluate, **options).fit(data(epochs=2), **held)
        net = Net(seed=9)
        trainer = net.trainer(evaluation=net.evaluate, **options)
        result = trainer.fit(data(), resume=True, **held)
        assert (result.step, result.ended_by) == (36, "data")
        assert result.history[: len(first.history)] == first.history
        assert weights(net.step.session) == by_hand()[1]
        names = [path.name for path in checkpoints.paths()]
        assert names == ["step-00000034.safetensors", "step-00000036.safetensors"]
        kept = net.step.session.restore(checkpoints.best).metadata
        assert kept["training"]["step"] == result.best_step
        assert len(kept["run"]["plan"]) == 32

    def test_at_the_end_of_the_data(self, checkpoints):
        Net().trainer(checkpoints=checkpoints).fit(data())
        net = Net(seed=9)
        result = net.trainer(checkpoints=checkpoints).fit(data(), resume=True)
        assert (result.step, result.ended_by) == (36, "data")
        assert weights(net.step.session) == by_hand()[1]
        again = gf.train.Checkpoints(checkpoints.folder.parent / "again")
        Net().trainer(checkpoints=again).fit(batch for batch in data())
        with pytest.raises(gf.ArgumentError, match="the data has no batches, so step can't be"):
            Net().trainer(checkpoints=again).fit((batch for batch in data()), resume=True)

    def test_other_data_and_other_models_change_nothing(self, checkpoints):
        Net().trainer(checkpoints=checkpoints).fit(data(epochs=1))
        net = Net(seed=9)
        before = net.layers.state_dict()
        with pytest.raises(gf.ArgumentError, match="seed is 4 and was 3"):
            net.trainer(checkpoints=checkpoints).fit(data(seed=4), resume=True)
        other = Net(make=gf.optim.SGD)
        with pytest.raises(gf.CheckpointError, match="adam"):
            other.trainer(checkpoints=checkpoints).fit(data(), resume=True)
        for name, array in net.layers.state_dict().items():
            np.testing.assert_array_equal(array, before[name])


class TestRates:
    def test_it_is_the_range_test_of_a_session(self):
        rate = gf.Variable(1e-3, name="rate", trainable=False)
        net = Net(dropout=0.0, lr=rate)
        with gf.Graph() as g:
            x, y = gf.placeholder(("n", 4), name="x"), gf.placeholder(("n", 1), name="y")
            layers = gf.nn.Sequential(
                gf.nn.Linear(4, 8), gf.nn.ReLU(), gf.nn.Dropout(0.0), gf.nn.Linear(8, 1)
            )
            loss = gf.mean((layers(x) - y) ** 2)
            own = gf.Variable(1e-3, name="rate", trainable=False)
            update = gf.optim.Adam(own).minimize(loss)
        session = gf.Session(g)
        layers.load_state_dict(session, net.layers.state_dict())
        batches = data(epochs=None)
        expected = gf.train.find_learning_rate(
            session, update, loss, batches, feeds=[x, y], rate=own
        )
        found = gf.train.find_learning_rate(net.step, data=batches, rate=rate)
        assert found == expected
        assert rate.numpy() == np.float32(1e-3)
        assert weights(net.step.session).keys() >= {"adam.step", "rate"}
        assert float(net.step.session.state_dict()["adam.step"]) == 0

    def test_what_is_refused(self):
        rate = gf.Variable(1e-3, name="rate", trainable=False)
        with pytest.raises(gf.ArgumentError, match='does not depend on "rate"'):
            gf.train.find_learning_rate(Net().step, data=data(), rate=rate)
        net = Net(lr=rate)
        named = gf.function(lambda x, y: {"error": net.step.fn(x, y)})
        with pytest.raises(gf.ArgumentError, match="returns error, and no loss"):
            gf.train.find_learning_rate(named, data=data(), rate=rate)
        with pytest.raises(gf.ArgumentError, match="updates no variables"):
            gf.train.find_learning_rate(net.evaluate, data=data(), rate=rate)
        with pytest.raises(gf.ArgumentError, match="a function has its step"):
            gf.train.find_learning_rate(net.step, None, 1, data(), rate=rate)


def test_evaluate():
    net = Net()
    held = columns(50)
    found = gf.train.evaluate(net.evaluate, data=gf.data.batches(held, 7))
    exact = float(net.evaluate(**held)["error"])
    assert found == {"error": pytest.approx(exact, rel=1e-5)}
    with pytest.raises(gf.ArgumentError, match="has no batches"):
        gf.train.evaluate(net.evaluate, data=[])


def returning(make):
    layer = gf.nn.Linear(4, 1)

    @gf.function
    def step(x, y):
        loss = gf.mean((layer(x) - y) ** 2)
        gf.optim.SGD(0.1).minimize(loss)
        return make(loss, x)

    return step


class TestWhatIsRefused:
    """Before the first step; the weights and the folder are as before."""

    @pytest.mark.parametrize(
        ("make", "why"),
        [
            (lambda loss, x: None, "step returns no metrics"),
            (lambda loss, x: {}, "step returns no metrics"),
            (lambda loss, x: (loss, loss), "step returns a tuple without names"),
            (lambda loss, x: [loss], "step returns a list without names"),
            (lambda loss, x: {0: loss}, "the name 0 of a metric is no string"),
            (lambda loss, x: x, "'loss' is float32.* 4.* not a tensor without dims"),
            (lambda loss, x: {"loss": (loss, loss)}, "'loss' is .* not a tensor without dims"),
            (lambda loss, x: {"loss": loss, "memory": loss}, "'memory' is what a report has"),
            (lambda loss, x: {"error": loss}, "there is no metric 'loss' to monitor"),
        ],
    )
    def test_what_a_function_returns(self, make, why, tmp_path):
        step = returning(make)
        trainer = gf.train.Trainer(step, checkpoints=gf.train.Checkpoints(tmp_path / "runs"))
        with pytest.raises(gf.ArgumentError, match=why):
            trainer.fit(data())
        assert step.session.seed is not None
        assert step.session._state.snapshot.step == 0
        assert not (tmp_path / "runs").exists()

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (lambda b: {"x": b["x"]}, "it has nothing for \"y\"; its names are 'x'"),
            (lambda b: {"x": b["x"], "label": b["y"]}, 'it has nothing for "y"; its names'),
            (lambda b: (b["x"],), "it has 1 array, and step takes x, y"),
            (lambda b: (b["x"], b["y"], b["y"]), "it has 3 arrays"),
            (lambda b: b["x"], "it has 1 array"),
            (lambda b: b | {"y": 1.0}, "y is a float, no array"),
            (lambda b: b | {"y": [1.0, 2.0]}, r"y\[0\] is a float, no array"),
            (lambda b: b | {"y": np.array(["a"])}, "y: elements of dtype <U1 are not numbers"),
        ],
    )
    def test_batches(self, change, why):
        batches = [change(batch) for batch in data()]
        with pytest.raises(gf.FeedError, match=f"batch 0 of the data: {why}"):
            Net().trainer().fit(batches)

    def test_a_shape_that_does_not_fit(self):
        batches = [batch | {"x": batch["x"][:, :3]} for batch in data()]
        with pytest.raises(gf.ShapeError, match="contracting dims differ"):
            Net().trainer().fit(batches)

    def test_a_later_batch(self):
        batches = [*data()]
        batches[5] = {"x": batches[5]["x"]}
        with pytest.raises(gf.FeedError, match='batch 5 of the data: it has nothing for "y"'):
            Net().trainer().fit(batches)

    def test_no_step(self):
        with pytest.raises(gf.ArgumentError, match="evaluate updates no variables"):
            gf.train.Trainer(Net().evaluate).fit(data())

    def test_an_evaluation(self):
        net = Net()
        held = gf.data.batches(columns(50), 16)
        vectors = gf.function(lambda x, y: {"error": net.layers(x)})
        with pytest.raises(gf.ArgumentError, match="'error' is float32"):
            net.trainer(evaluation=vectors).fit(data(), eval_data=held)
        with pytest.raises(gf.ArgumentError, match="a generator can't be read again"):
            net.trainer(evaluation=net.evaluate).fit(data(), eval_data=(b for b in held))
        before = weights(net.layers.session)
        with pytest.raises(gf.ArgumentError, match='step evaluates, and updates "sequential'):
            net.trainer(evaluation=net.step).fit(data(), eval_data=held)
        with pytest.raises(gf.ArgumentError, match='step evaluates, and updates "sequential'):
            gf.train.evaluate(net.step, data=held)
        assert {k: v for k, v in weights(net.layers.session).items() if k in before} == before
        with pytest.raises(gf.ArgumentError, match="both the metrics and the data"):
            net.trainer(evaluation=net.evaluate).fit(data())

    def test_arguments(self):
        net = Net()
        with pytest.raises(gf.ArgumentError, match="the session is a function") as caught:
            gf.train.Trainer(net.step.fn)
        assert "gf.function(…)" in caught.value.fix
        with pytest.raises(gf.ArgumentError, match="the session is a Sequential"):
            gf.train.Trainer(net.layers)
        with pytest.raises(gf.ArgumentError, match="a function has its step, metrics"):
            gf.train.Trainer(net.step, feeds=["x", "y"])
        with pytest.raises(gf.ArgumentError, match="one of step and evaluation is a function"):
            net.trainer(evaluation={"error": 1.0})
        with pytest.raises(gf.ArgumentError, match="takes xs only by position"):
            gf.train.Trainer(gf.function(lambda *xs: xs[0])).fit(data())
        with pytest.raises(gf.ArgumentError, match="takes no arguments"):
            gf.train.Trainer(gf.function(lambda: gf.ones(()))).fit(data())
        with gf.Graph() as g:
            loss = gf.Variable(1.0) * 1.0
            step = gf.optim.SGD(0.1).minimize(loss)
        with pytest.raises(gf.ArgumentError, match="a session needs metrics"):
            gf.train.Trainer(g, step)
        with pytest.raises(gf.ArgumentError, match="a session needs feeds"):
            gf.train.Trainer(g, step, {"loss": loss})
