"""Tasks on several threads: which threads they have, and what becomes of errors."""

import threading

import pytest

from graphfw.utils.side_by_side import allowed, both, threads_here


@pytest.mark.parametrize(("threads", "counts"), [(1, {1}), (2, {1}), (5, {2, 3})])
def test_each_task_has_half_of_the_threads(threads, counts):
    seen, threads_seen = set(), set()

    def task():
        seen.add(threads_here())
        threads_seen.add(threading.get_ident())

    with allowed(threads):
        both(task, task)
    assert seen == counts
    assert len(threads_seen) == min(threads, 2)
    assert threads_here() == 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("number", [0, 1])
def test_an_error_of_a_task_is_raised(threads, number):
    def fail():
        raise ValueError("no")

    tasks = [lambda: None, lambda: None]
    tasks[number] = fail
    with allowed(threads), pytest.raises(ValueError, match="no"):
        both(*tasks)
