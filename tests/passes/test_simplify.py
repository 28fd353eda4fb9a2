"""The default rules: each from its own before and after, and what they must leave alone."""

import re

import pytest

from graphfw.errors import DTypeError
from graphfw.ir.rebuild import rebuild
from graphfw.ir.verify import verify
from graphfw.passes.manager import run_pipeline
from graphfw.passes.pipelines import DEFAULT, SIMPLIFY
from tests.passes.helpers import assert_same_bits, graph_of, hard_draw, ops_of, structure

RULES = SIMPLIFY.rules
DTYPES = ("float16", "bfloat16", "float64", "complex64", "int8", "int32", "uint8", "bool")


def simplified(graph):
    return rebuild(SIMPLIFY(graph))


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
class TestEachRule:
    def test_before_becomes_after(self, rule):
        before = graph_of(rule.before, takes=rule.takes)
        after = graph_of(rule.after, takes=rule.takes)
        assert structure(before) != structure(after)
        assert structure(simplified(before)) == structure(after)

    def test_values_stay(self, rule, rng):
        before = graph_of(rule.before, takes=rule.takes)
        after = simplified(before)
        for _ in range(10):
            assert_same_bits(before, after, hard_draw(before, rng))

    def test_fires_in_the_default_pipeline(self, rule):
        result = run_pipeline(graph_of(rule.before, takes=rule.takes), DEFAULT, verify="values")
        assert sum(report.hits.get(rule.name, 0) for report in result.reports) > 0

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_values_stay_in_other_dtypes(self, rule, dtype, rng):
        takes = re.sub(r"\bfloat\d+", dtype, rule.takes)
        try:
            before = graph_of(rule.before, takes=takes)
        except DTypeError:
            pytest.skip("no such op for this dtype")
        after = simplified(before)
        verify(after)
        for _ in range(5):
            assert_same_bits(before, after, hard_draw(before, rng))


def test_rule_names_are_unique():
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)


def nodes_left(expression: str, takes: str) -> list[str]:
    return [name for name in ops_of(simplified(graph_of(expression, takes=takes)))
            if name not in ("placeholder", "constant")]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("x + -0.0", "float32"),
        ("-0.0 + x", "float16"),
        ("x + 0", "int32"),
        ("x - 0", "float32"),
        ("x - 0", "int8"),
        ("x * 1", "bfloat16"),
        ("x * ones((3, 1))", "float32"),
        ("x / 1", "float64"),
        ("x // 1", "int32"),
        ("x ** 1", "float32"),
        ("x ** 1", "int64"),
        ("x & -1", "int16"),
        ("x & True", "bool"),
        ("x | 0", "uint8"),
        ("False ^ x", "bool"),
        ("x << 0", "int32"),
        ("x >> 0", "int32"),
        ("maximum(x, -inf)", "float32"),
        ("minimum(inf, x)", "float16"),
        ("x + (-0.0 - 0j)", "complex64"),
        ("prod(x, axis=())", "float32"),
        ("sum(x, axis=())", "int64"),
        ("abs(abs(x))", "int32"),
        ("astype(astype(x, float32), int8)", "int8"),
        ("astype(astype(x, float64), float16)", "float32"),
        ("astype(astype(x, int32), float64)", "bool"),
        ("astype(astype(x, int64), uint8)", "int32"),
        ("astype(astype(x, float16), float32)", "float8_e5m2"),
        ("astype(astype(x, int8), float32)", "int4"),
        ("reshape(reshape(x, (n, 3)), (3, n))", "float32"),
        ("matrix_transpose(matrix_transpose(x))", "bool"),
    ],
)
def test_neutral(expression, dtype, rng):
    graph = graph_of(expression, takes=f"x: {dtype}[3, n]")
    assert len(nodes_left(expression, f"x: {dtype}[3, n]")) <= 1  # a lone astype may be left
    for _ in range(5):
        assert_same_bits(graph, simplified(graph), hard_draw(graph, rng))


@pytest.mark.parametrize(
    ("expression", "dtype", "kept"),
    [
        ("x + 0.0", "float32", "add"),  # -0.0 + 0.0 is 0.0
        ("x - -0.0", "float32", "subtract"),
        ("x * 0", "float32", "multiply"),  # NaN, infinities
        ("x * 1", "complex64", "multiply"),  # (inf + 0j) * (1 + 0j) has a NaN
        ("x / 1", "complex64", "divide"),
        ("x ** 1", "complex64", "pow"),
        ("1 / x", "float32", "divide"),
        ("0 - x", "float32", "subtract"),
        ("1 - x", "int32", "subtract"),
        ("x // 1", "float32", "floor_divide"),
        ("x / 3", "float32", "divide"),
        ("x / 0", "float32", "divide"),
        ("x / inf", "float32", "divide"),
        ("x / 1e-45", "float32", "divide"),
        ("x & 1", "int32", "bitwise_and"),
        ("maximum(x, inf)", "float32", "maximum"),
        ("sum(x, axis=())", "float32", "sum"),  # begins with 0.0
        ("max(x, axis=0)", "float32", "max"),
    ],
)
def test_left_alone(expression, dtype, kept):
    assert kept in nodes_left(expression, f"x: {dtype}[3, n]")


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("astype(astype(x, int32), int8)", "float32"),
        ("astype(astype(x, float64), int8)", "float32"),
        ("astype(astype(x, float32), float64)", "int64"),
        ("astype(astype(x, float16), float32)", "float32"),
        ("astype(astype(x, float16), bfloat16)", "bfloat16"),
        ("astype(astype(x, uint64), int32)", "int32"),
        ("astype(astype(x, bool), float32)", "float32"),
        ("astype(astype(x, float16), float32)", "float8_e8m0fnu"),  # 2^127 becomes infinite
        ("astype(astype(x, int16), float32)", "float8_e5m2"),
        ("astype(astype(x, uint8), float32)", "int4"),
        ("astype(astype(x, complex64), complex128)", "float32"),
    ],
)
def test_conversions_that_lose_something_stay(expression, dtype):
    assert nodes_left(expression, f"x: {dtype}[3, n]") == ["astype", "astype"]


