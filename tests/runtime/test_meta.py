"""The executor that computes nothing: shapes in, types out, cost of models of any size."""

import time
import tracemalloc

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutorError, FeedError, ShapeError


@pytest.fixture
def net():
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 64), name="x")
        w = gf.Variable(np.zeros((64, 10), np.float32), name="w")
        noise = gf.random.normal((x.shape[0], 10), name="noise")
        y = gf.identity(x @ w + noise, name="y")
        best = gf.argmax(y, axis=1)
        step = gf.update(w, w * 2)
    return g, x, w, y, best, step


def test_shapes_in_types_out(net):
    g, x, w, y, best, step = net
    with gf.Session(g, "meta") as session:
        got = session.run({"y": y, "rest": [best, w, step]}, {x: (32, 64)})
        assert {"y": str(got["y"]), "rest": list(map(str, got["rest"]))} == {
            "y": "float32[32, 10]",
            "rest": ["int64[32]", "float32[64, 10]", "None"],
        }
        assert got["y"].shape == (32, 10)
        assert got["y"].dtype is gf.float32


@pytest.mark.parametrize(
    "shape", [(7, 64), [7, 64], (np.int64(7), 64), np.zeros((7, 64), np.float32)]
)
def test_what_is_fed_is_a_shape_or_has_one(net, shape):
    g, x, _, y, *_ = net
    assert gf.Session(g, "meta").run("y", {"x": shape}).shape == (7, 10)


def test_an_int_is_the_shape_of_a_vector():
    with gf.Graph() as g:
        x = gf.placeholder((None,), name="x")
    assert gf.Session(g, "meta").run(x, {x: 5}).shape == (5,)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ((7, 65), r'"x" is \[batch, 64\] and is fed \[7, 65\]: dim 1 is 65, not 64'),
        ((7,), "1 dim, not 2"),
        ((-1, 64), r'"x": the meta executor takes a shape, not \(-1, 64\)'),
        ((7.0, 64), "takes a shape"),
        ((True, 64), "takes a shape"),
        (2.5, r"takes a shape, not 2.5(.|\n)*a tuple of ints"),
        (None, "takes a shape"),
        ("ab", "takes a shape"),
        ([[1.0] * 64], "takes a shape"),
        (np.zeros((7, 64)), '"x" is float32 and is fed float64'),
    ],
)
def test_wrong_shapes(net, value, match):
    g, x, _, y, *_ = net
    with pytest.raises(FeedError, match=match):
        gf.Session(g, "meta").run(y, {x: value})


def test_promises_are_checked():
    with gf.Graph() as g:
        x = gf.placeholder((None,), name="x")
        y = gf.assert_shape(x, (3,))
    session = gf.Session(g, "meta")
    assert session.run(y, {x: (3,)}).shape == (3,)
    with pytest.raises(ShapeError, match="is 4 in this run, not 3"):
        session.run(y, {x: (4,)})


def test_there_are_no_values(net, tmp_path):
    g, x, w, y, best, step = net
    session = gf.Session(g, "meta", check_finite=True)
    assert session.run(y, {x: (1, 64)}).shape == (1, 10)
    uses = [
        lambda: session[w],
        lambda: session.__setitem__(w, np.zeros((64, 10), np.float32)),
        lambda: session.state_dict(),
        lambda: session.save(tmp_path / "a"),
        lambda: session.load_state_dict({"w": np.zeros((64, 10), np.float32)}),
    ]
    for use in uses:
        with pytest.raises(ExecutorError, match="meta executor has no"):
            use()
    assert list(tmp_path.iterdir()) == []


