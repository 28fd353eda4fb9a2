"""Concatenations that are taken apart again."""

from collections import Counter

import numpy as np
import pytest

from graphfw.ir.rebuild import derive
from graphfw.passes.scalarise_stacks import ScalariseStacks
from tests.passes.helpers import assert_same_bits, graph_of, hard_draw, ops_of

ROWS = "x: float32[4]; y: float32[4]; z: float32[3, 4]"


def split(*expressions, takes=ROWS, **options):
    graph = graph_of(*expressions, takes=takes)
    hits = Counter()
    made = ScalariseStacks(**options).run(graph, hits)
    assert_same_bits(graph, made, hard_draw(graph, np.random.default_rng(0)))
    return graph, made if made is graph else derive(made, made.outputs), hits


@pytest.mark.parametrize(
    "expression",
    [
        "concat([x, y])[4:]",
        "(concat([x, y]) * 2)[1:3]",
        "exp(concat([x, y]))[:4]",
        "(stack([x, y, x]) * z + z)[1]",
        "(stack([x, y, x]) * z[:, 2:3] - x)[2]",
        "(stack([x, y, x], axis=1) + stack([y, y, x], axis=1))[:, 1]",
        "where(z[0, 0] > 0, concat([x, y]), 1)[5:7]",
        "flip((stack([x, y]) + x)[0:1], axis=1)",
        "(concat([z, z * 2]) * 3)[4, 1:2]",
        "(concat([x[:1], x[:0]]) * y[:1])[:0]",
    ],
)
def test_inputs_are_computed_by_themselves(expression):
    _, made, hits = split(expression)
    assert "concat" not in ops_of(made)
    assert hits["taken"] == 1


def test_whole_is_put_together_once_at_the_end():
    _, made, hits = split("(lambda v: v * 2 + v[0])(sin(stack([x, y, x]) + z))")
    assert ops_of(made).count("concat") == 1
    assert ops_of(made)[-1] != "slice"
    assert hits["split"] == 4


@pytest.mark.parametrize(
    "expression",
    [
        "exp(concat([x, y]))",  # no slice
        "exp(concat([x, y]))[3:5]",  # over a border
        "exp(concat([x, y]))[::2]",
        "exp(concat([z, z], axis=1))[1]",  # along another axis
        "sum(stack([x, y]) * 2, axis=0)[1:]",  # not elementwise
    ],
)
def test_others_stay(expression):
    graph, made, _ = split(expression)
    assert made is graph


def test_one_slice_over_a_border_keeps_all_together():
    takes = "w: float32[8]"
    shared = "(lambda v: v[3:5] + v[:2])(exp(concat([w, w * 2])))"
    graph, made, _ = split(shared, takes=takes)
    assert made is not graph  # w ends at 8: both lie in it
    graph, made, _ = split(shared.replace("[3:5]", "[7:9]"), takes=takes)
    assert made is graph


def test_many_inputs_stay():
    graph, made, _ = split("(stack([x, y, x]) * 2)[1]", most_inputs=2)
    assert made is graph


def test_inputs_of_unknown_size_stay():
    takes = "x: float32[n, 2]; y: float32[n, 2]"
    graph, made, _ = split("(concat([x, y]) * 2)[1:2]", takes=takes)
    assert made is graph
