"""Bodies of loops and branches on the CuPy executor, against the NumPy executor."""

import itertools
import signal

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.runtime.cupy_executor.addresses import WELL
from graphfw.runtime.cupy_executor.capture import RUNS
from graphfw.runtime.cupy_executor.regions import common, scans
from graphfw.runtime.cupy_executor.staging import Staging
from tests.strict_xp import plain_array


def agree(g, fetches, feeds, runs=RUNS + 2, rtol=2e-5, seed=5, **options):
    """Compare runs: the first are made by themselves, the last with CUDA graphs, if there are."""
    with gf.Session(g, seed=seed) as cpu, gf.Session(g, "cupy", seed=seed, **options) as gpu:
        for _ in range(runs):
            wanted = cpu.run(fetches, feeds)
            found = gpu.run(fetches, feeds, host=True)
            for a, b in zip(wanted, found, strict=True):
                if a is None:
                    continue
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                np.testing.assert_allclose(b, a, rtol=rtol, atol=1e-5)
        return gpu.compile(fetches, [*feeds]).explain(*[np.shape(feed) for feed in feeds.values()])


def normal(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def recurrent(width=4, batch=2, reverse=False):
    """A loop with a product, whose iterations are no kernel, with two gradients."""
    with gf.Graph() as g:
        xs = gf.placeholder(("time", batch, width), name="xs")
        h = gf.placeholder((batch, width), name="h")
        w = gf.placeholder((width, width), name="w")

        def step(carry, x):
            new = gf.tanh(carry @ w + x)
            return new, (new, gf.sum(new * x))

        last, (rows, sums) = gf.scan(step, h, xs, reverse=reverse)
        loss = gf.sum(last) + gf.sum(rows * rows) + gf.sum(sums)
        slopes = gf.grad(loss, [xs, h, w])
    return g, (xs, h, w), [last, rows, sums, *slopes]


def fed(inputs, rng):
    """Return the feeds of `recurrent`."""
    return dict(zip(inputs, [normal(rng, *s) for s in [(6, 2, 4), (2, 4), (4, 4)]], strict=True))


@pytest.mark.usefixtures("bodies_have_steps")
@pytest.mark.exhaustive
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("width", "batch"), [(4, 2), (5, 3)])  # rows well aligned, and not
def test_scans_and_their_gradients(anywhere, rng, width, batch, reverse):
    g, inputs, fetches = recurrent(width, batch, reverse)
    with gf.Session(g) as cpu, gf.Session(g, "cupy") as gpu:
        ours, theirs = gpu.compile(fetches, inputs), cpu.compile(fetches, inputs)
        for time in (7, 1, 0, 7, 2, 7, 7):
            sizes = [(time, batch, width), (batch, width), (width, width)]
            feeds = [normal(rng, *shape) for shape in sizes]
            for a, b in zip(theirs(*feeds), ours(*feeds), strict=True):
                np.testing.assert_allclose(gf.to_numpy(b), a, rtol=1e-4, atol=1e-5)
        text = ours.explain(*sizes)
    assert "CuPy, made" not in text
    assert "scan: 7 iterations" in text
    assert "may be part of a CUDA graph" in text


@pytest.mark.usefixtures("bodies_have_steps")
def test_a_whole_scan_is_captured_in_a_graph(fake, session, rng):
    g, inputs, fetches = recurrent()
    gpu = session(g)
    feeds = fed(inputs, rng)
    launched = []
    for _ in range(RUNS + 2):
        fake.launches.clear()
        gpu.run(fetches, feeds)
        launched.append(len(fake.launches))
    assert len(fake.streams.graphs) == 1, "all of it"
    assert len({*launched[1:]}) == 1, "a graph does what the launches did"
    assert launched[0] > 12


