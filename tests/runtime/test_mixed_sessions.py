"""Sessions in mixed precision: values, reports, checks, and training as far as in float32."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, PassError
from graphfw.ir.dtype import bfloat16, float16
from graphfw.ir.op import nested
from graphfw.ir.rebuild import rebuild
from graphfw.passes.dce import EliminateDeadCode

KINDS = ("mixed-bf16", "mixed-fp16")
UNIT = {"mixed-bf16": 2.0**-8, "mixed-fp16": 2.0**-11}


def classifier(hidden=16):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 6), name="x")
        y = gf.placeholder(("n",), gf.int64, name="y")
        with gf.name_scope("body"):
            h = gf.gelu(gf.nn.Linear(6, hidden)(x))
        with gf.name_scope("head"):
            logits = gf.identity(gf.nn.Linear(hidden, 3)(h), name="logits")
        loss = gf.nn.cross_entropy(logits, y)
        step = gf.optim.AdamW(1e-2).minimize(loss)
    return g, x, y, logits, loss, step


@pytest.fixture
def net():
    return classifier()


@pytest.fixture
def data(rng):
    x = rng.standard_normal((33, 6)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)


def low_dtypes(plan):
    """The 16-bit dtypes in the optimised graph, loops included."""
    found, todo = set(), [*plan.program.graph.nodes]
    while todo:
        node = todo.pop()
        found |= {t.dtype for t in node.types if t.dtype.is_low_precision}
        todo += [inner for body in nested(node.op.values) for inner in body.nodes]
    return found


@pytest.mark.parametrize("precision", KINDS)
@pytest.mark.parametrize("jit", ["0", "1"])
def test_products_are_rounded_as_16_bits_are(precision, jit, monkeypatch, rng):
    monkeypatch.setenv("GRAPHFW_JIT", jit)
    low = {"mixed-bf16": bfloat16, "mixed-fp16": float16}[precision].dtype
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((7, 9), (9, 5), (5,)))
    with gf.Graph() as g:
        fed = gf.placeholder(("n", 9), name="x")
        y = gf.tanh(fed @ gf.Variable(w, name="w") + gf.Variable(b, name="b"))
    with gf.Session(g, precision=precision) as session:
        found = session.run(y, {fed: x})
    product = (x.astype(low).astype(np.float32) @ w.astype(low).astype(np.float32)).astype(low)
    assert found.dtype == np.float32
    # One rounding may go the other way, where sums are in another order.
    np.testing.assert_allclose(
        found, np.tanh(product.astype(np.float32) + b), rtol=0, atol=8 * UNIT[precision]
    )
    assert np.abs(found - np.tanh(x @ w + b)).max() > 1e-5  # it is not float32


@pytest.mark.parametrize("precision", KINDS)
def test_everything_outside_is_float32(net, data, precision):
    g, x, y, logits, loss, step = net
    with gf.Session(g, precision=precision) as session:
        plan = session.compile([logits, loss, step, *g.variables], [x, y])
        found = plan(*data)
        assert {a.dtype.name for a in found if a is not None} == {"float32", "int64"}
        state = session.state_dict()
        assert {a.dtype.name for a in state.values()} == {"float32", "int64"}
        assert len(low_dtypes(plan)) == 1
    with gf.Session(g) as session:  # what is saved has nothing to do with precision
        session.load_state_dict(state)
        assert not low_dtypes(session.compile([logits, loss], [x, y]))


# Training.


def mlp(rng):
    g, x, y, _, loss, step = classifier(32)
    x_data = rng.standard_normal((64, 6)).astype(np.float32)
    return g, {x: x_data, y: (x_data[:, 0] > 0).astype(np.int64)}, loss, step


def images(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, 10, 10), name="x")
        y = gf.placeholder(("n",), gf.int64, name="y")
        h = gf.relu(gf.nn.BatchNorm2d(8)(gf.nn.Conv2d(3, 8, 3, padding=1)(x)))
        h = gf.nn.MaxPool2d(2)(h)
        h = h + gf.relu(gf.nn.Conv2d(8, 8, 3, padding=1)(h))
        loss = gf.nn.cross_entropy(gf.nn.Linear(8, 4)(gf.mean(h, axis=(2, 3))), y)
        step = gf.optim.SGD(0.1, momentum=0.9).minimize(loss)
    labels = rng.integers(0, 4, 24)
    x_data = rng.standard_normal((24, 3, 10, 10)) + labels[:, None, None, None] * 0.2
    return g, {x: x_data.astype(np.float32), y: labels}, loss, step


def text(rng):
    with gf.Graph() as g:
        words = gf.placeholder(("n", "t"), gf.int64, name="words")
        target = gf.placeholder(("n", "t"), gf.int64, name="target")
        x = gf.nn.Embedding(20, 16)(words)
        x = x + gf.nn.MultiHeadAttention(16, 2, causal=True)(gf.nn.LayerNorm(16)(x))
        x = x + gf.nn.Linear(64, 16)(gf.gelu(gf.nn.Linear(16, 64)(gf.nn.LayerNorm(16)(x))))
        loss = gf.nn.cross_entropy(gf.nn.Linear(16, 20)(gf.nn.LayerNorm(16)(x)), target)
        step = gf.optim.AdamW(1e-2, clip_norm=1.0).minimize(loss)
    tokens = rng.integers(0, 20, (4, 19))
    return g, {words: tokens, target: np.roll(tokens, -1, axis=1)}, loss, step


def sequence(rng):
    with gf.Graph() as g:
        xs = gf.placeholder(("t", "n", 5), name="xs")
        target = gf.placeholder(("n",), name="target")
        cell = gf.nn.GRUCell(5, 12)

        def iteration(h, x):
            h = cell(x, h)
            return h, h[:, 0]

        last, _ = gf.scan(iteration, gf.zeros((target.shape[0], 12)), xs)
        loss = gf.mean((gf.sum(last, axis=1) - target) ** 2)
        step = gf.optim.Adam(1e-2).minimize(loss)
    feeds = {xs: rng.standard_normal((6, 8, 5)).astype(np.float32)}
    return g, feeds | {target: rng.standard_normal(8).astype(np.float32)}, loss, step


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("make", [mlp, images, text, sequence])
@pytest.mark.parametrize("precision", KINDS)
def test_training_comes_as_far_as_in_float32(precision, make, rng):
    g, feeds, loss, step = make(rng)
    losses = []
    for kind in (None, precision):
        with gf.Session(g, precision=kind, verify="first-run") as session:
            plan = session.compile([loss, step], list(feeds))
            losses.append([float(plan(*feeds.values())[0]) for _ in range(40)])
            assert bool(low_dtypes(plan)) == (kind is not None)
    exact, made = losses
    assert exact[-1] < 0.6 * exact[0]
    assert made != exact
    np.testing.assert_allclose(made[0], exact[0], rtol=0.02)
    np.testing.assert_allclose(made[-1], exact[-1], rtol=0.2, atol=0.02)


def test_gradients_are_as_exact_as_pytorchs(rng):
    torch = pytest.importorskip("torch")
    shapes = {"w": (32, 128), "b": (128,), "v": (128, 10)}
    start = {k: (rng.standard_normal(s) / 8).astype(np.float32) for k, s in shapes.items()}
    x_data, y_data = rng.standard_normal((64, 32)).astype(np.float32), rng.integers(0, 10, 64)

    def theirs(dtype, is_mixed):
        w, b, v = [torch.tensor(a, dtype=dtype, requires_grad=True) for a in start.values()]
        with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
            h = torch.nn.functional.linear(torch.tensor(x_data, dtype=dtype), w.T, b)
            h = torch.nn.functional.layer_norm(torch.nn.functional.gelu(h), (128,))
            torch.nn.functional.cross_entropy(h @ v, torch.tensor(y_data)).backward()
        return [t.grad.double().numpy() for t in (w, b, v)]

    with gf.Graph() as g:
        x = gf.placeholder((64, 32), name="x")
        w, b, v = [gf.Variable(array, name=name) for name, array in start.items()]
        h = gf.layer_norm(gf.gelu(x @ w + b))
        gradients = gf.grad(gf.nn.cross_entropy(h @ v, gf.asarray(y_data)), [w, b, v])
    with gf.Session(g, precision="mixed-bf16") as session:
        ours = session.run(gradients, {x: x_data})
    exact = theirs(torch.float64, is_mixed=False)
    peers = theirs(torch.float32, is_mixed=True)
    for wanted, found, other in zip(exact, ours, peers, strict=True):
        error, allowed = (np.linalg.norm(one - wanted) for one in (found, other))
        assert error <= 1.2 * allowed


def test_float16_with_a_loss_scale(rng):
    g, feeds, loss, _ = mlp(rng)
    with g:
        step = gf.optim.LossScale(gf.optim.AdamW(1e-2)).minimize(loss)
    losses = []
    for precision in (None, "mixed-fp16"):
        with gf.Session(g, precision=precision) as session:
            losses.append([float(session.run([loss, step], feeds)[0]) for _ in range(40)])
            assert session["loss_scale.skipped"] <= 2
    np.testing.assert_allclose(losses[1][-1], losses[0][-1], rtol=0.2, atol=0.02)


# What sessions say.


def test_casts_are_listed(net):
    g, x, y, logits, loss, _ = net
    with gf.Session(g, precision="mixed-bf16") as session:
        plan = session.compile(logits, [x])
    casts = plan.casts()
    assert [(c.tensor.name, c.source.name, c.to.name) for c in casts] == [
        ("x", "float32", "bfloat16"),
        ("body.linear.weight", "float32", "bfloat16"),
        ("body.linear.bias", "float32", "bfloat16"),
        ("", "bfloat16", "float32"),
        ("", "float32", "bfloat16"),
        ("head.linear.weight", "float32", "bfloat16"),
        ("head.linear.bias", "float32", "bfloat16"),
        ("", "bfloat16", "float32"),
    ]
    head, *rows = str(casts).splitlines()
    assert head.split() == ["tensor", "from", "to", "because", "for", "made", "at"]
    assert rows[0].split("  ")[0] == "placeholder x [n, 6]"
    assert "matmul computes in bfloat16" in rows[0]
    assert all("test_mixed_sessions.py:" in row for row in rows)
    assert "precision mixed-bf16: 4 operations in bfloat16, 8 casts: plan.casts() lists them" in (
        plan.explain((4, 6))
    )
    assert "mixed-bf16" in [report.name for report in plan.program.reports]


def test_without_mixed_precision_there_are_no_casts(net):
    g, x, _, logits, *_ = net
    with gf.Session(g) as session:
        plan = session.compile(logits, [x])
    assert plan.casts() == ()
    assert str(plan.casts()) == "no casts"
    assert "precision" not in plan.explain((4, 6))
    assert session.precision is None


def test_overrides(net, data):
    g, x, y, logits, *_ = net
    with gf.Session(g) as session:
        exact = session.run(logits, {x: data[0]})
    found = {}
    for overrides in (None, {"body": "float32"}, {"*": "float32"}):
        with gf.Session(g, precision="mixed-bf16", precision_overrides=overrides) as session:
            error = np.abs(session.run(logits, {x: data[0]}) - exact).max()
            found[str(overrides)] = float(error)
    all_low, head_low, none_low = found.values()
    assert all_low > 0
    assert head_low > 0
    assert none_low == 0


def test_unknown_overrides_are_an_error_when_a_plan_is_compiled(net, data):
    g, x, y, logits, *_ = net
    overrides = {"heed.logits": "float32"}
    with (
        gf.Session(g, precision="mixed-bf16", precision_overrides=overrides) as session,
        pytest.raises(ArgumentError, match=r"'heed.logits'") as caught,
    ):
        session.run(logits, {x: data[0]})
    assert caught.value.fix == 'did you mean "head.logits"?'


def test_names_are_of_the_whole_graph_and_not_of_the_fetches(net, data):
    g, x, y, logits, loss, _ = net
    with g:
        with gf.name_scope("body"):
            h = x * 2.0
    with gf.Session(g, precision="mixed-bf16", precision_overrides={"head": "float32"}) as session:
        np.testing.assert_array_equal(session.run(h, {x: data[0]}), data[0] * 2)


# Checks.


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", ["off", "ends", "each", "values", "first-run"])
@pytest.mark.parametrize("precision", KINDS)
def test_every_level_of_checking(net, data, level, precision):
    g, x, y, _, loss, step = net
    with gf.Session(g, precision=precision, verify=level) as session:
        values = [float(session.run([loss, step], {x: data[0], y: data[1]})[0]) for _ in range(3)]
    assert values[2] < values[0]


@pytest.mark.parametrize("level", ["values", "first-run"])
def test_a_pass_that_changes_what_is_mixed_is_found(net, data, level, monkeypatch):
    g, x, _, logits, *_ = net

    def wrong(node, inputs):
        return -(inputs[0] + inputs[0]) if node.op.name == "ndtr" else None

    monkeypatch.setattr(EliminateDeadCode, "run", lambda self, graph, hits: rebuild(graph, wrong))
    with (
        gf.Session(g, precision="mixed-bf16", verify=level) as session,
        pytest.raises(PassError, match="dce"),
    ):
        session.run(logits, {x: data[0]})


def test_leaving_out_passes_leaves_the_precision(net, data, monkeypatch):
    g, x, _, logits, *_ = net
    with gf.Session(g, precision="mixed-bf16") as session:
        found = session.run(logits, {x: data[0]})
    monkeypatch.setenv("GRAPHFW_STOP_AFTER", "0")
    with gf.Session(g, precision="mixed-bf16") as session:
        plan = session.compile(logits, [x])
        assert plan.program.graph is plan.program.source
        np.testing.assert_allclose(plan(data[0]), found, atol=0.02)
        assert len(plan.casts()) == 8


def test_debug_sessions_are_mixed_too(net, data):
    g, x, _, logits, *_ = net
    seen = []
    with gf.Session(
        g, precision="mixed-fp16", debug=lambda node, inputs, outputs: seen.append(outputs[0].dtype)
    ) as session:
        found = session.run(logits, {x: data[0]})
    assert np.dtype("float16") in seen
    with gf.Session(g, precision="mixed-fp16") as session:
        np.testing.assert_allclose(session.run(logits, {x: data[0]}), found, atol=2e-3)


def test_what_is_not_finite_has_a_line():
    with gf.Graph() as g:
        x = gf.placeholder((2, 2), name="x")
        y = gf.exp(x @ gf.Variable(np.eye(2, dtype=np.float32), name="w"))
    with (
        gf.Session(g, precision="mixed-fp16", check_finite=True) as session,
        pytest.raises(gf.errors.ExecutionError, match="matmul") as caught,
    ):
        session.run(y, {x: np.full((2, 2), 1e5, np.float32)})
    assert caught.value.at.file == __file__


def test_bisect_allows_what_16_bits_explain(net, data):
    g, x, y, logits, *_ = net
    feeds = {x: data[0], y: data[1]}
    with gf.Session(g) as exact, gf.Session(g, precision="mixed-bf16") as low:
        assert gf.bisect(exact, low, feeds, [logits]).first is None
        strict = gf.bisect(exact, low, feeds, [logits], rtol=1e-5).first
        assert strict.tensor.node.op.name in ("matmul", "add")
        low["head.linear.bias"] = np.array([1.0, 0.0, 0.0], np.float32)
        assert gf.bisect(exact, low, feeds, [logits]).first.tensor.name == "head.linear.bias"


def test_memory_limits(monkeypatch, rng):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x = gf.placeholder(("n", 16), name="x")
        h = x
        for _ in range(8):
            h = gf.relu(gf.nn.Linear(16, 16)(h))
        loss = gf.mean(h**2)
        step = gf.optim.SGD(0.1).minimize(loss)
    array = rng.standard_normal((4096, 16)).astype(np.float32)
    peaks, losses = [], []
    for limit in (None, "2MB"):
        with gf.Session(g, precision="mixed-bf16", memory_limit=limit) as session:
            plan = session.compile([loss, step], [x])
            peaks.append(plan.memory(array).peak)
            losses.append([float(plan(array)[0]) for _ in range(3)])
    assert peaks[1] <= 2_000_000 < peaks[0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.01)


def test_what_is_kept_of_products_has_16_bits(monkeypatch, rng):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x = gf.placeholder((64, 32), name="x")
        h = x @ gf.Variable(gf.nn.init.normal(), shape=(32, 48), name="w")
        # Two kernels read it in float32, one after the other.
        centred = h - gf.mean(h, axis=0)
        y = centred / gf.sqrt(gf.mean(centred**2, axis=0))
    with gf.Session(g, precision="mixed-bf16") as session:
        plan = session.compile(y, [x])
        array = rng.standard_normal((64, 32)).astype(np.float32)
        np.testing.assert_allclose(plan(array).std(axis=0), 1, rtol=1e-2)
        entries = [e for e in plan.memory().entries if e.kind == "arena"]
    kept = [e.name for e in entries if "[64, 48]" in e.name]
    assert kept == ["matmul bfloat16[64, 48]"]


def test_functions_take_the_precision_of_their_session(rng):
    with gf.Session(gf.Graph(), precision="mixed-bf16") as session:

        @gf.function(session=session)
        def product(a, b):
            return a @ b

        a, b = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
        found = product(a, b)
    assert found.dtype == np.float32
    assert 1e-4 < np.abs(found - a @ b).max() < 0.1


def test_shapes_and_costs_without_values(net):
    g, x, _, logits, *_ = net
    with gf.Session(g, executor="meta", precision="mixed-bf16") as session:
        assert session.run(logits, {x: (5, 6)}).shape == (5, 3)
        plan = session.compile(logits, [x])
        assert len(plan.casts()) == 8


def test_training_on_the_cupy_executor(fake, net, data):
    g, x, y, _, loss, step = net
    losses = []
    for executor in ("numpy", "cupy"):
        with gf.Session(g, executor, precision="mixed-bf16") as session:
            plan = session.compile([loss, step], [x, y])
            assert len(low_dtypes(plan)) == 1
            losses.append([float(session.executor.to_host(plan(*data)[0])) for _ in range(5)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=5e-3)
