"""Joins that begin or end as others do."""

from collections import Counter

import numpy as np

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.passes.nest_concats import NestConcats
from graphfw.passes.values import SampleInputs, evaluated


def nested(g, outputs):
    """Return the rewritten graph, and the number of inputs of its joins."""
    graph = NestConcats().run(derive(g, outputs), Counter())
    return graph, [len(node.inputs) for node in graph.nodes if node.op.name == "concat"]


def sections(count, axis=0):
    return [gf.placeholder((3, 4), name=f"p{number}") for number in range(count)]


def test_each_is_an_input_of_the_next(rng):
    with gf.Graph() as g:
        a, b, c, d = sections(4)
        outputs = [gf.concat(x, axis=1) for x in ([a, b], [a, b, c], [d, a, b, c])]
        outputs += [gf.sin(gf.concat([b, a], axis=1)), gf.concat([d, outputs[2] * 2], axis=1)]
    graph, counts = nested(g, outputs)
    assert counts == [2, 2, 2, 2, 2]
    feeds = {t.node: rng.standard_normal((3, 4), dtype=np.float32) for t in (a, b, c, d)}
    for new, old in zip(
        evaluated(graph, SampleInputs(feeds, {})),
        evaluated(derive(g, outputs), SampleInputs(feeds, {})),
        strict=True,
    ):
        np.testing.assert_array_equal(new, old)


def test_others_are_left_as_they_are():
    with gf.Graph() as g:
        a, b, c = sections(3)
        outputs = [
            gf.concat([a, b], axis=0),
            gf.concat([a, b, c], axis=1),
            gf.concat([a, c, b], axis=0),
            gf.concat([b, b], axis=0),
        ]
    graph, counts = nested(g, outputs)
    assert counts == [2, 3, 3, 2]
    assert graph.nodes == derive(g, outputs).nodes


def test_the_longest_is_taken():
    with gf.Graph() as g:
        a, b, c, d = sections(4)
        outputs = [gf.concat(x) for x in ([a, b], [b, c, d], [a, b, c, d], [a, b, c, d])]
    _, counts = nested(g, outputs)
    assert counts == [2, 3, 2, 2]
