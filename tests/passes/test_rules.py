"""`RuleSet` and its driver: settling, hits, loops, types, places."""

from collections import Counter

import pytest

import graphfw as gf
from graphfw.errors import PassError
from graphfw.ir.functions import F
from graphfw.ir.op import (
    ELEMENTWISE,
    IDEMPOTENT,
    INVOLUTION,
    NONDIFF,
    REGISTRY,
    TRANSPARENT,
    lookup,
)
from graphfw.ir.rebuild import derive, rebuild
from graphfw.passes.manager import run_pipeline
from graphfw.passes.pipelines import SIMPLIFY
from graphfw.passes.rules import RuleSet, rule
from tests.passes.helpers import graph_of, ops_of, structure


@rule(lookup("negative"), before="-x", after="x * -1")
def negative_to_multiply(node, inputs):
    return inputs[0] * -1


@rule(lookup("multiply"), before="x * -1", after="-x")
def multiply_to_negative(node, inputs):
    return F.negative(inputs[0])


@rule(lookup("exp"), before="exp(x)", after="tanh(-x)")
def exp_to_tanh(node, inputs):
    return F.tanh(F.negative(inputs[0]))


@rule(lookup("negative"), before="-x", after="x - x")
def negative_to_subtract(node, inputs):
    return inputs[0] - inputs[0]


def run(graph, *rules):
    hits = Counter()
    return rebuild(RuleSet("test", rules).run(graph, hits)), hits


def test_nodes_that_a_rule_makes_are_settled_in_the_same_run():
    graph, hits = run(graph_of("exp(x)", takes="x: float32[3]"), exp_to_tanh, negative_to_subtract)
    assert structure(graph) == structure(graph_of("tanh(x - x)", takes="x: float32[3]"))
    assert hits == {"exp_to_tanh": 1, "negative_to_subtract": 1}


def test_rules_see_settled_inputs():
    seen = []

    @rule(lookup("tanh"), before="", after="")
    def look(node, inputs):
        seen.append(inputs[0].node.op.name)

    run(graph_of("tanh(-x)", takes="x: float32[3]"), look, negative_to_subtract)
    assert seen == ["subtract"]


def test_a_rule_may_root_at_a_trait():
    names = []

    @rule(ELEMENTWISE, before="", after="")
    def look(node, inputs):
        names.append(node.op.name)

    run(graph_of("sum(exp(x) + 1)", takes="x: float32[3]"), look)
    assert names == ["exp", "add"]


def test_the_first_rule_that_fits_wins():
    _, hits = run(graph_of("-x", takes="x: float32[3]"), negative_to_subtract, negative_to_multiply)
    assert hits == {"negative_to_subtract": 1}


def test_an_idle_run_shares_every_node():
    before = graph_of("exp(x) * 2", takes="x: float32[3]")
    after, hits = run(before, negative_to_subtract)
    assert not hits
    assert all(a is b for a, b in zip(before.nodes, after.nodes, strict=True))
    assert after.outputs[0] is before.outputs[0]


def test_the_graph_that_was_given_is_not_touched():
    before = graph_of("tanh(exp(x))", takes="x: float32[3]")
    nodes, lines = list(before.nodes), structure(before)
    run(before, exp_to_tanh)
    assert before.nodes == nodes
    assert structure(before) == lines


def test_rules_that_undo_each_other_are_named_with_the_line():
    with pytest.raises(PassError) as failure:
        run(graph_of("-x", takes="x: float32[3]"), negative_to_multiply, multiply_to_negative)
    text = str(failure.value)
    assert "negative_to_multiply ↔ multiply_to_negative" in text
    assert "did not settle in 120 rewrites" in text
    assert "  at   <string>:1" in text


def test_rules_that_loop_below_the_root_are_named_too():
    @rule(lookup("tanh"), before="", after="")
    def wrap(node, inputs):
        return F.tanh(F.exp(F.tanh(inputs[0])))

    with pytest.raises(PassError, match="did not settle in 120 rewrites: wrap at tanh"):
        run(graph_of("tanh(x)", takes="x: float32[3]"), wrap)


