"""Compiled runs from end to end: what comes out, whose it is, and what happens at once."""

import statistics
import threading
import time

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.runtime import planned_executable
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.numpy_executor.compiled import CompiledExecutable
from graphfw.runtime.numpy_executor.ready_run import ReadyRun


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def reference(monkeypatch, g, fetches, feeds, runs=1, seed=0):
    """Run without native code; return the last run's results and the state."""
    with monkeypatch.context() as patch:
        patch.setenv("GRAPHFW_JIT", "0")
        with gf.Session(g, seed=seed) as session:
            plan = session.compile(fetches, list(feeds))
            assert isinstance(plan._run, ArrayExecutable)
            for _ in range(runs):
                results = plan(*feeds.values())
            return results, session.state_dict()


def compiled_plan(session, fetches, feeds):
    plan = session.compile(fetches, feeds)
    assert isinstance(plan._run, CompiledExecutable)
    return plan


def mlp(width=32, classes=5):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8), name="x")
        y = gf.placeholder(("n",), gf.int64, name="y")
        model = gf.nn.Sequential(gf.nn.Linear(8, width), gf.nn.ReLU(), gf.nn.Linear(width, classes))
        loss = gf.nn.cross_entropy(model(x), y)
        train = gf.optim.Adam(1e-2).minimize(loss)
    return g, x, y, loss, train


def batch(rng, n, classes=5):
    return rng.standard_normal((n, 8), dtype=np.float32), rng.integers(0, classes, n)


# What is handed out.


def test_sources_views_and_the_same_tensor_twice(rng):
    with gf.Graph() as g:
        x = gf.placeholder((3, 4), name="x")
        v = gf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="v")
        c = gf.asarray(np.arange(5, dtype=np.float32))
        y = x * 2
        fetches = {
            "feed": x,
            "variable": v,
            "turned": v.T,
            "constant": c,
            "piece": c[1:4],
            "backwards": x[::-1],
            "y": y,
            "again": y,
            "view": gf.permute_dims(y, (1, 0)),
            "row": y[1],
            "wide": gf.broadcast_to(y[0], (2, 4)),
            "flat": gf.reshape(y, (12,)),
        }
    array = rng.random((3, 4), dtype=np.float32)
    a, w, k = array, np.arange(6).reshape(2, 3), np.arange(5)
    wanted = {
        "feed": a,
        "variable": w,
        "turned": w.T,
        "constant": k,
        "piece": k[1:4],
        "backwards": a[::-1],
        "y": a * 2,
        "again": a * 2,
        "view": (a * 2).T,
        "row": a[1] * 2,
        "wide": np.broadcast_to(a[0] * 2, (2, 4)),
        "flat": (a * 2).reshape(12),
    }
    with gf.Session(g) as session:
        plan = compiled_plan(session, fetches, [x])
        for _ in range(2):
            got = plan(array)
            for name, value in got.items():
                np.testing.assert_array_equal(value, wanted[name], err_msg=name)
                assert value.flags.writeable
                assert value.flags.c_contiguous
            arrays = [array, *got.values(), *session._state.snapshot.values.values()]
            for number, one in enumerate(arrays):
                for other in arrays[:number]:
                    assert not np.shares_memory(one, other)
            for value in got.values():
                value[...] = -1  # is nobody else's
        np.testing.assert_array_equal(session[v], w)


def test_a_result_that_is_kept_is_not_written_again(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 300), name="x")
        y = gf.exp(x)
    with gf.Session(g) as session:
        plan = compiled_plan(session, y, [x])
        arrays = [rng.random((100, 300), dtype=np.float32) for _ in range(8)]
        kept = [plan(array)[5:] for array in arrays]
        for array, result in zip(arrays, kept, strict=True):
            np.testing.assert_allclose(result, np.exp(array)[5:], rtol=1e-6)


def test_the_old_and_the_new_value_of_a_variable():
    with gf.Graph() as g:
        v = gf.Variable(np.arange(5000, dtype=np.float32), name="v")
        new = v * 2 + 1
        step = gf.update(v, new)
    with gf.Session(g) as session:
        plan = compiled_plan(session, [v, new, step, v], [])
        value = np.arange(5000, dtype=np.float32)
        for _ in range(5):
            old, made, _, again = plan()
            np.testing.assert_array_equal(old, value)
            np.testing.assert_array_equal(again, value)
            value = value * 2 + 1
            np.testing.assert_array_equal(made, value)
            np.testing.assert_array_equal(session[v], value)


