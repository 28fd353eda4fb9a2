"""Joins, scatters and scans on GPUs: what the reference gives, whatever the layouts and sizes."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ir.build import emit
from graphfw.ops.reduce.cumulative import CumulativeProd, CumulativeSum, Recurrence
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.gather_scatter import IndexAdd, IndexSet, Slice, SliceSet
from tests.runtime.numpy_executor.special_runs import DTYPES, LAYOUTS, NUMBERS, drawn, node_of, same


def computed(op, arrays, layouts=(), *, symbolic=False):
    """Return a plan's result of one op for arrays in some layouts, and how it is computed."""
    y, feeds, fed = node_of(op, arrays, layouts, symbolic=symbolic)
    with gf.Session(y.graph, executor="cupy") as session:
        plan = session.compile(y, feeds)
        text = plan.explain(*[array.shape for array in fed])
        assert "0 operations by CuPy" in text
        return session.executor.to_host(plan(*fed)), text


def check(op, arrays, layouts=(), *, symbolic=False):
    """See that a plan gives what `eval` does, to the last bit; return how it does."""
    found, text = computed(op, arrays, layouts, symbolic=symbolic)
    same(found, op.eval(np, *arrays))
    return text


def problem(rng, shape=(11, 37), dtype="float32", index="int64", count=43):
    """Rows of an array, values for some of them, and which these are."""
    x, values = drawn(rng, shape, dtype), drawn(rng, (count, *shape[1:]), dtype)
    low = 0 if index[0] == "u" else -shape[0]
    return x, values, rng.integers(low, shape[0], count).astype(index)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", [IndexAdd(0), IndexSet(0)])
def test_rows(fake, rng, op, layout):
    arrays = problem(rng)
    for number in range(3):
        layouts = ["plain"] * 3
        layouts[number] = layout
        check(op, arrays, layouts)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_sums_of_any_dtype(fake, rng, dtype):
    check(IndexAdd(0), problem(rng, dtype=dtype))
    check(IndexAdd(0), problem(rng, (5, 3), dtype), ("transposed", "flipped"))


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_any_dtype(fake, rng, dtype):
    check(IndexSet(0), problem(rng, dtype=dtype))


@pytest.mark.parametrize("index", ["int8", "int32", "int64", "uint8", "uint64"])
def test_indices_of_any_dtype(fake, rng, index):
    check(IndexAdd(0), problem(rng, (7, 3), index=index))


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize(
    ("shape", "count", "variant"),
    [
        ((5, 64), 9, "packs"),
        ((5, 64), 0, "packs"),
        ((5, 33), 9, "line"),
        ((5, 3), 9, "element"),
        ((5,), 3000, "element"),  # three chunks; many of each
        ((4000,), 2500, "element"),
        ((1, 1), 1, "element"),
        ((0, 3), 0, "nothing"),
        ((3, 0), 4, "nothing"),
    ],
)
@pytest.mark.parametrize("op", [IndexAdd(0), IndexSet(0)])
def test_sizes(fake, rng, op, shape, count, variant):
    arrays = problem(rng, shape, count=count)
    for symbolic in (False, True):
        text = check(op, arrays, symbolic=symbolic)
        assert f"{op.name}: {variant}" in text


def test_several_indices_and_batches(fake, rng):
    x = drawn(rng, (2, 4, 6, 3))
    values = drawn(rng, (2, 5, 7, 3))
    rows, columns = rng.integers(0, 4, (5, 1)), rng.integers(-6, 6, 7).astype(np.int32)
    for symbolic in (False, True):
        check(IndexAdd(1), (x, values, rows, columns), symbolic=symbolic)
        check(IndexSet(1), (x, values, rows, columns), symbolic=symbolic)
    check(IndexAdd(0), (x[0, 0, 0], np.float32(3), np.int64(2)))


@pytest.mark.parametrize("bad", [7, -8, 1 << 40])
def test_an_index_out_of_range(fake, bad):
    with gf.Graph() as g:
        x, i = gf.placeholder((7,), name="x"), gf.placeholder(("n",), gf.int64, name="i")
        y = gf.index_add(x, i, 1.0)
    with gf.Session(g, executor="cupy") as session:
        with pytest.raises(ExecutionError, match=f"index {bad} is out of range"):
            session.run(y, {x: np.zeros(7, np.float32), i: np.array([0, bad, 1])}, host=True)


