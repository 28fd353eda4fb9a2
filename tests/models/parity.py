"""A model beside PyTorch's with the same weights."""

import numpy as np

import graphfw as gf


def images(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compare(make, theirs, *inputs, folder, rtol=1e-5):
    """Give a model PyTorch's weights by a file, and see that both compute the same."""
    import torch

    randomise(theirs)
    torch.save(theirs.state_dict(), folder / "weights.pt")
    with gf.Graph() as g:
        own = make()
        fed = [gf.placeholder(x.shape, gf.float32) for x in inputs]
        y = own(*fed, training=False)
    with gf.Session(g) as session:
        assert own.load_pytorch(session, folder / "weights.pt") == gf.io.Mismatch()
        found = session.run(y, dict(zip(fed, inputs, strict=True)))
        own.save_pytorch(session, folder / "back.safetensors")
    with torch.no_grad():
        expected = theirs.eval()(*map(torch.from_numpy, inputs)).numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol, atol=rtol * np.abs(expected).max())
    back = gf.io.read_pytorch(folder / "back.safetensors")
    state = theirs.state_dict()
    assert back.keys() == state.keys()
    for name, array in back.items():
        if not name.endswith("num_batches_tracked"):  # which graphfw does not keep
            np.testing.assert_array_equal(array, state[name].numpy(), name)


def randomise(module, seed=0):
    """Give norms weights and statistics, and all biases values, for mistakes to show."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point() and tensor.ndim == 1:
                drawn = torch.rand(tensor.shape, generator=generator)
                tensor.copy_(drawn - 0.5 if name.endswith(("bias", "mean")) else drawn + 0.5)
