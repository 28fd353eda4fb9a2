"""Ctrl-C at any moment: the variables are those of one step, and the session goes on working."""

import _thread
import gc
import os
import signal
import statistics
import threading
import time
import warnings
from contextvars import Context

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.graph import current_graph
from graphfw.ops.control.effects import quiet
from graphfw.ops.control.region_op import at_most
from graphfw.runtime import session as session_module
from graphfw.runtime.contents import InitialContents
from tests.support import alarms

pytestmark = alarms.needs_timers


@pytest.fixture(autouse=True)
def alarm_is_ctrl_c():
    with alarms.garbage_left_alone(), alarms.alarm_is_ctrl_c():
        yield


def interrupted(job, after):
    """Call job again and again, until the signal comes; return the KeyboardInterrupt or None."""
    deadline = time.monotonic() + after + 5
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        try:
            while time.monotonic() < deadline:
                job()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt as error:
        return error
    return None


def taken(job):
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    job()
    return time.perf_counter() - begin


def in_another_thread(job):
    """Run job in a thread; say whether it came to an end, which a lock left taken prevents."""
    results = []
    thread = threading.Thread(target=lambda: results.append(job()), daemon=True)
    thread.start()
    thread.join(20)
    return bool(results)


def equal_counters():
    """Variables that are equal after each step, computed in different ways, and a random op."""
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        a = gf.Variable(np.zeros(3, np.float32), name="a")
        b = gf.Variable(np.zeros((2, 2), np.float32), name="b", trainable=False)
        c = gf.Variable(0, name="c")
        noise = gf.random.normal((2, 2), name="noise")
        step = gf.group(
            gf.update(a, a + x),
            gf.update(b, gf.sqrt(b * b) + x + 0 * noise),
            gf.update(c, c + 1),
        )
    return g, x, a, b, c, noise, step


def check_one_step(session):
    state = session.state_dict()
    count = int(state["c"])
    assert (state["a"] == count).all()
    assert (state["b"] == count).all()
    # An interrupted run has given its random step back.
    assert state["session/step"] == count
    return count


def test_a_training_loop_interrupted_at_many_moments(rng):
    g, x, a, b, c, noise, step = equal_counters()
    session = gf.Session(g)
    plan = session.compile([a, step], feeds=[x])
    calls = [
        lambda: plan(1.0),
        lambda: session.run(step, {"x": np.float32(1)}),
        lambda: session.run({"a": a, "noise": noise, "step": step}, {x: 1.0}),
    ]
    for call in calls:
        call()
    typical = statistics.median([taken(call) for _ in range(20) for call in calls])
    # Kept, as an interactive Python keeps the last one: their frames hold no locks.
    errors = []
    for number in range(1500):
        errors.append(interrupted(calls[number % 3], rng.uniform(1e-6, 4 * typical)))
        check_one_step(session)
    assert sum(error is not None for error in errors) > 1000
    before = check_one_step(session)
    assert before > 100
    assert in_another_thread(lambda: plan(1.0))
    plan(1.0)
    assert check_one_step(session) == before + 2


def test_writing_variables_interrupted_at_many_moments(rng):
    g, x, a, b, c, noise, step = equal_counters()
    session = gf.Session(g)
    session.run(step, {x: 1.0})
    states = [session.state_dict()]
    session.run(step, {x: 1.0})
    states.append(session.state_dict())
    turn = [0]

    def load():
        turn[0] += 1
        session.load_state_dict(states[turn[0] % 2])

    load()  # an interrupt while a module is loaded leaves its file open
    errors = []
    for _ in range(100):
        errors.append(interrupted(load, rng.uniform(1e-6, 5e-4)))
        assert check_one_step(session) in (1, 2)
    assert any(errors)
    assert in_another_thread(lambda: session.run(step, {x: 1.0}))


@pytest.mark.slow
def test_compiling_interrupted_at_many_moments(rng):
    g, x, a, b, c, noise, step = equal_counters()
    fetches = [[a, step], (b, step), {"c": c, "s": step}, [step, [a, b, c]]]
    errors = []
    for number in range(60):
        session = gf.Session(g)
        fetch = fetches[number % 4]

        def compile_and_run(session=session, fetch=fetch):
            session.run(fetch, {x: 1.0})
            session._plans.clear()

        errors.append(interrupted(compile_and_run, rng.uniform(1e-6, 5e-3)))
        # Nothing of the compiler's own is left open, so that new nodes go where they should.
        assert current_graph().is_ambient
        before = check_one_step(session)
        assert in_another_thread(lambda session=session: session.compile([a, b, c, step], [x])(1.0))
        assert check_one_step(session) == before + 1
    assert sum(error is not None for error in errors) > 40


