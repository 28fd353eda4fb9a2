"""Epilogues of products: which graphs have them, with which numbers, and which can't."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.passes.manager import run_pipeline
from graphfw.passes.pipelines import DEFAULT
from graphfw.runtime.cupy_executor import cublaslt as binding
from graphfw.runtime.cupy_executor.epilogues import FuseEpilogues

TOLERANCE = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 1e-5, "float64": 1e-12}


def tanh_gelu(x):
    return gf.gelu(x, approximate="tanh")


def run(g, fetches, feeds, executor, precision="highest"):
    with gf.Session(g, executor=executor, seed=3, matmul_precision=precision) as session:
        plan = session.compile(fetches, list(feeds))
        found = plan(*feeds.values())
        text = plan.explain(*[array.shape for array in feeds.values()])
        found = [session.executor.to_host(x) for x in found if x is not None]
        state = session.state_dict()
    return found + [np.asarray(x) for x in state.values()], text


def compared(g, fetches, feeds, rtol):
    """Run on both executors; return what the stand-in's plan says."""
    found, text = run(g, fetches, feeds, "cupy", "high")  # without which float32 has no GELU
    wanted, _ = run(g, fetches, feeds, "numpy")
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    return text


def layer(rng, dtype, shape=(5, 6), width=8):
    """A graph with operands of a layer, and what they are fed."""
    g = gf.Graph()
    with g:
        x = gf.placeholder(("n", *shape[1:]), dtype, name="x")
        w = gf.placeholder((shape[-1], width), dtype, name="w")
        b = gf.placeholder((width,), dtype, name="b")
        r = gf.placeholder(("n", *shape[1:-1], width), dtype, name="r")
    shapes = {x: shape, w: w.shape, b: b.shape, r: (*shape[:-1], width)}
    return g, {t: rng.normal(size=s).astype(dtype.dtype) for t, s in shapes.items()}


MADE = {
    "bias": (lambda x, w, b, r: x @ w + b, binding.BIAS),
    "bias, first": (lambda x, w, b, r: b + x @ w, binding.BIAS),
    "bias as a row": (lambda x, w, b, r: x @ w + b[None], binding.BIAS),
    "bias backwards": (lambda x, w, b, r: x @ w + b[::-1], binding.BIAS),
    "residual": (lambda x, w, b, r: r + x @ w, binding.PLAIN),
    "residual backwards": (lambda x, w, b, r: x @ w + r[::-1], binding.PLAIN),
    "residual, cut": (lambda x, w, b, r: x @ w[:, 1:] + r[..., 1:], binding.PLAIN),
    "bias and residual": (lambda x, w, b, r: x @ w + b + r, binding.BIAS),
    "gelu": (lambda x, w, b, r: tanh_gelu(x @ w), binding.GELU),
    "all": (lambda x, w, b, r: tanh_gelu(x @ w + b + r), binding.BIAS | binding.GELU),
    "weights across": (lambda x, w, b, r: x @ gf.asarray(w.mT).mT + b, binding.BIAS),
}


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("dtype", [gf.float32, gf.float16, gf.bfloat16], ids=str)
@pytest.mark.parametrize("refused", [False, True], ids=["taken", "refused"])
@pytest.mark.parametrize("how", MADE)
def test_what_is_done_to_elements(fake, cublaslt, how, refused, dtype, rng):
    make, epilogue = MADE[how]
    g, feeds = layer(rng, dtype)
    with g:
        y = make(*feeds)
    if refused:
        cublaslt.refused = {epilogue} - {binding.PLAIN}
    compared(g, [y], feeds, TOLERANCE[dtype.name])
    assert cublaslt.epilogues == [binding.PLAIN if refused else epilogue]
    after = len(fake.launches) - how.endswith("backwards")  # what is copied
    assert (after > 0) == bool(cublaslt.refused)


