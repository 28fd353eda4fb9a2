"""The range test of learning rates: its numbers, what it leaves as it was, and what it refuses."""

import numpy as np
import pytest

import graphfw as gf
from tests.support.trainings import columns, weights


class Net:
    """A regression with dropout, whose rate can be changed."""

    def __init__(self, lr=None, optimizer=gf.optim.Adam, fed=False):
        with gf.Graph() as g:
            self.x = gf.placeholder(("batch", 4), name="x")
            self.y = gf.placeholder(("batch", 1), name="y")
            if fed:
                self.rate = gf.placeholder((), name="rate")
            else:
                self.rate = gf.Variable(1e-3, name="rate", trainable=False)
            layers = gf.nn.Sequential(gf.nn.Linear(4, 8), gf.nn.Dropout(0.2), gf.nn.Linear(8, 1))
            self.loss = gf.mean((layers(self.x) - self.y) ** 2)
            self.step = optimizer(lr(self) if lr else self.rate).minimize(self.loss)
        self.session = gf.Session(g, seed=1)

    def find(self, data=None, **options):
        data = gf.data.batches(columns(), 8, seed=3, epochs=None) if data is None else data
        given = {"feeds": [self.x, self.y], "rate": self.rate} | options
        return gf.train.find_learning_rate(self.session, self.step, self.loss, data, **given)


def quadratic(scale, lr, **options):
    """Return the result for the loss scale w² / 2, with w = 1 at first."""
    with gf.Graph() as g:
        x = gf.placeholder((), "float64", name="x")
        w = gf.Variable(1.0, name="w", dtype="float64")
        rate = gf.Variable(0.0, name="rate", trainable=False, dtype="float64")
        loss = scale * w * w / 2 + 0 * x
        step = gf.optim.SGD(lr(rate)).minimize(loss)
    with gf.Session(g) as session:
        ones = [np.float64(1)] * 1000
        return gf.train.find_learning_rate(
            session, step, loss, ones, feeds=[x], rate=rate, **options
        )


class TestNumbers:
    @pytest.mark.parametrize("smoothing", [0.0, 0.8])
    def test_beside_the_definition(self, rng, smoothing):
        scale = float(rng.uniform(0.5, 20))
        found = quadratic(scale, lambda rate: rate, highest=100.0, smoothing=smoothing)
        rates = 1e-6 * 1e8 ** (np.arange(100) / 99)
        w, average, losses = 1.0, 0.0, []
        for number, rate in enumerate(rates, 1):
            average = smoothing * average + (1 - smoothing) * scale * w * w / 2
            losses.append(average / (1 - smoothing**number))
            w -= rate * scale * w
            if losses[-1] > 4 * min(losses):
                break
        assert found.diverged
        np.testing.assert_allclose(found.losses, losses, rtol=1e-9)
        np.testing.assert_allclose(found.rates, rates[: len(losses)], rtol=1e-12)
        assert 0.02 / scale < found.suggestion < 2 / scale  # what is stable

    def test_the_suggestion_is_where_the_slope_is_least(self):
        found = quadratic(1.0, lambda rate: rate, highest=100.0)
        slopes = np.gradient(found.losses, np.log(found.rates))
        assert found.suggestion == found.rates[int(np.argmin(slopes))]

    def test_a_placeholder_gives_what_a_variable_gives(self):
        found = [Net(fed=fed).find(highest=10.0) for fed in (False, True)]
        np.testing.assert_allclose(found[0].losses, found[1].losses, rtol=1e-6)
        assert found[0].rates == found[1].rates

    def test_the_factor_of_a_schedule(self):
        def half(rate):
            return lambda count: rate * gf.optim.schedules.constant(0.5)(count)

        whole = quadratic(3.0, lambda rate: rate, highest=1.0)
        found = quadratic(3.0, half, lowest=2e-6, highest=2.0)
        np.testing.assert_allclose(found.losses, whole.losses, rtol=1e-9)

    def test_a_loss_below_zero(self):
        found = quadratic(-1.0, lambda rate: rate, highest=10.0, steps=50)
        assert not found.diverged  # it falls without end
        assert len(found.rates) == 50

    def test_a_loss_that_falls_nowhere(self):
        found = quadratic(1.0, lambda rate: 0 * rate)
        assert (found.suggestion, found.diverged, len(found.rates)) == (None, False, 100)
        assert "steepest" not in str(found)

    def test_a_loss_that_is_not_finite(self):
        data = gf.data.batches(columns() | {"y": np.full((96, 1), np.nan, np.float32)}, 8)
        found = Net().find(data)
        assert (found.rates, found.losses, found.suggestion, found.diverged) == ((), (), None, True)

    def test_data_that_ends(self):
        found = Net().find(gf.data.batches(columns(), 8))
        assert len(found.rates) == 12
        with pytest.raises(gf.ArgumentError, match="no batches"):
            Net().find([])

    def test_the_table(self):
        lines = str(quadratic(1.0, lambda rate: rate, highest=100.0)).splitlines()
        assert lines[0].split() == ["rate", "loss"]
        assert sum(["steepest fall" in line for line in lines]) == 1
        assert lines[-1] == "ended where the loss grew"
        assert len(lines) < 30


