"""Recurrent layers against formulas written out in NumPy, and against PyTorch's."""

import functools

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn

KINDS = ["RNN", "LSTM", "GRU"]
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def packed(kind, states):
    return tuple(states) if kind == "LSTM" else states[0]


def unpacked(kind, state):
    return list(state) if kind == "LSTM" else [state]


def random_weights(layer, rng):
    """Return random weights, larger than the initial ones, by name."""
    return {
        name: (0.4 * rng.standard_normal(v.shape)).astype(v.dtype.dtype)
        for name, v in layer.named_variables()
    }


# By hand.


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_step(kind, x, weights, state):
    ih, hh, b_ih, b_hh = weights
    z, own = x @ ih + b_ih, state[0] @ hh + b_hh
    if kind == "RNN":
        return (np.tanh(z + own),)
    if kind == "LSTM":
        i, f, g, o = np.split(z + own, 4, axis=-1)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    (r_x, z_x, n_x), (r_h, z_h, n_h) = np.split(z, 3, axis=-1), np.split(own, 3, axis=-1)
    keep = sigmoid(z_x + z_h)
    return ((1 - keep) * np.tanh(n_x + sigmoid(r_x + r_h) * n_h) + keep * state[0],)


def numpy_steps(kind, x, weights, states, lengths, backwards):
    """Go through each sequence for itself.  x: [T, B, inputs], states: [B, hidden] each"""
    out = np.zeros((*x.shape[:2], states[0].shape[-1]))
    ends = [s.copy() for s in states]
    for b, length in enumerate(lengths):
        state = tuple(s[b] for s in states)
        for t in reversed(range(length)) if backwards else range(length):
            state = numpy_step(kind, x[t, b], weights, state)
            out[t, b] = state[0]
        for end, value in zip(ends, state, strict=True):
            end[b] = value
    return out, ends


def numpy_layers(kind, x, weights, states, lengths, layers, ways):
    """Return all outputs and the last states.  states: [layers * ways, B, hidden] each"""
    histories = [[] for _ in states]
    for layer in range(layers):
        outs = []
        for way in range(ways):
            own = [weights[f"{name}_l{layer}" + "_reverse" * way] for name in NAMES]
            start = [s[len(histories[0])] for s in states]
            out, ends = numpy_steps(kind, x, own, start, lengths, way)
            outs.append(out)
            for history, end in zip(histories, ends, strict=True):
                history.append(end)
        x = np.concatenate(outs, axis=-1)
    return x, [np.stack(p) for p in histories]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("padding", ["", "lengths", "mask"])
