"""The long tail's own rules: drawing, agreement of contenders, ratios and tables."""

from __future__ import annotations

import json
import pickle
import sys

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.longtail import layouts, suite, summary
from benchmarks.longtail.draw import FULL, QUICK, TINY, Draw
from benchmarks.results import difference, fingerprints
from benchmarks.workers import Pool
from benchmarks.workload import Contest, Result, Settings

SEED = 5


def one_of_each_class() -> list[str]:
    found: dict[str, str] = {}
    for name, workload in suite.workloads(SEED, TINY).items():
        if isinstance(workload, Contest) and "numpy" in workload.makers:
            found.setdefault(name.split("/")[0], name)
    return list(found.values())


@pytest.mark.slow
def test_a_seed_draws_the_same_workloads():
    first, again, other = [suite.workloads(seed) for seed in (SEED, SEED, SEED + 1)]
    titles = {name: workload.title for name, workload in first.items()}
    assert titles == {name: workload.title for name, workload in again.items()}
    assert list(first) == list(other)
    changed = [name for name, workload in other.items() if workload.title != titles[name]]
    assert len(changed) > 0.9 * len(titles)


@pytest.mark.slow
def test_workloads_are_many_and_travel_to_other_processes():
    drawn = suite.workloads(SEED)
    assert len(drawn) >= 120
    assert {name.split("/")[0] for name in drawn} == set(suite.CLASSES)
    for name, workload in drawn.items():
        assert workload.name == name
        assert workload.title
        if isinstance(workload, Contest):
            assert {"graphfw"} < set(workload.makers)
            pickle.dumps(dict(workload.makers))


@pytest.mark.smoke
@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_sizes_are_of_their_range(scale):
    for number in range(200):
        draw = Draw(number, "sizes", scale)
        assert 100 <= draw.size(100, 10_000) <= 10_000
        found = draw.size(10, 90, multiple=8)
        assert found % 8 == 0
        assert 16 <= found <= 90


def test_quick_sizes_are_the_smaller_ones():
    for number in range(50):
        full, quick, tiny = (
            Draw(number, "x", scale).size(100, 1_000_000) for scale in (FULL, QUICK, TINY)
        )
        assert quick <= full
        assert tiny <= 1000


def test_tiny_sizes_keep_to_what_makes_sense():
    assert Draw(0, "x", TINY).size(2, 4, least=7) == 7
    assert Draw(0, "x", TINY).size(64, 64, multiple=16) == 16


def test_choices_are_all_drawn():
    found = {Draw(number, "x").choice("a", "b", "c") for number in range(50)}
    assert found == {"a", "b", "c"}


@pytest.mark.parametrize("layout", ["C order", *layouts._STRANGE])
def test_layouts_change_no_number(layout):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = layouts.laid(array, layout)
    assert np.array_equal(found, array)
    assert (found.strides == array.strides) == (layout == "C order")


@pytest.mark.slow
def test_contenders_agree_on_one_of_each_class():
    drawn = suite.workloads(SEED, TINY)
    with Pool(Settings(("graphfw", "numpy"), threads=1, rounds=0)) as pool:
        notes = {name: pool.measure(drawn[name]).notes for name in one_of_each_class()}
    assert not {name: said for name, said in notes.items() if said}


@pytest.mark.slow
@pytest.mark.parametrize("group", suite.CLASSES)
def test_contenders_agree(group):
    drawn = suite.workloads(SEED, TINY)
    who = ("graphfw", "numpy", "torch", "torch+copy", "jax", "jax+copy", "numba")
    with Pool(Settings(who, threads=1, rounds=0)) as pool:
        for name, workload in drawn.items():
            if name.startswith(f"{group}/") and isinstance(workload, Contest):
                result = pool.measure(workload)
                assert not result.notes, f"{workload.title}: {result.notes}"
                assert not result.seconds


@pytest.mark.parametrize("shown", [1j, -1.0])
def test_both_components_of_complex_numbers_are_compared(shown):
    one = np.ones(3, np.complex64)
    assert not difference(fingerprints(one), fingerprints(one + 0), 1e-4, 1e-6)
    assert difference(fingerprints(one + shown), fingerprints(one), 1e-4, 1e-6)


# Ratios


def result(name: str, steps=(), notes=None, **minima: float) -> Result:
    named = {key.replace("_copy", "+copy"): value for key, value in minima.items()}
    medians = {key: 2 * value for key, value in named.items()}
    return Result(name, "what", medians, named, notes=notes or {}, steps=list(steps))


def test_a_copy_counts_that_a_peer_needs():
    (row,) = summary.rows_of(result("a/b", graphfw=4.0, torch=5.0, jax=1.0, jax_copy=8.0))
    assert (row.peer, row.ratio, row.of_medians, row.free) == ("torch", 0.8, 0.8, 4.0)
    assert row.verdict == "ahead"
    assert row.group == "a"


