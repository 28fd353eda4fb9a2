"""Fusion: which nodes are fused, and where the boundaries are."""

import time

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.functions import F
from graphfw.ir.rebuild import derive
from graphfw.passes.fuse import partition
from graphfw.runtime.kernels.lower import CanCompile
from graphfw.transforms.grad import grad
from tests.support.kernel_interpreter import Interpreted
from tests.support.lowering import lowered


def groups_of(g, outputs):
    _, found, _ = lowered(g, outputs)
    return found.groups


def shapes(group):
    """Return the kinds of its nodes and the outputs it stores: (op, dims) of each."""
    return sorted((t.node.op.name, t.ndim) for t in group.outputs)


def softmax(x):
    return gf.softmax(x, axis=-1)


def log_softmax(x):
    return gf.log_softmax(x, axis=-1)


def layer_norm(x):
    centred = x - F.mean(x, axis=-1, keepdims=True)
    return centred * F.rsqrt(F.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def rms_norm(x):
    return x * F.rsqrt(F.mean(x * x, axis=-1, keepdims=True) + 1e-5)


def batch_norm(x):
    centred = x - F.mean(x, axis=0, keepdims=True)
    return centred * F.rsqrt(F.mean(centred * centred, axis=0, keepdims=True) + 1e-5)


def unit_length(x):
    return x / gf.vector_norm(x, axis=-1, keepdims=True)


ROWWISE = (softmax, log_softmax, layer_norm, rms_norm, batch_norm, unit_length)


@pytest.mark.parametrize("function", ROWWISE)
def test_one_kernel_forward(function):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 33), name="x")
        y = F.tanh(function(x * 2.0)) + 1.0
    (group,) = groups_of(g, [y])
    assert group.kind == "kernel"
    assert group.form == ("columns" if function is batch_norm else "rows")
    assert [t.shape for t in group.outputs] == [x.shape]


@pytest.mark.parametrize("function", ROWWISE)
def test_one_kernel_backward(function):
    with gf.Graph() as g:
        x, ct = gf.placeholder(("n", 33), name="x"), gf.placeholder(("n", 33), name="ct")
        (dx,) = grad(F.sum(function(x) * ct), [x])
    assert len(groups_of(g, [dx])) == 1


def test_gradients_of_scale_and_shift_come_with_those_of_the_input():
    with gf.Graph() as g:
        x, ct = gf.placeholder(("n", 33), name="x"), gf.placeholder(("n", 33), name="ct")
        scale, shift = gf.placeholder((33,), name="scale"), gf.placeholder((33,), name="shift")
        total = F.sum((layer_norm(x) * scale + shift) * ct)
        gradients = grad(total, [x, scale, shift])
    (group,) = groups_of(g, gradients)
    assert len(group.outputs) == 3


def test_adam_is_one_kernel():
    with gf.Graph() as g:
        w = gf.Variable(np.ones((5, 7), np.float32), name="w")
        target = gf.placeholder((5, 7), name="target")
        update = gf.optim.Adam(1e-3).minimize(F.sum((w - target) * target))
        values = [value for _, value in update.pairs]
    large = [group for group in groups_of(g, values) if group.sizes]
    assert [len(group.outputs) for group in large] == [3]


def test_small_numbers_are_computed_together():
    with gf.Graph() as g:
        a, b = gf.placeholder((), name="a"), gf.placeholder((), name="b")
        outputs = [F.exp(a), F.sqrt(b) + 1.0, a * b]
    (group,) = groups_of(g, outputs)
    assert len(group.outputs) == 3


def test_bias_and_activation_are_an_epilogue():
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 4), name="x"), gf.placeholder((4, 8), name="w")
        b, r = gf.placeholder((8,), name="b"), gf.placeholder(("n", 8), name="r")
        y = F.tanh(x @ w + b) + r
    (group,) = groups_of(g, [y])
    assert group.kind == "matmul"


def gates(x, width=3):
    """Four gates of an LSTM, from [..., 4 * width]."""
    enter, forget, work_item, leave = F.split(x, x.shape[-1] // width, axis=-1)[:4]
    return F.sigmoid(leave) * F.tanh(F.sigmoid(forget) + F.sigmoid(enter) * F.tanh(work_item))


def test_gates_are_an_epilogue():
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 4), name="x"), gf.placeholder((4, 12), name="w")
        b, z = gf.placeholder((12,), name="b"), gf.placeholder(("n", 12), name="z")
        y = gates(F.tanh(x @ w + b) + z)
        outputs = [y, F.exp(y)]
    (group,) = groups_of(g, outputs)
    assert group.kind == "matmul"
    assert [t.shape[1] for t in group.outputs] == [3, 3]


