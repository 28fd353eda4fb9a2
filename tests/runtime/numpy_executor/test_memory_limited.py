"""Runs that compute things again to keep a memory limit: the same values, in less memory."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError, MemoryLimitError, ShapeError
from graphfw.runtime.numpy_executor.memory_limited import MemoryLimitedExecutable
from tests.passes.test_rematerialise import mlp


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def scanned(h):
    """Put a loop of a known length into each layer."""
    return gf.fori_loop(0, 3, lambda i, h: gf.tanh(h) * 0.5, h)


NETS = {
    "plain": {},
    "dropout": {"between": lambda h: gf.dropout(h, 0.3)},
    "checkpoint": {"wrap": gf.checkpoint, "between": lambda h: gf.gelu(gf.layer_norm(h))},
    "norm": {"between": gf.layer_norm},
    "loop": {"between": scanned},
    "sorted": {"between": lambda h: gf.sort(h, axis=1)},
}
ROWS = 300


def plan_of(name, limit=None, **options):
    """Return a session and the plan of a net's loss and gradients."""
    g, x, outputs = mlp(layers=6, **NETS[name])
    session = gf.Session(g, memory_limit=limit, threads=1, **options)
    return session, session.compile(outputs, feeds=[x])


def rows(rng, count=ROWS):
    return rng.standard_normal((count, 32), dtype=np.float32)


def assert_same(name, found, wanted):
    """Compare values: sums that are fused with others may be added in another order."""
    for a, b in zip(found, wanted, strict=True):
        if name in ("plain", "dropout", "loop", "sorted"):
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * float(np.abs(b).max()))


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("name", NETS)
@pytest.mark.slow
def test_values_are_the_same_and_the_limit_is_kept(name, rng):
    array = rows(rng)
    session, plan = plan_of(name)
    with session:
        wanted = plan(array)
        peak = plan.memory(array.shape).peak
    peaks = set()
    for fraction in (0.99, 0.7):
        limit = int(fraction * peak)
        session, plan = plan_of(name, limit)
        with session:
            try:
                found = plan(array)
            except MemoryLimitError:
                continue
            assert_same(name, found, wanted)
            report = plan.memory(array.shape)
            assert report.peak <= limit
            arenas = [memory.array.nbytes for memory in session.executor._arenas._free]
            most = report.arena + report.of("scratch")
            assert max(arenas) == most, "nothing larger was ever taken"
            peaks.add(report.peak)
    assert peaks


@pytest.mark.parametrize("name", ["plain", "dropout", "norm"])
def test_half_of_the_intermediate_memory_is_enough(name, rng):
    session, plan = plan_of(name)
    with session:
        report = plan.memory((2000, 32))
    limit = report.peak - report.arena // 2
    session, plan = plan_of(name, limit)
    with session:
        plan(rows(rng, 2000))
        assert plan.memory((2000, 32)).arena <= report.arena // 2


def test_training_goes_on_as_without_a_limit(rng):
    found = []
    array = rows(rng)
    limit = None
    for _ in range(2):
        g, x, (loss, *_) = mlp(layers=6)
        with g:
            train = gf.optim.Adam(1e-2).minimize(loss)
        with gf.Session(g, memory_limit=limit, threads=1) as session:
            plan = session.compile([loss, train], feeds=[x])
            losses = [plan(array)[0] for _ in range(3)]
            found.append((losses, session.state_dict()))
            report = plan.memory(array.shape)
            assert limit is None or report.peak <= limit
            limit = report.peak - report.arena // 3
    np.testing.assert_array_equal(found[0][0], found[1][0])
    for name, value in found[0][1].items():
        np.testing.assert_array_equal(value, found[1][1][name])


def test_each_size_takes_what_it_needs(rng):
    session, plan = plan_of("plain")
    with session:
        limit = int(0.8 * plan.memory((ROWS, 32)).peak)
    session, plan = plan_of("plain", limit)
    with session:
        assert isinstance(plan._run, MemoryLimitedExecutable)
        plan(rows(rng, 10))
        assert not plan._run._variants, "small runs compute nothing again"
        plan(rows(rng))
        made = len(plan._run._variants)
        assert made
        plan(rows(rng, ROWS - 1))
        assert len(plan._run._variants) == made
        small, large = plan.explain((10, 32)), plan.explain((ROWS, 32))
        assert "computes again" not in small
        assert "the backward graph computes again:" in large
        assert "flops more" in large
        assert plan.source()
        assert plan.profile(rows(rng)).timings


@pytest.mark.slow
def test_the_largest_size_counts_what_is_computed_again():
    session, plan = plan_of("plain")
    with session:
        limit = int(0.8 * plan.memory((ROWS, 32)).peak)
        without = plan.max_dim("batch", limit)
    session, plan = plan_of("plain", limit)
    with session:
        largest = plan.max_dim("batch", limit)
        assert largest > max(without, ROWS - 1)
        assert plan.memory((largest, 32)).peak <= limit < plan.memory((largest + 1, 32)).peak


@pytest.mark.slow
def test_what_can_not_be_kept_is_an_error_that_says_what_was_tried(rng):
    session, plan = plan_of("plain")
    with session:
        report = plan.memory((ROWS, 32))
    session, plan = plan_of("plain", report.peak - report.arena)
    with session:
        for _ in range(2):
            with pytest.raises(MemoryLimitError) as caught:
                plan(rows(rng))
        assert isinstance(caught.value, ExecutionError)
        assert f"{report.peak:,} bytes" in str(caught.value)
        assert "computing again what can be would leave" in str(caught.value)
        with pytest.raises(MemoryLimitError):
            plan.profile(rows(rng))
        assert plan(rows(rng, 0))[0].shape == ()


@pytest.mark.parametrize("verify", ["first-run", "each"])
def test_it_is_checked_like_other_runs(verify, rng):
    session, plan = plan_of("norm")
    with session:
        limit = int(0.7 * plan.memory((ROWS, 32)).peak)
        array = rows(rng)
        wanted = plan(array)
    session, plan = plan_of("norm", limit, verify=verify, check_finite=True)
    with session:
        assert_same("norm", plan(array), wanted)
        array[3, 3] = np.nan
        with pytest.raises(ExecutionError, match="holds nan"):
            plan(array)


def test_sizes_that_the_graph_refuses_are_refused_as_without_a_limit():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.reshape(x, (-1, 3))
    texts = []
    for limit in (None, "1MiB"):
        with gf.Session(g, memory_limit=limit) as session:
            plan = session.compile(y, feeds=[x])
            with pytest.raises(ShapeError) as caught:
                plan(np.ones(4, np.float32))
            texts.append(caught.value.summary)
    assert texts[0] == texts[1]