class TestWhatItLeaves:
    @pytest.mark.parametrize("fed", [False, True])
    def test_the_session_is_as_it_was(self, fed):
        net, other = Net(fed=fed), Net(fed=fed)
        batch = [*columns(8).values(), *[np.float32(0.01)] * fed]
        plan, other_plan = [
            one.session.compile([one.loss, one.step], [one.x, one.y, *[one.rate] * fed])
            for one in (net, other)
        ]
        plan(*batch)
        before = weights(net.session), net.session.seed
        net.find(highest=1e3)
        assert (weights(net.session), net.session.seed) == before
        other_plan(*batch)
        assert plan(*batch)[0] == other_plan(*batch)[0]  # dropout goes on, too

    @pytest.mark.parametrize("error", [RuntimeError("the data's own"), KeyboardInterrupt()])
    def test_also_after_an_error(self, error):
        def batches():
            yield from gf.data.batches(columns(), 8)[:5]
            raise error

        net = Net()
        before = weights(net.session)
        with pytest.raises(type(error)):
            net.find(batches())
        assert weights(net.session) == before


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"rate": 1e-3}, "the rate is a float, no real variable or placeholder"),
            ({"rate": gf.optim.schedules.cosine(0.1, 10)}, "no real variable or placeholder"),
            ({"lowest": 0.0}, "lowest=0.0 must be above 0"),
            ({"lowest": 1.0, "highest": 0.1}, "highest=0.1 must be above lowest"),
            ({"highest": float("inf")}, "highest=inf must be above lowest"),
            ({"steps": 1}, "steps=1"),
            ({"steps": 2.5}, "steps=2.5"),
            ({"smoothing": 1.0}, r"smoothing=1.0 must be in \[0, 1\)"),
            ({"divergence": 1.0}, "divergence=1.0 must be above 1"),
        ],
    )
    def test_arguments(self, options, why):
        net = Net()
        before = weights(net.session)
        with pytest.raises(gf.ArgumentError, match=why) as caught:
            net.find(**options)
        assert caught.value.fix
        assert weights(net.session) == before

    def test_a_rate_that_the_step_does_not_have(self):
        for lr in (1e-3, gf.optim.schedules.cosine(0.1, 10)):
            net = Net(lr=lambda _, lr=lr: lr)
            with pytest.raises(gf.ArgumentError, match="does not depend on") as caught:
                net.find()
            assert "gf.Variable(1e-3" in caught.value.fix

    def test_what_is_no_rate(self):
        net = Net()
        with net.session.graph:
            half = net.rate / 2
        for tensor in (half, net.x):
            with pytest.raises(gf.ArgumentError, match="no real variable or placeholder"):
                net.find(rate=tensor)
        with pytest.raises(gf.ArgumentError, match="not an update"):
            gf.train.find_learning_rate(
                net.session, net.loss, net.loss, [], feeds=[net.x], rate=net.rate
            )
        with pytest.raises(gf.FeedError, match="has nothing for"):
            net.find(gf.data.batches({"x": columns()["x"]}, 8))
