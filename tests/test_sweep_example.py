"""The search of examples/sweep.py: its results, trials that fail, and going on."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import graphfw as gf

FILE = Path(__file__).parent.parent / "examples" / "sweep.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module that the processes of its pool can import."""
    monkeypatch.syspath_prepend(str(FILE.parent))
    spec = importlib.util.spec_from_file_location("sweep", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "sweep", module)
    spec.loader.exec_module(module)
    return module


def in_this_process(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Compute trials here, and return a list of what is computed."""
    made = []

    def computed(trials, steps: int, processes: int, out: Path) -> Iterator:
        for trial in trials:
            made.append((trial.number, steps))
            yield example.attempted(trial, steps, out)

    monkeypatch.setattr(example, "computed", computed)
    return made


def test_options_do_not_depend_on_the_number_of_trials(example):
    assert example.drawn(3, 0) == example.drawn(3, 0)
    assert example.drawn(3, 0) != example.drawn(4, 0)
    assert example.rounds(5) == [1, 2, 5]


def test_half_go_on_failures_are_kept_apart_and_a_search_goes_on(example, monkeypatch, tmp_path):
    made = in_this_process(example, monkeypatch)
    trials = [example.Trial(i, 1e-2, 16, 0.0, "relu") for i in range(4)]
    trials[2] = trials[2]._replace(activation="none")
    results = example.search(trials, 16, 1, tmp_path)
    assert [sum(steps == now for _, steps in made) for now in (2, 4, 8, 16)] == [4, 2, 1, 1]
    assert results[0].steps == 16
    assert results[-1].number == 2
    assert results[-1].error == "KeyError: 'none'"
    path = tmp_path / "results.jsonl"
    lines = path.read_text().splitlines()
    assert len(lines) == 8
    path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:9])  # ended while it wrote
    made.clear()
    assert example.search(trials, 16, 1, tmp_path) == results
    assert made == [(2, 2), (results[0].number, 16)]  # what failed, and what was not written


def test_trials_that_go_on_have_the_weights_of_those_that_need_not(example, tmp_path):
    trial = example.drawn(5, 0)
    for steps in (3, 7):
        accuracy = example.train(trial, steps, tmp_path / "twice")
    assert example.train(trial, 7, tmp_path / "once") == accuracy
    assert example.train(trial, 3, tmp_path / "twice") >= 0  # from its history
    twice, once = (gf.train.Checkpoints(tmp_path / name / "trial-5") for name in ("twice", "once"))
    assert twice.latest.name == once.latest.name == "step-00000007.safetensors"
    from safetensors.numpy import load_file

    first, second = load_file(twice.latest), load_file(once.latest)
    assert first.keys() == second.keys()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def ends(trial, steps: int, out: Path):
    """Stand in for a trial of which one ends its process, as when memory is short."""
    if trial.number == 1:
        os._exit(9)
    from sweep import Result

    return Result(trial.number, steps, 0.5, "")


@pytest.mark.slow
def test_a_process_that_dies_loses_no_other_trial(example, monkeypatch, tmp_path):
    monkeypatch.setattr(example, "attempted", ends)
    trials = [example.drawn(number, 0) for number in range(4)]
    results = sorted(example.computed(trials, 2, 2, tmp_path))
    assert [result.error for result in results] == ["", "its process died", "", ""]


@pytest.mark.slow
def test_search_over_processes(tmp_path):
    from tests.test_examples import run

    first = run("sweep.py", "--trials", "4", "--steps", "80", folder=tmp_path)
    again = run("sweep.py", "--trials", "4", "--steps", "80", folder=tmp_path)
    table = again.splitlines()
    assert table == first.splitlines()[-len(table) :]
    assert len(table) == 6
    results = (tmp_path / "sweep-out" / "results.jsonl").read_text().splitlines()
    assert {json.loads(line)["steps"] for line in results} == {10, 20, 40, 80}
