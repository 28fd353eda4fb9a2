"""Elementwise groups that products compute as they multiply: prologues."""

import re

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor.matmul import item, prologues
from graphfw.transforms.grad import grad
from tests.support.kernels import with_avx512

LEAST_WORK_ITEMS, MANY_WORK_ITEMS = prologues.LEAST_WORK_ITEMS, prologues.MANY_WORK_ITEMS


@pytest.fixture(autouse=True)
def _few_work_items(monkeypatch):
    """Compile, whatever the environment says, and let small products have prologues, too."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    # A recipe does not know of that.
    monkeypatch.setenv("GRAPHFW_CACHE", "off")
    monkeypatch.setattr(prologues, "LEAST_WORK_ITEMS", 1)
    monkeypatch.setattr(prologues, "MANY_WORK_ITEMS", 1)


def results(g, fetches, feeds, threads=2):
    with gf.Session(g, threads=threads) as session:
        return session.compile(fetches, list(feeds))(*feeds.values())


def computed(g, fetches, feeds):
    """Return which operand a product computes, "inline" in registers, "" for none."""
    with gf.Session(g) as session:
        source = str(session.compile(fetches, list(feeds)).source())
    if re.search(r"\binline:\n", source):
        return "inline"
    found = re.search(r"\bcomputed: (b across|a|b)\b", source)
    return "" if found is None else found[1]


def has_prologue(g, fetches, feeds):
    return computed(g, fetches, feeds) != ""


def random(rng, tensor, sizes):
    shape = [sizes.get(str(d), d) for d in tensor.shape]
    return rng.standard_normal([int(d) for d in shape]).astype(tensor.dtype.dtype)


def agree(monkeypatch, g, y, left, feeds, *, is_fused=True, is_exact=True, rtol=1e-5):
    """See that a product has its prologue, and gives what it does without, and node by node.

    Without: where the operand is fetched, too, it is computed by itself. It is exact if the product
    is cut as with a prologue.
    """
    assert has_prologue(g, [y], feeds) is is_fused
    assert not has_prologue(g, [y, left], feeds)
    wanted, _ = results(g, [y, left], feeds)
    for threads in (1, 2):
        (found,) = results(g, [y], feeds, threads)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        if is_exact:
            np.testing.assert_array_equal(found, wanted)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    (reference,) = results(g, [y], feeds)
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    arrays = [array.astype(np.float64) for array in (found, reference)]
    size = np.abs(arrays[1]).max(initial=1)
    np.testing.assert_allclose(*arrays, rtol=rtol, atol=rtol * size)


SIZES = [(1, 2, 3), (2, 7, 5), (5, 3, 1), (33, 64, 17), (300, 129, 31), (261, 40, 64), (3, 600, 9)]


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_sizes_and_dtypes(monkeypatch, rng, m, k, n, dtype):
    with gf.Graph() as g:
        x, w = gf.placeholder((m, k), dtype, name="x"), gf.placeholder((k, n), dtype, name="w")
        left = gf.relu(x) * 2 + 1
        y = gf.relu(left @ w)
    feeds = {t: random(rng, t, {}) for t in (x, w)}
    is_fused = m > 1  # else the operand is one row
    rtol = {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 1e-5)
    agree(monkeypatch, g, y, left, feeds, is_fused=is_fused, rtol=rtol)


@pytest.mark.exhaustive
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("is_sized", [False, True])
@pytest.mark.parametrize("m", [0, 1, 2, 9, 270])
def test_broadcasts_slices_and_symbolic_rows(monkeypatch, rng, m, is_sized, transposed):
    with gf.Graph() as g:
        rows = m if is_sized else "m"
        x = gf.placeholder((rows, 95), name="x")
        row, column = gf.placeholder((70,), name="row"), gf.placeholder((rows, 1), name="column")
        w = gf.placeholder((21, 70) if transposed else (70, 21), name="w")
        left = gf.tanh(x[:, 5:75] * row + column)
        y = left @ (w.T if transposed else w) + gf.exp(column)
    feeds = {t: random(rng, t, {"m": m}) for t in (x, row, column, w)}
    agree(monkeypatch, g, y, left, feeds, is_fused=not is_sized or m != 1, is_exact=is_sized)


@pytest.mark.parametrize("shared", [False, True])
def test_batches(monkeypatch, rng, shared):
    with gf.Graph() as g:
        x = gf.placeholder((3, 4, 13, 20), name="x")
        w = gf.placeholder((20, 11) if shared else (3, 4, 20, 11), name="w")
        left = gf.maximum(x, 0.25)
        y = left @ w
    feeds = {t: random(rng, t, {}) for t in (x, w)}
    agree(monkeypatch, g, y, left, feeds)


@pytest.mark.parametrize(("n", "is_fused"), [(10, True), (700, False)])
def test_many_work_items_each_with_all_columns(monkeypatch, rng, n, is_fused):
    monkeypatch.setattr(prologues, "LEAST_WORK_ITEMS", LEAST_WORK_ITEMS)
    with gf.Graph() as g:
        x, w = gf.placeholder((2900, 301), name="x"), gf.placeholder((301, n), name="w")
        left = gf.exp(x)
        y = left @ w
    feeds = {t: random(rng, t, {}) for t in (x, w)}
    agree(monkeypatch, g, y, left, feeds, is_fused=is_fused)


def test_what_lies_across_is_laid_out_first(monkeypatch, rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((30, 200), name="x"), gf.placeholder((30, 8), name="w")
        left = gf.tanh(x.T)
        y = left @ w
    agree(monkeypatch, g, y, left, {t: random(rng, t, {}) for t in (x, w)}, is_fused=False)


def test_a_variable_that_the_run_updates_is_read_before(rng):
    start = rng.standard_normal((90, 24), dtype=np.float32)
    with gf.Graph() as g:
        v, w = gf.Variable(start, name="v"), gf.placeholder((24, 6), name="w")
        y = gf.exp(v) @ w
        update = gf.update(v, gf.cumulative_sum(v, axis=0) / 9)
    array = rng.standard_normal((24, 6), dtype=np.float32)
    with gf.Session(g) as session:
        plan = session.compile([y, update], [w])
        assert "computed: a" in str(plan.source())
        for _ in range(3):
            found = plan(array)[0]
            np.testing.assert_allclose(found, np.exp(start) @ array, rtol=1e-4, atol=1e-4)
            start = np.cumsum(start, axis=0) / 9


def test_random_bits_are_the_same(rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((60, 24), name="x"), gf.placeholder((24, 6), name="w")
        left = gf.where(gf.random.uniform((60, 24)) < 0.5, x, 0.0)
        y = left @ w
    feeds = {t: random(rng, t, {}) for t in (x, w)}
    found = []
    for fetches in ([y], [y, left]):
        with gf.Session(g, seed=3) as session:
            found.append(session.compile(fetches, list(feeds))(*feeds.values())[0])
    np.testing.assert_array_equal(*found)


def test_few_work_items_leave_elements_to_all_threads(monkeypatch, rng):
    monkeypatch.setattr(prologues, "LEAST_WORK_ITEMS", LEAST_WORK_ITEMS)
    with gf.Graph() as g:
        x, w = gf.placeholder((256, 64), name="x"), gf.placeholder((64, 32), name="w")
        y = gf.gelu(x) @ w
    assert not has_prologue(g, y, [x, w])


def test_a_residual_that_the_prologue_reads_is_not_written_over(rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((300, 64), name="x"), gf.placeholder((64, 64), name="w")
        start = gf.softmax(x)
        y = gf.softmax(start + gf.relu(start - 0.01) @ w)
    feeds = {t: random(rng, t, {}) for t in (x, w)}
    (found,) = results(g, [y], feeds)
    start = np.exp(feeds[x]) / np.exp(feeds[x]).sum(1, keepdims=True)
    inner = np.exp(start + np.maximum(start - 0.01, 0) @ feeds[w])
    np.testing.assert_allclose(found, inner / inner.sum(1, keepdims=True), rtol=1e-4)


def test_what_has_other_readers_is_kept(rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((40, 8), name="x"), gf.placeholder((8, 8), name="w")
        left = gf.relu(x) * 2
        twice = [left @ w, gf.sum(left, axis=0)]
        itself, mixed = left @ left.T, left.T @ x
    feeds = {t: random(rng, t, {}) for t in (x, w)}
    for fetches in (twice, [itself], [mixed]):
        assert not has_prologue(g, fetches, feeds)
    first, total, square, across = results(g, [*twice, itself, mixed], feeds)
    wanted = np.maximum(feeds[x], 0) * 2
    np.testing.assert_allclose(first, wanted @ feeds[w], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, wanted.sum(0), rtol=1e-5)
    np.testing.assert_allclose(square, wanted @ wanted.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(across, wanted.T @ feeds[x], rtol=1e-5, atol=1e-4)


def test_sections_behind_a_product_with_a_prologue(monkeypatch, rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((150, 24), name="x"), gf.placeholder((24, 128), name="w")
        left = gf.sin(x)
        gates = left @ w
        y = gf.sigmoid(gates[:, :32]) * gf.tanh(gates[:, 32:64]) + gates[:, 64:96] * gates[:, 96:]
    agree(monkeypatch, g, y, left, {t: random(rng, t, {}) for t in (x, w)})


def test_training_gives_what_it_gives_node_by_node(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 12), name="x")
        w, v = gf.placeholder((12, 20), name="w"), gf.placeholder((20, 5), name="v")
        loss = gf.mean(gf.square(gf.tanh(gf.sin(x) @ w) @ v))
        fetches = [loss, *grad(loss, [w, v, x])]
    feeds = {t: random(rng, t, {"n": 50}) for t in (x, w, v)}
    found = results(g, fetches, feeds)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    for one, other in zip(found, results(g, fetches, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_random_graphs(monkeypatch, rng):
    unary = [
        gf.relu,
        gf.tanh,
        gf.square,
        gf.abs,
        lambda t: t * 0.5,
        lambda t: gf.where(t > 0, t, 1),
    ]
    for _ in range(6):
        m, k, n = (int(size) for size in rng.integers(2, 90, 3))
        with gf.Graph() as g:
            x, w = gf.placeholder((m, k), name="x"), gf.placeholder((k, n), name="w")
            extra = gf.placeholder([(m, k), (k,), (m, 1)][rng.integers(3)], name="extra")
            left = x
            for f in rng.permutation(len(unary))[: rng.integers(1, 5)]:
                left = unary[f](left + extra)
            y = left @ w
            for f in rng.permutation(len(unary))[: rng.integers(0, 3)]:
                y = unary[f](y)
        agree(monkeypatch, g, y, left, {t: random(rng, t, {}) for t in (x, w, extra)})


def test_what_plans_tell():
    with gf.Graph() as g:
        x, w = gf.placeholder((50, 8), name="x"), gf.placeholder((8, 4), name="w")
        y = gf.exp(x) @ w
    with gf.Session(g) as session:
        plan = session.compile(y, [x, w])
        report, source = str(plan.explain()), str(plan.source())
    assert "exp matmul" in report
    assert "it is an operand of a matmul" not in report
    assert "computed: a" in source
    assert "exp(b0[" in source


# Right operands.

WHERE = {"b": True, "b across": False}
"""The layouts of the tensor of a right operand, and whether the operand is its transpose."""


def right_product(m, k, n, dtype, transposed, batch=()):
    with gf.Graph() as g:
        x = gf.placeholder((*batch, m, k), dtype, name="x")
        w = gf.placeholder((*batch, n, k) if transposed else (*batch, k, n), dtype, name="w")
        right = gf.relu(w) * 2 + 1
        y = gf.tanh(x @ (gf.swapaxes(right, -1, -2) if transposed else right))
    return g, x, w, right, y


RIGHT = [
    *[(size, "float32") for size in [*SIZES, (0, 9, 40), (9, 0, 40), (4, 9, 0), (1, 1, 2)]],
    *[
        (size, t)
        for t in ("float64", "float16", "bfloat16")
        for size in [(1, 33, 70), (37, 65, 40)]
    ],
]


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize(("size", "dtype"), RIGHT, ids=str)
@pytest.mark.parametrize("way", WHERE)
def test_right_operands(monkeypatch, rng, size, dtype, way):
    m, k, n = size
    g, x, w, right, y = right_product(m, k, n, dtype, WHERE[way])
    feeds = {t: random(rng, t, {}) for t in (x, w)}
    is_fused = n != 1 and k != 1  # else the operand is one row or column
    # Two orders of additions; without FMA each product is rounded, too.
    rtol = {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 3e-5)
    agree(monkeypatch, g, y, right, feeds, is_fused=is_fused, rtol=rtol)
    ways = {way, "inline"} if m <= item.INLINE_ROWS else {way}
    assert computed(g, [y], feeds) in (ways if is_fused else {""})


@pytest.mark.exhaustive
@pytest.mark.parametrize("m", [0, 1, 2, 5, 40, 270])
@pytest.mark.parametrize("way", WHERE)
def test_right_operands_of_any_number_of_rows(monkeypatch, rng, m, way):
    g, x, w, right, y = right_product("m", 75, 130, "float32", WHERE[way])
    feeds = {t: random(rng, t, {"m": m}) for t in (x, w)}
    # Against float64 both are off by up to 9e-6, each in its own order of additions.
    agree(monkeypatch, g, y, right, feeds, is_exact=False, rtol=2e-5)
    assert computed(g, [y], feeds) == "inline"  # where they turn out to be few


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WHERE)
@pytest.mark.parametrize("members", [1, 3, "b"])
def test_right_operands_of_batches(monkeypatch, rng, way, members):
    g, x, w, right, y = right_product(27, 33, 66, "float32", WHERE[way], (members, 2))
    feeds = {t: random(rng, t, {"b": 5}) for t in (x, w)}
    agree(monkeypatch, g, y, right, feeds, is_exact=members != "b")


@pytest.mark.exhaustive
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("m", [1, 3, 9, 16, 17])
def test_weights_in_few_bits(rng, m, transposed):
    """Each is widened and scaled where it is multiplied, whether it is fed or a variable."""
    k, n = 640, 1030
    bits = rng.integers(-127, 128, (n, k) if transposed else (k, n)).astype(np.int8)
    factors = rng.random((n, 1) if transposed else (n,), np.float32)
    array = rng.standard_normal((m, k), np.float32)
    wanted = bits * factors.astype(np.float64)
    wanted = array @ (wanted.T if transposed else wanted)
    with gf.Graph() as g:
        x = gf.placeholder((m, k), name="x")
        for w in (gf.placeholder(bits.shape, gf.int8, name="w"), gf.Variable(bits, name="v")):
            wide = gf.astype(w, gf.float32) * factors
            y = x @ (wide.T if transposed else wide)
            feeds = {t: a for t, a in ((x, array), (w, bits)) if not isinstance(t, gf.Variable)}
            way = "b" if transposed else "b across"
            assert computed(g, [y], feeds) == (way if m > item.INLINE_ROWS else "inline")
            (found,) = results(g, [y], feeds)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("m", [4, 40])
def test_variables_of_which_nothing_is_kept(rng, m):
    """Nobody makes anything of them once for many runs, so products compute it."""
    with gf.Graph() as g:
        x = gf.placeholder((m, 64), name="x")
        v = gf.Variable(rng.standard_normal((64, 600), dtype=np.float32), name="v")
        u = gf.Variable(rng.standard_normal((200, 600), dtype=np.float32), name="u")
        y = x @ (v * gf.sum(u, axis=0))
        step = gf.update(u, u * 0.5)
    assert has_prologue(g, [y], [x])
    assert has_prologue(g, [y, step], [x])
    array = rng.standard_normal((m, 64), dtype=np.float32)
    with gf.Session(g) as session:
        plan = session.compile([y, step], [x])
        first, second = plan(array)[0], plan(array)[0]
    np.testing.assert_allclose(first, second * 2, rtol=1e-5)


def test_a_matrix_by_a_column(monkeypatch, rng):
    with gf.Graph() as g:
        w, x = gf.placeholder((700, 90), name="w"), gf.placeholder((90,), name="x")
        left = gf.tanh(w)
        y = left @ x + 1
    feeds = {t: random(rng, t, {}) for t in (w, x)}
    agree(monkeypatch, g, y, left, feeds)
    assert computed(g, [y], feeds) == "b"


@pytest.mark.parametrize("way", WHERE)
def test_sections_behind_a_product_with_a_computed_right_operand(monkeypatch, rng, way):
    with gf.Graph() as g:
        x = gf.placeholder((37, 24), name="x")
        w = gf.placeholder((512, 24) if WHERE[way] else (24, 512), name="w")
        right = gf.sin(w)
        gates = x @ (right.T if WHERE[way] else right)
        sections = [gates[:, 128 * i : 128 * (i + 1)] for i in range(4)]
        y = gf.sigmoid(sections[0]) * gf.tanh(sections[1]) + sections[2] * sections[3]
    agree(monkeypatch, g, y, right, {t: random(rng, t, {}) for t in (x, w)})
    assert computed(g, [y], [x, w]) == way


def test_one_operand_is_computed_of_two(rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((90, 30), name="x"), gf.placeholder((30, 50), name="w")
        left, right = gf.exp(x), gf.tanh(w)
        y = left @ right
    feeds = {t: random(rng, t, {}) for t in (x, w)}
    assert computed(g, [y], feeds) == "a"
    assert computed(g, [y, left], feeds) == "b across"
    (found,) = results(g, [y], feeds)
    np.testing.assert_allclose(found, np.exp(feeds[x]) @ np.tanh(feeds[w]), rtol=1e-4, atol=1e-3)


def test_few_columns_leave_elements_to_all_threads(monkeypatch):
    monkeypatch.setattr(prologues, "LEAST_WORK_ITEMS", LEAST_WORK_ITEMS)
    monkeypatch.setattr(prologues, "MANY_WORK_ITEMS", MANY_WORK_ITEMS)
    for m, n, is_fused in [(20, 400, False), (20, 700, True), (900, 700, False), ("m", 2048, True)]:
        g, x, w, _, y = right_product(m, 1024, n, "float32", True)
        assert has_prologue(g, [y], [x, w]) is is_fused


@with_avx512
@pytest.mark.parametrize(("k", "way"), [(2048, "b across"), (2060, ""), (8192, "b"), (8200, "")])
def test_long_sums_leave_too_little_room(k, way):
    g, x, w, _, y = right_product(20, k, 1024, "float32", "across" not in way and k > 4096)
    assert computed(g, [y], [x, w]) == way
