"""Computing again what the backward graph reads: what is chosen, and that no value changes."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.rebuild import derive
from graphfw.ir.verify import verify
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.passes.manager import run_pipeline
from graphfw.passes.pipelines import DEFAULT
from graphfw.passes.rematerialise import BUDGETS, Budget, Rematerialise
from graphfw.runtime.executor import Options
from graphfw.runtime.numpy_executor.buffer_pool import Arenas
from graphfw.runtime.numpy_executor.compiled import build_of
from graphfw.runtime.numpy_executor.executables import native_executable
from graphfw.runtime.program import lower

SIZES = {"batch": 128}
SEGMENTS = Budget(segments=1)


def mlp(layers=4, width=32, inner=64, wrap=lambda layer: layer, between=lambda h: h):
    """Return the loss of a residual network, and its gradients, as a graph without passes."""
    rng = np.random.default_rng(layers)
    with gf.Graph() as g:
        x = gf.placeholder(("batch", width), name="x")
        weights = []
        h = x
        for i in range(layers):
            shapes = [(width, inner), (inner, width)]
            arrays = [rng.normal(size=s).astype(np.float32) * np.float32(0.1) for s in shapes]
            w, v = [gf.Variable(a, name=f"{'wv'[k]}{i}") for k, a in enumerate(arrays)]
            weights += [w, v]
            h = between(wrap(lambda h, w=w, v=v: h + gf.gelu(h @ w) @ v)(h))
        loss = gf.mean(h * h)
        return g, x, [loss, *gf.grad(loss, weights)]


def passed(g, outputs):
    return run_pipeline(derive(g, outputs), DEFAULT).graph


def rematerialised(graph, budget=BUDGETS[0], sizes=SIZES):
    hits = Counter()
    result = Rematerialise(sizes, budget).run(graph, hits)
    verify(result)
    return result, hits


def counted(graph, name):
    return sum(node.op.name == name for node in graph.nodes)


def test_cheap_tensors_come_again_and_products_do_not():
    g, x, outputs = mlp()
    graph = passed(g, outputs)
    result, hits = rematerialised(graph)
    assert counted(result, "matmul") == counted(graph, "matmul")
    assert hits["ndtr"] > 0
    assert "matmul" not in hits
    assert counted(result, "barrier") > 0
    assert [t.type for t in result.outputs] == [t.type for t in graph.outputs]


def test_the_last_layer_has_nothing_to_wait_for():
    """The last layer's tensors are read as soon as they are there: nothing would be saved."""
    g, x, outputs = mlp(layers=1)
    graph = passed(g, outputs)
    _, one = rematerialised(graph)
    _, many = rematerialised(passed(*[mlp(layers=5)[i] for i in (0, 2)]))
    assert one["ndtr"] <= 1
    assert many["ndtr"] == one["ndtr"] + 4


@pytest.mark.parametrize("share", [1 / 4, 1 / 2, 3 / 4])
def test_a_share_of_the_products_comes_again(share):
    g, x, outputs = mlp(layers=8)
    graph = passed(g, outputs)
    _, hits = rematerialised(graph, Budget(share=share))
    less = rematerialised(graph, Budget(share=share / 2))[1]
    assert 0 < hits["matmul"] <= 16
    assert less["matmul"] <= hits["matmul"]


def test_segments_keep_their_ends_only():
    g, x, outputs = mlp(layers=9)
    graph = passed(g, outputs)
    result, hits = rematerialised(graph, SEGMENTS)
    kept = {t.type for n in result.nodes if isinstance(n.op, Barrier) for t in n.outputs}
    wide = [kind for kind in kept if kind.shape and kind.shape[-1] == 64 and len(kind.shape) == 2]
    assert all(not isinstance(kind.shape[0], gf.Dim) for kind in wide), "no inner tensor is kept"
    assert hits["matmul"] >= 9


def test_copies_wait_for_a_cotangent():
    g, x, outputs = mlp()
    result, _ = rematerialised(passed(g, outputs), SEGMENTS)
    for node in result.nodes:
        if isinstance(node.op, Barrier):
            kept, cotangent = node.inputs
            assert kept is not cotangent
            above = {n for n in derive(result, [cotangent]).nodes}
            assert any(n.loc.grad_of is not None for n in above)


def test_without_gradients_there_is_nothing_to_do():
    g, x, outputs = mlp()
    graph = passed(g, outputs[:1])
    for budget in BUDGETS:
        result, hits = rematerialised(graph, budget)
        assert result is graph
        assert not hits


def test_small_tensors_stay():
    """A bias of a few numbers is not worth a copy of what makes it."""
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 32), name="x")
        w, v = [gf.Variable(np.eye(32, dtype=np.float32), name=n) for n in "wv"]
        scale = gf.sigmoid(gf.Variable(np.float32(0.3), name="s"))
        h = gf.tanh(gf.tanh(x @ w) * scale @ v)
        grads = gf.grad(gf.mean(h * h), [w, v])
    graph = passed(g, grads)
    result, _ = rematerialised(graph)
    assert sum(n.op.name == "sigmoid" for n in result.nodes) == 1


