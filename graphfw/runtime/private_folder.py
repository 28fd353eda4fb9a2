"""Folders that only their owner writes to, and the secret that each of them keeps.

Machine code that is read from a folder is run. So a folder is used only where no other user can
have put code there, and what is stored in it is signed with a secret of the folder.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path

SECRET_NAME = ".secret"
_SECRET_BYTES = 32


def make(path: Path) -> None:
    """Make a folder, and those above it, that only its owner may use; keep one that exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def why_unsafe(state: os.stat_result) -> str:
    """Return why another user may write to a file or folder, "" where only its owner may.

    On Windows it is "": a user's folders have access lists there, which these numbers don't show.
    """
    if not hasattr(os, "geteuid"):
        return ""
    if state.st_uid != os.geteuid():
        return f"it belongs to another user (uid {state.st_uid}, this process has {os.geteuid()})"
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(state.st_mode):04o})"
    return ""


def secret(folder: Path) -> bytes | None:
    """Return the secret of a folder, made where there is none; None if others may know it.

    Raises:
        OSError: It can be neither read nor made.
    """
    path = folder / SECRET_NAME
    if not os.path.lexists(path):
        _make_secret(path)
    content = _read_secret(path)
    if content is not None and len(content) != _SECRET_BYTES:  # damaged
        os.unlink(path)
        _make_secret(path)
        content = _read_secret(path)
    return content


def _read_secret(path: Path) -> bytes | None:
    # No link is followed: it could lead to a file that others know.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        content = file.read(_SECRET_BYTES + 1)
    readable = hasattr(os, "geteuid") and state.st_mode & (stat.S_IRGRP | stat.S_IROTH)
    return None if readable or why_unsafe(state) else content


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may use.

    Raises:
        OSError: It exists, or can't be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)


def _make_secret(path: Path) -> None:
    written = path.with_name(f".new-{os.getpid()}-{threading.get_ident()}-secret")
    try:
        write_private(written, os.urandom(_SECRET_BYTES))
        try:
            os.link(written, path)  # of several processes, the first one's secret stays
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links: the last one's stays
            os.replace(written, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(written)
