"""Tensors that the backward graph computes again instead of keeping them."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.ir.verify import verify
from graphfw.passes import pipelines, rematerialise_elementwise
from graphfw.passes.manager import run_pipeline
from graphfw.passes.rematerialise_elementwise import RematerialiseElementwise

WIDTH, INNER, LAYERS, ROWS = 24, 56, 5, 37
DEFAULT = pipelines.DEFAULT
WITHOUT = pipelines.NODEWISE


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Have the pass see to small tensors, natively."""
    monkeypatch.setattr(rematerialise_elementwise, "_LARGE", 1)
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def inner_gelu(h, w, v):
    return h + gf.gelu(h @ w) @ v


def biased(h, w, v):
    return h + gf.gelu(h @ w + 0.25, approximate="tanh") @ v


def normed(h, w, v):
    return h + gf.sigmoid(gf.layer_norm(h) @ w) @ v


def transposed(h, w, v):
    """Return a block whose second product reads the first one's result in another order."""
    inner = gf.erf(h @ w)
    heads = gf.swapaxes(gf.reshape(inner, (inner.shape[0], 8, 7)), 1, 2)
    return h + gf.reshape(heads, (inner.shape[0], INNER)) @ v


def cast(h, w, v):
    return h + gf.astype(gf.astype(gf.tanh(h @ w), "float16"), "float32") @ v


def dropped(h, w, v):
    return h + gf.dropout(gf.gelu(h @ w), 0.4) @ v


def gated(h, w, v):
    return h + (gf.silu(h @ w) * (h @ gf.flip(w, axis=1))) @ v


def looped(h, w, v):
    return h + gf.gelu(gf.fori_loop(0, 3, lambda i, x: gf.tanh(x) * 1.5, h @ w)) @ v


LAYER = [inner_gelu, biased, normed, transposed, cast, dropped, gated, looped]


def net(layer, layers=LAYERS, dims=("batch", WIDTH)):
    """Return a graph, its placeholder, and the loss of some layers with its gradients."""
    rng = np.random.default_rng(3)
    with gf.Graph() as g:
        x = gf.placeholder(dims, name="x")
        h, weights = x, []
        for i in range(layers):
            shapes = [(WIDTH, INNER), (INNER, WIDTH)]
            arrays = [rng.normal(size=s).astype(np.float32) * np.float32(0.2) for s in shapes]
            weights += [gf.Variable(a, name=f"w{i}{k}") for k, a in enumerate(arrays)]
            h = layer(h, *weights[-2:])
        loss = gf.mean(h * h)
        return g, x, [loss, *gf.grad(loss, weights)]


def plan_of(monkeypatch, passes, layer, **options):
    monkeypatch.setattr(pipelines, "DEFAULT", passes)
    g, x, outputs = net(layer)
    session = gf.Session(g, seed=5, **options)
    return session.compile(outputs, feeds=[x])


def economised(g, outputs):
    """Return the passed graph before and after, and what is computed again."""
    graph = run_pipeline(derive(g, outputs), WITHOUT).graph
    hits = Counter()
    result = RematerialiseElementwise().run(graph, hits)
    verify(result)
    assert [t.type for t in result.outputs] == [t.type for t in graph.outputs]
    return graph, result, hits


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("layer", LAYER)
def test_values_are_the_same(layer, monkeypatch, rng):
    array = rng.standard_normal((ROWS, WIDTH), dtype=np.float32)
    plans = [plan_of(monkeypatch, passes, layer, threads=1) for passes in (WITHOUT, DEFAULT)]
    wanted, found = [plan(array) for plan in plans]
    for a, b in zip(found, wanted, strict=True):
        # Sums that are fused with others may be added in another order.
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6 * float(np.abs(b).max()))
    assert plans[1].memory(array).peak <= plans[0].memory(array).peak


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("layer", "width"),
    [
        (inner_gelu, INNER),
        (biased, INNER),
        (transposed, INNER),
        (dropped, INNER),
        (gated, INNER),
        (normed, WIDTH / 2),
    ],
)
def test_less_is_kept(layer, width, monkeypatch):
    plans = [plan_of(monkeypatch, passes, layer) for passes in (WITHOUT, DEFAULT)]
    before, after = [plan.memory((4096, WIDTH)) for plan in plans]
    assert before.arena - after.arena >= (LAYERS - 2) * 4 * 4096 * width


