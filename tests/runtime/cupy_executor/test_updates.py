"""Variables on a GPU are written over, by one CUDA graph, under the same rules as on the CPU."""

import gc

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor import capture, streams
from tests.strict_xp import plain_array
from tests.support.gpu_programs import on_cpu, trained


def test_training_writes_over_the_variables(fake, session, rng):
    g, words, loss, train = trained()
    feeds = [{words: rng.integers(0, 11, (5, 7))} for _ in range(7)]
    wanted, state = on_cpu(g, [loss, train], feeds)
    gpu = session(g)
    gpu.state_dict()
    arrays = {v: gpu._state.snapshot.values[v] for v in g.variables}
    found = [gpu.run([loss, train], feed)[0] for feed in feeds]
    for ones, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(plain_array(other), ones[0], rtol=1e-4)
    for variable, array in gpu._state.snapshot.values.items():
        assert array is arrays[variable], f"{variable.name} has moved"
    for name, array in gpu.state_dict().items():
        np.testing.assert_allclose(array, state[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("turn", range(3))
def test_new_contents_are_written_at_the_very_end(session, rng, turn):
    g, x, fetches = moved_about(rng)
    build = session(g).compile(fetches, [x])._run.build
    new = set(build.updated)
    for number, one in enumerate(build.work):
        writes = not isinstance(one, Node) and not new.isdisjoint(one.step.operands)
        assert writes == (number >= build.final)
    assert build.final < len(build.work)


def moved_about(rng):
    """A graph whose variables take each other's contents in random ways, each run anew."""
    with gf.Graph() as g:
        x = gf.placeholder((4, 4), name="x")
        variables = [
            gf.Variable(rng.normal(size=(4, 4)).astype(np.float32), name=f"v{k}") for k in range(5)
        ]
        values = [x, *variables]

        def pick():
            return values[rng.integers(len(values))]

        for _ in range(rng.integers(3, 9)):
            kind = rng.integers(5)
            if kind == 0:
                values.append(gf.tanh(pick()) + pick())
            elif kind == 1:
                values.append(pick() - gf.mean(pick(), axis=int(rng.integers(2)), keepdims=True))
            elif kind == 2:
                values.append(pick().T * 0.5)
            elif kind == 3:
                values.append(gf.where(pick() > 0, pick(), pick()))
            else:
                values.append(gf.sort(pick(), axis=1))
        updated = [v for v in variables if rng.random() < 0.8] or variables
        updates = [gf.update(v, gf.identity(pick())) for v in updated]
        fetches = [pick(), pick(), *updates, *[v for v in variables if rng.random() < 0.3]]
    return g, x, fetches


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("turn", range(6))
def test_variables_that_take_each_others_contents(fake, session, rng, turn):
    g, x, fetches = moved_about(rng)
    feeds = [{x: rng.normal(size=(4, 4)).astype(np.float32)} for _ in range(6)]
    wanted, state = on_cpu(g, fetches, feeds)
    gpu = session(g)
    found = [gpu.run(fetches, feed) for feed in feeds]
    for ones, others in zip(wanted, found, strict=True):
        for one, other in zip(ones, others, strict=True):
            if one is not None:
                np.testing.assert_allclose(plain_array(other), one, rtol=1e-4, atol=1e-5)
    for name, array in gpu.state_dict().items():
        np.testing.assert_allclose(array, state[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_updates_go_on_side_by_side(fake, session, rng):
    g, words, loss, train = trained()
    session(g).run(train, {words: rng.integers(0, 11, (5, 7))})
    (final,) = fake.streams.graphs
    assert len(final.work) > 2
    assert sum(not before for before in final.after) > 1


def test_kernels_have_been_launched_before_they_are_recorded(fake, session, rng, monkeypatch):
    g, words, loss, train = trained()
    gpu = session(g)
    capturing = gpu.executor._capturing
    record, before = capturing.record, gpu.state_dict()
    launched = []

    def recorded(*given):
        launched.append([name for name, *_ in fake.launches])
        if len(launched) == 1:  # nothing but the rehearsal has happened
            for variable in g.variables:
                np.testing.assert_array_equal(gpu[variable], before[variable.name])
        return record(*given)

    monkeypatch.setattr(capturing, "record", recorded)
    feed = {words: rng.integers(0, 11, (5, 7))}
    for _ in range(4):
        gpu.run([loss, train], feed)
    assert len(launched) == len(fake.streams.graphs) == 2
    for names, graph in zip(launched, fake.streams.graphs, strict=True):
        fake.launches.clear()
        graph.launch(fake.streams.null)
        assert {name for name, *_ in fake.launches} <= {*names}


def test_who_can_do_nothing_writes_over_no_variable(fake, session, rng):
    """A product that is a variable's new contents is copied there by a kernel, which can."""
    with gf.Graph() as g:
        x = gf.placeholder((4, 4), name="x")
        v = gf.Variable(np.eye(4, dtype=np.float32), name="v")
        w = gf.Variable(np.eye(4, dtype=np.float32), name="w")
        steps = [gf.update(v, x @ w), gf.update(w, gf.sort(x, axis=0))]
    gpu = session(g)
    array = rng.normal(size=(4, 4)).astype(np.float32)
    build = gpu.compile(steps, [x])._run.build
    final = build.work[build.final :]
    assert len(final) == 2
    assert all(one.code.is_guarded for one in final)
    early = [one for one in build.work[: build.final] if not isinstance(one, Node)]
    assert not any(getattr(one.code, "is_guarded", False) for one in early)
    gpu.run(steps, {x: array})
    np.testing.assert_allclose(gpu["v"], array, rtol=1e-6)
    np.testing.assert_array_equal(gpu["w"], np.sort(array, axis=0))


def test_a_check_that_fails_changes_nothing(fake, session, rng):
    g, words, loss, train = trained()
    gpu = session(g)
    good = {words: rng.integers(0, 11, (2, 3))}
    bad = {words: np.array([[0, 1, 2], [3, 11, 4]])}
    for _ in range(5):
        gpu.run([loss, train], good)
        before = gpu.state_dict()
        with pytest.raises(ExecutionError, match="index 11 is out of range"):
            gpu.run([loss, train], bad)
            gpu.wait()
        after = gpu.state_dict()
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value, err_msg=name)


def test_streams_wait_for_those_that_write_variables(fake, session, rng):
    fake.streams.is_done = False
    g, words, loss, train = trained(dropout=0.0)
    gpu = session(g)
    feed = {words: rng.integers(0, 11, (5, 7))}
    one, other = fake.cuda.Stream(), fake.cuda.Stream()
    with one:
        gpu.run(train, feed)
    fake.streams.waits.clear()
    with one:
        gpu.run(loss, feed)
    assert not fake.streams.waits, "on one stream things happen in order"
    with other:
        gpu.run(loss, feed)
    assert fake.streams.waits == [(other.ptr, one.ptr)]
    with one:
        gpu.run(train, feed)
    assert fake.streams.waits[1:] == [(one.ptr, other.ptr)], "before it writes over what was read"
    with other:
        gpu.run(loss, feed)
    with fake.cuda.Stream() as third:
        gpu["scale"] = np.zeros(8, np.float32)
        gpu.run(train, feed)
    assert fake.streams.waits[2:] == [
        (other.ptr, one.ptr),  # which wrote
        (third.ptr, one.ptr),  # the same, though it writes other arrays at first
        (third.ptr, other.ptr),  # which read, before it writes over that
    ]
    known = gpu.executor._gpu.streams._events
    assert len(known) == 3
    fake.streams.is_done = True
    for _ in range(5):
        with fake.cuda.Stream():
            gpu.run(loss, feed)
    assert len(known) == 1


@pytest.mark.parametrize("gone", ["replaced", "updated", "closed", "constant"])
def test_memory_is_not_handed_out_while_another_stream_reads_it(fake, gone):
    numbers = np.arange(1 << 16, dtype=np.float32)
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        v = gf.Variable(numbers, name="v")
        read = x * (gf.asarray(numbers) if gone == "constant" else v)
        step = gf.update(v, v * 2)
    for _ in range(3):  # streams take turns by chance
        one, other = [fake.cuda.Stream(non_blocking=True) for _ in range(2)]
        session = gf.Session(g, "cupy", check_finite=gone == "updated")  # then not in place
        with one:  # where memory is asked for
            plan = session.compile(read, [x])
            first = plan(np.float32(1))
        with other:
            found = plan(np.float32(3))
        with one:
            if gone == "replaced":
                session["v"] = numbers * 0
            elif gone == "updated":
                session.run(step)
            else:
                session.close()
                del session, plan
            gc.collect()
            others = [fake.full(numbers.shape, np.float32(7)) for _ in range(3)]
        for stream in (one, other):
            stream.synchronize()
        np.testing.assert_array_equal(gf.to_numpy(found), 3 * numbers)
        np.testing.assert_array_equal(gf.to_numpy(first), numbers)
        assert all([(gf.to_numpy(array) == 7).all() for array in others])


def test_memory_that_stays_is_given_back_where_it_is_short(fake, session):
    g, words, loss, train = trained(dropout=0.0)
    feed = {words: np.zeros((5, 7), np.int64)}
    gpu, empty, refused = session(g), fake.empty, []

    def short(shape, dtype=float):
        if streams._LEFT:
            refused.append(shape)
            raise fake.cuda.memory.OutOfMemoryError("Out of memory")
        return empty(shape, dtype)

    for stream in (fake.cuda.Stream(), fake.cuda.Stream()):
        with stream:
            gpu.run(loss, feed)
    fake.streams.is_done = False
    gpu["scale"] = np.zeros(8, np.float32)
    gc.collect()
    assert streams._LEFT
    gpu.run(loss, feed)
    assert streams._LEFT, "nobody knows yet that it is done"
    fake.empty = short
    gpu.run(loss, feed)
    assert refused
    assert not streams._LEFT


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_comes_before_an_update_or_behind_it(fake, session, rng, moment):
    g, words, loss, train = trained()
    gpu = session(g)
    feed = {words: rng.integers(0, 11, (5, 7))}
    for _ in range(4):
        gpu.run(train, feed)
    before = gpu.state_dict()
    final = fake.streams.graphs[0]
    assert final.launches == 4
    launch, commit = final.launch, gpu._state.commit

    def interrupted(*_, **__):
        final.launch, gpu._state.commit = launch, commit
        raise KeyboardInterrupt

    if moment == "before":
        final.launch = interrupted
    else:
        gpu._state.commit = interrupted
    with pytest.raises(KeyboardInterrupt):
        gpu.run(train, feed)
    after = gpu.state_dict()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == (set() if moment == "before" else set(before) - {"session/seed"})


def test_variables_that_lie_elsewhere_are_recorded_again(fake, session, rng):
    g, words, loss, train = trained(dropout=0.0)
    gpu = session(g)
    feed = {words: rng.integers(0, 11, (5, 7))}
    plan = gpu.compile([loss, train], [words])
    for turn in range(4):
        values = rng.normal(size=(11, 8)).astype(np.float32)
        gpu["table"] = values
        with gf.Session(g, seed=3) as cpu:
            cpu.load_state_dict(gpu.state_dict())
            for _ in range(3):
                wanted, _ = cpu.run([loss, train], feed)
                found, _ = plan(feed[words])
                np.testing.assert_allclose(plain_array(found), wanted, rtol=1e-4, err_msg=str(turn))
    assert "CUDA graphs: 1, which save" in plan.explain((5, 7))


def test_new_contents_that_are_looked_at_first_are_arrays_of_their_own(fake, session, rng):
    g, words, loss, train = trained()
    feeds = [{words: rng.integers(0, 11, (5, 7))} for _ in range(4)]
    wanted, _ = on_cpu(g, [loss, train], feeds)
    gpu = session(g, check_finite=True)
    plan = gpu.compile([loss, train], [words])
    for ones, feed in zip(wanted, feeds, strict=True):
        np.testing.assert_allclose(plain_array(plan(feed[words])[0]), ones[0], rtol=1e-4)
    assert not fake.streams.graphs
    assert "no CUDA graphs: variables can't be written over" in plan.explain((5, 7))


def test_who_reads_the_variables_keeps_them(fake, session, rng):
    g, words, loss, train = trained()
    gpu = session(g)
    feed = {words: rng.integers(0, 11, (5, 7))}
    for _ in range(4):
        gpu.run(train, feed)
    table = next(v for v in g.variables if v.name == "table")
    with gpu._state.pinned() as snapshot:
        held = snapshot.values[table]
        before = plain_array(held).copy()
        gpu.run(train, feed)
        np.testing.assert_array_equal(plain_array(held), before)
        assert not np.array_equal(gpu["table"], before)
    for _ in range(2):
        gpu.run(train, feed)


def test_graphs_that_are_of_no_use_are_given_up(fake, session, rng):
    g, words, loss, train = trained()
    gpu = session(g)
    plan = gpu.compile(train, [words])
    for _ in range(3 * capture.USELESS):
        gpu["scale"] = np.ones(8, np.float32)
        plan(rng.integers(0, 11, (5, 7)))
    assert len(fake.streams.graphs) < 2.5 * capture.USELESS
    text = "no CUDA graphs: what one run records, the next one could not use"
    assert text in plan.explain((5, 7))


def test_memory_is_that_of_one_set_of_variables(fake, session, monkeypatch):
    g, words, loss, train = trained()
    plan = session(g).compile([loss, train], [words])
    updated = sum(v.type.nbytes for v in plan.program.updated)
    over = plan.memory((5, 7))
    assert over.of("output") == 4
    assert over.spare == updated
    monkeypatch.setenv("GRAPHFW_CUDA_GRAPHS", "0")
    anew = plan.memory((5, 7))
    assert anew.of("output") == 4 + updated
    assert (anew.spare, anew.peak) == (0, over.peak + updated)


def test_arrays_are_not_kept_beyond_their_time(fake, session, rng):
    g, words, loss, train = trained()
    gpu = session(g)
    feed = {words: rng.integers(0, 11, (5, 7))}
    for _ in range(4):
        gpu.run([loss, train], feed)
    gpu.load_state_dict(gpu.state_dict())
    gc.collect()
    kept = sum(nbytes for *_, nbytes, there in fake._memory if there() is not None)
    variables = sum(v.type.nbytes for v in g.variables)
    (space,) = gpu.executor._capturing._workspaces.values()
    assert kept < 1.5 * variables + space.memory.nbytes + 4096
    del space
    gpu.close()
    gc.collect()
    assert not any(there() is not None for *_, there in fake._memory)
