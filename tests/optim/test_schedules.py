"""Learning rates as functions of the step, against PyTorch's schedulers."""

import copy
import pickle
import re

import numpy as np
import pytest

import graphfw as gf
from graphfw.optim import schedules

torch = pytest.importorskip("torch")


def rates(schedule, count):
    with gf.Graph() as g:
        step = gf.placeholder((), gf.int64, name="step")
        rate = schedule(step)
    assert rate.dtype is gf.float64
    assert rate.shape == ()
    with gf.Session(g) as session:
        return np.array([float(session.run(rate, {step: t})) for t in range(count)])


def torch_rates(lr, make, count):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr)
    scheduler = make(optimiser)
    found = []
    for _ in range(count):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        if len(found) < count:
            scheduler.step()
    return np.array(found)


lr_scheduler = torch.optim.lr_scheduler


@pytest.mark.parametrize(
    ("ours", "theirs", "count"),
    [
        (schedules.step_decay(0.3, 4, 0.5), lambda o: lr_scheduler.StepLR(o, 4, 0.5), 13),
        (schedules.exponential(0.3, 0.9), lambda o: lr_scheduler.ExponentialLR(o, 0.9), 13),
        (schedules.cosine(0.3, 10, final=0.01),
         lambda o: lr_scheduler.CosineAnnealingLR(o, 10, 0.01), 11),
        (schedules.linear(0.3, 10, final=0.03), lambda o: lr_scheduler.LinearLR(o, 1, 0.1, 10), 13),
        (schedules.polynomial(0.3, 10, power=2.5),
         lambda o: lr_scheduler.PolynomialLR(o, 10, 2.5), 13),
        (schedules.piecewise([3, 5], [0.3, 0.03, 0.003]),
         lambda o: lr_scheduler.MultiStepLR(o, [3, 5], 0.1), 9),
        (schedules.one_cycle(0.3, 20), lambda o: lr_scheduler.OneCycleLR(o, 0.3, 20), 20),
        (schedules.one_cycle(0.3, 11, rise=0.5, start=0.1, final=0.01),
         lambda o: lr_scheduler.OneCycleLR(o, 0.3, 11, pct_start=0.5, div_factor=10,
                                           final_div_factor=10), 11),
        (schedules.warmup(0.3, 4), lambda o: lr_scheduler.LinearLR(o, 0.25, 1, 3), 8),
        (schedules.constant(0.3), lambda o: lr_scheduler.ConstantLR(o, 1), 3),
        (schedules.cosine_restarts(0.3, 5, final=0.01),
         lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, eta_min=0.01), 17),
        (schedules.cosine_restarts(0.3, 3, growth=2),
         lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2), 50),
        (schedules.cyclic(0.1, 0.3, 4, 3), lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.3, 4, 3), 22),
        (schedules.cyclic(0.1, 0.3, 3, factor=0.5),
         lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.3, 3, mode="triangular2"), 22),
        (schedules.join([schedules.warmup(0.3, 4), schedules.cosine(0.3, 6), 0.03], [3, 8]),
         lambda o: lr_scheduler.SequentialLR(
             o, [lr_scheduler.LinearLR(o, 0.25, 1, 3), lr_scheduler.CosineAnnealingLR(o, 6),
                 lr_scheduler.ConstantLR(o, 0.1, 99)], [3, 8]), 12),
    ],
    ids=lambda value: repr(value) if not callable(value) or hasattr(value, "_text") else "",
)  # fmt: skip
def test_against_torch(ours, theirs, count):
    expected = torch_rates(0.3, theirs, count)
    np.testing.assert_allclose(rates(ours, count), expected, 1e-9, 1e-12)


