"""Layers that normalise against PyTorch's, and what they say of inputs that don't fit."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from tests.support.torch_layers import as_torch, compare, torch


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


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
        nn.BatchNorm(5, axis=-1)(x)
    assert caught.value.fix == "where the channels are in dim 1, say axis=1"
    with pytest.raises(gf.ShapeError, match="GroupNorm: x has 7 channels") as caught:
        nn.GroupNorm(1, 6, axis=-1)(x)
    assert caught.value.fix == "use channels=7"
    with pytest.raises(gf.AxisError):
        nn.BatchNorm(5, axis=3)(x)
    with pytest.raises(gf.ShapeError) as caught:
        nn.BatchNorm(7)(gf.placeholder(("batch", "width")))
    assert caught.value.fix == "say gf.assert_shape(x, (None, 7))"


@pytest.mark.parametrize("layer", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_channels_in_dim_1_of_wrong_size(layer):
    with pytest.raises(gf.ShapeError, match="has 4 channels at axis 1, not 6") as caught:
        layer(6)(gf.ones((2, 4, 3)))
    assert caught.value.fix == "use num_features=4"
    with pytest.raises(gf.ShapeError) as caught:
        layer(3)(gf.ones((2, 4, 3)))
    assert caught.value.fix == "move the channels to dim 1: gf.moveaxis(x, 2, 1)"
    with pytest.raises(gf.ArgumentError, match=r"Norm1d: num_features=0 must be 1 or more"):
        layer(0)


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


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_called_twice_in_one_loss(rng, graph, momentum):
    layer = nn.BatchNorm(3, momentum=momentum, affine=False)
    x, z = (gf.placeholder(("n", 3), name=name) for name in "xz")
    gain = gf.Variable(1.0, name="gain")
    train = gf.optim.SGD(0.1).minimize(gf.sum(layer(x) * gain) + gf.sum(layer(z) ** 2))
    theirs = torch.nn.BatchNorm1d(3, momentum=momentum, affine=False)
    with gf.Session(graph) as session:
        for _ in range(2):
            a, b = (rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2))
            session.run(train, {x: a, z: b})
            theirs(as_torch(a)), theirs(as_torch(b))
        for name, variable in layer.named_variables():
            expected = theirs.state_dict()[name].numpy()
            np.testing.assert_allclose(session[variable], expected, 1e-5, 1e-6, err_msg=name)


def test_means_over_all_batches_go_on_from_a_checkpoint(rng, graph, tmp_path):
    layer = nn.BatchNorm(3, momentum=None)
    x = gf.placeholder(("n", 3), name="x")
    train = gf.optim.SGD(0.1).minimize(gf.sum(layer(x) ** 3))
    batches = [rng.standard_normal((n, 3)).astype(np.float32) for n in (4, 7, 5)]
    with gf.Session(graph) as session:
        for batch in batches[:2]:
            session.run(train, {x: batch})
        session.save(tmp_path / "kept")
    with gf.Session(graph, seed=1) as session:
        session.restore(tmp_path / "kept")
        session.run(train, {x: batches[2]})
        assert session[layer.num_batches_tracked] == 3
        for variable, of in (
            (layer.running_mean, np.mean),
            (layer.running_var, lambda b, axis: b.var(axis, ddof=1)),
        ):
            wanted = np.mean([of(b, axis=0) for b in batches], axis=0)
            np.testing.assert_allclose(session[variable], wanted, 1e-5)


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
    assert caught.value.fix.startswith("evaluate by model(x, training=False)")
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


@pytest.mark.parametrize(
    "made", [lambda **axis: nn.BatchNorm(16, **axis), lambda **axis: nn.GroupNorm(4, 16, **axis)]
)
@pytest.mark.parametrize("shape", [("batch", 16, 8, 16), ("batch", "time", 16)])
def test_the_axis_of_many_dims_is_not_guessed(made, shape):
    with gf.Graph():
        x = gf.placeholder(shape, name="x")
        layer = made()
        name = type(layer).__name__
        with pytest.raises(gf.ShapeError) as caught:
            layer(x)
        assert caught.value.summary == (
            f"{name}: x has {len(shape)} dims, and the axis of its channels is not given"
        )
        assert caught.value.fix == (
            f"write {name}(…, axis=1) for [N, C, *S], axis=-1 for [N, *S, C]"
        )
        assert made(axis=-1)(x).shape == x.shape
        assert layer(gf.placeholder(("batch", 16))).shape[1] == 16