def test_what_may_fail_or_has_no_known_length_is_never_repeated():
    with gf.Graph() as g:
        rows = gf.placeholder(("batch",), gf.int64, name="rows")
        table, w = [
            gf.Variable(np.ones(s, np.float32), name=n)
            for s, n in [((9, 32), "table"), ((32, 32), "w")]
        ]
        h = gf.take(table, rows, axis=0)
        h = gf.while_loop(lambda h: gf.max(h) < 3, lambda h: h * 2 + 1, h)
        h = h + gf.host_call(np.sin, (h.shape, "float32"), gf.stop_gradient(h), pure=True)
        for _ in range(3):
            h = gf.tanh(h @ w)
        loss = gf.mean(h)
        grads = gf.grad(loss, [w])
    graph = passed(g, [loss, *grads])
    for budget in BUDGETS:
        result, _ = rematerialised(graph, budget)
        for name in ("gather", "loop", "host_call"):
            assert counted(graph, name) > 0
            assert counted(result, name) == counted(graph, name)


def test_random_numbers_are_drawn_again_from_the_same_key():
    g, x, outputs = mlp(between=lambda h: gf.dropout(h, 0.5))
    graph = passed(g, outputs)
    result, _ = rematerialised(graph, SEGMENTS)
    keys = [n.op.key for n in result.nodes if n.op.name == "random_bits"]
    assert len(keys) > len({*keys}) == counted(graph, "random_bits")


def test_it_is_a_pass_like_others():
    g, x, outputs = mlp()
    graph = passed(g, outputs)
    result = run_pipeline(graph, [Rematerialise(SIZES, SEGMENTS)], verify="values")
    (report,) = result.reports
    assert report.name == "rematerialise"
    assert report.hits["matmul"] > 0


@pytest.mark.parametrize("size", [0, 1, 3])
def test_any_sizes_choose_something_right(size):
    g, x, outputs = mlp(wrap=gf.checkpoint)
    graph = passed(g, outputs)
    for budget in BUDGETS:
        rematerialised(graph, budget, {"batch": size})


def test_a_barrier_costs_nothing():
    """Its results lie where its operands lay; their readers wait, in kernels of their own."""
    with gf.Graph() as g:
        x, y = [gf.placeholder(("n", 7), name=n) for n in "xy"]
        kept = gf.exp(x)
        late = gf.sum(y, axis=0)
        again, other = emit_all(Barrier(2), kept, x, late)
        outputs = [gf.sin(kept), gf.cos(again.T) + 1, gf.tanh(other), late]
    program = lower(outputs, [], [x, y], g, "off", lambda: DEFAULT)
    build = build_of(program, Options(), Arenas(), native_executable)
    facts = build.stages.partition.facts
    assert facts.root_of(again) is kept
    assert facts.waits(outputs[1].node.inputs[0].node) == [late]
    names = [{node.op.name for node in group.nodes} for group in build.stages.partition.groups]
    assert not any("barrier" in group for group in names)
    (waiting,) = [group for group in names if "cos" in group]
    assert waiting.isdisjoint({"exp", "sin", "sum"})
    level = {
        node.op.name: number
        for number, level in enumerate(build.levels)
        for step in level.steps
        for node in step.nodes
    }
    assert level["sum"] < level["cos"]
    assert level["sum"] < level["tanh"]
    assert level["exp"] == 0


def test_values_behind_barriers(rng):
    with gf.Graph() as g:
        x, y = [gf.placeholder((5, "n"), name=n) for n in "xy"]
        scaled = x * 2
        total = gf.sum(y * scaled, axis=1)
        first, second = emit_all(Barrier(2), scaled, x, total)
        inner = emit_all(Barrier(1), gf.flip(first, axis=1), gf.max(second))[0]
        outputs = [
            gf.sum(gf.exp(first), axis=0),
            gf.reshape(gf.permute_dims(first, (1, 0)), (-1,)),
            gf.sum(inner[:, :2], axis=1) + total,
            gf.sort(inner, axis=1),
            first @ gf.permute_dims(second, (1, 0)),
            first,
        ]
    arrays = [rng.standard_normal((5, 6), dtype=np.float32) for _ in "xy"]
    a, b = arrays[0] * 2, arrays[0]
    wanted = [
        np.exp(a).sum(0),
        a.T.reshape(-1),
        a[:, ::-1][:, :2].sum(1) + (arrays[1] * a).sum(1),
        np.sort(a, axis=1),
        a @ b.T,
        a,
    ]
    fed = {x: arrays[0], y: arrays[1]}
    with gf.Session(g) as session:
        for found, right in zip(session.run(outputs, fed), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=2e-5, atol=1e-5)


@pytest.mark.slow
def test_in_a_deep_net_no_layer_is_small():
    g, x, outputs = mlp(layers=120, width=8, inner=16)
    _, hits = rematerialised(passed(g, outputs))
    assert hits["ndtr"] == 119
