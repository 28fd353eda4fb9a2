"""`python -m graphfw.distributed run`, with a launcher that only says how it is called."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphfw.distributed import launch

LAUNCHER = """#!{python}
import os, pathlib, sys
calls = pathlib.Path(__file__).with_name("calls")
if "--version" in sys.argv:
    print({version!r})
    sys.exit()
with calls.open("a") as file:
    print(*sys.argv[1:], file=file)
left = pathlib.Path(__file__).with_name("failures")
count = int(left.read_text())
left.write_text(str(count - 1))
sys.exit(3 if count > 0 else 0)
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch, capsys):
    """A function that runs a program by a launcher which fails some times."""
    (tmp_path / "train.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(launch.time, "sleep", lambda seconds: None)

    def started(
        *arguments: str, failures: int = 0, version: str = "HYDRA", name: str = "mpiexec"
    ) -> tuple[int, list[str]]:
        path = tmp_path / name
        python = sys.executable
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        path.write_text(LAUNCHER.format(python=python, version=version))
        path.chmod(0o755)
        (tmp_path / "failures").write_text(str(failures))
        status = launch.main(["run", *arguments])
        return status, (tmp_path / "calls").read_text().splitlines()

    return started


def test_the_launcher_gets_the_program_and_its_arguments(start, tmp_path: Path):
    program = str(tmp_path / "train.py")
    status, calls = start("-n", "4", program, "--rate", "1e-3", "-n", "2")
    assert status == 0
    assert calls == [f"-prepend-rank -n 4 {tmp_path / 'python'} {program} --rate 1e-3 -n 2"]


def test_open_mpi_has_options_of_its_own(start, tmp_path: Path):
    _, calls = start("-n", "2", str(tmp_path / "train.py"), version="mpiexec (Open MPI) 5.0.11")
    assert calls[0].startswith("--oversubscribe --output tag")


def test_slurm(start, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    _, calls = start("-n", "2", str(tmp_path / "train.py"), name="srun")
    assert calls[0].startswith("--mpi=pmix --label -n 2")


@pytest.mark.parametrize(
    ("failures", "restarts", "status", "runs"), [(1, 0, 3, 1), (2, 3, 0, 3), (5, 2, 3, 3)]
)
def test_a_program_that_fails_is_started_again(
    start, tmp_path: Path, capsys, failures: int, restarts: int, status: int, runs: int
):
    arguments = ["-n", "2", "--restarts", str(restarts), str(tmp_path / "train.py")]
    found, calls = start(*arguments, failures=failures)
    assert found == status
    assert len(calls) == runs
    assert capsys.readouterr().err.count("failed with status 3") == min(failures, restarts + 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-n", "0", "train.py"], "0 is no number of processes"),
        (["-n", "two", "train.py"], "two is no number of processes"),
        (["-n", "2", "nowhere.py"], "there is no file nowhere.py"),
        (["-n", "2", "--restarts", "-1", "train.py"], "--restarts"),
        (["-n", "2", "train.py"], "there is neither mpiexec"),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch, capsys, arguments: list[str], said: str):
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(SystemExit):
        launch.main(["run", *arguments])
    assert said in capsys.readouterr().err
