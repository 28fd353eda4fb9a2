"""Caches of keys and values: the numbers of attention to all tokens at once, and mistakes."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


def run(tensors, feeds=None):
    with gf.Session(gf.current_graph()) as session:
        return session.run(tensors, feeds or {})


def in_pieces(layer, x, sizes, cache, *rest):
    """Call a layer with so many tokens at a time; return all results, and the last cache."""
    begin, results = 0, []
    for size in sizes:
        y, cache = layer(x[:, begin : begin + size], *rest, cache=cache)
        results.append(y)
        begin += size
    return gf.concat(results, axis=1), cache


def in_a_loop(layer, x, cache, begin, end, *rest):
    """Call a layer with a token after the other, in one loop."""

    def step(i, value):
        results, cache = value
        y, cache = layer(gf.take(x, i[None], axis=1), *rest, cache=cache)
        return results.at[:, i].set(y[:, 0]), cache

    return gf.fori_loop(begin, end, step, (gf.zeros_like(x), cache))


@pytest.mark.parametrize(("kv_heads", "rotary_base"), [(4, None), (2, 100.0)])
def test_attention(rng, kv_heads, rotary_base):
    layer = nn.MultiHeadAttention(
        16, 4, causal=True, kv_heads=kv_heads, rotary_base=rotary_base, dtype="float64"
    )
    x = gf.placeholder(("batch", 9, 16), gf.float64, name="x")
    batch = x.shape[0]
    pieces, cache = in_pieces(layer, x, (4, 1, 3, 1), layer.init_cache(batch, 12))
    assert isinstance(cache, nn.KVCache)
    assert cache.keys.shape == (batch, kv_heads, 12, 4)
    assert cache.keys.dtype is gf.float64
    first, loop_cache = in_pieces(layer, x, (2,), layer.init_cache(batch, 9))
    rest, loop_cache = in_a_loop(layer, x, loop_cache, 2, 9)
    data = rng.standard_normal((3, 9, 16))
    found = run(
        [layer(x), pieces, first, rest, cache.length, loop_cache.length, cache.keys], {x: data}
    )
    expected, pieces, first, rest, *lengths, keys = found
    np.testing.assert_allclose(pieces, expected, 1e-12, 1e-12)
    np.testing.assert_allclose(np.concatenate([first, rest[:, 2:]], 1), expected, 1e-12, 1e-12)
    assert lengths == [9, 9]
    assert (keys[:, :, 9:] == 0).all()


def test_float32_within_rounding(rng):
    layer = nn.MultiHeadAttention(64, 4, causal=True, rotary_base=1e4)
    x = gf.asarray(rng.standard_normal((2, 40, 64), np.float32))
    pieces, cache = in_pieces(layer, x, (30, 1), layer.init_cache(2, 64))
    rest, _ = in_a_loop(layer, x, cache, 31, 40)
    expected, pieces, rest = run([layer(x), pieces, rest])
    got = np.concatenate([pieces, rest[:, 31:]], 1)
    np.testing.assert_allclose(got, expected, 1e-6, 1e-6 * abs(expected).max())


def test_symbolic_lengths(rng):
    layer = nn.MultiHeadAttention(8, 2, causal=True, rotary_base=1e4, dtype="float64")
    x = gf.placeholder(("batch", "time", 8), gf.float64, name="x")
    more = gf.placeholder(("batch", "more", 8), gf.float64, name="more")
    (batch, time), count = x.shape[:2], more.shape[1]
    first, cache = layer(x, cache=layer.init_cache(batch, time + count))
    second, cache = layer(more, cache=cache)
    whole = layer(gf.concat([x, more], axis=1))
    feeds = {x: rng.standard_normal((2, 5, 8)), more: rng.standard_normal((2, 3, 8))}
    first, second, length, whole = run([first, second, cache.length, whole], feeds)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, 1e-12, 1e-12)
    assert length == 8


@pytest.mark.parametrize(("sizes", "rotary_base"), [((6, 1, 1), None), ((2, 3, 3), 100.0)])
def test_padding_on_the_left(rng, sizes, rotary_base):
    """Each row alone, without its padding, gives the same."""
    options = {"causal": True, "kv_heads": 2, "rotary_base": rotary_base, "dtype": "float64"}
    layer = nn.MultiHeadAttention(16, 4, **options)
    data, start = rng.standard_normal((3, 8, 16)), [0, 4, 2]
    x = gf.placeholder((3, 8, 16), gf.float64, name="x")
    y, cache = in_pieces(layer, x, sizes, layer.init_cache(3, 10, start=start))
    each = [layer(x[i : i + 1, s:]) for i, s in enumerate(start)]
    y, at, each = run([y, cache.positions(2), each], {x: data})
    for row, first, expected in zip(y, start, each, strict=True):
        np.testing.assert_allclose(row[first:], expected[0], 1e-12, 1e-12)
    np.testing.assert_array_equal(at, np.array([8, 9]) - np.array(start)[:, None])
    assert np.isfinite(y).all()


def test_masks(rng):
    """A mask of bools, and ALiBi's of floats, are for the slots of the cache."""
    layer = nn.MultiHeadAttention(16, 4, causal=True, kv_heads=2, dtype="float64")
    x = gf.asarray(rng.standard_normal((2, 6, 16)))
    seen = np.array(rng.random((2, 1, 8)) > 0.3)
    seen[:, :, 0] = True
    bias = nn.alibi_bias(4, 6, dtype="float64")
    outputs = [layer(x, mask=seen[..., :6]), layer(x, mask=bias)]
    y, _ = in_pieces(lambda t, **kw: layer(t, mask=seen, **kw), x, (4, 2), layer.init_cache(2, 8))
    cache, found = layer.init_cache(2, 8), []
    for i in range(6):
        slopes = nn.alibi_bias(4, cache.positions(1), gf.arange(8), dtype="float64")
        z, cache = layer(x[:, i : i + 1], mask=slopes, cache=cache)
        found.append(z)
    outputs += [y, gf.concat(found, axis=1)]
    expected, biased, y, z = run(outputs)
    np.testing.assert_allclose(y, expected, 1e-12, 1e-12)
    np.testing.assert_allclose(z, biased, 1e-12, 1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformers(rng, norm_first):
    options = {"norm_first": norm_first, "dropout": 0.0, "dtype": "float64"}
    encoder = nn.TransformerEncoder(8, 2, 3, causal=True, kv_heads=1, **options)
    decoder = nn.TransformerDecoder(8, 2, 2, **options)
    x, memory = (gf.asarray(rng.standard_normal((2, n, 8))) for n in (6, 5))
    caches = [stack.init_cache(2, 7) for stack in (encoder, decoder)]
    assert [len(cache) for cache in caches] == [3, 2]
    y, first = in_pieces(encoder, x, (3, 1, 2), caches[0])
    z, _ = in_pieces(decoder, x, (3, 1, 2), caches[1], memory)
    looped, _ = in_a_loop(decoder, x, decoder.init_cache(2, 6), 0, 6, memory)
    *found, length = run([y, z, looped, encoder(x), decoder(x, memory), first[2].length])
    for got, expected in zip(found[:3], [found[3], found[4], found[4]], strict=True):
        np.testing.assert_allclose(got, expected, 1e-11, 1e-11)
    assert length == 6


def test_a_cache_in_variables(rng):
    """One run a token, each from where the last one has ended."""
    layer = nn.MultiHeadAttention(8, 2, causal=True)
    token = gf.placeholder((1, 1, 8), name="token")
    whole = gf.placeholder((1, 4, 8), name="whole")
    empty = layer.init_cache(1, 4)
    kept = [gf.Variable(t.numpy(), trainable=False) for t in empty if t is not None]
    y, after = layer(token, cache=nn.KVCache(*kept))
    expected = layer(whole)
    update = gf.group(*[gf.update(v, t) for v, t in zip(kept, after, strict=False)])
    data = rng.standard_normal((1, 4, 8), np.float32)
    with gf.Session(gf.current_graph()) as session:
        got = [session.run([y, update], {token: data[:, i : i + 1]})[0] for i in range(4)]
        expected = session.run(expected, {whole: data})
        np.testing.assert_allclose(np.concatenate(got, 1), expected, 1e-5, 1e-6)
        with pytest.raises(gf.ExecutionError, match="slot 4 is out of range: there are 4") as full:
            session.run([y, update], {token: data[:, :1]})
        assert "larger max_length" in full.value.fix
        assert session[kept[2]] == 4


def test_gradients_and_vmap(rng):
    layer = nn.MultiHeadAttention(8, 2, causal=True, rotary_base=1e4, dtype="float64")
    x = gf.asarray(rng.standard_normal((2, 3, 5, 8)))

    def whole(t):
        return gf.sum(gf.sin(layer(t)))

    def pieces(t):
        return gf.sum(gf.sin(in_pieces(layer, t, (2, 1, 2), layer.init_cache(3, 6))[0]))

    losses = [gf.vmap(f)(x) for f in (whole, pieces)]
    slopes = [gf.grad(gf.sum(y), [x, *layer.parameters()]) for y in losses]
    expected, got = run([[a, *b] for a, b in zip(losses, slopes, strict=True)])
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, 1e-10, 1e-10)