@pytest.mark.parametrize(("layers", "batch_first"), [(1, False), (2, True)])
def test_by_hand(rng, kind, bidirectional, padding, layers, batch_first):
    time, batch, inputs, hidden, ways = 5, 3, 4, 6, 1 + bidirectional
    layer = getattr(nn, kind)(
        inputs, hidden, layers,
        bidirectional=bidirectional, batch_first=batch_first, dtype=gf.float64,
    )  # fmt: skip
    lengths = np.array([3, 5, 0]) if padding else np.array([time] * batch)
    arrays = {
        "x": rng.standard_normal((time, batch, inputs)),
        "lengths": lengths.astype(np.int32),
        "mask": np.arange(time)[:, None] < lengths,
    }
    if batch_first:
        arrays.update({name: arrays[name].swapaxes(0, 1) for name in ("x", "mask")})
    states = rng.standard_normal((1 + (kind == "LSTM"), layers * ways, batch, hidden))

    dims = ("batch", "time") if batch_first else ("time", "batch")
    fed = {
        "x": gf.placeholder((*dims, inputs), gf.float64),
        "lengths": gf.placeholder(("batch",), gf.int32),
        "mask": gf.placeholder(dims, gf.bool),
    }
    start = [gf.placeholder((layers * ways, "batch", hidden), gf.float64) for _ in states]
    given = {padding: fed[padding]} if padding else {}
    y, last = layer(fed["x"], packed(kind, start), **given)
    assert y.shape == (*fed["x"].shape[:2], ways * hidden)
    feeds = {fed[name]: arrays[name] for name in ("x", *given)}
    weights = random_weights(layer, rng)
    with gf.Session(gf.current_graph()) as session:
        layer.load_state_dict(session, weights)
        feeds.update(zip(start, states, strict=True))
        value, end = session.run([y, unpacked(kind, last)], feeds)

    x = arrays["x"].swapaxes(0, 1) if batch_first else arrays["x"]
    expected, ends = numpy_layers(kind, x, weights, states, lengths, layers, ways)
    value = value.swapaxes(0, 1) if batch_first else value
    np.testing.assert_allclose(value, expected, 1e-9, 1e-12)
    np.testing.assert_allclose(np.stack(end), np.stack(ends), 1e-9, 1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("time", [0, 1])
@pytest.mark.parametrize("batch", [(), (0,), (2, 3)])
def test_sizes(rng, kind, time, batch):
    """No steps, one step; one sequence without a dim for the batch, none, several dims."""
    layer = getattr(nn, kind)(2, 3, bidirectional=True)
    x = rng.standard_normal((time, *batch, 2)).astype(np.float32)
    data = gf.placeholder(("time", *x.shape[1:]))
    y, last = layer(data)
    gradient = gf.grad(gf.sum(y), layer.weight_hh_l0)
    with gf.Session(gf.current_graph()) as session:
        value, end, slope = session.run([y, unpacked(kind, last), gradient], {data: x})
    assert value.shape == (time, *batch, 6)
    assert end[0].shape == (2, *batch, 3)
    assert slope.shape == layer.weight_hh_l0.shape
    if time:
        np.testing.assert_array_equal(value[0], np.concatenate(list(end[0]), axis=-1))
    else:
        np.testing.assert_array_equal(end[0], 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_cell_makes_a_step_of_the_layer(rng, kind, bias):
    layer = getattr(nn, kind)(4, 5, bias=bias)
    cell = getattr(nn, f"{kind}Cell")(4, 5, bias)
    x = gf.constant(rng.standard_normal((3, 2, 4)).astype(np.float32))
    y, last = layer(x)
    state, hs = None, []
    for t in range(3):
        state = cell(x[t], state)
        hs.append(unpacked(kind, state)[0])
    with gf.Session(gf.current_graph()) as session:
        weights = random_weights(layer, rng)
        layer.load_state_dict(session, weights)
        cell.load_state_dict(session, {n.removesuffix("_l0"): a for n, a in weights.items()})
        fetches = [y, [s[0] for s in unpacked(kind, last)], hs, unpacked(kind, state)]
        value, end, own, own_end = session.run(fetches)
    np.testing.assert_allclose(value, np.stack(own), 1e-5, 1e-6)
    np.testing.assert_allclose(np.stack(end), np.stack(own_end), 1e-5, 1e-6)


def test_cell_in_a_scan(rng):
    cell, layer = nn.LSTMCell(4, 5), nn.LSTM(4, 5)
    x = gf.constant(rng.standard_normal((6, 2, 4)).astype(np.float32))
    first = (gf.zeros((2, 5)), gf.zeros((2, 5)))

    def step(state, x):
        state = cell(x, state)
        return state, state[0]

    _, hs = gf.scan(step, first, x)
    with gf.Session(gf.current_graph()) as session:
        weights = random_weights(cell, rng)
        cell.load_state_dict(session, weights)
        layer.load_state_dict(session, {f"{n}_l0": a for n, a in weights.items()})
        own, expected = session.run([hs, layer(x)[0]])
    np.testing.assert_allclose(own, expected, 1e-5, 1e-6)


def test_state_goes_on(rng):
    """Two halves, with the state between them, are the whole."""
    layer = nn.GRU(3, 4, 2)
    x = gf.constant(rng.standard_normal((7, 2, 3)).astype(np.float32))
    whole, end = layer(x)
    first, state = layer(x[:3])
    second, other = layer(x[3:], state)
    with gf.Session(gf.current_graph()) as session:
        values = session.run([whole, gf.concat([first, second]), end, other])
    np.testing.assert_allclose(values[0], values[1], 1e-5, 1e-6)
    np.testing.assert_allclose(values[2], values[3], 1e-5, 1e-6)


def test_padding_does_not_count(rng):
    """Padding changes nothing, in gradients neither."""
    layer = nn.LSTM(3, 4, bidirectional=True)
    x = rng.standard_normal((4, 2, 3)).astype(np.float32)
    data = gf.placeholder(x.shape)
    y, (h, c) = layer(data, lengths=[4, 2])
    loss = gf.sum(y * y) + gf.sum(h) + gf.sum(c)
    fetches = [loss, gf.grad(loss, data)]
    with gf.Session(gf.current_graph()) as session:
        expected = session.run(fetches, {data: x})
        x[2:, 1] = 7.0
        got = session.run(fetches, {data: x})
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1], expected[1])
    np.testing.assert_array_equal(got[1][2:, 1], 0)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64])