@pytest.mark.parametrize("shape", [(4, 3, 6), (2, 3, 2, 6), (1, 1, 6)], ids=str)
def test_rows_of_all_batches(fake, cublaslt, shape, rng):
    g, feeds = layer(rng, gf.float32, shape)
    with g:
        x, w, b, r = feeds
        y = tanh_gelu(x @ w + b + r)
        transposed = gf.permute_dims(x, (1, 0, *range(2, x.ndim))) @ w + b
    compared(g, [y, transposed], feeds, 1e-5)
    assert sorted(cublaslt.epilogues) == [binding.BIAS, binding.BIAS | binding.GELU]


@pytest.mark.exhaustive
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("k", [0, 3])
def test_empty_products(fake, cublaslt, n, k, rng):
    g = gf.Graph()
    with g:
        x = gf.placeholder(("n", "k"), name="x")
        w = gf.placeholder(("k", 8), name="w")
        b = gf.placeholder((8,), name="b")
        r = gf.placeholder(("n", 8), name="r")
        fetches = [tanh_gelu(x @ w + b), x @ w + b + r]
    arrays = {x: (n, k), w: (k, 8), b: (8,), r: (n, 8)}
    compared(
        g, fetches, {t: rng.normal(size=s).astype(np.float32) for t, s in arrays.items()}, 1e-5
    )


def perceptron(activation, dtype, width=16):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, 8), dtype, name="x")
        t = gf.placeholder(("n", 3, 8), dtype, name="t")
        sizes = {"w": (8, width), "b": (width,), "v": (width, 8), "c": (8,)}
        w, b, v, c = [
            gf.astype(gf.Variable(gf.nn.init.normal(), shape=shape, name=name), dtype)
            for name, shape in sizes.items()
        ]
        h = activation(x @ w + b)
        y = h @ v + c + x
        loss = gf.mean(gf.astype(y - t, gf.float32) ** 2)
        train = gf.optim.SGD(0.1).minimize(loss)
    return g, x, t, loss, train