@pytest.mark.parametrize("patched", [(session_module, "lower"), (InitialContents, "of")])
def test_a_graph_that_an_interrupt_leaves_open_is_not_the_users(patched, monkeypatch):
    """The moment between opening a graph and entering the `with` block, made to happen."""
    g, x, a, b, c, noise, step = equal_counters()
    session = gf.Session(g)

    def struck(*args):
        gf.Graph().__enter__()
        raise KeyboardInterrupt

    monkeypatch.setattr(*patched, struck)
    with pytest.raises(KeyboardInterrupt):
        session.run(step, {x: 1.0})
    assert current_graph().is_ambient
    monkeypatch.undo()
    session.run(step, {x: 1.0})
    assert check_one_step(session) == 1


def run_with_signal(session, plan, send):
    """Send a signal while the plan's operations run."""
    execute = plan._run

    def struck(*args):
        outputs = execute(*args)
        send()
        # A signal of another thread's takes a moment to arrive.
        for _ in range(1000):
            time.sleep(0.001)
        return outputs

    plan._run = struck
    try:
        with pytest.raises(KeyboardInterrupt):
            plan(1.0)
    finally:
        plan._run = execute


@pytest.mark.parametrize(
    "send",
    [
        lambda: signal.raise_signal(signal.SIGINT),
        lambda: threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start(),
        lambda: threading.Timer(0.01, _thread.interrupt_main).start(),
    ],
    ids=["raise_signal", "kill", "interrupt_main"],
)
def test_a_real_ctrl_c_after_everything_is_computed(send):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    g, x, a, b, c, noise, step = equal_counters()
    with gf.Session(g) as session:
        plan = session.compile([noise, step], feeds=[x])
        plan(1.0)
        run_with_signal(session, plan, send)
        # What native code has written over the old contents has happened; else it is undone.
        count = check_one_step(session)
        assert count == (1 if os.environ.get("GRAPHFW_JIT") == "0" else 2)
        plan(1.0)
        assert check_one_step(session) == count + 1


def test_waiting_for_another_writer_can_be_interrupted():
    g, x, a, b, c, noise, step = equal_counters()
    with gf.Session(g) as session:
        plan = session.compile(step, feeds=[x])
        entered, leave = threading.Event(), threading.Event()
        execute = plan._run

        def slow(*args):
            entered.set()
            assert leave.wait(30)
            return execute(*args)

        plan._run = slow
        thread = threading.Thread(target=plan, args=(1.0,))
        thread.start()
        assert entered.wait(30)
        plan._run = execute
        error = interrupted(lambda: session.run(step, {x: 1.0}), 0.05)
        assert error is not None
        leave.set()
        thread.join(30)
        assert check_one_step(session) == 1


def test_a_signal_handler_may_use_the_session(rng):
    """As one that saves a checkpoint when the machine is about to be taken away."""
    g, x, a, b, c, noise, step = equal_counters()
    session = gf.Session(g)
    seen = []

    def handler(number, frame):
        seen.append((session.state_dict(), session.run(a)))

    for fetch in (step, a):
        session.run(fetch, {x: 1.0})
    signal.signal(signal.SIGALRM, handler)
    for number in range(100):
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 2e-4))
        while len(seen) == number:
            session.run(step, {x: 1.0})
    for state, value in seen:
        assert (state["a"] == state["c"]).all()
        assert (state["b"] == state["c"]).all()
        assert (value == state["c"]).all()
    # The moment that a snapshot takes the other's place, made to happen.
    count = check_one_step(session)
    with session._state._swapping:
        session.run(step, {x: 1.0})
    assert check_one_step(session) == count + 1


@pytest.mark.parametrize("limit", [quiet, lambda: at_most(3)], ids=["quiet", "at_most"])
def test_settings_that_an_interrupt_leaves_behind_end_where_they_are_collected(limit):
    setting = limit()
    Context().run(setting.__enter__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del setting  # in another context than it was entered in
        gc.collect()
