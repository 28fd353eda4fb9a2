"""Layers against PyTorch's, and what they say of inputs that don't fit."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.ops.nn import losses
from tests.support.torch_layers import as_torch, compare, set_weights, torch


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


# Linear.


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5)])
def test_linear(rng, shape, bias):
    x = rng.standard_normal(shape).astype(np.float32)
    compare(nn.Linear(5, 7, bias=bias), torch.nn.Linear(5, 7, bias=bias), x)


def test_linear_initial_weights(graph):
    layer = nn.Linear(400, 300)
    with gf.Session(graph) as session:
        weight, bias = session[layer.weight], session[layer.bias]
    assert weight.shape == (400, 300)
    for array in (weight, bias):
        assert array.dtype == np.float32
        assert 0.045 < np.abs(array).max() <= 0.05
        assert abs(array.std() - 0.05 / np.sqrt(3)) < 3e-3


def test_linear_options(graph):
    layer = nn.Linear(2, 3, dtype=gf.float64, weight_init=nn.init.ones, bias_init=nn.init.zeros)
    with gf.Session(graph) as session:
        np.testing.assert_array_equal(session[layer.weight], np.ones((2, 3)))
        np.testing.assert_array_equal(session[layer.bias], np.zeros(3))


def test_linear_wrong_features():
    x = gf.placeholder(("batch", 128), name="x")
    model = nn.Sequential(nn.Linear(64, 10))
    with pytest.raises(gf.ShapeError) as caught:
        model(x)
    lines = str(caught.value).split("\n")
    assert lines[0] == "matmul: contracting dims differ: x1[-1] = 128, x2[-2] = 64"
    assert '"x"' in lines[1]
    assert '"sequential.0.weight"' in lines[2]
    assert "  layer " not in lines[2]
    assert "model(x)" in lines[3]
    assert lines[4] == "  fix  Linear(in_features=64) receives 128 features: use in_features=128"


@pytest.mark.parametrize(
    ("shape", "fix"),
    [
        (("batch", 8, 8), "receives [batch, 8, 8]: flatten it first, with gf.nn.Flatten()"),
        (("batch", "n"), "receives `n` features: say gf.assert_shape(x, (None, 64))"),
        (("n",), "receives `n` features: say gf.assert_shape(x, (64,))"),
        ((3, 65), "receives 65 features: use in_features=65"),
    ],
)
def test_linear_fixes(shape, fix):
    with pytest.raises(gf.ShapeError) as caught:
        nn.Linear(64, 10)(gf.placeholder(shape))
    assert caught.value.fix == f"Linear(in_features=64) {fix}"


def test_linear_mistakes_are_collected():
    with pytest.raises(gf.GraphErrors) as caught, gf.Graph(collect_errors=True):
        x = gf.placeholder(("batch", 3))
        h = nn.Linear(4, 5)(x)
        nn.Linear(6, 7)(h)
        nn.Linear(2, 7)(x)
    fixes = [error.fix for error in caught.value.errors]
    assert fixes == [
        "Linear(in_features=4) receives 3 features: use in_features=3",
        "Linear(in_features=2) receives 3 features: use in_features=3",
    ]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nn.Linear(0, 3), "Linear: in_features=0 must be 1 or more(.*\n)+.*in_features=1"),
        (lambda: nn.Linear(3, -4), "out_features=-4 must be 1 or more(.*\n)+.*out_features=4"),
        (lambda: nn.Sequential(nn.ReLU(), 3), "at position 1. is no Module(.*\n)+.*fix  pass"),
        (lambda: nn.Linear(3, 2.5), "Linear: out_features=2.5 is no int"),
        (lambda: nn.Linear(True, 3), "Linear: in_features=True is no int"),
        (lambda: nn.Linear(gf.placeholder(("n",)).shape[0], 3), "is a dim that is not known yet"),
        (lambda: nn.Embedding(3, -1), "Embedding: embedding_dim=-1 must be 1 or more"),
        (lambda: nn.Embedding(3, 1, 3), "padding_idx=3 is none of 3 rows"),
        (lambda: nn.Dropout(20), "Dropout: p=20 must be at least 0 and below 1"),
        (lambda: nn.GroupNorm(3, 16), "use groups=2, which divides 16"),
        (lambda: nn.Conv2d(12, 18, 3, groups=4), "use groups=3, which divides both"),
        (lambda: nn.BatchNorm(3, momentum=0), "momentum=0 must be above 0 and at most 1"),
        (lambda: nn.GroupNorm(2, 3), "channels=3 is no multiple of groups=2"),
        (lambda: nn.LayerNorm(()), r"features=\(\) has no dims"),
        (lambda: nn.LayerNorm("8"), "features='8' is no int"),
        (lambda: nn.MultiHeadAttention(10, 3), "num_heads=3(.*\n)+.*use num_heads=2,"),
        (lambda: nn.MultiHeadAttention(8, 2, dropout=1), "dropout=1 must be at least 0"),
    ],
)
def test_bad_arguments(make, text):
    with pytest.raises(gf.ArgumentError, match=text):
        make()


@pytest.mark.parametrize(
    "make",
    [
        nn.Dropout,
        lambda rate: nn.MultiHeadAttention(8, 2, dropout=rate),
        lambda rate: gf.dropout(gf.ones(3), rate),
    ],
)
@pytest.mark.parametrize(
    ("rate", "fix"), [(20, "=0.2"), (2, "=0.02"), (1.5, "=0.5"), (1, "=0.5"), (-1, "=0.5")]
)
def test_dropout_fix(make, rate, fix):
    with pytest.raises(gf.ArgumentError) as caught:
        make(rate)
    assert caught.value.fix.endswith(fix)


@pytest.mark.parametrize("layer", [nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_the_probability_was_called_rate(layer):
    with pytest.raises(gf.CallError) as caught:
        layer(rate=0.2)
    assert caught.value.fix == f"{layer.__name__}(p=0.2)"
    with pytest.raises(AttributeError) as missed:
        _ = layer(0.2).rate
    assert missed.value.fix == "read layer.p: the probability of being dropped"


def test_the_probability_of_the_function_was_called_rate():
    with pytest.raises(gf.CallError) as caught:
        gf.dropout(gf.ones(3), rate=0.2)
    assert caught.value.fix == "gf.dropout(gf.ones(3), p=0.2)"


# Embedding.


@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_embedding(rng, graph, padding_idx):
    layer = nn.Embedding(7, 3, padding_idx)
    theirs = torch.nn.Embedding(7, 3, padding_idx)
    indices = gf.placeholder((2, 5), gf.int64, name="i")
    rows = layer(indices)
    weights = rng.standard_normal((2, 5, 3)).astype(np.float32)
    gradient = gf.grad(gf.sum(rows * weights), layer.weight)
    fed = rng.integers(0, 7, (2, 5))
    fed[0, :2] = 2, 6
    with gf.Session(graph) as session:
        table = session[layer.weight]
        set_weights(session, layer, theirs)
        got, got_gradient = session.run([rows, gradient], {indices: fed})
    expected = theirs(as_torch(fed))
    (expected * as_torch(weights)).sum().backward()
    np.testing.assert_array_equal(got, expected.detach().numpy())
    np.testing.assert_allclose(got_gradient, theirs.weight.grad.numpy(), 1e-6)
    zero_rows = [] if padding_idx is None else [padding_idx % 7]
    assert [i for i in range(7) if not table[i].any()] == zero_rows
    if zero_rows:
        assert not got_gradient[zero_rows].any()


@pytest.mark.parametrize("padding_idx", [None, -1])
@pytest.mark.parametrize("index", [-1, -2, 2])
def test_embedding_refuses_what_is_no_row(graph, padding_idx, index):
    layer = nn.Embedding(2, 4, padding_idx)
    indices = gf.placeholder(("batch",), gf.int32, name="i")
    rows = layer(indices)
    gradient = gf.grad(gf.sum(rows), layer.weight)  # which needs no rows, only where they go
    for wanted in (rows, gradient):
        with gf.Session(graph) as session, pytest.raises(gf.ExecutionError) as caught:
            session.run(wanted, {indices: [0, index]})
        expected = f"Embedding: index {index} is out of range: it has 2 rows"
        assert caught.value.summary == expected
        assert caught.value.at.file == __file__


def test_embedding_wants_integers():
    with pytest.raises(gf.DTypeError, match="indices must be integers"):
        nn.Embedding(7, 3)(gf.placeholder((2,)))


# Dropout and activations.


def test_dropout_keeps_the_mean(graph):
    y = nn.Dropout(0.25)(gf.ones((200, 100)))
    with gf.Session(graph) as session:
        first, second = session.run(y), session.run(y)
    np.testing.assert_allclose(np.unique(first), [0, 4 / 3])
    assert abs(first.mean() - 1) < 0.02
    assert (first != second).any()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (nn.ReLU, torch.nn.ReLU), (nn.ReLU6, torch.nn.ReLU6), (nn.SELU, torch.nn.SELU),
        (nn.SiLU, torch.nn.SiLU), (nn.Mish, torch.nn.Mish), (nn.Tanh, torch.nn.Tanh),
        (nn.Sigmoid, torch.nn.Sigmoid), (nn.LogSigmoid, torch.nn.LogSigmoid),
        (nn.Softsign, torch.nn.Softsign), (nn.Hardsigmoid, torch.nn.Hardsigmoid),
        (nn.Hardswish, torch.nn.Hardswish), (nn.Identity, torch.nn.Identity),
        (lambda: nn.LeakyReLU(0.2), lambda: torch.nn.LeakyReLU(0.2)),
        (lambda: nn.ELU(0.7), lambda: torch.nn.ELU(0.7)),
        (lambda: nn.CELU(0.7), lambda: torch.nn.CELU(0.7)),
        (nn.GELU, torch.nn.GELU),
        (lambda: nn.GELU("tanh"), lambda: torch.nn.GELU("tanh")),
        (lambda: nn.Softplus(2.0), lambda: torch.nn.Softplus(2.0)),
        (lambda: nn.Hardtanh(-0.5, 0.7), lambda: torch.nn.Hardtanh(-0.5, 0.7)),
        (lambda: nn.GLU(1), lambda: torch.nn.GLU(1)),
        (lambda: nn.Softmax(1), lambda: torch.nn.Softmax(1)),
        (nn.LogSoftmax, lambda: torch.nn.LogSoftmax(-1)),
        (nn.Flatten, torch.nn.Flatten),
        (lambda: nn.Flatten(0, 1), lambda: torch.nn.Flatten(0, 1)),
        (nn.PReLU, torch.nn.PReLU),
        (lambda: nn.PReLU(4, axis=1), lambda: torch.nn.PReLU(4)),
        (lambda: nn.PReLU(4, axis=-2), lambda: torch.nn.PReLU(4)),
    ],
)  # fmt: skip
def test_activations(rng, ours, theirs):
    compare(ours(), theirs(), rng.standard_normal((3, 4, 5)).astype(np.float32) * 2)


def test_activation_texts():
    assert repr(nn.GELU()) == "GELU(approximate='none')"
    assert repr(nn.LeakyReLU(0.2)) == "LeakyReLU(negative_slope=0.2)"
    assert repr(nn.PReLU(3)) == "PReLU(num_parameters=3)  # 3 parameters"
    assert repr(nn.Embedding(7, 3, -1)) == "Embedding(7 -> 3, padding_idx=6)  # 21 parameters"
    assert repr(nn.LayerNorm((4, 6))) == "LayerNorm(4, 6, eps=1e-05, affine=True)  # 48 parameters"


def test_prelu_of_wrong_size():
    with pytest.raises(gf.ShapeError, match="PReLU: 3 slopes don't fit x at axis -1"):
        nn.PReLU(3)(gf.placeholder((2, 4)))
    with pytest.raises(gf.ShapeError, match="3 dims, and the axis of its slopes is not given") as e:
        nn.PReLU(4)(gf.placeholder((2, 4, 4)))
    assert "PReLU(…, axis=1) for [N, C, *S], axis=-1" in e.value.fix
    nn.PReLU()(gf.placeholder((2, 4, 4)))


# Losses are where users of layers look for them.


def test_losses_are_exported():
    assert set(losses.__all__) <= set(nn.__all__)
    assert all(getattr(nn, name) is getattr(losses, name) for name in losses.__all__)


# A model learns.


def test_a_model_learns(rng, graph):
    x = gf.placeholder(("batch", 2), name="x")
    y = gf.placeholder(("batch",), gf.int64, name="y")
    model = nn.Sequential(nn.Linear(2, 32), nn.BatchNorm(32), nn.Tanh(), nn.Linear(32, 2))
    loss = nn.cross_entropy(model(x), y)
    train = gf.optim.Adam(0.03).minimize(loss)
    accuracy = nn.metrics.accuracy(model.eval()(x), y)
    data = rng.standard_normal((200, 2)).astype(np.float32)
    labels = (data[:, 0] * data[:, 1] > 0).astype(np.int64)
    with gf.Session(graph, seed=1) as session:
        for _ in range(60):
            session.run([loss, train], {x: data, y: labels})
        assert float(session.run(accuracy, {x: data, y: labels})) > 0.95


# Initial values.


LAYERS = {
    "linear": (nn.Linear, (2, 3), (2, 3)),
    "conv": (lambda *a, **k: nn.Conv1d(*a, 4, **k), (2, 3), (3, 2, 4)),
    "transpose": (lambda *a, **k: nn.ConvTranspose1d(*a, 4, **k), (2, 3), (2, 3, 4)),
    "embedding": (nn.Embedding, (5, 3), (5, 3)),
    "padded": (lambda *a, **k: nn.Embedding(*a, padding_idx=1, **k), (5, 3), (5, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_begins_with_an_array(name, graph):
    make, sizes, shape = LAYERS[name]
    array = np.arange(np.prod(shape), dtype=float).reshape(shape)
    for given in (array, array.tolist(), gf.asarray(array), array.astype("float16")):
        layer = make(*sizes, weight_init=given)
        assert layer.weight.dtype is gf.float32
        with gf.Session(graph) as session:
            np.testing.assert_array_equal(session[layer.weight], array)
    with pytest.raises(gf.ShapeError, match="but the initial value is float32"):
        make(*sizes, weight_init=array[:1])


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (0, "write weight_init=gf.nn.init.zeros"),
        (0.0, "write weight_init=gf.nn.init.zeros"),
        (1, "write weight_init=gf.nn.init.ones"),
        (np.float64(0.5), "write weight_init=gf.nn.init.constant(value=0.5)"),
        ("zeros", "write weight_init=gf.nn.init.zeros"),
        ("he_norml", 'did you mean "he_normal"?'),
    ],
)
@pytest.mark.parametrize("name", LAYERS)
def test_numbers_and_names_are_no_initial_weights(name, given, fix, graph):
    make, sizes, _ = LAYERS[name]
    with pytest.raises(gf.ArgumentError, match="is neither an initialiser nor an array") as caught:
        make(*sizes, weight_init=given)
    assert caught.value.fix == fix


def test_a_bias_of_0_is_not_taken_for_none(graph):
    for make in (lambda **k: nn.Linear(2, 3, **k), lambda **k: nn.Conv2d(2, 3, 3, **k)):
        with pytest.raises(gf.ArgumentError, match="bias_init=0 is neither"):
            make(bias_init=0)
        layer = make(bias_init=np.zeros(3))
        with gf.Session(graph) as session:
            assert not session[layer.bias].any()
