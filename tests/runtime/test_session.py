"""`Session.run`: forms of fetches, ownership of what is fetched, errors, a session's life."""

import gc
import itertools
import weakref
from collections import namedtuple

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, FeedError, FetchError, GraphError, SessionError

Pair = namedtuple("Pair", "loss rest")


class Small:
    """A graph with one of everything."""

    def __init__(self):
        with gf.Graph("small") as self.graph:
            self.x = gf.placeholder(("n", 3), name="x")
            self.w = gf.Variable(np.array([1.0, 2.0, 3.0], np.float32), name="w")
            self.y = gf.identity(self.x * self.w, name="y")
            self.total = gf.sum(self.y)
            self.halve = gf.update(self.w, self.w / 2)
            self.constant = gf.identity(gf.constant([5.0, 6.0]), name="five")


@pytest.fixture
def small():
    return Small()


X = np.array([[1, 1, 1], [0, 10, 100]], np.float32)


# Forms.


@pytest.mark.parametrize(
    "form",
    [
        lambda y, w, up: y,
        lambda y, w, up: [y],
        lambda y, w, up: (y, w),
        lambda y, w, up: {"y": y, "w": w},
        lambda y, w, up: Pair(y, [w, {"again": y}]),
        lambda y, w, up: [[], (), {}, y],
        lambda y, w, up: [up, y, (up, w)],
        lambda y, w, up: up,
        lambda y, w, up: [],
        lambda y, w, up: {"y": "y", "w": ["w"]},
    ],
)
def test_values_come_back_in_the_form_of_the_fetches(small, form):
    fetches = form(small.y, small.w, small.halve)
    expected = form(X * [1, 2, 3], np.array([1, 2, 3]), None)

    def check(value, wanted, asked):
        if isinstance(asked, dict):
            assert type(value) is dict
            assert list(value) == list(asked)
            for key in asked:
                check(value[key], wanted[key], asked[key])
        elif isinstance(asked, (list, tuple)):
            assert type(value) is type(asked)
            assert len(value) == len(asked)
            for triple in zip(value, wanted, asked, strict=True):
                check(*triple)
        elif isinstance(asked, str):
            np.testing.assert_array_equal(value, X * [1, 2, 3] if asked == "y" else [1, 2, 3])
        elif wanted is None:
            assert value is None
        else:
            assert type(value) is np.ndarray
            assert value.dtype == np.float32
            np.testing.assert_array_equal(value, wanted)

    with gf.Session(small.graph) as session:
        check(session.run(fetches, {small.x: X}), expected, fetches)


def test_a_scalar_comes_back_as_an_array(small):
    with gf.Session(small.graph) as session:
        total = session.run(small.total, {"x": X})
    assert type(total) is np.ndarray
    assert total.shape == ()
    assert total == 326


def test_feeds_by_name_and_by_tensor_are_the_same(small):
    with gf.Session(small.graph) as session:
        by_name = session.run("y", {"x": X})
        by_tensor = session.run(small.y, {small.x: X})
    np.testing.assert_array_equal(by_name, by_tensor)


def test_what_is_not_needed_may_be_fed_and_is_still_checked(small):
    with gf.Session(small.graph) as session:
        assert session.run(small.w, {small.x: X}).shape == (3,)
        with pytest.raises(FeedError, match="dim 1 is 4, not 3"):
            session.run(small.w, {small.x: np.ones((2, 4), np.float32)})


# What is fetched belongs to the caller.


def everything_that_could_alias():
    """Yield (name, what is fetched) made in a graph; all of it reads x, w or c."""
    with gf.Graph() as g:
        x = gf.placeholder((2, 3), name="x")
        w = gf.Variable(np.ones((2, 3), np.float32), name="w")
        c = gf.asarray(np.ones((2, 3), np.float32))
        for source in (x, w, c, x + w):
            yield g, source
            for made in (
                gf.identity(source),
                gf.stop_gradient(source),
                gf.reshape(source, (3, 2)),
                gf.permute_dims(source, (1, 0)),
                gf.permute_dims(gf.permute_dims(source, (1, 0)), (1, 0)),
                gf.expand_dims(source, axis=0),
                gf.broadcast_to(source, (4, 2, 3)),
                gf.broadcast_to(gf.sum(source), (2, 3)),
                source[0],
                source[:, 1:],
                source[:, ::-1],
                gf.astype(source, gf.float32),
                gf.real(source),
            ):
                yield g, made


