"""Benchmarks on a GPU: what differs there, on a stand-in for CuPy."""

import numpy as np
import pytest

import graphfw as gf
from benchmarks import devices, machine
from benchmarks.frameworks import Formula, copy_case, graphfw_case
from benchmarks.results import difference, fingerprints
from benchmarks.timing import mean_of


@pytest.fixture(autouse=True)
def on_gpu(fake, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setenv(devices.VARIABLE, "cuda")


def inputs():
    return [np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)]


def test_a_formula_and_its_gradient_compute_there(fake):
    case = graphfw_case(Formula(inputs, gf.tanh, wrt=(0,)))
    launched = len(fake.launches)
    y = np.tanh(inputs()[0])
    assert not difference(fingerprints(case.run()), fingerprints([y, 1 - y * y]), 1e-5, 1e-6)
    assert len(fake.launches) > launched


def test_the_floor_is_a_copy_on_the_gpu():
    case = copy_case(Formula(inputs, gf.tanh))
    assert mean_of(case.run, 3, devices.HostWatch()) > 0


@pytest.mark.parametrize("contender", ["graphfw", "copy"])
def test_events_time_what_was_launched(contender):
    watch = devices.stopwatch(contender)
    assert isinstance(watch, devices.CupyWatch)
    assert mean_of(lambda: None, 2, watch) >= 0


def test_who_computes_on_gpus(monkeypatch):
    monkeypatch.setattr(machine, "ON_GPU", {"graphfw": "numpy", "torch": "no_such_package"})
    assert machine.installed("graphfw", "cuda")
    assert not machine.installed("torch", "cuda")
    assert not machine.installed("numexpr", "cuda")
    assert machine.gpu()
