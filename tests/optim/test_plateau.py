"""Rates that fall when a metric no longer gets better: beside PyTorch's, in loops and trainers."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim


def rates(rate, values):
    """Return the rate after each report."""
    with gf.Graph() as g:
        x = gf.placeholder((), name="x", dtype="float64")
        w = gf.Variable(1.0, name="w")
        optimiser = optim.SGD(rate)
        train, report, lr = optimiser.minimize(w * w), rate.report(x), optimiser.learning_rate()
    found = []
    with gf.Session(g) as session:
        session.run(train)
        for value in values:
            session.run(report, {x: value})
            found.append(float(session.run(lr)))
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"patience": 0, "cooldown": 3},
        {"patience": 2, "maximize": True},
        {"patience": 1, "rtol": 0.0, "atol": 0.5},
        {"patience": 0, "min_scale": 0.2},
    ],
)
def test_against_torch(rng, options):
    torch = pytest.importorskip("torch")
    values = np.abs(rng.standard_normal(30)) + np.linspace(2, 1, 30)
    values[7] = np.nan
    theirs = {
        "patience": options.get("patience", 3),
        "mode": "max" if options.get("maximize") else "min",
        "threshold": options.get("atol", 1e-4),
        "threshold_mode": "abs" if "atol" in options else "rel",
        "cooldown": options.get("cooldown", 0),
        "min_lr": options.get("min_scale", 0.0) * 0.8,
    }
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.8)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.5, eps=0, **theirs)
    expected = []
    for value in values:
        scheduler.step(float(value))
        expected.append(optimiser.param_groups[0]["lr"])
    rate = optim.ReduceOnPlateau(0.8, 0.5, **{"patience": 3, **options})
    np.testing.assert_allclose(rates(rate, values), expected, 1e-12)
    assert expected[-1] < 0.8


def test_reports_of_several_values_and_a_schedule():
    schedule = optim.schedules.constant(2.0)
    rate = optim.ReduceOnPlateau(schedule, 0.5, patience=0, every=3)
    values = [4, 0, 2, 9, 0, 0, 1, 1, 1, 3, 3, 3]  # means of 2, 3, 1, 3
    assert rates(rate, values) == [2.0] * 5 + [1.0] * 6 + [0.5]
    assert repr(rate) == "ReduceOnPlateau(constant(2.0), factor=0.5, patience=0)"


def test_names_whoever_comes_first():
    for first in ("minimize", "report"):
        rate = optim.ReduceOnPlateau(0.1)
        with gf.Graph():
            w = gf.Variable(1.0, name="w")
            if first == "report":
                rate.report(w)
            optim.Adam(rate).minimize(w * w)
        names = [v.name for v in rate.variables]
        assert names[:2] == ["reduce_on_plateau.scale", "reduce_on_plateau.best"]


def model(rate):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), name="x")
        loss = gf.mean((gf.nn.Linear(3, 1)(x) - 1) ** 2)
        optimiser = optim.Adam(rate)
        step = optimiser.minimize(loss)
    return g, x, loss, optimiser, step


def batches(count):
    data = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)
    return gf.data.batches({"x": data}, 16, seed=0, epochs=count)


def test_a_trainer_reports_losses_and_goes_on_from_a_checkpoint(tmp_path):
    found = {}
    for name, ends in {"whole": [8], "halves": [4, 8]}.items():
        for epochs in ends:
            rate = optim.ReduceOnPlateau(0.3, 0.5, patience=1, every=2)
            g, x, loss, optimiser, step = model(rate)
            with g:
                step = gf.group(step, rate.report(loss))
                lr = optimiser.learning_rate()
            with gf.Session(g, seed=1) as session:
                trainer = gf.train.Trainer(
                    session, step, {"loss": loss, "lr": lr}, feeds=[x],
                    checkpoints=gf.train.Checkpoints(tmp_path / name),
                )  # fmt: skip
                trainer.fit(batches(epochs), every=4, resume=True)
                found[name] = {v.name: session[v] for v in [*rate.variables, *g.variables]}
    assert found["whole"]["reduce_on_plateau.scale"] < 1
    for name, value in found["whole"].items():
        np.testing.assert_array_equal(found["halves"][name], value, err_msg=name)


def test_a_logger_reports_what_an_evaluation_finds():
    rate = optim.ReduceOnPlateau(0.1, 0.5, patience=0)
    g, x, loss, _, step = model(rate)
    with g:
        metric = gf.placeholder((), name="metric")
        report = rate.report(metric)
    with gf.Session(g, seed=1) as session:

        def reported(step, values):
            session.run(report, {metric: abs(values["eval/loss"] - 0.5) + step})

        trainer = gf.train.Trainer(
            session, step, {"loss": loss}, feeds=[x], evaluation={"loss": loss}, loggers=[reported]
        )
        trainer.fit(batches(2), eval_data=batches(1), every=2)
        assert session["reduce_on_plateau.scale"] == 0.125


@pytest.mark.parametrize(
    ("use", "text", "fix"),
    [
        (lambda w: optim.ReduceOnPlateau(0.1, 1.0), "factor=1.0 must be above 0 and", "use fac"),
        (lambda w: optim.ReduceOnPlateau(-0.1), "lr=-0.1 must be at least 0", "use lr=0.001"),
        (lambda w: optim.ReduceOnPlateau(0.1, patience=-1), "patience=-1 must be", "use patience"),
        (lambda w: optim.ReduceOnPlateau(0.1, every=0), "every=0 must be an int", "use every=1"),
        (lambda w: optim.ReduceOnPlateau(0.1, rtol=-1.0), "rtol=-1.0 must be", "use rtol"),
        (lambda w: optim.ReduceOnPlateau(0.1, min_scale=2), "min_scale=2 must be", "use min_sc"),
        (lambda w: optim.ReduceOnPlateau(0.1).report(w), "is float32[2], not a real", "reduce it"),
    ],
)
def test_what_makes_no_sense(use, text, fix):
    with gf.Graph():
        w = gf.Variable([1.0, 2.0], name="w")
        with pytest.raises(gf.ArgumentError) as caught:
            use(w)
    assert text in caught.value.summary
    assert caught.value.fix.startswith(fix)


def test_another_graph_and_a_value_of_python():
    rate = optim.ReduceOnPlateau(0.1)
    with gf.Graph():
        rate.report(gf.Variable(1.0, name="w"))
    with gf.Graph(), pytest.raises(gf.GraphError, match="belongs to another graph"):
        rate.report(gf.Variable(1.0, name="w"))
    with gf.Graph(), pytest.raises(gf.ArgumentError, match="the value is a float"):
        optim.ReduceOnPlateau(0.1).report(0.5)
