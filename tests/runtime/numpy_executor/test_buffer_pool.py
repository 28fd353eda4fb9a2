"""Memory that is used again: never while anybody can see it."""

import mmap
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from graphfw.ir.dtype import bfloat16
from graphfw.runtime.numpy_executor.buffer_pool import (
    LARGE_PAGE,
    Arenas,
    OutputPool,
    aligned,
    copied_together,
)
from graphfw.runtime.planning.arena import ALIGNMENT

SHAPE = (256, 128)
NBYTES = 4 * 256 * 128


@pytest.fixture
def pool_of_outputs():
    return OutputPool(np.dtype(np.float32))


def take(pool_of_outputs):
    return pool_of_outputs.take(SHAPE, NBYTES)


def test_what_is_dropped_is_used_again(pool_of_outputs):
    addresses = set()
    for _ in range(20):
        array = take(pool_of_outputs)
        assert array.shape == SHAPE
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.ctypes.data % ALIGNMENT == 0
        addresses.add(array.ctypes.data)
        del array
    assert len(addresses) == 1


def views(array):
    yield array
    yield array[3:, ::2]
    yield array[3:][::2].T[1:]
    yield np.asarray(array.data)
    yield array.view(np.int32)[5]
    yield np.lib.stride_tricks.as_strided(array, (3,), (8,))
    yield np.broadcast_to(array[:1, :1], (9, 9))
    yield memoryview(array)
    yield array.flat
    yield {"deep": [array.reshape(-1)[7:8]]}
    yield np.from_dlpack(array)


@pytest.mark.parametrize("number", range(11))
def test_what_is_seen_by_any_view_is_never_handed_out_again(pool_of_outputs, number):
    array = take(pool_of_outputs)
    array[...] = 7
    address = array.ctypes.data
    kept = list(views(array))[number]
    del array
    others = []
    for _ in range(12):
        other = take(pool_of_outputs)
        assert not address - NBYTES < other.ctypes.data < address + NBYTES
        other[...] = 0
        others.append(other)
        if len(others) % 3 == 0:
            others.clear()
    del kept, others, other
    addresses = [take(pool_of_outputs).ctypes.data for _ in range(3)]
    assert len(set(addresses)) == 1


def test_arrays_that_are_held_are_all_different(pool_of_outputs):
    held = [take(pool_of_outputs) for _ in range(10)]
    for number, array in enumerate(held):
        array[...] = number
    assert all((array == number).all() for number, array in enumerate(held))


def test_other_sizes_and_small_arrays(pool_of_outputs):
    first = take(pool_of_outputs)
    address = first.ctypes.data
    del first
    large = pool_of_outputs.take((512, 128), 2 * NBYTES)
    large[...] = 1
    assert large.nbytes == 2 * NBYTES
    assert take(pool_of_outputs).ctypes.data == address
    assert pool_of_outputs.take((), 4).shape == ()
    assert pool_of_outputs.take((0, 5), 0).size == 0
    assert len(pool_of_outputs._past) <= 4


def test_no_array_has_two_owners_when_many_threads_take(pool_of_outputs):
    """Each writes its own number and finds it again."""
    wrong = []

    def work(number):
        for i in range(60):
            array = take(pool_of_outputs)
            array[...] = number
            rows = array[::2]
            del array
            if i % 3 == 0:
                other = take(pool_of_outputs)
                other[...] = number + 0.5
                if not (other == number + 0.5).all():
                    wrong.append(number)
                del other
            if not (rows == number).all():
                wrong.append(number)
            del rows

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_arenas_are_used_again_and_grow():
    arenas = Arenas()
    first = arenas.take(1000)
    assert first.array.nbytes >= 1000
    assert first.address == first.array.ctypes.data
    assert first.address % ALIGNMENT == 0
    second = arenas.take(1000)
    assert second.address != first.address
    arenas.give(first)
    assert arenas.take(500) is first
    arenas.give(first)
    assert arenas.take(5000).array.nbytes >= 5000
    assert arenas.take(0).array.nbytes == 0


def test_aligned_bytes():
    for nbytes in (0, 1, 1000):
        array = aligned(nbytes)
        assert array.nbytes == nbytes
        assert array.ctypes.data % ALIGNMENT == 0 or not nbytes


def test_large_pieces_begin_at_a_large_page_and_have_the_end_of_the_last_one():
    array = aligned((33 << 20) + 5)
    assert array.nbytes == (33 << 20) + 5
    assert array.ctypes.data % LARGE_PAGE == 0
    end = array.base.ctypes.data + array.base.nbytes
    assert end >= array.ctypes.data + (34 << 20)


def test_copies_lie_side_by_side():
    rng = np.random.default_rng(7)
    arrays = [
        rng.standard_normal((5, 3), np.float32),
        np.broadcast_to(np.float32(0), (17, 1)),
        np.broadcast_to(np.float64(-0.0), (3, 2)),
        np.broadcast_to(np.int8(3), (70,)),
        np.empty((0, 4), np.float32),
        rng.integers(0, 9, (4, 6)).T[::2],
        np.array(0, bfloat16.dtype),
        np.array(2.5, bfloat16.dtype),
        np.zeros((2, 2), bool),
    ]
    copies = copied_together(iter(arrays), [array.nbytes for array in arrays])
    assert len({id(copy.base) for copy in copies}) == 1
    for array, copy in zip(arrays, copies, strict=True):
        assert copy.dtype == array.dtype
        assert copy.shape == array.shape
        assert copy.tobytes() == array.tobytes()
        assert copy.flags.writeable
        assert copy.flags.c_contiguous
        assert copy.ctypes.data % ALIGNMENT == 0 or not copy.size
        copy[...] = 1
    assert arrays[1][0, 0] == 0


def test_each_array_can_go_before_the_next_one_is_made():
    past = []

    def made(value):
        assert not any(array() is not None for array in past)
        array = np.full((9, 9), value)
        past.append(weakref.ref(array))
        return array

    copies = copied_together(map(made, range(4)), [9 * 9 * 8] * 4)
    assert [int(copy[3, 3]) for copy in copies] == [0, 1, 2, 3]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_zeros_take_no_memory_before_they_are_written():
    def resident():
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * mmap.PAGESIZE

    size = 256 << 20
    zeros = np.broadcast_to(np.float32(0), (size // 4,))
    before = resident()
    (copy,) = copied_together([zeros], [size])
    assert resident() - before < size // 4
    copy[::1024] = 1
    assert resident() - before > size // 2
    assert copy[:1030].sum() == 2
