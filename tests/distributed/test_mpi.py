"""The same programs in processes of their own, which `mpiexec` starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphfw.distributed import Mesh
from tests.distributed.programs import train

pytest.importorskip("mpi4py")
LAUNCHER = Path(sys.executable).with_name("mpiexec")
if not LAUNCHER.exists():
    pytest.skip("no MPI library is installed", allow_module_level=True)

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent.parent


def started(count: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `programs.py` in some processes, and return the launcher's end."""
    options: list[str] = []
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    version = subprocess.run([LAUNCHER, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" in version.stdout:
        options = ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    program = [sys.executable, "-m", "tests.distributed.programs", *arguments]
    command = [str(LAUNCHER), *options, "-n", str(count), *program]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, cwd=ROOT, timeout=120
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_training_has_the_bits_of_one_process(count: int):
    done = started(count, "train", "5")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {train(Mesh(data=1))}
    assert len(done.stdout.split()) == count


def test_fast_sums_are_nearly_those():
    done = started(2, "train", "5", "fast")
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 1


HOWS = ["before", "between", "after", "feed", "fetch", "nan", "check", "sizes", "plan"]


@pytest.mark.parametrize("how", HOWS)
def test_a_step_that_fails_in_one_process_changes_none(how: str):
    done = started(2, "failing", how)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    for line in done.stdout.splitlines():
        rank, contents, *steps = line.split("; ")
        assert contents == "[48.0, 48.0, 48.0]", line
        assert [step == "ok" for step in steps] == [True, False, True, True], line
        everywhere = rank == "0" or how in ("sizes", "plan")
        assert steps[1].startswith("DistributedError") == everywhere, line


@pytest.mark.parametrize("how", ["kill", "raise", "return"])
def test_a_process_that_ends_ends_the_others(how: str):
    begin = time.perf_counter()
    done = started(2, "dying", how)
    assert done.returncode != 0
    assert time.perf_counter() - begin < 30
    if how == "raise":
        assert "ValueError: no more data" in done.stderr
    if how == "return":
        assert "DistributedError: process 1 of 2 failed: its program has ended" in done.stderr


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
    sys.stdout.write(f"total {float(session.run(total)[0])}\\n")
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
    assert done.stdout.count("total 2.0") == 2
    assert "ValueError: the first time" in done.stderr
    assert "starting it again" in done.stderr