def test_unpooling(fake, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2, 4, 6), name="x")
        indices = gf.placeholder(("n", 2, 2, 3), gf.int64, name="places")
        y = gf.max_unpool(x[:, :, ::2, ::2], indices, 2)
    data = drawn(rng, (3, 2, 4, 6))
    wanted = rng.permuted(np.broadcast_to(np.arange(24), (6, 24)), axis=1)[:, :6]
    wanted = wanted.reshape(3, 2, 2, 3)
    with gf.Session(g, executor="cupy") as session, gf.Session(g) as cpu:
        assert "max_unpool: element" in session.compile(y, [x, indices]).explain()
        feeds = {x: data, indices: wanted}
        found = session.executor.to_host(session.run(y, feeds))
        np.testing.assert_array_equal(found, cpu.run(y, feeds))
        wanted[0, 1, 0, 0] = -1
        with pytest.raises(ExecutionError, match="max_unpool: index -1 lies outside of a plane"):
            session.run(y, {x: data, indices: wanted}, host=True)


def test_the_gradient_of_an_embedding_is_the_same_in_every_run(anywhere, rng):
    with gf.Graph() as g:
        words = gf.placeholder(("n",), gf.int64, name="words")
        table = gf.placeholder((50, 24), name="table")
        loss = gf.sum(gf.take(table, words, axis=0) ** 3)
        (slope,) = gf.grad(loss, [table])
    feeds = {words: rng.integers(0, 50, 2000), table: rng.normal(size=(50, 24)).astype(np.float32)}
    with gf.Session(g, executor="cupy") as session:
        first, *others = [session.executor.to_host(session.run(slope, feeds)) for _ in range(3)]
    for other in others:
        np.testing.assert_array_equal(other, first)
    with gf.Session(g) as session:
        np.testing.assert_allclose(first, session.run(slope, feeds), rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1])
def test_joins(fake, rng, layout, axis):
    arrays = [drawn(rng, (3, 8)), drawn(rng, (3, 8)), drawn(rng, (0, 8) if axis == 0 else (3, 0))]
    text = check(Concat(axis), arrays, (layout, "plain", "plain"))
    assert f"concat: {'vector' if layout == 'plain' else 'element'}" in text
    if layout != "sliced":
        check(Concat(axis), arrays, ("plain", layout, layout), symbolic=True)


def test_sections_that_are_computed_where_they_belong(fake, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 32), name="x")
        w = gf.placeholder((32, 16), name="w")
        sections = [gf.tanh(x), gf.relu(x @ w), x * 2.0, gf.sum(x, axis=1, keepdims=True)]
        y = gf.concat([gf.concat(sections[:2], axis=1), *sections[2:]], axis=1)
        fetches = [gf.exp(y), gf.sum(y, axis=0)]
    feeds = [rng.normal(size=(5, 32)).astype(np.float32), np.ones((32, 16), np.float32)]
    with gf.Session(g, executor="cupy") as session, gf.Session(g) as cpu:
        plan = session.compile(fetches, [x, w])
        found, wanted = plan(*feeds), cpu.compile(fetches, [x, w])(*feeds)
        text = plan.explain((5, 32), (32, 16))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(session.executor.to_host(one), other, rtol=1e-5)
    assert text.count("concat: ") == 1
    (step,) = [one.step for one in plan._run.build.work if one.step.nodes[0].op.name == "concat"]
    assert len(step.operands) == 2, "the result, and the sum"


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", DTYPES)
def test_joins_of_any_dtype(fake, rng, dtype):
    for width in (16, 5):
        check(Concat(1), [drawn(rng, (3, width), dtype), drawn(rng, (3, width), dtype)])


def test_sections_that_are_replaced(fake, rng):
    x = drawn(rng, (6, 9))
    op = SliceSet((1, 2), (2, 3), (2, 1))
    check(op, (x, drawn(rng, (2, 3))))
    check(op, (x, drawn(rng, (2, 3))), ("transposed", "sliced"))
    with gf.Graph() as g:
        a = gf.placeholder(("n", 4), name="a")
        kept = gf.index_set(gf.exp(a), slice(1, 3), 7.0)  # over what nobody else reads
        rolled = gf.roll(a, (1, -2), axis=(0, 1))
    data = rng.normal(size=(5, 4)).astype(np.float32)
    with gf.Session(g, executor="cupy") as session, gf.Session(g) as cpu:
        found = session.compile([kept, rolled], [a])(data)
        wanted = cpu.compile([kept, rolled], [a])(data)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(session.executor.to_host(one), other, rtol=1e-6)


