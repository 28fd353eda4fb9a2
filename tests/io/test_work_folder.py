"""Folders of killed writers go, those in use stay."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

from graphfw.io import work_folder as module
from graphfw.io.work_folder import work_folder

pytestmark = pytest.mark.skipif(module.fcntl is None, reason="needs POSIX locks")

_WRITER = """
import os, sys
from pathlib import Path
from graphfw.io.work_folder import work_folder
with work_folder(Path(sys.argv[1])) as folder:
    (folder / "part").write_bytes(b"half")
    print(folder.name, flush=True)
    sys.stdin.read()
"""


def start_writer(parent):
    """Return a process that is writing, and the name of its folder."""
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return writer, writer.stdout.readline().strip()


def killed(writer):
    writer.kill()
    writer.wait()
    writer.stdin.close()
    writer.stdout.close()


def test_a_folder_in_use_stays_and_goes_once_its_writer_is_killed(tmp_path):
    writer, name = start_writer(tmp_path)
    try:
        with work_folder(tmp_path) as own:
            assert sorted(os.listdir(tmp_path)) == sorted([own.name, name])
    finally:
        killed(writer)
    assert os.listdir(tmp_path) == [name]
    with work_folder(tmp_path) as own:  # at once, before anything is written
        assert os.listdir(tmp_path) == [own.name]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("how", ["no lock", "no fcntl"])
def test_without_locks_only_old_folders_go(tmp_path, monkeypatch, how):
    def refused(*_):
        raise OSError("no locks here")

    if how == "no lock":
        monkeypatch.setattr(module.fcntl, "flock", refused)
    else:
        monkeypatch.setattr(module, "fcntl", None)
    for name, hours in (("old", 1.5), ("young", 0.5)):
        folder = tmp_path / f".graphfw-{name}.tmp"
        folder.mkdir()
        (folder / "part").write_bytes(b"half")
        then = time.time() - 3600 * hours
        os.utime(folder / "part", (then, then))
        os.utime(folder, (then, then))
    with work_folder(tmp_path):
        pass
    assert os.listdir(tmp_path) == [".graphfw-young.tmp"]


def test_other_files_and_folders_stay(tmp_path):
    for name in (".graphfw-notes", "x.tmp"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".graphfw-file.tmp").write_bytes(b"")
    with work_folder(tmp_path):
        pass
    assert sorted(os.listdir(tmp_path)) == [".graphfw-file.tmp", ".graphfw-notes", "x.tmp"]


@pytest.mark.parametrize("left", [[], ["lock"], ["checkpoint"], ["new-lock"]])
def test_what_a_writer_leaves_that_is_killed_before_or_after_its_lock_goes(tmp_path, left):
    folder = tmp_path / ".graphfw-killed.tmp"
    folder.mkdir()
    for name in left:
        (folder / name).write_bytes(b"")
    with work_folder(tmp_path) as own:
        assert os.listdir(tmp_path) == [own.name]


@pytest.mark.parametrize("moment", ["gone", "being removed", "gone once it is open"])
def test_a_new_folder_that_another_writer_removes_is_made_again(tmp_path, monkeypatch, moment):
    """It has no lock yet, as one of a killed writer."""
    made, held = [], []
    make, flock = tempfile.mkdtemp, module.fcntl.flock

    def first_is_removed(**how):
        made.append(make(**how))
        if len(made) == 1 and moment == "gone":
            os.rmdir(made[0])
        elif len(made) == 1 and moment == "being removed":
            held.append(open(os.path.join(made[0], "lock"), "ab"))
            flock(held[0], module.fcntl.LOCK_EX)
        return made[-1]

    def removed_before(lock, how):
        if len(made) == 1 and moment == "gone once it is open":
            shutil.rmtree(made[0])
        flock(lock, how)

    monkeypatch.setattr(tempfile, "mkdtemp", first_is_removed)
    monkeypatch.setattr(module.fcntl, "flock", removed_before)
    with work_folder(tmp_path) as own:
        assert [str(own)] == made[1:]
        (own / "part").write_bytes(b"whole")
    for file in held:
        file.close()
    with work_folder(tmp_path):
        pass
    assert os.listdir(tmp_path) == []