def test_lengths_of_any_integers(dtype):
    """More steps than int8 counts."""
    y, _ = nn.RNN(1, 2)(gf.ones((130, 2, 1)), lengths=np.array([127, 3], dtype))
    with gf.Session(gf.current_graph()) as session:
        seen = np.all(session.run(y) != 0, axis=-1)
    np.testing.assert_array_equal(seen.sum(axis=0), [127, 3])


def test_dropout_is_between_layers():
    layer = nn.RNN(3, 400, 2, dropout=0.5, bias=False)
    x = gf.ones((1, 1, 3))
    with gf.Session(gf.current_graph()) as session:
        plain = layer.eval()(x)[0]
        a, b, c, hs = session.run([plain, plain, layer.train()(x)[0], layer(x)[1]])
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-3
    assert np.all(c != 0)
    assert np.all(hs != 0)


def test_dtypes():
    x = gf.ones((2, 1, 3), dtype=gf.float64)
    for layer in (nn.GRU(3, 2, dtype=gf.float64), nn.GRU(3, 2)):
        y, h = layer(x)
        assert y.dtype is h.dtype is gf.float64
    y, h = nn.GRU(3, 2, dtype=gf.float16)(gf.ones((2, 1, 3), dtype=gf.float16))
    assert y.dtype is h.dtype is gf.float16


def test_initial_weights(graph):
    layer = nn.LSTM(30, 100)
    with gf.Session(graph) as session:
        for name, array in layer.state_dict(session).items():
            assert 0.09 < np.abs(array).max() <= 0.1, name


def test_names():
    layer = nn.LSTM(3, 5, 2, bidirectional=True)
    shapes = {name: v.shape for name, v in layer.named_parameters()}
    assert list(shapes) == [
        f"{name}_l{layer}{way}" for layer in (0, 1) for way in ("", "_reverse") for name in NAMES
    ]
    assert shapes["weight_ih_l0"] == (3, 20)
    assert shapes["weight_ih_l1_reverse"] == (10, 20)
    assert shapes["weight_hh_l1"] == (5, 20)
    assert shapes["bias_hh_l0_reverse"] == (20,)
    assert layer.weight_hh_l1.name == "lstm.weight_hh_l1"
    assert nn.GRU(3, 5, bias=False).bias_ih_l0 is None
    assert str(layer).startswith("LSTM(3 -> 5, num_layers=2, bidirectional)")
    assert str(nn.GRUCell(3, 5)).startswith("GRUCell(3 -> 5, bias=True)")


# PyTorch.


def their_state(layer):
    """Return a PyTorch state dict as ours: matrices are the other way round."""
    return {name: t.numpy().T for name, t in layer.state_dict().items()}


