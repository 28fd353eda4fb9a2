"""Passes over loops and branches: what they drop, move and merge, and that values stay."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.ops.control.branch_op import Branch
from graphfw.ops.control.checkpoint_ops import Checkpoint
from graphfw.ops.control.loop_op import Loop
from graphfw.ops.control.scan_op import Scan
from graphfw.passes.control_flow import (
    ConvertIfs,
    EliminateDeadBodyValues,
    FuseScans,
    HoistInvariants,
    InlineCheckpoints,
    OptimiseBodies,
)
from graphfw.passes.cse import CSE
from graphfw.passes.pipelines import DEFAULT
from graphfw.passes.values import SampleInputs, evaluated
from tests.passes.helpers import ops_of


class Given:
    """A graph of a function of placeholders, and values for these."""

    def __init__(self, function, *arrays):
        arrays = [np.asarray(a) for a in arrays]
        with gf.Graph() as graph:
            feeds = [gf.placeholder(a.shape, a.dtype.name) for a in arrays]
            made = function(*feeds)
        outputs = made if isinstance(made, (list, tuple)) else [made]
        self.graph = derive(graph, outputs)
        self.feeds = {t.node: a for t, a in zip(feeds, arrays, strict=True)}

    def after(self, one):
        """The graph after a pass, which has kept its values."""
        hits = Counter()
        made = one.run(self.graph, hits)
        draw = SampleInputs(self.feeds, {})
        for a, b in zip(evaluated(self.graph, draw), evaluated(made, draw), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        self.hits = hits
        return made


def regions(graph, kind):
    return [node for node in graph.nodes if isinstance(node.op, kind)]


def body_ops(node):
    return [inner.op.name for body in node.op.bodies for inner in body.nodes]


def row(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


# Checkpoints


def test_checkpoints_are_inlined_one_inside_another():
    inner = gf.checkpoint(gf.sin)
    outer = gf.checkpoint(lambda x: gf.exp(inner(x)))
    given = Given(lambda x: outer(x) + x, row(3))
    assert regions(given.graph, Checkpoint)
    made = given.after(InlineCheckpoints())
    assert ops_of(made) == ["placeholder", "sin", "exp", "add"]
    assert given.hits["inlined"] == 2


def test_checkpointed_gradient_keeps_its_recomputation_apart():
    f = gf.checkpoint(lambda x: gf.sin(gf.exp(x)))
    given = Given(lambda x: [f(x), gf.grad(gf.sum(f(x)), x)], row(3))
    made = given.after(InlineCheckpoints())
    assert not regions(made, Checkpoint)
    assert ops_of(CSE().run(made, Counter())).count("exp") == 2


# Scans that differ in what they stack


def _gradient(x, w):
    last, ys = gf.scan(lambda c, e: (gf.tanh(c * w + e),) * 2, gf.zeros((3,)), x)
    return [last, ys, *gf.grad(gf.sum(ys), [x, w])]


def test_forward_iterations_of_a_gradient_are_merged():
    given = Given(_gradient, row(5, 3), row(3))
    assert len(regions(given.graph, Scan)) == 3
    made = given.after(FuseScans())
    assert len(regions(made, Scan)) == 2
    assert given.hits["merged"] == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda x: gf.scan(lambda c, e: (c * e, c), gf.zeros((3,)), x)[1],  # another carry
        lambda x: gf.scan(lambda c, e: (c + e, c), gf.ones((3,)), x)[1],  # another start
        lambda x: gf.scan(lambda c, e: (c + e, c), gf.zeros((3,)), x, reverse=True)[1],
        lambda x: gf.scan(lambda c, e: (c + e, c), gf.zeros((3,)), x * 2)[1],
    ],
)
def test_scans_that_compute_different_things_stay_apart(other):
    given = Given(
        lambda x: [gf.scan(lambda c, e: (c + e, c), gf.zeros((3,)), x)[1], other(x)], row(4, 3)
    )
    made = given.after(FuseScans())
    assert made is given.graph


# What nobody reads


def test_unread_stack_and_what_it_takes_are_dropped():
    def unread(x, w):
        return gf.scan(lambda c, e: (c + e, gf.exp(e @ w)), gf.zeros((3,)), x)[0]

    given = Given(unread, row(4, 3), row(3, 7))
    made = given.after(EliminateDeadBodyValues())
    (node,) = regions(made, Scan)
    assert body_ops(node) == ["add"]
    assert len(node.types) == 1
    assert all(t.shape != (3, 7) for t in node.inputs)


def test_carry_that_only_feeds_itself_is_dropped():
    def both(x):
        carry, _ = gf.scan(
            lambda c, e: ((c[0] + e, gf.sin(c[1] * e)), None), (gf.zeros((3,)), gf.ones((3,))), x
        )
        return carry[0]

    given = Given(both, row(4, 3))
    (node,) = regions(given.after(EliminateDeadBodyValues()), Scan)
    assert node.op.carries == 1
    assert body_ops(node) == ["add"]


def test_carry_that_feeds_what_is_read_stays():
    def both(x):
        carry, _ = gf.scan(
            lambda c, e: ((c[0] + c[1], c[1] * e), None), (gf.zeros((3,)), gf.ones((3,))), x
        )
        return carry[0]

    given = Given(both, row(4, 3))
    assert given.after(EliminateDeadBodyValues()).nodes[-1].op.carries == 2


def test_carry_that_never_changes_becomes_a_capture():
    def same(x, w):
        (last, kept), _ = gf.scan(lambda c, e: ((c[0] * c[1] + e, c[1]), None), (w, w * 2), x)
        return [last, kept]

    given = Given(same, row(4, 3), row(3))
    (node,) = regions(given.after(EliminateDeadBodyValues()), Scan)
    assert (node.op.carries, node.op.sequences, len(node.inputs)) == (1, 1, 3)


def test_unread_result_of_a_branch_is_dropped():
    def branch(p, x, y):
        return gf.cond(p, lambda: (gf.sin(x), gf.exp(y)), lambda: (x, y))[0]

    given = Given(branch, True, row(3), row(4))
    (node,) = regions(given.after(EliminateDeadBodyValues()), Branch)
    assert body_ops(node) == ["sin"]
    assert len(node.inputs) == 2


# Branches that are selections


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_small_branches_become_selections(index):
    choices = [gf.sin, lambda x: gf.where(x > 0, 1 / x, 0), lambda x: x]
    given = Given(lambda i, x: gf.switch(i, choices, x), index, row(3))
    made = given.after(ConvertIfs())
    assert not regions(made, Branch)
    assert given.hits["selected"] == 1


def test_what_both_branches_hand_on_is_not_selected():
    def one(p, x, y):
        return gf.cond(p, lambda: (x, gf.exp(y)), lambda: (x, y))

    made = Given(one, False, row(3), row(3)).after(ConvertIfs())
    assert ops_of(made).count("where") == 1


def test_branches_inside_branches_become_selections():
    def nested(p, q, x):
        return gf.cond(p, lambda: gf.cond(q, lambda: x * 2, lambda: gf.exp(x)), lambda: x)

    given = Given(nested, True, False, row(3))
    assert not regions(given.after(ConvertIfs()), Branch)
    assert given.hits["selected"] == 2


@pytest.mark.parametrize(
    "costly",
    [
        lambda x: x @ gf.ones((3, 3)),
        lambda x: gf.sum(x) + x,
        lambda x: gf.take(x, gf.asarray([0, 2, 1])),
        lambda x: gf.random.normal((3,)) * 0 + x,
    ],
)
def test_branches_of_other_work_stay(costly):
    given = Given(lambda p, x: gf.cond(p, lambda: costly(x), lambda: x), False, row(3))
    assert regions(given.after(ConvertIfs()), Branch)


def test_branches_of_many_elements_stay():
    given = Given(lambda p, x: gf.cond(p, lambda: x * 2, lambda: x * 3), True, row(5, 5))
    assert regions(given.after(ConvertIfs(limit=49)), Branch)
    assert not regions(given.after(ConvertIfs(limit=50)), Branch)


def test_branches_of_unknown_size_stay():
    with gf.Graph() as graph:
        x, p = gf.placeholder(("n",)), gf.placeholder((), "bool")
        y = gf.cond(p, lambda: x * 2, lambda: x)
    assert regions(ConvertIfs()(derive(graph, [y])), Branch)


def test_a_constant_number_leaves_its_body_alone():
    given = Given(lambda x: gf.switch(1, [gf.sin, lambda x: x @ x, gf.exp], x), row(3, 3))
    assert ops_of(given.after(ConvertIfs()))[-1] == "matmul"


# What is the same in all iterations


def test_products_of_captures_leave_a_scan():
    def iterations(x, w):
        return gf.scan(lambda c, e: (gf.tanh(c @ (w @ w) + e), c), gf.zeros((3,)), x)[0]

    given = Given(iterations, row(4, 3), row(3, 3))
    made = given.after(HoistInvariants())
    (node,) = regions(made, Scan)
    assert body_ops(node).count("matmul") == 1
    assert ops_of(made).count("matmul") == 1
    assert given.hits["hoisted"] == 1


def test_only_the_end_of_what_is_the_same_is_given_to_the_loop():
    def iterations(x, w):
        return gf.scan(lambda c, e: (c + e * gf.exp(gf.sin(w)), None), gf.zeros((3,)), x)[0]

    given = Given(iterations, row(4, 3), row(3))
    (node,) = regions(given.after(HoistInvariants()), Scan)
    assert body_ops(node) == ["multiply", "add"]
    assert given.hits["hoisted"] == 1


def test_a_loop_and_its_gradient_share_what_leaves_them():
    def iterations(x, w):
        last, _ = gf.scan(lambda c, e: (gf.tanh(c * gf.exp(w) + e), None), gf.zeros((3,)), x)
        return gf.grad(gf.sum(last), x)

    given = Given(iterations, row(4, 3), row(3))
    made = given.after(HoistInvariants())
    assert ops_of(made).count("exp") == 1
    assert given.hits["hoisted"] > 1


def test_products_leave_inner_and_outer_loops():
    def iterations(x, w):
        def outer(c, e):
            return gf.scan(lambda d, f: (d @ (w @ w) + f + e, None), c, x)[0], None

        return gf.scan(outer, gf.zeros((3,)), x)[0]

    made = Given(iterations, row(2, 3), row(3, 3)).after(HoistInvariants())
    assert ops_of(made).count("matmul") == 1
    (node,) = regions(made, Scan)
    assert "matmul" not in body_ops(node)


def test_products_leave_while_loops_and_their_conditions():
    def iterations(x, w):
        return gf.while_loop(lambda v: gf.sum(v) < gf.sum(w @ w), lambda v: v + gf.exp(w[0]), x)

    weights = np.abs(row(3, 3))
    given = Given(iterations, np.zeros(3, np.float32), weights)
    made = given.after(HoistInvariants())
    (node,) = regions(made, Loop)
    assert body_ops(node) == ["sum", "less", "add"]


def test_what_grows_or_is_a_view_or_draws_stays():
    def iterations(x, w):
        def step(c, e):
            return c + (w[:, None] + w[None, :]) * gf.random.normal((3, 3)), None

        return gf.scan(step, gf.zeros((3, 3)), x)[0]

    given = Given(iterations, row(4, 3), row(3))
    assert given.after(HoistInvariants()) is given.graph


@pytest.mark.parametrize("length", [2, 0])
def test_what_may_fail_leaves_only_loops_that_run(length):
    def iterations(x, w, at):
        return gf.scan(lambda c, _: (c + gf.take(w, at), None), x, length=length)[0]

    given = Given(iterations, row(2), row(3), np.array([0, 2]))
    made = given.after(HoistInvariants())
    assert ("gather" in ops_of(made)) == (length > 0)


# Bodies


def test_bodies_of_bodies_are_optimised():
    def iterations(x):
        def outer(c, e):
            return gf.scan(lambda d, f: (d + gf.sin(f) * gf.sin(f), None), c, x)[0] + e, None

        return gf.scan(outer, gf.zeros((3,)), x)[0]

    given = Given(iterations, row(4, 3))
    made = given.after(OptimiseBodies((CSE(),)))
    (node,) = regions(made, Scan)
    (inner,) = [n for n in node.op.body.nodes if isinstance(n.op, Scan)]
    assert body_ops(inner).count("sin") == 1


def test_bodies_with_nothing_to_do_stay_as_they_are():
    given = Given(_gradient, row(5, 3), row(3))
    once = OptimiseBodies((CSE(),)).run(given.graph, Counter())
    twice = OptimiseBodies((CSE(),)).run(once, Counter())
    pairs = zip(regions(once, Scan), regions(twice, Scan), strict=True)
    assert all(a.op.body is b.op.body for a, b in pairs)


def test_all_passes_together_keep_values():
    def iterations(x, w):
        def step(c, e):
            c = gf.cond(gf.sum(e) > 0, lambda: gf.tanh(c @ (w @ w)), lambda: c + e)
            return c, gf.checkpoint(gf.exp)(c)

        last, ys = gf.scan(step, gf.zeros((3,)), x)
        return [last, *gf.grad(gf.sum(ys), [x, w])]

    given = Given(iterations, row(6, 3), row(3, 3))
    graph = given.graph
    for one in DEFAULT:
        graph = one.run(graph, Counter())
    draw = SampleInputs(given.feeds, {})
    for a, b in zip(evaluated(given.graph, draw), evaluated(graph, draw), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
