"""Forks while other threads are in the middle of something: the child has all of it, or nothing."""

import functools
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import graphfw as gf
from graphfw.utils import forks
from graphfw.utils.collecting import without_collection

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SECONDS = 60


def forked(job):
    """Run a function in a child, and say whether it was true there, within a minute."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        try:
            os._exit(0 if job() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


class Busy:
    """Another thread, which has begun something and goes on with it until the block ends."""

    def __init__(self, job):
        self._begun, self._go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=job, args=(self,))

    def wait(self):
        """Called by the job, in the middle of it."""
        self._begun.set()
        assert self._go_on.wait(SECONDS)

    def __enter__(self):
        self._thread.start()
        assert self._begun.wait(SECONDS)

    def __exit__(self, *error):
        self._go_on.set()
        self._thread.join(SECONDS)


class Constantly:
    """Threads that do something again and again until the block ends."""

    def __init__(self, *jobs):
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._again, args=(job,)) for job in jobs]
        self._failed = []

    def _again(self, job):
        try:
            while not self._stop.is_set():
                job()
        except BaseException as error:
            self._failed.append(error)

    def __enter__(self):
        for thread in self._threads:
            thread.start()

    def __exit__(self, *error):
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS)
        assert not self._failed


class Model:
    """A session with two variables that are updated together, and more to compile at any time."""

    def __init__(self, size=64, **options):
        self.options = options
        with gf.Graph() as self.graph:
            self.x = gf.placeholder(("n",), name="x")
            self.a = gf.Variable(np.zeros((size, size), np.float32), name="a")
            self.b = gf.Variable(np.zeros((size, size), np.float32), name="b")
            self.ends = [f(v) for v in (self.a, self.b) for f in (gf.min, gf.max)]
            self.tick = [gf.update(self.a, self.a + 1.0), gf.update(self.b, self.b + 1.0)]
        self.session = gf.Session(self.graph, **options)
        self.session.run(self.tick)
        self.session.run(self.ends)
        self._building = threading.Lock()

    def train(self):
        self.session.run(self.tick)

    def compile(self):
        """Compile something new."""
        ops = random.choices([gf.tanh, gf.exp, gf.sin, gf.abs, gf.cos], k=3)
        with self._building, self.graph:
            y = self.x
            for op in ops:
                y = op(y * random.random()) + gf.max(self.a)
        self.session.run(y, {self.x: np.ones(5, np.float32)})

    def count(self):
        """Return how often it was trained; the variables are those of one moment."""
        first, *others = map(float, self.session.run(self.ends))
        assert others == [first] * 3
        return first

    def goes_on(self, path=None):
        """Use the session in every way; for a child, in which nobody builds the graph."""
        self._building = threading.Lock()
        before = self.count()
        self.train()
        self.compile()
        self.train()
        assert self.count() == before + 2
        if path is not None:
            own = path / str(os.getpid())
            self.session.save(own)
            with gf.Session(self.graph, **self.options) as other:
                other.restore(own)
                assert other[self.a][0, 0] == before + 2
        return True


def test_a_lock_that_another_thread_holds_is_free_in_the_child():
    lock = forks.renewed_lock()

    def holds(busy):
        with lock:
            busy.wait()

    def takes():
        with lock:
            return True

    with Busy(holds):
        assert not lock.acquire(blocking=False)
        assert forked(takes)
        assert not lock.acquire(blocking=False)


def test_a_lock_that_the_forking_thread_holds_stays_so():
    lock = forks.renewed_lock()

    def is_held():
        taken = []
        thread = threading.Thread(target=lambda: taken.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        return taken == [False]

    with lock:
        assert forked(is_held)
        assert is_held()


def test_what_must_not_be_cut_is_done_in_the_child():
    steps = []

    def works():
        with forks.uncut():
            steps.append("first")
            time.sleep(0.1)  # the fork begins
            steps.append("second")

    thread = threading.Thread(target=works)
    thread.start()
    while not steps:
        time.sleep(0.001)
    assert forked(lambda: steps == ["first", "second"])
    thread.join()
    with forks.uncut():
        assert forked(lambda: True)  # a thread does not wait for itself


def test_a_property_that_another_thread_computes_is_computed_in_the_child(monkeypatch):
    class Thing:
        def __init__(self, wait):
            self.wait = wait

        @functools.cached_property
        def value(self):
            self.wait()
            return 7

    monkeypatch.setattr(gf, "Thing", Thing, raising=False)
    with Busy(lambda busy: Thing(busy.wait).value):
        assert forked(lambda: Thing(int).value == 7)


@pytest.mark.slow
def test_the_collector_goes_on_in_the_child():
    def compiles(busy):
        with without_collection():
            busy.wait()

    with Busy(compiles):
        assert not gc.isenabled()
        assert forked(gc.isenabled)
    assert gc.isenabled()
    with without_collection():
        assert forked(lambda: not gc.isenabled())


def test_a_graph_that_another_thread_builds_can_be_built_in_the_child():
    graph = gf.Graph()

    def builds(busy):
        with graph:
            gf.placeholder((), name="x")
            busy.wait()

    def goes_on():
        with graph:
            y = graph.find("x") * 2.0
        with gf.Session(graph) as session:
            return session.run(y, {"x": 3.0}) == 6

    with Busy(builds):
        assert forked(goes_on)
        with pytest.raises(gf.GraphError, match="by another thread"), graph:
            pass


def test_a_fork_waits_for_a_run_that_overwrites():
    model = Model()
    state = model.session._state
    begun, forked_by_now = threading.Event(), threading.Event()

    def overwrites():
        me = object()
        with state.writing:
            state.pin(me)
            done = state.claim(me, state.snapshot.values, frozenset())
            begun.set()
            time.sleep(0.1)
            done[0] = 1
            assert forked_by_now.wait(SECONDS)  # for the commit no fork waits
            state.unpin(me)
            state.release()

    thread = threading.Thread(target=overwrites)
    thread.start()
    begun.wait()
    assert forked(lambda: state._done[0] == 1 and model.goes_on())
    forked_by_now.set()
    thread.join()
    assert state._readers == {}


def test_no_run_overwrites_while_a_fork_waits():
    state = Model().session._state
    held = object()
    state.keep(held)
    me = object()
    with state.writing:
        state.pin(me)
        assert state.claim(me, state.snapshot.values, frozenset()) is None
        assert not state.is_written()
        state.unpin(me)
        state.unpin(held)
        state.pin(me)
        assert state.claim(me, state.snapshot.values, frozenset()) is not None
        state.unpin(me)
        state.release()


def test_pins_of_threads_that_are_not_there_are_forgotten():
    session = Model().session
    with Busy(lambda busy: (session._state.pin(busy), busy.wait(), session._state.unpin(busy))):
        mine = object()
        session._state.pin(mine)
        assert forked(lambda: [*session._state._readers] == [mine])
        session._state.unpin(mine)
    assert session._state._readers == {}


@pytest.mark.slow
def test_forks_while_others_compile_and_train(tmp_path):
    model = Model()
    with Constantly(model.compile, model.train):
        for _ in range(2):
            time.sleep(random.random() / 50)
            assert forked(lambda: model.goes_on(tmp_path))


@pytest.mark.slow
def test_forks_while_other_threads_build_functions():
    @gf.function
    def scaled(x, power):
        w = gf.Variable(2.0, name="w")
        return x**power * w

    powers = iter(range(2, 12))

    def builds():
        if (power := next(powers, None)) is not None:
            scaled(np.ones(3, np.float32), power)

    with Constantly(builds):
        for _ in range(2):
            time.sleep(random.random() / 50)
            assert forked(lambda: scaled(np.ones(3, np.float32), 20)[0] == 2)


def test_a_fork_inside_of_a_host_call():
    found = []

    def forks_here(value):
        # Runs inside of a run, as one in a signal handler does.
        found.append(forked(lambda: session.run(tick) is None and session.run(a) == 1))
        return value

    with gf.Graph() as g:
        a = gf.Variable(0.0, name="a")
        called = gf.host_call(forks_here, a.type, a)
        slow = gf.update(a, called + 5.0)
        tick = gf.update(a, a + 1.0)
    with gf.Session(g, verify="off") as session:
        session.run(slow)
        assert found == [True]
        assert session.run(a) == 5


def test_a_fork_inside_of_an_initialiser_while_its_session_is_locked():
    found = []

    def initial(shape, dtype):
        if not found:
            found.append(None)
            found.append(forked(lambda: session.run(a).shape == (3,)))
        return np.zeros(shape, np.float32)

    with gf.Graph() as g:
        a = gf.Variable(initial, shape=(3,), name="a")
    with gf.Session(g) as session:
        session.run(a)
    assert found == [None, True]


def test_a_fork_in_a_signal_handler():
    model = Model()
    found = []

    def handler(*_):
        found.append(forked(model.goes_on))

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with Constantly(model.train):
            with model.session._state.writing, model.session._compiling, forks.uncut():
                signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == [True]


@pytest.mark.slow
def test_two_threads_fork_at_once():
    model = Model()
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(forked(model.goes_on))) for _ in range(2)
    ]
    with Constantly(model.train):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    assert found == [True] * 2


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"memory_limit": "1GiB"}, {"debug": True}])
def test_many_forks_while_many_compile_and_train(tmp_path, options):
    models = [Model(size, **options) for size in (5, 64, 700)]
    jobs = [job for model in models for job in (model.compile, model.train, model.train)]
    with Constantly(*jobs):
        for _ in range(20):
            time.sleep(random.random() / 20)
            assert forked(lambda: all([model.goes_on(tmp_path) for model in models]))


FIRST = """if True:
    import os, random, signal, sys, threading, time
    import numpy as np
    import graphfw as gf

    done = []

    def works(factor):
        with gf.Graph() as g:
            x = gf.placeholder(("n", 32))
            w = gf.Variable(np.ones((32, 32), np.float32), name="w")
            y = gf.tanh(x @ w) * factor
            step = gf.update(w, w - gf.grad(gf.sum(y), [w])[0])
        with gf.Session(g) as session:
            session.run([y, step], {x: np.ones((4, 32), np.float32)})
        done.append(factor)

    thread = threading.Thread(target=works, args=(0.5,))
    thread.start()
    children = []
    while not done:
        time.sleep(random.random() / 20)
        children.append(os.fork())
        if not children[-1]:
            signal.alarm(100)
            works(float(len(children)))
            os._exit(0)
    thread.join()
    print({os.waitpid(child, 0)[1] for child in children})
"""


@pytest.mark.slow
@pytest.mark.parametrize("jit", ["0", "1"])
def test_forks_while_the_first_plan_of_a_process_is_compiled(jit):
    """Modules are imported then, each under a lock."""
    environment = {**os.environ, "GRAPHFW_CACHE": "off", "GRAPHFW_JIT": jit}
    command = [sys.executable, "-W", "ignore", "-c", FIRST]
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.stdout == "{0}\n", done.stderr
