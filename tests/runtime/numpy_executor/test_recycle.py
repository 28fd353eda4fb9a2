"""Memory that is used again: never while anybody can see it."""

import threading

import numpy as np
import pytest

from graphfw.runtime.numpy_executor.arena import ALIGNMENT
from graphfw.runtime.numpy_executor.recycle import Arenas, Recycler, aligned

SHAPE = (256, 128)
NBYTES = 4 * 256 * 128


@pytest.fixture
def recycler():
    return Recycler(np.dtype(np.float32))


def take(recycler):
    return recycler.take(SHAPE, NBYTES)


def test_what_is_dropped_is_used_again(recycler):
    addresses = set()
    for _ in range(20):
        array = take(recycler)
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
def test_what_is_seen_by_any_view_is_never_handed_out_again(recycler, number):
    array = take(recycler)
    array[...] = 7
    address = array.ctypes.data
    kept = list(views(array))[number]
    del array
    others = []
    for _ in range(12):
        other = take(recycler)
        assert not address - NBYTES < other.ctypes.data < address + NBYTES
        other[...] = 0
        others.append(other)
        if len(others) % 3 == 0:
            others.clear()
    del kept, others, other
    addresses = [take(recycler).ctypes.data for _ in range(3)]
    assert len(set(addresses)) == 1


def test_arrays_that_are_held_are_all_different(recycler):
    held = [take(recycler) for _ in range(10)]
    for number, array in enumerate(held):
        array[...] = number
    assert all((array == number).all() for number, array in enumerate(held))


def test_other_sizes_and_small_arrays(recycler):
    first = take(recycler)
    address = first.ctypes.data
    del first
    large = recycler.take((512, 128), 2 * NBYTES)
    large[...] = 1
    assert large.nbytes == 2 * NBYTES
    assert take(recycler).ctypes.data == address
    assert recycler.take((), 4).shape == ()
    assert recycler.take((0, 5), 0).size == 0
    assert len(recycler._past) <= 4


def test_no_array_has_two_owners_when_many_threads_take(recycler):
    """Each writes its own number and finds it again."""
    wrong = []

    def work(number):
        for i in range(60):
            array = take(recycler)
            array[...] = number
            rows = array[::2]
            del array
            if i % 3 == 0:
                other = take(recycler)
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
