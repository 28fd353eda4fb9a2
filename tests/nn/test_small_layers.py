"""Padding layers, `Unflatten`, `Bilinear`, `DropPath` and `SqueezeExcite`, beside PyTorch's."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from tests.support.torch_layers import as_torch, compare, torch


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


def run(tensors, feeds=None):
    with gf.Session(gf.current_graph()) as session:
        return session.run(tensors, feeds or {})


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Zero", "Constant", "Reflection", "Replication", "Circular"])
def test_padding(rng, kind, rank):
    name = f"{kind}Pad{rank}d"
    pairs = ((2, 1), (0, 2), (1, 3))[:rank]
    value = [0.5] if kind == "Constant" else []
    # PyTorch's numbers begin with the last dim.
    theirs = getattr(torch.nn, name)(tuple(np.ravel(pairs[::-1])), *value)
    x = rng.standard_normal((2, 3, 4, 5, 6)[: rank + 2], np.float32)
    compare(getattr(nn, name)(pairs, *value), theirs, x)
    theirs = getattr(torch.nn, name)(2, *value)
    inputs = gf.placeholder(("batch", 3, *"hwd"[:rank]), name="inputs")
    y = getattr(nn, name)(2, *value)(inputs)
    np.testing.assert_array_equal(run(y, {inputs: x}), theirs(as_torch(x)).numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64"])
def test_padding_of_other_types(dtype):
    x = gf.astype(gf.asarray([[[1, 2, 3]]]), dtype)
    y = [nn.ReflectionPad1d((2, 0))(x), nn.ConstantPad1d((0, 1), 7)(x)]
    assert all(t.dtype.name == dtype for t in y)
    got = run([gf.astype(t, gf.float32) for t in y])
    np.testing.assert_array_equal(np.ravel(got[0]), [3, 2, 1, 2, 3])
    np.testing.assert_array_equal(np.ravel(got[1]), [1, 2, 3, 7])


def test_padding_in_a_model_and_its_text():
    model = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3), nn.ConstantPad1d(1, 0.5))
    assert model[0](gf.placeholder(("batch", 3, "h", "w"))).ndim == 4
    text = repr(model)
    assert "ReflectionPad2d(((1, 1), (1, 1)))" in text
    assert "ConstantPad1d((1, 1), value=0.5)" in text


def test_unflatten(rng):
    x = gf.placeholder(("batch", 12, "time"), name="x")
    layers = [nn.Unflatten(1, (3, -1)), nn.Unflatten(-2, [2, 6]), nn.Unflatten(1, (12, 1))]
    y = [layer(x) for layer in layers]
    assert y[0].shape == (x.shape[0], 3, 4, x.shape[2])
    assert repr(layers[0]) == "Unflatten(axis=1, sizes=(3, -1))"
    data = rng.standard_normal((2, 12, 5), np.float32)
    got = run([*y, nn.Flatten(1, 2)(y[0])], {x: data})
    for found, sizes in zip(got, [(3, 4), (2, 6), (12, 1)], strict=False):
        expected = torch.nn.Unflatten(1, sizes)(as_torch(data)).numpy()
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(got[-1], data)


@pytest.mark.parametrize("bias", [True, False])
def test_bilinear(rng, bias):
    ours, theirs = nn.Bilinear(3, 4, 5, bias), torch.nn.Bilinear(3, 4, 5, bias)
    x1, x2 = gf.placeholder(("batch", 2, 3), name="x1"), gf.placeholder(("batch", 2, 4), name="x2")
    y = ours(x1, x2)
    wanted = [x1, x2, *ours.parameters()]
    gradients = gf.grad(gf.sum(gf.sin(y)), wanted)
    data = [rng.standard_normal((6, 2, n), np.float32) for n in (3, 4)]
    with gf.Session(gf.current_graph()) as session:
        assert ours.load_state_dict(session, theirs.state_dict()) == gf.io.Mismatch()
        value, found = session.run([y, gradients], dict(zip((x1, x2), data, strict=True)))
    tensors = [as_torch(a).requires_grad_() for a in data]
    expected = theirs(*tensors)
    torch.sin(expected).sum().backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), 1e-5, 1e-6)
    for gradient, tensor in zip(found, [*tensors, *theirs.parameters()], strict=True):
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_bilinear_dtypes(rng, dtype):
    layer = nn.Bilinear(3, 4, 5, dtype=dtype)
    x1, x2 = (gf.astype(gf.asarray(rng.standard_normal((2, n))), dtype) for n in (3, 4))
    y = layer(x1, x2)
    assert y.dtype.name == dtype
    assert run(layer(x1[:0], x2[:0])).shape == (0, 5)


class TheirSqueezeExcite(torch.nn.Module):
    """torchvision's `SqueezeExcitation`."""

    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Conv2d(6, 2, 1)
        self.fc2 = torch.nn.Conv2d(2, 6, 1)

    def forward(self, x):
        scale = torch.nn.functional.adaptive_avg_pool2d(x, 1)
        scale = torch.nn.functional.silu(self.fc1(scale))
        return torch.nn.functional.hardsigmoid(self.fc2(scale)) * x


