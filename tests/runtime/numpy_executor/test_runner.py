from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graphfw.errors import RunTimeoutError
from graphfw.ir import time_limits
from graphfw.runtime.numpy_executor import native, runner
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.machine import Machine
from graphfw.runtime.numpy_executor.runner import Run, StepCall, Stretch, Tables, Wave
from tests.runtime.numpy_executor.small_code import ADD, FAIL, SCRATCH, SPIN

Ints = NDArray[np.int64]


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(params=[False, True])
def hold(request: pytest.FixtureRequest) -> bool:
    flag: bool = request.param
    return flag


def integers(count: int) -> Ints:
    return np.random.default_rng().integers(-1000, 1000, count)


class Chain:
    """`y = x + 1 + 2 + ...`, a wave for each addition, each in two calls; base 0 is between."""

    def __init__(self, count: int, waves: int, threads: int, parallel: bool = True) -> None:
        (add,) = compile_codes([ADD])
        self.count, self.total = count, waves * (waves + 1) // 2
        cut = count // 3
        between = [(0, 8 * count * i) for i in range(waves - 1)]
        points = [(1, 0), *between, (2, 0)]
        rows = []
        for i in range(waves):
            (a, at), (b, to) = points[i : i + 2]
            first = StepCall(add, [(a, at), (b, to)], [i + 1], cut)
            second = StepCall(add, [(a, at + 8 * cut), (b, to + 8 * cut)], [i + 1], count - cut)
            rows.append(Wave([first, second], parallel))
        self.schedule = Tables(rows, bases=1, arrays=2)
        self.run = Run(self.schedule, threads)
        self.arena = np.zeros(max(1, count * (waves - 1)), np.int64)
        self.run.bases[0] = self.arena.ctypes.data

    def check(self, call: Stretch) -> None:
        x, y = integers(self.count), np.zeros(self.count, np.int64)
        assert call((x, y)) == 0
        np.testing.assert_array_equal(y, x + self.total)


@pytest.mark.parametrize("parallel", [False, True])
def test_waves_run_in_order(threads: int, hold: bool, parallel: bool) -> None:
    chain = Chain(61, 7, threads, parallel)
    call = chain.run.stretch(0, 7, hold=hold)
    for _ in range(20):
        chain.check(call)


def test_stretches_follow_each_other(threads: int) -> None:
    chain = Chain(17, 5, threads)
    first, second = chain.run.stretch(0, 2, hold=True), chain.run.stretch(2, 3, hold=False)
    x, y = integers(17), np.zeros(17, np.int64)
    assert first((x, y)) == 0
    np.testing.assert_array_equal(chain.arena[17:34], x + 3)
    assert not y.any()
    # Python moves what is between.
    moved = chain.arena.copy() * 2
    chain.run.bases[0] = moved.ctypes.data
    assert second(()) == 0  # the arrays of the first call
    np.testing.assert_array_equal(y, (x + 3) * 2 + 3 + 4 + 5)


def test_calls_without_work_items_and_waves_without_calls(threads: int) -> None:
    (add,) = compile_codes([ADD])
    refs = [(0, 0), (1, 0)]
    none = StepCall(add, refs, [100], 0)
    some = StepCall(add, refs, [3], 9)
    schedule = Tables([Wave([]), Wave([none, none, some, none]), Wave([none])], 0, 2)
    x, y = integers(9), np.zeros(9, np.int64)
    assert Run(schedule, threads).stretch(0, 3, hold=False)((x, y)) == 0
    np.testing.assert_array_equal(y, x + 3)
    empty = Tables([], 0, 0)
    assert Run(empty, threads).stretch(0, 0, hold=False)(()) == 0


