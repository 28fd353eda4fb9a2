"""Mistakes in shapes."""

from __future__ import annotations

import numpy as np

import graphfw as gf
from tests.mistakes.matrix import BUILD, mistake


@mistake(
    BUILD,
    gf.ShapeError,
    "matmul: contracting dims differ: x1[-1] = 128, x2[-2] = 64",
    "x",
    "w",
    fix="128 rows",
)
def matmul_dims():
    x = gf.placeholder(("batch", 128), name="x")  # x
    w = gf.placeholder((64, 10), name="w")  # w
    x @ w  # here


@mistake(BUILD, gf.ShapeError, "matmul: contracting dims differ", "w", fix="x2.mT")
def transposed_weights():
    x = gf.placeholder(("batch", 64), name="x")
    w = gf.Variable(np.zeros((10, 64), np.float32), name="w")  # w
    x @ w  # here


@mistake(BUILD, gf.ShapeError, "queries must have 2 dims or more, not 1", "word", fix="[None]")
def missing_batch_dim():
    word = gf.placeholder((28,), name="word")  # word
    gf.nn.MultiHeadAttention(28, 4)(word)  # here


@mistake(
    BUILD,
    gf.ShapeError,
    "a symbolic dim broadcasts with 1 and itself only",
    "x",
    "y",
    fix="assert_shape",
)
def symbol_with_int():
    x = gf.placeholder(("batch", 3), name="x")  # x
    y = gf.placeholder((5, 3), name="y")  # y
    x + y  # here


@mistake(
    BUILD,
    gf.ShapeError,
    "shapes don't broadcast: x1[-1] = 3, x2[-1] = 2",
    "h",
    "table",
    fix="make the dims equal",
)
def columns_beside_a_symbol():
    h = gf.placeholder(("batch", 3), name="h")  # h
    # The batch may well be 4, but 3 columns are no 2.
    table = gf.constant(np.zeros((4, 2), np.float32), name="table")  # table
    h + table  # here


@mistake(BUILD, gf.ShapeError, "x1[-1] = batch, x2[-1] = n", "x", "y", fix='"batch"')
def two_symbols():
    x = gf.placeholder(("batch",), name="x")  # x
    y = gf.placeholder(("n",), name="y")  # y
    x * y  # here


@mistake(BUILD, gf.ShapeError, "shapes don't broadcast: x1[-1] = 4, x2[-1] = 3", "x", "y", fix="")
def shapes_that_do_not_broadcast():
    x = gf.placeholder((2, 4), name="x")  # x
    y = gf.placeholder((2, 3), name="y")  # y
    gf.maximum(x, y)  # here


@mistake(BUILD, gf.ShapeError, "reshape: 12 elements don't divide into shape [-1, 5]", "x", fix="")
def reshape_that_can_not_divide():
    x = gf.placeholder((3, 4), name="x")  # x
    gf.reshape(x, (-1, 5))  # here


@mistake(
    BUILD, gf.ShapeError, "reshape: 12 elements don't fill shape [4, 4], which has 16", "x", fix=""
)
def reshape_of_wrong_size():
    x = gf.placeholder((3, 4), name="x")  # x
    x.reshape(4, 4)  # here


@mistake(BUILD, gf.ShapeError, "32*batch elements don't fill shape", "x", fix="-1")
def reshape_with_a_forgotten_batch():
    x = gf.placeholder(("batch", 32), name="x")  # x
    gf.reshape(x, (16, 2))  # here


@mistake(BUILD, gf.ShapeError, "concat", "x", "y", fix="")
def concat_mismatch():
    x = gf.placeholder(("batch", 3), name="x")  # x
    y = gf.placeholder(("batch", 4), name="y")  # y
    gf.concat([x, y], axis=0)  # here


@mistake(BUILD, gf.ShapeError, "stack", "x", "y", fix="")
def stack_mismatch():
    x = gf.placeholder((3,), name="x")  # x
    y = gf.placeholder((4,), name="y")  # y
    gf.stack([x, y])  # here


@mistake(
    BUILD,
    gf.AxisError,
    "sum: axis 2 is out of range for 2 dims",
    "x",
    fix="-2 to 1",
    builtin=IndexError,
)
def wrong_axis():
    x = gf.placeholder((3, 4), name="x")  # x
    gf.sum(x, axis=2)  # here


@mistake(BUILD, gf.ShapeError, "squeeze: dim 0 has size 3, not 1", "x", fix="")
def squeeze_of_a_full_dim():
    x = gf.placeholder((3, 4), name="x")  # x
    gf.squeeze(x, axis=0)  # here


@mistake(
    BUILD,
    gf.AxisError,
    "index 5 is out of range for dim 0 of size 3",
    "x",
    fix="",
    builtin=IndexError,
)
def index_out_of_range():
    x = gf.placeholder((3, 4), name="x")  # x
    x[5]  # here


@mistake(BUILD, gf.ShapeError, "too many indices", "x", fix="", builtin=ValueError)
def too_many_indices():
    x = gf.placeholder((3, 4), name="x")  # x
    x[0, 1, 2]  # here


@mistake(
    BUILD, gf.AxisError, "permute_dims: axis (0, 0) names a dim twice", "x", fix="each dim once"
)
def permutation_with_a_double():
    x = gf.placeholder((3, 4), name="x")  # x
    gf.permute_dims(x, (0, 0))  # here


@mistake(
    BUILD,
    gf.ShapeError,
    "contracting dims differ",
    "x",
    fix="Linear(in_features=64) receives 128 features: use in_features=128",
)
def linear_with_wrong_features_inside():
    x = gf.placeholder(("batch", 128), name="x")  # x
    model = gf.nn.Sequential(gf.nn.Flatten(), gf.nn.Sequential(gf.nn.Linear(64, 10)))
    model(x)  # here


@mistake(
    BUILD,
    gf.ShapeError,
    '"j" of "ij,jk->ik" has two sizes: 4 in operand 1, 5 in operand 2',
    "x",
    "y",
    fix="letters",
)
def einsum_sizes():
    x = gf.placeholder((3, 4), name="x")  # x
    y = gf.placeholder((5, 6), name="y")  # y
    gf.einsum("ij,jk->ik", x, y)  # here


@mistake(
    BUILD,
    gf.ShapeError,
    "target class indices must have shape [batch], not [n]",
    "logits",
    "labels",
    fix="one class index",
)
def labels_of_another_batch():
    logits = gf.placeholder(("batch", 10), name="logits")  # logits
    labels = gf.placeholder(("n",), gf.int64, name="labels")  # labels
    gf.nn.cross_entropy(logits, labels)  # here


@mistake(BUILD, gf.ShapeError, "update", "w", fix="")
def update_of_another_shape():
    w = gf.Variable([1.0, 2.0], name="w")  # w
    gf.update(w, gf.sum(w))  # here


@mistake(BUILD, gf.ShapeError, "'batch size' can't name a dim", fix="underscores")
def dim_name_with_a_space():
    gf.placeholder(("batch size", 3), name="x")  # here


@mistake(BUILD, gf.ShapeError, "a dim can't be -1", fix="None")
def negative_dim():
    gf.placeholder((-1, 3), name="x")  # here