def test_initialisers_are_not_called(monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" calls them

    def never(shape, dtype):
        raise AssertionError

    with gf.Graph() as g:
        v = gf.Variable(never, name="v", shape=(10**6, 10**6))
        y = v + 1
        step = gf.update(v, y)
    with gf.Session(g, "meta") as session:
        assert session.run([y, step])[0].shape == (10**6, 10**6)
        assert session.compile(y).cost().parameter_bytes == 4 * 10**12


# A transformer of 70 billion parameters (the sizes of Llama 2 70B).

WIDTH, LAYERS, HEADS, GROUPS, HIDDEN, WORDS = 8192, 80, 64, 8, 28672, 32000
HEAD = WIDTH // HEADS


def weight(name, *shape):
    def never(shape, dtype):
        raise AssertionError("the meta executor has no use for contents")

    return gf.Variable(never, name=name, shape=shape, dtype=gf.bfloat16)


def norm(x, name):
    scale = weight(name, WIDTH)
    mean = gf.mean(gf.astype(x, gf.float32) ** 2, axis=-1, keepdims=True)
    return x * gf.astype(1 / gf.sqrt(mean + 1e-5), gf.bfloat16) * scale


def heads(x, count):
    batch, length = x.shape[:2]
    return gf.permute_dims(gf.reshape(x, (batch, length, count, HEAD)), (0, 2, 1, 3))


def attention(x):
    q = heads(x @ weight("q", WIDTH, WIDTH), HEADS)
    k = heads(x @ weight("k", WIDTH, GROUPS * HEAD), GROUPS)
    v = heads(x @ weight("v", WIDTH, GROUPS * HEAD), GROUPS)
    batch, _, length, _ = q.shape
    q = gf.reshape(q, (batch, GROUPS, HEADS // GROUPS, length, HEAD))
    k, v = gf.expand_dims(k, axis=2), gf.expand_dims(v, axis=2)
    scores = q @ gf.permute_dims(k, (0, 1, 2, 4, 3)) * HEAD**-0.5
    weights = gf.exp(scores - gf.max(scores, axis=-1, keepdims=True))
    weights = weights / gf.sum(weights, axis=-1, keepdims=True)
    mixed = gf.reshape(weights @ v, (batch, HEADS, length, HEAD))
    joined = gf.reshape(gf.permute_dims(mixed, (0, 2, 1, 3)), (batch, length, WIDTH))
    return joined @ weight("o", WIDTH, WIDTH)


def feed_forward(x):
    gate = x @ weight("gate", WIDTH, HIDDEN)
    inner = gate / (1 + gf.exp(-gate)) * (x @ weight("up", WIDTH, HIDDEN))
    return inner @ weight("down", HIDDEN, WIDTH)


def transformer():
    with gf.Graph("70b") as g:
        tokens = gf.placeholder(("batch", "length"), gf.int64, name="tokens")
        x = gf.take(weight("embedding", WORDS, WIDTH), tokens, axis=0)
        for layer in range(LAYERS):
            with gf.name_scope(f"layer{layer}"):
                x = x + attention(norm(x, "norm1"))
                x = x + feed_forward(norm(x, "norm2"))
        logits = norm(x, "norm") @ weight("head", WIDTH, WORDS)
    return g, tokens, logits


PARAMETERS = (
    LAYERS * (2 * WIDTH * WIDTH + 2 * WIDTH * GROUPS * HEAD + 3 * WIDTH * HIDDEN + 2 * WIDTH)
    + 2 * WORDS * WIDTH
    + WIDTH
)


@pytest.mark.slow  # some seconds
def test_a_transformer_of_70_billion_parameters_in_seconds_without_memory():
    assert 68e9 < PARAMETERS < 70e9
    start = time.perf_counter()
    tracemalloc.start()
    try:
        g, tokens, logits = transformer()
        with gf.Session(g, "meta", verify="ends") as session:
            plan = session.compile(logits, feeds=[tokens])
            types = [plan(shape) for shape in [(1, 4096), (8, 128), (0, 1)]]
            cost = plan.cost((1, 4096))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Some 2 s without tracemalloc; the bound leaves room for a busy machine.
    assert time.perf_counter() - start < 120
    assert peak < 200e6
    assert [str(t) for t in types] == [
        f"bfloat16[1, 4096, {WORDS}]",
        f"bfloat16[8, 128, {WORDS}]",
        f"bfloat16[0, 1, {WORDS}]",
    ]
    assert cost.parameters == PARAMETERS
    assert cost.parameter_bytes == 2 * PARAMETERS
    # Two operations a parameter and token, and the attention.
    matrices = PARAMETERS - WORDS * WIDTH
    expected = 4096 * (2 * matrices + LAYERS * 4 * 4096 * WIDTH)
    assert expected <= cost.flops <= 1.05 * expected


def test_a_mistake_in_a_large_model_is_found_where_it_is_made():
    with gf.Graph(), gf.name_scope("layer0"):
        x = gf.placeholder(("batch", "length", WIDTH), gf.bfloat16, name="x")
        with pytest.raises(ShapeError) as caught:
            x @ weight("q", WIDTH + 1, WIDTH)
    text = str(caught.value)
    assert "8193" in text
    assert "test_meta.py" in text
    assert "layer0.q" in text


@pytest.mark.slow
def test_training_a_transformer_of_70_billion_parameters_is_described_too():
    g, tokens, logits = transformer()
    with g:
        loss = gf.mean(gf.astype(logits, gf.float32) ** 2)
        slopes = gf.grad(loss, g.variables)
        step = gf.group(
            *[gf.update(v, v - 1e-3 * s) for v, s in zip(g.variables, slopes, strict=True)]
        )
    with gf.Session(g, "meta", verify="off") as session:
        plan = session.compile([loss, step], feeds=[tokens])
        assert str(plan((1, 128))[0]) == "float32[]"
        forward = session.compile(loss, feeds=[tokens]).cost((1, 128)).flops
        assert 2.9 < plan.cost((1, 128)).flops / forward < 3.2
