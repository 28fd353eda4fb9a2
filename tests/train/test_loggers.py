"""Loggers: what they write, and when they begin and close."""

import csv
import importlib.util
import inspect
import json
import sys
import time
from types import SimpleNamespace

import pytest

import graphfw as gf
from tests.support.trainings import Model, data


class Recorded:
    """A logger that notes its calls."""

    def __init__(self, fails=()):
        self.calls, self.fails = [], fails

    def _note(self, name, *args):
        self.calls.append((name, *args))
        if name in self.fails:
            raise OSError("no connection")

    def begin(self, record):
        self._note("begin", record)

    def __call__(self, step, values):
        self._note("log", step)

    def close(self):
        self._note("close")


class TestCalls:
    def test_loggers_are_called_with_each_report(self, tmp_path):
        seen = []
        log = gf.train.JsonLines(tmp_path / "runs" / "log.jsonl")
        loggers = [log, lambda step, values: seen.append((step, dict(values)))]
        result = Model().trainer(loggers=loggers).fit(data(), every=12)
        lines = [json.loads(line) for line in log.path.read_text().splitlines()]
        assert lines == result.history == [{"step": step, **values} for step, values in seen]

    def test_a_logger_that_fails_is_left_out_with_a_warning(self):
        def broken(step, values):
            raise OSError("no connection")

        with pytest.warns(UserWarning, match="a logger failed.*no connection") as caught:
            result = Model().trainer(loggers=[broken]).fit(data(), every=12)
        assert len(caught) == 1
        assert result.step == 36

    def test_they_begin_and_close_with_each_fit(self):
        model, log = Model(), Recorded()
        trainer = model.trainer(loggers=[log])
        for _ in range(2):
            trainer.fit(data(epochs=1), every=6)
        record = log.calls[0][1]
        plan = model.session.compile([model.step, [model.loss]], [model.x, model.y])
        assert (record["plan"], record["seed"]) == (plan.digest(), 1)
        names = ["begin", "log", "log", "close"]
        assert [name for name, *_ in log.calls] == names * 2

    def test_they_close_where_a_training_fails(self):
        def batches():
            yield data()[0]
            raise RuntimeError("the data's own")

        log = Recorded()
        with pytest.raises(RuntimeError, match="the data's own"):
            Model().trainer(loggers=[log]).fit(batches())
        assert [name for name, *_ in log.calls] == ["begin", "close"]

    def test_one_that_can_not_begin_is_an_error_before_the_first_step(self):
        first, second, model = Recorded(), Recorded(fails=["begin"]), Model()
        with pytest.raises(OSError, match="no connection"):
            model.trainer(loggers=[first, second]).fit(data())
        assert [name for name, *_ in first.calls] == ["begin", "close"]
        assert int(model.session["adam.step"]) == 0

    def test_one_that_can_not_close_is_a_warning(self):
        log = Recorded(fails=["close"])
        with pytest.warns(UserWarning, match="could not be closed: .*no connection"):
            assert Model().trainer(loggers=[log]).fit(data()).step == 36


class TestCsv:
    def test_it_has_the_reports(self, tmp_path, monkeypatch):
        monkeypatch.setenv("GRAPHFW_JIT", "1")  # only compiled plans know their memory
        log = gf.train.Csv(tmp_path / "runs" / "log.csv")
        model = Model()
        history = model.trainer(loggers=[log]).fit(data(), every=12).history
        model.trainer(evaluation={"error": model.error}, loggers=[log]).fit(
            data(epochs=1), eval_data=data(epochs=1)
        )
        with log.path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == ["step", "loss", "seconds", "waiting", "memory", "eval/error"]
        for row, report in zip(rows, history, strict=False):
            assert row.pop("eval/error") == ""
            assert {name: float(value) for name, value in row.items()} == report
        assert float(rows[3]["eval/error"]) > 0
        assert [path.name for path in log.path.parent.iterdir()] == ["log.csv"]

    def test_names_and_values_with_commas(self, tmp_path):
        log = gf.train.Csv(tmp_path / "log.csv")
        log(1, {'a, "b"': 0.5})
        gf.train.Csv(log.path)(2, {'a, "b"': float("nan")})
        with log.path.open(newline="") as file:
            assert list(csv.reader(file)) == [["step", 'a, "b"'], ["1", "0.5"], ["2", "nan"]]


