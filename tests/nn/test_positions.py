"""Positions: rotary against the formula with complex numbers, sinusoids, ALiBi, learned ones."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from tests.support.torch_layers import as_torch, torch


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


def run(tensors, feeds=None):
    with gf.Session(gf.current_graph()) as session:
        return session.run(tensors, feeds or {})


def rotated(x, positions, base=10000.0, interleaved=False):
    """Return pairs of channels as complex numbers, times exp(i angle), in float64."""
    width = x.shape[-1]
    pairs = x.reshape(*x.shape[:-1], -1, 2) if interleaved else np.stack(np.split(x, 2, -1), -1)
    angles = positions[..., None] * base ** (-np.arange(0, width, 2) / width)
    z = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    halves = [z.real, z.imag]
    return np.stack(halves, -1).reshape(x.shape) if interleaved else np.concatenate(halves, -1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(rng, interleaved):
    x = gf.placeholder(("batch", "heads", "time", 6), gf.float64, name="x")
    at = gf.placeholder(("batch", 1, "time"), gf.int64, name="at")
    options = {"base": 500.0, "interleaved": interleaved}
    y = [nn.rotary_embedding(x, **options), nn.rotary_embedding(x, at, **options)]
    assert all(t.shape == x.shape for t in y)
    data, indices = rng.standard_normal((2, 3, 5, 6)), rng.integers(0, 99, (2, 1, 5))
    got = run(y, {x: data, at: indices})
    for found, positions in zip(got, [np.arange(5), indices], strict=True):
        expected = rotated(data, positions, **options)
        np.testing.assert_allclose(found, expected, 1e-12, 1e-12)


def test_frequencies(rng):
    """Angles are those of a base, or others, in the function and in attention."""
    data, at = rng.standard_normal((2, 3, 5, 6)), rng.integers(0, 99, (2, 1, 5))
    usual = 10000.0 ** (-np.arange(3) / 3)
    got = run([nn.rotary_embedding(data, at, frequencies=f) for f in (usual, usual / 8)])
    np.testing.assert_allclose(got[0], rotated(data, at), 1e-12, 1e-12)
    np.testing.assert_allclose(got[1], rotated(data, at / 8), 1e-12, 1e-12)

    x = rng.standard_normal((2, 5, 12)).astype(np.float32)
    options = {"causal": True, "kv_heads": 1}
    first = nn.MultiHeadAttention(12, 2, **options, rotary_base=10000.0)
    second = nn.MultiHeadAttention(12, 2, **options, rotary_frequencies=usual)
    assert "3 rotary_frequencies" in repr(second)
    ys = first(x), second(x)
    with gf.Session(gf.current_graph()) as session:
        second.load_state_dict(session, first.state_dict(session))
        np.testing.assert_allclose(*session.run(ys), 1e-5, 1e-6)


def test_mistakes_in_frequencies():
    x = np.ones((5, 6), np.float32)
    with pytest.raises(gf.ShapeError) as caught:
        nn.rotary_embedding(x, frequencies=[1.0])
    assert "one for each of 3 pairs" in caught.value.fix
    with pytest.raises(gf.DTypeError):
        nn.rotary_embedding(x, frequencies=[1j] * 3)
    for wrong in ([1.0], [[1.0, 1.0, 1.0]], ["a", "b", "c"], 3.0):
        with pytest.raises(gf.ArgumentError, match="are not 3 numbers") as caught:
            nn.MultiHeadAttention(12, 2, rotary_frequencies=wrong)
        assert "6 channels" in caught.value.fix
    with pytest.raises(gf.ArgumentError, match="no effect beside"):
        nn.MultiHeadAttention(12, 2, rotary_base=100.0, rotary_frequencies=[1.0] * 3)


def test_scores_depend_on_the_distance_alone(rng):
    q, k = rng.standard_normal((2, 1, 8))
    products = [
        gf.sum(nn.rotary_embedding(q, [i]) * nn.rotary_embedding(k, [i + 3])) for i in (0, 7, 40)
    ]
    got = run(products)
    np.testing.assert_allclose(got, got[0], 1e-10)


@pytest.mark.parametrize("interleaved", [False, True])
def test_gradients_of_rotary_embedding(rng, interleaved):
    data, weights = rng.standard_normal((2, 3, 4))
    x = gf.placeholder(data.shape, gf.float64, name="x")
    loss = gf.sum(gf.sin(nn.rotary_embedding(x, interleaved=interleaved)) * weights)
    gradient = run(gf.grad(loss, [x]), {x: data})[0]
    for index in np.ndindex(data.shape):
        change = np.zeros_like(data)
        change[index] = 1e-6
        up, down = (run(loss, {x: data + sign * change}) for sign in (1, -1))
        np.testing.assert_allclose(gradient[index], (up - down) / 2e-6, 1e-6, 1e-8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_angles_are_exact_in_narrow_types(rng, dtype):
    """At position 2049 a float16 is 1 off, which would be half a turn."""
    x = gf.astype(gf.asarray(rng.standard_normal((1, 4))), dtype)
    y = nn.rotary_embedding(x, [2049])
    assert y.dtype.name == dtype
    exact, got = run([gf.astype(x, gf.float64), gf.astype(y, gf.float64)])
    np.testing.assert_allclose(got, rotated(exact, np.array([2049])), 0.01, 0.01)
    sinusoids, many = (
        nn.sinusoidal_positions(4000, 4, dtype=dtype),
        nn.alibi_bias(2, 3, dtype=dtype),
    )
    assert sinusoids.dtype.name == many.dtype.name == dtype
    exact = nn.sinusoidal_positions(4000, 4, dtype="float64")
    narrow, exact = run([gf.astype(sinusoids, gf.float64), exact])
    np.testing.assert_allclose(narrow, exact, 0.01, 0.01)


def test_sinusoidal_positions():
    got = run(nn.sinusoidal_positions(7, 6, dtype=gf.float64))
    for position in range(7):
        for pair in range(3):
            angle = position / 10000 ** (2 * pair / 6)
            wanted = [np.sin(angle), np.cos(angle)]
            np.testing.assert_allclose(got[position, 2 * pair : 2 * pair + 2], wanted, 1e-12, 1e-12)
    times = np.array([[0.5], [900.0]])
    halves, pairs = (
        run(nn.sinusoidal_positions(times, 6, interleaved=flag, dtype="float64"))
        for flag in (False, True)
    )
    assert halves.shape == (2, 1, 6)
    np.testing.assert_array_equal(halves, pairs[..., [0, 2, 4, 1, 3, 5]])
    assert run(nn.sinusoidal_positions(0, 6)).shape == (0, 6)


def test_slopes_of_alibi():
    """The numbers of the authors' code, also where heads are no power of 2."""
    eight = [2.0**-i for i in range(1, 9)]
    twelve = [*eight, *[2.0 ** (-i / 2) for i in (1, 3, 5, 7)]]
    for heads, slopes in {8: eight, 12: twelve, 1: [2.0**-8]}.items():
        bias = run(nn.alibi_bias(heads, 4, 6))
        assert bias.shape == (1, heads, 4, 6)
        distances = np.abs(np.arange(4)[:, None] - np.arange(6))
        expected = -np.array(slopes)[:, None, None] * distances
        np.testing.assert_allclose(bias[0], expected, 1e-6)
        assert not np.signbit(bias[0, 0, 0, 0])