def test_a_slice_that_may_be_out_of_range(fake):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = emit(Slice((2,), (3,), (1,)), x)
    with gf.Session(g, executor="cupy") as session:
        home = session.executor.to_host
        data = np.arange(6, dtype=np.float32)
        np.testing.assert_array_equal(home(session.run(y, {x: data})), [2, 3, 4])
        with pytest.raises(ExecutionError):
            session.run(y, {x: data[:4]}, host=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("shape", [(7, 5), (1, 9), (2, 3, 4), (4, 0), (0, 4)], ids=str)
def test_scans(fake, rng, shape, exclusive, reverse):
    for axis in range(len(shape)):
        for op in (CumulativeSum, CumulativeProd):
            check(op(axis, reverse, exclusive), [drawn(rng, shape)])
        factors = [drawn(rng, shape), drawn(rng, shape)]
        check(Recurrence(axis, reverse), factors, ("plain", "flipped"), symbolic=True)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_scans_of_any_dtype(fake, rng, dtype):
    for op in (CumulativeSum(0), CumulativeProd(0), CumulativeSum(1, exclusive=True)):
        check(op, [drawn(rng, (9, 6), dtype)])


@pytest.mark.exhaustive
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("size", [64, 255, 700])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_long_sums(fake, rng, dtype, size, exclusive, reverse):
    op, x = CumulativeSum(1, reverse, exclusive), drawn(rng, (3, size), dtype)
    for layout in ("plain", "sliced"):
        found, text = computed(op, [x], [layout])
        assert "rows, 3 blocks" in text
        wanted = op.eval(np, x)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        rtol = {"float32": 1e-4, "float64": 1e-12, "float16": 4e-3, "int32": 0}[dtype]
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=rtol * 10
        )


@pytest.mark.slow
def test_the_training_step_of_a_transformer(fake, rng):
    time, width, words = 8, 16, 20
    with gf.Graph() as g:
        ids = gf.placeholder(("batch", time), gf.int64, name="ids")
        label = gf.placeholder(("batch", time), gf.int64, name="label")
        table, indices = gf.nn.Embedding(words, width), gf.nn.Embedding(time, width)
        x = table(ids) + indices(gf.arange(time))
        h = gf.nn.Linear(width, 3 * width)(gf.nn.LayerNorm(width)(x))
        heads = [gf.reshape(t, (-1, time, 2, width // 2)) for t in gf.split(h, 3, axis=-1)]
        q, k, v = [gf.permute_dims(t, (0, 2, 1, 3)) for t in heads]
        mixed = gf.scaled_dot_product_attention(q, k, v, causal=True)
        mixed = gf.reshape(gf.permute_dims(mixed, (0, 2, 1, 3)), x.shape)
        x = x + gf.nn.Linear(width, width)(mixed)
        h = gf.nn.Linear(width, 4 * width)(gf.nn.LayerNorm(width)(x))
        x = x + gf.nn.Linear(4 * width, width)(gf.gelu(h, approximate="tanh"))
        scores = gf.nn.LayerNorm(width)(x) @ table.weight.mT
        loss = gf.nn.cross_entropy(gf.reshape(scores, (-1, words)), gf.reshape(label, (-1,)))
        train = gf.optim.AdamW(1e-3).minimize(loss)
    feeds = [rng.integers(0, words, (3, time)) for _ in range(2)]
    results = []
    for executor in ("cupy", "numpy"):
        with gf.Session(g, executor=executor, seed=1) as session:
            plan = session.compile([loss, train], [ids, label])
            results.append([float(plan(*feeds)[0]) for _ in range(4)])
            if executor == "cupy":
                text = plan.explain(*[array.shape for array in feeds])
    np.testing.assert_allclose(*results, rtol=1e-3)
    assert "0 operations by CuPy" in text
    assert text.count("matmul residual bias: by cuBLASLt") == 2