class TestTensorBoard:
    def test_it_writes_values_and_the_record(self, tmp_path):
        pytest.importorskip("tensorboardX")
        logger = gf.train.TensorBoard(tmp_path)
        logger.begin({"seed": 7})
        logger(3, {"loss": 0.5})
        (events,) = tmp_path.iterdir()
        until = time.monotonic() + 30  # a thread of tensorboardX writes
        while b"loss" not in events.read_bytes() and time.monotonic() < until:
            time.sleep(0.01)
        assert b"loss" in events.read_bytes()
        logger.close()
        assert b'"seed": 7' in events.read_bytes()


class Service:
    """Stands for the modules wandb, trackio and mlflow."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def called(*args, **options):
            self.calls.append((name, args, options))
            return SimpleNamespace(id="r1", name="run-1", info=SimpleNamespace(run_id="r1"))

        return called


@pytest.fixture
def service(monkeypatch):
    def stand_in(name):
        made = Service()
        monkeypatch.setitem(sys.modules, name, made)
        return made

    return stand_in


class TestServices:
    @pytest.mark.parametrize(
        ("logger", "again"),
        [("Wandb", {"name": "first", "id": "r1"}), ("Trackio", {"name": "run-1"})],
    )
    def test_wandb_and_trackio(self, service, logger, again):
        module = service(logger.lower())
        log = getattr(gf.train, logger)("digits", name="first", config={"depth": 3}, mode="offline")
        assert not module.calls
        trainer = Model().trainer(loggers=[log])
        result = trainer.fit(data(), every=18)
        trainer.fit(data(epochs=1))
        names = ["init", "log", "log", "finish", "init", "log", "finish"]
        assert [name for name, *_ in module.calls] == names
        init, logged, _, _, second, *_ = [options for _, _, options in module.calls]
        record = init.pop("config")
        assert (record["depth"], record["seed"], len(record["plan"])) == (3, 1, 32)
        assert init == {"project": "digits", "name": "first", "mode": "offline"}
        assert logged == {"step": 18}
        values = {"step": 18, **module.calls[1][1][0]}
        assert values == result.history[0]
        expected = {"project": "digits", "mode": "offline", "resume": "allow"} | again
        assert {k: v for k, v in second.items() if k != "config"} == expected

    def test_mlflow(self, service):
        module = service("mlflow")
        log = gf.train.MLflow("digits", name="first", config={"depth": 3}, nested=True)
        trainer = Model().trainer(loggers=[log])
        result = trainer.fit(data())
        trainer.fit(data(epochs=1))
        names = ["set_experiment", "start_run", "log_params", "set_tags", "log_metrics", "end_run"]
        assert [name for name, *_ in module.calls] == [
            *names,
            *[n for n in names if n[4:] != "params"],
        ]
        experiment, start, params, tags, metrics, _, _, second, *_ = module.calls
        assert experiment[1] == ("digits",)
        assert start[2] == {"run_name": "first", "nested": True}
        assert params[1] == ({"depth": 3},)
        assert tags[1][0]["graphfw.seed"] == "1"
        assert metrics[2] == {"step": 36}
        assert {"step": 36, **metrics[1][0]} == result.history[0]
        assert second[2] == {"run_name": "first", "nested": True, "run_id": "r1"}

    def test_a_loop_of_your_own_needs_no_begin(self, service):
        module = service("wandb")
        log = gf.train.Wandb("digits")
        log(1, {"loss": 0.5})
        log.close()
        log.close()
        assert [name for name, *_ in module.calls] == ["init", "log", "finish"]

    @pytest.mark.parametrize(
        ("name", "module"),
        [
            ("Wandb", "wandb"),
            ("Trackio", "trackio"),
            ("MLflow", "mlflow"),
            ("TensorBoard", "tensorboardX"),
        ],
    )
    def test_packages_that_are_missing(self, monkeypatch, name, module):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError) as caught:
            getattr(gf.train, name)("digits")
        assert str(caught.value) == (
            f"gf.train.{name} needs the package {module}: pip install {module}"
        )


def test_the_arguments_are_those_of_the_packages():
    """Compare with the packages that are installed; tests need none."""
    for name, function, wanted in (
        ("wandb", "init", {"project", "name", "config", "id", "resume"}),
        ("trackio", "init", {"project", "name", "config", "resume"}),
        ("mlflow", "start_run", {"run_id", "run_name"}),
    ):
        if importlib.util.find_spec(name) is not None:
            module = importlib.import_module(name)
            assert wanted <= set(inspect.signature(getattr(module, function)).parameters)
