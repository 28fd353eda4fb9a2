"""Variables: first contents, reading, writing, updates that commit together, random steps."""

import os

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import (
    DTypeError,
    ExecutionError,
    FetchError,
    SessionError,
    ShapeError,
)
from graphfw.runtime.state import State

# First contents.


def test_variables_start_by_themselves_from_anything():
    with gf.Graph() as g:
        made = [
            gf.Variable([[1, 2]], name="list"),
            gf.Variable(np.arange(3, dtype=np.uint8), name="array"),
            gf.Variable(2.5, name="scalar"),
            gf.Variable(gf.arange(3) * 2, name="tensor"),
            gf.Variable(lambda shape, dtype: np.full(shape, 7, dtype.dtype), name="f", shape=(2,)),
            gf.Variable(
                lambda shape, dtype: gf.ones(shape, dtype=dtype), name="g", shape=(), dtype="int8"
            ),
            gf.Variable(0.1, name="double", dtype="float64"),
            gf.Variable([1.5], name="half", dtype="bfloat16"),
        ]
    with gf.Session(g) as session:
        values = session.run(made)
        for variable, value, wanted in zip(
            made, values, [[[1, 2]], [0, 1, 2], 2.5, [0, 2, 4], [7, 7], 1, 0.1, [1.5]], strict=True
        ):
            assert value.dtype == variable.dtype.dtype
            assert value.shape == variable.shape
            np.testing.assert_array_equal(value, wanted)
            np.testing.assert_array_equal(session[variable], value)
            np.testing.assert_array_equal(session[variable.name], value)


def test_an_initialiser_runs_once_per_session_and_only_where_a_session_is_made():
    calls = []

    def initialiser(shape, dtype):
        calls.append(shape)
        return np.zeros(shape, dtype.dtype)

    with gf.Graph() as g:
        v = gf.Variable(initialiser, name="v", shape=(2, 3))
        step = gf.update(v, v + 1)
    assert calls == []
    session = gf.Session(g)
    for _ in range(3):
        session.run([v, step])
        session.compile(v)()
    assert calls == [(2, 3)]
    gf.Session(g).run(v)
    assert len(calls) == 2


def test_what_is_written_while_an_initialiser_runs_stays():
    def initialiser(shape, dtype):
        session["v"] = np.full(shape, 5, np.float32)
        return np.zeros(shape, dtype.dtype)

    with gf.Graph() as g:
        v = gf.Variable(initialiser, name="v", shape=(2,))
    session = gf.Session(g)
    np.testing.assert_array_equal(session[v], [5, 5])


@pytest.mark.parametrize(
    ("initialiser", "match"),
    [
        (lambda shape, dtype: np.zeros((3,), np.float32), r"gives float32\[3\] for float32\[2\]"),
        (lambda shape, dtype: np.zeros(shape, np.int8), r"gives int8\[2\] for float32\[2\]"),
    ],
)
def test_an_initialiser_that_gives_something_else(initialiser, match):
    with gf.Graph() as g:
        v = gf.Variable(initialiser, name="v", shape=(2,))
    with gf.Session(g) as session, pytest.raises(ShapeError, match=match) as caught:
        session.run(v)
    assert 'the initialiser of "v"' in str(caught.value)


def test_a_variable_without_initial_contents():
    with gf.Graph() as g:
        v = gf.Variable(None, name="v", shape=(2,))
    with gf.Session(g) as session:
        with pytest.raises(
            SessionError, match=r'"v" has no initial value(.|\n)*session\[variable\]'
        ):
            session.run(v)
        session[v] = [1.0, 2.0]
        np.testing.assert_array_equal(session.run(v), [1, 2])


def random_variables(*names):
    with gf.Graph() as g:
        for name in names:
            gf.Variable(lambda shape, dtype: gf.random.normal(shape, dtype=dtype), name, shape=(4,))
    return g


def test_first_contents_depend_on_the_seed_and_the_name_alone():
    def contents(seed, *names):
        return {
            k: v.tolist()
            for k, v in gf.Session(random_variables(*names), seed=seed).state_dict().items()
            if "/" not in k
        }

    first = contents(1, "a", "b")
    assert first == contents(1, "a", "b")
    assert contents(1, "c", "b", "a") == {**first, "c": contents(1, "c")["c"]}
    assert first["a"] != first["b"]
    assert contents(2, "a")["a"] != first["a"]


def test_a_layer_wide_no_grad_or_scope_does_not_change_first_contents():
    g = random_variables("a")
    plain = gf.Session(g).state_dict()["a"]
    with gf.no_grad(), gf.name_scope("elsewhere"), gf.training(False):
        np.testing.assert_array_equal(gf.Session(g).state_dict()["a"], plain)