CASES = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 3, "batch_first": True, "bias": False},
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", CASES, ids=["one", "two-both-ways", "three"])
@pytest.mark.parametrize("lengths", [None, [2, 4, 1]])
def test_torch(torch, rng, kind, options, lengths):
    """Results, last states and all gradients."""
    batch_first = options.get("batch_first", False)
    x = rng.standard_normal((3, 4, 5) if batch_first else (4, 3, 5))
    theirs = getattr(torch.nn, kind)(5, 6, **options, dtype=torch.float64)
    layer = getattr(nn, kind)(5, 6, **options, dtype=gf.float64)
    data = gf.placeholder(x.shape, gf.float64)
    y, last = layer(data, lengths=lengths)
    ours = [y, *unpacked(kind, last)]
    loss = functools.reduce(lambda a, b: a + b, [gf.sum(gf.sin(t)) for t in ours])
    gradients = gf.grad(loss, [data, *layer.parameters()])
    with gf.Session(gf.current_graph()) as session:
        layer.load_state_dict(session, their_state(theirs))
        values, slopes = session.run([ours, gradients], {data: x})

    their_x = torch.tensor(x, requires_grad=True)
    pack = torch.nn.utils.rnn
    given = their_x
    if lengths is not None:
        given = pack.pack_padded_sequence(given, lengths, batch_first, enforce_sorted=False)
    their_y, their_last = theirs(given)
    if lengths is not None:
        their_y, _ = pack.pad_packed_sequence(their_y, batch_first)
    expected = [their_y, *unpacked(kind, their_last)]
    for got, want in zip(values, expected, strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), 1e-9, 1e-12)
    sum(t.sin().sum() for t in expected).backward()
    np.testing.assert_allclose(slopes[0], their_x.grad.numpy(), 1e-8, 1e-11)
    for (name, p), slope in zip(theirs.named_parameters(), slopes[1:], strict=True):
        np.testing.assert_allclose(slope, p.grad.numpy().T, 1e-8, 1e-11, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_torch_cells(torch, rng, kind, bias):
    theirs = getattr(torch.nn, f"{kind}Cell")(4, 5, bias)
    cell = getattr(nn, f"{kind}Cell")(4, 5, bias)
    x = rng.standard_normal((2, 4)).astype(np.float32)
    states = rng.standard_normal((1 + (kind == "LSTM"), 2, 5)).astype(np.float32)
    with gf.Session(gf.current_graph()) as session:
        cell.load_state_dict(session, their_state(theirs))
        made = session.run(unpacked(kind, cell(x, packed(kind, list(states)))))
    expected = theirs(torch.tensor(x), packed(kind, [torch.tensor(s) for s in states]))
    for got, want in zip(made, unpacked(kind, expected), strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), 1e-5, 1e-6)


def test_torch_relu(torch, rng):
    theirs = torch.nn.RNN(4, 5, nonlinearity="relu")
    layer, cell = nn.RNN(4, 5, nonlinearity="relu"), nn.RNNCell(4, 5, nonlinearity="relu")
    x = rng.standard_normal((3, 2, 4)).astype(np.float32)
    with gf.Session(gf.current_graph()) as session:
        state = their_state(theirs)
        layer.load_state_dict(session, state)
        cell.load_state_dict(session, {n.removesuffix("_l0"): a for n, a in state.items()})
        y, h = session.run([layer(x)[0], cell(x[0])])
    expected = theirs(torch.tensor(x))[0].detach().numpy()
    np.testing.assert_allclose(y, expected, 1e-5, 1e-6)
    np.testing.assert_allclose(h, expected[0], 1e-5, 1e-6)


# Mistakes.


@pytest.mark.parametrize(
    ("make", "summary", "fix"),
    [
        (lambda: nn.LSTM(0, 3), "LSTM: input_size=0 must be 1 or more", "use input_size=1"),
        (lambda: nn.GRU(2, 3, 0), "GRU: num_layers=0 must be 1 or more", "use num_layers=1"),
        (lambda: nn.LSTMCell(2, 2.5), "LSTMCell: hidden_size=2.5 is no int", "give hidden_size as"),
        (
            lambda: nn.LSTM(2, 3, dropout=0.5),
            "LSTM: dropout=0.5 is between layers, and there is one layer",
            "use num_layers=2 or more, or gf.nn.Dropout after it",
        ),
        (
            lambda: nn.LSTM(2, 3, 2, dropout=1.5),
            "LSTM: dropout=1.5 must be at least 0 and below 1",
            "",
        ),
        (
            lambda: nn.RNN(2, 3, nonlinearity="rel"),
            'RNN: nonlinearity=\'rel\' is none of "tanh", "relu"',
            'use nonlinearity="relu"',
        ),
        (
            lambda: nn.RNNCell(2, 3, nonlinearity="gelu"),
            "RNNCell: nonlinearity='gelu' is none of",
            "relu",
        ),
    ],
)
def test_wrong_arguments(make, summary, fix):
    with pytest.raises(gf.ArgumentError) as caught:
        make()
    assert str(caught.value).startswith(summary)
    assert fix in caught.value.fix


