"""`WeightNorm` and `SpectralNorm` against PyTorch's, in training and evaluation."""

import copy
import pickle

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.nn import states
from tests.support.torch_layers import as_torch, torch

parametrizations = torch.nn.utils.parametrizations


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


KINDS = {
    "linear": (lambda lib: lib.Linear(4, 3), (5, 4)),
    "conv": (lambda lib: lib.Conv2d(4, 3, 2), (2, 4, 5, 5)),
    "transposed": (lambda lib: lib.ConvTranspose1d(4, 3, 2), (2, 4, 5)),
}
LAYERS = pytest.mark.parametrize("kind", KINDS)


def compare(ours, theirs, data):
    """Compare results and gradients, in evaluation."""
    x = gf.placeholder((None, *data.shape[1:]), name="x")
    y = ours(x, training=False)
    parameters = dict(ours.named_parameters())
    gradients = gf.grad(gf.sum(gf.sin(y)), [x, *parameters.values()])
    with gf.Session(gf.current_graph()) as session:
        assert ours.load_state_dict(session, theirs.state_dict()) == gf.io.Mismatch()
        value, found = session.run([y, gradients], {x: data})
    tensor = as_torch(data).requires_grad_()
    expected = theirs.eval()(tensor)
    torch.sin(expected).sum().backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(found[0], tensor.grad.numpy(), 1e-4, 1e-5)
    wanted = states.from_torch(ours, {n: p.grad for n, p in theirs.named_parameters()})
    for name, gradient in zip(parameters, found[1:], strict=True):
        np.testing.assert_allclose(gradient, wanted[name], 1e-4, 1e-5, err_msg=name)


@LAYERS
def test_weight_norm(rng, kind):
    make, shape = KINDS[kind]
    theirs = parametrizations.weight_norm(make(torch.nn))
    with torch.no_grad():
        theirs.parametrizations.weight.original0.mul_(1.5)
    compare(nn.WeightNorm(make(nn)), theirs, rng.standard_normal(shape, np.float32))


@LAYERS
def test_spectral_norm(rng, kind):
    make, shape = KINDS[kind]
    theirs = parametrizations.spectral_norm(make(torch.nn))
    compare(nn.SpectralNorm(make(nn)), theirs, rng.standard_normal(shape, np.float32))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_names_of_earlier_versions_of_pytorch(rng):
    data = rng.standard_normal((5, 4), np.float32)
    for wrap, own in (("weight_norm", nn.WeightNorm), ("spectral_norm", nn.SpectralNorm)):
        theirs = getattr(torch.nn.utils, wrap)(torch.nn.Linear(4, 3))
        ours = own(nn.Linear(4, 3))
        y = ours(data, training=False)
        with gf.Session(gf.current_graph()) as session:
            assert ours.load_state_dict(session, theirs.state_dict()) == gf.io.Mismatch()
            value = session.run(y)
        expected = theirs.eval()(as_torch(data)).detach().numpy()
        np.testing.assert_allclose(value, expected, 1e-5, 1e-6)


def test_the_power_iteration_goes_on_in_training(rng):
    theirs = parametrizations.spectral_norm(torch.nn.Linear(4, 3))
    ours = nn.SpectralNorm(nn.Linear(4, 3))
    data = rng.standard_normal((5, 4), np.float32)
    loss = gf.sum(gf.sin(ours(data)))
    train = gf.optim.SGD(0.1).minimize(loss)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    with gf.Session(gf.current_graph()) as session:
        ours.load_state_dict(session, theirs.state_dict())
        for _ in range(3):
            value = session.run([loss, train])[0]
            expected = torch.sin(theirs(as_torch(data))).sum()
            np.testing.assert_allclose(value, expected.item(), 1e-5, 1e-5)
            optimizer.zero_grad()
            expected.backward()
            optimizer.step()
        found = ours.state_dict(session)
    wanted = states.from_torch(ours, theirs.state_dict())
    assert wanted.keys() == found.keys()
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], 1e-4, 1e-5, err_msg=name)


