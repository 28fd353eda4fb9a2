"""Texts of errors that name what the user wrote: layers, dims, functions, graphs, and the mend."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.errors import counted
from graphfw.ir.dim import symbol


def text_of(make, error=gf.GraphfwError):
    with pytest.raises(error) as caught, gf.Graph():
        make()
    return str(caught.value)


def images(channels, name="x"):
    return gf.placeholder(("b", channels, 8, 8), name=name)


def rows(*sizes, name="x"):
    return gf.placeholder(("b", *sizes), name=name)


def test_a_skip_connection_behind_functions_is_projected():
    def block():
        x = images(3)
        y = nn.BatchNorm(8, axis=1)(nn.Conv2d(3, 8, 3, padding=1)(x))
        return gf.relu(y) * 0.5 + x

    fix = "make the channels of both as many: a 1×1 convolution, gf.nn.Conv2d(3, 8, 1), projects x2"
    assert fix in text_of(block)


def test_a_skip_connection_is_projected():
    def block():
        x = images(3)
        return nn.Conv2d(3, 8, 3, padding=1)(x) + x

    fix = "make the channels of both as many: a 1×1 convolution, gf.nn.Conv2d(3, 8, 1), projects x2"
    assert fix in text_of(block)
    with gf.Graph():
        x = images(3)
        y = nn.Conv2d(3, 8, 3, padding=1)(x) + nn.Conv2d(3, 8, 1)(x)  # as it says
    assert y.shape[1] == 8


def test_features_are_projected():
    text = text_of(lambda: nn.Linear(16, 32)(rows(16)) + rows(16, name="r"))
    assert "make the features of both as many: gf.nn.Linear(16, 32) projects x2" in text


def test_other_clashes_are_not_taken_for_skip_connections():
    text = text_of(lambda: nn.Linear(16, 32)(rows(16)) * rows(16, name="r"))
    assert "fix  make the dims equal, or one of them 1" in text
    text = text_of(lambda: rows(3) + gf.ones((2, 3, 4)))
    assert "x[:, None] and gf.expand_dims add such a dim" in text


@pytest.mark.parametrize("reduce", [gf.sum, gf.mean, gf.max, gf.var, gf.std, gf.argmax, gf.any])
def test_a_lost_axis_is_kept_by_keepdims(reduce):
    def wrong():
        x = gf.placeholder(("a", "b", 4), name="x")
        return gf.where(x > 0, x, reduce(x, axis=1))

    text = text_of(wrong)
    assert "keep the reduced dim: with keepdims=True in the reduction at test_error_texts" in text
    assert text.endswith("x2 is [a, 1, 4]")


REDUCTIONS = {
    name: function
    for name, function in vars(gf).items()
    if callable(function)
    and not name.startswith("_")
    and not isinstance(function, type)
    and {"axis", "keepdims"} <= inspect.signature(function).parameters.keys()
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_so_it_is_of_every_reduction(name):
    arguments = [0.3] if "quantile" in name or "percentile" in name else []

    def wrong():
        x = gf.placeholder(("a", "b", 4), name="x")
        given = x > 0 if name in ("any", "all") else x
        reduced = REDUCTIONS[name](given, *arguments, axis=1)
        return gf.where(x > 0, x, gf.astype(reduced, gf.float32) * 0.5)

    text = text_of(wrong)
    assert "keep the reduced dim: with keepdims=True in the reduction at test_error_texts" in text
    assert text.endswith("x2 is [a, 1, 4]")


def test_where_keepdims_would_not_help_it_is_not_advised():
    text = text_of(lambda: rows(4) / gf.sum(rows(4, 5, name="y"), axis=1))
    assert "fix  make the dims equal, or one of them 1" in text


def test_layers_show_their_weights_and_path():
    def norm():
        nn.Sequential(nn.Linear(3, 5), nn.BatchNorm(8))(rows(3))

    text = text_of(norm)
    assert 'weight  "sequential.1.weight"  float32[8]' in text
    assert "(layer sequential.1)" in text

    text = text_of(lambda: nn.LSTM(16, 4)(rows(5, 8)))
    assert 'weight  "lstm.weight_ih_l0"  float32[16, 16]' in text
    assert "(layer lstm)" in text

    text = text_of(lambda: nn.Sequential(nn.Conv2d(3, 8, 9))(images(3)))
    assert "the kernel 9 is larger than dim 2 of x: 8" in text
    assert 'weight  "sequential.0.weight"  float32[8, 3, 9, 9]' in text
    assert "(layer sequential.0)" in text

    text = text_of(lambda: nn.Sequential(nn.MaxPool2d(9))(images(3)))  # it has no weights
    assert "(layer sequential.0)" in text


def test_collected_errors_name_the_layer_too():
    with pytest.raises(gf.GraphErrors) as caught, gf.Graph(collect_errors=True):
        nn.Sequential(nn.Linear(4, 2))(rows(3))
    assert "(layer sequential.0)" in str(caught.value)


def test_labels_out_of_range_show_what_was_given():
    with gf.Graph() as g:
        z, y = rows(3, name="z"), gf.placeholder(("b",), gf.int64, name="y")
        loss = nn.cross_entropy(z, y)
    for debug in (False, True):
        with gf.Session(g, debug=debug) as session, pytest.raises(gf.ExecutionError) as caught:
            session.run(loss, {z: np.zeros((2, 3), np.float32), y: [0, 7]})
        text = str(caught.value)
        assert "cross_entropy: class index 7 is out of range: there are 3 classes" in text
        assert 'given  "y"  int64[b]       placeholder' in text
        assert "reshape" not in text
        assert "subtract" not in text


def test_constants_are_shown_as_the_function_that_made_them():
    text = text_of(lambda: gf.zeros((3, 5)) @ gf.ones((4, 5)))
    assert "x1   float32[3, 5]  zeros" in text
    assert "x2   float32[4, 5]  ones" in text
    assert "float32[2]  full" in text_of(lambda: gf.full((2,), 7.0) + rows())


MADE = {
    "linspace": lambda: gf.linspace(0, 1, 3),
    "eye": lambda: gf.eye(3),
    "tril": lambda: gf.tril(gf.ones((3, 3))),
    "random.normal": lambda: gf.random.normal((3,)),
    "var": lambda: gf.var(gf.ones((3, 2)), axis=1),
    "log_softmax": lambda: gf.log_softmax(gf.ones(3)),
    "getitem": lambda: gf.ones((2, 3))[0],
    "asarray": lambda: gf.asarray([1.0, 2.0, 3.0]),
    "nanmax": lambda: gf.nanmax(gf.ones((3, 2)), axis=1),
}


@pytest.mark.parametrize("name", MADE)
def test_operands_are_shown_as_the_function_that_made_them(name):
    text = text_of(lambda: MADE[name]() + rows(4, 4))
    assert re.search(rf"x1 +float32\[[3, ]+\] +{re.escape(name)} ", text), text


def test_dims_without_any_name_are_none():
    def wrong():
        return gf.placeholder((None, 784)) + gf.placeholder((None, 784))

    text = text_of(wrong)
    assert "_dim" not in text
    assert "dim.shape" not in text
    assert "float32[None, 784]" in text
    with gf.Graph():
        x = gf.placeholder((None, 784), name="x")
        assert repr(x).startswith('<Tensor "x" float32[None, 784] from placeholder at')
        assert repr(gf.std(x)).startswith("<Tensor float32[] from std at")


def test_layers_show_what_they_were_given():
    text = text_of(lambda: nn.PReLU(5)(rows(3)))
    assert 'weight  "p_relu.weight"  float32[5]' in text
    text = text_of(lambda: nn.Sequential(nn.Embedding(9, 2))(rows(3)))
    assert "Embedding: indices must be integers, not float32" in text
    assert "(layer sequential.0)" in text


def test_dims_without_a_name_are_shown_as_they_are_written():
    def wrong():
        x = gf.placeholder((None, 784), name="x")
        return x + gf.placeholder((5, 784), name="y")

    text = text_of(wrong)
    assert 'x1   "x"  float32[None, 784]' in text
    assert "x1[-2] = x.shape[0], x2[-2] = 5" in text
    assert "if `x.shape[0]` is always 5, say so with gf.assert_shape" in text
    assert "_x_0" not in text


def test_the_text_of_a_graph_is_quoted_as_it_is():
    with pytest.raises(gf.ParseError) as caught:
        gf.parse('graph {\n  %0 = placeholder("x") : float32[_x_0] wrong\n}')
    assert "x.shape" not in str(caught.value)


def test_heads_that_divide_are_advised():
    text = text_of(lambda: nn.MultiHeadAttention(512, 7))
    assert "fix  use num_heads=8, which divides 512" in text


def test_both_graphs_are_named():
    with gf.Graph("first"):
        x = rows(3)
    with gf.Graph():
        gf.placeholder((), name="begin")
        with pytest.raises(gf.GraphError) as caught:
            gf.exp(x)
    text = str(caught.value)
    assert (
        'it belongs to the graph "first"; open is the graph begun at test_error_texts.py:' in text
    )


def test_branches_and_carries_of_other_shapes():
    def branch(*shape):
        return lambda: gf.ones(shape)

    def choose(a, b):
        return lambda: gf.cond(gf.placeholder((), gf.bool), branch(*a), branch(*b))

    assert "return one shape from both: pad the smaller with gf.pad" in text_of(choose((3,), (4,)))
    fix = "return one shape from both: gf.broadcast_to(value, (4, 3))"
    assert fix in text_of(choose((1, 3), (4, 3)))

    def growing():
        return gf.scan(
            lambda c, x: (gf.concat([c, x[None]]), None), gf.zeros((1,)), gf.placeholder((5,))
        )

    text = text_of(growing)
    assert "a carry can't grow: start with an array of the final size and write with " in text
    assert "gf.index_set, or in gf.scan return what is added as y: ys stacks it" in text
    text = text_of(lambda: gf.fori_loop(0, 3, lambda i, c: c[0], gf.ones((2, 3))))
    assert "fix  start with, and return, one shape: [2, 3]" in text


@pytest.mark.parametrize("dtype", [gf.int64, gf.float32])
def test_a_tensor_is_no_dim(dtype):
    text = text_of(lambda: gf.zeros((gf.placeholder((), dtype), 4)), gf.ConcreteValueError)
    assert f"zeros: a dim can't be a tensor that a run computes: {dtype.name}[]" in text
    assert "fix  use a symbolic dim: that of a placeholder's shape, or x.shape[0]" in text
    assert gf.zeros((gf.asarray(2), 4)).shape == (2, 4)  # this one has a value


def test_an_int_of_a_tensor_without_value():
    def wrong():
        return list(range(gf.placeholder((), gf.int64, name="n")))

    assert "a Python int wants a value, and this tensor has none" in text_of(wrong)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: gf.permute_dims(gf.ones(3), (0, 1)), "1 dim"),
        (lambda: gf.roll(gf.ones(3), (1, 2), axis=0), "2 shifts for 1 axis"),
        (lambda: gf.matrix_transpose(gf.ones(3)), "1 dim"),
    ],
)
def test_one_of_a_thing_is_in_the_singular(make, shown):
    assert re.search(rf"\b{shown}\b", text_of(make))


def test_numbers_are_counted_with_their_nouns():
    assert [counted(n, "dim") for n in (0, 1, np.int64(1), 12345)] == [
        *("0 dims", "1 dim", "1 dim", "12,345 dims")
    ]
    assert counted(1, "axis", "axes") == "1 axis"
    assert counted(symbol("n"), "axis", "axes") == "n axes"
    plain = re.compile(r"\{len\([^{}]*\)\} (?:dims|values|tensors|inputs|elements|axes|entries)\b")
    folder = Path(gf.__file__).parent
    found = [p for p in folder.rglob("*.py") if plain.search(p.read_text("utf-8"))]
    assert not found, "write counted(len(…), noun)"


def test_reprs_count_in_the_singular():
    with gf.Graph() as g:
        gf.placeholder((), name="x")
    assert repr(g) == "<Graph: 1 node, 0 variables>"
    f = gf.function(lambda x: x)
    f(np.ones(2, np.float32))
    assert repr(f).endswith("1 build>")
