"""The same programs in processes of their own, which `mpiexec` starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from graphfw.distributed import Mesh
from tests.distributed.programs import train, train_split

pytest.importorskip("mpi4py")
LAUNCHER = Path(sys.executable).with_name("mpiexec")
if not LAUNCHER.exists():
    pytest.skip("no MPI library is installed", allow_module_level=True)

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent.parent


class Ended(NamedTuple):
    """The end of a program.

    Attributes:
        status: The launcher's exit status.
        errors: Its standard error.
        results: What the processes have written, by rank.
    """

    status: int
    errors: str
    results: dict[int, str]


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., Ended]:
    """A function that runs a program of `programs.py` in some processes."""

    def start(count: int, name: str, *arguments: str) -> Ended:
        said = subprocess.run([LAUNCHER, "--version"], capture_output=True, text=True, check=False)
        options: list[str] = []
        if "Open MPI" in said.stdout:
            options = ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        program = [sys.executable, "-m", "tests.distributed.programs", name, str(tmp_path)]
        command = [str(LAUNCHER), *options, "-n", str(count), *program, *arguments]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=env, cwd=ROOT, timeout=120
        )
        results = {int(path.name): path.read_text() for path in tmp_path.iterdir()}
        return Ended(done.returncode, done.stderr, results)

    return start


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_training_has_the_bits_of_one_process(started, count: int):
    end = started(count, "train", "5")
    assert end.status == 0, end.errors
    assert end.results == dict.fromkeys(range(count), train(Mesh(data=1)))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_training_on_split_rows_has_the_bits_of_one_process(started, count: int):
    end = started(count, "train_split", "5")
    assert end.status == 0, end.errors
    assert end.results == dict.fromkeys(range(count), train_split(Mesh(data=1)))


def test_fast_sums_are_the_same_in_all_processes(started):
    end = started(2, "train", "5", "fast")
    assert end.status == 0, end.errors
    assert len(end.results) == 2
    assert end.results[0] == end.results[1]


HOWS = ["before", "between", "after", "feed", "fetch", "nan", "check", "sizes", "plan"]


@pytest.mark.parametrize("how", HOWS)
def test_a_step_that_fails_in_one_process_changes_none(started, how: str):
    end = started(2, "failing", how)
    assert end.status == 0, end.errors
    assert len(end.results) == 2
    for rank, text in end.results.items():
        contents, *steps = text.split("; ")
        assert contents == "[48.0, 48.0, 48.0]", text
        assert [step == "ok" for step in steps] == [True, False, True, True], text
        everywhere = rank == 0 or how in ("sizes", "plan")
        assert steps[1].startswith("DistributedError") == everywhere, text


@pytest.mark.parametrize("how", ["kill", "raise", "return"])
def test_a_process_that_ends_ends_the_others(started, how: str):
    begin = time.perf_counter()
    end = started(2, "dying", how)
    assert end.status != 0
    assert time.perf_counter() - begin < 30
    if how == "raise":
        assert "no more data" in end.errors
    if how == "return":
        assert "its program has ended" in end.errors


PROGRAM = """
import pathlib, sys
import graphfw as gf

mesh = gf.distributed.Mesh(data=-1)
flag = pathlib.Path(sys.argv[1])
is_first = not flag.exists()
with gf.Graph(mesh=mesh) as g:
    total = gf.distributed.all_reduce(gf.ones(1), "data")
with gf.Session(g) as session:
    session.run(total)
    if is_first and mesh.rank == 1:
        flag.write_text("failed once")
        raise ValueError("the first time")
    flag.with_name(f"total-{mesh.rank}").write_text(str(session.run(total)))
"""


def test_a_program_is_started_again_after_a_failure(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "graphfw.distributed", "run", "-n", "2", "--restarts", "1"]
    done = subprocess.run(
        [*command, str(tmp_path / "program.py"), str(tmp_path / "flag")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"total-{rank}").read_text() for rank in (0, 1)] == ["[2.]", "[2.]"]
    assert (tmp_path / "flag").read_text() == "failed once"
    assert "starting it again" in done.stderr