def test_nothing_dear_is_computed_again():
    g, _, outputs = net(biased)
    graph, result, hits = economised(g, outputs)
    assert hits["tanh"] == LAYERS - 1  # the last layer's is there still
    assert "matmul" not in hits
    names = [Counter(node.op.name for node in one.nodes) for one in (graph, result)]
    assert names[1]["matmul"] == names[0]["matmul"]


def test_random_bits_are_not_kept_in_place_of_a_mask():
    g, _, outputs = net(dropped)
    _, result, hits = economised(g, outputs)
    barred = [node.inputs[0].dtype.name for node in result.nodes if node.op.name == "barrier"]
    assert "bool" in barred
    assert "uint32" not in barred
    assert hits["where"] > 0


@pytest.mark.parametrize("layer", [biased, gated, normed])
def test_a_second_time_finds_nothing(layer):
    g, _, outputs = net(layer)
    _, result, _ = economised(g, outputs)
    hits = Counter()
    assert RematerialiseElementwise().run(result, hits) is result


def test_small_tensors_are_kept(monkeypatch):
    monkeypatch.undo()
    g, _, outputs = net(biased)
    graph, result, _ = economised(g, outputs)
    assert result is graph


def test_without_gradients_there_is_nothing_to_do():
    g, _, outputs = net(biased)
    graph, result, _ = economised(g, outputs[:1])
    assert result is graph


def test_what_is_fetched_is_kept_anyway():
    inner = []

    def layer(h, w, v):
        inner.append(gf.gelu(h @ w))
        return h + inner[-1] @ v

    g, _, outputs = net(layer)
    _, _, hits = economised(g, outputs)
    assert hits["ndtr"] == LAYERS - 1
    _, _, hits = economised(g, [*outputs, inner[0], inner[2]])
    assert hits["ndtr"] == LAYERS - 3


def test_a_tensor_that_gives_all_others_is_kept_itself():
    """The gradient of tanh needs its result, and so does the product: there is nothing else."""
    g, _, outputs = net(lambda h, w, v: h + gf.tanh(h @ w) @ v)
    graph, result, _ = economised(g, outputs)
    assert result is graph


def test_a_size_that_can_not_be_estimated(monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" has no size that fits the broadcast

    def layer(h, w, v):
        n = h.shape[0]
        spread = gf.broadcast_to(gf.sum(h @ w), (n // (n - rematerialise_elementwise._SIZE),))
        return biased(h, w, v) * gf.mean(spread)

    g, _, outputs = net(layer)
    graph, result, _ = economised(g, outputs)
    assert result is graph


@pytest.mark.parametrize("layer", [biased, normed])
def test_any_number_of_threads_gives_the_same(layer, monkeypatch, rng):
    array = rng.standard_normal((501, WIDTH), dtype=np.float32)
    plans = [plan_of(monkeypatch, DEFAULT, layer, threads=n) for n in (1, 2, 3)]
    for a, *others in zip(*[plan(array) for plan in plans], strict=True):
        for b in others:
            np.testing.assert_array_equal(a, b)


def test_a_plan_says_so(monkeypatch):
    plan = plan_of(monkeypatch, DEFAULT, biased)
    (line,) = [
        line for line in plan.explain().splitlines() if line.startswith("rematerialise-elementwise")
    ]
    assert f"tanh {LAYERS - 1}" in line


def test_nothing_is_computed_twice_node_by_node(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    lines = plan_of(monkeypatch, DEFAULT, biased).explain().splitlines()
    assert [line for line in lines if line.startswith("simplify")]
    assert not [line for line in lines if line.startswith("rematerialise-elementwise")]


@pytest.mark.parametrize("level", ["values", "first-run"])
def test_checks_find_no_difference(level, monkeypatch, rng):
    plan = plan_of(monkeypatch, DEFAULT, biased, verify=level)
    plan(rng.standard_normal((5, WIDTH), dtype=np.float32))
