from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.runner import Run, StepCall, Stretch, Tables, Wave
from tests.runtime.numpy_executor.small_code import ADD, SCRATCH, SPIN

two_processors = pytest.mark.skipif(default_threads() < 2, reason="needs two processors")


def spinning(work_items: int, turns: int, threads: int, waves: int = 1) -> tuple[Run, Stretch]:
    (spin,) = compile_codes([SPIN])
    run = Run(Tables([Wave([StepCall(spin, [], [turns], work_items)])] * waves, 0, 0), threads)
    return run, run.stretch(0, waves, hold=False)


def script(text: str, *, seconds: float = 60) -> str:
    """Return the output of a Python process; it must end well, and in time."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text],
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PRELUDE = """
import os, sys, threading, time
import numpy as np
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.runner import StepCall, Run, Tables, Wave
from tests.runtime.numpy_executor.small_code import ADD, SCRATCH, SPIN

add, scratch, spin = compile_codes([ADD, SCRATCH, SPIN])

def check(threads=2, times=50):
    refs = [(0, 0), (1, 0)]
    waves = [Wave([StepCall(add, refs, [5], 100), StepCall(scratch, [], [50], 30, 400)])] * 4
    call = Run(Tables(waves, 0, 2), threads).stretch(0, 4, hold=False)
    for _ in range(times):
        x, y = np.arange(100), np.zeros(100, np.int64)
        assert call((x, y)) == 0
        assert (y == x + 5).all()
"""


def test_default_threads() -> None:
    assert 1 <= default_threads() <= (os.cpu_count() or 1)


@two_processors
def test_work_is_shared() -> None:
    run, call = spinning(work_items=400, turns=50_000, threads=2)
    run.record(400)
    used: set[int] = set()
    # The other processor may be busy with something else for a while.
    for _ in range(50):
        call(())
        used |= set(run.records()["thread"].tolist())
        if len(used) == 2:
            break
    assert used == {0, 1}


@pytest.mark.parametrize("threads", [1, 2, 3, 20, 10_000])
def test_no_more_threads_than_allowed(threads: int) -> None:
    run, call = spinning(work_items=50, turns=100, threads=threads, waves=3)
    run.record(1000)
    for _ in range(20):
        assert call(()) == 0
    assert len(run.records()) == 1000
    for _ in range(5):
        call(())
        assert run.records()["thread"].max() < threads


def test_thousands_of_small_runs() -> None:
    (add,) = compile_codes([ADD])
    refs = [(0, 0), (1, 0)]
    schedule = Tables([Wave([StepCall(add, refs, [i], 3)]) for i in range(3)], 0, 2)
    x, y = np.arange(3), np.zeros(3, np.int64)
    for _ in range(300):
        call = Run(schedule, 2).stretch(0, 3, hold=False)
        for _ in range(20):
            y[:] = -1
            assert call((x, y)) == 0
            assert y.tolist() == [2, 3, 4]


def test_runs_before_and_after_the_workers_slept() -> None:
    run, call = spinning(work_items=20, turns=3000, threads=3, waves=2)
    run.record(1000)
    for pause in (0, 0.0001, 0.0003, 0.001, 0.003, 0.01) * 5:
        time.sleep(pause)
        assert call(()) == 0
        assert len(run.records()) == 40


def test_idle_workers_take_no_time() -> None:
    _, call = spinning(work_items=50, turns=1000, threads=4)
    assert call(()) == 0
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


@pytest.mark.slow
def test_many_python_threads_at_once() -> None:
    (add, scratch) = compile_codes([ADD, SCRATCH])
    calls = [StepCall(add, [(0, 0), (1, 0)], [5], 64), StepCall(scratch, [], [40], 20, 320)]
    schedule = Tables([Wave(calls), Wave(calls[::-1]), Wave(calls, parallel=False)], 0, 2)
    wrong: list[int] = []

    def work(seed: int) -> None:
        x, y = np.arange(64) + seed, np.zeros(64, np.int64)
        for i in range(150):
            call = Run(schedule, 1 + (seed + i) % 4).stretch(0, 3, hold=False)
            y[:] = 0
            if call((x, y)) or not np.array_equal(y, x + 5):
                wrong.append(seed)

    # More than there are slots.
    workers = [threading.Thread(target=work, args=[seed]) for seed in range(70)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@fork
def test_a_forked_process_makes_workers_of_its_own() -> None:
    said = script(
        PRELUDE
        + """
check()
for _ in range(3):
    child = os.fork()
    if child == 0:
        check()
        before = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 2
        assert before == 2, before
        grandchild = os.fork()
        if grandchild == 0:
            check(3)
            os._exit(0)
        os._exit(os.waitpid(grandchild, 0)[1])
    assert os.waitpid(child, 0)[1] == 0
    check()
print("done")
"""
    )
    assert said == "done\n"


@pytest.mark.slow
@fork
def test_a_fork_while_other_threads_run() -> None:
    said = script(
        PRELUDE
        + """
stop = []
def work():
    waves = [Wave([StepCall(spin, [], [5000], 40)])] * 5
    call = Run(Tables(waves, 0, 0), 3).stretch(0, 5, hold=False)
    while not stop:
        assert call(()) == 0
workers = [threading.Thread(target=work) for _ in range(3)]
for worker in workers:
    worker.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        check(times=5)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.append(1)
for worker in workers:
    worker.join()
check()
print("done")
"""
    )
    assert said == "done\n"


@pytest.mark.slow
def test_a_process_ends_while_workers_are_there() -> None:
    assert script(PRELUDE + "check()\nprint('done')") == "done\n"


@pytest.mark.slow
def test_a_process_ends_while_a_run_goes_on() -> None:
    said = script(
        PRELUDE
        + """
def work():
    waves = [Wave([StepCall(spin, [], [5000], 400)])] * 5
    call = Run(Tables(waves, 0, 0), 3).stretch(0, 5, hold=False)
    while True:
        call(())
threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
print("done")
"""
    )
    assert said == "done\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_without_room_for_workers_the_caller_computes_all() -> None:
    said = script(
        PRELUDE
        + """
import resource
# No address space for a stack.
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), -1))
before = os.listdir("/proc/self/task")
check()
print(len(os.listdir("/proc/self/task")) - len(before))
"""
    )
    assert said == "0\n"