@pytest.mark.usefixtures("bodies_have_steps")
def test_a_long_scan_does_not(fake, session, rng, monkeypatch):
    monkeypatch.setattr(scans, "MOST_LAUNCHES", 10)
    g, inputs, fetches = recurrent()
    feeds = fed(inputs, rng)
    text = agree(g, fetches, feeds, rtol=1e-4)
    assert "are more than 10" in text
    assert common.MOST_LAUNCHES == 4096


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_iterations_that_stack_a_complex_number(anywhere, rng, dtype):
    with gf.Graph() as g:
        x, h = gf.placeholder((6, 3), name="x"), gf.placeholder((3,), name="h")
        number = gf.constant(np.array(1 - 2j, dtype))
        last, (halves, numbers) = gf.scan(lambda c, row: (c * 0.5 + row, (c, number)), h, x)
    feeds = {x: rng.standard_normal((6, 3)).astype("f"), h: rng.standard_normal(3).astype("f")}
    agree(g, [last, halves, numbers], feeds)


@pytest.mark.usefixtures("bodies_have_steps")
def test_carries_that_are_swapped_or_constant(anywhere, rng):
    with gf.Graph() as g:
        x = gf.placeholder((3, 3), name="x")
        k = gf.asarray(np.arange(9, dtype=np.float32).reshape(3, 3))

        def step(carry, _):
            a, b, c = carry
            return (b @ x, a, k), (a, c, x)

        ends, stacks = gf.scan(step, (x, x + 1, x), length=5)
    text = agree(g, [*ends, *stacks], {x: normal(rng, 3, 3) * 0.3})
    assert "5 iterations" in text


