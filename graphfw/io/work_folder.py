"""Folders in which files are written before they take another file's place.

A writer holds a lock in its folder, which the system releases when the process ends, however it
ends. So the next writer in the same place can tell folders in use from those of killed writers,
and removes the latter before it needs the space.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO

fcntl: ModuleType | None
"""Locks of files; None on Windows."""
try:
    fcntl = import_module("fcntl")
except ImportError:
    fcntl = None

_PREFIX, _SUFFIX = ".graphfw-", ".tmp"
_LOCK_NAME = "lock"
_STALE_SECONDS = 3600.0
"""The age of a folder without a lock at which nobody is writing to it any more."""


@contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """Make a private folder in another one for the length of a `with` block.

    Folders that killed writers have left in the same one are removed: at once where the file
    system has locks, after an hour otherwise.

    Raises:
        OSError: It can't be made.
    """
    lock = None
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=_PREFIX, suffix=_SUFFIX))
    try:
        lock = _locked(folder)
        _remove_stale(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            lock.close()


def _locked(folder: Path) -> IO[bytes] | None:
    """Return the file whose lock says that a folder is in use; None where there are no locks."""
    if fcntl is None:
        return None
    # Locked under another name: a lock that others see is held.
    made = open(folder / "new-lock", "xb")
    try:
        fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(folder / "new-lock", folder / _LOCK_NAME)
    except OSError:  # a file system without locks
        made.close()
        return None
    return made


def _remove_stale(own: Path) -> None:
    """Remove the folders beside one's own that nobody is using."""
    with suppress(OSError):  # tidying up: a failure here must not fail a write
        now = own.stat().st_mtime  # the file system's clock, which may not be this machine's
        for entry in os.scandir(own.parent):
            if not (entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)):
                continue
            folder = Path(entry.path)
            with suppress(OSError):
                if folder != own and _is_stale(folder, now):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_stale(folder: Path, now: float) -> bool:
    """Return whether nobody writes to a folder.

    Raises:
        OSError: It can't be looked at, as when its writer has just removed it.
    """
    try:
        lock = open(folder / _LOCK_NAME, "r+b")
    except FileNotFoundError:
        lock = None
    if fcntl is None or lock is None:
        newest = max(part.lstat().st_mtime for part in (folder, *folder.iterdir()))
        return now - newest > _STALE_SECONDS
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
