"""Compiled code on disk, found by its content. A cache that can't be written to is a warning.

The folder is `GRAPHFW_CACHE`, or `graphfw` in the user's cache folder; `GRAPHFW_CACHE=off`, or `0`,
is none.
A file is written under another name and renamed, so that other processes see all of it or nothing,
and it starts with its length and a hash of its name and contents, so that one that is damaged, or
has another's name, counts as absent. The hash is keyed with a secret of the folder, and a folder
that other users may write to is not used: what is read from it is run.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from pathlib import Path
from zlib import crc32

from graphfw.errors import ArgumentError
from graphfw.runtime import private_folder
from graphfw.utils.hashing import blake2b

MAGIC = b"graphfw3"
HEADER = len(MAGIC) + 8 + 32
LIMIT = 256 << 20
"""The most bytes in the folder."""
PRUNE_EVERY = 64
"""After one of so many new files, known by its name, the folder's size is looked at.

Not after so many of one process, as most processes write few; nor after each, as a look takes some
microseconds for every file in the folder.
"""


def folder() -> Path | None:
    """Return where compiled code is kept, None where it is not; read from the environment.

    Raises:
        ArgumentError: The environment names the home of a user who is not known.
    """
    named = os.environ.get("GRAPHFW_CACHE", "")
    if named.lower() in ("off", "0"):  # 0, as the other settings are turned off
        return None
    if named:
        try:
            return Path(named).expanduser().absolute()
        except RuntimeError as error:
            raise ArgumentError(
                f"GRAPHFW_CACHE={named!r} is no folder: {error}",
                fix="name one of yours, or unset it",
            ) from None
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():  # by its specification others are ignored; there may be none
        return base / "graphfw"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", "")
        return Path(local) / "graphfw" / "cache" if local else None
    try:
        home = Path.home()
    except RuntimeError:
        return None  # a user without a home
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "graphfw"


class Cache:
    """A folder of byte strings, each under a name that ends in the hash of what made it.

    Args:
        path: The folder, made when it is first needed; None: nothing is kept. It becomes None,
            with a warning, where other users may write to the folder.
        limit: How many bytes it may hold; the files that were not used for longest go first.
    """

    def __init__(self, path: Path | None, limit: int = LIMIT) -> None:
        self.path = path
        self.limit = limit
        self._secret: bytes | None = None

    def load(self, name: str) -> bytes | None:
        """Return the bytes stored under this name; None if nothing sound is there."""
        folder = self._opened()
        if folder is None:
            return None
        path = folder / name
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            return None
        body = content[HEADER:]
        if content[:HEADER] != self._header(name, body):
            return None
        with contextlib.suppress(OSError):
            # Many systems don't note the time of access themselves.
            os.utime(path)
        return body

    def store(self, name: str, body: bytes) -> None:
        """Keep a byte string under a name, in place of what is there.

        Where the system refuses, the process is warned once.
        """
        path = self.path
        if path is None:
            return
        try:
            self._store(path, name, body)
        except OSError as error:
            _warn_once(path, f"can't be written to, {error}", f"To keep it, {_ANOTHER}")
            return
        if crc32(name.encode()) % PRUNE_EVERY == 0:
            self.prune()

    def _store(self, path: Path, name: str, body: bytes) -> None:
        private_folder.make(path)
        folder = self._open(path)
        if folder is None:
            return
        written = folder / f".new-{os.getpid()}-{threading.get_ident()}-{name}"
        try:
            private_folder.write_private(written, self._header(name, body) + body)
            os.replace(written, folder / name)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(written)
            raise

    def prune(self) -> None:
        """Delete the files that were not used for longest, until half of the limit is left."""
        if self.path is None:
            return
        found: list[tuple[float, int, str]] = []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if (
                            entry.is_file(follow_symlinks=False)
                            and entry.name != private_folder.SECRET_NAME
                        ):
                            state = entry.stat()
                            found.append((state.st_mtime, state.st_size, entry.path))
        except OSError:
            return
        total = sum(size for _, size, _ in found)
        if total <= self.limit:
            return
        for _, size, path in sorted(found):
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size
            if total <= self.limit // 2:
                return

    def _opened(self) -> Path | None:
        """Return the folder, None where there is none, or none that may be used."""
        path = self.path
        try:
            return None if path is None else self._open(path)
        except OSError:
            return None  # it is made when something is stored

    def _open(self, path: Path) -> Path | None:
        """Read the folder's secret once; return the folder, None where it may not be used.

        Raises:
            OSError: It is not there, or its secret can be neither read nor made.
        """
        if self._secret is None:
            why = private_folder.why_unsafe(os.stat(path))
            self._secret = None if why else private_folder.secret(path)
            if self._secret is None:
                self.path = None
                why = why or f"others may know its file {private_folder.SECRET_NAME}"
                _warn_once(path, f"is not used, since {why}", fix_of(path))
        return self.path

    def _header(self, name: str, body: bytes) -> bytes:
        assert self._secret is not None, "the folder has not been opened"
        digest = blake2b(name.encode(), digest_size=32, key=self._secret)
        digest.update(body)
        return MAGIC + len(body).to_bytes(8, "little") + digest.digest()


_warned: set[Path] = set()
"""The folders that this process has warned of."""


def _warn_once(path: Path, what: str, fix: str) -> None:
    if path in _warned:
        return
    _warned.add(path)
    warnings.warn(
        f"the folder of compiled code {str(path)!r} {what}: code is compiled again in each "
        f"process. {fix}",
        RuntimeWarning,
        stacklevel=2,
    )


_ANOTHER = "name another folder by GRAPHFW_CACHE; GRAPHFW_CACHE=off keeps nothing"


def fix_of(path: Path) -> str:
    """Return how to get a folder of compiled code that nobody else may write to."""
    return f"Delete it ('rm -r {path}'), or {_ANOTHER}"
