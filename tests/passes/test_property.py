"""Random small graphs: the default pipeline keeps every bit, and leaves a graph that verifies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfw as gf
from graphfw.ir.dim import symbol
from graphfw.ir.functions import F
from graphfw.ir.rebuild import derive
from graphfw.passes.manager import run_pipeline
from graphfw.passes.pipelines import DEFAULT
from tests.passes.helpers import assert_same_bits, hard_draw

FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("inf"), float("nan"), 3.0)
INTS = (0, 1, 2, 3)
UNARY = ("negative", "abs", "floor", "sign", "exp", "identity", "stop_gradient", "square")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "pow")
COMPARE = ("less", "equal")


def grow(draw, tensors):
    """Add one random op to a list of tensors, all of a shape that broadcasts to [3, n]."""

    def pick():
        return draw(st.sampled_from(tensors))

    kind = draw(st.sampled_from(("unary", "binary", "binary", "scalar", "scalar", "scalar", "where",
                                 "move", "move", "reduce", "cast", "twin")))  # fmt: skip
    x = pick()
    if kind == "unary":
        return getattr(F, draw(st.sampled_from(UNARY)))(x)
    if kind == "binary":
        return getattr(F, draw(st.sampled_from(BINARY)))(x, pick())
    if kind == "scalar":
        value = draw(st.sampled_from(FLOATS if x.dtype.is_floating else INTS))
        scalar = np.full(draw(st.sampled_from(((), (1,), (3, 1)))), value).astype(x.dtype.dtype)
        pair = (x, scalar) if draw(st.booleans()) else (scalar, x)
        return getattr(F, draw(st.sampled_from(BINARY)))(*pair)
    if kind == "where":
        condition = getattr(F, draw(st.sampled_from(COMPARE)))(pick(), pick())
        condition = draw(st.sampled_from((condition, F.logical_not(condition), gf.asarray(True))))
        return F.where(condition, x, pick())
    if kind == "cast":
        return x.astype(draw(st.sampled_from((gf.float64, gf.float32)))).astype(x.dtype)
    if kind == "reduce":
        name = draw(st.sampled_from(("sum", "max", "min", "prod")))
        axis = draw(st.sampled_from([(), *range(x.ndim)]))
        return getattr(F, name)(x, axis=axis, keepdims=True)
    if kind == "twin":
        return F.add(x, x) if draw(st.booleans()) else F.maximum(x, x)
    return moved(draw, x)


def moved(draw, x):
    """Move elements about and back, or spread them."""
    how = draw(st.sampled_from(("round and back", "flat and back", "spread", "flip", "expand")))
    if how == "round and back":
        first, second = (draw(st.permutations(range(x.ndim))) for _ in range(2))
        back = sorted(range(x.ndim), key=[first[axis] for axis in second].__getitem__)
        return F.permute_dims(F.permute_dims(F.permute_dims(x, first), second), back)
    if how == "flat and back":
        return F.reshape(F.reshape(F.reshape(x, (-1,)), (1, -1)), x.shape)
    if how == "flip":
        return F.flip(F.flip(x, axis=0), axis=0) if x.ndim else x
    if how == "expand":
        return F.broadcast_to(F.reshape(x, (1,) * (2 - x.ndim) + x.shape), (3, symbol("n")))
    return F.broadcast_to(x, (3, symbol("n")))


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_graphs_keep_every_bit(dtype, data):
    with gf.Graph() as g:
        shapes = ((3, "n"), ("n",), (3, 1), ())
        tensors = [gf.placeholder(s, dtype, name=f"x{i}") for i, s in enumerate(shapes)]
        for _ in range(data.draw(st.integers(1, 12))):
            new = grow(data.draw, tensors)
            if new.dtype == dtype:  # else integers became floats
                tensors.append(new)
    graph = derive(g, [tensors[-1], *data.draw(st.lists(st.sampled_from(tensors), max_size=2))])
    after = run_pipeline(graph, DEFAULT, verify="each").graph
    assert [t.type for t in after.outputs] == [t.type for t in graph.outputs]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    # The extreme of nothing is an error.
    extremes = any(node.op.name in ("max", "min") for node in graph.nodes)
    for size in (4, 1) if extremes else (4, 1, 0):
        assert_same_bits(graph, after, hard_draw(graph, rng, size))
