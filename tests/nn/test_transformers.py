"""Transformer layers and stacks against PyTorch's with the same weights, and their mistakes."""

import copy

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.nn import states
from tests.support.torch_layers import as_torch, torch

ENCODER, DECODER = torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


def random(rng, *shape):
    return rng.standard_normal(shape, np.float32)


def made(kind, **options):
    """Return PyTorch's layer, whose biases and norms are random, too."""
    layer = kind(8, 2, 12, 0.0, batch_first=True, **options)
    return shaken(layer)


def shaken(module):
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


def compare(ours, theirs, arrays, our_masks, their_masks):
    """Load PyTorch's weights, and compare results and all gradients."""
    inputs = [gf.placeholder(("batch", f"t{i}", 8), name=f"x{i}") for i in range(len(arrays))]
    times = {"mask": "t0", "memory_mask": "t1"}
    masks = {n: gf.placeholder(("batch", 1, times[n]), gf.bool, name=n) for n in our_masks}
    y = ours(*inputs, **masks, training=False)
    assert y.shape == inputs[0].shape
    parameters = dict(ours.named_parameters())
    gradients = gf.grad(gf.sum(gf.sin(y) * inputs[0]), [*inputs, *parameters.values()])
    with gf.Session(gf.current_graph()) as session:
        assert not ours.load_state_dict(session, theirs.state_dict()).missing
        feeds = dict(zip(inputs, arrays, strict=True))
        feeds |= {masks[name]: array for name, array in our_masks.items()}
        value, found = session.run([y, gradients], feeds)
    tensors = [as_torch(array).requires_grad_() for array in arrays]
    expected = theirs(*tensors, **their_masks)
    (torch.sin(expected) * tensors[0]).sum().backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), 1e-5, 1e-5)
    wanted = states.from_torch(ours, {n: p.grad for n, p in theirs.named_parameters()})
    for gradient, tensor in zip(found, tensors, strict=False):
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), 1e-4, 1e-5)
    for name, gradient in zip(parameters, found[len(arrays) :], strict=True):
        np.testing.assert_allclose(gradient, wanted[name], 1e-4, 2e-5, err_msg=name)


def padding(*lengths):
    """Return which positions exist: [B, T]."""
    return np.arange(max(lengths)) < np.array(lengths)[:, None]


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer(rng, activation, norm_first):
    options = {"activation": activation, "norm_first": norm_first}
    ours = nn.TransformerEncoderLayer(8, 2, 12, **options)
    compare(ours, made(ENCODER, **options), [random(rng, 3, 5, 8)], {}, {})


def test_encoder_layer_without_biases_and_with_a_function(rng):
    ours = nn.TransformerEncoderLayer(8, 2, 12, activation=gf.silu, bias=False)
    theirs = made(ENCODER, activation=torch.nn.functional.silu, bias=False)
    compare(ours, theirs, [random(rng, 2, 3, 8)], {}, {})


def test_an_activation_with_weights_is_part_of_the_layer(rng):
    ours = nn.TransformerEncoderLayer(8, 2, 12, activation=nn.PReLU())
    theirs = made(ENCODER, activation=torch.nn.PReLU())
    compare(ours, theirs, [random(rng, 2, 3, 8)], {}, {})


def test_encoder_layer_with_padding(rng):
    is_word = padding(5, 3, 4)
    theirs = made(ENCODER)
    mask = {"src_key_padding_mask": as_torch(~is_word)}
    ours = nn.TransformerEncoderLayer(8, 2, 12)
    compare(ours, theirs, [random(rng, 3, 5, 8)], {"mask": is_word[:, None, :]}, mask)


def test_causal_encoder_layer(rng):
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5)
    ours = nn.TransformerEncoderLayer(8, 2, 12, causal=True)
    compare(ours, made(ENCODER), [random(rng, 3, 5, 8)], {}, {"src_mask": causal})


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer(rng, norm_first):
    exists, words = padding(4, 2, 3), padding(5, 6, 1)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(4) < 0
    ours = nn.TransformerDecoderLayer(8, 2, 12, norm_first=norm_first)
    compare(
        ours,
        made(DECODER, norm_first=norm_first),
        [random(rng, 3, 4, 8), random(rng, 3, 6, 8)],
        {"mask": exists[:, None, :], "memory_mask": words[:, None, :]},
        {
            "tgt_mask": causal,
            "tgt_key_padding_mask": as_torch(~exists),
            "memory_key_padding_mask": as_torch(~words),
        },
    )


@pytest.mark.parametrize("final_norm", [None, True])
def test_encoder(rng, final_norm):
    norm = None if final_norm is None else torch.nn.LayerNorm(8)
    theirs = shaken(torch.nn.TransformerEncoder(made(ENCODER), 3, norm, enable_nested_tensor=False))
    ours = nn.TransformerEncoder(8, 2, 3, 12, final_norm=final_norm)
    is_word = padding(5, 3)
    mask = {"src_key_padding_mask": as_torch(~is_word)}
    compare(ours, theirs, [random(rng, 2, 5, 8)], {"mask": is_word[:, None, :]}, mask)


def test_decoder(rng):
    layer = made(DECODER, norm_first=True)
    theirs = shaken(torch.nn.TransformerDecoder(layer, 2, torch.nn.LayerNorm(8)))
    ours = nn.TransformerDecoder(8, 2, 2, 12, norm_first=True)
    words = padding(6, 4)
    compare(
        ours,
        theirs,
        [random(rng, 2, 3, 8), random(rng, 2, 6, 8)],
        {"memory_mask": words[:, None, :]},
        {
            "tgt_mask": torch.nn.Transformer.generate_square_subsequent_mask(3),
            "memory_key_padding_mask": as_torch(~words),
        },
    )


