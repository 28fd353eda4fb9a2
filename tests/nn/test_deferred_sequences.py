"""Recurrent layers and attention that find a size in their first call: `LSTM(None, 32)`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, GraphError, ShapeError, UnknownNameError
from graphfw.utils.nest import leaves

RECURRENT: dict[str, Callable[[Any], gf.nn.Module]] = {
    "RNN": lambda n: gf.nn.RNN(n, 3, nonlinearity="relu"),
    "LSTM": lambda n: gf.nn.LSTM(n, 3, num_layers=2, bidirectional=True, batch_first=True),
    "GRU": lambda n: gf.nn.GRU(n, 3, bias=False, dtype="float64"),
    "RNNCell": lambda n: gf.nn.RNNCell(n, 3),
    "LSTMCell": lambda n: gf.nn.LSTMCell(n, 3),
    "GRUCell": lambda n: gf.nn.GRUCell(n, 3, bias=False),
}
ATTENTION: dict[str, Callable[[Any], gf.nn.Module]] = {
    "plain": lambda n: gf.nn.MultiHeadAttention(n, 2, bias=False),
    "grouped, rotary": lambda n: gf.nn.MultiHeadAttention(n, 2, kv_heads=1, rotary_base=100.0),
}
SIZE = 4
LAYERS = {**RECURRENT, **ATTENTION}
each_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


@each_layer
def test_it_is_the_layer_with_the_size(make: Any, rng: np.random.Generator):
    values = rng.normal(size=(2, 5, SIZE)).astype(np.float32)

    def run(size: int | None) -> tuple[str, list[str], Any]:
        with gf.Graph() as g:
            layer = make(size)
            dtype = "float64" if isinstance(layer, gf.nn.GRU) else "float32"
            x = gf.placeholder(("a", "b", SIZE), dtype, name="x")
            results = layer(x)
        names = [f"{name}: {v.type}" for name, v in layer.named_variables()]
        with gf.Session(g, seed=3) as session:
            return repr(layer), names, session.run([results], {x: values})

    found, given = run(None), run(SIZE)
    assert found[:2] == given[:2]
    for one, other in zip(leaves(found[2]), leaves(given[2]), strict=True):
        np.testing.assert_array_equal(one, other)


@each_layer
def test_variables_are_refused_before(make: Any):
    argument = "embed_dim" if make in ATTENTION.values() else "input_size"
    with gf.Graph() as g:
        layer = make(None)
        assert repr(layer) == f"{type(layer).__name__}({argument}=None)"
        with pytest.raises(GraphError, match=rf"finds {argument} .* in its first call"):
            layer.parameters()
        name = {"e": "q_proj", "i": "weight_ih"}[argument[0]]
        name += "_l0" if isinstance(layer, gf.nn.RNN | gf.nn.LSTM | gf.nn.GRU) else ""
        with pytest.raises(UnknownNameError, match=f"has no {name} yet: .* in its first call"):
            getattr(layer, name)
        assert not g.variables


@each_layer
@pytest.mark.parametrize("shape", [(), (2, 5, "unknown")])
def test_a_first_call_that_fails_changes_nothing(make: Any, shape: tuple[Any, ...]):
    with gf.Graph() as g:
        layer = make(None)
        with pytest.raises((ArgumentError, ShapeError), match=r"must have|a dim that is not known"):
            layer(gf.placeholder(shape))
        assert not g.variables
        dtype = "float64" if isinstance(layer, gf.nn.GRU) else "float32"
        layer(gf.placeholder((2, 5, SIZE), dtype))
        assert layer.parameters()


def test_attention_checks_what_the_first_call_finds():
    with gf.Graph() as g:
        attend = gf.nn.MultiHeadAttention(None, 4, key_dim=3)
        assert (attend.key_dim, attend.value_dim) == (3, 3)
        keys = gf.placeholder((1, 7, 3))
        with pytest.raises(ArgumentError, match="embed_dim=6 is no multiple of num_heads=4"):
            attend(gf.placeholder((1, 5, 6)), keys)
        assert attend.embed_dim is None
        attend(gf.placeholder((1, 5, 8)), keys)
        assert (attend.embed_dim, attend.k_proj.in_features) == (8, 3)
        rotary = gf.nn.MultiHeadAttention(None, 4, rotary_base=10.0)
        with pytest.raises(ArgumentError, match="rotary_base"):
            rotary(gf.placeholder((1, 5, 4)))  # one channel a head
        assert len(g.variables) == 8
        assert attend.q_proj.weight.name == "multi_head_attention.q_proj.weight"


def test_a_recurrent_model_is_trained_and_loaded(rng: np.random.Generator):
    with gf.Graph() as g:
        x = gf.placeholder(("time", "batch", 6), name="x")
        lstm, attend = gf.nn.LSTM(None, 8), gf.nn.MultiHeadAttention(None, 2, 0.1)
        steps, _ = lstm(x)
        loss = gf.mean(attend(steps) ** 2)
        train = gf.optim.Adam(1e-2).minimize(loss, [*lstm.parameters(), *attend.parameters()])
    values = rng.normal(size=(5, 3, 6)).astype(np.float32)
    with gf.Session(g) as session:
        first, *_, last = [session.run([loss, train], {x: values})[0] for _ in range(20)]
        assert last < first
    torch = pytest.importorskip("torch")
    theirs = torch.nn.LSTM(6, 8)
    with gf.Session(g) as session:
        assert not lstm.load_state_dict(session, theirs.state_dict()).missing
        with torch.no_grad():
            expected = theirs(torch.asarray(values))[0].numpy()
        np.testing.assert_allclose(session.run(steps, {x: values}), expected, 1e-5, 1e-5)


def test_the_first_call_inside_of_a_scan():
    with gf.Graph() as g:
        x = gf.placeholder(("time", 2, 4), name="x")
        cell = gf.nn.GRUCell(None, 3)
        last, _ = gf.scan(lambda h, row: (cell(row, h), ()), gf.zeros((2, 3)), x)
    with gf.Session(g) as session:
        assert session.run(last, {x: np.ones((5, 2, 4), np.float32)}).shape == (2, 3)
    assert cell.weight_ih.shape == (4, 9)
