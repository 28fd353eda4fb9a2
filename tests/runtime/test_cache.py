from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from graphfw.errors import ArgumentError
from graphfw.runtime import cache as cache_module
from graphfw.runtime import private_folder
from graphfw.runtime.cache import Cache, folder

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX owners and modes")


def _stored(path: Path) -> list[str]:
    """Return the names in a folder but for the secret's."""
    return sorted(name for name in os.listdir(path) if name != private_folder.SECRET_NAME)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_stored_is_found(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "er")
    content = np.random.default_rng().bytes(3001)
    assert cache.load("ab12") is None
    cache.store("ab12", content)
    cache.store("ab13", b"")
    assert Cache(tmp_path / "deep" / "er").load("ab12") == content
    assert cache.load("ab13") == b""
    cache.store("ab12", b"new")
    assert cache.load("ab12") == b"new"
    assert _stored(cache.path or Path()) == ["ab12", "ab13"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "longer", "empty", "foreign"])
def test_damaged_files_count_as_absent(tmp_path: Path, damage: str) -> None:
    cache = Cache(tmp_path)
    cache.store("ab", b"content" * 50)
    path = tmp_path / "ab"
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    path.write_bytes(
        {
            "cut": whole[:-1],
            "flipped": bytes(flipped),
            "longer": whole + b"x",
            "empty": b"",
            "foreign": b"\x7fELF and so on",
        }[damage]
    )
    assert cache.load("ab") is None
    cache.store("ab", b"again")
    assert cache.load("ab") == b"again"


def test_a_file_under_another_name_counts_as_absent(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("ab", b"content")
    os.rename(tmp_path / "ab", tmp_path / "cd")
    assert cache.load("cd") is None


@pytest.mark.parametrize("obstacle", ["a file above", "a folder in place of a file"])
def test_what_cannot_be_written_is_said_once(tmp_path: Path, obstacle: str) -> None:
    if obstacle == "a file above":
        (tmp_path / "file").write_text("not a folder")
        path = tmp_path / "file" / "cache"
    else:
        (tmp_path / "ab").mkdir()
        path = tmp_path
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for cache in (Cache(path), Cache(path)):
            cache.store("ab", b"content")
            cache.store("ab", b"content")
            assert cache.load("ab") is None
            cache.prune()
    (one,) = caught
    said = str(one.message)
    assert said.startswith(f"the folder of compiled code '{path}' can't be written to, [Errno ")
    assert said.endswith(
        ": code is compiled again in each process. To keep it, name another folder by "
        "GRAPHFW_CACHE; GRAPHFW_CACHE=off keeps nothing"
    )
    assert path == tmp_path / "file" / "cache" or _stored(path) == ["ab"]  # nothing half-written


def test_a_folder_that_is_not_there_yet_is_not_warned_of(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = Cache(tmp_path / "new" / "cache")
        assert cache.load("ab") is None
        cache.store("ab", b"content")
        assert cache.load("ab") == b"content"


def test_none_is_no_cache() -> None:
    cache = Cache(None)
    cache.store("ab", b"content")
    cache.prune()
    assert cache.load("ab") is None


def test_the_environment_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHFW_CACHE", str(tmp_path))
    assert folder() == tmp_path
    monkeypatch.setenv("GRAPHFW_CACHE", "here")
    monkeypatch.chdir(tmp_path)
    assert folder() == tmp_path / "here"  # also where the process goes somewhere else later
    monkeypatch.setenv("GRAPHFW_CACHE", "~nobody-of-that-name/cache")
    with pytest.raises(ArgumentError, match=r"GRAPHFW_CACHE='~nobody(.|\n)*unset it"):
        folder()
    for off in ("off", "OFF", "0"):
        monkeypatch.setenv("GRAPHFW_CACHE", off)
        assert folder() is None
    monkeypatch.delenv("GRAPHFW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder() == tmp_path / "xdg" / "graphfw"


@pytest.mark.skipif(sys.platform != "linux", reason="the folder of Linux")
@pytest.mark.parametrize("base", ["relative", "./here", "", None])
def test_the_folder_is_in_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, base: str | None
) -> None:
    monkeypatch.delenv("GRAPHFW_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if base is not None:  # relative ones are to be ignored, says the specification
        monkeypatch.setenv("XDG_CACHE_HOME", base)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == tmp_path / ".cache" / "graphfw"


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=5000)
    for i in range(10):
        Cache(tmp_path).store(f"a{i}", bytes(1000))
        os.utime(tmp_path / f"a{i}", (1000 + i, 1000 + i))
    assert cache.load("a2") is not None  # which makes it the newest
    cache.prune()
    assert _stored(tmp_path) == ["a2", "a9"]
    cache.prune()  # within the limit
    assert _stored(tmp_path) == ["a2", "a9"]


def test_the_size_is_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    prune = Cache.prune

    def looked(self: Cache) -> None:
        looks.append(1)
        prune(self)

    monkeypatch.setattr(Cache, "prune", looked)
    names = [f"gf_{blake2b(b'%d' % i, digest_size=20).hexdigest()}" for i in range(1500)]
    for name in names:
        Cache(tmp_path, limit=5000).store(name, bytes(100))
        assert len(os.listdir(tmp_path)) < 5000 / 148 + 300
    assert 10 < len(looks) < 50  # of 1500 / 64 = 23


@pytest.mark.slow
def test_many_short_processes_keep_the_limit(tmp_path: Path) -> None:
    for i in range(1000):  # files of processes before
        (tmp_path / f"old{i}").write_bytes(bytes(100))
    code = (
        "import sys; from pathlib import Path; from hashlib import blake2b\n"
        "from graphfw.runtime.cache import Cache\n"
        "for i in range(40):\n"
        "    name = blake2b(f'{sys.argv[2]} {i}'.encode()).hexdigest()\n"
        "    Cache(Path(sys.argv[1]), 5000).store(name, bytes(100))\n"
    )
    for number in range(4):
        subprocess.run([sys.executable, "-c", code, str(tmp_path), str(number)], check=True)
    assert len(os.listdir(tmp_path)) < 200


def test_threads_may_store_one_name_at_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    contents = [bytes([i]) * 20_000 for i in range(4)]
    seen: list[bytes | None] = []

    def store(content: bytes) -> None:
        for _ in range(20):
            cache.store("ab", content)
            seen.append(cache.load("ab"))

    threads = [threading.Thread(target=store, args=[content]) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80
    assert all(content in contents for content in seen)
    assert _stored(tmp_path) == ["ab"]


@needs_owners
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_may_read_or_write_what_is_kept(tmp_path: Path, umask: int) -> None:
    code = (
        f"import os, sys; os.umask({umask}); from pathlib import Path\n"
        "from graphfw.runtime.cache import Cache\n"
        "Cache(Path(sys.argv[1])).store('ab', b'content')\n"
    )
    path = tmp_path / "cache"
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(path)], check=True)
    assert _mode(path) == 0o700
    assert {_mode(file) for file in path.iterdir()} == {0o600}
    assert Cache(path).load("ab") == b"content"


@needs_owners
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    Cache(tmp_path).store("ab", b"content")
    tmp_path.chmod(mode)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache = Cache(tmp_path)
        assert cache.load("ab") is None
        cache.store("cd", b"more")
        assert Cache(tmp_path).load("ab") is None
    assert [str(one.message) for one in caught] == [  # once in a process
        f"the folder of compiled code '{tmp_path}' is not used, since others may write to it "
        f"(mode {mode:04o}): code is compiled again in each process. Delete it "
        f"('rm -r {tmp_path}'), or name another folder by GRAPHFW_CACHE; "
        "GRAPHFW_CACHE=off keeps nothing"
    ]
    assert cache.path is None
    assert _stored(tmp_path) == ["ab"]


@needs_owners
def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cache(tmp_path).store("ab", b"content")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match=r"belongs to another user \(uid \d+, this process"):
        assert Cache(tmp_path).load("ab") is None


