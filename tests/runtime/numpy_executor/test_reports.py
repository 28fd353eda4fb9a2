"""Reports of compiled plans agree with what happens."""

import itertools
import json
import re
import tracemalloc

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ExecutorError
from graphfw.ir.op import Rng
from graphfw.runtime.memory import MemoryEntry, report
from graphfw.runtime.numpy_executor import buffer_pool
from graphfw.runtime.numpy_executor.compiled import CompiledExecutable
from graphfw.runtime.numpy_executor.execution import Execution, ReadyRun
from graphfw.runtime.numpy_executor.memory_limited import MemoryLimitedExecutable
from graphfw.runtime.profile import Event, Label, profile

WIDTH = 48


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture
def net():
    """A training step with a node outside of native code, and more levels than a few."""
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 16), name="x")
        y = gf.placeholder(("batch",), gf.int64, name="y")
        model = gf.nn.Sequential(
            gf.nn.Linear(16, WIDTH), gf.nn.LayerNorm(WIDTH), gf.nn.GELU(), gf.nn.Linear(WIDTH, 4)
        )
        logits = model(x)
        ordered = gf.sort(logits, axis=0) * 2  # of a symbolic size
        loss = gf.nn.cross_entropy(logits, y)
        train = gf.optim.Adam(1e-2).minimize(loss)
    return g, x, y, loss, ordered, train


def fed(rng, n):
    return rng.standard_normal((n, 16), dtype=np.float32), rng.integers(0, 4, n)


def plan_of(session, net):
    g, x, y, loss, ordered, train = net
    plan = session.compile([loss, ordered, train], [x, y])
    assert isinstance(plan._run, (CompiledExecutable, MemoryLimitedExecutable))
    return plan


def stepped(plan, session, arrays, poison):
    """Run level by level; with `poison`, fill between levels all of the arena that is dead."""
    run = plan._run
    build = run.build
    fed_, sizes = plan._fed(arrays)
    contents = session._state.snapshot.values
    inputs = [*fed_, *[contents[v] for v in plan.program.variables]]
    layout = run.layout(sizes)
    ready = ReadyRun(run.loaded, layout, 2)
    arena = buffer_pool.Arenas().take(ready.nbytes)
    if poison:
        arena.array[:] = 0xFF  # NaN, in all floats
    run.preparation.provide(ready, inputs, session._state.snapshot.version)
    execution = Execution(run.loaded, layout, ready, arena, inputs, build)
    for number, _ in enumerate(execution.levels(Rng(0, 0))):
        if not poison:
            continue
        alive = np.zeros(arena.array.nbytes, bool)
        for storage, block in build.block_of.items():
            first, last = build.lifetimes[storage]
            if first <= number < last:
                alive[layout.offsets[block] :][: layout.nbytes[block]] = True
        arena.array[~alive] = 0xFF
    return execution.outputs()


