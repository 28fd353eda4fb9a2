"""Contenders in processes of their own, which live as long as the whole run.

Libraries with thread pools slow each other down in one process: OpenBLAS's threads spin on after a
call and take PyTorch's cores. So each contender has a process, which imports its library once, and
they take turns; all but one wait for a message meanwhile.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from benchmarks import devices, machine, timing
from benchmarks.results import Fingerprint, difference, fingerprints
from benchmarks.workload import Case, Contest, Failure, Maker, Result, Settings, Steps

_THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS",
)
_ALLOCATOR = {
    # What is freed is kept and used again. By default glibc gives large blocks back to the system,
    # or not, as it goes with what a process did before, and an operation may take 20 times as long.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
_LEAST_ROUNDS = 3
_FAR = 4.0
"""A peer that takes this many times as long as the best has its turns in the first rounds only."""
_SLOW_S = 0.02
"""Calls that take longer don't notice that threads had been asleep."""


class Pool:
    """The contenders' processes, started when they are first needed.

    Args:
        settings: Who takes part, and how it is measured.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers.values():
            worker.stop()

    def call(self, contender: str, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function returns in the contender's process.

        Raises:
            Failure: It raised an error there.
        """
        return self._worker(contender).ask("call", function, args)

    def measure(self, workload: Contest) -> Result:
        """Compare the contenders' results, then their times, in turns.

        The results are held against those of the first peer that takes part. A contender that fails
        or whose results differ has no time, and the reason among the notes.
        """
        names = [n for n in workload.makers if self._takes(n)]
        result = Result(workload.name, workload.title, {}, targets=workload.targets)
        for name in names:  # all at once: compiling is not what is timed
            self._worker(name).tell("prepare", workload.makers[name], workload.checks)
        found: dict[str, list[Fingerprint]] = {}
        patience = self.settings.patience_s
        until = None if patience is None else time.monotonic() + patience
        for name in names:
            try:
                found[name] = self._worker(name).answer(until)
            except Failure as error:
                result.notes[name] = f"failed: {error}"
        reference = next((n for n in names if n in machine.PEERS and n in found), None)
        for name, prints in found.items():
            if reference is None or name in machine.FLOORS:
                continue
            differs = difference(prints, found[reference], workload.rtol, workload.atol)
            if differs:
                result.notes[name] = f"differs from {reference}: {differs}"
        self._time([n for n in found if n not in result.notes], result)
        result.failed = tuple(result.notes)
        if self.settings.steps and "graphfw" in result.seconds:
            result.steps = self._worker("graphfw").ask("steps")
        for name in names:
            if not self._workers[name].died:
                self._workers[name].ask("drop")
        return result

    def _takes(self, name: str) -> bool:
        return self.settings.takes(name) and machine.installed(name, self.settings.device)

    def _time(self, names: list[str], result: Result) -> None:
        samples: dict[str, list[float]] = {}
        names = names if self.settings.rounds else []
        for name in names:
            if self._timed(name, "warm", result) is not None:
                samples[name] = []
        begin = time.perf_counter()
        for done in range(self.settings.rounds):
            spent = time.perf_counter() - begin
            if done >= _LEAST_ROUNDS and spent > self.settings.budget_s:
                break
            names = list(samples) if done < _LEAST_ROUNDS else _near_the_best(samples)
            shift = done % max(1, len(names))  # so that none always follows the same
            for name in names[shift:] + names[:shift]:
                taken = self._timed(name, "round", result)
                if taken is None:
                    del samples[name]
                else:
                    samples[name].append(taken)
        result.seconds = {name: statistics.median(times) for name, times in samples.items()}
        result.minima = {name: self._worker(name).ask("least") for name in samples}

    def _timed(self, name: str, what: str, result: Result) -> float | None:
        """Return a time that a contender took, or None where it failed, which is noted."""
        try:
            taken: float = self._worker(name).ask(what)
        except Failure as error:
            result.notes[name] = f"failed: {error}"
            return None
        return taken

    def _worker(self, contender: str) -> Worker:
        worker = self._workers.get(contender)
        if worker is None or worker.died:
            worker = self._workers[contender] = Worker(contender, self.settings)
        return worker


