"""Benchmarks on a GPU: what differs there, on a stand-in for CuPy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from benchmarks import devices, machine
from benchmarks.frameworks import Formula, copy_case, graphfw_case
from benchmarks.results import difference, fingerprints
from benchmarks.timing import mean_of

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "gpu"

STUB = """#!{python}
import json, os, sys
codes = json.loads(os.environ["TOLD"])
found = [how for words, how in codes.items() if set(words.split()) <= set(sys.argv)]
if sys.argv[1:] == ["-m", "tests.gpu_ladder"]:
    print(*[f"{{name}}\\twhat it is" for name in ("low", "middle", "high")], sep="\\n")
if sys.argv[2:3] == ["tests.gpu_ladder"] and found and found[0] == 1:
    print("look at: the wires")
sys.exit(found[0] if found else 0)
"""


@pytest.fixture
def script(tmp_path):
    """Return a function that runs the script with a Python that answers by words of commands."""
    python = tmp_path / "python"
    python.write_text(STUB.format(python=sys.executable), "utf-8")
    python.chmod(0o755)

    def run(*arguments, codes=None):
        wanted = {"PYTHON": str(python), "TOLD": json.dumps(codes or {}), "ARRAY_API_TESTS": ""}
        return subprocess.run(
            ["bash", str(SCRIPT), *arguments],
            env={**os.environ, **wanted},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.skipif(sys.platform != "linux", reason="a script for Linux")
class TestScript:
    def test_goes_on_where_it_stopped(self, script, tmp_path):
        folder = str(tmp_path / "found")
        first = script(folder, "0", "doctor", "tests", codes={"-m pytest gpu": 1})
        assert first.returncode == 1
        assert first.stdout.rstrip().endswith("done; failed: 1\ntests")
        again = script(folder, "0", "doctor", "tests", codes={"doctor": 1, "pytest": 1})
        assert again.returncode == 1
        assert "-m graphfw doctor" not in again.stdout

    def test_the_ladder_stops_at_the_first_rung_that_fails(self, script, tmp_path):
        folder = str(tmp_path / "found")
        first = script(folder, "0", "ladder", "doctor", codes={"tests.gpu_ladder middle": 1})
        assert first.returncode == 1
        assert first.stdout.splitlines()[-5:] == [
            "== rung middle",
            "look at: the wires",
            "",
            "== stopped at the rung middle; nothing above it is tried before it holds; failed: 1",
            "rung middle",
        ]
        assert "doctor" not in first.stdout
        again = script(folder, "0", "ladder", "doctor")
        assert again.returncode == 0
        shown = [line for line in again.stdout.splitlines() if line.startswith("== ")]
        assert shown[:2] == ["== rung middle", "== rung high"]
        assert [line.split(":")[0] for line in shown[2:]] == ["== doctor", "== done; failed"]

    def test_a_rung_that_hangs_twice_has_failed(self, script, tmp_path):
        folder, hangs = str(tmp_path / "found"), {"tests.gpu_ladder low": 124}
        assert script(folder, "0", "ladder", codes=hangs).returncode == 3
        end = script(folder, "0", "ladder", codes=hangs)
        assert end.returncode == 1
        assert end.stdout.rstrip().endswith("rung low (takes too long)")

    def test_figures_that_are_left_are_for_the_next_call(self, script, tmp_path):
        folder = str(tmp_path / "found")
        assert script(folder, "0", "figures", codes={"benchmarks": 3}).returncode == 3
        assert script(folder, "0", "figures").returncode == 0
        assert (tmp_path / "found" / "done.txt").read_text("utf-8") == "figures\n"

    def test_what_is_cut_off_twice_has_failed(self, script, tmp_path):
        folder = str(tmp_path / "found")
        cut_off = {"doctor": 124}  # what `timeout` says
        assert script(folder, "0", "doctor", codes=cut_off).returncode == 3
        end = script(folder, "0", "doctor", codes=cut_off)
        assert end.returncode == 1
        assert "doctor (takes too long)" in end.stdout

    def test_figures_may_be_cut_off_as_long_as_they_become_more(self, script, tmp_path):
        folder, cut_off = tmp_path / "found", {"benchmarks": 124}
        for number in range(3):
            assert script(str(folder), "0", "figures", codes=cut_off).returncode == 3
            (folder / "gpu.json").write_text(str(number), "utf-8")
        assert script(str(folder), "0", "figures", codes=cut_off).returncode == 3
        assert script(str(folder), "0", "figures", codes=cut_off).returncode == 1

    def test_wants_a_gpu(self, script, tmp_path):
        end = script(str(tmp_path / "found"), codes={"-c": 1})
        assert (end.returncode, "there is no GPU" in end.stderr) == (2, True)

    def test_begins_nothing_when_the_time_is_up(self, script, tmp_path):
        assert script(str(tmp_path / "found"), "1", "doctor", codes={"doctor": 1}).returncode == 3
        assert not (tmp_path / "found" / "done.txt").read_text("utf-8")

    def test_names_files_that_there_are(self, script, tmp_path):
        said = script("-n", str(tmp_path / "found")).stdout
        words = [word for word in said.split() if word.startswith("tests/")]
        files = {word.split("::")[0].removesuffix(":") for word in words}
        assert len(files) > 10
        assert "rung middle: " in said
        assert not [file for file in files if not (ROOT / file).exists()]


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
    monkeypatch.setattr(machine, "ON_GPU", {"graphfw": ("none", "numpy"), "torch": ("none",)})
    assert machine.installed("graphfw", "cuda")
    assert not machine.installed("torch", "cuda")
    assert not machine.installed("numexpr", "cuda")
    assert machine.gpu()