def test_training_in_mixed_precision(fake, cublaslt, rng):
    g, x, t, loss, train = perceptron(tanh_gelu, gf.float32)
    feeds = [rng.normal(size=(4, 3, 8)).astype(np.float32) for _ in range(2)]
    results = []
    for executor in ("cupy", "numpy"):
        with gf.Session(g, executor=executor, seed=3, precision="mixed-bf16") as session:
            plan = session.compile([loss, train], [x, t])
            results.append([float(plan(*feeds)[0]) for _ in range(4)])
    np.testing.assert_allclose(*results, rtol=2e-2)
    assert set(cublaslt.epilogues) >= {binding.GELU_AUX | binding.BIAS, binding.DGELU}
    assert cublaslt.epilogues.count(binding.BGRADA) == 2 * 4


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("refused", [False, True], ids=["taken", "refused"])
@pytest.mark.parametrize("dtype", [gf.float32, gf.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("activation", "width", "epilogues"),
    [
        (tanh_gelu, 16, {binding.GELU_AUX | binding.BIAS, binding.DGELU}),
        (tanh_gelu, 10, {binding.BIAS}),  # what is kept has rows of a multiple of 8
        (gf.relu, 16, {binding.BIAS}),
        (gf.gelu, 16, {binding.BIAS}),
    ],
    ids=["gelu", "gelu 10", "relu", "exact"],
)
def test_training(fake, cublaslt, activation, width, epilogues, dtype, refused, rng):
    g, x, t, loss, train = perceptron(activation, dtype, width)
    feeds = {s: rng.normal(size=(4, 3, 8)).astype(dtype.dtype) for s in (x, t)}
    sums = {binding.BGRADA} if dtype is gf.bfloat16 else set()
    if refused:
        cublaslt.refused = {*epilogues, *sums}
    text = compared(g, [loss, train], feeds, TOLERANCE[dtype.name])
    assert "matmul residual bias: by cuBLASLt, made at test_epilogues.py" in text
    wanted = {binding.PLAIN, binding.BIAS, *sums, *epilogues} - cublaslt.refused
    assert {binding.PLAIN, *cublaslt.epilogues} == wanted


def epilogues_of(g, outputs):
    """The ops that products become, but not those of products alone."""
    with gf.Session(g) as session:
        graph = session.compile(outputs, g.placeholders).program.source
    done = run_pipeline(graph, [*DEFAULT, FuseEpilogues()], verify="values").graph
    return [node.op for node in done.nodes if node.op.name == "fused_product"]


@pytest.mark.parametrize(
    "make",
    [
        lambda x, w, b, r: [x @ w, x @ w + b],  # the product itself is wanted
        lambda x, w, b, r: [x @ w + b[0]],  # no row
        lambda x, w, b, r: [x @ w + gf.sum(r)],
        lambda x, w, b, r: [x @ w + gf.sum(r, axis=-1, keepdims=True)],
        lambda x, w, b, r: [(x @ w) + (x @ w)],
        lambda x, w, b, r: [(x @ w) * 2 + b],
        lambda x, w, b, r: [x @ gf.stack([w, w]) + b],  # many second factors
        lambda x, w, b, r: [gf.tanh(x @ w)],
        lambda x, w, b, r: [gf.relu(x @ w)],  # of NaN, the library's is 0
    ],
)
def test_what_is_not_taken_up(make, rng):
    g, feeds = layer(rng, gf.float32)
    with g:
        outputs = make(*feeds)
    assert not epilogues_of(g, outputs)


def test_an_activation_whose_operand_is_wanted_too(rng):
    g, feeds = layer(rng, gf.float32)
    with g:
        x, w, b, r = feeds
        before = x @ w + b
        relu = gf.relu(before) + before.mean()
        kept = x @ w + r
        gelu = tanh_gelu(kept) * gf.exp(kept)
    (first,) = epilogues_of(g, [relu])
    assert (first.bias, first.activation) == (True, "")
    (second,) = epilogues_of(g, [gelu])
    assert (second.residual, second.activation, second.keeps) == (True, "gelu", True)


def test_slopes_of_gelu_that_something_else_reads(rng):
    g, feeds = layer(rng, gf.float32)
    with g:
        x, w, b, _ = feeds
        at = gf.placeholder(("n", 8), name="at")
        ct = x @ w
        _, pull = gf.vjp(tanh_gelu, at)
        (slope,) = pull(ct)
        both = [slope, gf.exp(ct)]
    (alone,) = epilogues_of(g, [slope])
    assert alone.activation == "gelu_grad"
    assert not epilogues_of(g, both)


def test_a_sum_that_its_product_needs(rng):
    with gf.Graph() as g:
        y = gf.placeholder(("n", 4), gf.bfloat16, name="y")
        total = gf.sum(y, axis=0)
        later = gf.reshape(total, (4, 1)) * gf.ones((4, 1), dtype=gf.bfloat16)
        x = gf.broadcast_to(later, (4, y.shape[0]))
        product = x @ y
        other = gf.ones((3, y.shape[0]), dtype=gf.bfloat16) @ y
    assert not [op for op in epilogues_of(g, [product, total]) if op.sums]
    assert [op.sums for op in epilogues_of(g, [other, total])] == [True]


def random_layers(rng, dtype):
    """Return a graph of products and what may be done to them, read here and there, and outputs."""
    with gf.Graph() as g:
        lead = [("n",), ("n", 3), (5,)][rng.integers(3)]
        x = gf.placeholder((*lead, 4), dtype, name="x")
        weights = [gf.placeholder((4, 4), dtype, name=f"w{i}") for i in range(3)]
        bias = gf.placeholder((4,), dtype, name="b")
        made = [x]
        for _ in range(rng.integers(3, 12)):
            t = made[-1] if rng.random() < 0.6 else made[rng.integers(len(made))]
            w = weights[rng.integers(3)]
            other = made[rng.integers(len(made))]
            ways = [
                lambda t=t, w=w: t @ w,
                lambda t=t, w=w: t @ w.mT,
                lambda t=t, w=w: bias + t @ w,
                lambda t=t: t + bias,
                lambda t=t, other=other: t + other,
                lambda t=t: gf.relu(t),
                lambda t=t: tanh_gelu(t),
                lambda t=t: t + gf.sum(t, axis=tuple(range(t.ndim - 1))),
                lambda t=t: t * 0.5,
            ]
            made.append(ways[rng.integers(len(ways))]())
        outputs = [made[-1], made[rng.integers(len(made))]]
        loss = gf.sum(gf.astype(made[-1], gf.float32) * 0.1)
        slopes = gf.grad(loss, [x, bias, *weights], missing="zeros")
        outputs += [gf.astype(t, gf.float32) for t in slopes] if rng.random() < 0.5 else slopes
    return g, outputs


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [gf.float32, gf.bfloat16], ids=str)
@pytest.mark.parametrize("number", range(4))
def test_random_graphs(number, dtype, rng):
    """`epilogues_of` sees that no value changes."""
    assert sum([len(epilogues_of(*random_layers(rng, dtype))) for _ in range(6)]) > 1


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_random_graphs_run(fake, cublaslt, number, rng):
    for _ in range(4):
        g, outputs = random_layers(rng, gf.float32)
        sizes = {
            t: [5 if isinstance(dim, gf.Dim) else dim for dim in t.shape] for t in g.placeholders
        }
        feeds = {t: rng.normal(size=size).astype(np.float32) / 2 for t, size in sizes.items()}
        every = [binding.BIAS, binding.GELU, binding.GELU | binding.BIAS, binding.DGELU]
        cublaslt.refused = {e for e in every if rng.random() < 0.5}
        compared(g, outputs, feeds, 1e-4)


