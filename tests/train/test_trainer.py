"""`gf.train.Trainer`: what a loop over data reports, keeps, goes on from and ends with."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from tests.support.trainings import Model, columns, data, weights

ROOT = Path(gf.__file__).parents[1]


def by_hand(count, seed=1):
    """Return the losses of a loop that is written out, and its session."""
    model = Model(seed=seed)
    plan = model.session.compile([model.loss, model.step], feeds=[model.x, model.y])
    losses = [float(plan(batch["x"], batch["y"])[0]) for batch in data()[:count]]
    return losses, model.session


class TestReports:
    def test_it_is_a_loop_that_calls_a_plan(self):
        losses, session = by_hand(36)
        model = Model()
        result = model.trainer().fit(data(), every=10)
        assert (result.step, result.ended_by) == (36, "data")
        assert [report["step"] for report in result.history] == [10, 20, 30, 36]
        means = [np.mean(losses[begin : begin + 10]) for begin in (0, 10, 20, 30)]
        np.testing.assert_allclose([r["loss"] for r in result.history], means, rtol=1e-6)
        assert weights(model.session) == weights(session)
        assert all([r["seconds"] > 0 and 0 <= r["waiting"] <= 1 for r in result.history])

    def test_evaluation_weighs_batches_by_rows(self):
        model = Model()
        result = model.trainer(evaluation={"error": model.error}, monitor="error").fit(
            data(), eval_data=gf.data.batches(columns(50), 16), every=36
        )
        (report,) = result.history
        fed = {model.x: columns(50)["x"], model.y: columns(50)["y"]}
        exact = float(model.session.run(model.error, fed))
        assert report["eval/error"] == pytest.approx(exact, rel=1e-5)
        assert (result.best, result.best_step) == (report["eval/error"], 36)
        found = gf.train.evaluate(
            model.session, {"error": model.error}, gf.data.batches(columns(50), 7),
            feeds=[model.x, model.y],
        )  # fmt: skip
        assert found == {"error": pytest.approx(exact, rel=1e-5)}

    def test_memory_is_what_is_planned_for_the_largest_batch(self, monkeypatch):
        monkeypatch.setenv("GRAPHFW_JIT", "1")  # only compiled plans know their memory
        model = Model()
        result = model.trainer().fit(data(), every=12)
        plan = model.session.compile([model.step, [model.loss]], [model.x, model.y])
        peak = plan.memory((8, 4), (8, 1)).peak
        assert [report["memory"] for report in result.history] == [peak] * 3
        assert peak > plan.memory((4, 4), (4, 1)).peak
        rows = columns(20)  # batches of 8, 8 and 4
        (report,) = model.trainer().fit(gf.data.batches(rows, 8)).history
        assert report["memory"] == peak

    def test_no_memory_where_none_is_planned(self):
        model = Model()
        model.session = gf.Session(model.session.graph, debug=True)
        (report,) = model.trainer().fit(data(epochs=1)).history
        assert set(report) == {"step", "loss", "seconds", "waiting"}

    def test_a_graph_becomes_a_session(self):
        model = Model(seed=0)
        graph = model.session.graph
        trainer = gf.train.Trainer(graph, model.step, {"loss": model.loss}, feeds=["x", "y"])
        trainer.fit(data())
        assert trainer.session.graph is graph
        model.trainer().fit(data())
        assert weights(trainer.session) == weights(model.session)


class TestCallbacks:
    def test_one_ends_the_training_with_a_checkpoint(self, tmp_path):
        checkpoints, seen = gf.train.Checkpoints(tmp_path), []

        def stop(training):
            seen.append((training.step, training.history[-1]["step"], len(checkpoints.paths())))
            return training.step >= 20

        callbacks = [lambda training: None, stop]
        trainer = Model().trainer(callbacks=callbacks, checkpoints=checkpoints)
        result = trainer.fit(data(), every=10)
        assert (result.step, result.ended_by) == (20, "callback")
        assert seen == [(10, 10, 1), (20, 20, 2)]

    def test_an_error_in_one_comes_after_the_checkpoint(self, tmp_path):
        checkpoints = gf.train.Checkpoints(tmp_path)

        def fails(training):
            raise RuntimeError("the callback's own")

        trainer = Model().trainer(callbacks=[fails], checkpoints=checkpoints)
        with pytest.raises(RuntimeError, match="the callback's own"):
            trainer.fit(data(), every=10)
        assert [path.name for path in checkpoints.paths()] == ["step-00000010.safetensors"]


class TestEnds:
    def test_patience(self):
        model = Model(learning_rate=0.0)
        result = model.trainer(evaluation={"error": model.error}, monitor="error", patience=3).fit(
            data(), eval_data=data(epochs=1), every=2
        )
        assert (result.ended_by, result.step, result.best_step) == ("patience", 8, 2)

    def test_the_largest_is_the_best_where_it_says_so(self):
        for maximize, best in ((True, max), (False, min)):
            result = Model().trainer(maximize=maximize).fit(data(), every=6)
            assert result.best == best([report["loss"] for report in result.history])

    @pytest.mark.parametrize("on_nan", ["raise", "stop", "ignore"])
    def test_numbers_that_are_not_finite(self, tmp_path, on_nan):
        given = columns()
        given["x"][40] = np.nan  # in the sixth batch
        checkpoints = gf.train.Checkpoints(tmp_path)
        trainer = Model().trainer(on_nan=on_nan, checkpoints=checkpoints)
        batches = gf.data.batches(given, 8)
        if on_nan == "raise":
            with pytest.raises(gf.ExecutionError, match="'loss' is nan after step 8"):
                trainer.fit(batches, every=4)
        else:
            result = trainer.fit(batches, every=4)
            assert result.ended_by == {"stop": "nan", "ignore": "data"}[on_nan]
            assert result.step == {"stop": 8, "ignore": 12}[on_nan]
            assert result.best_step == 4
        steps = {"ignore": [4, 8, 12]}.get(on_nan, [4])
        assert [p.name for p in checkpoints.paths()] == [f"step-{s:08}.safetensors" for s in steps]

    @pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
    def test_ctrl_c_ends_after_the_step_with_a_checkpoint(self, tmp_path):
        checkpoints = gf.train.Checkpoints(tmp_path)

        def dataset():
            for number, batch in enumerate(data()):
                if number == 7:
                    os.kill(os.getpid(), signal.SIGINT)
                yield batch

        before = signal.getsignal(signal.SIGINT)
        result = Model().trainer(checkpoints=checkpoints).fit(dataset(), ahead=0)
        assert signal.getsignal(signal.SIGINT) is before
        assert (result.ended_by, result.step) == ("interrupt", 8)
        model = Model(seed=9)
        trainer = model.trainer(checkpoints=checkpoints)
        trained = trainer.fit((batch for batch in data()), resume=True)
        assert (trained.step, trained.ended_by) == (36, "data")
        assert weights(model.session) == weights(by_hand(36)[1])

    def test_in_another_thread(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(Model().trainer().fit(data())))
        thread.start()
        thread.join(60)
        assert found[0].step == 36


class TestCheckpoints:
    def test_a_run_goes_on_from_the_latest(self, tmp_path):
        checkpoints = gf.train.Checkpoints(tmp_path / "runs", keep_last=2)
        first = Model().trainer(checkpoints=checkpoints).fit(data(epochs=2), every=5)
        model = Model(seed=9)
        result = model.trainer(checkpoints=checkpoints).fit(data(), every=5, resume=True)
        assert result.step == 36
        assert result.history[: len(first.history)] == first.history
        assert weights(model.session) == weights(by_hand(36)[1])
        names = [path.name for path in checkpoints.paths()]
        assert names == ["step-00000034.safetensors", "step-00000036.safetensors"]
        kept = Model().session.restore(checkpoints.best).metadata["training"]
        assert kept["step"] == kept["best_step"] == result.best_step

    def test_nothing_to_go_on_from(self, tmp_path):
        result = (
            Model().trainer(checkpoints=gf.train.Checkpoints(tmp_path)).fit(data(), resume=True)
        )
        assert result.step == 36
        with pytest.raises(gf.ArgumentError, match="no checkpoints to resume from"):
            Model().trainer().fit(data(), resume=True)
        model = Model()
        model.session.save(tmp_path / "step-00000099.safetensors")
        with pytest.raises(gf.CheckpointError, match="no checkpoint of a Trainer"):
            model.trainer(checkpoints=gf.train.Checkpoints(tmp_path)).fit(data(), resume=True)

    def test_a_checkpoint_that_can_not_be_written(self, tmp_path, monkeypatch):
        checkpoints = gf.train.Checkpoints(tmp_path)
        model = Model()
        full = gf.CheckpointError("the disk is full")

        def fails(*args, **options):
            raise full

        monkeypatch.setattr(model.session, "save", fails)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(gf.CheckpointError, match="the disk is full"):
                model.trainer(checkpoints=checkpoints).fit(data(), every=12)
        found = [str(one.message).splitlines()[0] for one in caught]
        assert found == [f"no checkpoint of step {s}: the disk is full" for s in (12, 24, 36)]

    def test_keep_last(self, tmp_path):
        for bad in (0, -1, True, 2.0):
            with pytest.raises(gf.ArgumentError, match="keep_last"):
                gf.train.Checkpoints(tmp_path, keep_last=bad)
        (tmp_path / "step-x.safetensors").write_text("another's")
        checkpoints = gf.train.Checkpoints(tmp_path, keep_last=1, keep_best=False)
        assert checkpoints.latest is None
        session = Model().session
        for step in (9, 100_000_000):
            checkpoints.save(session, step, is_best=True)
        assert [path.name for path in checkpoints.paths()] == ["step-100000000.safetensors"]
        assert not checkpoints.best.exists()
        assert (tmp_path / "step-x.safetensors").exists()


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"monitor": "accuracy"}, "no metric 'accuracy' to monitor"),
            ({"patience": 0}, "patience=0"),
            ({"checkpoints": "folder"}, "checkpoints is a str"),
            ({"on_nan": "never"}, "on_nan='never'"),
            ({"evaluation": ["loss"]}, "the metrics have no names"),
            ({"callbacks": print}, "callbacks=.* is no list of functions"),
            ({"loggers": ["log.csv"]}, "loggers=.* is no list of functions"),
        ],
    )
    def test_arguments(self, options, why):
        with pytest.raises(gf.ArgumentError, match=why):
            Model().trainer(**options)

    def test_what_is_no_step_or_no_metric(self):
        model = Model()
        with pytest.raises(gf.ArgumentError, match=r"pass what optimizer.minimize"):
            gf.train.Trainer(model.session, model.loss, {"loss": model.loss}, feeds=[model.x])
        with pytest.raises(gf.ArgumentError, match="the session is a str"):
            gf.train.Trainer("g", model.step, {"loss": model.loss}, feeds=[model.x])
        with pytest.raises(gf.ArgumentError, match="'memory' is what a report has of its own"):
            metrics = {"loss": model.loss, "memory": model.loss}
            gf.train.Trainer(model.session, model.step, metrics, feeds=[model.x])
        for metric in (model.x, 0.5):
            with pytest.raises(gf.ArgumentError, match="not a tensor without dims"):
                gf.train.Trainer(model.session, model.step, {"loss": metric}, feeds=[model.x])
        with pytest.raises(gf.ArgumentError, match="both the metrics and the data"):
            model.trainer().fit(data(), eval_data=data())
        with pytest.raises(gf.ArgumentError, match="every=0"):
            model.trainer().fit(data(), every=0)
        with pytest.raises(gf.ArgumentError, match="has no batches"):
            feeds = [model.x, model.y]
            gf.train.evaluate(model.session, {"loss": model.error}, [], feeds=feeds)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_of_a_terminal(tmp_path):
    script = """
        import sys, numpy as np, graphfw as gf
        with gf.Graph() as g:
            x = gf.placeholder(("batch", 4), name="x")
            loss = gf.mean(gf.nn.Linear(4, 1)(x) ** 2)
            step = gf.optim.SGD(0.1).minimize(loss)
        data = gf.data.batches({"x": np.ones((64, 4), np.float32)}, 8, epochs=None)
        kept = gf.train.Checkpoints(sys.argv[1])
        with gf.Session(g) as session:
            trainer = gf.train.Trainer(session, step, {"loss": loss}, feeds=[x], checkpoints=kept)
            print("begun", flush=True)
            print(trainer.fit(data).ended_by)
    """
    script = "\n".join([line[8:] for line in script.splitlines()])
    command = [sys.executable, "-c", script, str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    while not list(tmp_path.glob("step-*")):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupt\n"
    assert process.returncode == 0
