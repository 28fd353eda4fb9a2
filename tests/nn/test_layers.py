"""Layers against PyTorch's, and what they say of inputs that don't fit.

Long: every layer is here.
"""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.ops import losses

torch = pytest.importorskip("torch")


def as_torch(array):
    return torch.tensor(np.array(array))


def set_weights(session, layer, theirs):
    """Copy weights to a PyTorch layer; matrices of Linear are the other way round there."""
    with torch.no_grad():
        for name, variable in layer.named_variables():
            array = session[variable]
            target = dict([*theirs.named_parameters(), *theirs.named_buffers()])[name]
            target.copy_(as_torch(array.T if isinstance(theirs, torch.nn.Linear) else array))


def compare(layer, theirs, x, *, grads=True, tolerance=1e-5):
    """Compare results, and the gradients of a weighted sum, with PyTorch's layer."""
    g = gf.current_graph()
    data = gf.placeholder(x.shape, x.dtype, name=f"x{len(g.nodes)}")
    y = layer(data)
    weights = np.linspace(-1, 1, num=int(np.prod(y.shape))).reshape(y.shape).astype(x.dtype)
    wanted = [data, *layer.parameters()] if grads else []
    got = gf.grad(gf.sum(y * weights), wanted) if grads else []
    with gf.Session(g, seed=5) as session:
        set_weights(session, layer, theirs)
        value, gradients = session.run([y, got], {data: x})
    their_x = as_torch(x).requires_grad_(grads)
    expected = theirs(their_x)
    np.testing.assert_allclose(value, expected.detach().numpy(), tolerance, tolerance)
    if not grads:
        return
    (expected * as_torch(weights)).sum().backward()
    np.testing.assert_allclose(gradients[0], their_x.grad.numpy(), tolerance, tolerance)
    theirs_by_name = dict(theirs.named_parameters())
    for (name, _), gradient in zip(layer.named_parameters(), gradients[1:], strict=True):
        other = theirs_by_name[name].grad.numpy()
        other = other.T if isinstance(theirs, torch.nn.Linear) else other
        np.testing.assert_allclose(gradient, other, tolerance, tolerance, err_msg=name)


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
        (lambda: nn.Dropout(20), "Dropout: rate=20 must be at least 0 and below 1"),
        (lambda: nn.BatchNorm(3, momentum=0), "momentum=0 must be above 0 and at most 1"),
        (lambda: nn.GroupNorm(2, 3), "channels=3 is no multiple of groups=2"),
        (lambda: nn.LayerNorm(()), r"features=\(\) has no dims"),
        (lambda: nn.LayerNorm("8"), "features='8' is no int"),
        (lambda: nn.MultiHeadAttention(10, 3), "num_heads=3(.*\n)+.*use embed_dim=9,"),
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


# Embedding.


@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_embedding(rng, graph, padding_idx):
    layer = nn.Embedding(7, 3, padding_idx)
    theirs = torch.nn.Embedding(7, 3, padding_idx)
    indices = gf.placeholder((2, 5), gf.int64, name="i")
    rows = layer(indices)
    weights = rng.standard_normal((2, 5, 3)).astype(np.float32)
    gradient = gf.grad(gf.sum(rows * weights), layer.weight)
    places = rng.integers(0, 7, (2, 5))
    places[0, :2] = 2, 6
    with gf.Session(graph) as session:
        table = session[layer.weight]
        set_weights(session, layer, theirs)
        got, got_gradient = session.run([rows, gradient], {indices: places})
    expected = theirs(as_torch(places))
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


# Normalisation.


