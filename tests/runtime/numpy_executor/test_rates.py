"""The least times that profiles show: nothing takes less."""

import time

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import rates
from graphfw.runtime.numpy_executor.rates import Rates


def test_what_was_quicker_raises_the_rates():
    best = Rates(speed=1e9, bandwidth=1e9, cached=1e8)
    assert best.cached == 1e9, "a cache is no slower than memory"
    assert best.seconds(1000, 10) == 1e-6
    assert best.seconds(10, 1000) == 1e-6
    best.saw(1e6, 1 << 10, 1e-5)
    assert best.seconds(1e6, 0) == pytest.approx(1e-5)
    best.saw(0, 1 << 30, 0.01)
    assert best.bandwidth == best.cached == 2**30 / 0.01
    best.saw(1, 1 << 10, 1.0)
    best.saw(1, 1, 0.0)
    assert best.seconds(1e6, 0) == pytest.approx(1e-5), "what was slower lowers nothing"


def test_only_what_is_small_is_moved_in_a_cache():
    best = Rates(speed=1e9, bandwidth=1e9, cached=1e10)
    assert best.seconds(0, 1000) == 1e-7
    assert best.seconds(0, 1 << 30) == 2**30 / 1e9
    best.saw(0, 1000, 1e-8)
    assert (best.bandwidth, best.cached) == (1e9, 1e11)


def test_this_machine_is_measured_once():
    found = rates.rates()
    assert found is rates.rates()
    assert min(found.speed, found.bandwidth) > 1e6
    assert found.cached >= found.bandwidth


def test_as_fast_as_this_machine_multiplies():
    """On all its cores a product is not much faster than the rate says."""
    speed = rates.rates.__wrapped__().speed
    with gf.Graph() as g:
        x = gf.placeholder((512, 512), name="x")
        y = x @ x
    array = np.ones((512, 512), np.float32)
    with gf.Session(g) as session:
        plan = session.compile(y, [x])
        best = min(_seconds(plan, array) for _ in range(30))
    assert 2 * 512**3 / best < 1.5 * speed


def _seconds(plan, array):
    start = time.perf_counter()
    plan(array)
    return time.perf_counter() - start


def test_no_step_takes_less_than_the_least(monkeypatch, rng):
    """Whatever the machine did while it was measured."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    slow = Rates(speed=1.0, bandwidth=1.0, cached=1.0)
    monkeypatch.setattr("graphfw.runtime.numpy_executor.labels.rates", lambda: slow)
    monkeypatch.setattr("graphfw.runtime.numpy_executor.reports.rates", lambda: slow)
    with gf.Graph() as g:
        x = gf.placeholder(("n", 64), name="x")
        y = gf.softmax(gf.tanh(x @ x.T) @ x, axis=1)
        z = gf.sort(gf.sum(y, axis=0))
    with gf.Session(g) as session:
        found = session.compile([y, z], [x]).profile(rng.normal(size=(32, 64)).astype(np.float32))
    assert len(found.timings) > 1
    for timing in found.timings:
        assert 0 <= timing.least <= timing.seconds * (1 + 1e-9)