@pytest.mark.parametrize(
    "reads",
    [
        lambda p, z: [gates(p), p],
        lambda p, z: [gates(p), F.exp(p[:, 2:5])],
        lambda p, z: [gates(p + z)[:, ::-1] + p[:, 3:6]],
        lambda p, z: [gates(p) + F.sum(p[:, :3], axis=1, keepdims=True)],
        lambda p, z: [F.softmax(gates(p), axis=0)],
        lambda p, z: [p[:, :3] * z[:, :3] @ z[:3, :3]],
        lambda p, z: [p[:, :3] * p[:, 3:6].T],
    ],
)
def test_where_more_than_sections_is_read_the_product_is_stored(reads):
    """Fused or not, the values are those of NumPy."""
    rng = np.random.default_rng()
    arrays = [rng.standard_normal(s).astype("f4") for s in ((3, 4), (4, 12), (3, 12))]
    with gf.Graph() as g:
        fed = [gf.placeholder(a.shape, name=f"x{i}") for i, a in enumerate(arrays)]
        outputs = reads(fed[0] @ fed[1], fed[2])
        product, *rest = groups_of(g, outputs)
        assert product.kind == "matmul"
        assert rest
        got = gf.Session(g).run(outputs, dict(zip(fed, arrays, strict=True)))
        expected = reads(gf.asarray(arrays[0] @ arrays[1]), gf.asarray(arrays[2]))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), 1e-5, 1e-5)


def test_sections_are_written_where_they_belong():
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 4), name="x"), gf.placeholder((8, 5), name="w")
        sections = [F.exp(x), F.tanh(x) * 2.0]
        joined = F.concat(sections, axis=1)
        other, y = F.concat([joined, x], axis=1), joined @ w
    group, product = groups_of(g, [y])
    assert [t.node.op.name for t in group.outputs] == ["concat"]
    assert product.kind == "matmul"
    kinds = [group.kind for group in groups_of(g, [joined, sections[0], other])]
    assert kinds == ["kernel", "reference"]


def test_what_comes_before_a_reduction_is_an_epilogue():
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 4), name="x"), gf.placeholder((4, 8), name="w")
        h = F.tanh(x @ w) * 2.0
        y = gf.softmax(h, axis=-1)
    product, rows = groups_of(g, [y])
    assert [t.node.op.name for t in product.outputs] == ["multiply"]
    assert rows.kind == "kernel"


def test_what_an_epilogue_computes_besides_is_written_by_it():
    """The gradient of gelu has its parts: the result, for another product, comes of these."""
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 4), name="x"), gf.placeholder((4, 8), name="w")
        h, v = gf.placeholder(("n", 8), name="h"), gf.placeholder((8, 3), name="v")
        slope = F.tanh(h)
        late = (x @ w) * slope
        again = h * slope
        outputs = [F.sum(late, axis=0), gf.permute_dims(again, (1, 0)) @ late, again @ v]
    groups = groups_of(g, outputs)
    product = next(group for group in groups if group.kind == "matmul")
    assert {t for t in product.outputs} == {late, again}
    assert [group.kind for group in groups].count("kernel") == 1
    assert all("tanh" not in [n.op.name for n in one.nodes] for one in groups if one != product)


def test_nodes_that_a_reduction_needs_too_stay_with_it():
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 4), name="x"), gf.placeholder((4, 8), name="w")
        h = gf.placeholder(("n", 8), name="h")
        slope = F.tanh(h)
        late = (x @ w) * slope
        outputs = [F.sum(late, axis=0), F.sum(h * slope, axis=0)]
    first, *others = groups_of(g, outputs)
    assert [node.op.name for node in first.nodes] == ["matmul"]
    assert len(others) == 1


def test_a_product_that_is_needed_itself_is_stored():
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 4), name="x"), gf.placeholder((4, 8), name="w")
        product = x @ w
        y = F.tanh(product)
    groups = groups_of(g, [y, product])
    assert product.node in [t.node for t in groups[0].outputs]


def test_cheap_values_are_computed_again_and_dear_ones_stored():
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 8), name="x"), gf.placeholder((8, 8), name="w")
        cheap, dear = x * 2.0 + 1.0, F.erf(x)
        h = F.tanh((cheap + dear) @ w)
        y = h * cheap + dear
    first, second = groups_of(g, [y])
    stored = {t.node.op.name for t in first.outputs}
    assert stored == {"erf", "add"}  # the product's operand, and what is dear
    assert "erf" not in [node.op.name for node in second.nodes]