@pytest.mark.parametrize("batch", [1, 7, 300])
def test_memory_that_is_dead_may_hold_anything(net, rng, batch):
    with gf.Session(net[0]) as session:
        plan = plan_of(session, net)
        arrays = fed(rng, batch)
        calm, poisoned = [stepped(plan, session, arrays, poison) for poison in (False, True)]
        assert len(calm) > 8
        for a, b in zip(calm, poisoned, strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.isfinite(a).all()
        direct = plan(*arrays)
        np.testing.assert_array_equal(direct[0], calm[0])
        for variable, value in zip(plan.program.updated, calm[2:], strict=True):
            np.testing.assert_array_equal(session[variable], value)


def test_live_blocks_are_inside_the_arena_and_apart(net):
    with gf.Session(net[0]) as session:
        plan = plan_of(session, net)
        build = plan._run.build
        for batch in (64, 1, 1000):
            layout = plan._run.layout((batch,))
            live = {}
            for storage, block in build.block_of.items():
                live.setdefault(block, []).append(build.lifetimes[storage])
            spans = {
                block: (min(one.first for one in own), max(one.last for one in own))
                for block, own in live.items()
            }
            for a, b in itertools.combinations(spans, 2):
                if spans[a][0] <= spans[b][1] and spans[b][0] <= spans[a][1]:
                    low, high = sorted((a, b), key=layout.offsets.__getitem__)
                    assert layout.offsets[low] + layout.nbytes[low] <= layout.offsets[high]
            assert all(layout.offsets[b] + layout.nbytes[b] <= layout.arena for b in spans)


# Memory.


@pytest.mark.parametrize("batch", [64, 2000])
def test_the_peak_is_what_a_run_allocates(net, rng, batch):
    with gf.Session(net[0], threads=1) as session:
        plan = plan_of(session, net)
        arrays = fed(rng, batch)
        found = plan.memory(*[a.shape for a in arrays])
        variables = sum(a.nbytes for a in session._state.snapshot.values.values())
        assert found.of("variable") == variables
        plan._run.layout((batch,))
        tracemalloc.start()
        try:
            outputs = plan(*arrays)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert found.of("output") == sum(a.nbytes for a in outputs[:2])
        (arena,) = session.executor._arenas._free
        assert arena.array.nbytes == found.arena + found.of("scratch")
        predicted = found.peak - variables - found.of("constant")
        # Tables and the aligning of arrays come on top.
        assert predicted <= most + 1024
        assert most <= predicted + 64_000


def test_a_second_run_allocates_its_outputs_alone(net, rng):
    with gf.Session(net[0], threads=1) as session:
        plan = plan_of(session, net)
        arrays = fed(rng, 2000)
        plan(*arrays)
        plan(*arrays)
        tracemalloc.start()
        try:
            kept = plan(*arrays)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        del kept
        assert most < 80_000  # the outputs are 32,000 bytes, Python's own objects as many


def test_what_comes_on_top_when_variables_are_read(net, rng):
    with gf.Session(net[0]) as session:
        plan = plan_of(session, net)
        found = plan.memory((10, 16), (10,))
        updated = sum(session[v].nbytes for v in plan.program.updated)
        assert found.spare == updated > 0
        assert found.peak > found.arena > 0


def test_the_timeline_never_exceeds_the_peak(net):
    with gf.Session(net[0]) as session:
        plan = plan_of(session, net)
        found = plan.memory((200, 16), (200,))
        line = found.timeline()
        assert len(line) == found.levels == len(plan._run.build.levels)
        assert max(line) <= found.peak
        assert min(line) >= found.of("variable", "constant", "prepared")
        text = str(found)
        assert text.startswith("peak ")
        assert "test_reports.py" in text
        sizes = [entry.nbytes for entry in found.entries]
        assert sizes == sorted(sizes, reverse=True)


def test_a_report_of_entries():
    entries = [
        MemoryEntry("w", "variable", 100, 0, 2, ""),
        MemoryEntry("a", "arena", 2048, 0, 1, "m.py:1"),
        MemoryEntry("b", "arena", 10, 1, 2, "m.py:2"),
        MemoryEntry("y", "output", 7, 2, 2, "m.py:3"),
    ]
    found = report(entries, 3, 2112, 100)
    assert found.peak == 100 + 7 + 2112
    assert found.timeline() == [2148, 2158, 117]
    assert found.of("arena") == 2058
    assert [e.name for e in found.entries] == ["a", "w", "b", "y"]
    lines = str(found).splitlines()
    assert lines[0] == "peak 2.17 KiB, of which the arena is 2.06 KiB"
    assert lines[2].split() == ["2.00", "KiB", "arena", "0-1", "a", "m.py:1"]
    many = report([MemoryEntry("e", "arena", 5, 0, 0, "")] * 50, 1, 64, 0)
    assert "10 smaller ones" in str(many).splitlines()[-1]
    assert report([], 0, 0, 0).timeline() == [0]


@pytest.mark.slow
def test_the_largest_dim_fits_and_one_more_does_not(net, rng):
    with gf.Session(net[0], memory_limit="2MiB", threads=1) as session:
        plan = plan_of(session, net)
        for limit, count in [("2MiB", 2 << 20), (300_000, 300_000), ("1 MB", 10**6)]:
            largest = plan.max_dim("batch", limit)
            peaks = [plan.memory((n, 16), (n,)).peak for n in (largest, largest + 1)]
            assert peaks[0] <= count < peaks[1]
        n = plan.max_dim("batch", "2MiB")
        assert np.isfinite(plan(*fed(rng, n))[0])
        with pytest.raises(MemoryError):
            plan(*fed(rng, n + 1))


def test_dims_that_can_have_no_largest_size(net):
    g, x, y, loss, ordered, train = net
    with g:
        m = gf.placeholder((4, "m"), name="m")
        product = ordered @ m
    with gf.Session(g) as session:
        plan = session.compile(product, [x, m])
        with pytest.raises(ArgumentError, match=r"no dim 'nope'(.|\n)*batch, m"):
            plan.max_dim("nope", "1GiB", batch=1)
        with pytest.raises(ArgumentError, match="needs a limit"):
            plan.max_dim("batch", None, m=1)
        with pytest.raises(ArgumentError, match="the sizes of m are needed"):
            plan.max_dim("batch", "1GiB")
        with pytest.raises(ArgumentError, match=r"needs more than 100(.|\n)*plan.memory"):
            plan.max_dim("batch", 100, m=1)
        with pytest.raises(ArgumentError, match=r"no dim 'Batch'(.|\n)*did you mean \"batch\""):
            plan.max_dim("Batch", "1GiB", m=1)
        with pytest.raises(ArgumentError, match=r'no dim batch(.|\n)*did you mean "batch"'):
            plan.max_dim(x.shape[0], "1GiB", m=1)
        with pytest.raises(ArgumentError, match=r"no dim 'n'(.|\n)*batch, m"):
            plan.max_dim("batch", "1GiB", m=1, n=2)
        with pytest.raises(ArgumentError, match="batch is what is looked for"):
            plan.max_dim("batch", "1GiB", m=1, batch=2)
        for wrong in (-1, 2.5, "3", True):
            with pytest.raises(ArgumentError, match="is no size"):
                plan.max_dim("batch", "1GiB", m=wrong)
        few, many = [plan.max_dim("batch", "1MiB", m=m) for m in (10, 100)]
        assert few > many
        alone = session.compile(gf_sum(g, x), [x])
        assert alone.max_dim("batch", "1MiB") > 0


def gf_sum(g, x):
    with g:
        return gf.sort(x * 2, axis=1)


# Texts and times.


def test_explain_lists_steps_with_their_ops_and_lines(net):
    with gf.Session(net[0]) as session:
        plan = plan_of(session, net)
        known, symbolic = plan.explain((32, 16), (32,)), plan.explain()
    for text in (known, symbolic):
        assert re.search(r"^\d+ native steps? in \d+ levels?$", text, re.MULTILINE)
        assert "1 native steps" not in text
        assert "sort (outside of native code)" in text
        assert "matmul" in text
        assert "(gradient of" in text
        assert "test_reports.py:" in text
        assert not any(line != line.rstrip() for line in text.splitlines())
    assert "µs" in known
    assert "*batch flops" in symbolic
    assert "*batch" not in known


def test_source_shows_each_kernel_once(net):
    with gf.Session(net[0]) as session:
        plan = plan_of(session, net)
        text = plan.source()
        build = plan._run.build
    assert text.count("steps ") >= len({step.code.key for step in build.steps})
    assert "kernel" in text
    assert "for " in text
    assert not any(line != line.rstrip() for line in text.splitlines())
    # What is no loop nest says what it is made from, by name, and its epilogue as a loop nest.
    assert "MatmulCode: A work item: " in text
    assert "\n  kept: " in text
    assert "\n    kernel rows" in text


def test_copies_say_of_what():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        v = gf.Variable(np.ones(3, np.float32), name="v")
        gradient = gf.grad(gf.sum(x), x)
    with gf.Session(g) as session:
        text = session.compile([x, v, gradient], [x]).explain()
        assert "copy of a placeholder" in text
        assert "copy of a variable" in text


def test_a_profile_counts_every_step_and_changes_nothing(net, rng, tmp_path):
    with gf.Session(net[0], threads=2) as session:
        plan = plan_of(session, net)
        arrays = fed(rng, 300)
        before = session.state_dict()
        found = plan.profile(*arrays)
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name])
        build = plan._run.build
        nodes = sum(len(level.nodes) for level in build.levels)
        assert sorted(t.step for t in found.timings) == list(range(len(build.steps) + nodes))
        work_items = sum(plan._run.layout((300,)).work_items)
        assert len(found.events) == work_items + nodes
        assert {event.thread for event in found.events} <= {0, 1}
        for timing in found.timings:
            assert 0 <= timing.begin <= timing.end <= found.seconds
            assert timing.least >= 0
        assert "on the clock" in str(found)
        assert "test_reports.py" in str(found)
        path = tmp_path / "trace.json"
        found.trace(path)
        events = json.loads(path.read_text())["traceEvents"]
        assert len(events) == len(found.events)
        assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)
        assert {"sort (outside of native code)"} <= {event["name"] for event in events}


def test_a_profile_of_events():
    labels = [Label("a", "m.py:1", 0.5), Label("b", "m.py:2", 0.0)]
    events = [Event(1, 0, 5.0, 6.0), Event(0, 1, 5.0, 5.25), Event(0, 0, 6.0, 6.25)]
    found = profile(events, labels)
    assert found.seconds == 1.25
    assert [t.label for t in found.timings] == ["b", "a"]
    assert found.timings[1].seconds == 0.5
    assert (found.timings[1].begin, found.timings[1].end) == (0, 1.25)
    lines = str(found).splitlines()
    assert lines[0] == "1250.000 ms on the clock, 1500.000 ms over all threads"
    assert lines[2].split() == ["1", "1000.0000", "66.7%", "-", "b", "m.py:2"]
    assert profile([], labels).seconds == 0


def test_executors_that_plan_nothing_say_so(net, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    with gf.Session(net[0]) as session:
        plan = session.compile(net[3], [net[1], net[2]])
        for call in (
            plan.source,
            lambda: plan.memory((2, 16), (2,)),
            lambda: plan.max_dim("batch", "1GiB"),
        ):
            with pytest.raises(ExecutorError, match='use executor="numpy"'):
                call()