def test_a_long_chain_is_within_the_budget():
    with gf.Graph() as g:
        x = y = gf.placeholder((3,), name="x")
        for _ in range(3000):
            y = F.exp(y)
    graph, hits = run(derive(g, [y]), exp_to_tanh, negative_to_subtract)
    assert hits == {"exp_to_tanh": 3000, "negative_to_subtract": 3000}
    assert len(graph.nodes) == 6001
    assert x.node in graph.nodes


def test_a_rule_that_changes_the_type_is_named():
    @rule(lookup("exp"), before="", after="")
    def widen(node, inputs):
        return F.broadcast_to(inputs[0], (2, 3))

    with pytest.raises(PassError, match=r"the rule widen makes \(float32\[2, 3\],\) of exp"):
        run(graph_of("exp(x)", takes="x: float32[3]"), widen)


def test_a_rule_that_raises_is_named_with_the_line():
    @rule(lookup("exp"), before="", after="")
    def broken(node, inputs):
        raise KeyError("axes")

    with pytest.raises(PassError, match="the rule broken failed at exp: 'axes'") as failure:
        run(graph_of("exp(x)", takes="x: float32[3]"), broken)
    assert failure.value.at.file == "<string>"
    assert isinstance(failure.value.__cause__, KeyError)


def test_new_nodes_take_the_place_of_the_one_they_replace():
    with gf.Graph() as g, gf.name_scope("layer"):
        y = F.exp(gf.placeholder((3,), name="x"))
    graph, _ = run(derive(g, [y]), exp_to_tanh)
    for node in graph.nodes[1:]:
        assert node.loc == y.node.loc
        assert node.loc.layer == "layer"


def test_what_the_caller_has_open_does_not_leak_into_new_nodes():
    graph = graph_of("exp(x)", takes="x: float32[3]")
    rules = RuleSet("test", (exp_to_tanh,))
    with gf.Graph(), gf.no_grad(), gf.name_scope("outer"):
        after = run_pipeline(graph, [rules], verify="off").graph
        alone = rules(graph)
    assert ops_of(after) == ops_of(alone) == ["placeholder", "negative", "tanh"]


def test_a_root_is_a_class_or_a_trait():
    with pytest.raises(gf.ArgumentError, match="'tanh' is no class of ops") as caught:
        rule("tanh", before="", after="")
    assert caught.value.fix == "write gf.extend.lookup('tanh')"
    with pytest.raises(gf.ArgumentError, match="no class of ops"):
        rule((lookup("tanh"), 3), before="", after="")


@pytest.fixture
def ops():
    """Define elementwise ops of another package by their traits."""

    def define(name, *traits):
        class Made(gf.Op):
            vjp = NONDIFF

            def shape(self, *xs):
                return xs[0]

            def dtype(self, *xs):
                return xs[0]

            def eval(self, xp, *xs):
                return xs[0]

        Made.traits = gf.Op.traits.union(traits)
        return gf.op(f"rules.{name}")(Made)()

    yield define
    for name in [name for name in REGISTRY if name.startswith("rules.")]:
        del REGISTRY[name]


def test_ops_of_other_packages_are_simplified_by_their_traits(ops):
    undone, settled = ops("undone", INVOLUTION), ops("settled", IDEMPOTENT)
    tag, plain = ops("tag", TRANSPARENT), ops("plain")
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        once = gf.apply(settled, x)
        same = [
            (gf.apply(undone, gf.apply(undone, x)), x),
            (gf.apply(settled, once), once),
            (gf.apply(settled, once, once), once),
            (gf.apply(tag, x), x),
            (kept := gf.apply(plain, gf.apply(plain, x)), kept),
        ]
    graph = rebuild(SIMPLIFY(derive(g, [a for pair in same for a in pair])))
    for found, wanted in zip(graph.outputs[::2], graph.outputs[1::2], strict=True):
        assert found is wanted
    assert [node.op for node in graph.nodes].count(plain) == 2