def test_swaps_rotations_and_one_value_for_two():
    with gf.Graph() as g:
        a, b, c, d = [gf.Variable(np.full(20_000, n, np.float32), name=f"v{n}") for n in range(4)]
        step = gf.group(gf.update(a, b), gf.update(b, a))
        turn = gf.group(gf.update(a, b), gf.update(b, c), gf.update(c, a), gf.update(d, a))
        both = gf.group(gf.update(a, c + 1), gf.update(b, c + 1))
        back = gf.update(c, c[::-1])
    with gf.Session(g) as session:

        def values():
            rows = [session[v] for v in (a, b, c, d)]
            assert all((row == row[0]).all() for row in rows)
            return [int(row[0]) for row in rows]

        for one, wanted in [
            (step, [1, 0, 2, 3]),
            (step, [0, 1, 2, 3]),
            (turn, [1, 2, 0, 0]),
            (turn, [2, 0, 1, 1]),
            (both, [2, 2, 1, 1]),
        ]:
            session.run(one)
            assert values() == wanted
        session[c] = np.arange(20_000, dtype=np.float32)
        for _ in range(3):
            session.run(back)
        np.testing.assert_array_equal(session[c], np.arange(20_000)[::-1])


def test_nodes_outside_of_native_code_between_native_stretches(rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 6), name="x")
        v = gf.Variable(np.ones(6, np.float32), name="v")
        first = gf.sort(gf.tanh(x) * 3, axis=0)  # of a symbolic size
        second = gf.sort(gf.permute_dims(first + v, (1, 0)), axis=1)
        third = gf.permute_dims(second, (1, 0))[::-1] * 2
        step = gf.update(v, v + gf.mean(third, axis=0))
    array = rng.standard_normal((9, 6), dtype=np.float32)
    fetches = [first, second, third, step]
    wanted, state = reference(monkeypatch, g, fetches, {x: array}, runs=3)
    with gf.Session(g) as session:
        plan = compiled_plan(session, fetches, [x])
        assert len(plan._run.loaded.recipe.stretches) == 3
        for _ in range(3):
            results = plan(array)
        for got, want in zip(results[:3], wanted, strict=False):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(session[v], state["v"], rtol=1e-5)


# What is fed.


def odd_arrays(array):
    bytes_ = np.zeros(array.nbytes + 1, np.uint8)
    bytes_[1:] = array.reshape(-1).view(np.uint8)
    misaligned = bytes_[1:].view(array.dtype).reshape(array.shape)
    assert not misaligned.flags.aligned
    yield misaligned
    yield np.asfortranarray(array)
    yield np.repeat(array, 2, axis=1)[:, ::2]
    yield array[::-1].copy()[::-1]
    yield array[:, ::-1].copy()[:, ::-1]
    constant = array.copy()
    constant.flags.writeable = False
    yield constant
    yield np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
    yield array.tolist()
    yield array.astype(array.dtype.newbyteorder())


def test_arrays_of_any_kind_are_fed(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 7), name="x")
        y = gf.placeholder((7,), name="y")
        total = gf.sum(x * 3 + y, axis=1)
        same = x[1:]
    array, row = rng.random((5, 7), dtype=np.float32), rng.random(7, dtype=np.float32)
    with gf.Session(g) as session:
        plan = compiled_plan(session, [total, same], [x, y])
        wanted = plan(array, row)
        np.testing.assert_allclose(wanted[0], (array * 3 + row).sum(1), rtol=1e-5)
        before = array.copy()
        for odd in odd_arrays(array):
            for got, want in zip(plan(odd, np.repeat(row, 3)[::3]), wanted, strict=True):
                np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(array, before)
        np.testing.assert_array_equal(
            plan(np.broadcast_to(row, (4, 7)), row)[0], plan(np.tile(row, (4, 1)), row)[0]
        )


