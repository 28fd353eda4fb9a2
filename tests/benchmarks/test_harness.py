"""The benchmarks' own rules; what they measure is no business of a test."""

from __future__ import annotations

import functools
import json
import pickle
import sys
import time

import numpy as np
import pytest

import graphfw as gf
from benchmarks import baseline, large_graphs, long_runs, report
from benchmarks.__main__ import main
from benchmarks.baseline import ratios
from benchmarks.registry import WORKLOADS
from benchmarks.results import difference, fingerprints
from benchmarks.sweep import SIZES
from benchmarks.timing import calls_for, text
from benchmarks.workers import Pool, Worker
from benchmarks.workload import Case, Contest, Failure, Result, Settings, Target


def ones(factor: float) -> Case:
    return Case(lambda: np.full(5, factor, np.float32))


def fails() -> Case:
    raise ValueError("no such thing")


def fails_later() -> Case:
    return Case(lambda: 1 / 0)


def hangs() -> Case:
    time.sleep(600)
    return ones(1.0)


def breaks_after(calls: int) -> Case:
    left = iter(range(calls))
    return Case(lambda: np.full(5, 1 + 0 * next(left), np.float32))


def contest(**makers) -> Contest:
    return Contest("ones", "ones", makers, (Target(0.5), Target(2.0, "seconds")))


@pytest.mark.parametrize(("device", "least"), [("cpu", 50), ("cuda", 20)])
def test_workloads_have_names_of_their_own_and_travel_to_other_processes(device, least):
    assert len(WORKLOADS[device]) > least
    for name, workload in WORKLOADS[device].items():
        assert workload.name == name
        assert workload.title
        if isinstance(workload, Contest):
            assert "graphfw" in workload.makers
            pickle.dumps(dict(workload.makers))


def test_sizes_of_sweeps_grow():
    assert list(SIZES) == sorted(set(SIZES))


@pytest.mark.parametrize(
    ("own", "other", "found"),
    [
        (1.0, 1.00005, ""),
        (1.0, 1.01, "result 0 is off by"),
        (np.nan, 1.0, "result 0 is off by inf"),
        (np.zeros(2), np.zeros(3), "result 0 has the shape (2,) for (3,)"),
        ([1.0, 2.0], [1.0], "2 results for 1"),
        (np.zeros((0, 3)), np.zeros((0, 3)), ""),
        ([1.0, np.zeros(3)], [1.0, np.ones(3)], "result 1 is off by"),
    ],
)
def test_difference(own, other, found):
    said = difference(fingerprints(own), fingerprints(other), rtol=1e-4, atol=1e-6)
    assert said.startswith(found)
    assert bool(said) is bool(found)


def test_difference_looks_all_over_large_arrays():
    whole = np.random.default_rng().standard_normal(1_000_003)
    half = whole.copy()
    half[500_000:] = 0
    assert difference(fingerprints(half), fingerprints(whole), 1e-4, 1e-6)


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (Target(1.0), 2.0),
        (Target(1.0, "torch"), 0.5),
        (Target(1.0, "copy"), 4.0),
        (Target(1.0, "seconds"), 2.0),
        (Target(1.0, "seconds", "graphfw, warm cache"), None),
        (Target(1.0, "jax"), None),
    ],
)
def test_targets(target: Target, value: float | None):
    seconds = {"graphfw": 2.0, "numpy": 1.0, "torch": 4.0, "copy": 0.5}
    assert target.value(seconds) == value


def test_rows_say_whether_a_target_is_reached():
    targets = (Target(0.5), Target(3.0, "seconds"))
    result = Result("w", "t", {"graphfw": 2.0, "numpy": 3.0}, targets=targets)
    assert "| NO (0.67 ×), yes (2 s) |" in report.rows(result)


@pytest.mark.parametrize(
    ("seconds", "said"), [(2.5, "2.5 s"), (0.0031, "3.1 ms"), (4e-6, "4 µs"), (-2e-9, "-2 ns")]
)
def test_times_in_words(seconds: float, said: str):
    assert text(seconds) == said