def x32(*shape):
    return gf.placeholder(shape)


@pytest.mark.parametrize(
    ("call", "error", "summary", "fix"),
    [
        (
            lambda m: m(x32("time", 4, 3)),
            gf.ShapeError,
            "LSTM(input_size=2) receives 3 features",
            "use input_size=3",
        ),
        (
            lambda m: m(x32("time", 4, "n")),
            gf.ShapeError,
            "LSTM(input_size=2) receives n features",
            "say gf.assert_shape(x, (None, None, 2))",
        ),
        (
            lambda m: m(x32(2)),
            gf.ShapeError,
            "LSTM: the input must have 2 dims or more, [T, *B, input_size], not 1",
            "give it as [T, *B, input_size]",
        ),
        (
            lambda m: m(x32(5, 4, 2), x32(1, 4, 3)),
            gf.ArgumentError,
            "LSTM: the state is a Tensor, not a pair (h, c)",
            "pass what a call returned, or (h, c)",
        ),
        (
            lambda m: m(x32(5, 4, 2), (x32(1, 4, 3), x32(4, 3))),
            gf.ShapeError,
            "LSTM: c is [4, 3], not [1, 4, 3]",
            ", after num_layers times the directions",
        ),
        (
            lambda m: m(x32(5, 4, 2), (gf.zeros((1, 4, 3), dtype=gf.float64), x32(1, 4, 3))),
            gf.DTypeError,
            "LSTM: h is float64, and its steps make float32",
            "write gf.astype(h, gf.float32)",
        ),
        (
            lambda m: m(x32(5, 4, 2), lengths=gf.placeholder((5,), gf.int64)),
            gf.ShapeError,
            "LSTM: lengths are [5], not [4]",
            "give one length for each sequence; the first dim of x is time without batch_first",
        ),
        (
            lambda m: m(x32(5, 4, 2), lengths=x32(4)),
            gf.DTypeError,
            "LSTM: lengths must be of integers, not float32",
            "write gf.astype(lengths, gf.int64)",
        ),
        (
            lambda m: m(x32(5, 4, 2), mask=gf.placeholder((4, 5), gf.bool)),
            gf.ShapeError,
            "LSTM: the mask is [4, 5], not [5, 4]",
            "give one bool for each step",
        ),
        (
            lambda m: m(x32(5, 4, 2), mask=x32(5, 4)),
            gf.DTypeError,
            "LSTM: the mask must be of bools, not float32",
            "write mask != 0",
        ),
        (
            lambda m: m(x32(5, 1, 2), lengths=[2], mask=[[True]] * 5),
            gf.ArgumentError,
            "LSTM: there are lengths and a mask",
            "leave one of them out",
        ),
    ],
)
def test_wrong_calls(call, error, summary, fix):
    with pytest.raises(error) as caught:
        call(nn.LSTM(2, 3))
    assert str(caught.value).split("\n")[0] == summary
    assert fix in caught.value.fix


def test_wrong_state_of_a_cell():
    with pytest.raises(gf.ShapeError, match=r"GRUCell: h is \[1, 4, 3\], not \[4, 3\]") as caught:
        nn.GRUCell(2, 3)(x32(4, 2), x32(1, 4, 3))
    assert caught.value.fix.startswith("write h[-1]: the state of the last layer")
    with pytest.raises(gf.ShapeError) as caught:
        nn.GRUCell(2, 3)(x32(4, 2), x32(5, 3))
    assert caught.value.fix == "the state has the input's batch dims and hidden_size"