def test_calls_with_operands_and_params_of_any_number(threads: int) -> None:
    (spin, add) = compile_codes([SPIN, ADD])
    x, y = integers(4), np.zeros((3, 4), np.int64)
    calls = [StepCall(spin, [], [10], 3)]
    calls += [StepCall(add, [(1, 0), (2, 32 * i), (0, 0)], [i, 77], 4) for i in range(3)]
    run = Run(Tables([Wave(calls)], 1, 2), threads)
    assert run.stretch(0, 1, hold=False)((x, y)) == 0
    np.testing.assert_array_equal(y, [x, x + 1, x + 2])


@pytest.mark.parametrize("reads", [True, False])
def test_arrays_that_native_code_cannot_take(monkeypatch: Any, reads: bool, hold: bool) -> None:
    monkeypatch.setattr(runner._native(), "reads_arrays", reads)
    chain = Chain(6, 2, 2)
    call = chain.run.stretch(0, 2, hold=hold)
    x, y = integers(6), np.zeros(6, np.int64)
    crooked = np.zeros(7 * 8, np.int8)[1:49].view(np.int64)
    assert call((x, np.zeros(12, np.int64)[::2])) == -2
    assert call((crooked, y)) == -1
    assert call((x, y, y)) == -3
    assert not y.any()
    assert not chain.arena.any()
    assert call((x, y)) == 0
    np.testing.assert_array_equal(y, x + 3)
    chain.check(call)
    assert call((x.reshape(3, 1, 2), y.reshape(1, 6))) == 0


def test_subclasses_of_arrays_are_arrays() -> None:
    class Special(np.ndarray[Any, Any]):
        more = 1

    chain = Chain(6, 2, 1)
    x, y = integers(6).view(Special), np.zeros(6, np.int64)
    assert chain.run.stretch(0, 2, hold=True)((x, y)) == 0
    np.testing.assert_array_equal(y, np.asarray(x) + 3)


def test_this_python_is_read_natively() -> None:
    # Everything else is tested on what CPython has; elsewhere the slow way is right too.
    assert runner._reads_arrays()


def test_an_error_stops_the_run(threads: int, hold: bool) -> None:
    (fail,) = compile_codes([FAIL])
    never, there = 10**6, 4
    good = StepCall(fail, [(0, 0)], [never], 30)
    bad = StepCall(fail, [(0, 0)], [there], 2000)
    later = StepCall(fail, [(0, 8)], [never], 10)
    schedule = Tables([Wave([good]), Wave([good, good, bad, good]), Wave([later])], 0, 1)
    call = Run(schedule, threads).stretch(0, 3, hold=hold)
    for _ in range(10):
        counts = np.zeros(2, np.int64)
        assert call((counts,)) == 4  # calls are counted over all waves, from 1
        assert counts[1] == 0
        # Each other thread may have been ahead while the one that failed was held up; what was not
        # begun when it failed is skipped.
        assert 95 <= counts[0]
        if threads == 1:
            assert counts[0] == 95


def test_the_error_of_a_wave_that_is_not_shared() -> None:
    (fail,) = compile_codes([FAIL])
    schedule = Tables([Wave([StepCall(fail, [(0, 0)], [2], 5)], parallel=False)] * 2, 0, 1)
    counts = np.zeros(1, np.int64)
    run = Run(schedule, 2)
    assert run.stretch(0, 2, hold=False)((counts,)) == 1
    assert run.stretch(1, 1, hold=False)((counts,)) == 2
    assert counts[0] == 6


def test_little_work_does_not_put_the_question_off_whether_long_work_should_end() -> None:
    count, spin = compile_codes([FAIL, SPIN])
    never, long = 10**6, 10**7
    little = Wave([StepCall(count, [(0, 0)], [never], 1)], parallel=False)
    pair = StepCall(count, [(0, 8)], [never], 1), StepCall(spin, [], [long], 1)
    run = Run(Tables([little, Wave(pair * 40)], 0, 1), 1)
    counts = np.zeros(2, np.int64)
    with pytest.raises(RunTimeoutError):
        time_limits.limited(1e-9, run.stretch(0, 2, hold=False), (counts,))
    assert counts[1] < 15  # those of a few ms each that fit between two questions