def test_a_round_is_one_call_at_least():
    assert calls_for(3.0) == 1
    assert calls_for(0.0) > 1000


@pytest.mark.slow  # some seconds
def test_contenders_that_fail_or_differ_have_no_time():
    settings = Settings(("graphfw", "numpy", "torch.compile"), threads=1, rounds=3, budget_s=0.1)
    with Pool(settings) as pool:
        one = functools.partial(ones, 1.0)
        first = pool.measure(contest(graphfw=one, numpy=one))
        assert set(first.seconds) == {"graphfw", "numpy"}
        assert first.minima["numpy"] <= first.seconds["numpy"]
        assert not first.failed

        differs = pool.measure(contest(graphfw=functools.partial(ones, 2.0), numpy=one))
        assert differs.failed == ("graphfw",)
        assert "differs from numpy" in differs.notes["graphfw"]
        assert set(differs.seconds) == {"numpy"}

        for maker in (fails, fails_later, *[functools.partial(breaks_after, n) for n in (1, 40)]):
            broken = pool.measure(contest(graphfw=maker, numpy=one))
            assert broken.failed == ("graphfw",)
            assert "failed: " in broken.notes["graphfw"]

        with pytest.raises(Failure, match="ZeroDivisionError"):
            pool.call("graphfw", divmod, 1, 0)