CASES = list(everything_that_could_alias())


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_fetched_array_shares_memory_with_nothing(case):
    graph, tensor = CASES[case]
    w, x = graph.find("w"), graph.find("x")
    fed = np.ones((2, 3), np.float32)
    with graph:
        step = gf.update(w, w + 1)
    with gf.Session(graph) as session:
        plans = [tensor, [tensor, tensor], [tensor, w, x, step], (gf_view(graph, tensor), tensor)]
        owned = [fed]
        for fetches in plans:
            got = session.run(fetches, {x: fed})
            owned += [
                a for a in (got if isinstance(got, (list, tuple)) else [got]) if a is not None
            ]
        owned += [session[w], session.state_dict()["w"]]
        before = session.run([tensor, w], {x: fed})
        for a, b in itertools.combinations(owned, 2):
            assert not np.shares_memory(a, b)
        for array in owned[1:]:
            assert array.flags.writeable
            assert array.flags.c_contiguous
            array[...] = -7
        after = session.run([tensor, w], {x: fed})
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(fed, 1)


def gf_view(graph, tensor):
    with graph:
        return gf.reshape(tensor, (-1,))


def test_a_broadcast_to_one_is_no_read_only_view():
    with gf.Graph() as g:
        x = gf.placeholder((1,), name="x")
        like = gf.placeholder(("n",), name="like")
        y = gf.broadcast_to(x * 2, like.shape)
    with gf.Session(g) as session:
        for n in (1, 3):
            value = session.run(y, {x: [4.0], like: np.zeros(n, np.float32)})
            value += 1
            np.testing.assert_array_equal(value, [9] * n)


def test_a_small_view_does_not_keep_a_large_array_alive():
    with gf.Graph() as g:
        x = gf.placeholder((1000, 1000), name="x")
        corner = (x + 1)[0, :2]
    with gf.Session(g) as session:
        value = session.run(corner, {x: np.zeros((1000, 1000), np.float32)})
    assert value.base is None or value.base.nbytes <= 8


def test_what_is_fed_may_change_after_the_run(small):
    with small.graph:
        store = gf.update(small.w, small.x[0])
    fed = X.copy()
    with gf.Session(small.graph) as session:
        session.run(store, {small.x: fed})
        fed[...] = -1
        np.testing.assert_array_equal(session[small.w], X[0])


# Errors.


def test_a_missing_feed_is_named(small):
    with gf.Session(small.graph) as session, pytest.raises(FeedError) as caught:
        session.run(small.y)
    text = str(caught.value)
    assert 'the value of "x" is needed and nothing is fed for it' in text
    assert "test_session.py" in text
    assert 'session.run(fetches, {"x": array})' in text


@pytest.mark.parametrize(
    ("feeds", "match"),
    [
        ({"xx": X}, r'nothing in this graph is named "xx"(.|\n)*did you mean "x"'),
        ({"w": X}, r"only placeholders are fed(.|\n)*session\[variable\] = array"),
        ({"y": X}, r"result of identity(.|\n)*make it a placeholder"),
        ({3: X}, "key 3 is neither a placeholder nor a name"),
        (np.ones(2), "feeds is a ndarray, not a dict"),
        ([X], "feeds is a list, not a dict"),
        ("x", "feeds is a str, not a dict"),
    ],
)
def test_a_wrong_feed_says_what_to_do(small, feeds, match):
    with gf.Session(small.graph) as session, pytest.raises(FeedError, match=match):
        session.run(small.y, feeds)


def test_feeding_twice_is_an_error(small):
    with gf.Session(small.graph) as session:
        with pytest.raises(FeedError, match='"x" is fed twice'):
            session.run(small.y, {"x": X, small.x: X})
        with pytest.raises(FeedError, match='"x" is fed twice'):
            session.compile(small.y, feeds=[small.x, "x"])


@pytest.mark.parametrize("fetch", [None, 3, np.ones(2), np.eye(99), object, b"y", {1, 2}])
def test_what_cannot_be_fetched(small, fetch):
    text = "^.{1,60} can't be fetched"
    with gf.Session(small.graph) as session, pytest.raises(FetchError, match=text):
        session.run([small.y, fetch], {small.x: X})


def test_names_that_are_nearly_right(small):
    with gf.Session(small.graph) as session:
        with pytest.raises(FetchError, match=r'named "fiv"(.|\n)*did you mean "five"'):
            session.run("fiv")
        with pytest.raises(FetchError, match='nothing in this graph is named "nope"'):
            session["nope"]


