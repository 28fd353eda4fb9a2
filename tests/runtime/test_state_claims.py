"""Writers and readers of one variable: pins, claims, versions, runs inside of runs."""

import threading

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import SessionError
from graphfw.ir.op import REGISTRY
from graphfw.runtime.state import State


def test_a_writer_claims_the_arrays_only_where_nobody_else_reads_them():
    state = State(seed=0)
    me, reader = object(), object()
    with state.writing:
        version = state.pin(me).version
        done = state.claim(me, state.snapshot.values, frozenset())
        assert done is not None
        assert done[0] == 0
        assert state.snapshot.version != version
        state.release()
        state.pin(reader)
        assert state.claim(me, state.snapshot.values, frozenset()) is None
        state.unpin(reader)
        state.unpin(reader)
        assert state.claim(me, state.snapshot.values, frozenset()) is done
        state.release()
        state.unpin(me)


def test_a_reader_waits_for_the_writer_that_overwrites_and_sees_what_it_commits():
    state = State(seed=0)
    started, seen = threading.Event(), []
    me = object()

    def read():
        started.set()
        reader = object()
        seen.append(state.pin(reader).values)
        state.unpin(reader)

    thread = threading.Thread(target=read)
    with state.writing:
        state.pin(me)
        assert state.claim(me, state.snapshot.values, frozenset()) is not None
        thread.start()
        started.wait()
        thread.join(0.05)
        assert seen == []
        state.commit({"v": 1})
        state.release()
        state.unpin(me)
    thread.join(10)
    assert seen == [{"v": 1}]


def test_the_writer_itself_reads_on_while_it_overwrites():
    """As a signal handler does that runs in its thread."""
    state = State(seed=0)
    with state.writing:
        state.pin("me")
        state.claim("me", state.snapshot.values, frozenset())
        assert state.pin("handler").values == {}
        assert state.claim("handler", state.snapshot.values, frozenset()) is None
        state.unpin("handler")
        state.release()


def test_a_step_is_not_given_back_once_the_contents_are_overwritten():
    state = State(seed=0)
    me = object()
    with state.writing:
        state.pin(me)
        assert state.take_step(me).step == 0
        done = state.claim(me, state.snapshot.values, frozenset())
        done[0] = 1  # what the native call does at its end
        state.give_back(me)
        assert state.snapshot.step == 1
        other = object()
        state.take_step(other)
        state.give_back(other)  # which has overwritten nothing
        assert state.snapshot.step == 1
        state.release()
        assert state.take_step(me).step == 1
        state.claim(me, state.snapshot.values, frozenset())
        state.give_back(me)
        assert state.snapshot.step == 1


def test_contents_that_may_be_others_have_another_version():
    state = State(seed=0)
    versions = [state.snapshot.version]
    state.commit({})
    versions.append(state.snapshot.version)
    state.take_step(None)
    assert state.snapshot.version == versions[-1]
    with state.writing:
        state.claim(None, state.snapshot.values, frozenset())
        versions.append(state.snapshot.version)
    assert len(set(versions)) == 3


def test_versions_of_some_variables():
    a, b, c = ("a", "b", "c")
    state = State(seed=0)
    runs = [frozenset(one) for one in ([a, b], [c], [a, b, c])]
    readers = {name: frozenset(name) for name in ("a", "c", "bc", "")}

    def changed(write):
        before = {name: state.snapshot.version_of(own) for name, own in readers.items()}
        write()
        after = {name: state.snapshot.version_of(own) for name, own in readers.items()}
        assert all(after[name] >= before[name] for name in readers)
        return {name for name in readers if after[name] != before[name]}

    for _ in range(3):
        assert changed(lambda: state.commit({a: 1, b: 2}, variables=runs[0])) == {"a", "bc"}
        assert changed(lambda: state.commit({c: 1}, variables=runs[1])) == {"c", "bc"}
        assert changed(lambda: state.commit(dict.fromkeys("abc"), variables=runs[2])) == {
            "a",
            "c",
            "bc",
        }
    with state.writing:
        assert changed(lambda: state.claim(None, state.snapshot.values, runs[1])) == {"c", "bc"}
        state.release()
    assert changed(lambda: state.commit({a: 3})) == {"a", "c", "bc"}  # it may be any
    assert changed(lambda: state.take_step(None)) == set()
    many = [frozenset([c, n]) for n in range(40)]  # more than are told apart
    for one in many:
        assert {"c", "bc"} <= changed(lambda one=one: state.commit({}, variables=one))
    assert len(state.snapshot.runs) < 40


@pytest.mark.parametrize("jit", ["0", "1"])
def test_a_run_inside_a_run_changes_nothing_that_the_outer_one_reads(monkeypatch, jit):
    """As from a signal handler. What it has written stays, and the outer run says so."""
    monkeypatch.setenv("GRAPHFW_JIT", jit)
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" would call the op, too
    with gf.Graph() as g:
        v = gf.Variable(np.arange(6, dtype=np.float32), name="v")
        u = gf.Variable(np.zeros(6, np.float32), name="u")
        total = gf.argsort(v * 2).astype(gf.float32) + v
        step = gf.update(v, v + total)
        inner = gf.group(gf.update(v, v * 10 + 100), gf.update(u, u + 1))
    with gf.Session(g) as session:
        session.run(inner)
        before = session[v]
        real = REGISTRY["argsort"].eval
        calls = []

        def interrupted(self, xp, x):
            if not calls:
                calls.append(1)
                session.run(inner)
            return real(self, xp, x)

        monkeypatch.setattr(REGISTRY["argsort"], "eval", interrupted)
        with pytest.raises(SessionError, match='"v" was written while this run'):
            session.run([total, step])
        np.testing.assert_array_equal(session[v], before * 10 + 100)
        np.testing.assert_array_equal(session[u], np.full(6, 2))
        value, _ = session.run([total, step])
        np.testing.assert_array_equal(value, np.arange(6) + before * 10 + 100)


def test_what_is_prepared_from_variables_follows_them(monkeypatch):
    """Even where a commit comes between a reader's snapshot and its first look at the version."""
    with gf.Graph() as g:
        x = gf.placeholder(("n", 64), name="x")
        w = gf.Variable(np.eye(64, dtype=np.float32), name="w")
        y = x @ w
    array = np.ones((50, 64), np.float32)
    with gf.Session(g) as session:
        plan = session.compile(y, feeds=[x])
        state = session._state
        real = state.pin

        def pin(reader):
            snapshot = real(reader)
            session["w"] = 2 * np.eye(64, dtype=np.float32)
            return snapshot

        monkeypatch.setattr(state, "pin", pin)
        np.testing.assert_array_equal(plan(array), array)
        monkeypatch.undo()
        np.testing.assert_array_equal(plan(array), 2 * array)
        session["w"] = 3 * np.eye(64, dtype=np.float32)
        np.testing.assert_array_equal(plan(array), 3 * array)