def test_alibi_of_positions_in_attention(rng):
    """Queries that begin later get the rows of the whole: what a cache of keys needs."""
    layer = nn.MultiHeadAttention(8, 2)
    x = gf.placeholder(("batch", "time", 8), name="x")
    time = x.shape[1]
    causal = gf.arange(time)[:, None] >= gf.arange(time)
    bias = gf.where(causal, nn.alibi_bias(2, time), -np.inf)
    whole = layer(x, mask=bias)
    last = gf.placeholder(("batch", 1), gf.int64, name="last")
    end = layer(x[:, -1:], x, mask=nn.alibi_bias(2, last, gf.expand_dims(gf.arange(time), 0)))
    data = rng.standard_normal((2, 5, 8), np.float32)
    with gf.Session(gf.current_graph()) as session:
        whole, end = session.run([whole, end], {x: data, last: [[4], [4]]})
    np.testing.assert_allclose(whole[:, -1:], end, 1e-5, 1e-6)


def test_rotary_attention(rng):
    layer = nn.MultiHeadAttention(16, 4, kv_heads=2, causal=True, rotary_base=100.0)
    assert "kv_heads=2, rotary_base=100.0" in repr(layer)
    x = gf.placeholder(("batch", "time", 16), name="x")
    y = layer(x)
    data = rng.standard_normal((2, 5, 16), np.float32)
    with gf.Session(gf.current_graph()) as session:
        got, state = session.run(y, {x: data}), layer.state_dict(session)

    def heads(name):
        split = (data @ state[f"{name}.weight"] + state[f"{name}.bias"]).reshape(2, 5, -1, 4)
        return split.swapaxes(1, 2)

    q, k = (rotated(heads(n), np.arange(5), 100.0) for n in ("q_proj", "k_proj"))
    tensors = [as_torch(a) for a in (q, np.repeat(k, 2, 1), np.repeat(heads("v_proj"), 2, 1))]
    tensors = [t.to(torch.float64) for t in tensors]
    attended = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True).numpy()
    expected = attended.swapaxes(1, 2).reshape(2, 5, 16) @ state["out_proj.weight"]
    np.testing.assert_allclose(got, expected + state["out_proj.bias"], 1e-4, 1e-5)


