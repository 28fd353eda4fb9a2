"""`python -m graphfw`: what it does where its output can't be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphfw import cli


def python(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a shell, with its output led elsewhere."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no such device")
@pytest.mark.parametrize("options", [(), ("-u",)])
def test_a_full_disk_is_said_in_one_line(options: tuple[str, ...]) -> None:
    done = python(">/dev/full", *options, "-m", "graphfw", "doctor")
    assert done.returncode == 1
    assert done.stderr.startswith("OSError: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="the shell's own syntax")
def test_a_closed_output_is_said_in_one_line() -> None:
    done = python(">&-", "-m", "graphfw", "doctor")
    assert done.returncode == 1
    assert done.stderr == "there is nowhere to write: standard output is closed\n"


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no such device")
def test_an_error_of_a_command_is_said_also_where_the_disk_is_full() -> None:
    code = (
        "import sys, types; from graphfw import cli\n"
        "from graphfw.errors import ArgumentError\n"
        "def main(rest): print('half of it'); raise ArgumentError('no such thing')\n"
        "sys.modules['graphfw.runtime.doctor'] = types.SimpleNamespace(main=main)\n"
        "sys.exit(cli.main(['doctor']))\n"
    )
    done = python(">/dev/full", "-c", code)
    assert done.returncode == 1
    assert done.stderr == "ArgumentError: no such thing\n"


def test_an_error_of_the_system_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(rest: list[str]) -> None:
        sys.stdout.write("what went before\n")
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("graphfw.runtime.doctor.main", main)
    assert cli.main(["doctor"]) == 1
    said = capsys.readouterr()
    assert said.out == "what went before\n"
    assert said.err == "OSError: [Errno 5] Input/output error\n"
