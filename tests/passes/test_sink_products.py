"""Products with a matrix are computed only for the rows that are read."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.passes.sink_products import SinkProductsBelowSlices
from graphfw.passes.values import SampleInputs, evaluated
from tests.passes.test_sink_elementwise import check_values


def sunk(g, *outputs):
    """Return the rewritten graph and how many slices were moved."""
    hits: Counter[str] = Counter()
    return SinkProductsBelowSlices().run(derive(g, outputs), hits), hits["sunk"]


def product_shapes(graph):
    return sorted([str(n.types[0]) for n in graph.nodes if n.op.name == "matmul"])


def test_the_logits_of_the_last_position(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("h", "w", 3), name="x")
        table = gf.placeholder((3, 7), name="table")
        bias = gf.placeholder((7,), name="bias")
        last = gf.tanh(x @ table + bias)[:, -1]
    graph, count = sunk(g, last)
    assert count == 1
    assert product_shapes(graph) == ["float32[h, 1, 7]"]
    check_values(g, graph, [last], rng)


@pytest.mark.parametrize(
    "index",
    [np.s_[1], np.s_[:, 2:4], np.s_[-1:], np.s_[1, ::3], np.s_[:1, 1], np.s_[:2, :2]],
    ids=str,
)
def test_rows_of_batches(index, rng):
    with gf.Graph() as g:
        x = gf.placeholder((4, 6, 3), name="x")
        rows = gf.placeholder((6, 1), name="rows")
        last = ((x @ gf.placeholder((3, 5), name="w")) * rows)[index]
    graph, count = sunk(g, last)
    assert count == 1
    assert [t for t in product_shapes(graph) if t != "float32[4, 6, 5]"]
    check_values(g, graph, [last], rng)


def test_all_of_a_perceptron(rng):
    with gf.Graph() as g:
        x = gf.placeholder((6, 3), name="x")
        a, b, c = (
            gf.placeholder(shape, name=name)
            for name, shape in (("a", (3, 8)), ("b", (3, 8)), ("c", (8, 2)))
        )
        gated = gf.tanh(x @ a) * (x @ b)
        last = (gated @ c + gf.sum(x))[4:]
    graph, count = sunk(g, last)
    assert count == 1
    assert product_shapes(graph) == ["float32[2, 2]", "float32[2, 8]", "float32[2, 8]"]
    feeds = {t.node: rng.standard_normal(t.shape).astype(np.float32) for t in g.placeholders}
    values = SampleInputs(feeds, {})
    (new,), (old,) = evaluated(graph, values), evaluated(derive(g, [last]), values)
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def test_long_chains():
    with gf.Graph() as g:
        y = gf.placeholder((6, 3), name="x") @ gf.placeholder((3, 3), name="w")
        for _ in range(2000):
            y = gf.sin(y)
        last = y[0]
    assert sunk(g, last)[1] == 0


def stays(name):
    """Return a graph of which nothing is moved, and its outputs."""
    with gf.Graph() as g:
        x, w = gf.placeholder((6, 4), name="x"), gf.placeholder((4, 4), name="w")
        y = x @ w
        outputs = {
            "read twice": lambda: [y[0], gf.sum(y)],
            "an output": lambda: [y[0], y],
            "two slices": lambda: [y[0], y[1]],
            "most rows": lambda: [y[1:]],
            "columns": lambda: [y[:, 0]],
            "matrices": lambda: [gf.matmul(gf.reshape(x, (2, 3, 4)), gf.stack([w, w]))[0]],
            "no product": lambda: [gf.exp(x)[0]],
            "broadcast": lambda: [(y + gf.placeholder((5, 6, 4), name="z"))[0]],
        }[name]()
    return g, outputs


@pytest.mark.parametrize(
    "name",
    [
        "read twice", "an output", "two slices", "most rows", "columns", "matrices", "no product",
        "broadcast",
    ],
)  # fmt: skip
def test_what_stays(name):
    g, outputs = stays(name)
    assert sunk(g, *outputs)[1] == 0


def test_an_index_that_is_out_of_range_is_an_error_as_before():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        third = (x @ gf.ones((3, 2)))[2]
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session.run(third, {x: np.ones((3, 3), np.float32)}), [3, 3])
        with pytest.raises((gf.ExecutionError, gf.FeedError)):
            session.run(third, {x: np.ones((2, 3), np.float32)})


def test_a_prompt_is_read_for_its_last_logits(rng):
    """And the tokens are those of all logits."""
    config = gf.models.GPT2Config(
        vocab_size=61, max_length=32, embed_dim=16, num_heads=2, num_layers=1
    )
    with gf.Graph() as g:
        prompts = gf.placeholder(("batch", "length"), "int64", name="prompts")
        texts = gf.nn.generate(gf.models.GPT2(config), prompts, 6)
    fed = {prompts: rng.integers(0, 61, (3, 9))}
    with gf.Session(g) as session, gf.Session(g, debug=True) as described:
        plan = session.compile(texts, feeds=[prompts])
        assert not [n for n in plan.program.graph.nodes if "length, 61]" in str(n.types[0])]
        described.load_state_dict(session.state_dict())
        np.testing.assert_array_equal(session.run(texts, fed), described.run(texts, fed))
