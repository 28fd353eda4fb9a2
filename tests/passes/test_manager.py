"""Running passes: reports, levels of checking, dumps, bisection, errors."""

import errno
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, GraphError, PassError, VerifyError
from graphfw.ir.functions import F
from graphfw.ir.op import lookup
from graphfw.ir.rebuild import derive, rebuild
from graphfw.ir.tensor import Node
from graphfw.ir.types import TensorType
from graphfw.passes.base import Pass
from graphfw.passes.cse import CSE
from graphfw.passes.dce import EliminateDeadCode
from graphfw.passes.fold_constants import FoldConstants
from graphfw.passes.manager import PassReport, run_pipeline, table
from graphfw.passes.pipelines import DEFAULT, SIMPLIFY
from graphfw.passes.rules import RuleSet, rule
from graphfw.passes.values import evaluated, same_values
from tests.passes.helpers import graph_of, raw


@rule(lookup("add"), before="x + 0.0", after="x")
def drop_any_constant(node, inputs):
    return inputs[0] if inputs[1].node.op.name == "constant" else None


@dataclass(frozen=True)
class Failing(Pass):
    name = "failing"

    def run(self, graph, hits):
        raise ZeroDivisionError("no luck")


@dataclass(frozen=True)
class WrongType(Pass):
    """Says that a node has another type than its op infers."""

    name = "wrong-type"

    def run(self, graph, hits):
        result = rebuild(graph)
        for path, node in enumerate(result.nodes):
            if node.op.name == "exp":
                lie = (TensorType(gf.float64, node.types[0].shape),)
                result.nodes[path] = Node(node.op, node.inputs, lie, node.loc, "", result)
        return result


def test_reports_and_their_table():
    graph = graph_of("(x + -0.0) * exp(asarray(0.0))", takes="x: float32[3]")
    result = run_pipeline(graph, DEFAULT, verify="each")
    assert [report.name for report in result.reports] == [one.name for one in DEFAULT]
    assert result.reports[0].before == len(graph.nodes)
    assert result.reports[-1].after == len(result.graph.nodes) == 1
    simplify = DEFAULT.index(SIMPLIFY)
    assert result.reports[simplify].hits == {"neutral_operand": 2}
    assert all(report.ms > 0 for report in result.reports)
    lines = table(result.reports).splitlines()
    assert lines[0].split() == ["pass", "nodes", "ms", "rewrites"]
    assert "neutral_operand 2" in lines[1 + simplify]
    assert lines[-1].startswith("total")
    assert table([]) == "no passes"


def test_table_lists_hits_by_name():
    text = table([PassReport("a", 3, 2, {"y": 1, "x": 2}, 1.0), PassReport("long", 2, 2, {}, 0.5)])
    assert text.splitlines() == [
        "pass   nodes     ms  rewrites",
        "a     3 -> 2   1.00  x 2, y 1",
        "long  2 -> 2   0.50  -",
        "total 3 -> 2   1.50",
    ]


def test_only_derived_graphs():
    with gf.Graph() as g:
        gf.placeholder((3,), name="x")
    with pytest.raises(GraphError, match="derive it first"):
        run_pipeline(g, DEFAULT)


class TestFailures:
    def test_a_failing_pass_is_named_with_those_before_it(self):
        graph = graph_of("exp(x)", takes="x: float32[3]")
        with pytest.raises(PassError) as failure:
            passes = [FoldConstants(), CSE(), Failing(), EliminateDeadCode()]
            run_pipeline(graph, passes, verify="off")
        text = str(failure.value)
        failed = "the pass failing failed (after fold-constants, cse)"
        assert f"{failed}: ZeroDivisionError: no luck" in text
        assert "GRAPHFW_STOP_AFTER=2" in text
        assert isinstance(failure.value.__cause__, ZeroDivisionError)

    def test_the_line_of_the_node_is_kept(self):
        @rule(lookup("exp"), before="", after="")
        def broken(node, inputs):
            raise KeyError("axes")

        graph = graph_of("exp(x)", takes="x: float32[3]")
        with pytest.raises(PassError, match="the pass rules failed: the rule broken") as failure:
            run_pipeline(graph, [RuleSet("rules", (broken,))])
        assert failure.value.at == graph.outputs[0].node.loc

    def test_a_pass_that_breaks_the_graph_is_named(self):
        graph = graph_of("exp(x)", takes="x: float32[3]")
        with pytest.raises(PassError, match=r"wrong-type failed \(after fold-constants\): it bro"):
            run_pipeline(graph, [FoldConstants(), WrongType(), EliminateDeadCode()], verify="each")

    def test_at_level_ends_the_passes_are_named_together(self):
        graph = graph_of("exp(x)", takes="x: float32[3]")
        with pytest.raises(
            PassError, match="one of the passes fold-constants, wrong-type broke the graph"
        ):
            run_pipeline(graph, [FoldConstants(), WrongType()], verify="ends")
        run_pipeline(graph, [FoldConstants(), WrongType()], verify="off")

    def test_a_graph_that_was_broken_before_is_no_passes_fault(self):
        graph = graph_of("exp(x)", takes="x: float32[3]")
        graph.nodes.reverse()
        with pytest.raises(VerifyError, match="before it is made"):
            run_pipeline(graph, [EliminateDeadCode()], verify="ends")