def test_cosine_with_warmup():
    got = rates(schedules.cosine(1.0, 12, final=0.1, warmup=4), 15)
    np.testing.assert_allclose(got[:4], [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(got[4:13], 0.1 + 0.9 * (1 + np.cos(np.pi * np.arange(9) / 8)) / 2)
    np.testing.assert_allclose(got[12:], 0.1)


def test_warmup_of_a_schedule():
    got = rates(schedules.warmup(schedules.linear(1.0, 4), 2), 8)
    np.testing.assert_allclose(got, [0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0])


def test_restarts_begin_where_they_should():
    """The number of cosines is a logarithm, and those of powers are rounded."""
    for growth in (2, 3, 5, 10):
        starts = [4 * (growth**n - 1) // (growth - 1) for n in range(12)]
        around = np.array([[s - 1, s, s + 1] for s in starts[1:]]).ravel()
        schedule = schedules.cosine_restarts(1.0, 4, growth=growth, factor=0.5)
        with gf.Graph() as g:
            step = gf.placeholder((), gf.int64, name="step")
            rate = schedule(step)
        with gf.Session(g) as session:
            got = np.array([float(session.run(rate, {step: t})) for t in around]).reshape(-1, 3)
        np.testing.assert_allclose(got[:, 1], 0.5 ** np.arange(1, 12))  # the peaks
        assert (got[:, 0] < got[:, 1]).all()
        assert (got[:, 2] <= got[:, 1]).all()


def test_inverse_sqrt():
    number = np.arange(1, 21)
    wanted = 0.3 * np.minimum(number / 4, np.sqrt(4 / number))
    np.testing.assert_allclose(rates(schedules.inverse_sqrt(0.3, 4), 20), wanted)
    np.testing.assert_allclose(rates(schedules.inverse_sqrt(0.3), 20), 0.3 / np.sqrt(number))


@pytest.mark.parametrize(
    ("shape", "weight"),
    [
        ("linear", lambda x: 1 - x),
        ("cosine", lambda x: (1 + np.cos(np.pi * x)) / 2),
        ("sqrt", lambda x: 1 - np.sqrt(x)),
    ],
)
def test_warmup_stable_decay(shape, weight):
    schedule = schedules.warmup_stable_decay(1.0, 12, 3, 5, final=0.1, shape=shape)
    fall = 0.1 + 0.9 * weight(np.arange(6) / 5)
    wanted = [1 / 3, 2 / 3, 1, 1, 1, 1, 1, *fall, 0.1, 0.1]
    np.testing.assert_allclose(rates(schedule, 15), wanted)


def test_everything_stays_at_its_end():
    for make in (schedules.linear, schedules.polynomial, schedules.cosine):
        np.testing.assert_allclose(rates(make(1.0, 3, final=0.2), 6)[3:], 0.2)
    assert rates(schedules.one_cycle(1.0, 10), 14)[9:] == pytest.approx([4e-6] * 5)


def test_slow_exponential():
    got = rates(schedules.exponential(1.0, 0.5, every=10), 21)
    np.testing.assert_allclose(got[::10], [1, 0.5, 0.25])


def test_large_steps_are_exact():
    with gf.Graph() as g:
        step = gf.placeholder((), gf.int64, name="step")
        rate = schedules.linear(1.0, 10**9)(step)
    with gf.Session(g) as session:
        assert float(session.run(rate, {step: 10**9 - 1})) == pytest.approx(1e-9)


def test_texts():
    assert repr(schedules.cosine(3e-3, 100)) == "cosine(0.003, 100, final=0.0)"
    assert repr(schedules.cosine(1.0, 9, warmup=2)) == "warmup(cosine(1.0, 7, final=0.0), 2)"
    wsd = schedules.warmup_stable_decay(1.0, 9, warmup=2, decay=3)
    assert repr(wsd) == "warmup_stable_decay(1.0, 9, 2, 3, final=0.0, shape='linear')"
    assert repr(schedules.join([0.1, wsd], [3])) == f"join([constant(0.1), {wsd!r}], [3])"
    assert repr(schedules.cyclic(0.1, 0.2, 3)) == "cyclic(0.1, 0.2, 3, fall=3, factor=1.0)"
    assert repr(schedules.polynomial(1.0, 9)) == "polynomial(1.0, 9, final=0.0, power=1.0)"


def test_schedules_and_their_optimisers_can_be_pickled():
    schedule = schedules.warmup(schedules.polynomial(0.1, steps=9, power=2.0), 3)
    again = pickle.loads(pickle.dumps(gf.optim.SGD(schedule))).lr
    assert repr(again) == repr(schedule)
    np.testing.assert_array_equal(rates(again, 9), rates(schedule, 9))
    joined = schedules.join([schedule, schedules.inverse_sqrt(0.1, 2)], [4])
    np.testing.assert_array_equal(rates(pickle.loads(pickle.dumps(joined)), 9), rates(joined, 9))
    assert repr(copy.deepcopy(schedules.cosine(1.0, 9))) == repr(schedules.cosine(1.0, 9))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: schedules.constant(0), "constant: lr=0 must be above 0"),
        (lambda: schedules.step_decay(0.1, 0), "step_decay: every=0 must be above 0"),
        (lambda: schedules.exponential(0.1, -1), "exponential: factor=-1 must be above 0"),
        (lambda: schedules.linear("a", 3), "linear: lr='a' is no number"),
        (lambda: schedules.linear(0.1, 0), "linear: steps=0 must be above 0"),
        (lambda: schedules.linear(0.1, 3, final=-1), "linear: final=-1 must not be negative"),
        (lambda: schedules.cosine(0.1, 0), "cosine: steps=0 must be above 0"),
        (lambda: schedules.cosine(0.1, 3, warmup=3), "warmup=3 must be at least 0 and below step"),
        (lambda: schedules.polynomial(0.1, 3, power=0), "polynomial: power=0"),
        (lambda: schedules.warmup(-1, 3), "constant: lr=-1 must be above 0"),
        (lambda: schedules.piecewise([1], [0.1]), "1 boundary divide 2 rates, not 1"),
        (lambda: schedules.piecewise([2, 2], [1, 1, 1]), r"the boundaries \[2, 2\] must rise"),
        (lambda: schedules.piecewise([2], [1, 0]), r"rates\[1\]=0 must be above 0"),
        (lambda: schedules.join([0.1], [1]), "1 boundary divide 2 schedules, not 1"),
        (lambda: schedules.join([0.1, 0.2], [0]), r"boundaries\[0\]=0 must be above 0"),
        (lambda: schedules.cyclic(0.1, 0.2, 0), "cyclic: rise=0 must be above 0"),
        (lambda: schedules.cyclic(-0.1, 0.2, 1), "cyclic: low=-0.1 must not be negative"),
        (lambda: schedules.cosine_restarts(0.1, 3, growth=0), "growth=0 must be at least 1"),
        (lambda: schedules.inverse_sqrt(0.1, 0), "inverse_sqrt: warmup=0 must be above 0"),
        (lambda: schedules.warmup_stable_decay(0.1, 3, 2, 2), "are more than steps=3"),
        (lambda: schedules.one_cycle(0.1, 3), "leaves no update to rise in"),
        (lambda: schedules.one_cycle(0.1, 30, rise=1), "rise=1 must be below 1"),
    ],
)
def test_mistakes(make, text):
    with pytest.raises(gf.ArgumentError) as caught:
        make()
    assert re.search(text, caught.value.summary)  # its whole text has the line of the test
