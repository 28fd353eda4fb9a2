"""`verify="first-run"`: what is right passes, what is wrong is named, and nothing is committed."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, PassError, VerifyError
from graphfw.ir.functions import F
from graphfw.ir.op import REGISTRY, Rng, lookup
from graphfw.ir.rebuild import derive, rebuild
from graphfw.passes import pipelines
from graphfw.passes.bisect_passes import RealRun, difference, explained
from graphfw.passes.cse import CSE
from graphfw.passes.pipelines import DEFAULT, SIMPLIFY
from graphfw.passes.rules import RuleSet, rule
from graphfw.passes.values import SampleInputs, Unknown
from graphfw.runtime import first_run


@pytest.fixture
def net():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        w = gf.Variable(np.array([0.5, -1, 2], np.float32), name="w")
        count = gf.Variable(np.array(0, np.int64), name="count")
        shifted = x + 1.0
        grown = gf.exp(shifted) * w
        noise = gf.random.normal((3,), name="noise")
        loss = gf.mean(grown * grown)
        (slope,) = gf.grad(loss, [w])
        step = gf.group(gf.update(w, w - 0.01 * slope + 0.1 * noise), gf.update(count, count + 1))
    return g, x, w, count, shifted, grown, noise, loss, step


def plant(monkeypatch, passes):
    for name in ("DEFAULT", "NODEWISE"):
        monkeypatch.setattr(pipelines, name, passes)


def test_what_is_right_passes_and_goes_on_as_without(net, rng):
    g, x, w, count, *_, noise, loss, step = net
    array = rng.random((11, 3), dtype=np.float32)
    with gf.Session(g, seed=3) as plain, gf.Session(g, seed=3, verify="first-run") as session:
        for _ in range(3):
            for a, b in zip(
                plain.run([noise, loss, step], {x: array})[:2],
                session.run([noise, loss, step], {x: array})[:2],
                strict=True,
            ):
                np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(plain[w], session[w])
        assert session[count] == 3
        assert plain.state_dict()["session/step"] == session.state_dict()["session/step"] == 3


def test_only_the_first_run_is_compared(net, rng, monkeypatch):
    g, x, *_, loss, step = net
    calls = []
    real = first_run.RealRun.values
    monkeypatch.setattr(RealRun, "values", lambda self, graph: calls.append(1) or real(self, graph))
    with gf.Session(g, verify="first-run") as session:
        plan = session.compile([loss, step], feeds=[x])
        for n in (4, 4, 5):
            plan(rng.random((n, 3), dtype=np.float32))
        assert len(calls) == 1


def test_the_environment_asks_for_it(net, rng, monkeypatch):
    g, x, *_, loss, _ = net
    monkeypatch.setenv("GRAPHFW_VERIFY", "first-run")
    with gf.Session(g) as session:
        plan = session.compile(loss, feeds=[x])
        assert isinstance(plan._run, first_run.FirstRun)
        assert np.isfinite(plan(rng.random((4, 3), dtype=np.float32)))
        assert "level" in plan.explain((4, 3)) or "node" in plan.explain((4, 3))
    with gf.Session(g, verify="off") as session:
        assert not isinstance(session.compile(loss, feeds=[x])._run, first_run.FirstRun)
    with pytest.raises(ArgumentError, match="first-run"):
        gf.Session(g, verify="last-run")


def test_what_the_passes_drop_is_still_computed_by_the_source():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        v = gf.Variable(np.ones(3, np.float32), name="v")
        same = gf.where(gf.asarray(True), x, v)
    with gf.Session(g, verify="first-run") as session:
        np.testing.assert_array_equal(session.run(same, {x: [1, 2, 3]}), [1, 2, 3])


@pytest.mark.parametrize("jit", ["0", "1"])
def test_a_wrong_rule_is_named_with_the_node(net, rng, monkeypatch, jit):
    monkeypatch.setenv("GRAPHFW_JIT", jit)
    g, x, w, count, shifted, grown, noise, loss, step = net

    @rule(lookup("add"), before="x + 1.0", after="x")
    def lose_one(node, inputs):
        return inputs[0] if node.loc == shifted.node.loc else None

    wrong = RuleSet("simplify", (*SIMPLIFY.rules[:5], lose_one, *SIMPLIFY.rules[5:]))
    plant(monkeypatch, tuple(wrong if one is SIMPLIFY else one for one in DEFAULT))
    with gf.Session(g, verify="first-run") as session:
        before = session.state_dict()
        for _ in range(2):
            with pytest.raises(PassError) as caught:
                session.run([loss, step], {x: rng.random((4, 3), dtype=np.float32)})
            error = caught.value
            assert "the pass simplify changes the value of output 0 by the rule lose_one" in str(
                error
            )
            assert "the first node whose value changes is add: the element [" in error.why
            assert error.at == shifted.node.loc
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name])
        assert session[count] == 0


def test_a_wrong_pass_without_rules_is_named_with_the_node(net, rng, monkeypatch):
    class Wrong(CSE):
        name = "wrong"

        def run(self, graph, hits):
            return rebuild(graph, lambda n, i: F.sin(*i) if n.op.name == "exp" else None)

    g, x, *_, grown, noise, loss, step = net
    plant(monkeypatch, (*DEFAULT, Wrong()))
    array = rng.random((4, 3), dtype=np.float32)
    with gf.Session(g, verify="first-run") as session:
        with pytest.raises(PassError, match="the pass wrong changes the value of output 0") as e:
            session.run([loss, step], {x: array})
        assert "is exp: the element" in e.value.why
        assert e.value.at.line == grown.node.loc.line


@pytest.fixture
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def test_wrong_native_code_is_named_with_step_and_node(net, rng, monkeypatch, native):
    g, x, w, count, shifted, grown, noise, loss, step = net
    monkeypatch.setattr(REGISTRY["exp"], "scalar", lambda self, k, x: k.mul(k.exp(x), 1.25))
    with gf.Session(g, verify="first-run") as session:
        before = session.state_dict()
        with pytest.raises(VerifyError) as caught:
            session.run([loss, step], {x: rng.random((4, 3), dtype=np.float32)})
        error = caught.value
        assert "the step" in error.summary
        assert "exp" in error.summary
        assert " was " in error.summary
        assert f"test_first_run.py:{grown.node.loc.line}" in error.why
        assert "GRAPHFW_JIT=0" in error.fix
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name])


def test_of_several_steps_the_first_wrong_one_is_named(rng, monkeypatch, native):
    with gf.Graph() as g:
        x = gf.placeholder((4, 5), name="x")
        first = gf.cumulative_sum(gf.cos(x), axis=1)  # no native step
        second = gf.cumulative_sum(gf.tanh(first), axis=1)
        third = gf.cos(second)
    monkeypatch.setattr(REGISTRY["tanh"], "scalar", lambda self, k, x: k.add(x, 1.0))
    with gf.Session(g, verify="first-run") as session:
        with pytest.raises(VerifyError, match="tanh") as caught:
            session.run([third, first], {x: rng.random((4, 5), dtype=np.float32)})
        assert caught.value.at.line == second.node.loc.line


def test_wrong_new_contents_are_found(rng, monkeypatch, native):
    with gf.Graph() as g:
        v = gf.Variable(rng.random(5, dtype=np.float32), name="v")
        step = gf.update(v, gf.tanh(v))
    monkeypatch.setattr(REGISTRY["tanh"], "scalar", lambda self, k, x: k.neg(x))
    with gf.Session(g, verify="first-run") as session:
        before = session[v]
        with pytest.raises(VerifyError, match="tanh"):
            session.run(step)
        np.testing.assert_array_equal(session[v], before)


def test_steps_that_are_right_by_themselves(net, rng, monkeypatch, native):
    """As when memory is given away too early: only the run as a whole goes wrong."""
    g, x, *_, loss, _ = net
    array = rng.random((4, 3), dtype=np.float32)
    with gf.Session(g, verify="first-run") as session:
        plan = session.compile(loss, feeds=[x])
        run = plan._run._run
        monkeypatch.setattr(type(run), "__call__", lambda self, *args: [np.full((), 9, np.float32)])
        with pytest.raises(VerifyError, match="though each step by itself is right"):
            plan(array)


def test_an_executor_without_values_is_left_alone(net):
    g, x, *_, loss, step = net
    with gf.Session(g, "meta", verify="first-run") as session:
        session.run([loss, step], {x: np.ones((4, 3), np.float32)})


def test_failing_operations_fail_as_ever():
    with gf.Graph() as g:
        i = gf.placeholder((2,), gf.int64, name="i")
        y = gf.take(gf.asarray([1.0, 2.0, 3.0]), i, axis=0)
    with gf.Session(g, verify="first-run") as session:
        with pytest.raises(gf.ExecutionError, match="take"):
            session.run(y, {i: [0, 3]})
        np.testing.assert_array_equal(session.run(y, {i: [0, 2]}), [1, 3])


# What counts as different.


def trial_of(fetches, feeds):
    graph = gf.Session(fetches[0].node.graph, "meta").compile(list(fetches), list(feeds)).program
    draw = SampleInputs({t.node: a for t, a in feeds.items()}, {}, Rng(0, 0))
    return graph.graph, RealRun(draw)


def test_cancelling_sums_may_differ_as_far_as_their_last_bits_reach(rng):
    with gf.Graph():
        x = gf.placeholder((1000,), name="x")
        left = gf.sum(x - gf.mean(x))
        positive = left > 0
        far = gf.sum(x)
    array = rng.standard_normal(1000).astype(np.float32)
    graph, trial = trial_of([left, positive, far], {x: array})
    wanted = trial.values(graph)
    rest = np.abs(array).max()
    other = [np.asarray(wanted[0] + 1e-6 * rest, np.float32), ~wanted[1], wanted[2]]
    assert trial.first_difference(graph, wanted, wanted) is None
    other[1] = wanted[1]
    assert trial.first_difference(graph, wanted, other) is None
    other[0] = np.asarray(wanted[0] + 0.1 * rest, np.float32)
    assert trial.first_difference(graph, wanted, other) == 0


def test_ints_and_bools_are_exact_where_they_are_determined(rng):
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        i = gf.placeholder((3,), gf.int32, name="i")
        high = x > 0.5
        double = i * 2
    feeds = {x: np.array([0, 0.25, 0.75], np.float32), i: np.array([1, 2, 3], np.int32)}
    graph, trial = trial_of([high, double], feeds)
    wanted = trial.values(graph)
    assert trial.first_difference(graph, wanted, [wanted[0], wanted[1] + 1]) == 1
    assert trial.first_difference(graph, wanted, [~wanted[0], wanted[1]]) == 0


@pytest.mark.parametrize(
    ("a", "b", "moved", "same"),
    [
        ([1.0, 2.0], [1.0, 2.5], [[1.0, 2.0]], False),
        ([1.0, 2.0], [1.0, 2.5], [[1.0, 2.01]], True),
        ([1.0, np.nan], [1.0, 3.0], [[1.0, np.nan]], False),
        ([1.0, np.inf], [1.0, 3.0], [[1.0, 7.0]], True),
        ([1.0, np.inf], [2.0, 3.0], [[1.0, 7.0]], False),
        ([1, 2], [1, 3], [[1, 2]], False),
        ([1, 2], [1, 3], [[1, 1]], True),
        ([1j, 2], [1j, 2 + 1j], [[1j, 2]], False),
        ([1j, 2], [1j, 2 + 1j], [[1j, 2 + 0.1j]], True),
        ([], [], [[]], True),
    ],
)
def test_explained(a, b, moved, same):
    assert explained(np.array(a), np.array(b), [np.array(m) for m in moved]) is same


def test_long_loops_are_left_out_and_said_so(monkeypatch):
    monkeypatch.setattr(first_run, "_ITERATIONS", 20)
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        halved = gf.while_loop(lambda v: v > 1e-3, lambda v: v / 2, x)
        plain = x + 1
    with gf.Session(g, verify="first-run") as session:
        assert session.run([halved, plain], {x: 1.0})[1] == 2  # 10 iterations
    with (
        gf.Session(g, verify="first-run") as session,
        pytest.warns(RuntimeWarning, match="the loop made at .* makes more than 20 iterations"),
    ):
        assert session.run([halved, plain], {x: 2.0**40})[1] == 2.0**40 + 1


def test_a_loop_that_the_last_bits_may_keep_going_is_no_difference():
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        # Each iteration computes with numbers that are moved by their last bits, so it is never 0.
        _, iterations = gf.while_loop(lambda v: v[0] - x != 0, lambda v: (x * 1.5 / 1.5, v[1] + 1),
                                 (x + 1, 0))  # fmt: skip
    draw = SampleInputs({x.node: np.array(1.3, np.float32)}, {}, iterations=30)
    graph = derive(g, [iterations])
    trial = RealRun(draw)
    wanted = trial.values(graph)
    assert trial.first_difference(graph, wanted, wanted) is None
    assert explained(wanted[0], wanted[0] + 1, [Unknown(graph.nodes[-1], 30)])


def test_difference_says_where():
    assert difference(np.array([[1, 2]]), np.array([[1, 3]])) == "the element [0, 1] was 2 and is 3"
    assert difference(np.float32(1), np.float32(2)) == "it was 1.0 and is 2.0"
    a, b = np.array([1.0, 9.0, np.nan]), np.array([1.0, 8.0, 1.0])
    assert difference(a, b) == "the element [2] was nan and is 1.0"
    assert difference(np.zeros(2), np.zeros(3)) == "float64[2] became float64[3]"