def test_each_layer_of_a_stack_begins_with_weights_of_its_own():
    encoder = nn.TransformerEncoder(8, 2, 2)
    assert encoder.norm is None
    assert encoder.layers[0].linear1.weight.name == "transformer_encoder.layers.0.linear1.weight"
    assert encoder.layers[0].feedforward_dim == 32
    with gf.Session(gf.current_graph()) as session:
        first, second = (session[layer.linear1.weight] for layer in encoder.layers)
    assert (first != second).all()


def test_state_dicts_are_saved_and_loaded(rng):
    encoder = nn.TransformerEncoder(8, 2, 2, norm_first=True, kv_heads=1)
    other = copy.deepcopy(encoder)
    x = random(rng, 2, 3, 8)
    first, second = encoder(x, training=False), other(x, training=False)
    with gf.Session(gf.current_graph()) as session:
        state = {n: a + 0.1 for n, a in encoder.state_dict(session).items()}
        other.load_state_dict(session, state, format="graphfw")
        before = session.run([first, second])
        encoder.load_state_dict(session, other.state_dict(session))
        after = session.run([first, second])
    assert (before[0] != before[1]).any()
    np.testing.assert_array_equal(*after)


def test_dropout_acts_in_training_alone(rng):
    layer = nn.TransformerEncoderLayer(8, 2, dropout=0.5)
    x = random(rng, 2, 6, 8)
    trained, again, exact = layer(x), layer(x), layer(x, training=False)
    same = layer.eval()(x)
    with gf.Session(gf.current_graph()) as session:
        trained, again, exact, same = session.run([trained, again, exact, same])
    assert (trained != again).any()
    assert (trained != exact).any()
    np.testing.assert_array_equal(same, exact)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(rng, dtype):
    decoder = nn.TransformerDecoder(8, 2, 2, norm_first=True, kv_heads=1, dtype=dtype)
    x, memory = random(rng, 2, 3, 8), random(rng, 2, 4, 8)
    narrow = [gf.astype(gf.asarray(a), dtype) for a in (x, memory)]
    y = decoder(*narrow, training=False)
    assert y.dtype.name == dtype
    exact = nn.TransformerDecoder(8, 2, 2, norm_first=True, kv_heads=1)
    wide = exact(x, memory, training=False)
    with gf.Session(gf.current_graph()) as session:
        state = {n: a.astype(dtype) for n, a in exact.state_dict(session).items()}
        decoder.load_state_dict(session, state, format="graphfw")
        got, expected = session.run([gf.astype(y, gf.float32), wide])
    tolerance = {"float16": 0.01, "bfloat16": 0.1, "float64": 1e-5}[dtype]
    np.testing.assert_allclose(got, expected, tolerance, tolerance)


def test_empty_batches():
    encoder = nn.TransformerEncoder(8, 2, 2, kv_heads=1)
    x = gf.placeholder(("batch", 3, 8), name="x")
    y = encoder(x)
    with gf.Session(gf.current_graph()) as session:
        assert session.run(y, {x: np.ones((0, 3, 8), np.float32)}).shape == (0, 3, 8)


def test_a_vmap_over_sequences(rng):
    encoder = nn.TransformerEncoder(8, 4, 2, kv_heads=2, causal=True)
    x = gf.asarray(random(rng, 3, 2, 5, 8))
    one = gf.vmap(lambda t: encoder(t, training=False))(x)
    with gf.Session(gf.current_graph()) as session:
        got, expected = session.run([one, encoder(x, training=False)])
    np.testing.assert_allclose(got, expected, 1e-5, 1e-5)


def test_mistakes_where_a_layer_is_made():
    cases = [
        (lambda: nn.TransformerEncoderLayer(8, 3), "use num_heads=2, which divides 8"),
        (lambda: nn.TransformerEncoderLayer(8, 4, kv_heads=3), "use kv_heads=2, which divides 4"),
        (lambda: nn.TransformerEncoderLayer(8, 2, 0), "use feedforward_dim=1"),
        (lambda: nn.TransformerDecoderLayer(8, 2, dropout=1.0), "dropout"),
        (lambda: nn.TransformerEncoderLayer(8, 2, activation="GELU"), 'use activation="gelu"'),
        (lambda: nn.TransformerEncoderLayer(8, 2, activation=nn.GELU), "activation=GELU()"),
        (lambda: nn.TransformerEncoderLayer(8, 2, activation=None), '"relu", "gelu"'),
        (lambda: nn.TransformerEncoder(8, 2, 0), "use num_layers=1"),
        (lambda: nn.TransformerDecoder(8, 2, 1.5), "num_layers"),
    ]
    for make, fix in cases:
        with pytest.raises(gf.ArgumentError) as caught:
            make()
        assert fix in caught.value.fix, caught.value


def test_mistakes_where_a_layer_is_called():
    encoder, decoder = nn.TransformerEncoder(8, 2, 2), nn.TransformerDecoderLayer(8, 2)
    x, wide = gf.ones((2, 3, 8)), gf.ones((2, 3, 9))
    cases = [
        (lambda: encoder(wide), "TransformerEncoderLayer(embed_dim=8) receives 9 features: use"),
        (
            lambda: decoder(x, wide),
            "receives memory with 9 features: project it, by gf.nn.Linear(9, 8)",
        ),
        (lambda: encoder(x, mask=gf.ones((2, 3), dtype=bool)), "mask"),
        (lambda: encoder(gf.ones((8,))), "query[None]"),
    ]
    for call, fix in cases:
        with pytest.raises(gf.ShapeError) as caught:
            call()
        assert fix in caught.value.fix, caught.value
