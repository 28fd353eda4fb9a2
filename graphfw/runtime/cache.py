"""Compiled code on disk, found by its content. A cache that can't be read or written is no error.

The folder is `GRAPHFW_CACHE`, or `graphfw` in the user's cache folder; `GRAPHFW_CACHE=off` is none.
A file is written under another name and renamed, so that other processes see all of it or nothing,
and it starts with its length and a hash of its name and contents, so that one that is damaged, or
has another's name, counts as absent.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path
from zlib import crc32

from graphfw.errors import ArgumentError
from graphfw.ir.hashing import blake2b

MAGIC = b"graphfw2"
HEADER = len(MAGIC) + 8 + 32
LIMIT = 256 << 20
"""How many bytes the folder may hold."""
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
    if named.lower() == "off":
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
        path: The folder, made when it is first needed; None: nothing is kept.
        limit: How many bytes it may hold; the files that were not used for longest go first.
    """

    def __init__(self, path: Path | None, limit: int = LIMIT) -> None:
        self.path = path
        self.limit = limit

    def load(self, name: str) -> bytes | None:
        """Return what was stored under this name; None if nothing sound is there."""
        if self.path is None:
            return None
        path = self.path / name
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            return None
        body = content[HEADER:]
        if content[:HEADER] != _header(name, body):
            return None
        with contextlib.suppress(OSError):
            # Many systems don't note the time of access themselves.
            os.utime(path)
        return body

    def store(self, name: str, body: bytes) -> None:
        """Keep a byte string under a name, in place of what is there."""
        if self.path is None:
            return
        written = self.path / f".new-{os.getpid()}-{threading.get_ident()}-{name}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with open(written, "xb") as file:
                file.write(_header(name, body) + body)
            os.replace(written, self.path / name)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(written)
            return
        if crc32(name.encode()) % PRUNE_EVERY == 0:
            self.prune()

    def prune(self) -> None:
        """Delete the files that were not used for longest, until half of the limit is left."""
        if self.path is None:
            return
        found: list[tuple[float, int, str]] = []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if entry.is_file(follow_symlinks=False):
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


def _header(name: str, body: bytes) -> bytes:
    digest = blake2b(name.encode(), digest_size=32)
    digest.update(body)
    return MAGIC + len(body).to_bytes(8, "little") + digest.digest()