def test_zero_sizes_and_many_others_on_one_plan(rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), name="x")
        w = gf.placeholder(("m", "k"), name="w")
        out = [
            gf.sum(gf.exp(x), axis=0),
            gf.softmax(x @ w, axis=1),
            gf.concat([x, x], axis=1) + 1,
            gf.sum(x),
        ]
    with gf.Session(g) as session:
        plan = compiled_plan(session, out, [x, w])
        sizes = [(3, 4, 5), (0, 4, 5), (3, 0, 5), (3, 4, 0), (0, 0, 5), (1, 1, 1), (70, 3, 2)]
        for n, m, k in sizes:
            a = rng.standard_normal((n, m), dtype=np.float32)
            b = rng.standard_normal((m, k), dtype=np.float32)
            try:
                wanted, _ = reference(monkeypatch, g, out, {x: a, w: b})
            except ExecutionError:
                with pytest.raises(ExecutionError):
                    plan(a, b)
                continue
            for got, want in zip(plan(a, b), wanted, strict=True):
                assert got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_training_is_what_it_is_without_native_code(rng, monkeypatch):
    g, x, y, loss, train = mlp()
    a, b = batch(rng, 40)
    want, state = reference(monkeypatch, g, [loss, train], {x: a, y: b}, runs=5)
    with gf.Session(g) as session:
        plan = compiled_plan(session, [loss, train], [x, y])
        for _ in range(5):
            got = plan(a, b)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
        for name, array in session.state_dict().items():
            np.testing.assert_allclose(array, state[name], rtol=2e-3, atol=2e-4, err_msg=name)


def test_random_numbers_are_those_of_the_reference_path(monkeypatch):
    with gf.Graph() as g:
        noise = gf.random.normal((100,), name="noise")
        bits = gf.random.randint(0, 9, (50,), name="bits")
        v = gf.Variable(np.zeros(100, np.float32), name="v")
        step = gf.update(v, v + noise)
    want, state = reference(monkeypatch, g, [noise, bits, step], {}, runs=3, seed=5)
    with gf.Session(g, seed=5) as session:
        plan = compiled_plan(session, [noise, bits, step], [])
        for _ in range(3):
            got = plan()
        np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(session[v], state["v"], rtol=1e-5, atol=1e-6)


# Threads.


def test_results_do_not_depend_on_the_number_of_threads(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 513), name="x")
        v = gf.Variable(np.zeros(513, np.float32), name="v")
        scores = gf.softmax(x @ gf.permute_dims(x, (1, 0)), axis=1)
        fetches = [
            gf.sum(x, axis=0),
            gf.sum(x),
            gf.mean(gf.exp(scores), axis=1),
            scores @ x,
            gf.update(v, v + gf.sum(gf.sin(x), axis=0)),
        ]
    array = rng.standard_normal((311, 513), dtype=np.float32)
    found = []
    for threads in (1, 2, 3):
        with gf.Session(g, threads=threads) as session:
            plan = compiled_plan(session, fetches, [x])
            plan(array)
            found.append([*plan(array)[:4], session[v]])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_many_threads_on_one_plan_with_updates_and_readers_at_once():
    size = 30_000
    with gf.Graph() as g:
        a = gf.Variable(np.zeros(size, np.float32), name="a")
        b = gf.Variable(np.zeros(size, np.float32), name="b")
        x = gf.placeholder((), name="x")
        tick = gf.group(gf.update(a, a + x), gf.update(b, b + x * 2))
        spread = gf.max(gf.abs(a * 2 - b))
        low, high = gf.min(a), gf.max(a)
    wrong = []
    with gf.Session(g) as session:
        train = compiled_plan(session, tick, [x])
        read = compiled_plan(session, [spread, low, high], [])
        both = compiled_plan(session, [tick, low, high], [x])
        stop = threading.Event()

        def reading():
            last = 0.0
            while not stop.is_set():
                difference, least, most = map(float, read())
                if difference or least != most or least < last:
                    wrong.append((difference, least, most, last))
                last = least

        def copying():
            while not stop.is_set():
                rows = session[a]
                if not (rows == rows[0]).all():
                    wrong.append("torn")

        def training(plan):
            for _ in range(40):
                got = plan(1.0)
                if got is not None and float(got[1]) != float(got[2]):
                    wrong.append("torn update")

        readers = [threading.Thread(target=job) for job in (reading, reading, copying)]
        writers = [threading.Thread(target=training, args=(p,)) for p in (train, both, train)]
        for thread in (*readers, *writers):
            thread.start()
        for thread in writers:
            thread.join(60)
        stop.set()
        for thread in readers:
            thread.join(60)
        assert wrong == []
        assert (session[a] == 120).all()
        assert (session[b] == 240).all()