def test_tensors_of_elsewhere(small):
    other = Small()
    outside = gf.asarray([1.0])
    with gf.Session(small.graph) as session:
        for fetch in (other.y, other.halve, other.w):
            with pytest.raises(FetchError, match="belongs to another graph"):
                session.run(fetch, {small.x: X})
        with pytest.raises(FetchError, match=r"outside any graph(.|\n)*tensor.numpy\(\)"):
            session.run(outside)
        with pytest.raises(FeedError, match="belongs to another graph"):
            session.run(small.y, {other.x: X})
        with pytest.raises(FetchError, match="belongs to another graph"):
            session[other.w]


@pytest.mark.parametrize("feeds", ["x", "tensor"])
def test_compile_wants_a_list_of_feeds(small, feeds):
    with gf.Session(small.graph) as session, pytest.raises(FeedError, match=r"write feeds=\[x\]"):
        session.compile(small.y, feeds=small.x if feeds == "tensor" else "x")


def test_two_updates_of_one_variable(small):
    with small.graph:
        add = gf.update(small.w, small.w + 1)
    with gf.Session(small.graph) as session:
        session.run([small.halve, small.halve])
        np.testing.assert_array_equal(session[small.w], [0.5, 1, 1.5])
        with pytest.raises(GraphError) as caught:
            session.run([small.halve, add])
        np.testing.assert_array_equal(session[small.w], [0.5, 1, 1.5])
    text = str(caught.value)
    assert 'two updates give "w" different values in one run' in text
    assert text.count("test_session.py") >= 2


def test_two_updates_that_agree_are_one(small):
    with small.graph:
        doubled = small.w * 2
        first, second = gf.update(small.w, doubled), gf.update(small.w, doubled)
    with gf.Session(small.graph) as session:
        session.run([first, second, gf_group(small.graph, first, second)])
        np.testing.assert_array_equal(session[small.w], [2, 4, 6])


def gf_group(graph, *updates):
    with graph:
        return gf.group(*updates)


@pytest.mark.parametrize("seed", [1.5, "7", None, True, 2**63, -(2**63) - 1])
def test_a_seed_is_an_int_of_64_bits(small, seed):
    with pytest.raises(ArgumentError, match="seed"):
        gf.Session(small.graph, seed=seed)


def test_a_session_wants_a_graph():
    with pytest.raises(ArgumentError, match=r"is not a Graph(.|\n)*gf.Session\(g\)"):
        gf.Session("numpy")


def test_mistakes_that_a_graph_has_collected_stop_a_session():
    g = gf.Graph(collect_errors=True)
    with pytest.raises(gf.errors.GraphErrors), g:
        gf.matmul(gf.placeholder((2, 3)), gf.placeholder((4, 5)))
    with pytest.raises(gf.errors.GraphErrors):
        gf.Session(g)


# The life of a session.


def test_a_closed_session_refuses_everything(small, tmp_path):
    with gf.Session(small.graph) as session:
        plan = session.compile(small.y, feeds=[small.x])
        session.run(small.y, {small.x: X})
    uses = [
        lambda: session.run(small.y, {small.x: X}),
        lambda: session.compile(small.y, feeds=[small.x]),
        lambda: plan(X),
        lambda: session[small.w],
        lambda: session.__setitem__(small.w, np.zeros(3)),
        lambda: session.state_dict(),
        lambda: session.load_state_dict({}),
        lambda: session.save(tmp_path / "a.safetensors"),
        lambda: session.__enter__(),
    ]
    for use in uses:
        with pytest.raises(SessionError, match="this session is closed"):
            use()
    assert "closed" in repr(session)
    session.close()


def test_an_error_inside_the_block_closes_too(small):
    with pytest.raises(KeyError), gf.Session(small.graph) as session:
        raise KeyError
    with pytest.raises(SessionError):
        session.run(small.w)


def test_a_graph_may_grow_under_a_session(small):
    with gf.Session(small.graph) as session:
        plan = session.compile(small.y, feeds=[small.x])
        session.run(small.halve)
        with small.graph:
            bias = gf.Variable(np.full(3, 10, np.float32), name="bias")
            gf.identity(small.y + bias, name="z")
            shift = gf.update(bias, bias + 1)
        np.testing.assert_array_equal(session[bias], [10, 10, 10])
        np.testing.assert_array_equal(session.run("z", {"x": X}), X * [0.5, 1, 1.5] + 10)
        session.run([shift, small.halve])
        np.testing.assert_array_equal(plan(X), X * [0.25, 0.5, 0.75])
        np.testing.assert_array_equal(session.run("z", {"x": X}), X * [0.25, 0.5, 0.75] + 11)