@needs_owners
@pytest.mark.parametrize("how", ["readable", "link"])
def test_a_secret_that_others_may_know_is_not_used(tmp_path: Path, how: str) -> None:
    Cache(tmp_path).store("ab", b"content")
    secret = tmp_path / private_folder.SECRET_NAME
    if how == "readable":
        secret.chmod(0o644)
        with pytest.warns(RuntimeWarning, match="others may know its file .secret"):
            assert Cache(tmp_path).load("ab") is None
    else:
        os.rename(secret, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", secret)
        assert Cache(tmp_path).load("ab") is None


def test_what_is_signed_with_another_secret_counts_as_absent(tmp_path: Path) -> None:
    Cache(tmp_path / "theirs").store("ab", b"their code")
    Cache(tmp_path / "mine").store("cd", b"my code")
    os.replace(tmp_path / "theirs" / "ab", tmp_path / "mine" / "ab")
    assert Cache(tmp_path / "mine").load("ab") is None
    assert Cache(tmp_path / "mine").load("cd") == b"my code"


@pytest.mark.parametrize("content", [b"", b"short", bytes(100)])
def test_a_damaged_secret_is_made_again(tmp_path: Path, content: bytes) -> None:
    Cache(tmp_path).store("ab", b"content")
    (tmp_path / private_folder.SECRET_NAME).write_bytes(content)
    cache = Cache(tmp_path)
    assert cache.load("ab") is None
    cache.store("ab", b"content")
    assert Cache(tmp_path).load("ab") == b"content"


def test_processes_that_begin_at_once_share_a_secret(tmp_path: Path) -> None:
    secrets: list[bytes | None] = []
    start = threading.Barrier(4)

    def begin() -> None:
        start.wait()
        secrets.append(private_folder.secret(tmp_path))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(secrets)) == 1
    assert os.listdir(tmp_path) == [private_folder.SECRET_NAME]


def test_file_systems_without_hard_links_have_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refused)
    Cache(tmp_path).store("ab", b"content")
    assert Cache(tmp_path).load("ab") == b"content"


@pytest.fixture(autouse=True)
def nothing_warned_of() -> Iterator[None]:
    cache_module._warned.clear()
    yield
    cache_module._warned.clear()