class TestLevels:
    def test_the_environment_gives_the_level(self, monkeypatch):
        graph = graph_of("exp(x)", takes="x: float32[3]")
        monkeypatch.setenv("GRAPHFW_VERIFY", "off")
        run_pipeline(graph, [WrongType()])
        monkeypatch.setenv("GRAPHFW_VERIFY", "each")
        with pytest.raises(PassError, match="broke the graph"):
            run_pipeline(graph, [WrongType()])
        monkeypatch.delenv("GRAPHFW_VERIFY")
        run_pipeline(graph, [WrongType()])

    def test_no_such_level(self, monkeypatch):
        graph = graph_of("exp(x)", takes="x: float32[3]")
        with pytest.raises(ArgumentError, match="'all' is no level of checking"):
            run_pipeline(graph, [], verify="all")
        monkeypatch.setenv("GRAPHFW_VERIFY", "yes")
        with pytest.raises(ArgumentError, match="one of off, ends, each, values"):
            run_pipeline(graph, [])

    def test_stop_after(self, monkeypatch):
        graph = graph_of("exp(x)", takes="x: float32[3]")
        monkeypatch.setenv("GRAPHFW_STOP_AFTER", "2")
        result = run_pipeline(graph, [FoldConstants(), CSE(), Failing()])
        assert [report.name for report in result.reports] == ["fold-constants", "cse"]
        monkeypatch.setenv("GRAPHFW_STOP_AFTER", "-1")
        with pytest.raises(ArgumentError, match="GRAPHFW_STOP_AFTER='-1' is not a number"):
            run_pipeline(graph, [])


