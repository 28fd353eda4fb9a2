"""Ctrl-C, signals' handlers and timeouts are heard inside of native calls, and leave no trace."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import graphfw as gf
from tests.support import alarms

pytestmark = [
    alarms.needs_timers,
    pytest.mark.skipif(os.environ.get("GRAPHFW_JIT") == "0", reason="about native code"),
]


@pytest.fixture(autouse=True)
def garbage_is_left_alone():
    with alarms.garbage_left_alone():
        yield


SOON = 1.0
"""Seconds in which a run has to end on a machine that has other work; alone it takes some 20 ms."""


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    "value",
    [
        lambda v, x: gf.fori_loop(0, 10**10, lambda i, c: gf.sin(c) + 1, v),
        lambda v, x: gf.fori_loop(0, 10**10, lambda i, c: gf.sin(c) + 1, gf.ones(4)),
        lambda v, x: gf.fori_loop(0, x.shape[0], lambda i, c: gf.sin(c) + 1, v),
        lambda v, x: v + gf.sum(gf.sin(gf.arange(2**36))),
        lambda v, x: gf.sum(gf.sin(gf.arange(2**36)[None, :] * gf.arange(4)[:, None]), axis=1),
    ],
    ids=["carry", "result", "symbolic", "sum of all", "sums"],
)
def test_what_takes_long_is_interrupted_although_it_makes_an_update(value):
    with gf.Graph() as g:
        v = gf.Variable(np.zeros(4, np.float32))
        x = gf.placeholder(("n",), gf.bool)
        step = gf.update(v, value(v, x))
    with gf.Session(g) as session:
        plan = session.compile(step, feeds=[x])
        with pytest.raises(gf.errors.RunTimeoutError):
            plan(np.zeros(10**9, bool), timeout=0.2)
        assert not np.any(session[v])


def loop_of_iterations():
    """One kernel makes all iterations."""
    x = gf.placeholder(("n",), name="x")
    return x, gf.fori_loop(0, 2 * 10**10, lambda i, c: gf.sin(c) + x, x), np.zeros(4, np.float32)


def loop_of_calls():
    x = gf.placeholder((8, 8), name="x")
    y = gf.fori_loop(0, 10**10, lambda i, c: gf.tanh(c @ c), x)
    return x, y, np.eye(8, dtype=np.float32)


def loop_in_a_loop():
    x = gf.placeholder((8, 8), name="x")

    def outer(i, c):
        return gf.fori_loop(0, 100, lambda j, d: gf.tanh(d @ d), c)

    return x, gf.fori_loop(0, 10**8, outer, x), np.eye(8, dtype=np.float32)


def loop_of_long_iterations():
    x = gf.placeholder((512, 512), name="x")
    y = gf.fori_loop(0, 10**7, lambda i, c: gf.tanh(c @ c), x)
    return x, y, np.eye(512, dtype=np.float32)


def loop_with_a_condition():
    x = gf.placeholder((), name="x")
    return x, gf.while_loop(lambda c: c > -1, lambda c: gf.sin(c), x), np.float32(1)


def scan():
    x = gf.placeholder((4,), name="x")

    def iteration(carry, i):
        return gf.sin(carry) + x, gf.sum(carry)

    return x, gf.scan(iteration, x, gf.arange(2**28))[0], np.zeros(4, np.float32)


def sum_of_all():
    x = gf.placeholder((), name="x")
    return x, gf.sum(gf.sin(gf.arange(2**36) * x)), np.float32(1)


def maximum_of_one_row():
    x = gf.placeholder((), name="x")
    return x, gf.argmax(gf.sin(gf.arange(2**36) * x)), np.float32(1)


def sum_of_columns():
    x = gf.placeholder((4,), name="x")
    return x, gf.sum(gf.sin(gf.arange(2**34)[:, None] * x), axis=0), np.ones(4, np.float32)


def running_sum():
    x = gf.placeholder((), name="x")
    y = gf.zeros((1, 2**24)) + x
    for _ in range(400):
        y = gf.cumulative_sum(y, axis=1)
    return x, y[0, -1], np.float32(1)


def products():
    x = gf.placeholder((1000, 1000), name="x")
    y = x
    for _ in range(2000):
        y = y @ x
    return x, y, np.eye(1000, dtype=np.float32)


def convolutions():
    x = gf.placeholder((8, 32, 128, 128), name="x")
    w = gf.Variable(np.zeros((32, 32, 3, 3), np.float32))
    y = x
    for _ in range(60):
        y = gf.conv(y, w, padding="same")
    return x, y, np.ones((8, 32, 128, 128), np.float32)


def attention():
    x = gf.placeholder((4, 1024, 64), name="x")
    y = x
    for _ in range(1000):
        y = gf.scaled_dot_product_attention(y, y, y)
    return x, y, np.ones((4, 1024, 64), np.float32)


def additions():
    """One work item that takes long: all indices name its only element."""
    x = gf.placeholder((), name="x")
    y, at = gf.zeros(1), gf.zeros((2**24,), dtype=gf.int64)
    for _ in range(100):
        y = gf.index_add(y, at, x)
    return x, y, np.float32(1)


JOBS = [
    loop_of_iterations,
    loop_of_calls,
    loop_in_a_loop,
    loop_of_long_iterations,
    loop_with_a_condition,
    scan,
    sum_of_all,
    maximum_of_one_row,
    sum_of_columns,
    running_sum,
    products,
    convolutions,
    attention,
    additions,
]
SHARED = [loop_of_long_iterations, sum_of_all, products, convolutions]
"""Whose work items several threads compute."""


@pytest.mark.exhaustive(every=6)
@pytest.mark.parametrize(
    ("job", "threads"),
    [*[(job, 1) for job in JOBS], *[(job, 2) for job in SHARED]],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_ctrl_c_and_timeouts_end_what_would_go_on(job, threads):
    with gf.Graph() as g:
        x, y, value = job()
        double = x * 2
    with gf.Session(g, threads=threads) as session:
        plan = session.compile(y, feeds=[x])
        with alarms.alarm_is_ctrl_c():
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            begin = time.perf_counter()
            with pytest.raises(KeyboardInterrupt):
                plan(value)
            assert time.perf_counter() - begin < SOON
        begin = time.perf_counter()
        with pytest.raises(gf.errors.RunTimeoutError, match=r"timeout of 0\.02 s; it was comput"):
            plan(value, timeout=0.02)
        assert time.perf_counter() - begin < SOON
        assert (session.run(double, {x: value}) == 2 * value).all()


def test_a_run_that_was_interrupted_can_be_made_again():
    with gf.Graph() as g:
        n = gf.placeholder((), gf.int64, name="n")
        x = gf.placeholder((8, 8), name="x")
        y = gf.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, gf.tanh(c[1] @ c[1])), (0, x))[1]
        z = gf.fori_loop(0, 5, lambda i, c: gf.tanh(c @ c), x)
    value = np.full((8, 8), 0.1, np.float32)
    with gf.Session(g) as session, alarms.alarm_is_ctrl_c():
        plan = session.compile(y, feeds=[n, x])
        expected = session.run(z, {x: value})
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(KeyboardInterrupt):
                plan(10**12, value)
            assert (plan(5, value) == expected).all()


def training(width=256, steps=200):
    """A step that takes about a second, whose updates come last, and a count of its runs."""
    with gf.Graph() as g:
        x = gf.placeholder((width, width), name="x")
        w = gf.Variable(np.eye(width, dtype=np.float32), name="w")
        b = gf.Variable(np.zeros(width, np.float32), name="b")
        noise = gf.random.normal((width,), name="noise")
        y = gf.fori_loop(0, steps, lambda i, c: gf.tanh(c @ x), w)
        step = gf.group(gf.update(w, w + 0 * y + 1), gf.update(b, b + 1 + 0 * noise))
    return g, x, w, b, step


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_variables_are_as_before_or_all_of_the_step_is_made(threads, rng):
    g, x, w, b, step = training()
    value = np.zeros((256, 256), np.float32)
    with gf.Session(g, threads=threads) as session, alarms.alarm_is_ctrl_c():
        plan = session.compile(step, feeds=[x])
        plan(value)
        begin = time.perf_counter()
        plan(value)
        taken = time.perf_counter() - begin
        ended = 0
        for _ in range(12):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.1, 1.1) * taken)
                plan(value)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                ended += 1
            state = session.state_dict()
            made = state["b"][0]
            assert (state["b"] == made).all()
            assert (state["w"] == np.eye(256, dtype=np.float32) + made).all()
            assert state["session/step"] == made
        assert ended


@pytest.mark.slow
def test_updates_in_place_are_not_interrupted(rng):
    """From the first update on a run comes to its end; a reader has new arrays written instead."""
    with gf.Graph() as g:
        variables = [gf.Variable(np.zeros((500, 500), np.float32)) for _ in range(20)]
        x = gf.placeholder((500, 500), name="x")
        step = gf.group(*[gf.update(v, v + 1 + 0 * (v @ x)) for v in variables])
    value = np.zeros((500, 500), np.float32)
    with gf.Session(g, threads=1) as session, alarms.alarm_is_ctrl_c():
        plan = session.compile(step, feeds=[x])
        plan(value)
        begin = time.perf_counter()
        plan(value)
        taken = time.perf_counter() - begin
        for _ in range(12):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0, taken))
                plan(value)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            found = {float(a) for v in variables for a in np.unique(session[v])}
            assert len(found) == 1


def test_any_handler_that_raises_is_heard_and_others_change_nothing():
    with gf.Graph() as g:
        x, y, value = loop_of_calls()
        z = gf.fori_loop(0, 30_000, lambda i, c: gf.tanh(c @ c), x)
        after = x + 1
    seen, may_raise = [], False

    class OwnError(Exception):
        pass

    def handler(number, frame):
        seen.append(session.run(after, {x: value}))
        if may_raise:
            raise OwnError

    with gf.Session(g) as session:
        expected = session.run(z, {x: value})
        session.run(after, {x: value})
        plan = session.compile(y, feeds=[x])
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
            while not seen:  # a run may end before the first signal
                assert (session.run(z, {x: value}) == expected).all()
            with pytest.raises(OwnError):
                may_raise = True
                plan(value)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert all((each == value + 1).all() for each in seen)


def test_other_threads_run_while_one_long_kernel_does():
    """A call of one work item keeps Python's lock, but only at first."""
    with gf.Graph() as g:
        x, y, value = loop_of_iterations()
    turns = []

    def count():
        while not done.is_set():
            turns.append(1)
            time.sleep(0.001)

    done = threading.Event()
    thread = threading.Thread(target=count)
    with gf.Session(g) as session:
        plan = session.compile(y, feeds=[x])
        thread.start()
        with pytest.raises(gf.errors.RunTimeoutError):
            plan(value, timeout=0.15)
        done.set()
        thread.join()
    assert len(turns) > 20