def test_transformers_turn_the_sequence_itself(rng):
    encoder = nn.TransformerEncoder(16, 4, 2, dropout=0.0, rotary_base=100.0)
    decoder = nn.TransformerDecoder(16, 4, 1, dropout=0.0, rotary_base=100.0)
    bases = [layer.self_attn.rotary_base for layer in (*encoder.layers, *decoder.layers)]
    assert bases == [100.0] * 3
    assert decoder.layers[0].multihead_attn.rotary_base is None
    x = gf.placeholder(("batch", "time", 16), name="x")
    attend, plain = encoder.layers[0], nn.TransformerEncoderLayer(16, 4, dropout=0.0)
    results = [attend(x), plain(x)]
    data = rng.standard_normal((2, 5, 16), np.float32)
    with gf.Session(gf.current_graph()) as session:
        plain.load_state_dict(session, attend.state_dict(session))
        rotated_sum, plain_sum = session.run(results, {x: data})
        assert np.abs(rotated_sum - plain_sum).max() > 1e-3
        np.testing.assert_allclose(  # one position is turned by 0
            *session.run(results, {x: data[:, :1]}), 1e-5, 1e-6
        )
    with pytest.raises(gf.errors.ArgumentError, match="rotary_base"):
        nn.TransformerEncoderLayer(12, 4, rotary_base=10.0)


def test_learned_positions(rng):
    layer = nn.LearnedPositions(6, 4)
    x = gf.placeholder(("batch", "time", 4), name="x")
    at = gf.placeholder(("batch", "time"), gf.int64, name="at")
    y = [layer(x), layer(x, at)]
    gradient = gf.grad(gf.sum(y[1] * 2), [layer.weight])[0]
    data, indices = rng.standard_normal((2, 3, 4), np.float32), np.array([[5, 0, 0], [1, 2, 5]])
    with gf.Session(gf.current_graph()) as session:
        table = torch.nn.Embedding(6, 4)
        layer.load_state_dict(session, table.state_dict())
        weight = table.weight.detach().numpy()
        first, second, gradient = session.run([*y, gradient], {x: data, at: indices})
        np.testing.assert_allclose(first, data + weight[:3], 1e-6)
        np.testing.assert_allclose(second, data + weight[indices], 1e-6)
        np.testing.assert_allclose(gradient[:, 0], 2 * np.bincount(indices.ravel(), minlength=6))
        with pytest.raises(gf.ExecutionError, match="position 6 is out of range: there are 6"):
            session.run(y[0], {x: np.ones((1, 7, 4), np.float32)})
        with pytest.raises(gf.ExecutionError, match="position -1 is out of range"):
            session.run(y[1], {x: data[:1, :1], at: [[-1]]})


def test_positions_under_vmap(rng):
    data = rng.standard_normal((3, 5, 4), np.float32)
    layer = nn.LearnedPositions(6, 4)
    mapped = gf.vmap(lambda t: layer(nn.rotary_embedding(t)))(gf.asarray(data))
    got, expected = run([mapped, layer(nn.rotary_embedding(data))])
    np.testing.assert_allclose(got, expected, 1e-6, 1e-6)


def test_mistakes():
    x = gf.ones((2, 3, 4))
    layer = nn.LearnedPositions(6, 4)
    cases = [
        (lambda: nn.rotary_embedding(gf.ones((4,))), "x[None] is a sequence of one"),
        (lambda: nn.rotary_embedding(gf.ones((3, 5))), "use an even number of channels"),
        (lambda: nn.rotary_embedding(gf.placeholder((3, "d"))), "gf.assert_shape(x, (None, 64))"),
        (lambda: nn.rotary_embedding(x, [0, 1]), "they broadcast to [2, 3]"),
        (lambda: nn.rotary_embedding(x, base=0), "base=10000.0"),
        (lambda: nn.rotary_embedding(x, [True, False, True]), "gf.astype(positions, gf.int64)"),
        (lambda: nn.sinusoidal_positions(-3, 4), "use 3"),
        (lambda: nn.sinusoidal_positions(3, 5), "use width=6"),
        (lambda: nn.sinusoidal_positions(3, 0), "use width=2"),
        (lambda: nn.sinusoidal_positions(3, 4.0), "give width as an int"),
        (lambda: nn.alibi_bias(0, 4), "give the number of heads"),
        (lambda: nn.alibi_bias(2, gf.asarray(4)), "write queries[None]"),
        (lambda: nn.MultiHeadAttention(8, 2, rotary_base=0.0), "rotary_base=10000.0"),
        (lambda: nn.MultiHeadAttention(6, 2, rotary_base=1e4), "use an even number of channels"),
        (lambda: nn.LearnedPositions(0, 4), "use max_length=1"),
        (lambda: layer(gf.ones((4,))), "x[None] is a sequence of one"),
        (lambda: layer(gf.ones((3, 5))), "use LearnedPositions(6, 5)"),
        (lambda: layer(gf.ones((7, 4))), "use LearnedPositions(7, 4)"),
        (lambda: layer(x, [0.0, 1.0, 2.0]), "gf.astype(positions, gf.int64)"),
    ]
    for call, fix in cases:
        with pytest.raises((gf.ArgumentError, gf.ShapeError, gf.DTypeError)) as caught:
            call()
        assert fix in caught.value.fix, caught.value