def test_an_error_is_forgotten_by_the_next_run(threads: int) -> None:
    (fail,) = compile_codes([FAIL])
    run = Run(Tables([Wave([StepCall(fail, [(0, 0)], [3], 4)])], 1, 0), threads)
    counts = np.zeros(1, np.int64)
    run.bases[0] = counts.ctypes.data
    call = run.stretch(0, 1, hold=False)
    assert call(()) == 1
    run.schedule.params[0] = 5
    assert call(()) == 0


def test_each_thread_has_scratch_memory_of_its_own(threads: int) -> None:
    (scratch,) = compile_codes([SCRATCH])
    words = 1500
    large = StepCall(scratch, [], [words], 20, 8 * words)
    small = StepCall(scratch, [], [3], 20, 24)
    schedule = Tables([Wave([small, large, small]), Wave([large])], 0, 0)
    assert schedule.scratch == -(-8 * words // 64) * 64
    call = Run(schedule, threads).stretch(0, 2, hold=False)
    for _ in range(30):
        assert call(()) == 0


def test_a_stretch_keeps_what_it_needs() -> None:
    (add,) = compile_codes([ADD])
    wave = Wave([StepCall(add, [(0, 0), (1, 0)], [9], 50)])
    call = Run(Tables([wave], 0, 2), 2).stretch(0, 1, hold=False)
    gc.collect()
    noise = [np.full(size, 7) for size in range(100)]
    x, y = integers(50), np.zeros(50, np.int64)
    assert call((x, y)) == 0
    np.testing.assert_array_equal(y, x + 9)
    assert len(noise) == 100


@pytest.mark.parametrize(
    "triple", ["x86_64-pc-windows-msvc", "arm64-apple-darwin24", "aarch64-unknown-linux-gnu"]
)
def test_the_runner_of_other_systems_is_sound(monkeypatch: Any, triple: str) -> None:
    import llvmlite.binding as llvm

    monkeypatch.setattr(native, "machine", lambda: Machine(triple, "", "", ""))
    module = llvm.parse_assembly(native.RunnerCode().llvm("run"), llvm.create_context())
    module.verify()
    called = {function.name for function in module.functions if function.is_declaration}
    assert ("pthread_create" in called) == ("windows" not in triple)
    assert ("sched_getcpu" in called) == ("linux" in triple)


def test_records(threads: int) -> None:
    (spin,) = compile_codes([SPIN])
    schedule = Tables(
        [Wave([StepCall(spin, [], [2000], 7), StepCall(spin, [], [10], 2)])] * 2, 0, 0
    )
    run = Run(schedule, threads)
    call = run.stretch(0, 2, hold=False)
    assert call(()) == 0
    assert len(run.records()) == 0
    run.record(100)
    for _ in range(2):
        assert call(()) == 0
        found = np.sort(run.records(), order=["call", "work_item"])
        assert found["call"].tolist() == [0] * 7 + [1] * 2 + [2] * 7 + [3] * 2
        assert found["work_item"].tolist() == [*range(7), *range(2)] * 2
        assert (found["start"] <= found["end"]).all()
        assert found["thread"].min() >= 0
        assert found["thread"].max() < threads
        assert found["start"][9:].min() >= found["end"][:9].max()  # waves follow each other
    run.record(4)
    assert call(()) == 0
    assert len(run.records()) == 4  # as many as there is room for
    run.record(0)
    assert call(()) == 0
    assert len(run.records()) == 0


def test_runs_of_one_schedule_at_once(threads: int, hold: bool) -> None:
    chain = Chain(40, 4, threads)
    wrong: list[int] = []

    def work(seed: int) -> None:
        run = Run(chain.schedule, threads)
        arena = np.zeros_like(chain.arena)
        run.bases[0] = arena.ctypes.data
        call = run.stretch(0, 4, hold=hold)
        x, y = np.arange(40) * seed, np.zeros(40, np.int64)
        for _ in range(200):
            y[:] = 0
            if call((x, y)) or not np.array_equal(y, x + 10):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
