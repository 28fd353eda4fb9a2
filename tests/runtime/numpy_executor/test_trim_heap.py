"""Memory that compiling leaves: what is given back, and that nobody misses it."""

import ctypes
import mmap
import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import buffer_pool, trim_heap

linux = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")


@pytest.fixture
def compiled(monkeypatch):
    """Compile something, so that LLVM is there."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setenv("GRAPHFW_CACHE", "off")
    return plan_of(np.random.default_rng().integers(1 << 30))


def plan_of(number):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.exp(x) * float(number)
    return gf.Session(g).compile(y, feeds=[x])


def resident_mib():
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as lines:
        text = lines.read()
    mappings = text.split("VmFlags")
    own = [mapping for mapping in mappings if trim_heap._library() in mapping]
    return sum(int(mapping.split("Rss:")[1].split()[0]) for mapping in own) / 1024


@linux
def test_the_compilers_code_goes_and_comes_again(compiled):
    before = resident_mib()
    trim_heap.trim_heap()
    after = resident_mib()
    assert after < before / 2
    x = np.ones(3, np.float32)
    assert compiled(x).shape == (3,)
    np.testing.assert_allclose(plan_of(7)(x), 7 * np.exp(x), rtol=1e-6)
    assert resident_mib() > after


@linux
def test_what_the_linker_has_changed_stays(compiled):
    spans = list(trim_heap._read_only(trim_heap._library()))
    kinds = [trim_heap._is_clean(span) for span in spans]
    assert True in kinds
    assert False in kinds  # addresses that were filled in, then protected


@linux
def test_a_page_that_was_written_to_is_not_clean(tmp_path):
    path = tmp_path / "pages"
    path.write_bytes(b"x" * 4 * mmap.PAGESIZE)
    with path.open("r+b") as file:
        pages = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE)
        first = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        span = trim_heap._Span(first, first + 4 * mmap.PAGESIZE)
        assert pages[mmap.PAGESIZE] == ord("x")
        assert trim_heap._is_clean(span)
        pages[mmap.PAGESIZE] = 1
        assert not trim_heap._is_clean(span)


def test_a_large_arena_asks_for_it(monkeypatch):
    calls = []
    monkeypatch.setattr(buffer_pool, "trim_heap", lambda: calls.append(1))
    arenas = buffer_pool.Arenas()
    arenas.give(arenas.take(1000))
    assert not calls
    large = arenas.take(buffer_pool._LARGE)
    arenas.give(large)
    assert arenas.take(buffer_pool._LARGE) is large
    assert len(calls) == 1


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_system_without_such_calls(platform, monkeypatch):
    class Libc:
        """One without `malloc_trim`."""

    def closed(*_args, **_options):
        raise PermissionError

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(trim_heap, "_libc", Libc)
    monkeypatch.setattr(trim_heap, "open", closed, raising=False)
    trim_heap.trim_heap()