class TestValues:
    def check(self, graph, *rules):
        return run_pipeline(graph, [FoldConstants(), RuleSet("rules", rules)], verify="values")

    def test_a_wrong_rule_is_named_with_the_output(self):
        graph = graph_of("x * 1", "exp(x + 2.0)", takes="x: float32[3, n]")
        with pytest.raises(PassError) as failure:
            self.check(graph, *SIMPLIFY.rules, drop_any_constant)
        text = str(failure.value)
        failed = "the pass rules failed (after fold-constants)"
        assert f"{failed}: it changes the value of output 1" in text
        assert "by the rule drop_any_constant" in text
        assert "float32[3, n]" in text
        assert "on sample inputs the element [0, 0] was" in text
        assert failure.value.at == graph.outputs[1].node.loc

    def test_a_rule_that_is_wrong_for_nan_alone_is_found(self):
        @rule(lookup("multiply"), before="x * 0", after="zeros_like(x)")
        def zero(node, inputs):
            return F.zeros_like(inputs[0])

        with pytest.raises(PassError, match="by the rule zero"):
            self.check(graph_of("x * 0", takes="x: float32[40]"), zero)

    def test_a_wrong_pass_that_is_no_rule_set(self):
        @dataclass(frozen=True)
        class Wrong(Pass):
            name = "wrong"

            def run(self, graph, hits):
                return rebuild(graph, lambda n, i: i[0] if n.op.name == "exp" else None)

        graph = graph_of("exp(x)", takes="x: float32[3]")
        with pytest.raises(PassError) as failure:
            run_pipeline(graph, [Wrong()], verify="values")
        assert failure.value.summary == ("the pass wrong failed: it changes the value of output 0")

    def test_a_pass_that_changes_nothing_is_not_evaluated(self, monkeypatch):
        evaluations = []

        def counted(graph, draw):
            evaluations.append(graph)
            return evaluated(graph, draw)

        monkeypatch.setattr("graphfw.passes.values.evaluated", counted)
        graph = graph_of("exp(x) * 1", takes="x: float32[3]")
        run_pipeline(graph, [], verify="values")
        first = len(evaluations)
        assert first > 0
        run_pipeline(graph, [FoldConstants()], verify="values")
        assert len(evaluations) == 2 * first
        self.check(graph, *SIMPLIFY.rules)
        assert len(evaluations) == 4 * first

    def test_a_pass_whose_graph_cannot_be_evaluated_is_named(self):
        @rule(lookup("exp"), before="", after="")
        def to_new_placeholder(node, inputs):
            return raw("placeholder", dims=(3,), to=gf.float32)

        with pytest.raises(PassError, match="makes a graph that can't be evaluated"):
            self.check(graph_of("exp(x)", takes="x: float32[3]"), to_new_placeholder)

    @pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "bfloat16", "complex64"])
    def test_every_kind_of_feed(self, dtype):
        run_pipeline(graph_of("where(x == x, x, y)", takes=f"x: {dtype}[3, n]; y: {dtype}[]"),
                     DEFAULT, verify="values")  # fmt: skip

    def test_variables_and_random_draws(self):
        with gf.Graph() as g:
            w = gf.Variable([1.0, 2.0], name="w")
            y = gf.random.normal((2,)) * w + gf.random.normal((2,)) * 1
        run_pipeline(derive(g, [y, w]), DEFAULT, verify="values")

    def test_sizes_fit_what_is_asserted(self):
        with gf.Graph() as g:
            x = gf.placeholder((None, None, "k", "m"), name="x")
            y = gf.placeholder(("batch", 5, "j"), name="y")
            a = F.sum(gf.assert_shape(x, ("batch", 5, "j", "new")), axis=3)
            z = a + y + gf.assert_shape(F.sum(x, axis=(2, 3)), ("batch", 5))[:, :, None]
        run_pipeline(derive(g, [z]), DEFAULT, verify="values")

    def test_sizes_fit_what_is_asserted_in_a_body(self):
        with gf.Graph() as g:
            x = gf.placeholder(("n",), name="x")
            y = gf.cond(
                gf.asarray(True),
                lambda: gf.sum(gf.checkpoint(gf.exp)(gf.assert_shape(x, (3,)))),
                lambda: gf.asarray(0.0),
            )
        run_pipeline(derive(g, [y]), DEFAULT, verify="values")

    def test_sizes_fit_what_is_divided(self):
        graph = graph_of("raw('reshape', x, dims=(-1, 4))", takes="x: float32[n]")
        run_pipeline(graph, DEFAULT, verify="values")

    def test_integers_fit_as_indices(self):
        graph = graph_of("take(x, i, axis=0)", takes="x: float32[3]; i: int64[n]")
        run_pipeline(graph, DEFAULT, verify="values")

    def endless(self):
        with gf.Graph() as g:
            x = gf.placeholder((3,), name="x")
            # Samples are not so large, and grow no larger.
            loop = gf.while_loop(lambda v: gf.max(v) < 1e6, lambda v: v * 0.5, x)
            return g, x * 2 + 0.0, gf.sum(loop), x + 1.0

    @pytest.mark.slow
    def test_what_depends_on_an_endless_loop_is_left_out_and_said_so(self):
        g, plain, looped, moved = self.endless()
        with pytest.warns(RuntimeWarning, match=r"the loop made at .*\.py:\d+ makes more than 10"):
            run_pipeline(derive(g, [plain, looped]), DEFAULT, verify="values")
        wrong = RuleSet("wrong", (drop_any_constant,))
        with (
            pytest.warns(RuntimeWarning, match="has not been compared"),
            pytest.raises(PassError, match="changes the value of output 1"),
        ):
            run_pipeline(derive(g, [looped, moved]), [wrong], verify="values")

    def test_a_pass_that_makes_a_loop_endless_is_named(self):
        class Endless(Pass):
            name = "endless"

            def run(self, graph, hits):
                return derive(g, [other[0]])

        with gf.Graph() as g:
            x = gf.placeholder((), name="x")
            loop = gf.while_loop(lambda v: v[1] < 3, lambda v: (v[0], v[1] + 1), (x, 0))
            other = gf.while_loop(lambda v: v[1] < 3, lambda v: (v[0], v[1]), (x, 0))
        with pytest.raises(PassError, match="changes the value of output 0") as caught:
            run_pipeline(derive(g, [loop[0]]), [Endless()], verify="values")
        assert "makes more than 10,000 iterations" in caught.value.why

    def test_a_graph_without_any_sample_is_an_error(self):
        graph = graph_of("assert_shape(x, (2,)) + assert_shape(x, (3,))[:2]", takes="x: float32[n]")
        with pytest.raises(PassError, match="found no inputs on which the graph can be evaluated"):
            run_pipeline(graph, DEFAULT, verify="values")


