"""CUDA graphs, on a stand-in for CuPy that records what is launched and refuses what CUDA does."""

import threading

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError
from graphfw.runtime.cupy_executor import capture
from graphfw.runtime.cupy_executor.bound_steps import BoundKernel, BoundProduct
from graphfw.runtime.cupy_executor.codegen import NOTHING
from tests.strict_xp import plain_array, strict_array
from tests.support.gpu_programs import chain, data, on_cpu, trained

RUNS = capture.RUNS
H2D, D2H, D2D = 1, 2, 3


def test_sizes_that_recur_are_recorded_and_replayed(fake, session, rng):
    g, x, y = chain()
    fetches = [y]
    feeds = [{x: data(rng)} for _ in range(6)]
    wanted, _ = on_cpu(g, fetches, feeds)
    gpu = session(g)
    found, launched = [], []
    for feed in feeds:
        fake.launches.clear()
        found.append(gpu.run(fetches, feed))
        launched.append(len(fake.launches))
    assert len(set(launched)) == 1, "a graph does what the launches did"
    (graph,) = fake.streams.graphs
    assert graph.launches == len(feeds) - RUNS
    assert len(graph.work) == launched[0] > 4
    # All of them, at the end: no run has written to what an earlier one returned.
    for ones, others in zip(wanted, found, strict=True):
        np.testing.assert_allclose(plain_array(others[0]), ones[0], rtol=1e-5, atol=1e-6)