def test_arrays_with_names_of_pytorch_need_a_format():
    theirs = parametrizations.weight_norm(torch.nn.Linear(4, 4))
    ours = nn.Sequential(nn.WeightNorm(nn.Linear(4, 4)))
    state = {f"0.{n}": a.numpy() for n, a in theirs.state_dict().items()}
    with gf.Session(gf.current_graph()) as session:
        with pytest.raises(gf.CheckpointError) as caught:
            ours.load_state_dict(session, state)
        assert caught.value.fix.startswith('pass format="torch"')
        ours.load_state_dict(session, state, format="torch")


def test_initial_values(rng):
    """A weight norm begins as the layer does; a spectral norm near the singular value."""
    layers = [nn.WeightNorm(nn.Linear(4, 3)), nn.SpectralNorm(nn.Linear(4, 3))]
    array = np.ones((2, 1), np.float32)
    fixed = nn.WeightNorm(nn.Linear(2, 1, weight_init=array))
    copies = [copy.deepcopy(layer) for layer in layers]
    x = gf.asarray(np.eye(4, dtype=np.float32))
    outputs = [layer(x, training=False) for layer in (*layers, *copies)]
    with gf.Session(gf.current_graph(), seed=3) as session:
        got = session.run(outputs)
        states_of = [layer.state_dict(session) for layer in layers]
        np.testing.assert_allclose(session[fixed.scale], [np.sqrt(2)], 1e-6)
    weight, bias = states_of[0]["layer.weight"], states_of[0]["layer.bias"]
    np.testing.assert_allclose(got[0], weight + bias, 1e-5, 1e-6)
    weight, bias = states_of[1]["layer.weight"], states_of[1]["layer.bias"]
    expected = weight / np.linalg.norm(weight, 2) + bias
    np.testing.assert_allclose(got[1], expected, 0.02, 0.01)
    for first, second in zip(got[:2], got[2:], strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_wrapped_layer_is_pickled_and_named(graph):
    model = nn.Sequential(nn.WeightNorm(nn.Linear(4, 3)), nn.SpectralNorm(nn.Linear(3, 2)))
    y = model(gf.placeholder((2, 4), name="x"), training=False)
    assert [v.name for v in model[0].variables()] == [
        "sequential.0.scale",
        "sequential.0.layer.weight",
        "sequential.0.layer.bias",
    ]
    assert isinstance(model[0].layer.weight, gf.Variable)
    assert "flat_norms(InitialOf('sequential.0.layer.weight'))" in str(graph)
    assert [v.name for v in model[1].buffers()] == ["sequential.1.u", "sequential.1.v"]
    other, z = pickle.loads(pickle.dumps((graph, y)))
    feeds = {"x": np.ones((2, 4), np.float32)}
    with gf.Session(graph, seed=1) as one, gf.Session(other, seed=1) as two:
        np.testing.assert_array_equal(one.run(y, feeds), two.run(z, feeds))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(rng, dtype):
    for own in (nn.WeightNorm, nn.SpectralNorm):
        layer = own(nn.Linear(4, 3, dtype=dtype))
        y = layer(gf.astype(gf.asarray(rng.standard_normal((5, 4))), dtype))
        assert y.dtype.name == dtype
        with gf.Session(gf.current_graph()) as session:
            assert np.isfinite(session.run(gf.astype(y, gf.float32))).all()


def test_mistakes():
    linear = nn.Linear(4, 3)
    cases = [
        (lambda: nn.WeightNorm(nn.ReLU()), "has no variable named weight"),
        (lambda: nn.SpectralNorm(nn.LayerNorm(3)), "the weight of LayerNorm has 1 dim"),
        (lambda: nn.WeightNorm(nn.Linear), "is no Module"),
        (lambda: nn.SpectralNorm(linear, 0), "iterations=0 must be 1 or more"),
        (lambda: nn.WeightNorm(linear, 2), "axis"),
    ]
    for call, message in cases:
        with pytest.raises((gf.ArgumentError, gf.AxisError)) as caught:
            call()
        assert message in caught.value.summary
        assert caught.value.fix
    wrapped = nn.WeightNorm(linear)
    with pytest.raises(gf.ShapeError, match="matmul"):
        wrapped(gf.ones((2, 5)))
    assert isinstance(linear.weight, gf.Variable)
