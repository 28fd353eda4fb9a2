"""Attention layers against PyTorch's, and what they say of inputs that don't fit."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from tests.support.torch_layers import as_torch, torch


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


def attention_pair(session, layer, **options):
    theirs = torch.nn.MultiheadAttention(
        layer.embed_dim, layer.num_heads, batch_first=True, kdim=layer.key_dim,
        vdim=layer.value_dim, **options,
    )  # fmt: skip
    state = {name: as_torch(a) for name, a in layer.state_dict(session).items()}
    weights = [state[f"{p}_proj.weight"].T for p in "qkv"]
    with torch.no_grad():
        if theirs.in_proj_weight is not None:
            theirs.in_proj_weight.copy_(torch.cat(weights))
        else:
            for p, weight in zip("qkv", weights, strict=True):
                getattr(theirs, f"{p}_proj_weight").copy_(weight)
        if theirs.in_proj_bias is not None:
            theirs.in_proj_bias.copy_(torch.cat([state[f"{p}_proj.bias"] for p in "qkv"]))
            theirs.out_proj.bias.copy_(state["out_proj.bias"])
        theirs.out_proj.weight.copy_(state["out_proj.weight"].T)
    return theirs


@pytest.mark.parametrize("bias", [True, False])
def test_self_attention(rng, graph, bias):
    layer = nn.MultiHeadAttention(12, 3, bias=bias)
    x = gf.placeholder(("batch", "time", 12), name="x")
    y = layer(x)
    assert y.shape == x.shape
    data = rng.standard_normal((2, 5, 12)).astype(np.float32)
    with gf.Session(graph) as session:
        theirs = attention_pair(session, layer, bias=bias)
        got = session.run(y, {x: data})
    expected = theirs(*[as_torch(data)] * 3)[0].detach().numpy()
    np.testing.assert_allclose(got, expected, 1e-4, 1e-5)


def test_cross_attention_with_masks(rng, graph):
    layer = nn.MultiHeadAttention(8, 2, key_dim=5, value_dim=3)
    q = gf.placeholder((2, 4, 8), name="q")
    k = gf.placeholder((2, 6, 5), name="k")
    v = gf.placeholder((2, 6, 3), name="v")
    visible = rng.random((4, 6)) > 0.4
    visible[:, 0] = True
    scores = rng.standard_normal((2, 4, 6)).astype(np.float32)
    padding = np.array([[True] * 6, [True] * 3 + [False] * 3])
    outputs = [
        layer(q, k, v, visible),
        layer(q, k, v, scores),
        layer(q, k, v, padding[:, None, :]),
        layer(q, k, v, np.repeat(scores[:, None], 2, axis=1)),
    ]
    data = [rng.standard_normal((2, *t.shape[1:])).astype(np.float32) for t in (q, k, v)]
    with gf.Session(graph) as session:
        theirs = attention_pair(session, layer)
        got = session.run(outputs, dict(zip((q, k, v), data, strict=True)))
    tensors = [as_torch(a) for a in data]
    float_mask = as_torch(np.repeat(scores, 2, axis=0))
    expected = [
        theirs(*tensors, attn_mask=as_torch(~visible))[0],
        theirs(*tensors, attn_mask=float_mask)[0],
        theirs(*tensors, key_padding_mask=as_torch(~padding))[0],
        theirs(*tensors, attn_mask=float_mask)[0],
    ]
    for ours, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, other.detach().numpy(), 1e-4, 1e-5)


def test_causal_attention_sees_no_future(rng, graph):
    layer = nn.MultiHeadAttention(8, 2, causal=True)
    x = gf.placeholder((1, 5, 8), name="x")
    y = layer(x)
    data = rng.standard_normal((1, 5, 8)).astype(np.float32)
    changed = data.copy()
    changed[:, 3:] += 1
    with gf.Session(graph) as session:
        a, b = session.run(y, {x: data}), session.run(y, {x: changed})
    np.testing.assert_array_equal(a[:, :3], b[:, :3])
    assert (a[:, 3:] != b[:, 3:]).any()


@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention_dropout(rng, graph, mask):
    layer = nn.MultiHeadAttention(8, 2, dropout=0.5, causal=True)
    masks = {"bool": np.array([True, True, False]), "float": np.array([0.0, -1.0, -np.inf])}
    x = gf.asarray(rng.standard_normal((40, 3, 8)).astype(np.float32))
    dropped = [layer(x, mask=masks.get(mask)) for _ in range(30)]
    mean = sum(dropped[1:], dropped[0]) / 30
    kept = layer.eval()(x, mask=masks.get(mask))
    with gf.Session(graph) as session:
        one, two, average, exact = session.run([dropped[0], dropped[1], mean, kept])
    assert (one != two).any()
    assert (one != exact).any()
    assert np.abs(average - exact).mean() < 0.3 * np.abs(one - exact).mean()


def test_attention_mistakes():
    layer = nn.MultiHeadAttention(8, 2)
    x = gf.placeholder(("batch", 3, 8), name="x")
    with pytest.raises(gf.DTypeError, match="the mask must be of bools or floats, not int64") as e:
        layer(x, mask=gf.ones((3, 3), dtype=gf.int64))
    assert e.value.fix == "write mask != 0"
    with pytest.raises(gf.ShapeError, match="queries must have 2 dims or more, not 1"):
        layer(gf.ones((8,)))


def test_attention_names_the_argument_of_a_wrong_width():
    layer = nn.MultiHeadAttention(8, 2, key_dim=6, value_dim=4)
    query, key = gf.ones((2, 3, 8)), gf.ones((2, 5, 6))
    cases = [
        ((gf.ones((2, 3, 9)),), "(embed_dim=8) receives 9 features: use embed_dim=9"),
        ((query,), "(key_dim=6) receives 8 features: use key_dim=8"),
        ((query, key, key), "(value_dim=4) receives 6 features: use value_dim=6"),
    ]
    for inputs, fix in cases:
        with pytest.raises(gf.ShapeError) as caught:
            layer(*inputs)
        assert caught.value.fix == f"MultiHeadAttention{fix}"
    with pytest.raises(gf.ShapeError) as caught:
        layer(gf.placeholder((2, 3, "width")))
    assert "gf.assert_shape(x, (None, None, 8))" in caught.value.fix


def test_attention_of_a_wrong_width_while_errors_are_collected():
    with pytest.raises(gf.GraphErrors) as caught, gf.Graph(collect_errors=True):
        nn.MultiHeadAttention(8, 2)(gf.placeholder((2, 3, 9)))
    fixes = [error.fix for error in caught.value.errors]
    assert fixes[0] == "MultiHeadAttention(embed_dim=8) receives 9 features: use embed_dim=9"


@pytest.mark.parametrize("heads", [1, 2])
def test_grouped_queries_are_as_repeated_keys(rng, heads):
    """Weights of shared heads, repeated, are those of a PyTorch layer that shares none."""
    grouped = nn.MultiHeadAttention(16, 4, kv_heads=heads, causal=True)
    assert f"kv_heads={heads}" in repr(grouped)
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x = gf.placeholder((2, 5, 16), name="x")
    visible = np.arange(5) < np.array([[5], [4]])
    bools = rng.random((2, 4, 5, 5)) > 0.3
    bools[..., 0] = True
    masks = [None, bools, bools[:, :1], bools[0, 0], visible[:, None, :], np.log(bools + 1e-3)]
    outputs = [grouped(x, mask=mask) for mask in masks]
    data = rng.standard_normal((2, 5, 16), np.float32)
    with gf.Session(gf.current_graph()) as session:
        state = grouped.state_dict(session)
        got = session.run(outputs, {x: data})

    def repeated(array):
        array = array.reshape(*array.shape[:-1], heads, 4)
        return np.repeat(array, 4 // heads, axis=-2).reshape(*array.shape[:-2], 16).T

    with torch.no_grad():
        shared = [repeated(state[f"{n}_proj.weight"]) for n in "kv"]
        joined = np.concatenate([state["q_proj.weight"].T, *shared])
        theirs.in_proj_weight.copy_(as_torch(joined))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.weight.copy_(as_torch(state["out_proj.weight"].T))
        theirs.out_proj.bias.zero_()
    future = np.triu(np.full((5, 5), -np.inf, np.float32), 1)
    for mask, found in zip(masks, got, strict=True):
        added = np.zeros((2, 4, 5, 5), np.float32) + future
        if mask is not None:
            scores = mask if mask.dtype != bool else np.where(mask, 0.0, -np.inf)
            added = added + (scores[:, None] if scores.ndim == 3 else scores)
        hidden = as_torch(added.reshape(8, 5, 5).astype(np.float32))
        expected = theirs(*[as_torch(data)] * 3, attn_mask=hidden)[0]
        np.testing.assert_allclose(found, expected.detach().numpy(), 1e-5, 1e-5)


def test_joined_projections_of_shared_heads_are_split_by_their_sizes(rng):
    layer = nn.MultiHeadAttention(8, 4, kv_heads=2, bias=False)
    joined, out = rng.standard_normal((16, 8), np.float32), np.eye(8, dtype=np.float32)
    state = {"in_proj_weight": joined, "out_proj.weight": out}
    with gf.Session(gf.current_graph()) as session:
        layer.load_state_dict(session, state, format="torch")
        np.testing.assert_array_equal(session[layer.q_proj.weight], joined[:8].T)
        np.testing.assert_array_equal(session[layer.k_proj.weight], joined[8:12].T)
        np.testing.assert_array_equal(session[layer.v_proj.weight], joined[12:].T)


def test_grouped_queries_with_dropout(rng):
    layer = nn.MultiHeadAttention(8, 4, dropout=0.5, kv_heads=2)
    x = rng.standard_normal((2, 6, 8), np.float32)
    one, exact = layer(x), layer(x, training=False)
    with gf.Session(gf.current_graph()) as session:
        one, exact = session.run([one, exact])
    assert one.shape == exact.shape
    assert (one != exact).any()


def test_mistakes_of_grouped_queries():
    with pytest.raises(gf.ArgumentError) as caught:
        nn.MultiHeadAttention(8, 4, kv_heads=3)
    assert caught.value.fix == "use kv_heads=2, which divides 4"
    layer, x = nn.MultiHeadAttention(8, 4, kv_heads=2), gf.ones((2, 3, 8))
    with pytest.raises(gf.ShapeError, match="the mask has 3 heads, not 4") as caught:
        layer(x, mask=gf.ones((2, 3, 3, 3), dtype=gf.bool))
    assert caught.value.fix.startswith("give a mask for each of the heads")


class Wrapped(nn.Module):
    """A layer of a user's, which has neither the weight nor the sizes of the one in it."""

    def __init__(self, base, more):
        self.base, self.more = base, more

    def forward(self, x):
        return self.base(x) + self.more(x)


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj", "out_proj"])
def test_projections_may_be_other_modules(rng, name):
    layer = nn.MultiHeadAttention(8, 4, causal=True, kv_heads=2, dtype="float16")
    own = getattr(layer, name)
    more = nn.Linear(8, own.out_features, bias=False, dtype="float16", weight_init=nn.init.zeros)
    x = gf.asarray(rng.standard_normal((2, 3, 8), np.float32), dtype="float16")
    expected = layer(x)
    setattr(layer, name, Wrapped(own, more))
    found, cached = layer(x), layer(x, cache=layer.init_cache(2, 5))[0]
    with gf.Session(gf.current_graph()) as session:
        expected, found, cached = session.run([expected, found, cached])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(cached, expected, 1e-2, 1e-3)
    with pytest.raises(gf.ShapeError) as caught:
        layer(gf.ones((2, 3, 9), dtype="float16"))
    if name in ("q_proj", "k_proj", "v_proj"):
        assert caught.value.fix.startswith("MultiHeadAttention(")


def test_the_cache_of_projections_without_weights_is_of_the_default_dtype():
    layer = nn.MultiHeadAttention(8, 2, causal=True, kv_heads=2)
    layer.k_proj = nn.Identity()
    assert layer.init_cache(2, 5).keys.dtype is gf.float32