def test_sessions_of_one_graph_are_apart(small):
    first, second = gf.Session(small.graph), gf.Session(small.graph)
    first.run(small.halve)
    np.testing.assert_array_equal(first[small.w], [0.5, 1, 1.5])
    np.testing.assert_array_equal(second[small.w], [1, 2, 3])


def test_the_cache_of_plans_compiles_once_and_is_bounded(small, monkeypatch):
    from graphfw.runtime import session as module

    monkeypatch.setattr(module, "_PLANS", 4)
    compiled = []
    lower = module.lower
    monkeypatch.setattr(module, "lower", lambda *args: compiled.append(1) or lower(*args))
    with gf.Session(small.graph) as session:
        for _ in range(3):
            session.run([small.y], {small.x: X})
            session.run((small.y,), {small.x: X})
        assert len(compiled) == 2
        for size in range(10):
            assert len(session.run([small.w] * size)) == size
        assert len(session._plans) == 4
        np.testing.assert_array_equal(session.run([small.y], {small.x: X})[0], X * [1, 2, 3])


def test_a_list_of_fetches_may_change_between_runs(small):
    fetches = [small.y]
    with gf.Session(small.graph) as session:
        assert session.run(fetches, {small.x: X})[0].shape == (2, 3)
        fetches[0] = small.total
        assert session.run(fetches, {small.x: X})[0].shape == ()
        fetches.append(small.w)
        assert len(session.run(fetches, {small.x: X})) == 2


def test_dropped_sessions_plans_and_graphs_are_collected(small):
    def use():
        made = Small()
        session = gf.Session(made.graph)
        plan = session.compile([made.y, made.halve], feeds=[made.x])
        plan(X)
        session.run(made.total, {made.x: X})
        return [weakref.ref(o) for o in (session, plan, made.graph, made.y, made.w)]

    dead = use()
    gc.collect()
    assert [ref() for ref in dead] == [None] * 5


def test_a_closed_session_lets_go_of_its_arrays_at_once(small):
    gc.collect()
    gc.disable()
    try:
        session = gf.Session(small.graph)
        session.run([small.y, small.halve], {small.x: X})
        contents = weakref.ref(session._state.snapshot.values[small.w])
        assert contents() is not None
        session.close()
        assert contents() is None
    finally:
        gc.enable()


def test_a_run_makes_no_garbage_cycles(small):
    with small.graph:
        row = small.x[0]
        noisy = gf.random.normal((3,), name="noise") + row
    with gf.Session(small.graph) as session:
        step = session.compile([small.y, small.halve, noisy], feeds=[small.x])
        step(X)
        session.run([small.total, small.halve], {"x": X})  # compiling does make some
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                step(X)
                session.run([small.total, small.halve], {"x": X})
            assert gc.collect() == 0
        finally:
            gc.enable()


def test_results_are_freed_as_soon_as_the_caller_drops_them(small):
    with gf.Session(small.graph) as session:
        gc.collect()
        gc.disable()
        try:
            value = session.run(small.y, {small.x: X})
            ref = weakref.ref(value)
            del value
            assert ref() is None
        finally:
            gc.enable()


def test_repr_says_what_it_is(small):
    session = gf.Session(small.graph)
    assert 'Graph "small"' in repr(session)
    assert "numpy" in repr(session)
    assert "step 0" in repr(session)


def test_what_a_session_refuses_when_it_is_made():
    g = gf.Graph()
    with pytest.raises(gf.ArgumentError, match="'eahc' is no level") as caught:
        gf.Session(g, verify="eahc")
    assert caught.value.fix.startswith('did you mean "each"?')
    with pytest.raises(gf.ArgumentError, match="seed='a' is not an int") as caught:
        gf.Session(g, seed="a")
    assert caught.value.fix == "pass an int: seed=0"


def test_compile_takes_a_list_of_feeds():
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = x * 2
    with gf.Session(g) as session:
        with pytest.raises(gf.FeedError, match="compile: feeds is a dict") as caught:
            session.compile(y, feeds={x: [1.0, 2.0]})
        assert "feeds=[x]" in caught.value.fix
        with pytest.raises(gf.FeedError, match='the value of "x" is needed') as caught:
            session.compile(y)
        assert 'session.compile(fetches, feeds=["x"])' in caught.value.fix
        with pytest.raises(gf.ArgumentError, match="load_state_dict: 5 is not a dict"):
            session.load_state_dict(5)
        with pytest.raises(gf.ArgumentError, match="load_state_dict: the key 1 is no name"):
            session.load_state_dict({"a": [1.0], 1: [2.0]}, strict=False)