def test_squeeze_excite(rng):
    theirs = TheirSqueezeExcite()
    ours = nn.SqueezeExcite(6, 2, "silu", nn.Hardsigmoid())
    x = gf.placeholder(("batch", 6, "h", "w"), name="x")
    y = ours(x)
    assert y.shape == x.shape
    gradient = gf.grad(gf.sum(gf.sin(y)), [x])[0]
    data = rng.standard_normal((2, 6, 4, 5), np.float32)
    with gf.Session(gf.current_graph()) as session:
        assert ours.load_state_dict(session, theirs.state_dict()) == gf.io.Mismatch()
        value, gradient = session.run([y, gradient], {x: data})
        ours.load_state_dict(session, ours.state_dict(session))
        np.testing.assert_array_equal(session.run(y, {x: data}), value)
    tensor = as_torch(data).requires_grad_()
    expected = theirs(tensor)
    torch.sin(expected).sum().backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), 1e-4, 1e-5)
    assert "6, activation=silu, gate=Hardsigmoid" in repr(ours)
    assert nn.SqueezeExcite(6, 2)(gf.placeholder(("n", 6, "time"))).ndim == 3


def test_drop_path():
    x = gf.placeholder(("batch", 2, 3), name="x")
    drop = nn.DropPath(0.25)
    trained, kept = drop(x), drop(x, training=False)
    gradient = gf.grad(gf.sum(trained), [x])[0]
    data = np.ones((4000, 2, 3), np.float32)
    trained, kept, gradient = run([trained, kept, gradient], {x: data})
    np.testing.assert_array_equal(kept, data)
    rows = trained.reshape(4000, 6)
    np.testing.assert_array_equal(rows, np.repeat(rows[:, :1], 6, 1))  # whole examples
    np.testing.assert_allclose(np.unique(rows), [0, 1 / 0.75], 1e-6)
    np.testing.assert_allclose(rows.mean(), 1, 0.05)
    np.testing.assert_allclose(gradient, trained, 1e-6)
    assert drop.eval()(x) is x
    assert nn.DropPath(0.0)(x) is x


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_drop_path_in_narrow_types(dtype):
    y = nn.DropPath(0.5)(gf.ones((50, 2), dtype=dtype))
    assert y.dtype.name == dtype
    assert set(np.unique(run(gf.astype(y, gf.float32)))) == {0.0, 2.0}


def test_mistakes():
    x = gf.ones((2, 3, 4))
    bilinear, squeeze = nn.Bilinear(3, 4, 5), nn.SqueezeExcite(6, 2)
    cases = [
        (lambda: nn.ZeroPad2d((1, 2, 3, 4)), "write padding=((3, 4), (1, 2)): here the last dim"),
        (lambda: nn.ZeroPad3d((1, 2)), "pairs: ((1, 1), (2, 2), (3, 3))"),
        (lambda: nn.ReflectionPad1d((1, 2, 3)), "give one number, or a pair: (1, 2)"),
        (lambda: nn.ReflectionPad1d(1.5), "give one number, or a pair: (1, 2)"),
        (lambda: nn.ZeroPad2d("same"), "give one number, or pairs: ((1, 1), (2, 2))"),
        (lambda: nn.ZeroPad2d(-1), "write a slice to take away"),
        (lambda: nn.ZeroPad2d(1)(x), "x[None] adds a dim for the batch"),
        (lambda: nn.ReflectionPad1d(1)(gf.ones((1, 1, 0))), 'use mode="constant"'),
        (lambda: nn.Unflatten(2, (3, 2))(x), ""),
        (lambda: nn.Unflatten(3, (2, 2))(x), ""),
        (lambda: nn.Bilinear(3, 0, 5), "use in2_features=1"),
        (lambda: bilinear(gf.ones((2, 4)), gf.ones((2, 4))), "use in1_features=4"),
        (lambda: bilinear(gf.ones((2, 3)), gf.placeholder((2, "d"))), "gf.assert_shape(x2, (None"),
        (lambda: nn.SqueezeExcite(6, 0), "use squeeze_channels=1"),
        (lambda: nn.SqueezeExcite(6, 2, gate=nn.Sigmoid), "make one: gate=Sigmoid()"),
        (lambda: nn.SqueezeExcite(6, 2, "tanhh"), '"relu", "silu"'),
        (lambda: squeeze(gf.ones((2, 5, 4))), "use channels=5"),
        (lambda: squeeze(gf.ones((2, 6))), "gf.expand_dims"),
        (lambda: nn.DropPath(1.0), "p"),
        (lambda: nn.DropPath()(gf.asarray(1.0)), "x[None] is a batch of one"),
    ]
    for call, fix in cases:
        with pytest.raises((gf.ArgumentError, gf.ShapeError, gf.AxisError)) as caught:
            call()
        assert fix in caught.value.fix, caught.value
        assert caught.value.fix
