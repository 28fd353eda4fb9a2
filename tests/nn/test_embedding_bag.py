"""`EmbeddingBag` against PyTorch's, in both forms, and its mistakes."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from tests.support.torch_layers import as_torch, torch


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


MODES = pytest.mark.parametrize("mode", ["sum", "mean", "max"])
PADDED = pytest.mark.parametrize("padding_idx", [None, 1])


def compare(ours, theirs, inputs, feeds, *tensors, **options):
    y = ours(*inputs)
    weights = gf.cos(y)
    loss = gf.sum(y * gf.stop_gradient(weights))
    gradient = gf.grad(loss, [ours.weight])[0]
    with gf.Session(gf.current_graph()) as session:
        assert ours.load_state_dict(session, theirs.state_dict()) == gf.io.Mismatch()
        value, gradient = session.run([y, gradient], feeds)
    expected = theirs(*tensors, **options)
    np.testing.assert_allclose(value, expected.detach().numpy(), 1e-5, 1e-6)
    (expected * torch.cos(expected).detach()).sum().backward()
    np.testing.assert_allclose(gradient, theirs.weight.grad.numpy(), 1e-5, 1e-6)


@MODES
@PADDED
def test_bags_of_one_size(rng, mode, padding_idx):
    ours = nn.EmbeddingBag(6, 4, mode, padding_idx)
    theirs = torch.nn.EmbeddingBag(6, 4, mode=mode, padding_idx=padding_idx)
    ids = gf.placeholder(("bags", "words"), gf.int64, name="ids")
    words = rng.integers(0, 6, (5, 3))
    words[2] = 1
    compare(ours, theirs, [ids], {ids: words}, as_torch(words))


@MODES
@PADDED
def test_bags_that_begin_at_offsets(rng, mode, padding_idx):
    ours = nn.EmbeddingBag(6, 4, mode, padding_idx)
    theirs = torch.nn.EmbeddingBag(6, 4, mode=mode, padding_idx=padding_idx)
    ids = gf.placeholder(("words",), gf.int64, name="ids")
    offsets = gf.placeholder(("bags",), gf.int32, name="offsets")
    words, begins = rng.integers(0, 6, 9), np.array([0, 3, 3, 7, 9], np.int32)
    words[7:] = 1
    feeds = {ids: words, offsets: begins}
    compare(ours, theirs, [ids, offsets], feeds, as_torch(words), as_torch(begins.astype(int)))


@PADDED
def test_weights(rng, padding_idx):
    ours = nn.EmbeddingBag(6, 4, "sum", padding_idx)
    theirs = torch.nn.EmbeddingBag(6, 4, mode="sum", padding_idx=padding_idx)
    words, factors = rng.integers(0, 6, (5, 3)), rng.standard_normal((5, 3), np.float32)
    options = {"per_sample_weights": as_torch(factors)}
    compare(ours, theirs, [words, None, factors], {}, as_torch(words), **options)
    begins = np.array([0, 4])
    flat = nn.EmbeddingBag(6, 4, "sum", padding_idx)
    theirs.weight.grad = None
    options = {"per_sample_weights": as_torch(factors.ravel())}
    inputs = [words.ravel(), begins, factors.ravel()]
    tensors = as_torch(words.ravel()), as_torch(begins)
    compare(flat, theirs, inputs, {}, *tensors, **options)


@MODES
def test_empty_bags_are_zeros(mode):
    bag = nn.EmbeddingBag(6, 4, mode)
    ids = gf.placeholder(("bags", "words"), gf.int64, name="ids")
    y = bag(ids)
    with gf.Session(gf.current_graph()) as session:
        none = session.run(y, {ids: np.zeros((2, 0), np.int64)})
        np.testing.assert_array_equal(none, np.zeros((2, 4), np.float32))
        assert session.run(y, {ids: np.zeros((0, 3), np.int64)}).shape == (0, 4)


@MODES
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes_and_more_dims(rng, mode, dtype):
    bag, exact = nn.EmbeddingBag(6, 4, mode, dtype=dtype), nn.EmbeddingBag(6, 4, mode)
    words = rng.integers(0, 6, (2, 3, 5))
    y, wide = bag(words), exact(words)
    assert (y.shape, y.dtype.name) == ((2, 3, 4), dtype)
    with gf.Session(gf.current_graph()) as session:
        state = {n: a.astype(dtype) for n, a in exact.state_dict(session).items()}
        bag.load_state_dict(session, state)
        got, expected = session.run([gf.astype(y, gf.float32), wide])
    tolerance = 1e-6 if dtype == "float64" else 0.02
    np.testing.assert_allclose(got, expected, tolerance, tolerance)


def test_a_bag_under_vmap(rng):
    bag, words = nn.EmbeddingBag(6, 4, "max", 0), gf.asarray(rng.integers(0, 6, (3, 2, 5)))
    with gf.Session(gf.current_graph()) as session:
        got, expected = session.run([gf.vmap(bag)(words), bag(words)])
    np.testing.assert_array_equal(got, expected)


def test_mistakes():
    bag, mean = nn.EmbeddingBag(6, 4, "sum"), nn.EmbeddingBag(6, 4)
    assert "6 -> 4, mode=mean" in repr(mean)
    ids = gf.asarray([[1, 2], [3, 4]])
    cases = [
        (lambda: nn.EmbeddingBag(6, 4, "min"), 'use one of "mean", "sum", "max"'),
        (lambda: nn.EmbeddingBag(0, 4), "use num_embeddings=1"),
        (lambda: nn.EmbeddingBag(6, 4, padding_idx=6), "use 0 to 5"),
        (lambda: bag(gf.asarray(1)), "write indices[None]: one bag"),
        (lambda: bag(ids, [0]), "with offsets they have one: [M]"),
        (lambda: bag(ids[0], [[0]]), "give the position where each bag begins: [bags]"),
        (lambda: bag(ids[0], [0.0]), "convert with gf.astype(offsets, gf.int64)"),
        (lambda: bag(ids, weights=[1, 2]), "use floats, or convert with gf.astype"),
        (lambda: bag(ids, weights=[1.0, 2.0, 3.0]), "give one for each index"),
        (lambda: mean(ids, weights=[1.0, 2.0]), 'use mode="sum"'),
        (lambda: bag([1.0]), "convert with gf.astype(index, gf.int64)"),
    ]
    for call, fix in cases:
        with pytest.raises((gf.ArgumentError, gf.ShapeError, gf.DTypeError)) as caught:
            call()
        assert fix in caught.value.fix, caught.value
        assert "EmbeddingBag" in caught.value.summary
    words, begins = gf.placeholder((None,), gf.int64), gf.placeholder((None,), gf.int64)
    y = bag(words, begins)
    with gf.Session(gf.current_graph()) as session:
        for index in (6, -1):
            with pytest.raises(gf.ExecutionError, match=f"index {index} is out of range"):
                session.run(y, {words: [index], begins: [0]})
        with pytest.raises(gf.ExecutionError, match="a segment id is -1"):
            session.run(y, {words: [1, 2], begins: [1]})