def test_carries_that_are_written_over(fake, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder((4, 4), name="x")
        s = gf.placeholder((4, 4), name="s")

        def step(carry, _):
            total, row = carry
            return (total * 0.5 + gf.sort(row, axis=0), gf.tanh(row @ x)), None

        ends, _ = gf.scan(step, (s, x), length=4)
    feeds = {x: normal(rng, 4, 4), s: normal(rng, 4, 4)}
    agree(g, list(ends), feeds)
    plan = session(g).compile(list(ends), [x, s])
    (one,) = [work for work in plan._run.build.work if hasattr(work.step.code, "builds")]
    assert one.code.in_place == {0, 1}


def test_rows_in_any_order(anywhere, rng):
    with gf.Graph() as g:
        x = gf.placeholder((6, 3, 4), name="x")
        w = gf.placeholder((4, 4), name="w")
        fetches = []
        for xs in (x[1:], x[::-1], x[::2], gf.moveaxis(x, 1, 0), gf.broadcast_to(x[0], (5, 3, 4))):
            start = x[1] if xs.shape[1] == 3 else gf.zeros((6, 4))
            last, rows = gf.scan(lambda c, v: (gf.tanh(c @ w + v), c), start, xs)
            fetches += [last, rows]
    agree(g, fetches, {x: normal(rng, 6, 3, 4), w: normal(rng, 4, 4)}, rtol=1e-4)


def test_what_iterations_have_in_common_is_made_once(fake, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder((1, 2, 5, 5), name="x")
        w = gf.placeholder((2, 2, 3, 3), name="w")
        most = gf.placeholder((), gf.int64, name="most")

        def step(c):
            return gf.tanh(gf.conv(c, w, padding=1))

        last, _ = gf.scan(lambda c, _: (step(c), None), x, length=4)
        _, far = gf.while_loop(lambda c: c[0] < most, lambda c: (c[0] + 1, step(c[1])), (0, x))
    feeds = {x: normal(rng, 1, 2, 5, 5), w: normal(rng, 2, 2, 3, 3) * 0.3, most: np.int64(3)}
    text = agree(g, [last, far], feeds, rtol=1e-4)
    assert text.count("| made once, before the iterations") == 2
    plan = session(g).compile(last, [x, w])
    fake.launches.clear()
    plan(feeds[x], feeds[w])
    counts = [[name for name, *_ in fake.launches].count(n) for n in {n for n, *_ in fake.launches}]
    assert sorted(counts) == [1, 4], "the weights are laid out once"


@pytest.mark.usefixtures("bodies_have_steps")
def test_rows_that_lie_badly(fake, session, rng):
    with gf.Graph() as g:
        xs = gf.placeholder((5, 7), name="xs")
        w = gf.placeholder((7, 4), name="w")
        last, rows = gf.scan(
            lambda c, x: (gf.tanh(c + x @ w), gf.concat([x[:4] * c, x[4:]])), gf.ones((4,)), xs
        )
    feeds = {xs: normal(rng, 5, 7), w: normal(rng, 7, 4)}
    gpu = session(g)
    found = gpu.run([last, rows], feeds, host=True)
    with gf.Session(g) as cpu:
        for a, b in zip(cpu.run([last, rows], feeds), found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5)
    for name, *_, numbers, _ in fake.launches:
        if name.endswith("_vector"):
            addresses = [number for number in numbers if number > 1 << 32]
            assert not any(address % WELL for address in addresses), name
    copies = [nbytes for kind, nbytes in fake.copied if kind == 3]
    assert copies.count(7 * 4) == 2 * 5, "a product and a join want rows that lie well"


def test_loops_in_loops(anywhere, rng):
    with gf.Graph() as g:
        xs = gf.placeholder(("n", "m", 3), name="xs")
        w = gf.placeholder((3, 3), name="w")

        def inner(c, x):
            return gf.tanh(c @ w + x), gf.sum(c)

        def outer(c, rows):
            c, sums = gf.scan(inner, c, rows)
            return c, (c, gf.sum(sums))

        last, (rows, sums) = gf.scan(outer, gf.zeros((3,)), xs)
        fetches = [last, rows, sums, *gf.grad(gf.sum(rows * rows) + gf.sum(sums), [xs, w])]
    text = agree(g, fetches, {xs: normal(rng, 3, 4, 3), w: normal(rng, 3, 3)}, rtol=1e-4)
    assert "by Python" not in text


def test_whatever_becomes_a_loop(anywhere, rng):
    with gf.Graph() as g:
        xs = gf.placeholder(("n", 3, 3), name="xs")
        w = gf.placeholder((3, 3), name="w")
        first = gf.fori_loop(0, 4, lambda i, c: gf.tanh(c @ w) * gf.astype(i + 1, gf.float32), w)
        each = gf.map(lambda x: gf.sort(x @ w, axis=0), xs)
        prefixes = gf.associative_scan(lambda a, b: gf.matmul(a, b), xs)
        inverse = gf.scan(lambda c, x: (gf.linalg.inv(c + x), c), w, xs)[1]
        slopes = gf.grad(gf.sum(first) + gf.sum(prefixes * prefixes), [xs, w])
    feeds = {xs: 0.3 * normal(rng, 4, 3, 3), w: 0.3 * normal(rng, 3, 3)}
    feeds[xs] += 2 * np.eye(3, dtype=np.float32)
    text = agree(g, [first, each, prefixes, inverse, *slopes], feeds, rtol=2e-3)
    assert "by Python, since in a body, CuPy computes" in text


def test_branches(anywhere, rng):
    with gf.Graph() as g:
        x = gf.placeholder((4, 4), name="x")
        number = gf.placeholder((), gf.int32, name="number")
        y = gf.switch(number, [lambda: x @ x, lambda: gf.sort(x, axis=0), lambda: x])
        slope = gf.grad(gf.sum(y * y), x)
    for value in (-3, 0, 1, 2, 9):
        text = agree(g, [y, slope], {x: normal(rng, 4, 4), number: np.int32(value)}, runs=2)
    assert "branch: one of 3 bodies, by Python, since Python reads which body" in text


def test_branches_in_loops(anywhere, rng):
    with gf.Graph() as g:
        xs = gf.placeholder(("n", 3, 3), name="xs")

        def step(c, x):
            big = gf.sum(x) > 0
            new = gf.cond(big, lambda: gf.tanh(c @ x), lambda: c - gf.linalg.inv(x))
            return new, gf.sum(new)

        last, sums = gf.scan(step, gf.ones((3, 3)), xs)
        slope = gf.grad(gf.sum(sums), xs)
    data = 0.3 * normal(rng, 5, 3, 3) + 2 * np.eye(3, dtype=np.float32)
    data[::2] *= -1
    text = agree(g, [last, sums, slope], {xs: data}, rtol=2e-3)
    assert "5 iterations" in text
    assert "by Python, since in a body, branch: Python reads" in text


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("limit", [-1.0, 0.5, 3.0])
def test_loops_with_a_condition(anywhere, rng, limit):
    with gf.Graph() as g:
        x = gf.placeholder((3, 3), name="x")
        most = gf.placeholder((), name="most")

        def more(carry):
            total, _ = carry
            return total < most

        def step(carry):
            total, y = carry
            y = gf.tanh(y @ x) + 0.1
            return total + gf.sum(y * y), y

        total, y = gf.while_loop(more, step, (gf.asarray(0.0), x))
        slope = gf.grad(total + gf.sum(y), x)
        second = gf.grad(gf.sum(slope * slope), x)
    feeds = {x: 0.5 * normal(rng, 3, 3), most: np.float32(limit)}
    text = agree(g, [total, y, slope, second], feeds, rtol=2e-3)
    assert "Python reads its condition before each iteration" in text


def test_loops_with_a_condition_are_one_launch(fake, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        y = gf.while_loop(lambda c: c < 100, lambda c: c * 1.1 + 1, x)
    gpu = session(g)
    feed = {x: np.float32(0)}
    with gf.Session(g) as cpu:
        np.testing.assert_allclose(gpu.run(y, feed, host=True), cpu.run(y, feed), rtol=1e-6)
    home = [kind for kind, nbytes in fake.copied if (kind, nbytes) == (2, 1)]
    assert not home, "nobody reads the condition"


@pytest.mark.parametrize("length", [0, 1, 9])
def test_elements_of_carries_in_memory(anywhere, rng, length):
    with gf.Graph() as g:
        x = gf.placeholder((20,), name="x")
        rows = gf.placeholder((20, 6), name="rows")
        counts = gf.placeholder((5,), gf.int64, name="counts")
        y = gf.fori_loop(0, length, lambda i, c: c.at[i + 2].set(c[i + 1] * 0.5 - c[0] + c[i]), x)
        z = gf.fori_loop(0, length, lambda i, c: c.at[-1 - i].add(c[i] * 0.5), rows)
        n = gf.fori_loop(0, length, lambda i, c: c.at[(i * i) % 5].add(c[3]), counts)
    feeds = {x: normal(rng, 20), rows: normal(rng, 20, 6), counts: np.arange(5)}
    assert agree(g, [y, z, n], feeds).count("its iterations are one kernel") == 3


def test_random_numbers_are_those_of_the_cpu(anywhere, rng):
    with gf.Graph() as g:
        x = gf.placeholder((4, 4), name="x")

        def inner(c, _):
            return c, gf.random.uniform((3,))

        def step(c, _):
            c = gf.tanh(c @ x) * gf.random.bernoulli(0.5, (4, 4))
            _, draws = gf.scan(inner, gf.zeros(()), length=2)
            return c, (gf.random.normal((2,)), draws)

        last, stacks = gf.scan(step, x, length=3)

        def iteration(carry):
            n, c = carry
            return n + 1, c @ x + gf.random.uniform((4, 4))

        n, walked = gf.while_loop(lambda c: c[0] < 3, iteration, (gf.asarray(0), x))
        chosen = gf.cond(n > 2, lambda: gf.sort(gf.random.uniform((7,))), lambda: gf.zeros((7,)))
    text = agree(g, [last, *stacks, walked, chosen], {x: normal(rng, 4, 4)})
    assert "may be part of a CUDA graph" in text


def test_training_in_a_loop(anywhere, rng):
    with gf.Graph() as g:
        batches = gf.placeholder(("steps", 6, 3), name="batches")
        w = gf.Variable(normal(rng, 3, 3), name="w")
        optimizer = gf.optim.Adam(0.05)

        def step(_, x):
            loss = gf.mean((gf.tanh(x @ w) - x) ** 2)
            return (), (loss, optimizer.minimize(loss))[0]

        _, losses = gf.scan(step, (), batches)
        fetches = [losses, *g.updates]
    agree(g, fetches, {batches: normal(rng, 4, 6, 3)}, rtol=1e-4)


def test_what_fails_in_a_body_names_its_line(anywhere, monkeypatch, rng):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" meets the failure itself
    with gf.Graph() as g:
        numbers = gf.placeholder((4,), gf.int64, name="numbers")
        table = gf.placeholder((5, 3), name="table")

        def step(c, n):
            row = gf.take(table, n, axis=0)  # this line
            return gf.tanh(c @ (row[:, None] * row)), row

        last, rows = gf.scan(step, gf.ones((3,)), numbers)
        n, _ = gf.while_loop(
            lambda c: c[0] < 3,
            lambda c: (c[0] + 1 + 0 * gf.take(numbers, c[0] + 9), gf.sort(c[1])),
            (gf.asarray(0, dtype=gf.int64), gf.ones((3,))),
        )
    with gf.Session(g, "cupy") as session:
        feeds = {numbers: np.array([0, 1, 7, 2]), table: normal(rng, 5, 3)}
        with pytest.raises(ExecutionError, match="index 7 is out of range") as caught:
            session.run([last, rows], feeds, host=True)
        assert "iteration 2 of the scan" in str(caught.value)
        assert "this line" in str(caught.value)
        with pytest.raises(ExecutionError, match="out of range"):
            session.run(n, feeds)


def test_a_loop_can_be_interrupted(fake, session, rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        most = gf.placeholder((), name="most")
        y = gf.while_loop(lambda c: gf.sum(c) < most, lambda c: gf.sort(c) + 1, x)
    plan = session(g).compile(y, [x, most])
    data = np.zeros(3, np.float32)
    np.testing.assert_array_equal(plain_array(plan(data, np.float32(8))), [3, 3, 3])
    asked, numbers = itertools.count(1), Staging.numbers

    def interrupted(self, addresses, stream):
        if next(asked) == 5:  # here, not at any moment: callbacks from C would lose it
            signal.raise_signal(signal.SIGINT)
        return numbers(self, addresses, stream)

    monkeypatch.setattr(Staging, "numbers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plan(data, np.float32(np.inf))
    np.testing.assert_array_equal(plain_array(plan(data, np.float32(8))), [3, 3, 3])


def test_a_check_in_a_body(anywhere, rng):
    with gf.Graph() as g:
        x = gf.placeholder((4, 3), name="x")

        def step(c, row):
            gf.check(gf.all(row < 2), "a row is too large")
            return c @ gf.outer(row, row), None

        last, _ = gf.scan(step, gf.ones((3,)), x)
    rows = np.ones((4, 3), np.float32)
    with gf.Session(g, "cupy") as session:
        session.run(last, {x: rows})
        rows[2] = 5
        with pytest.raises(
            ExecutionError, match=r"a row is too large(.|\n)*iteration 2 of the scan"
        ):
            session.run(last, {x: rows})


@pytest.mark.usefixtures("bodies_have_steps")
def test_reports(fake, session, rng):
    g, inputs, fetches = recurrent()
    plan = session(g).compile(fetches, inputs)
    feeds = [normal(rng, 6, 2, 4), normal(rng, 2, 4), normal(rng, 4, 4)]
    plan(*feeds)
    text = plan.explain()
    assert "its bodies are compiled" in text
    assert plan.source().count("__global__") >= 4
    memory = plan.memory((6, 2, 4), (2, 4), (4, 4))
    assert any(entry.name == "inside of loops and branches" for entry in memory.entries)
    profile = plan.profile(*feeds)
    assert "scan" in str(profile)
    inside = [timing for timing in profile.timings if timing.label.startswith("in a body: ")]
    names = {timing.label.removeprefix("in a body: ") for timing in inside}
    assert {"fused_product", "matmul"} <= names, "a product forwards, with what is added, and back"
    assert all("test_regions.py" in timing.location for timing in inside)
    assert all([event.step for event in profile.events].count(t.step) == 6 for t in inside)


def test_memory_of_iterations_whose_number_nobody_knows(fake, session, rng):
    with gf.Graph() as g:
        n = gf.placeholder((), gf.int64, name="n")
        x = gf.placeholder((3, 20), name="x")
        w = gf.Variable(normal(rng, 20, 20), name="w")

        def body(carry):
            i, y = carry
            return i + 1, gf.tanh(y @ w)

        _, y = gf.while_loop(lambda carry: carry[0] < n, body, (gf.asarray(0), x))
        fetches = gf.grad(gf.sum(y * y), [w, x])
    plan = session(g).compile(fetches, feeds=[n, x])
    asked, first = {}, normal(rng, 3, 20)
    for iterations in (2, 2, 3, 10):  # the first run takes what it keeps
        fake.allocated.clear()
        plan(np.int64(iterations), first)
        asked[iterations] = sum(fake.allocated)
    report = plan.memory((), (3, 20))
    (loop,) = report.per_iteration
    assert asked[3] - asked[2] == loop.nbytes
    assert asked[10] - asked[3] == 7 * loop.nbytes
    assert "test_regions.py" in loop.location
    assert f"for each iteration of the loop made at {loop.location}" in str(report)
    outside = sum([entry.nbytes for entry in report.entries if entry.kind == "outside"])
    assert outside >= 2 * w.type.nbytes, "what the pass back carries, in two places in turn"


def test_what_is_fetched_of_loops_belongs_to_the_caller(fake, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder((4, 2, 4), name="x")
        w = gf.placeholder((4, 4), name="w")
        last, rows = gf.scan(lambda c, v: (gf.tanh(c @ w + v),) * 2, gf.zeros((2, 4)), x)
        fetches = [last, rows, rows[1]]
    gpu = session(g)
    kept = []
    with gf.Session(g) as cpu:
        for _ in range(RUNS + 3):
            feeds = {x: normal(rng, 4, 2, 4), w: normal(rng, 4, 4)}
            kept.append((gpu.run(fetches, feeds), cpu.run(fetches, feeds)))
    for found, wanted in kept:
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(plain_array(a), b, rtol=1e-5, atol=1e-6)
        for a in found:
            a[...] = 0


@pytest.mark.parametrize("kind", ["while", "branch", "product"])
def test_a_body_is_not_run_at_sizes_that_it_does_not_rely_on(fake, session, kind):
    with gf.Graph() as graph:
        x, y = gf.placeholder((), name="x"), gf.placeholder(("m",), name="y")

        def inside():
            promised = gf.assert_shape(y, (3,))
            return gf.sum(promised @ gf.ones((3, 2)) if kind == "product" else gf.exp(promised))

        if kind == "branch":
            made = gf.cond(x > 0, inside, lambda: gf.asarray(-1.0))
        else:
            made = gf.while_loop(lambda c: c < x, lambda c: c + inside(), 0.0)
    used = session(graph)
    used.run(made, {x: 1.0, y: np.ones(3, np.float32)})
    with pytest.raises(gf.ExecutionError, match=r"assert_shape: the shape is \[1\], not \[3\]"):
        used.run(made, {x: 1.0, y: np.ones(1, np.float32)})
    used.run(made, {x: -1.0, y: np.zeros(1, np.float32)})  # nothing relies on it