# Reading and writing.


@pytest.fixture
def one():
    with gf.Graph() as g:
        v = gf.Variable(np.array([1, 2], np.float32), name="v")
        i = gf.Variable(np.array([1, 2], np.int8), name="i")
        b = gf.Variable([True, False], name="b")
        h = gf.Variable([1.0, 2.0], name="h", dtype="bfloat16")
        y = v + 0
    return g, v, i, b, h, y


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("v", [3, 4]),
        ("v", (0.1, 1e30)),
        ("v", np.array([0.1, 0.2], np.float16)),
        ("v", np.array([3, 4], np.int16)),
        ("v", np.array([3, 4], ">f4")),
        ("v", gf.asarray([3.0, 4.0]) + 1.0),
        ("v", [True, False]),
        ("v", [float("inf"), float("nan")]),
        ("i", [127, -128]),
        ("i", np.array([5, -6], np.int8)),
        ("h", [0.3, 0.4]),
        ("h", [1, 2]),
        ("b", np.array([False, True])),
    ],
)
def test_what_is_written_is_read(one, name, value):
    session = gf.Session(one[0])
    session[name] = value
    wanted = np.asarray(value).astype(session[name].dtype)
    np.testing.assert_array_equal(session[name], wanted)
    np.testing.assert_array_equal(session.run(name), wanted)


@pytest.mark.parametrize(
    ("name", "value", "error", "match"),
    [
        ("v", 1.0, ShapeError, r'"v" is float32\[2\] and is given the shape \[\]'),
        ("v", [1, 2, 3], ShapeError, r"given the shape \[3\]"),
        ("v", [[1, 2]], ShapeError, r"given the shape \[1, 2\]"),
        ("v", [1j, 2], DTypeError, r'"v" is float32, which can\'t hold \[1j, 2\]'),
        ("v", [1e40, 0], DTypeError, r"which can't hold \[1e\+40, 0\]"),
        ("v", np.zeros(2), DTypeError, r'"v" is float32 and is given float64(.|\n)*"float32"\)'),
        ("i", [1.0, 2.0], DTypeError, r"which can't hold \[1.0, 2.0\](.|\n)*astype\(\"int8\"\)"),
        ("i", [128, 0], DTypeError, r"which can't hold \[128, 0\]"),
        ("i", np.array([3, 0]), DTypeError, r"is given int64, which can't be converted without"),
        ("b", [1, 0], DTypeError, r'"b" is bool'),
        ("nope", [1, 0], FetchError, r'nothing in this graph is named "nope"'),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(one, name, value, error, match):
    session = gf.Session(one[0])
    before = session.state_dict()
    with pytest.raises(error, match=match):
        session[name] = value
    for key, array in session.state_dict().items():
        np.testing.assert_array_equal(array, before[key])


def test_only_variables_are_read_and_written(one):
    g, *_, y = one
    session = gf.Session(g)
    with pytest.raises(FetchError, match=r"session\[…\] takes a variable or its name"):
        session[y]
    with pytest.raises(FetchError, match=r"session\[…\] takes a variable or its name"):
        session[y] = [1, 2]


def test_reading_and_writing_copy(one):
    g, v, *_ = one
    session = gf.Session(g)
    mine = np.array([5, 6], np.float32)
    session[v] = mine
    mine[:] = -1
    read = session[v]
    read[:] = -2
    np.testing.assert_array_equal(session[v], [5, 6])


# Updates commit together.


def test_every_read_in_a_run_sees_the_contents_at_its_start():
    with gf.Graph() as g:
        a = gf.Variable(1.0, name="a")
        b = gf.Variable(2.0, name="b")
        swap = gf.group(gf.update(a, b), gf.update(b, a))
        total = a * 10 + b
    with gf.Session(g) as session:
        before, _, first, second = session.run([total, swap, a, b])
        assert (before, first, second) == (12, 1, 2)
        assert session.run(total) == 21
        session.run([swap, swap])
        assert session.run(total) == 12


def failing_graph():
    with gf.Graph() as g:
        i = gf.placeholder((), gf.int64, name="i")
        a = gf.Variable(np.zeros(3, np.float32), name="a")
        b = gf.Variable(np.zeros(3, np.float32), name="b")
        noise = gf.random.normal((3,), name="noise")
        picked = gf.take(b, gf.reshape(i, (1,)), axis=0)
        step = gf.group(gf.update(a, a + 1 + 0 * noise), gf.update(b, b + gf.sum(picked) + 1))
    return g, i, a, b, noise, step


def test_a_run_that_fails_leaves_every_variable_and_the_step():
    g, i, a, b, noise, step = failing_graph()
    with gf.Session(g) as session:
        session.run([noise, step], {i: 0})
        before = session.state_dict()
        for _ in range(3):
            with pytest.raises(ExecutionError, match="take"):
                session.run([noise, step], {i: 99})
        after = session.state_dict()
        assert before.keys() == after.keys()
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])
        assert after["session/step"] == 1
        session.run(step, {i: 2})
        np.testing.assert_array_equal(session[a], [2, 2, 2])


