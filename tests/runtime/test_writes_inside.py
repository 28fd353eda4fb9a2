"""Writing variables while a run that updates them is under way, in the same thread."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import SessionError


@pytest.fixture(autouse=True)
def called_in_runs_alone(monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" would call what is called in a run, too


def counting(inside):
    """A session with two counters, of which a step adds to one; `inside` is called in each step."""
    with gf.Graph() as g:
        c = gf.Variable(np.int64(0), name="c")
        d = gf.Variable(np.int64(0), name="d")
        x = gf.placeholder((), "int64", name="x")
        called = gf.host_call(lambda value: (inside(session), value)[1], ((), "int64"), x)
        step = gf.update(c, c + called)
        others = {"c": gf.update(c, c + 1), "d": gf.update(d, d + 1)}
    session = gf.Session(g)
    return session, step, others


def contents(session):
    return int(session["c"]), int(session["d"])


def test_an_update_inside_of_a_run_is_not_undone():
    session, step, others = counting(lambda s: s.run(others["c"]))
    with pytest.raises(SessionError, match='"c" was written while this run') as caught:
        session.run(step, {"x": 10})
    assert "only read" in caught.value.fix
    assert contents(session) == (1, 0)


def test_a_state_that_is_loaded_inside_of_a_run_stays_whole():
    session, step, _ = counting(lambda s: s.load_state_dict({"c": 100, "d": 200}))
    with pytest.raises(SessionError, match='"c" was written'):
        session.run(step, {"x": 10})
    assert contents(session) == (100, 200)


def test_an_assignment_inside_of_a_run():
    session, step, _ = counting(lambda s: s.__setitem__("c", 5))
    with pytest.raises(SessionError, match='"c" was written'):
        session.run(step, {"x": 10})
    assert contents(session) == (5, 0)


def test_what_the_run_has_nothing_to_do_with_may_be_written():
    session, step, others = counting(lambda s: s.run(others["d"]))
    session.run(step, {"x": 10})
    session.run(step, {"x": 10})
    assert contents(session) == (20, 2)


def test_reading_inside_of_a_run():
    seen = []
    session, step, _ = counting(lambda s: seen.append((int(s["c"]), s.state_dict()["d"])))
    for _ in range(3):
        session.run(step, {"x": 1})
    assert seen == [(0, 0), (1, 0), (2, 0)]
    assert contents(session) == (3, 0)