def test_a_timeout_is_its_own_threads():
    with gf.Graph() as g:
        x, y, value = loop_of_calls()
        z = gf.fori_loop(0, 200_000, lambda i, c: gf.tanh(c @ c), x)
    ended = []

    def limited(seconds):
        begin = time.perf_counter()
        with pytest.raises(gf.errors.RunTimeoutError):
            session.run(y, {x: value}, timeout=seconds)
        ended.append(time.perf_counter() - begin - seconds)

    with gf.Session(g, threads=2) as session:
        expected = session.run(z, {x: value})
        session.compile(y, feeds=[x])
        threads = [threading.Thread(target=limited, args=(0.1 * n,)) for n in (1, 2, 3)]
        for thread in threads:
            thread.start()
        assert (session.run(z, {x: value}) == expected).all()  # has no limit
        for thread in threads:
            thread.join()
        assert len(ended) == 3
        assert max(ended) < SOON
        assert (session.run(z, {x: value}, timeout=100) == expected).all()


@pytest.mark.slow
def test_a_handler_that_forks_ends_the_childs_run():
    with gf.Graph() as g:
        x, y, value = loop_of_calls()
        z = gf.fori_loop(0, 1_000_000, lambda i, c: gf.tanh(c @ c), x)
        small = x + 1
    pids = []
    with gf.Session(g) as session:
        expected = session.run(z, {x: value})
        session.run(small, {x: value})

        def handler(number, frame):
            pids.append(os.fork())

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            result = session.run(z, {x: value})
        except gf.errors.ExecutionError as error:  # in the child
            fine = "forked" in str(error) and (session.run(small, {x: value}) == value + 1).all()
            os._exit(0 if fine and pids == [0] else 1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        if pids == [0]:
            os._exit(2)
    assert (result == expected).all()
    assert os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]) == 0


def test_ctrl_c_of_a_terminal():
    """A whole process, with Python's own handler."""
    text = """
import graphfw as gf, numpy as np
with gf.Graph() as g:
    x = gf.placeholder(("n",)); y = gf.fori_loop(0, 2 * 10**10, lambda i, c: gf.sin(c) + x, x)
plan = gf.Session(g).compile(y, feeds=[x])
print("begins", flush=True)
try:
    plan(np.zeros(4, np.float32))
except KeyboardInterrupt:
    print("ended", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[0] == "ended\n"