def addresses(session):
    return {v.name: a.ctypes.data for v, a in session._state.snapshot.values.items()}


def test_updates_are_written_in_place_when_nobody_reads(rng):
    g, x, y, loss, train = mlp()
    a, b = batch(rng, 16)
    with gf.Session(g) as session:
        plan = compiled_plan(session, [loss, train], [x, y])
        plan(a, b)
        before, contents = addresses(session), session.state_dict()
        for _ in range(3):
            plan(a, b)
        assert addresses(session) == before
        after = session.state_dict()
        changed = [name for name in before if not np.array_equal(after[name], contents[name])]
        assert len(changed) >= 12  # four parameters with two moments each, at least


def test_pinned_readers_keep_what_they_read(rng, monkeypatch):
    g, x, y, loss, train = mlp()
    a, b = batch(rng, 16)
    _, wanted = reference(monkeypatch, g, [loss, train], {x: a, y: b}, runs=4)
    with gf.Session(g) as session:
        plan = compiled_plan(session, [loss, train], [x, y])
        plan(a, b)
        me = object()
        seen = session._state.pin(me).values
        copies = {v: array.copy() for v, array in seen.items()}
        before = addresses(session)
        plan(a, b)
        plan(a, b)
        for v, array in seen.items():
            np.testing.assert_array_equal(array, copies[v])
        now = addresses(session)
        assert any(now[name] != before[name] for name in before)
        session._state.unpin(me)
        plan(a, b)
        for name, array in session.state_dict().items():
            np.testing.assert_allclose(array, wanted[name], rtol=2e-3, atol=2e-4)


# What fails.


def test_an_index_that_is_out_of_range_changes_nothing(rng, monkeypatch):
    with gf.Graph() as g:
        i = gf.placeholder(("n",), gf.int64, name="i")
        table = gf.Variable(rng.standard_normal((10, 4), dtype=np.float32), name="table")
        other = gf.Variable(np.zeros(4, np.float32), name="other")
        rows = gf.take(table, i, axis=0)
        step = gf.group(gf.update(other, other + 1), gf.update(table, table * 0.5 + gf.sum(rows)))
    good, bad = np.array([0, 9, 3]), np.array([0, 10, 3])
    with pytest.raises(ExecutionError) as expected:
        reference(monkeypatch, g, [rows, step], {i: bad})
    with gf.Session(g) as session:
        plan = compiled_plan(session, [rows, step], [i])
        plan(good)
        before, addresses_before = session.state_dict(), addresses(session)
        for _ in range(3):
            with pytest.raises(ExecutionError) as caught:
                plan(bad)
            assert caught.value.summary == expected.value.summary
            assert caught.value.at == expected.value.at
            assert str(caught.value).splitlines()[0] == str(expected.value).splitlines()[0]
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name])
        assert addresses(session) == addresses_before
        plan(good)
        assert (session[other] == 2).all()


def test_a_size_that_divides_by_zero_is_an_error_of_the_run(monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 6), name="x")
        y = gf.reshape(x, (x.shape[0], -1, 3)) * 2
    with gf.Session(g) as session:
        plan = compiled_plan(session, y, [x])
        assert plan(np.ones((2, 6), np.float32)).shape == (2, 2, 3)
        assert plan(np.ones((0, 6), np.float32)).shape == (0, 2, 3)


# Sizes.


def test_new_sizes_cost_less_than_a_millisecond(rng):
    g, x, y, loss, train = mlp(width=64)
    with gf.Session(g) as session:
        plan = compiled_plan(session, [loss, train], [x, y])
        plan(*batch(rng, 8))
        times = []
        for n in range(20, 80):
            start = time.perf_counter()
            ReadyRun(plan._run.loaded, plan._run.loaded.layouts.make((n,)), 2)
            times.append(time.perf_counter() - start)
        assert statistics.median(times) < 1e-3


def test_the_layouts_of_many_sizes_do_not_grow_without_bound(monkeypatch):
    monkeypatch.setattr(planned_executable, "LAYOUTS", 10)
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.sum(gf.concat([x, x * 2]))
    with gf.Session(g) as session:
        plan = compiled_plan(session, y, [x])
        for n in [*range(1, 40), *range(40, 0, -1)]:
            assert plan(np.ones(n, np.float32)) == 3 * n
        assert len(plan._run._layouts) == 10