def _near_the_best(samples: dict[str, list[float]]) -> list[str]:
    """Return those whose times are worth more turns: graphfw, floors, and what is near the best."""
    best = min((min(samples[n]) for n in samples if n in machine.PEERS), default=0.0)
    return [n for n in samples if n not in machine.PEERS or min(samples[n]) < _FAR * best]


class Worker:
    """The end of a contender's process that asks.

    Args:
        contender: Who runs there.
        settings: How it is measured.
        folder: Where its modules are looked for first; None: as in this process.
    """

    def __init__(self, contender: str, settings: Settings, folder: str | None = None) -> None:
        self.died = False
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # In the environment before the process begins: libraries read it when they are loaded.
        before, path = dict(os.environ), list(sys.path)
        sys.path[:0] = [] if folder is None else [folder]  # which the process takes over
        os.environ.update(dict.fromkeys(_THREAD_LIMITS, str(settings.threads)))
        os.environ[devices.VARIABLE] = settings.device
        os.environ.update(_ALLOCATOR)
        os.environ.update(devices.environment(settings.device))
        try:
            serve = (theirs, contender, settings.threads)
            self._process = context.Process(target=_serve, args=serve, daemon=True)
            self._process.start()
        finally:
            sys.path[:] = path
            os.environ.clear()
            os.environ.update(before)
        theirs.close()

    def tell(self, *message: Any) -> None:
        self._pipe.send(message)

    def answer(self, until: float | None = None) -> Any:
        """Return what it answers, by a time of the clock that `time.monotonic` reads.

        Raises:
            Failure: It has failed, or is not ready, and ends.
        """
        if until is not None and not self._pipe.poll(max(0.0, until - time.monotonic())):
            self.died = True
            self._process.kill()
            raise Failure("it was not ready in time")
        try:
            done, value = self._pipe.recv()
        except EOFError:
            self.died = True
            raise Failure("its process died") from None
        if not done:
            raise Failure(value)
        return value

    def ask(self, *message: Any) -> Any:
        self.tell(*message)
        return self.answer()

    def stop(self) -> None:
        self._pipe.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()


def _serve(pipe: Connection, contender: str, threads: int) -> None:
    """Answer what the other end asks for, until it hangs up."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, machine.cores()[:threads])  # XLA makes a thread for each core
    stand = _Stand(devices.stopwatch(contender))
    while True:
        try:
            what, *args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(stand, what)(*args)))
        except Exception as error:
            stand.drop()
            pipe.send((False, "".join(traceback.format_exception_only(error)).strip()[-400:]))


class _Stand:
    """The state of a contender's process, and the messages that it understands."""

    def __init__(self, watch: devices.Stopwatch) -> None:
        self._watch = watch
        self._case = Case(lambda: None)
        self._once = 0.0
        self._calls = 1
        self._stretches = 1
        self._least = math.inf

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return function(*args)

    def prepare(self, maker: Maker, checks: int) -> list[Fingerprint]:
        devices.reset()
        self._case = maker()
        check = self._case.check or self._case.run
        found = [f for _ in range(checks) for f in fingerprints(check())]
        self._settle()
        return found

    def warm(self) -> float:
        self._once = timing.warmed(self._case.run, self._watch)
        # On a GPU each stretch would wait for its work to be done.
        stretch_s = timing.ROUND_S if devices.on_gpu() else timing.STRETCH_S
        self._calls = timing.calls_for(self._once, stretch_s)
        self._stretches = max(1, timing.calls_for(self._once) // self._calls)
        self._least = math.inf
        self._settle()
        return self._once

    def round(self) -> float:
        if self._once < _SLOW_S:
            self._case.run()  # wakes the threads
            self._settle()
        taken = timing.means_of(self._case.run, self._calls, self._stretches, self._watch)
        self._least = min(self._least, *taken)
        self._settle()
        return statistics.mean(taken)

    def least(self) -> float:
        return self._least

    def steps(self) -> Steps:
        return [] if self._case.steps is None else self._case.steps()

    def drop(self) -> None:
        self._case = Case(lambda: None)
        gc.collect()
        devices.release()

    def _settle(self) -> None:
        if self._case.settle is not None:
            self._case.settle()
