"""Locks: what an interrupt leaves of `with lock:`, at any moment."""

import signal
import threading

import pytest

from graphfw.utils import locks
from tests.support import alarms

pytestmark = alarms.needs_timers


@pytest.fixture(autouse=True)
def alarm_is_ctrl_c():
    with alarms.alarm_is_ctrl_c():
        yield


def interrupted(job, after):
    """Call job again and again until the signal comes."""
    with pytest.raises(KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, after)
        while True:
            job()


def is_free(lock):
    """Say whether another thread can take it."""
    found = []

    def take():
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.slow
def test_a_lock_is_free_whenever_its_block_is_interrupted(rng):
    outer, inner = locks.reentrant(), locks.reentrant()

    def job():
        with outer, inner, outer:
            pass

    for after in rng.uniform(1e-6, 2e-5, 2000):
        interrupted(job, after)
        assert is_free(outer)
        assert is_free(inner)


@pytest.mark.smoke
def test_who_waits_for_a_lock_can_be_interrupted():
    lock = locks.reentrant()
    taken, leave = threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(30)

    def wait():
        with lock:
            raise AssertionError("the lock is another thread's")

    interrupted(wait, 0.01)
    leave.set()
    thread.join()
    assert is_free(lock)