def test_algorithms_are_asked_for_once(fake, cublaslt, rng):
    g, feeds = layer(rng, gf.float32)
    with g:
        x, w, b, _ = feeds
        outputs = [x @ w + b, gf.exp(x) @ w + b]
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(outputs, list(feeds)[:3])
        for _ in range(3):
            plan(*list(feeds.values())[:3], host=True)
    assert len(cublaslt.products) == 6
    assert cublaslt.searches == 1


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_gelu_is_as_exact_as_the_product(fake, cublaslt, precision, rng):
    g, feeds = layer(rng, gf.float32)
    with g:
        x, w, b, _ = feeds
        y = tanh_gelu(x @ w + b)
    run(g, [y], {t: feeds[t] for t in (x, w, b)}, "cupy", precision)
    wanted = binding.GELU | binding.BIAS if precision == "high" else binding.PLAIN
    assert cublaslt.epilogues == [wanted]


def test_kernels_that_few_sizes_need_are_compiled_for_these(fake, cublaslt, rng):
    g, feeds = layer(rng, gf.float32)
    with g:
        x, w, b, r = feeds
        outputs = [tanh_gelu(x @ w), gf.exp(r) + b]
    compiled = []
    with gf.Session(g, executor="cupy", matmul_precision="high") as session:
        plan = session.compile(outputs, [*feeds])
        for n in (5, 9, 9, 7):
            plan(
                *[
                    np.resize(a, (n, *a.shape[1:])) if t is x or t is r else a
                    for t, a in feeds.items()
                ]
            )
            compiled.append(len(fake.compiled))
            cublaslt.refused = {binding.GELU}  # at other sizes
        assert "tanhf" in plan.source()
    assert compiled == [1, 2, 2, 2]


def test_kernels_that_all_sizes_need_are_compiled_along(fake, cublaslt, rng):
    g, feeds = layer(rng, gf.float32)
    with g:
        x, w, b, r = feeds
        outputs = [tanh_gelu(x @ w), gf.exp(r) + b]
    with gf.Session(g, executor="cupy") as session:  # GELU of float32 is left to kernels
        session.compile(outputs, [*feeds])(*feeds.values())
    assert len(fake.compiled) == 1


@pytest.mark.parametrize("activation", [gf.relu, tanh_gelu])
def test_nans_are_kept(anywhere, activation, rng):
    g, feeds = layer(rng, gf.float32)
    with g:
        x, w, b, _ = feeds
        y = activation(x @ w + b)
    arrays = [*feeds.values()][:3]
    arrays[0][2, 3] = np.nan
    with gf.Session(g, executor="cupy") as session:
        found = session.executor.to_host(session.compile(y, [x, w, b])(*arrays))
    assert np.isnan(found[2]).all()
    assert np.isfinite(found[[0, 1, 3, 4]]).all()
