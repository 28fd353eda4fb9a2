"""Random small graphs: lowered and interpreted, they give what the reference evaluation gives."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphfw as gf
from graphfw.ir.dim import symbol
from graphfw.ir.functions import F
from graphfw.transforms.grad import grad
from tests.support.lowering import assert_lowered

N = symbol("n")
UNARY = ("tanh", "exp", "square", "negative", "abs", "sigmoid", "relu", "cos")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
SHAPES = ((4, "n"), ("n",), (4, 1), (), (2, 4, "n"), ("n", 4))


def grow(draw, tensors):
    """Return a new tensor made of those there are."""

    def pick(condition=lambda t: True):
        return draw(st.sampled_from([t for t in tensors if condition(t)]))

    kind = draw(st.sampled_from(KINDS))
    x = pick()
    if kind == "unary":
        # Kept in bounds, so that errors don't grow from op to op.
        return F.tanh(getattr(F, draw(st.sampled_from(UNARY)))(x))
    if kind == "binary":
        y = draw(st.sampled_from([t for t in tensors if broadcasts(x.shape, t.shape)]))
        return getattr(F, draw(st.sampled_from(BINARY)))(x, y)
    if kind == "where":
        y = draw(st.sampled_from([t for t in tensors if t.shape == x.shape]))
        return F.where(x > y, x, y * 0.5)
    if kind == "reduce":
        axes = draw(st.sampled_from([(), *range(x.ndim), tuple(range(x.ndim))]))
        name = draw(st.sampled_from(("mean", "sum", "max", "min")))
        result = getattr(F, "sum" if name == "mean" else name)(
            x, axis=axes, keepdims=draw(st.booleans())
        )
        return F.tanh(result)
    if kind == "centre" and x.ndim:
        axis = draw(st.sampled_from(range(x.ndim)))
        return x - F.max(x, axis=axis, keepdims=True)
    if kind == "softmax" and x.ndim:
        return gf.softmax(x, axis=draw(st.sampled_from(range(x.ndim))))
    if kind == "matmul":
        y = [t for t in tensors if t.ndim == 2 and x.ndim >= 2 and t.shape[0] == x.shape[-1]]
        return F.tanh(x @ draw(st.sampled_from(y))) if y else x
    return moved(draw, x)


KINDS = ("unary", "unary", "binary", "binary", "binary", "where", "reduce", "reduce", "centre",
         "softmax", "matmul", "move", "move")  # fmt: skip


def broadcasts(a, b):
    pairs = list(zip(a[::-1], b[::-1], strict=False))
    return all(x == y or 1 in (x, y) for x, y in pairs)


def moved(draw, x):
    how = draw(st.sampled_from(("transpose", "flip", "part", "expand", "spread", "flat", "split")))
    if how == "transpose":
        return F.permute_dims(x, draw(st.permutations(range(x.ndim))))
    if how == "flip" and x.ndim:
        return F.flip(x, axis=draw(st.sampled_from(range(x.ndim))))
    if how == "part" and 4 in x.shape:
        axis = x.shape.index(4)
        return x[(slice(None),) * axis + (draw(st.sampled_from((slice(1, 4), slice(0, 4, 3)))),)]
    if how == "expand":
        return F.expand_dims(x, axis=draw(st.sampled_from(range(x.ndim + 1)))) if x.ndim < 4 else x
    if how == "spread" and x.ndim < 3:
        return F.broadcast_to(x, (2, *x.shape))
    if how == "flat":
        return F.reshape(x, (-1,))
    if how == "split" and 4 in x.shape:
        axis = x.shape.index(4)
        return F.reshape(x, (*x.shape[:axis], 2, 2, *x.shape[axis + 1 :]))
    return x


def graph_of(data):
    with gf.Graph() as g:
        tensors = [gf.placeholder(s, name=f"x{i}") for i, s in enumerate(SHAPES)]
        for _ in range(data.draw(st.integers(1, 14))):
            tensors.append(grow(data.draw, tensors))
        outputs = [tensors[-1], *data.draw(st.lists(st.sampled_from(tensors[6:]), max_size=3))]
    return g, tensors, outputs


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_graphs(data):
    g, _, outputs = graph_of(data)
    for n in (3, 1):
        assert_lowered(g, outputs, {"n": n})


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_gradients(data):
    g, tensors, outputs = graph_of(data)
    with g:
        total = sum(F.sum(t * 0.1) for t in outputs)
        wanted = grad(total, tensors[: len(SHAPES)], missing="zeros")
    assert_lowered(g, [*outputs, *wanted], {"n": 3})


@pytest.mark.slow
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_random_graphs(data):
    g, _, outputs = graph_of(data)
    assert_lowered(g, outputs, {"n": 3})
