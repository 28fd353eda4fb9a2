"""The whole-graph passes: dead code, constants, common subexpressions."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.functions import F
from graphfw.ir.rebuild import derive
from graphfw.ir.verify import verify
from graphfw.passes.cse import CSE
from graphfw.passes.dce import EliminateDeadCode
from graphfw.passes.fold_constants import FoldConstants
from tests.passes.helpers import assert_same_bits, graph_of, hard_draw, ops_of, structure


def run(one, graph):
    hits = Counter()
    result = one.run(graph, hits)
    verify(result)
    return result, dict(hits)


class TestPrune:
    def test_drops_what_no_output_needs(self):
        graph = graph_of("exp(x)", "x * 2", takes="x: float32[3]")
        graph.outputs = graph.outputs[:1]
        after, hits = run(EliminateDeadCode(), graph)
        assert ops_of(after) == ["placeholder", "exp"]
        assert hits == {"dropped": 2}

    def test_keeps_a_check_that_an_output_needs(self):
        graph = graph_of("assert_shape(x, (4, 3)) * 2", takes="x: float32[n, 3]")
        assert run(EliminateDeadCode(), graph)[0] is graph

    def test_nothing_to_do_returns_the_graph_itself(self):
        graph = graph_of("exp(x)", takes="x: float32[3]")
        assert run(EliminateDeadCode(), graph) == (graph, {})


class TestFold:
    def test_large_transposed_matrices_stay_views_for_products(self, rng):
        w = rng.standard_normal((300, 200), np.float32)
        with gf.Graph() as graph:
            x = gf.placeholder((3, 200), name="x")
            transposed, small = gf.permute_dims(gf.constant(w), (1, 0)), gf.constant(w[:3].copy())
            y, z = x @ transposed, x @ gf.permute_dims(small, (1, 0))
            other = gf.exp(transposed)
        after, hits = run(FoldConstants(), derive(graph, [y, z]))
        assert ops_of(after).count("permute_dims") == 1
        assert hits == {"folded": 1}
        for outputs in ([y, transposed], [y, other]):  # others would compute it in each run
            assert "permute_dims" not in ops_of(run(FoldConstants(), derive(graph, outputs))[0])

    def test_computes_what_depends_on_constants_alone(self, rng):
        graph = graph_of("x + exp(asarray([1.0, 2.0]) * 3)", takes="x: float32[2]")
        after, hits = run(FoldConstants(), graph)
        after, _ = run(EliminateDeadCode(), after)
        assert sorted(ops_of(after)) == ["add", "constant", "placeholder"]
        assert hits == {"folded": 2}
        assert_same_bits(graph, after, hard_draw(graph, rng))

    def test_folds_what_has_several_outputs_or_no_inputs(self):
        graph = graph_of("arange(5) * 2", takes="")
        after, _ = run(EliminateDeadCode(), run(FoldConstants(), graph)[0])
        assert ops_of(after) == ["constant"]
        np.testing.assert_array_equal(after.nodes[0].op.value.array, np.arange(5) * 2)

    @pytest.mark.parametrize(
        "expression",
        [
            "broadcast_to(asarray(1.0), (10, 10))",  # a view repeats nothing, a constant does
            "x * 2",
            "assert_shape(asarray([1.0]), (1,)) * x",
            "broadcast_to(asarray(1.0), (n,))",
            "exp(broadcast_to(asarray(1.0), (n,)))",
            "zeros((10000, 10000)) + 1",
        ],
    )
    def test_leaves_alone(self, expression):
        graph = graph_of(expression, takes="x: float32[3]; y: float32[n]")
        assert run(FoldConstants(), graph) == (graph, {})

    @pytest.mark.parametrize("limit", [100, 100_000, np.inf])
    def test_leaves_long_loops_to_the_run(self, limit):
        with gf.Graph() as g:
            count = gf.while_loop(lambda n: n < limit, lambda n: n + 1.0, 0.0)
        after, _ = run(EliminateDeadCode(), run(FoldConstants(), derive(g, [count]))[0])
        assert ops_of(after)[-1] == ("constant" if limit == 100 else "loop")

    def test_limits_are_options(self):
        graph = graph_of("asarray([1.0] * 100) * 2", takes="")
        assert run(FoldConstants(max_bytes=399), graph)[1] == {}
        assert run(FoldConstants(max_bytes=400), graph)[1] == {"folded": 1}
        grown = graph_of("asarray([[1.0]] * 10) * np.ones(10, 'float32')", takes="")
        assert run(FoldConstants(small_bytes=399), grown)[1] == {}
        assert run(FoldConstants(small_bytes=400), grown)[1] == {"folded": 1}

    def test_random_draws_stay(self):
        with gf.Graph() as g:
            y = gf.random.normal((3,)) * 2
        assert run(FoldConstants(), derive(g, [y]))[1].get("folded", 0) == 0

    def test_an_evaluation_that_raises_is_left_to_run_time(self, monkeypatch):
        def boom(self, xp, x):
            raise FloatingPointError("boom")

        graph = graph_of("exp(asarray([1.0]))", takes="")
        monkeypatch.setattr(type(graph.outputs[0].node.op), "eval", boom)
        after, hits = run(FoldConstants(), graph)
        assert hits == {}
        assert ops_of(after) == ["constant", "exp"]

    def test_results_are_contiguous_and_keep_their_place(self):
        graph = graph_of("permute_dims(asarray([[1.0, 2.0], [3.0, 4.0]]), (1, 0))", takes="")
        after, _ = run(FoldConstants(), graph)
        (node,) = [n for n in after.nodes if n.op.value.array[0, 1] == 3]
        assert node.op.value.array.flags.c_contiguous
        assert node.loc == graph.outputs[0].node.loc

    def test_warnings_of_the_evaluation_are_silent(self):
        after, hits = run(FoldConstants(), graph_of("log(asarray([0.0, -1.0]))", takes=""))
        assert hits == {"folded": 1}
        assert after.outputs[0].node.op.value.array[0] == -np.inf


class TestCSE:
    def merged(self, *expressions, takes="x: float32[3]; y: float32[3]"):
        return run(CSE(), graph_of(*expressions, takes=takes))[1].get("merged", 0)

    @pytest.mark.parametrize(
        ("expressions", "merged"),
        [
            (("exp(x)", "exp(x)"), 1),
            (("exp(x)", "exp(y)"), 0),
            (("x + y", "y + x"), 1),
            (("x - y", "y - x"), 0),
            (("x * 2", "x * 2"), 2),
            (("x * 2", "x * 3"), 0),
            (("x * 0.0", "x * -0.0"), 0),
            (("exp(exp(x))", "exp(exp(x))"), 2),
            (("sum(x)", "sum(x, keepdims=True)"), 0),
            (("x * float('nan')", "x * float('nan')"), 2),
            (("asarray(np.ones(100))", "asarray(np.ones(100))"), 1),
            (("asarray(np.ones(100))", "asarray(np.zeros(100))"), 0),
            (("asarray(np.ones(3))", "asarray(np.ones(3, 'float32'))"), 0),
            (("x[0:2]", "x[0:2]"), 1),
        ],
    )
    def test_what_is_merged(self, expressions, merged):
        assert self.merged(*expressions) == merged

    def test_sources_and_random_draws_are_never_merged(self):
        with gf.Graph() as g:
            a, b = gf.Variable([1.0], name="a"), gf.Variable([1.0], name="b")
            c, d = gf.placeholder((1,), name="c"), gf.placeholder((1,), name="d")
            draw = gf.random.normal((1,))
            same = Counter(n for n in g.nodes if "random" in n.op.name)
        graph = derive(g, [a, b, c, d, draw])
        after, _ = run(CSE(), graph)
        assert sum("random" in name for name in ops_of(after)) == len(same)
        assert len({id(t) for t in after.outputs}) == 5

    def test_equal_draws_stay_two(self):
        with gf.Graph() as g:
            y = gf.random.normal((2,))
        draw = next(n for n in g.nodes if "random" in n.op.name)
        with g:
            twin = gf.ir.build.emit(draw.op, *draw.inputs)
        graph = derive(g, [y, twin])
        assert ops_of(run(CSE(), graph)[0]).count(draw.op.name) == 2

    def test_places_are_merged_and_names_kept(self):
        with gf.Graph() as g:
            x = gf.placeholder((3,), name="x")
            first = F.identity(x, name="h")
            second = F.identity(x)
            third = F.identity(x)
            y = first + second + third
        after, _ = run(CSE(), derive(g, [y]))
        (node,) = [n for n in after.nodes if n.op.name == "identity"]
        assert node.name == "h"
        assert node.loc.line == first.node.loc.line
        assert [loc.line for loc in node.loc.merged] == [
            second.node.loc.line,
            third.node.loc.line,
        ]

    def test_nodes_of_one_line_are_shared_not_copied(self):
        graph = graph_of("exp(x) + exp(x)", takes="x: float32[3]")
        first = next(n for n in graph.nodes if n.op.name == "exp")
        after, _ = run(CSE(), graph)
        assert first in after.nodes
        assert first.loc.merged == ()

    def test_nothing_to_do_returns_the_graph_itself(self):
        graph = graph_of("exp(x) + tanh(x)", takes="x: float32[3]")
        assert run(CSE(), graph) == (graph, {})

    def test_dead_nodes_merge_with_nothing(self):
        graph = graph_of("exp(x)", "exp(x) * 2", takes="x: float32[3]")
        graph.outputs = graph.outputs[1:]
        after, hits = run(CSE(), graph)
        assert hits == {}
        assert after.outputs[0].node.op.name == "multiply"

    def test_values_stay(self, rng):
        graph = graph_of("(x + y) * (y + x)", "x + y", takes="x: float32[3]; y: float32[3]")
        after, _ = run(CSE(), graph)
        assert structure(after) != structure(graph)
        for _ in range(5):
            assert_same_bits(graph, after, hard_draw(graph, rng))