def test_on_whatever_there_is(anywhere, rng):
    g, words, loss, train = trained()
    feeds = [{words: rng.integers(0, 11, (5, 7))} for _ in range(6)]
    wanted, state = on_cpu(g, [loss, train], feeds)
    with gf.Session(g, executor="cupy", seed=3) as gpu:
        plan = gpu.compile([loss, train], [words])
        kept = [plan(feed[words])[0] for feed in feeds]
        found = [gpu.executor.to_host(value) for value in kept]
        np.testing.assert_allclose(found, [ones[0] for ones in wanted], rtol=1e-4)
        text = plan.explain((5, 7))
        for name, array in gpu.state_dict().items():
            np.testing.assert_allclose(array, state[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert "CUDA graphs: 1, which save" in text
    assert "one that writes variables over" in text


def test_what_is_fed_and_drawn_goes_in_one_copy(fake, session, rng):
    with gf.Graph() as g:
        feeds = [gf.placeholder((k, 3), name=f"x{k}") for k in (1, 4, 5)]
        y = gf.random.uniform((3,)) + sum(gf.sum(x, axis=0) for x in feeds)
        for _ in range(4):
            y = gf.exp(y - gf.sum(y))
    values = [rng.normal(size=t.shape).astype(np.float32) for t in feeds]
    feed = dict(zip(feeds, values, strict=True))
    wanted, _ = on_cpu(g, y, [feed] * 5)
    gpu = session(g)
    for run in range(5):
        fake.copied.clear()
        value = gpu.run(y, feed)
        assert [kind for kind, _ in fake.copied].count(H2D) == 1
        assert len(fake.copied) == 1 + (run >= RUNS), "and what is fetched, once there is a graph"
        np.testing.assert_allclose(plain_array(value), wanted[run], rtol=1e-5)


def test_arrays_of_the_gpu_are_copied_where_the_graph_reads(fake, session, rng):
    g, x, y = chain()
    feeds = [{x: strict_array(data(rng))} for _ in range(5)]
    wanted, _ = on_cpu(g, y, [{x: plain_array(feed[x])} for feed in feeds])
    gpu = session(g)
    for run, feed in enumerate(feeds):
        fake.copied.clear()
        before = plain_array(feed[x]).copy()
        value = gpu.run(y, feed)
        np.testing.assert_allclose(plain_array(value), wanted[run], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(plain_array(feed[x]), before)
        assert [kind for kind, _ in fake.copied] == ([] if run < RUNS else [D2D, D2D])


def test_kernels_that_share_scratch_memory_go_one_after_the_other():
    def kernel(**facts):
        return BoundKernel(None, NOTHING._replace(**facts), [], [])

    plain = [kernel() for _ in range(20)]
    sharing = [kernel(scratch=8), kernel(counters=1), BoundProduct(None, [], 4)]
    assert capture._divided(plain[:3]) == [[one] for one in plain[:3]]
    assert capture._divided(sharing[:2]) == [sharing[:2]]
    first, *others = capture._divided([plain[0], sharing[0], *plain[1:], sharing[1], sharing[2]])
    assert first == sharing[:2]
    assert len(others) == 7
    shared_out = {id(one) for some in others for one in some}
    assert shared_out == {*map(id, plain), id(sharing[2])}


def test_what_cupy_computes_lies_between_graphs(fake, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8), name="x")
        y = gf.softmax(gf.tanh(x) - gf.sum(x, axis=0), axis=1)
        ordered = gf.sort(y - gf.sum(y, axis=0), axis=1)
        z = gf.softmax(ordered - gf.sum(ordered, axis=0), axis=1)
        z = gf.exp(z - gf.mean(z, axis=0))
    feeds = [{x: data(rng)} for _ in range(5)]
    wanted, _ = on_cpu(g, [z, ordered], feeds)
    gpu = session(g)
    found = [gpu.run([z, ordered], feed) for feed in feeds]
    for ones, others in zip(wanted, found, strict=True):
        for one, other in zip(ones, others, strict=True):
            np.testing.assert_allclose(plain_array(other), one, rtol=1e-4, atol=1e-6)
    assert [graph.launches for graph in fake.streams.graphs] == [len(feeds) - RUNS] * 2
    plan = gpu.compile([z, ordered], [x])
    for feed in feeds:
        plan(feed[x])
    assert "CUDA graphs: 2, which save" in plan.explain((5, 8))


@pytest.mark.slow  # some seconds
def test_what_does_not_pay_is_launched(fake, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder((4000, 1000), name="x")
        y = gf.softmax(x - gf.sum(x, axis=0), axis=1)
    gpu = session(g)
    plan = gpu.compile(y, [x])
    given = strict_array(np.zeros((4000, 1000), np.float32))
    assert "no CUDA graphs: not worth it: they would save" in plan.explain()
    for _ in range(RUNS + 2):
        plan(given)
    assert not fake.streams.graphs
    assert "not worth it: they would save 2 launches for 30.52 MiB" in plan.explain()


def test_the_environment_switches_graphs_off(fake, session, rng, monkeypatch):
    g, words, loss, train = trained()
    gpu = session(g)
    monkeypatch.setenv("GRAPHFW_CUDA_GRAPHS", "0")
    plan = gpu.compile([loss, train], [words])
    for _ in range(4):
        plan(rng.integers(0, 11, (5, 7)))
    assert not fake.streams.graphs
    assert "no CUDA graphs: GRAPHFW_CUDA_GRAPHS=0" in plan.explain((5, 7))
    monkeypatch.setenv("GRAPHFW_CUDA_GRAPHS", "yes")
    with pytest.raises(ArgumentError, match="is neither 0 nor 1"):
        plan(rng.integers(0, 11, (5, 7)))


def test_what_is_there_decides(fake, session, rng, monkeypatch):
    g, x, y = chain()
    monkeypatch.setattr(fake.cuda.runtime, "driverGetVersion", lambda: 11020)
    plan = session(g).compile(y, [x])
    assert "no CUDA graphs: the driver knows CUDA 11.2, they need 11.4" in plan.explain((5, 8))
    monkeypatch.setattr(fake.cuda, "Stream", type("Stream", (), {}))
    plan = session(g).compile(y, [x])
    for _ in range(4):
        plan(data(rng))
    assert not fake.streams.graphs
    assert "no CUDA graphs: CuPy 14.0 has none" in plan.explain((5, 8))


def test_what_cuda_refuses_to_record_is_launched(fake, session, rng):
    g, words, loss, train = trained()
    feeds = [{words: rng.integers(0, 11, (5, 7))} for _ in range(5)]
    wanted, _ = on_cpu(g, [loss, train], feeds)
    gpu = session(g)
    plan = gpu.compile([loss, train], [words])
    fake.streams.refuses = "cudaErrorStreamCaptureInvalidated"
    found = [plan(feed[words])[0] for feed in feeds]
    for ones, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(plain_array(other), ones[0], rtol=1e-4)
    text = plan.explain((5, 7))
    assert "no CUDA graphs: CUDA does not record it: cudaErrorStreamCaptureInvalidated" in text


def test_graphs_of_sizes_that_do_not_recur_go(fake, session, rng, monkeypatch):
    monkeypatch.setattr(capture, "_INSTANCES", 3)
    g, x, y = chain()
    gpu = session(g)
    for n in (9, 2, 7, 4, 8, 9, 2, 7, 4, 8):
        feed = data(rng, n)
        (wanted,), _ = on_cpu(g, y, [{x: feed}])
        for _ in range(RUNS + 1):
            value = gpu.run(y, {x: feed})
            np.testing.assert_allclose(plain_array(value), wanted, rtol=1e-5, atol=1e-6)
    capturing = gpu.executor._capturing
    assert len(capturing._instances) == 3
    assert len(capturing._workspaces) == 1, "one memory for all"
    assert len(fake.streams.graphs) == 10


def test_each_stream_has_its_own_memory(fake, session, rng):
    g, x, y = chain()
    feeds = [{x: data(rng)} for _ in range(8)]
    wanted, _ = on_cpu(g, y, feeds)
    gpu = session(g)
    streams = [fake.streams.null, fake.cuda.Stream()]
    for number, feed in enumerate(feeds):
        with streams[number % 2]:
            value = gpu.run(y, feed)
        np.testing.assert_allclose(plain_array(value), wanted[number], rtol=1e-5, atol=1e-6)
    first, second = fake.streams.graphs
    assert (first.launches, second.launches) == (3, 3)
    capturing = gpu.executor._capturing
    assert len({space.memory.data.ptr for space in capturing._workspaces.values()}) == 2


def test_threads(fake, session, rng):
    g, x, y = chain()
    feeds = [{x: data(rng)} for _ in range(12)]
    wanted, _ = on_cpu(g, y, feeds)
    gpu = session(g)
    found = [None] * len(feeds)

    def run(numbers):
        for number in numbers:
            found[number] = gpu.run(y, feeds[number])

    threads = [threading.Thread(target=run, args=(range(k, 12, 3),)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(plain_array(other), one, rtol=1e-5, atol=1e-6)


def test_memory_that_is_taken(fake, session, rng):
    g, x, y = chain()
    feeds = [{x: data(rng)} for _ in range(8)]
    wanted, _ = on_cpu(g, y, feeds)
    gpu = session(g)
    found = [gpu.run(y, feed) for feed in feeds[:4]]
    (graph,) = fake.streams.graphs
    (space,) = gpu.executor._capturing._workspaces.values()
    other = object()
    assert space.take(other)
    found += [gpu.run(y, feed) for feed in feeds[4:6]]
    assert graph.launches == 2
    space.give_back(object())
    assert not space.take(object())
    space.give_back(other)
    found += [gpu.run(y, feed) for feed in feeds[6:]]
    assert graph.launches == 4
    for one, value in zip(wanted, found, strict=True):
        np.testing.assert_allclose(plain_array(value), one, rtol=1e-5, atol=1e-6)


def test_memory_of_graphs_is_given_up_for_runs(fake, session, rng, monkeypatch):
    g, x, y = chain()
    gpu = session(g)
    for _ in range(4):
        gpu.run(y, {x: data(rng)})
    capturing = gpu.executor._capturing
    assert capturing._workspaces
    empty, failures = fake.empty, [True]

    def once(shape, dtype=float):
        if failures.pop() if failures else False:
            raise fake.cuda.memory.OutOfMemoryError("Out of memory")
        return empty(shape, dtype)

    monkeypatch.setattr(fake, "empty", once, raising=False)
    feed = data(rng, 50)
    (wanted,), _ = on_cpu(g, y, [{x: feed}])
    np.testing.assert_allclose(plain_array(gpu.run(y, {x: feed})), wanted, rtol=1e-5, atol=1e-6)
    assert not capturing._workspaces


def test_a_limit_counts_the_memory_of_graphs(fake, session, rng):
    g, x, y = chain()
    gpu = session(g)
    peak = gpu.compile(y, [x]).memory((500, 8)).peak
    for limit, count in ((peak + 1000, 0), (2 * peak, 1)):
        plan = session(g, memory_limit=limit).compile(y, [x])
        for _ in range(4):
            plan(data(rng, 500))
        assert len(fake.streams.graphs) == count
        assert ("memory_limit leaves no room" in plan.explain((500, 8))) == (not count)