def test_a_failing_commit_changes_nothing(monkeypatch):
    """Even where what fails is the very last thing."""
    monkeypatch.setenv("GRAPHFW_JIT", "0")  # native code may have overwritten the old contents
    g, i, a, b, noise, step = failing_graph()
    with gf.Session(g) as session:
        session.run(step, {i: 0})
        before = session.state_dict()
        state = session._state

        def fail(values, *args, **more):
            raise MemoryError

        monkeypatch.setattr(state, "commit", fail)
        with pytest.raises(MemoryError):
            session.run(step, {i: 0})
        monkeypatch.undo()
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name])
        session.run(step, {i: 0})
        np.testing.assert_array_equal(session[a], [2, 2, 2])


def test_the_memory_of_an_old_value_is_released():
    import weakref

    with gf.Graph() as g:
        v = gf.Variable(np.zeros(10, np.float32), name="v")
        step = gf.update(v, v + 1)
    with gf.Session(g) as session:
        session.run(step)
        contents = session._state.snapshot.values[v]
        old = weakref.ref(contents)
        overwritten = os.environ.get("GRAPHFW_JIT") != "0"
        del contents
        session.run(step)
        # The old array has the new contents, or nobody has it any more.
        assert (old() is session._state.snapshot.values[v]) if overwritten else (old() is None)


# Random numbers.


def noisy(extra=False):
    with gf.Graph() as g:
        if extra:
            gf.random.uniform((2,), name="extra")
        x = gf.random.normal((5,), name="x")
        v = gf.Variable(np.zeros(5, np.float32), name="v")
        step = gf.update(v, v + x)
        plain = v * 2
    return g, x, v, step, plain


def draws(session, x, count):
    return [session.run(x).tolist() for _ in range(count)]


def test_the_same_seed_and_step_give_the_same_numbers():
    g, x, *_ = noisy()
    first = draws(gf.Session(g, seed=5), x, 4)
    assert first == draws(gf.Session(g, seed=5), x, 4)
    assert len({tuple(row) for row in first}) == 4
    assert first != draws(gf.Session(g, seed=6), x, 4)


def test_a_stream_is_not_moved_by_other_ops_runs_fetches_or_feeds():
    g, x, v, step, plain = noisy()
    reference = draws(gf.Session(g), x, 3)
    session = gf.Session(g)
    got = []
    for _ in range(3):
        for other in (plain, v):
            session.run(other)
        got.append(session.run([plain, x, step])[1].tolist())
        session[v] = np.ones(5, np.float32)
    assert got == reference

    bigger, x2, *_ = noisy(extra=True)
    session = gf.Session(bigger)
    assert draws(session, x2, 2) == reference[:2]
    assert session.run({"a": "extra", "b": x2})["b"].tolist() == reference[2]


def test_a_failed_random_run_repeats_its_numbers():
    g, i, a, b, noise, step = failing_graph()
    reference = [gf.Session(g).run(noise).tolist()]
    session = gf.Session(g)
    with pytest.raises(ExecutionError):
        session.run([noise, step], {i: 99})
    assert session.run(noise).tolist() == reference[0]


def test_a_saved_step_continues_the_stream_exactly():
    g, x, v, step, plain = noisy()
    session = gf.Session(g, seed=3)
    session.run(step)
    session.run(x)
    saved = session.state_dict()
    expected = [session.run([x, step])[0].tolist() for _ in range(3)]
    other = gf.Session(g, seed=99)
    other.load_state_dict(saved)
    assert other.seed == 3
    assert [other.run([x, step])[0].tolist() for _ in range(3)] == expected
    np.testing.assert_array_equal(other[v], session[v])


def test_taking_and_giving_back_steps():
    state = State(seed=0)
    mine, other = object(), object()
    assert state.take_step(mine).step == 0
    state.give_back(mine)
    assert state.snapshot.step == 0
    assert state.take_step(mine).step == 0
    assert state.take_step(other).step == 1
    state.give_back(mine)  # too late: the other has gone on from there
    assert state.snapshot.step == 2
    state.give_back(other)
    state.give_back(other)
    assert state.snapshot.step == 1
    state.take_step(mine)
    state.commit({})
    state.give_back(mine)  # what was drawn is part of what has been committed
    assert state.snapshot.step == 2
