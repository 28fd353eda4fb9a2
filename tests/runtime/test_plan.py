"""`session.compile` and what a `Plan` says about itself."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import FeedError, FetchError
from graphfw.runtime import plan as plan_module
from graphfw.runtime.plan import PlanCost


@pytest.fixture
def net():
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 4), name="x")
        y = gf.placeholder(("batch", 2), name="y")
        w = gf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2), name="w")
        seen = gf.Variable(np.zeros(3, np.float32), name="seen", trainable=False)
        with gf.name_scope("head"):
            error = x @ w - y
        loss = gf.sum(error * error)
        (slope,) = gf.grad(loss, [w])
        step = gf.update(w, w - 0.001 * slope)
    return g, x, y, w, seen, loss, slope, step


def drawn(rng, batch):
    return (rng.random((batch, n), dtype=np.float32) for n in (4, 2))


def test_feeds_are_given_by_position(net, rng):
    g, x, y, w, *_, loss, slope, step = net
    a, b = drawn(rng, 5)
    with gf.Session(g) as session:
        forward = session.compile(loss, feeds=[x, y])
        backward = session.compile({"loss": loss, "step": step}, feeds=["y", x])
        expected = ((a @ session[w] - b) ** 2).sum()
        np.testing.assert_allclose(forward(a, b), expected, rtol=1e-5)
        got = backward(b, a)
        assert got["step"] is None
        np.testing.assert_allclose(got["loss"], expected, rtol=1e-5)
        assert forward(a, b) < expected


def test_a_plan_lives_on_when_the_graph_grows_and_other_plans_run(net, rng):
    g, x, y, w, *_, loss, slope, step = net
    a, b = drawn(rng, 3)
    with gf.Session(g) as session:
        plan = session.compile(slope, feeds=[x, y])
        before = plan(a, b)
        with g:
            gf.Variable(np.ones(2, np.float32), name="later")
        session.run(loss, {x: a, y: b})
        np.testing.assert_array_equal(plan(a, b), before)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_number_of_values(net, count):
    g, x, y, *_, loss, _, _ = net
    with gf.Session(g) as session:
        plan = session.compile(loss, feeds=[x, y])
        text = rf"takes 2 values and got {count}(.|\n)*in this order: x, y"
        with pytest.raises(FeedError, match=text):
            plan(*[np.ones((1, 4), np.float32)] * count)


def test_values_by_name_are_refused_with_the_order(net, rng):
    g, x, y, *_, loss, _, _ = net
    a, b = drawn(rng, 3)
    with g:
        alone = x + 1
    with gf.Session(g) as session:
        plan = session.compile(alone, feeds=[x])
        for call in (plan, plan.profile):
            with pytest.raises(FeedError, match=r"by position(.|\n)*in this order: x"):
                call({x: a})
        with pytest.raises(FeedError, match=r"by position(.|\n)*in this order: x, y"):
            session.compile(loss, feeds=[x, y])(a, {"y": b})


def test_compiling_needs_the_feeds_and_good_fetches(net):
    g, x, y, *_, loss, _, _ = net
    with gf.Session(g) as session:
        with pytest.raises(FeedError, match='the value of "y" is needed'):
            session.compile(loss, feeds=[x])
        with pytest.raises(FetchError, match="can't be fetched"):
            session.compile([loss, 5], feeds=[x, y])


def test_a_plan_takes_whatever_can_be_fed(net, rng):
    g, x, y, *_, loss, _, _ = net
    a, b = drawn(rng, 2)
    with gf.Session(g) as session:
        plan = session.compile(loss, feeds=[x, y])
        expected = plan(a, b)
        np.testing.assert_array_equal(
            plan(a.tolist(), b.astype(np.float16).astype(">f4")),
            plan(a, b.astype(np.float16).astype(np.float32)),
        )
        np.testing.assert_array_equal(plan(np.asfortranarray(a), b), expected)
        with pytest.raises(FeedError, match="is fed float64"):
            plan(a.astype(np.float64), b)


# Sizes.


def test_one_plan_for_many_batch_sizes_and_nothing_grows_without_bound(rng, monkeypatch):
    monkeypatch.setattr(plan_module, "_KNOWN_SHAPES", 50)
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        pairs = gf.reshape(gf.concat([x, x]), (2, x.shape[0]))
        mean = gf.sum(pairs) / gf.dim_size(x, 0)
    with gf.Session(g) as session:
        plan = session.compile(mean, feeds=[x])
        for n in [*range(1, 401), *range(400, 0, -1)]:
            assert plan(np.full(n, n, np.float32)) == 2 * n
        assert len(plan._sizes) == 50
        assert 0 < len(plan._run._layouts) <= 256
        assert len(session._plans) == 0


def test_a_size_of_zero_and_one(net):
    g, x, y, *_, loss, slope, _ = net
    with gf.Session(g) as session:
        plan = session.compile([loss, slope], feeds=[x, y])
        for n in (1, 0, 1, 0):
            value, gradient = plan(np.ones((n, 4), np.float32), np.zeros((n, 2), np.float32))
            assert value == n * (12**2 + 16**2)
            assert gradient.shape == (4, 2)
            assert (gradient == 0).all() == (n == 0)


# Cost.


def test_the_cost_is_symbolic_without_shapes_and_a_number_with_them(net):
    g, x, y, *_, loss, _, _ = net
    batch = x.shape[0]
    plan = gf.Session(g, "meta").compile(loss, feeds=[x, y])
    symbolic, known = plan.cost(), plan.cost((10, 4), (10, 2))
    assert isinstance(symbolic, PlanCost)
    # matmul 2*4*2, subtract 2, square 2, sum 2: each times the batch.
    assert symbolic.flops == batch * (16 + 2 + 2 + 2)
    assert known.flops == 220
    for text, value in zip(symbolic[:3], known[:3], strict=True):
        assert gf_evaluate(text, batch=10) == value
    assert known.parameters == symbolic.parameters == 8
    assert known.parameter_bytes == 32


def gf_evaluate(dim, **sizes):
    from graphfw.ir.dim_text import evaluate

    return evaluate(dim, sizes)


def test_the_cost_counts_only_what_the_plan_needs(net):
    g, x, y, w, seen, *_ = net
    with gf.Session(g) as session:
        assert session.compile(seen).cost() == PlanCost(0, 0, 0, 0, 0)
        assert session.compile(w).cost() == PlanCost(0, 0, 0, 8, 32)


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        (((10, 4),), r"the plan has 2 feeds, and is given 1 shape(.|\n)*in this order: x, y"),
        (((10, 4), (11, 2)), 'dim `batch` is 10 in "x"'),
        (((10, 5), (10, 2)), "dim 1 is 5, not 4"),
    ],
)
def test_the_cost_checks_shapes(net, shapes, match):
    g, x, y, *_, loss, _, _ = net
    with gf.Session(g) as session, pytest.raises(FeedError, match=match):
        session.compile(loss, feeds=[x, y]).cost(*shapes)


# Texts.


def test_explain_lists_passes_and_nodes_with_their_lines(net, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    g, x, y, *_, loss, slope, step = net
    with gf.Session(g) as session:
        text = session.compile([loss, step], feeds=[x, y]).explain()
    passes, _, steps = text.partition("\n\n")
    assert "simplify" in passes
    lines = steps.splitlines()
    assert lines[0].split() == ["step", "op", "result", "flops", "made", "at"]
    matmul = next(line for line in lines if " matmul " in line and "head" in line)
    assert "float32[batch, 2]" in matmul
    assert "16*batch" in matmul
    assert "test_plan.py" in matmul
    assert any("(gradient of test_plan.py:" in line for line in lines)
    assert not any(line != line.rstrip() for line in lines)


def test_repr_names_the_feeds(net):
    g, x, y, *_, loss, _, step = net
    with gf.Session(g) as session:
        text = repr(session.compile([loss, step], feeds=[x, y]))
        assert "x, y -> 1 value, 1 update" in text
        assert "nothing -> 0 values, 1 update" not in text
        assert "nothing -> 1 value" in repr(session.compile("w"))
