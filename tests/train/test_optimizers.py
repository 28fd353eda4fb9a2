"""Optimisers around others in a training: gradients of several batches, averages for evaluation."""

import numpy as np
import pytest

import graphfw as gf
from tests.support.trainings import columns

K = 4


class Net:
    """A regression; its evaluation is also by the averages, where the optimiser keeps some."""

    def __init__(self, optimizer, norm=False):
        with gf.Graph() as g:
            self.x = gf.placeholder(("batch", 4), name="x")
            self.y = gf.placeholder(("batch", 1), name="y")
            norms = [gf.nn.BatchNorm(8)] if norm else []
            self.net = gf.nn.Sequential(
                gf.nn.Linear(4, 8), *norms, gf.nn.Tanh(), gf.nn.Linear(8, 1)
            )
            self.loss = gf.mean((self.net(self.x) - self.y) ** 2)
            self.step = optimizer.minimize(self.loss)
            error = gf.mean((self.net(self.x, training=False) - self.y) ** 2)
            self.metrics = {"error": error}
            if hasattr(optimizer, "averaged"):
                self.metrics["averaged"] = optimizer.averaged(error)
                self.means = [optimizer.averaged(v) for v in self.net.parameters()]
        self.session = gf.Session(g, seed=1)

    def fit(self, size, rows=96, **options):
        trainer = gf.train.Trainer(
            self.session, self.step, {"loss": self.loss}, feeds=[self.x, self.y],
            evaluation=self.metrics, **options,
        )  # fmt: skip
        batches = gf.data.batches(columns(rows), size, epochs=3)
        self.result = trainer.fit(batches, eval_data=gf.data.batches(columns(50), 16), every=96)
        return {v.name: self.session[v] for v in self.net.parameters()}


OPTIMISERS = {
    "SGD": lambda: gf.optim.SGD(0.1, momentum=0.9),
    "Adam": lambda: gf.optim.Adam(0.01),
    "schedule": lambda: gf.optim.Adam(gf.optim.schedules.cosine(0.02, 6)),
}


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_several_batches_a_step_are_a_large_batch(make):
    small, large = Net(gf.optim.MultiSteps(make(), K)), Net(make())
    found, expected = small.fit(8), large.fit(8 * K)
    assert (small.result.step, large.result.step) == (36, 9)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6, err_msg=name)
    losses = [net.result.history[-1]["loss"] for net in (small, large)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_statistics_of_batch_norm_follow_each_batch():
    made = Net(gf.optim.MultiSteps(gf.optim.SGD(0.0), K), norm=True)
    made.fit(8)
    mean = np.zeros(8)
    first = made.net[0]
    for batch in gf.data.batches(columns(), 8, epochs=3):
        hidden = batch["x"].astype(np.float64) @ made.session[first.weight]
        mean = 0.9 * mean + 0.1 * (hidden + made.session[first.bias]).mean(axis=0)
    running = next(v for v in made.net[1].buffers() if v.name.endswith("mean"))
    np.testing.assert_allclose(made.session[running], mean, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "average", [lambda one: gf.optim.EMA(one, 0.9), lambda one: gf.optim.SWA(one, start=5)]
)
def test_evaluation_with_averages(average, tmp_path):
    made = Net(average(gf.optim.Adam(0.01)))
    checkpoints = gf.train.Checkpoints(tmp_path)
    plain = Net(gf.optim.Adam(0.01))
    weights = made.fit(8, monitor="averaged", checkpoints=checkpoints)
    for name, value in plain.fit(8).items():
        np.testing.assert_array_equal(weights[name], value)  # training goes on undisturbed
    report = made.result.history[-1]
    assert made.result.best == report["eval/averaged"] != report["eval/error"]
    with_means = Net(gf.optim.SGD(0.0))
    for variable, value in zip(
        with_means.net.parameters(), made.session.run(made.means), strict=True
    ):
        with_means.session[variable] = value
    error = with_means.session.run(with_means.metrics["error"], columns(50))
    assert report["eval/averaged"] == pytest.approx(float(error), rel=1e-5)
    again = Net(average(gf.optim.Adam(0.01)))
    again.session.restore(checkpoints.best)
    error = again.session.run(again.metrics["averaged"], columns(50))
    assert report["eval/averaged"] == pytest.approx(float(error), rel=1e-5)
