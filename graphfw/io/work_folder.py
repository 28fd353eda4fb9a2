"""Folders in which files are written before they replace another file.

A writer holds a lock in its folder, which the system releases when the process ends, however it
ends. So the next writer of the same file can tell folders in use from those of killed writers,
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


class _RemovedError(Exception):
    """Another writer has taken a new folder for a killed writer's, and removes it."""


@contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """Make a private folder in another one for the length of a `with` block.

    Folders that killed writers have left in the same one are removed: at once where the file
    system has locks, after an hour otherwise.

    Raises:
        OSError: It can't be made.
    """
    folder, lock = _made(parent)
    try:
        _remove_stale(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            lock.close()


def _made(parent: Path) -> tuple[Path, IO[bytes] | None]:
    """Return a new folder, and the file whose lock says that it is in use; None without locks."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=_PREFIX, suffix=_SUFFIX))
        try:
            return folder, _locked(folder)
        except _RemovedError:
            continue
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _locked(folder: Path) -> IO[bytes] | None:
    """Lock a new folder; return the file that is locked, None where there are no locks.

    Until then it looks like a killed writer's, which may be killed at any moment: whoever removes
    such a folder holds its lock meanwhile, so that a lost folder is noticed here.

    Raises:
        _RemovedError: It is lost.
    """
    if fcntl is None:
        return None
    try:
        lock = open(folder / _LOCK_NAME, "ab")
    except FileNotFoundError:
        raise _RemovedError from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(lock.fileno()).st_nlink:
            raise _RemovedError
    except BlockingIOError:
        lock.close()
        raise _RemovedError from None
    except OSError:  # a file system without locks
        lock.close()
        return None
    except BaseException:
        lock.close()
        raise
    return lock


def _remove_stale(own: Path) -> None:
    """Remove the folders beside one's own that nobody is using."""
    with suppress(OSError):  # tidying up: a failure here must not fail a write
        now = own.stat().st_mtime  # the file system's clock, which may not be this machine's
        for entry in os.scandir(own.parent):
            if not (entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)):
                continue
            folder = Path(entry.path)
            with suppress(OSError):
                if folder != own:
                    _remove_if_stale(folder, now)


def _remove_if_stale(folder: Path, now: float) -> None:
    """Remove a folder that nobody writes to.

    Raises:
        OSError: It can't be looked at, as when its writer has just removed it.
    """
    newest = max(member.lstat().st_mtime for member in (folder, *folder.iterdir()))
    is_old = now - newest > _STALE_SECONDS
    if fcntl is None:
        if is_old:
            shutil.rmtree(folder, ignore_errors=True)
        return
    # A writer may have been killed before it made the file, or after it had removed it.
    with open(folder / _LOCK_NAME, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:  # a file system without locks
            if not is_old:
                return
        shutil.rmtree(folder, ignore_errors=True)
