"""Layers compared with PyTorch's."""

import numpy as np
import pytest

import graphfw as gf

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