def test_chains_of_conversions_keep_the_bits(rng):
    names = ("bool", "int8", "uint8", "int32", "uint32", "int64",
             "float16", "bfloat16", "float32", "float64")  # fmt: skip
    shorter = 0
    for first in names:
        for middle in names:
            for last in names:
                graph = graph_of(f"astype(astype(x, {middle}), {last})", takes=f"x: {first}[17]")
                after = simplified(graph)
                if len(after.nodes) < len(graph.nodes):
                    shorter += first != middle != last
                    assert_same_bits(graph, after, hard_draw(graph, rng))
    assert shorter > 100


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("-x + y", "y - x"),
        ("-x - -y", "y - x"),
        ("where(asarray(False), x, y)", "broadcast_to(y, (3, n))"),
        ("flip(flip(x, axis=0), axis=1)", "flip(flip(x, axis=0), axis=1)"),
        ("x / -0.25", "x * -4.0"),
        ("where(x < y, broadcast_to(y, (3, n)), x)", "where(x < y, y, x)"),
    ],
)
def test_rewrites(before, after, rng):
    takes = "x: float32[3, n]; y: float32[n]"
    graph = graph_of(before, takes=takes)
    assert structure(simplified(graph)) == structure(graph_of(after, takes=takes))
    for _ in range(5):
        assert_same_bits(graph, simplified(graph), hard_draw(graph, rng))


def test_division_by_powers_of_two_keeps_the_bits(rng):
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for divisor in (2.0, -0.5, 2.0**-14, 2.0**10, 4096.0):
            graph = graph_of(f"x / {divisor!r}", takes=f"x: {dtype}[50, n]")
            after = simplified(graph)
            assert "divide" not in ops_of(after)
            assert_same_bits(graph, after, hard_draw(graph, rng))


def test_operands_are_spread_where_the_other_one_was_larger(rng):
    graph = graph_of("x * ones((3, n))", takes="x: float32[n]")
    after = simplified(graph)
    assert "multiply" not in ops_of(after)
    assert after.outputs[0].type == graph.outputs[0].type
    assert_same_bits(graph, after, hard_draw(graph, rng))


def test_a_reshape_that_proves_nothing_stays():
    takes = "x: float32[n]"
    graph = graph_of("raw('reshape', raw('reshape', x, dims=(-1, 2)), dims=(-1,))", takes=takes)
    assert ops_of(simplified(graph)).count("reshape") == 2


def test_bottom_up_chains_settle_in_one_run(rng):
    takes = "x: float32[3, n]; y: float32[n]"
    graph = graph_of("-(-(-(-(-x * 1)))) + (-(y - 0))", takes=takes)
    after = simplified(graph)
    assert structure(after) == structure(graph_of("-x - y", takes=takes))
    assert_same_bits(graph, after, hard_draw(graph, rng))


def test_outputs_keep_their_order_and_may_become_one_tensor():
    graph = graph_of("x * 1", "-x", "identity(x)", takes="x: float32[3]")
    after = simplified(graph)
    assert [t.node.op.name for t in after.outputs] == ["placeholder", "negative", "placeholder"]
    assert after.outputs[0] is after.outputs[2]


def test_where_drops_the_branch_not_taken():
    graph = graph_of("where(False, exp(x), y)", takes="x: float32[3]; y: float32[3]")
    assert ops_of(simplified(graph)) == ["placeholder"]


def test_only_small_constants_are_searched_for_their_value():
    small, large = (graph_of(f"x * np.ones({n}, 'float32')", takes=f"x: float32[{n}]")
                    for n in (1000, 2000))  # fmt: skip
    assert "multiply" not in ops_of(simplified(small))
    assert "multiply" in ops_of(simplified(large))


def test_constants_of_unlike_elements_are_no_neutral_operands():
    for text in ("[1.0, 1.0, 2.0]", "[[1.0], [2.0]]", "np.zeros((0, 3), 'float32')"):
        assert "multiply" in ops_of(simplified(graph_of(f"x * {text}", takes="x: float32[1, 3]")))


def test_long_chains_of_concat_stay_linear():
    graph = graph_of("functools.reduce(lambda y, _: concat([y, x]), range(1000), x)",
                     takes="x: float32[2]")  # fmt: skip
    after = simplified(graph)
    assert sum(len(node.inputs) for node in after.nodes) < 1100
    assert after.outputs[0].type == graph.outputs[0].type


@pytest.mark.parametrize(
    "expression",
    [
        "concat(split(x, 3, axis=0)[::-1], axis=0)",
        "concat(split(x, 3, axis=0)[:2], axis=0)",
        "concat(split(x, 3, axis=0), axis=1)",
        "concat([*split(x, 3, axis=0), x], axis=0)",
        "concat([concat([x, x], axis=0), concat([x, x], axis=0)], axis=1)",
    ],
)
def test_sections_that_are_put_together_otherwise(expression, rng):
    graph = graph_of(expression, takes="x: float32[3, n]")
    after = simplified(graph)
    assert "concat" in ops_of(after)
    assert_same_bits(graph, after, hard_draw(graph, rng))