def test_narrow_caches(rng):
    layer = nn.MultiHeadAttention(8, 2, causal=True)
    x = gf.asarray(rng.standard_normal((2, 6, 8), np.float32))
    y, cache = in_pieces(layer, x, (5, 1), layer.init_cache(2, 6, "bfloat16"))
    assert cache.values.dtype is gf.bfloat16
    assert y.dtype is gf.float32
    got, expected = run([y, layer(x)])
    np.testing.assert_allclose(got, expected, 0.02, 0.02)


def test_mistakes():
    layer, other = nn.MultiHeadAttention(8, 2, causal=True), nn.MultiHeadAttention(8, 4)
    stack = nn.TransformerEncoder(8, 2, 2, causal=True)
    x, cache = gf.ones((2, 3, 8)), layer.init_cache(2, 4)
    _, used = layer(x, cache=cache)
    cases = [
        (lambda: layer(x, x, cache=cache), gf.ArgumentError, "leave out key and value"),
        (lambda: other(x, cache=other.init_cache(2, 4)), gf.ArgumentError, "causal=True"),
        (lambda: layer(x, cache=(cache,)), gf.ArgumentError, "init_cache(batch, max_length)"),
        (lambda: layer(x[0], cache=cache), gf.ShapeError, "x[None]"),
        (lambda: layer(x[:1], cache=cache), gf.ShapeError, "batch=1"),
        (lambda: layer(x, cache=other.init_cache(2, 4)), gf.ShapeError, "of this layer"),
        (lambda: layer(gf.ones((2, 5, 8)), cache=cache), gf.ShapeError, "max_length=5"),
        (lambda: layer(x[:, :2], cache=used), gf.ShapeError, "max_length=5"),
        (
            lambda: layer(x, mask=gf.ones((2, 1, 3), dtype=bool), cache=cache),
            gf.ShapeError,
            "[batch, 1, max_length]",
        ),
        (lambda: layer.init_cache(2, 0), gf.ArgumentError, "use max_length=1"),
        (lambda: layer.init_cache(2, 4.5), gf.ArgumentError, "give max_length as an int"),
        (lambda: layer.init_cache(-1, 4), gf.ShapeError, "use 0 or more"),
        (lambda: layer.init_cache(2, 4, "int8"), gf.DTypeError, "gf.float32"),
        (lambda: layer.init_cache(2, 4, start=[0.5, 1]), gf.DTypeError, "gf.int32"),
        (lambda: layer.init_cache(2, 4, start=[0]), gf.ShapeError, "the first slot of each row"),
        (lambda: stack(x, cache=cache), gf.ArgumentError, "of this TransformerEncoder"),
        (
            lambda: stack(x, cache=stack.init_cache(2, 4)[:1]),
            gf.ArgumentError,
            "of this TransformerEncoder",
        ),
    ]
    for call, error, fix in cases:
        with pytest.raises(error) as caught:
            call()
        assert fix in caught.value.fix, caught.value
