"""Numbers of bytes and threads, and what a session does with a limit."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ExecutionError, ExecutorError, MemoryLimitError
from graphfw.runtime.limits import byte_count, checked_threads, shown_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (None, None),
        (7, 7),
        (np.int64(8), 8),
        ("12", 12),
        ("12B", 12),
        ("3kB", 3000),
        ("3 KiB", 3072),
        ("1.5GiB", 3 << 29),
        (" 2 mb ", 2_000_000),
        ("0.5 TiB", 1 << 39),
        ("2Ki", 2048),
        ("1G", 10**9),
    ],
)
def test_numbers_of_bytes(text, count):
    assert byte_count(text) == count


@pytest.mark.parametrize(
    "wrong",
    [
        *[0, -1, True, 1.5, "", "GiB", "-1GB", "1 XB", "1ib", "i", [], "1e9"],
        *["0", "0 GiB", "0.5B", "9" * 400],
    ],
)
def test_what_is_no_number_of_bytes(wrong):
    with pytest.raises(ArgumentError, match=r'memory_limit=(.|\n)*write "2GiB"'):
        byte_count(wrong)


def test_threads():
    assert checked_threads(None) is None
    assert checked_threads(3) == 3
    for wrong in (0, -1, True, 1.0, "2"):
        with pytest.raises(ArgumentError, match="no number of threads"):
            checked_threads(wrong)


def test_bytes_are_shown_for_people():
    shown = [shown_bytes(n) for n in (0, 1023, 1024, 1 << 20, 3 << 29, 5 << 40, 5 << 50)]
    assert shown == [
        "0 B",
        "1023 B",
        "1.00 KiB",
        "1.00 MiB",
        "1.50 GiB",
        "5.00 TiB",
        "5120.00 TiB",
    ]


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture
def net():
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 64), name="x")
        w = gf.Variable(np.full((64, 128), 0.01, np.float32), name="w")
        h = gf.tanh(x @ w)
        loss = gf.sum(h * h)
        step = gf.update(w, w - 0.1 * gf.grad(loss, [w])[0])
    return g, x, w, h, loss, step


def test_a_run_beyond_the_limit_is_an_error_that_names_the_largest(net):
    g, x, w, h, loss, step = net
    with gf.Session(g, memory_limit="1MiB", threads=1) as session:
        plan = session.compile([loss, step], feeds=[x])
        largest = plan.max_dim("batch", "1MiB")
        assert plan(np.ones((largest, 64), np.float32))[0] > 0
        before = session[w]
        report = plan.memory((largest + 1, 64))
        for _ in range(2):
            with pytest.raises(MemoryLimitError) as caught:
                plan(np.ones((largest + 1, 64), np.float32))
        error = caught.value
        assert isinstance(error, ExecutionError)
        assert isinstance(error, MemoryError)
        assert f"{report.peak:,} bytes" in str(error)
        assert "memory_limit is 1,048,576 (1.00 MiB)" in str(error)
        assert 'plan.max_dim("batch", 1048576)' in error.fix
        assert len(error.operands) == 3
        assert f"test_limits.py:{h.node.loc.line}" in str(error)
        np.testing.assert_array_equal(session[w], before)
        assert plan(np.ones((largest, 64), np.float32))[0] > 0
    with pytest.raises(ArgumentError, match="no number of bytes"):
        gf.Session(g, memory_limit="much")


def test_nothing_is_allocated_before_the_check(net):
    g, x, w, h, loss, step = net
    with gf.Session(g, memory_limit="1MiB") as session:
        plan = session.compile(loss, feeds=[x])
        huge = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (1 << 33, 64), (0, 0))
        with pytest.raises(MemoryLimitError):
            plan(huge)


def test_variables_beyond_the_limit_are_refused_before_they_take_memory():
    made = []
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        v = gf.Variable(lambda shape, dtype: made.append(shape), shape=(1000, 300), name="v")
        small = gf.Variable(np.ones(3, np.float32), name="small")
        y = gf.sum(v) + x * small
    with gf.Session(g, memory_limit="1MB") as session:
        with pytest.raises(MemoryLimitError, match="variables of this run alone take") as caught:
            session.compile(y, feeds=[x])
        assert "1,200,012 bytes" in str(caught.value)
        assert f"test_limits.py:{v.node.loc.line}" in str(caught.value)
    assert made == []


def test_new_contents_that_cannot_be_written_over_the_old_ones_count(net):
    g, x, w, h, loss, step = net
    array = np.ones((10, 64), np.float32)
    peak = gf.Session(g, threads=1).compile(step, feeds=[x]).memory(array.shape).peak
    with gf.Session(g, memory_limit=peak, threads=1) as session:
        session.run(step, {x: array})
    with gf.Session(g, memory_limit=peak, threads=1, check_finite=True) as session:
        with pytest.raises(MemoryLimitError, match=r"32\.00 KiB of it is for variables"):
            session.run(step, {x: array})
    with gf.Session(g, memory_limit=peak + w.type.nbytes, threads=1, check_finite=True) as session:
        session.run(step, {x: array})


def test_the_fix_asks_for_the_largest_dim_and_knows_the_others():
    with gf.Graph() as g:
        x = gf.placeholder(("m", "n"), name="x")
        y = gf.sort(gf.exp(x))
    with gf.Session(g, memory_limit=1000) as session:
        plan = session.compile(y, feeds=[x])
        with pytest.raises(MemoryLimitError) as caught:
            plan(np.ones((3, 1000), np.float32))
        call = caught.value.fix.split(" says")[0]
        assert call == 'plan.max_dim("n", 1000, m=3)'
        assert plan.max_dim("n", 1000, m=3) < 1000


def test_without_symbolic_dims_the_fix_is_another():
    with gf.Graph() as g:
        x = gf.placeholder((1000,), name="x")
        y = gf.sort(gf.exp(x))
    with gf.Session(g, memory_limit=1000) as session:
        with pytest.raises(MemoryLimitError, match=r"print\(plan.memory\(\)\)"):
            session.run(y, {x: np.ones(1000, np.float32)})


@pytest.mark.slow
def test_a_limit_that_nobody_keeps_is_an_error(monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = x + 1
    with gf.Session(g, executor="meta", memory_limit="1MB") as session:
        with pytest.raises(ExecutorError, match="can't keep a memory_limit") as caught:
            session.compile(y, feeds=[x])
    assert caught.value.fix == 'leave it out, or use executor="numpy"'
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    with gf.Session(g, memory_limit="1MB") as session:
        with pytest.raises(ExecutorError, match="GRAPHFW_JIT=0 does not plan its mem") as caught:
            session.compile(y, feeds=[x])
    assert caught.value.fix == "leave it out, or unset GRAPHFW_JIT"


@pytest.mark.slow
def test_dims_may_have_the_names_of_max_dims_own_arguments():
    with gf.Graph() as g:
        x = gf.placeholder(("n", "name", "memory_limit"), name="x")
        y = gf.exp(x)
    with gf.Session(g) as session:
        plan = session.compile(y, feeds=[x])
        few, many = [plan.max_dim("n", "1MiB", name=k, memory_limit=2) for k in (100, 10)]
    assert few < many
