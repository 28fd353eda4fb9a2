"""Mixed precision, the pass: which nodes have 16 bits, which conversions there are, and why."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.body import Body
from graphfw.ir.dtype import bfloat16, float32
from graphfw.ir.op import nested
from tests.support.mixed_graphs import dtypes, mixed, nodes_of, weight


@pytest.fixture
def g():
    return gf.Graph()


def test_products_have_16_bits_and_their_operands_are_converted(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        y = x @ weight(4, 3)
    made, casts = mixed(g, [y])
    assert dtypes(made, "matmul") == ["bfloat16"]
    assert [(c.tensor.name, c.source, c.to) for c in casts] == [
        ("x", float32, bfloat16),
        ("w", float32, bfloat16),
        ("", bfloat16, float32),
    ]
    assert [c.reason for c in casts] == [
        "matmul computes in bfloat16",
        "matmul computes in bfloat16",
        "what is fetched or stored is float32",
    ]
    assert all(c.reader.file == __file__ for c in casts)


def test_a_weight_is_converted_once_for_the_forward_and_the_backward_graph(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        first, second = weight(4, 6, name="first"), weight(6, 1, name="second")
        loss = gf.sum((gf.relu(x @ first) @ second) ** 2)
        step = gf.optim.SGD(0.1).minimize(loss)
    made, casts = mixed(g, [loss, *[value for _, value in step.pairs]])
    assert dtypes(made, "matmul") == ["bfloat16"] * 5
    converted = Counter(c.tensor.name for c in casts if c.to is bfloat16)
    assert [converted[name] for name in ("x", "first", "second")] == [1, 1, 1]
    # What is transposed for the gradient is the converted weight.
    transposes = [n for n in nodes_of(made, "permute_dims") if n.types[0].dtype is bfloat16]
    assert {t.node.op.name for n in transposes for t in n.inputs} >= {"astype"}


def test_sums_exponentials_and_losses_are_float32(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        target = gf.placeholder(("n",), gf.int64, name="target")
        logits = x @ weight(4, 3) + weight(3, name="b")
        loss = gf.nn.cross_entropy(logits, target) + gf.sum(logits**2) + gf.max(logits)
    made, _ = mixed(g, [loss])
    for name in ("exp", "log", "sum", "pow", "subtract", "max"):
        assert set(dtypes(made, name)) == {"float32"}, name


def test_a_bias_goes_along_where_what_comes_of_it_is_used_in_16_bits(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        h = gf.relu(x @ weight(4, 5, name="w1") + weight(5, name="b1"))
        y = h @ weight(5, 2, name="w2")
    made, casts = mixed(g, [y])
    assert set(dtypes(made, "add") + dtypes(made, "relu")) == {"bfloat16"}
    (bias,) = [c for c in casts if c.tensor.name == "b1"]
    assert bias.reason == "add follows its bfloat16 inputs"


def test_a_bias_stays_with_its_product(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        h = gf.expand_dims(x @ weight(4, 5), axis=1) + weight(5, name="b")
        y = gf.exp(h + h)
    made, _ = mixed(g, [y])
    first, second = nodes_of(made, "add")
    assert (first.types[0].dtype, second.types[0].dtype) == (bfloat16, float32)


def test_what_float32_alone_reads_is_not_rounded_on_its_way(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        h = x @ weight(4, 5)
        y = gf.exp(gf.reshape(gf.relu(h) * 2.0 - h, (-1,)))
    made, casts = mixed(g, [y])
    for name in ("relu", "multiply", "subtract", "reshape"):
        assert set(dtypes(made, name)) == {"float32"}, name
    assert [c.tensor.node.op.name for c in casts if c.to is float32] == ["matmul"]


def test_one_reader_in_16_bits_keeps_16_bits(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        h = gf.relu(x @ weight(4, 4, name="w"))
        outputs = [gf.exp(h), h @ weight(4, 4, name="v")]
    made, casts = mixed(g, outputs)
    assert dtypes(made, "relu") == ["bfloat16"]
    assert "exp is float32" in [c.reason for c in casts]


def test_optimisers_are_float32(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        w = weight(4, 4)
        # Two uses, whose gradients are added up.
        loss = gf.mean(gf.relu(x @ w) @ w)
        step = gf.optim.AdamW(1e-3, clip_norm=1.0).minimize(loss)
    made, _ = mixed(g, [value for _, value in step.pairs])
    own = [n for n in made.nodes if n.loc.layer == "adamw" and n.op.name != "astype"]
    assert len(own) > 15
    assert "bfloat16" not in {kind.dtype.name for node in own for kind in node.types}
    (total,) = [
        n for n in nodes_of(made, "add") if {t.node.op.name for t in n.inputs} == {"astype"}
    ]
    assert total.types[0].dtype is float32  # the sum of the gradients
    assert {t.node.inputs[0].node.op.name for t in total.inputs} == {"matmul"}


def test_the_gradient_of_a_bias_adds_up_what_the_products_read(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        b = weight(5, name="b")
        h = gf.tanh(x @ weight(4, 5, name="w") + b)
        loss = gf.sum(h @ weight(5, 1, name="v"))
        gradients = gf.grad(loss, [b, *[t for t in g.variables if t.name == "w"]])
    made, casts = mixed(g, gradients)
    (total,) = [n for n in nodes_of(made, "sum") if n.loc.grad_of is not None]
    assert total.types[0].dtype is float32
    (wide,) = [t.node for t in total.inputs]
    narrow = wide.inputs[0]
    assert (wide.op.name, narrow.dtype) == ("astype", bfloat16)
    readers = [n for n in nodes_of(made, "matmul") if any(t is narrow for t in n.inputs)]
    assert len(readers) == 1
    assert "sum reads what is there for a product" in [c.reason for c in casts]


def test_by_hand_written_updates_are_float32(g):
    with g:
        x = gf.placeholder(("n", 4), name="x")
        w = weight(4, 1)
        (gradient,) = gf.grad(gf.sum(gf.relu(x @ w)), [w])
        new = w - 0.125 * gradient
    made, _ = mixed(g, [new])
    assert set(dtypes(made, "subtract")) | set(dtypes(made, "multiply")) == {"float32"}


def test_joins_take_the_widest(g):
    with g:
        x = gf.placeholder((2, 4), name="x")
        h = x @ weight(4, 4)
        wide = gf.concat([h, gf.exp(x)], axis=0)
        narrow = gf.concat([h, gf.relu(h)], axis=0)
        outputs = [wide @ weight(4, 1, name="v"), narrow @ weight(4, 1, name="u")]
    made, casts = mixed(g, outputs)
    assert sorted(dtypes(made, "concat")) == ["bfloat16", "float32"]
    assert "concat follows its float32 inputs" in [c.reason for c in casts]


@pytest.mark.parametrize(
    ("value", "precision", "expected"),
    [
        (0.5, "mixed-bf16", "bfloat16"),
        (0.1, "mixed-bf16", "float32"),  # 0.1 is no number of 8 bits
        (-1e9, "mixed-fp16", "float32"),  # it would be infinite
        (1e-8, "mixed-fp16", "float32"),  # it would be 0
        (float("-inf"), "mixed-fp16", "float16"),
        (float("nan"), "mixed-bf16", "bfloat16"),
        (np.array([0.1, 0.2], np.float32), "mixed-bf16", "bfloat16"),  # like a weight
        (np.array([1e-9, 0.2], np.float32), "mixed-fp16", "float32"),
        (np.array([1e-9, 0.2], np.float32), "mixed-bf16", "bfloat16"),
    ],
)
def test_constants_go_along_where_16_bits_hold_them(g, value, precision, expected):
    with g:
        x = gf.placeholder((3, 4), name="x")
        h = (x @ weight(4, 2)) * value
        y = h @ weight(2, 2, name="v")
    made, _ = mixed(g, [y], precision=precision)
    assert dtypes(made, "multiply") == [expected]


def test_large_constants_are_converted_by_a_cast(g, rng):
    array = rng.standard_normal((20, 20)).astype(np.float32)
    with g:
        y = gf.placeholder((3, 20), name="x") @ gf.asarray(array)
    made, casts = mixed(g, [y])
    assert [c.tensor.node.op.name for c in casts] == ["placeholder", "constant", "matmul"]
    assert len(nodes_of(made, "constant")) == 1


def test_statistics_of_batches_do_not_go_along(g):
    with g:
        x = gf.placeholder((3, 4), name="x")
        mean = weight(2, name="mean", trainable=False)
        y = (x @ weight(4, 2) - mean) @ weight(2, 2, name="v")
    made, _ = mixed(g, [y])
    assert dtypes(made, "subtract") == ["float32"]


def residual(x, channels=4):
    """Two normed convolutions and what goes past them."""

    def conv(h, name):
        kernel = weight(channels, channels, 3, 3, name=name)
        return gf.nn.BatchNorm2d(channels)(gf.conv(h, kernel, padding=1))

    first = gf.relu(conv(x, "k0"))
    return gf.relu(first + conv(gf.relu(conv(first, "k1")), "k2")), first


def test_what_a_norm_makes_of_16_bits_has_16_bits_where_it_meets_such(g):
    with g:
        x = gf.placeholder((2, 4, 6, 6), name="x")
        y, _ = residual(x)
        y = gf.conv(y, weight(1, 4, 1, 1, name="last"))
    made, casts = mixed(g, [y])
    full = [n for n in made.nodes if n.types[0].shape == (2, 4, 6, 6)]
    assert {n.types[0].dtype for n in full if n.op.name == "relu"} == {bfloat16}
    joins = [n for n in full if n.op.name == "add" and not n.loc.layer]
    assert [n.types[0].dtype for n in joins] == [bfloat16]
    inside = [n for n in full if n.loc.layer and n.op.name in ("subtract", "multiply", "add")]
    assert {n.types[0].dtype for n in inside} == {float32}
    assert len(inside) >= 9
    assert "relu follows its bfloat16 inputs" in [c.reason for c in casts]


def test_gradients_past_norms_are_not_kept_in_float32_for_products(g):
    with g:
        x = gf.placeholder((2, 4, 6, 6), name="x")
        y, first = residual(x)
        loss = gf.sum(gf.mean(gf.conv(y, weight(1, 4, 1, 1, name="last")), axis=(2, 3)))
        gradients = gf.grad(loss, [v for v in g.variables if v.name.startswith("k")])
    made, _ = mixed(g, gradients)
    for name in ("conv", "conv_weight"):
        assert set(dtypes(made, name)) == {"bfloat16"}
    back = [n for n in made.nodes if n.loc.grad_of is not None and n.op.name == "sum"]
    assert {n.types[0].dtype for n in back} == {float32}


def test_a_stream_of_float32_stays_float32(g):
    with g:
        ids = gf.placeholder((2, 5), gf.int64, name="ids")
        x = gf.nn.Embedding(7, 4)(ids)
        for _ in range(2):
            x = x + gf.nn.Linear(4, 4)(gf.nn.LayerNorm(4)(x))
        y = gf.nn.Linear(4, 1)(x)
    made, _ = mixed(g, [y])
    stream = [n for n in nodes_of(made, "add") if not n.loc.layer]
    assert [n.types[0].dtype for n in stream] == [float32] * 2


def test_what_is_made_of_16_bits_is_not_rounded_in_between(g):
    with g:
        x = gf.placeholder((2, 4), name="x")
        h = x @ weight(4, 4, name="w")
        shifted = h - gf.mean(h, axis=1, keepdims=True)  # a smaller tensor of float32
        outputs = [
            gf.reshape(shifted, (4, 2)) * weight(2, name="scale") @ weight(2, 1, name="v"),
            gf.exp(gf.take(-shifted, gf.asarray([1, 0]), axis=0)),
            shifted > 0,
        ]
    made, _ = mixed(g, outputs)
    for name in ("subtract", "multiply", "negative", "gather"):
        assert set(dtypes(made, name)) == {"float32"}, name
    (question,) = nodes_of(made, "greater")
    assert [t.dtype for t in question.inputs] == [float32, float32]


def test_other_dtypes_stay(g):
    with g:
        x = gf.placeholder((3, 4), gf.float64, name="x")
        z = gf.placeholder((3, 4), gf.complex64, name="z")
        half = gf.placeholder((3, 4), gf.float16, name="half")
        i = gf.placeholder((3, 4), gf.int32, name="i")
        outputs = [t @ t.mT for t in (x, z, half, i)]
    made, casts = mixed(g, outputs)
    assert dtypes(made, "matmul") == ["float64", "complex64", "float16", "int32"]
    assert casts == []
    assert all(a is b for a, b in zip(made.outputs, outputs, strict=True))  # nothing is copied


def test_what_users_convert_becomes_what_they_say(g):
    with g:
        x = gf.placeholder((3, 4), name="x")
        h = x @ weight(4, 4)
        outputs = [gf.astype(h, gf.bfloat16), gf.astype(h, gf.float64), gf.astype(h, gf.int32)]
    made, _ = mixed(g, outputs)
    product = nodes_of(made, "matmul")[0].outputs[0]
    assert made.outputs[0] is product
    assert [t.node.inputs[0] for t in made.outputs[1:]] == [product, product]


def test_a_mask_of_bools_becomes_16_bits_at_once(g):
    with g:
        x = gf.placeholder((3, 4), name="x")
        mask = gf.placeholder((3, 2), gf.bool, name="mask")
        y = ((x @ weight(4, 2)) * gf.astype(mask, gf.float32)) @ weight(2, 2, name="v")
    made, casts = mixed(g, [y])
    assert dtypes(made, "multiply") == ["bfloat16"]
    assert "mask" not in [c.tensor.name for c in casts]


def test_comparisons_take_what_there_is(g):
    with g:
        x = gf.placeholder((3, 4), name="x")
        h = x @ weight(4, 4)
        outputs = [h > 0, gf.argmax(h, axis=1), h > x]
    made, casts = mixed(g, outputs)
    first, second = nodes_of(made, "greater")
    assert [t.dtype for t in first.inputs] == [bfloat16, bfloat16]
    assert [t.dtype for t in second.inputs] == [float32, float32]
    assert [t.dtype for t in nodes_of(made, "argmax")[0].inputs] == [bfloat16]
    assert [c.reason for c in casts if c.to is float32] == ["greater follows its float32 inputs"]


def test_loops_take_and_yield_float32_and_have_16_bits_inside(g):
    with g:
        xs = gf.placeholder(("t", 3, 4), name="xs")
        w, b = weight(4, 4), weight(4, name="b")

        def iteration(h, x):
            h = gf.relu(h @ w + b) @ w + x
            return h, h

        last, ys = gf.scan(iteration, gf.zeros((3, 4)), xs)
    made, casts = mixed(g, [last, ys])
    (scan,) = nodes_of(made, "scan")
    assert {t.dtype for t in scan.inputs} == {float32}
    (body,) = nested(scan.op.values)
    kinds = {node.op.name: node.types[0].dtype.name for node in body.nodes}
    assert kinds["matmul"] == kinds["relu"] == "bfloat16"
    assert {t.dtype for t in body.outputs} == {float32}
    assert "add follows its bfloat16 inputs" in [c.reason for c in casts]  # the bias, as outside
    assert len([c for c in casts if c.tensor.shape == (4, 4) and c.to is bfloat16]) == 1


def test_branches_and_conditions(g):
    with g:
        x = gf.placeholder((3, 3), name="x")
        w = weight(3, 3)
        chosen = gf.cond(gf.sum(x) > 0, lambda: x @ w, lambda: gf.exp(x))
        found = gf.while_loop(lambda v: gf.sum(v @ w) < 10, lambda v: v @ w + 1, x)
    made, _ = mixed(g, [chosen, found])
    for name in ("branch", "loop"):
        (node,) = nodes_of(made, name)
        inside = [n for body in nested(node.op.values) for n in body.nodes]
        products = [n for n in inside if n.op.name == "matmul"]
        assert products
        assert {n.types[0].dtype for n in products} == {bfloat16}
        assert all(isinstance(body, Body) for body in nested(node.op.values))