def test_a_single_column_has_no_epilogue():
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 4), name="x"), gf.placeholder((4, 1), name="w")
        loss = F.sum(F.softplus(x @ w))
    product, rest = groups_of(g, [loss])
    assert len(product.nodes) == 1
    assert "sum" in [node.op.name for node in rest.nodes]


def test_no_matrix_of_all_pairs_is_made():
    with gf.Graph() as g:
        x, y = gf.placeholder(("n", 3), name="x"), gf.placeholder(("m", 3), name="y")
        apart = x[:, None, :] - y[None, :, :]
        field = F.sum(F.exp(F.sum(apart * apart, axis=2) * -0.5), axis=1)
    (group,) = groups_of(g, [field])
    assert [t.ndim for t in group.outputs] == [1]
    assert "subtract" not in [node.op.name for node in group.nodes]


def test_short_rows_in_memory_are_reduced_in_a_loop():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        y = F.sum(x * x, axis=1)
    (group,) = groups_of(g, [y])
    assert group.rows == (0,)


@pytest.mark.parametrize("batch", ["n", 32])
def test_cross_entropy_of_sequences_is_two_kernels_and_a_number(batch):
    with gf.Graph() as g:
        x, y = gf.placeholder((batch, 5, 40), name="x"), gf.placeholder((batch, 5), gf.int64)
        loss = gf.nn.cross_entropy(x, y)
        (dx,) = grad(loss, [x])
    assert [len(group.sizes) for group in groups_of(g, [loss, dx])] == [3, 0, 3]


def test_sums_go_through_reshapes():
    with gf.Graph() as g:
        x = gf.placeholder(("b", "t", 33), name="x")
        flat = F.reshape(x, (-1, 33))
        y = gf.softmax(flat, axis=1)
        bias = F.sum(F.reshape(y, x.shape), axis=(0, 1))
    (group,) = groups_of(g, [y, bias])
    assert len(group.outputs) == 2


def test_of_large_tensors_dear_values_are_computed_again():
    def stored(rows):
        with gf.Graph() as g:
            x, y = gf.placeholder((rows, 32_000), name="x"), gf.placeholder((rows,), gf.int64)
            loss = gf.nn.cross_entropy(x, y)
            (dx,) = grad(loss, [x])
        return [t.shape for group in groups_of(g, [loss, dx]) for t in group.outputs]

    assert stored(512).count((512, 32_000)) == 1  # the gradient
    assert stored(4).count((4, 32_000)) == 2  # exp too


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda x: F.sum(x, axis=1, keepdims=True) * x[:, :7], "other rows"),
        (lambda x: F.exp(x) + F.exp(x).T, "transposed"),
        (lambda x: F.exp(x)[:, ::-1] + x, "sliced, flipped"),
        (lambda x: F.sort(F.exp(x)), "computed by itself"),
        (lambda x: F.exp(x) / F.sum(F.exp(x)), "all rows"),
        (lambda x: x @ F.exp(x), "operand of a matmul"),
        (lambda x: F.exp(F.reshape(F.exp(x), (-1,))), "reshape mixes axes"),
    ],
)
def test_boundaries_have_reasons(build, reason):
    with gf.Graph() as g:
        y = build(gf.placeholder((100, 100), name="x"))
    reasons = {text for group in groups_of(g, [y]) for text in group.reasons.values()}
    assert any(reason in text for text in reasons), reasons


def test_no_cycle_through_what_is_not_native():
    with gf.Graph() as g:
        x = gf.placeholder((4, 5), name="x")
        a = F.exp(x)
        y = a + F.sort(a)
    groups = groups_of(g, [y])
    assert [group.kind for group in groups] == ["kernel", "reference", "kernel"]


def test_masks_of_positions_are_never_stored():
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), name="x")
        y = gf.softmax(F.where(F.tril(F.ones(x.shape)) > 0, x, -np.inf), axis=-1)
    (group,) = groups_of(g, [y])
    assert "arange" not in [node.op.name for node in group.nodes]


@pytest.mark.slow
def test_the_cost_of_a_node_does_not_grow():
    def seconds(count):
        with gf.Graph() as g:
            x = h = gf.placeholder(("n", 16), name="x")
            for _ in range(count // 8):
                h = gf.softmax(F.tanh(h * 1.5 + x), axis=-1)
        graph = derive(g, [h])
        natives = CanCompile(Interpreted())
        start = time.thread_time()
        partition(graph, natives)
        return (time.thread_time() - start) / len(graph.nodes)

    # Ten times would be quadratic; others on the machine take some of the caches.
    small = min(seconds(5_000) for _ in range(3))
    assert min(seconds(50_000) for _ in range(2)) < 3 * small
