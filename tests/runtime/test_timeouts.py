"""`timeout=`: what it takes, who keeps to it, and what is left behind."""

import contextlib
import math
import threading
import time

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir import time_limits
from graphfw.runtime.executor import Executor
from graphfw.runtime.meta_executor import MetaExecutor


@pytest.fixture(autouse=True)
def unverified(monkeypatch):
    """A run that would never end can't be evaluated to verify the passes' work."""
    monkeypatch.delenv("GRAPHFW_VERIFY", raising=False)


def endless(n):
    """Return a placeholder, a loop of so many iterations, and a counter of its runs."""
    x = gf.placeholder((8, 8), name="x")
    y = gf.fori_loop(0, n, lambda i, c: gf.tanh(c @ c), x)
    count = gf.Variable(0, name="count")
    return x, y, count, gf.update(count, count + 1 + gf.astype(0 * gf.sum(y), gf.int64))


VALUE = np.eye(8, dtype=np.float32)


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan, "1", True, 1j])
def test_what_is_no_timeout(timeout):
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
    message = "timeout=.* is no positive number of seconds"
    with pytest.raises(gf.errors.ArgumentError, match=message):
        gf.Session(g, timeout=timeout)
    with gf.Session(g) as session, pytest.raises(gf.errors.ArgumentError, match=message):
        session.run(x, {x: 1.0}, timeout=timeout)
    with gf.Session(g) as session, pytest.raises(gf.errors.ArgumentError, match=message):
        session.compile(x, feeds=[x])(1.0, timeout=timeout)


@pytest.mark.parametrize("where", ["session", "run", "plan", "debug"])
def test_the_error_says_what_took_too_long_and_nothing_has_changed(where):
    with gf.Graph() as g:
        x, y, count, step = endless(10**10)
        small = x + 1
    with gf.Session(g, debug=where == "debug", timeout=0.1 if where == "session" else None) as s:
        own = {} if where == "session" else {"timeout": 0.1}
        plan = s.compile([y, step], feeds=[x])
        with pytest.raises(gf.errors.RunTimeoutError) as caught:
            plan(VALUE, **own) if where == "plan" else s.run([y, step], {x: VALUE}, **own)
        text = str(caught.value)
        assert text.startswith("the run has taken more than its timeout of 0.1 s; it was computing")
        assert "longer timeout; the variables are as they were before" in text
        assert isinstance(caught.value, gf.errors.ExecutionError)
        assert isinstance(caught.value, TimeoutError)
        assert s["count"] == 0
        assert (s.run(small, {x: VALUE}) == VALUE + 1).all()
        assert (s.run(small, {x: VALUE}, timeout=100) == VALUE + 1).all()


def test_a_runs_timeout_takes_the_sessions_place():
    with gf.Graph() as g:
        x, y, _, _ = endless(100)
    with gf.Session(g, timeout=1e-9) as session:
        plan = session.compile(y, feeds=[x])
        with pytest.raises(gf.errors.RunTimeoutError, match="timeout of 1e-09 s"):
            plan(VALUE)
        assert plan(VALUE, timeout=100).shape == (8, 8)
        with pytest.raises(gf.errors.RunTimeoutError):
            session.run(y, {x: VALUE})


@pytest.mark.parametrize("debug", [False, True])
def test_loops_with_nothing_in_them(debug):
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        y = gf.fori_loop(0, 10**15, lambda i, c: c, x)
        z = gf.while_loop(lambda c: c == c, lambda c: c, x)
    with gf.Session(g, debug=debug, timeout=0.05) as session, contextlib.suppress(TimeoutError):
        assert session.run(y, {x: 1.0}) == 1.0  # a pass may know
    with gf.Session(g, debug=debug, timeout=0.05) as session:
        with pytest.raises(gf.errors.RunTimeoutError):
            session.run(z, {x: 1.0})


def test_between_nodes_that_python_computes():
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        y = x
        for _ in range(100):
            y = gf.host_call(lambda a: time.sleep(0.01) or a, gf.TensorType(gf.float32, ()), y)
    with gf.Session(g) as session:
        plan = session.compile(y, feeds=[x])
        begin = time.perf_counter()
        with pytest.raises(gf.errors.RunTimeoutError, match="it was computing host_call"):
            plan(1.0, timeout=0.05)
        assert time.perf_counter() - begin < 0.6


def test_the_shorter_of_two_limits_holds():
    with gf.Graph() as inner_graph:
        x, y, _, _ = endless(10**10)
    inner = gf.Session(inner_graph)
    plan = inner.compile(y, feeds=[x])
    seen = []

    def call(a):
        try:
            plan(VALUE, timeout=seen[0])
        except gf.errors.RunTimeoutError as error:
            seen.append(error)
        return a

    with gf.Graph() as g:
        z = gf.placeholder((), name="z")
        w = gf.host_call(call, gf.TensorType(gf.float32, ()), z) + 1
    with gf.Session(g) as session:
        session.compile(w, feeds=[z])
        seen[:] = [0.05]
        assert session.run(w, {z: 1.0}, timeout=100) == 2
        assert "0.05 s" in str(seen[1])
        seen[:] = [100]
        with pytest.raises(gf.errors.RunTimeoutError, match=r"0\.07 s"):
            session.run(w, {z: 1.0}, timeout=0.07)
        assert len(seen) == 1
    assert time_limits.seconds_left() is None
    inner.close()


def test_waiting_for_another_runs_updates_counts():
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        v = gf.Variable(0.0, name="v")
        step = gf.update(v, v + x)
    with gf.Session(g) as session:
        plan = session.compile(step, feeds=[x])
        held, leave = threading.Event(), threading.Event()

        def hold():
            with session._state.writing:
                held.set()
                leave.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(20)
        with pytest.raises(gf.errors.RunTimeoutError):
            plan(1.0, timeout=0.05)
        leave.set()
        thread.join()
        plan(1.0, timeout=10)
        assert session["v"] == 1


def test_functions_and_models_take_their_sessions_timeout():
    with gf.Graph() as g:
        pass
    with gf.Session(g, timeout=0.03) as session:

        @gf.function(session=session)
        def last(x):
            return gf.fori_loop(0, 10**10, lambda i, c: gf.tanh(c @ c), x)

        with pytest.raises(gf.errors.RunTimeoutError, match=r"timeout of 0\.03 s"):
            last(VALUE)


def test_executors_that_cannot_end_runs_refuse():
    class Other(MetaExecutor):
        name = "other"
        keeps_time_limits = Executor.keeps_time_limits

    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
    with gf.Session(g, executor="meta", timeout=1) as session:
        session.run(x, {x: ()})
    message = 'the executor "other" can\'t end a run, so it takes no timeout'
    with pytest.raises(gf.errors.ExecutorError, match=message):
        gf.Session(g, executor=Other(), timeout=1)
    with gf.Session(g, executor=Other()) as session:
        session.run(x, {x: ()})
        with pytest.raises(gf.errors.ExecutorError, match=message):
            session.run(x, {x: ()}, timeout=1)


def test_rows_of_threads_that_have_ended_are_used_again():
    def limited():
        time_limits.limited(1, lambda: None)

    for _ in range(20):
        thread = threading.Thread(target=limited)
        thread.start()
        thread.join()
    assert time_limits.table[0, 0] < 15
    assert not time_limits.table[1:, 0].any()
