"""Values that are computed once: when they are computed again, and where."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from graphfw.runtime.hoisting import HoistedValues


class Backend:
    """Doubles numbers; what is given is the list of them, and memory a list, too."""

    def __init__(self, *, is_constant=False, goes_over=False):
        self.is_constant = is_constant
        self.goes_over = goes_over
        self.computed = []
        self.fails = False

    def memory(self, given, before):
        return before if self.goes_over and before is not None else []

    def compute(self, memory, given, *, is_new):
        self.computed.append(is_new)
        memory[:] = [2 * number for number in given]
        if self.fails:
            raise MemoryError


def test_values_are_computed_once_for_each_version():
    backend = Backend()
    values = HoistedValues(backend)
    first = values.provide([1, 2], 7)
    assert first == [2, 4]
    assert values.provide([1, 2], 7) is first
    second = values.provide([3], 8)
    assert (first, second) == ([2, 4], [6]), "who has the old ones keeps them"
    assert backend.computed == [True, True]


def test_values_of_constants_are_computed_for_good():
    backend = Backend(is_constant=True)
    values = HoistedValues(backend)
    assert values.version_of(5) == values.version_of(9) == 0
    assert values.provide([1], 5) is values.provide([1], 9)
    assert backend.computed == [True]


def test_values_go_where_they_were_if_the_backend_says_so():
    backend = Backend(goes_over=True)
    values = HoistedValues(backend)
    memory = values.provide([1], 1)
    assert values.provide([4], 2) is memory
    assert memory == [8]
    assert backend.computed == [True, False]


def test_values_that_are_forgotten_are_computed_again():
    backend = Backend()
    values = HoistedValues(backend)
    values.provide([1], 1)
    values.forget(2)
    values.provide([1], 1)
    assert backend.computed == [True], "they are of another version"
    values.forget(1)
    values.provide([1], 1)
    assert backend.computed == [True, True]


@pytest.mark.parametrize("goes_over", [False, True])
def test_values_that_could_not_be_computed_are_no_values(goes_over):
    backend = Backend(goes_over=goes_over)
    values = HoistedValues(backend)
    values.provide([1], 1)
    backend.fails = True
    with pytest.raises(MemoryError):
        values.provide([2], 2)
    backend.fails = False
    assert values.provide([1], 1) == [2], "what failed may have gone over them"
    assert values.provide([2], 2) == [4]


def test_threads_that_need_them_at_once_compute_them_once():
    backend = Backend()
    values = HoistedValues(backend)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: values.provide([1], 1), range(64)))
    assert all(one is found[0] for one in found)
    assert len(backend.computed) == 1