@pytest.mark.parametrize("features", [6, (6,), (4, 6)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(rng, features, affine):
    x = rng.standard_normal((3, 4, 6)).astype(np.float32) * 3 + 1
    theirs = torch.nn.LayerNorm(features, elementwise_affine=affine)
    compare(nn.LayerNorm(features, affine=affine), theirs, x)


def test_layer_norm_without_bias(rng):
    x = rng.standard_normal((3, 6)).astype(np.float32)
    compare(nn.LayerNorm(6, bias=False), torch.nn.LayerNorm(6, bias=False), x)


def test_rms_norm(rng):
    x = rng.standard_normal((3, 6)).astype(np.float32)
    compare(nn.RMSNorm(6, eps=1e-3), torch.nn.RMSNorm(6, eps=1e-3), x)


def test_group_norm(rng):
    x = rng.standard_normal((2, 6, 4, 3)).astype(np.float32)
    compare(nn.GroupNorm(3, 6, axis=1), torch.nn.GroupNorm(3, 6), x)


def test_norms_of_wrong_size():
    x = gf.placeholder(("batch", 5, 7))
    with pytest.raises(gf.ShapeError) as caught:
        nn.LayerNorm(6)(x)
    assert caught.value.fix == "LayerNorm(6) receives features of size 7: use LayerNorm(7)"
    with pytest.raises(gf.ShapeError) as caught:
        nn.RMSNorm((4, 7))(x)
    text = "RMSNorm((4, 7)) receives features of size (5, 7): use RMSNorm((5, 7))"
    assert caught.value.fix == text
    with pytest.raises(gf.ShapeError, match="BatchNorm: x has 7 channels at axis -1,") as caught:
        nn.BatchNorm(5)(x)
    assert caught.value.fix == "where the channels are in dim 1, say axis=1"
    with pytest.raises(gf.ShapeError, match="GroupNorm: x has 7 channels") as caught:
        nn.GroupNorm(1, 6)(x)
    assert caught.value.fix == "use channels=7"
    with pytest.raises(gf.AxisError):
        nn.BatchNorm(5, axis=3)(x)


@pytest.mark.parametrize(("shape", "axis"), [((6, 5), -1), ((2, 5, 4, 3), 1), ((2, 4, 5), -1)])
def test_batch_norm_training(rng, graph, shape, axis):
    layer = nn.BatchNorm(5, axis=axis, momentum=0.3)
    dims = ("batch", *shape[1:])
    x = gf.placeholder(dims, name="x")
    y = layer(x)
    weights = rng.standard_normal(shape[1:]).astype(np.float32)
    loss = gf.sum(y * weights) + gf.sum(y * y * y)
    train = gf.optim.SGD(0.01).minimize(loss)
    gradient = gf.grad(loss, x)
    tested = layer.eval()(x)

    kind = torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d
    theirs = kind(5, momentum=0.3)
    optimiser = torch.optim.SGD(theirs.parameters(), 0.01)

    def moved(array):
        return np.moveaxis(array, axis, 1) if len(shape) > 2 else array

    with gf.Session(graph) as session:
        for _ in range(3):
            data = rng.standard_normal(shape).astype(np.float32) * 2 + 3
            their_x = as_torch(moved(data)).requires_grad_()
            optimiser.zero_grad()
            out = theirs(their_x)
            their_weights = as_torch(moved(np.broadcast_to(weights, shape)))
            ((out * their_weights).sum() + (out**3).sum()).backward()
            optimiser.step()
            got, got_gradient, _ = session.run([y, gradient, train], {x: data})
            np.testing.assert_allclose(moved(got), out.detach().numpy(), 1e-4, 1e-5)
            np.testing.assert_allclose(moved(got_gradient), their_x.grad.numpy(), 1e-3, 1e-3)
        for name, variable in layer.named_variables():
            expected = theirs.state_dict()[name].numpy()
            np.testing.assert_allclose(session[variable], expected, 1e-4, 1e-5, err_msg=name)
        theirs.eval()
        got = session.run(tested, {x: data})
        expected = theirs(as_torch(moved(data))).detach().numpy()
        np.testing.assert_allclose(moved(got), expected, 1e-4, 1e-5)


def test_batch_norm_called_twice_in_one_loss(rng, graph):
    layer = nn.BatchNorm(3)
    x, z = (gf.placeholder(("n", 3), name=name) for name in "xz")
    train = gf.optim.SGD(0.1).minimize(gf.sum(layer(x)) + gf.sum(layer(z) ** 2))
    theirs = torch.nn.BatchNorm1d(3)
    a, b = (rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2))
    with gf.Session(graph) as session:
        session.run(train, {x: a, z: b})
        theirs(as_torch(a)), theirs(as_torch(b))
        for variable, expected in (
            (layer.running_mean, theirs.running_mean),
            (layer.running_var, theirs.running_var),
        ):
            np.testing.assert_allclose(session[variable], expected.numpy(), 1e-5, 1e-6)


def test_batch_norm_of_another_branch_is_not_carried(graph):
    layer = nn.BatchNorm(3)
    x = gf.placeholder((4, 3), name="x")
    unused = gf.placeholder((4, 3), name="unused")
    loss = gf.sum(layer(x) ** 3)
    layer(unused)
    train = gf.optim.SGD(0.1).minimize(loss)
    with gf.Session(graph) as session:
        session.run(train, {x: np.eye(4, 3, dtype=np.float32)})
        np.testing.assert_allclose(session[layer.running_mean], [0.025] * 3)


def test_batch_norm_of_one_element(graph):
    with pytest.raises(gf.ShapeError, match="one element a channel has no variance") as caught:
        nn.BatchNorm(3)(gf.placeholder((1, 3)))
    assert caught.value.fix.startswith("call model.eval() first")
    layer = nn.BatchNorm(3)
    x = gf.placeholder(("n", 3), name="x")
    train = gf.optim.SGD(0.1).minimize(gf.sum(layer(x)))
    with gf.Session(graph) as session:
        session.run(train, {x: np.ones((1, 3), np.float32)})
        np.testing.assert_allclose(session[layer.running_var], [0.9] * 3)


def test_batch_norm_of_low_precision(rng, graph):
    layer = nn.BatchNorm(3, dtype=gf.bfloat16)
    y = layer(gf.placeholder((4, 3), gf.bfloat16))
    assert y.dtype is gf.bfloat16
    assert layer.weight.dtype is gf.bfloat16
    assert layer.running_var.dtype is gf.float32


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


# Attention.


def attention_pair(session, layer, **options):
    theirs = torch.nn.MultiheadAttention(
        layer.embed_dim, layer.num_heads, batch_first=True, kdim=layer.key_dim,
        vdim=layer.value_dim, **options,
    )  # fmt: skip
    state = {name: as_torch(a) for name, a in layer.state_dict(session).items()}
    parts = [state[f"{p}_proj.weight"].T for p in "qkv"]
    with torch.no_grad():
        if theirs.in_proj_weight is not None:
            theirs.in_proj_weight.copy_(torch.cat(parts))
        else:
            for p, part in zip("qkv", parts, strict=True):
                getattr(theirs, f"{p}_proj_weight").copy_(part)
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
    dropped = [layer(x, mask=masks.get(mask)) for _ in range(60)]
    mean = sum(dropped[1:], dropped[0]) / 60
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
    with pytest.raises(gf.ShapeError) as e:
        layer(gf.placeholder(("batch", 3, 9)))
    assert e.value.fix == "Linear(in_features=8) receives 9 features: use in_features=9"


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
