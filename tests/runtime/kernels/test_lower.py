"""Lowered groups, interpreted, give what the reference evaluation gives."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.dim import symbol
from graphfw.ir.functions import F
from graphfw.ir.op import REGISTRY
from graphfw.transforms.grad import grad
from tests.support.lowering import assert_lowered


def f32(*shape, name="x"):
    return gf.placeholder(shape, name=name)


def elementwise():
    x, y = f32("n", 7), f32(7, name="y")
    return [F.exp(x) * y + 1.0, F.tanh(x)]


def one_long_axis():
    x, y = f32("n", 3, 4), f32("n", 3, 4, name="y")
    return [F.where(x > y, x, y * 2.0)]


def row_and_column_broadcast():
    x, r, c = f32("n", 6), f32("n", 1, name="r"), f32(6, name="c")
    return [(x + r) * c]


def transposed_input():
    x, y = f32(4, "n"), f32("n", 4, name="y")
    return [F.exp(x.T) + y]


def transposed_in_tiles():
    return [f32("n", 130).T + 1.0, F.sum(f32("n", 70, name="y").T * 2.0)]


def sliced_input():
    x = f32("n", 9)
    return [F.exp(x[:, 1:8:2]) + x[:, 2:6] * 2.0]


def flipped_input():
    x = f32("n", 5)
    return [F.flip(x, axis=(0, 1)) * x]


def diagonal():
    x = f32(2, 5, 5)
    return [F.diagonal(x, offset=1) * 2.0, F.diagonal(x, offset=-2) * 2.0]


def written_out_and_tiled():
    """The sum computes elements anew that the tiles, whose reshape mixes axes, read from memory."""
    x = f32(2, 1, 3)
    y = F.cumulative_sum(F.tanh(x), axis=-1) + f32(name="s")
    twice = gf.tile(gf.tile(y, (2, 1)), (2, 1))
    return [F.sum(F.sin(y) * F.sum(y)) + F.sum(F.sin(twice))]


def split_sections():
    a, b, c = F.split(f32("n", 9), (2, 5), axis=1)
    return [F.exp(b[:, :2]) + a, c * 2.0]


def reshape_of_transpose():
    x = f32(4, "n")
    return [F.reshape(x.T, (-1,)) * 2.0, F.reshape(F.exp(x).T, (-1, 2))]


def split_and_merged_dims():
    x = f32("n", 12)
    y = F.reshape(F.exp(x), (-1, 3, 4))
    return [F.permute_dims(y, (1, 0, 2)) + 1.0, F.sum(y, axis=2)]


def views_as_outputs():
    x = f32("n", 3)
    y = F.exp(x)
    return [y.T, y[:, 1:], F.broadcast_to(y, (2, symbol("n"), 3)), F.reshape(y, (-1,)), x.T]


def positions():
    n = symbol("n")
    x = f32("n", 5)
    rows = F.expand_dims(F.positions(n), axis=1)
    return [F.where(rows >= F.positions(5), x, -np.inf), F.tril(x), gf.arange(2, n + 2) * 3]


def dim_values():
    x = f32("n", 5)
    return [F.sum(x, axis=0) / gf.dim_size(x, 0), x * 2.0]


def log_softmax():
    return [gf.log_softmax(f32("n", 11), axis=-1)]


def softmax_of_leading_axis():
    return [gf.softmax(f32(6, "n"), axis=0)]


def softmax_of_middle_axis():
    return [gf.softmax(f32("n", 4, 5), axis=1)]


def reductions():
    x = f32("n", 5, 3)
    return [
        F.sum(x, axis=2),
        F.sum(x, axis=1),
        F.sum(x, axis=0),
        F.sum(x, axis=(0, 2)),
        F.prod(x, axis=(1, 2), keepdims=True),
        F.sum(x),
        F.all(x > 0, axis=1),
        F.any(x > 1, axis=(0, 1, 2)),
    ]


def extremes():
    x = f32("n", 5, 3)
    return [F.max(x, axis=1), F.min(x, axis=(0, 2)), F.max(x), F.argmax(x, axis=1)]


def ranges():
    x = f32("n", 5)
    return [F.argmax(x, axis=0), F.argmin(x, axis=1, keepdims=True), F.argmax(x)]


def nothing_reduced():
    x = f32("n", 1, 3)
    return [F.sum(x, axis=1), F.sum(x, axis=()), F.argmax(x, axis=1), F.max(x, axis=1) * 2.0]


def variance():
    x = f32("n", 7)
    return [F.var(x, axis=1), F.std(x, axis=0)]


def norms():
    x = f32("n", 7)
    return [
        gf.vector_norm(x, axis=1),
        gf.vector_norm(x),
        x / gf.vector_norm(x, axis=-1, keepdims=True),
    ]


def scalars():
    x = f32()
    y = F.exp(x) + 1.0
    return [y, F.sqrt(y) / x, x > y]


def mixed_small_and_large():
    x, s = f32("n", 5), f32(name="s")
    return [x * F.exp(s), F.sum(x) * s, s + 1.0]


def embedding():
    table, ids = f32(4, 6), gf.placeholder(("n", 3), gf.int32, name="ids")
    return [F.take(table, ids, axis=0) + f32(3, 6, name="at"), F.take(table, ids, axis=1)]


def picks():
    x, i = f32("n", 5), gf.placeholder(("n",), gf.int64, name="i")
    rows = F.positions(symbol("n"))
    return [emit(REGISTRY["gather"](0), gf.log_softmax(x, axis=-1), rows, i), F.sum(x, axis=1)]


def narrow_floats():
    x = gf.placeholder(("n", 6), gf.float16, name="x")
    y = gf.placeholder((6,), gf.bfloat16, name="y")
    return [F.exp(x) * 3.0 + 1.0, F.sum(x, axis=1), gf.softmax(x, axis=1), F.tanh(y), F.sum(y)]


def integers():
    x = gf.placeholder(("n", 6), gf.int32, name="x")
    y = gf.placeholder((6,), gf.uint8, name="y")
    return [x // 3 + x % 2, F.sum(x, axis=0), F.max(y), y + y, F.sum(y)]


def complex_numbers():
    x = gf.placeholder(("n", 3), gf.complex64, name="x")
    return [F.real(x) * 2.0, x.T * x.T, F.sum(x)]


def products():
    a, b, c = f32("n", 4, name="a"), f32(4, 5, name="b"), f32(5, name="c")
    return [F.tanh(a @ b + c)]


def products_of_views():
    a, b = f32(4, "n", name="a"), f32(5, 4, name="b")
    return [F.exp(a.T @ b.T), a.T @ b[:3].T]


def batched_products():
    a, b, c = f32(2, "n", 4, name="a"), f32(4, 5, name="b"), f32("n", 5, name="c")
    return [(a @ b) * 2.0, (a @ b) + c, F.exp(a @ b), gf.softmax(a @ b, axis=-1)]


def products_of_one():
    a, b, c = f32("n", 4, name="a"), f32(4, 1, name="b"), f32(1, 4, name="c")
    return [F.exp(a @ b), F.exp(c @ a.T), F.exp(c @ b)]


def product_before_reduction():
    a, b, c = f32("n", 4, name="a"), f32(4, 5, name="b"), f32("n", 5, name="c")
    h = a @ b + c
    return [h, gf.softmax(F.tanh(h), axis=-1)]


def needed_twice():
    x = f32("n", 5)
    m = F.max(F.exp(x), axis=1, keepdims=True)
    return [F.exp(x) / m, m, F.sum(F.exp(x) - m, axis=1), F.sum(F.exp(x) * m, axis=0)]


def read_in_two_orders():
    x = f32(4, 4)
    y = F.exp(x)
    return [y + y.T, F.sum(y, axis=0, keepdims=True) + F.sum(y, axis=1, keepdims=True)]


def batch_norm():
    x = f32("n", 5)
    mean = F.mean(x, axis=0, keepdims=True)
    centred = x - mean
    return [centred / F.sqrt(F.mean(centred * centred, axis=0, keepdims=True) + 1e-5)]


def batch_norm_of_images():
    x = f32("n", 3, 4, 4)
    mean = F.mean(x, axis=(0, 2, 3), keepdims=True)
    centred = x - mean
    return [centred / F.sqrt(F.mean(centred * centred, axis=(0, 2, 3), keepdims=True) + 1e-5)]


def group_norm():
    x = f32("n", 6, 4)
    y = F.reshape(x, (-1, 3, 8))
    y = (y - F.mean(y, axis=2, keepdims=True)) * 2.0
    return [F.reshape(y, (-1, 6, 4)) + f32(6, 1, name="scale")]


def pairs():
    x, y = f32("n", 3), f32("n", 5, 3, name="y")
    apart = x[:, None, None, :] - y[None, :, :, :]
    near = F.sum(apart * apart, axis=3)
    return [
        F.sum(F.exp(-near), axis=(1, 2)),
        F.max(F.abs(apart) * 2.0, axis=3, keepdims=True) + near[..., None],
        F.sum(F.prod(apart, axis=3), axis=0),
        F.min(F.reshape(apart, (-1, 3)), axis=1),
    ]


def pairs_of_narrow_floats_and_integers():
    x = gf.placeholder(("n", 2), gf.float16, name="x")
    i = gf.placeholder(("n", 3), gf.int8, name="i")
    return [
        F.sum(x[:, None, :] * x[None, :, :], axis=2),
        F.max(i[:, None, :] + i[None, :, :], axis=2),
    ]


def read_across_by_all_rows():
    x, w = f32("n", 40), f32(40, 20, name="w")
    return [x[:, None, :] * w.T + w.T[:, ::-1], F.sum(F.tanh(x[:, None, :] * w.T), axis=2)]


def reduced_after_reshapes():
    x = f32("n", 4, 6)
    flat = F.exp(F.reshape(x, (-1, 6)))
    back = F.reshape(flat, x.shape)
    return [
        F.sum(back, axis=(0, 1)),
        F.max(F.reshape(flat, (-1, 4, 6)), axis=2),
        F.sum(F.reshape(F.permute_dims(x, (1, 0, 2)), (-1, 6)), axis=0, keepdims=True),
        F.sum(back, axis=1),
    ]


def sums_with_something_done_to_them():
    x, m, v = f32("n", 40), f32(40, name="m"), f32(40, name="v")
    total, other = F.sum(x, axis=0), F.sum(F.exp(x), axis=0)
    moment = 0.9 * m + total
    mean = F.sum(x) / 7.0
    return [moment, v - moment / F.sqrt(F.abs(m) + 1.0), other * 2.0 + other, mean, mean * mean]


def sums_of_two_kinds_together():
    x = f32("n", 6)
    a, b = F.sum(x, axis=0), F.max(F.exp(x), axis=0)
    return [a + b, b, F.sum(x) + F.max(x)]


def concats():
    x = f32("n", 3)
    y = F.exp(x)
    return [F.concat([x, y], axis=1), F.sum(F.concat([x, y], axis=0), axis=0) + 1.0]


def joined_sections():
    x, w = f32("n", 3), f32(6, 2, name="w")
    sections = [F.exp(x), F.tanh(x) * 2.0]
    rows = [section - F.sum(section, axis=1, keepdims=True) for section in sections]
    wide = F.stack([F.sin(x), F.cos(x)], axis=1)
    narrow = [F.astype(section, gf.float16) for section in sections]
    return [
        F.concat(sections, axis=1) @ w, F.concat([*sections, sections[0]], axis=0), sections[1],
        F.concat(rows, axis=1), wide, F.concat(narrow, axis=1), F.sum(F.concat(rows, axis=0)),
    ]  # fmt: skip


def gates():
    x, w, b = f32("n", 4), f32(4, 12, name="w"), f32(12, name="b")
    enter, forget, work_item, leave = F.split(F.sin(x @ w + b), 4, axis=-1)
    state = F.sigmoid(forget) + F.sigmoid(enter) * F.tanh(work_item)
    again = F.concat([state, F.tanh(leave), F.exp(work_item)], axis=1)
    return [F.sigmoid(leave) * state, again]


def gates_of_batches():
    x, w, z = f32(3, "n", 4), f32(3, 4, 6, name="w"), f32("n", 6, name="z")
    y = x @ w + z
    return [y[..., 2:4] * y[..., :2] - y[..., 2:4], F.exp(x @ w)]


CASES = [
    elementwise, one_long_axis, row_and_column_broadcast, transposed_input, sliced_input,
    transposed_in_tiles,
    flipped_input, split_sections, written_out_and_tiled, split_and_merged_dims, views_as_outputs,
    positions, log_softmax, softmax_of_leading_axis, softmax_of_middle_axis,
    reductions, nothing_reduced, embedding, picks,
    narrow_floats, integers, complex_numbers, products, products_of_views, batched_products,
    products_of_one, group_norm, concats, joined_sections, gates, gates_of_batches,
    pairs_of_narrow_floats_and_integers,
    read_across_by_all_rows, sums_with_something_done_to_them,
]  # fmt: skip
NOT_EMPTY = [
    extremes, ranges, dim_values, norms, variance, scalars, mixed_small_and_large, needed_twice,
    reshape_of_transpose, diagonal, read_in_two_orders, batch_norm, batch_norm_of_images,
    product_before_reduction, pairs, reduced_after_reshapes, sums_of_two_kinds_together,
]  # fmt: skip


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("build", [*CASES, *NOT_EMPTY])
@pytest.mark.parametrize("how", ["interpreted", "native", "cuda"])
def test_it_computes_the_same(build, how):
    with gf.Graph() as g:
        outputs = build()
    sizes = [6, 2] + [0] * (build in CASES)
    for n in sizes:
        assert_lowered(g, outputs, {"n": n}, how=how)


LARGE = [
    elementwise, softmax_of_middle_axis, reductions, needed_twice, transposed_in_tiles,
    sums_with_something_done_to_them,
]  # fmt: skip


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("build", LARGE)
@pytest.mark.parametrize("how", ["interpreted", "native", "cuda"])
def test_many_work_items(build, how):
    with gf.Graph() as g:
        outputs = build()
    assert_lowered(g, outputs, {"n": 2100}, how=how)


@pytest.mark.parametrize("how", ["interpreted", "native"])
def test_many_elements_of_each_row(how):
    with gf.Graph() as g:
        outputs = read_across_by_all_rows()
    assert_lowered(g, outputs, {"n": 300}, how=how)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "build",
    [log_softmax, batch_norm, batch_norm_of_images, needed_twice, products, picks, embedding,
     product_before_reduction, softmax_of_leading_axis, norms, group_norm,
     pairs, reduced_after_reshapes, sums_with_something_done_to_them],
)  # fmt: skip
@pytest.mark.parametrize("how", ["interpreted", "native", "cuda"])
def test_gradients(build, how):
    with gf.Graph() as g:
        outputs = build()
        total = sum(F.sum(F.tanh(t)) for t in outputs if t.dtype.is_inexact)
        inputs = [t for t in g.placeholders if t.dtype.is_inexact]
        gradients = grad(total, inputs)
    assert_lowered(g, [total, *gradients], {"n": 4}, how=how)