def test_a_call_of_numpy_is_level_up_to_a_twentieth():
    native, numpy = [("multiply", 1.0)], [("sort (outside of native code)", 0.9), ("add", 0.1)]
    for steps, own, verdict in (
        (numpy, 1.04, "tie"),
        (numpy, 1.06, "BEHIND"),
        (native, 1.04, "BEHIND"),
        (native, 1.0, "ahead"),
    ):
        (row,) = summary.rows_of(result("a/b", steps, graphfw=own, numpy=1.0))
        assert row.verdict == verdict
    assert row.step == "multiply 100%"


def test_a_warm_cache_has_a_row_of_its_own():
    found = Result("c/first", "what", {"graphfw": 4.0, "jax": 8.0, "torch": 5.0})
    found.seconds |= {"graphfw, warm cache": 1.0, "jax, warm cache": 2.0}
    cold, warm = summary.rows_of(found)
    assert (cold.name, cold.peer, cold.ratio) == ("c/first", "torch", 0.8)
    assert (warm.name, warm.peer, warm.ratio) == ("c/first-warm", "jax", 0.5)


def test_who_has_no_time_has_no_ratio_but_a_note():
    failed = result("a/b", notes={"graphfw": "failed: a | b\nc"}, numpy=1.0)
    assert summary.rows_of(failed) == []
    assert "| a/b | graphfw failed: a / b c |" in summary.lines_of(failed)
    assert summary.overview([failed]) == "Nothing was measured."


def test_means_are_geometric_and_by_class():
    results = [result(f"{n}/x", graphfw=r, numpy=1.0) for n, r in (("a", 2.0), ("b", 8.0))]
    said = summary.overview([*results, result("b/y", graphfw=0.5, numpy=1.0)])
    assert "3 ratios to the best peer: **2.00**" in said
    assert "ahead or level in 1, behind in 2" in said
    assert "| b | 2 | 2.00 | 1 | x 8.00 |" in said


# The command


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Have two workloads that measure nothing; return what runs the command, and who was asked."""
    asked: list[str] = []

    class Plain:
        targets = ()
        title = "nothing"

        def __init__(self, name: str) -> None:
            self.name = name

        def measure(self, runner) -> Result:
            assert runner.settings.steps
            asked.append(self.name)
            return result(self.name, graphfw=2.0, numpy=1.0)

    names = ("sorting/a", "loops/b")
    monkeypatch.setattr(suite, "workloads", lambda *_: {name: Plain(name) for name in names})
    file = tmp_path / "figures.json"

    def command(*arguments: str) -> object:
        monkeypatch.setattr(sys, "argv", ["benchmarks", "longtail", f"--json={file}", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code

    return command, asked, file


@pytest.mark.slow
def test_a_run_goes_on_and_writes_table_and_plot(measured):
    command, asked, file = measured
    assert command("--seed=7", "--only=sorting") == 0
    assert command("--seed=7", "--resume", "--seconds=-1") == 3
    assert command("--seed=7", "--resume") == 0
    assert asked == ["sorting/a", "loops/b"]
    assert command("--seed=7", "--resume", "--only=*/b") == 0
    assert asked[2:] == ["loops/b"]
    assert json.loads(file.read_text("utf-8"))["seed"] == 7
    table = file.with_suffix(".md").read_text("utf-8")
    assert "Seed 7." in table
    assert table.count("| loops/b |") == 2
    assert file.with_suffix(".png").stat().st_size > 1000


@pytest.mark.slow
def test_measuring_again_keeps_the_least_times(measured):
    command, asked, file = measured
    command("--seed=7")
    record = json.loads(file.read_text("utf-8"))
    record["results"][0]["minima"] = {"graphfw": 5.0, "numpy": 0.25}
    file.write_text(json.dumps(record), "utf-8")
    assert command("--seed=7", "--resume", "--again", "--seconds=-1") == 3
    assert command("--seed=7", "--resume", "--again") == 0
    assert asked == ["sorting/a", "loops/b"] * 2
    first, second = json.loads(file.read_text("utf-8"))["results"]
    assert first["minima"] == {"graphfw": 2.0, "numpy": 0.25}
    assert first["seconds"] == {"graphfw": 4.0, "numpy": 2.0}
    assert second["name"] == "loops/b"


def test_figures_of_another_seed_are_not_gone_on_with(measured, capsys):
    command, _, _ = measured
    command("--seed=7")
    assert command("--seed=8", "--resume") == 2
    assert "has figures of another seed: 7" in capsys.readouterr().err
    assert command("--seed=7", "--resume", "--quick") == 2
    assert "has figures of another scale: full" in capsys.readouterr().err


def test_classes_that_there_are_not(measured, capsys):
    command, _, _ = measured
    assert command("--only=nothing") == 2
    assert "no class or workload is named 'nothing'" in capsys.readouterr().err


def test_the_seed_comes_from_the_commit(monkeypatch, tmp_path):
    class Done:
        returncode = 0
        stdout = "0123456789abcdef\n"

    monkeypatch.setattr(suite.subprocess, "run", lambda *_, **__: Done)
    assert suite.seed_of_commit() == 0x01234567
    Done.returncode = 128
    with pytest.raises(ValueError, match="--seed"):
        suite.seed_of_commit()


def test_contenders_are_measured_with_copies_too():
    assert suite._with_copies(("graphfw", "jax")) == ("graphfw", "jax", "jax+copy")