def float8(numbers):
    return np.array(numbers, ml_dtypes.float8_e4m3fn)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (np.float32([1, 2]), np.float32([1, 2 + 1e-5]), True),
        (np.float32([1, 2]), np.float32([1, 2.01]), False),
        (np.float64([1, 2]), np.float64([1, 2 + 1e-6]), False),
        (np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]), True),
        (np.float32([np.inf]), np.float32([-np.inf]), False),
        (np.float32([1]), np.float32([np.nan]), False),
        (np.float32([1]), np.float64([1]), False),
        (np.float32([1]), np.float32([[1]]), False),
        (np.int32([1]), np.int32([2]), False),
        (np.complex64([1 + 1j]), np.complex64([1 + 2j]), False),
        (np.complex64([np.nan + 1j]), np.complex64([np.nan + 1j]), True),
        (float8([1, np.nan, 0, 64]), float8([1.125, np.nan, 2**-9, 60]), True),
        (float8([1]), float8([1.25]), False),
        (float8([0]), float8([2**-8]), False),
        (float8([1]), float8([np.nan]), False),
        (np.array([1, 2]).astype(ml_dtypes.int4), np.array([1, 3]).astype(ml_dtypes.int4), False),
        (np.array(complex(np.inf, 1)), np.array(complex(np.inf, np.nan)), True),
        (np.array(complex(np.inf, 1)), np.array(complex(1, 1)), False),
    ],
)
def test_same_values(a, b, same):
    assert same_values(a, b) is same


class TestDumps:
    def test_texts_before_and_after_each_pass(self, tmp_path):
        graph = graph_of("x * 1", takes="x: float32[3]")
        result = run_pipeline(graph, [SIMPLIFY, EliminateDeadCode()], dump=tmp_path / "dumps")
        folder = tmp_path / "dumps" / "0000"
        assert sorted(p.name for p in folder.iterdir()) == [
            "00-input.txt", "01-simplify.txt", "02-dce.txt",
        ]  # fmt: skip
        assert (folder / "00-input.txt").read_text(encoding="utf-8") == f"{graph}\n"
        assert (folder / "02-dce.txt").read_text(encoding="utf-8") == f"{result.graph}\n"

    def test_each_run_has_a_folder_of_its_own(self, tmp_path, monkeypatch):
        monkeypatch.setenv("GRAPHFW_DUMP", str(tmp_path))
        for _ in range(3):
            run_pipeline(graph_of("x * 1", takes="x: float32[3]"), [EliminateDeadCode()])
        assert sorted(p.name for p in tmp_path.iterdir()) == ["0000", "0001", "0002"]

    def test_a_folder_that_cannot_be_made_is_said(self, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("no folder")
        graph = graph_of("x * 1", takes="x: float32[3]")
        for path in (tmp_path / "file", tmp_path / "file" / "dumps"):
            monkeypatch.setenv("GRAPHFW_DUMP", str(path))
            with pytest.raises(ArgumentError) as caught:
                run_pipeline(graph, [EliminateDeadCode()])
            assert caught.value.summary.startswith(f"can't write graphs to {str(path)!r}: ")
            assert "GRAPHFW_DUMP" in caught.value.fix
            assert isinstance(caught.value.__cause__, OSError)

    def test_a_text_that_cannot_be_written_is_said(self, tmp_path, monkeypatch):
        def full(*_, **__):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_text", full)
        with pytest.raises(ArgumentError, match="0000': No space left on device"):
            run_pipeline(
                graph_of("x * 1", takes="x: float32[3]"), [EliminateDeadCode()], dump=tmp_path
            )

    def test_a_failing_pass_leaves_the_graph_it_was_given(self, tmp_path):
        graph = graph_of("x * 1", takes="x: float32[3]")
        with pytest.raises(PassError):
            run_pipeline(graph, [FoldConstants(), Failing()], dump=tmp_path)
        assert sorted(p.name for p in (tmp_path / "0000").iterdir()) == [
            "00-input.txt", "01-fold-constants.txt",
        ]  # fmt: skip


def test_the_default_pipeline_has_nothing_left_to_do_the_second_time():
    takes = "x: float32[3, n]; y: float32[n]"
    graph = graph_of("-(-x) * 1 + (x + -y) / 4 + (-y + x)", "where(True, x, x)", takes=takes)
    once = run_pipeline(graph, DEFAULT).graph
    twice = run_pipeline(once, DEFAULT)
    assert [n.op for n in twice.graph.nodes] == [n.op for n in once.nodes]
    assert all(not report.hits for report in twice.reports)


def test_a_size_that_no_tensor_has():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        after = gf.asarray(x.shape[0]) + 1
    run_pipeline(derive(g, [after]), DEFAULT, verify="values")