@pytest.mark.slow  # some seconds of waiting
def test_who_is_not_ready_in_time_is_not_measured():
    settings = Settings(("graphfw", "numpy"), threads=1, rounds=3, budget_s=0.1, patience_s=5.0)
    with Pool(settings) as pool:
        one = functools.partial(ones, 1.0)
        result = pool.measure(contest(graphfw=one, numpy=hangs))
        assert set(result.seconds) == {"graphfw"}
        assert result.notes == {"numpy": "failed: it was not ready in time"}
        assert set(pool.measure(contest(graphfw=one, numpy=one)).seconds) == {"graphfw", "numpy"}


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Have two workloads that measure nothing; return what runs the command, and who was asked."""
    asked: list[str] = []

    class Plain:
        targets = (Target(0.5, "numpy"),)

        def __init__(self, name: str) -> None:
            self.name = self.title = name

        def measure(self, runner) -> Result:
            asked.append(self.name)
            failed = ("numpy",) if self.name == "b" else ()
            seconds = {"graphfw": 1.0, "numpy": 4.0}
            return Result(self.name, self.title, seconds, targets=self.targets, failed=failed)

    monkeypatch.setitem(WORKLOADS, "cpu", {name: Plain(name) for name in "ab"})
    file = tmp_path / "figures.json"

    def command(*arguments: str) -> object:
        monkeypatch.setattr(sys, "argv", ["benchmarks", f"--json={file}", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code

    return command, asked, file


def test_measuring_goes_on_where_it_stopped(measured, capsys):
    command, asked, file = measured
    assert command("a") == 0
    assert command("--resume", "--seconds=-1") == 3
    assert command("--resume") == 1
    assert command("--resume") == 1
    assert asked == ["a", "b"]
    rows = capsys.readouterr().out.rsplit("minimum", 1)[1]
    assert rows.count("| graphfw | 1 s |") == 2
    assert rows.count("yes (0.25 ×)") == 2
    assert command("--resume", "b") == 1
    assert asked == ["a", "b", "b"]
    assert [one["name"] for one in json.loads(file.read_text("utf-8"))["results"]] == ["a", "b"]


def test_figures_of_another_machine_are_not_gone_on_with(measured, capsys):
    command, _, file = measured
    command()
    file.write_text(file.read_text("utf-8").replace('"cpu"', '"NVIDIA H100"'), "utf-8")
    assert command("--resume") == 2
    assert "has figures of another machine: NVIDIA H100" in capsys.readouterr().err


@pytest.mark.slow
def test_compiling_is_timed_in_a_process_of_its_own():
    with Pool(Settings(("graphfw",), rounds=1)) as pool:
        result = WORKLOADS["cpu"]["compile-newton-while"].measure(pool)
    assert not result.notes
    assert 0 < result.seconds["graphfw, compile alone"] < result.seconds["graphfw"]


@pytest.mark.parametrize("arguments", [[], ["sweep"], ["strategies"]])
@pytest.mark.parametrize("wrong", ["0", "-1", "x", "1000000", ""])
def test_threads_that_there_are_not(monkeypatch, capsys, arguments, wrong):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments, f"--threads={wrong}"])
    with pytest.raises(SystemExit):
        main()
    assert "is no number of threads from 1 to" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--json=no/such/folder.json"], ["sweep", "--out=no/such/folder"]]
)
def test_folders_are_looked_for_before_anything_is_measured(monkeypatch, capsys, arguments):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    with pytest.raises(SystemExit):
        main()
    assert "there is no folder no/such" in capsys.readouterr().err


def test_peers_of_a_sweep(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "sweep", "--peers=numpy,nobody"])
    with pytest.raises(SystemExit):
        main()
    assert "'nobody' is none of numpy, torch" in capsys.readouterr().err


@pytest.mark.parametrize("name", large_graphs.SHAPES)
def test_graphs_of_every_shape_have_about_as_many_nodes_as_asked(name):
    with gf.Graph() as g:
        fetches, feeds = large_graphs.SHAPES[name](120)
    assert 60 <= len(g.nodes) <= 240
    assert fetches
    assert [t.node for t in feeds] == [t.node for t in g.placeholders]


def test_the_table_of_large_graphs(monkeypatch, capsys):
    monkeypatch.setattr(large_graphs, "_row", lambda name, size: f"| {name} | {size} |")
    monkeypatch.setattr(sys, "argv", ["large_graphs", "chain", "rows", "--largest", "10000"])
    large_graphs.main()
    rows = capsys.readouterr().out.splitlines()[-4:]
    assert rows == ["| chain | 1000 |", "| chain | 10000 |", "| rows | 1000 |", "| rows | 10000 |"]


def test_ratios_of_pairs():
    found = ratios([1.0, 1.1, 0.9, 1.2, 0.8, 1.3, 0.7, 1.4, 0.6, 1.5, 0.5, 1.6, 0.4, 1.7, 0.3])
    assert found == (1.0, 0.6, 1.4)  # of 15 the fourth from either end: 98.2 and 96.5 %
    assert not found.slower
    assert ratios([1.05] * 15).slower
    assert not ratios([1.02] * 15).slower
    assert ratios([2.0] * 5).low == 0  # too few to say anything


def package_folder() -> str:
    return gf.__path__[0]


@pytest.mark.slow
def test_another_commit_runs_its_own_package(capsys):
    with pytest.raises(SystemExit) as ended:
        baseline.main(["HEAD", "two-ops", "--rounds", "3"])
    assert ended.value.code == 0
    assert "| two-ops |" in capsys.readouterr().out
    with baseline.package("HEAD") as folder:
        worker = Worker("graphfw", Settings(("graphfw",)), folder)
        assert worker.ask("call", package_folder, ()).startswith(folder)
        worker.stop()


def test_a_baseline_wants_a_commit_and_contests(capsys):
    for arguments, said in ([["no-such-commit"], "no-such-commit"], [["HEAD", "import"], "import"]):
        with pytest.raises(SystemExit) as ended:
            baseline.main(arguments)
        assert ended.value.code
        assert said in f"{ended.value.code}{capsys.readouterr().err}"


@pytest.mark.parametrize("family", long_runs.FAMILIES)
def test_long_runs_can_be_described(family):
    for operation in long_runs.FAMILIES[family]():
        with gf.Graph():
            operation.compute(*[gf.placeholder(s, operation.dtype) for s in operation.shapes])
