"""Fourier transforms in saved models: complex numbers are pairs of reals there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graphfw as gf
from tests.onnx.runtime import started


def compare(make, shape, sizes, path, rng, opset=21, rtol=1e-4):
    """Save what a function makes of an input, and compare with ONNX Runtime and what is loaded."""
    with gf.Graph() as graph:
        x = gf.placeholder(shape, name="x")
        made = make(x)
        fetches = list(made) if isinstance(made, tuple) else [made]
    gf.onnx.save(graph, fetches, path, opset=opset)
    feeds = {"x": rng.normal(size=sizes).astype(np.float32)}
    loaded = gf.onnx.load(path)
    with gf.Session(graph) as session, gf.Session(loaded) as again:
        wanted = session.run(fetches, feeds)
        values = again.run(list(loaded.outputs), feeds)
    for many in (values, started(path).run(None, feeds)):
        for value, reference in zip(many, wanted, strict=True):
            assert (value.dtype, value.shape) == (reference.dtype, reference.shape)
            np.testing.assert_allclose(value, reference, rtol, rtol)


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("opset", [17, 19, 20, 21])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize(("axis", "size"), [(0, 6), (1, 7), (-1, 1), (-1, 8)])
def test_there_and_back(opset, norm, axis, size, rng, tmp_path):
    sizes = [3, 3, 3]
    sizes[axis] = size

    def make(x):
        there = gf.fft.rfft(x, axis=axis, norm=norm)
        whole = gf.fft.fft(x, axis=axis, norm=norm)
        back = gf.fft.irfft(there * 2.0, n=size, axis=axis, norm=norm)
        again = gf.real(gf.fft.ifft(whole * (1 - 2j), axis=axis, norm=norm))
        return gf.abs(there), gf.imag(whole), back, again

    compare(make, sizes, sizes, tmp_path / "m.onnx", rng, opset)


def test_one_dim(rng, tmp_path):
    compare(lambda x: gf.abs(gf.fft.fft(x)), (5,), (5,), tmp_path / "m.onnx", rng)


def test_symbolic_sizes_movement_and_sums(rng, tmp_path):
    def make(x):
        z = gf.fft.fftn(x, axes=(1, 2))
        z = gf.concat([z, gf.conj(z[:, ::2])], axis=1).mT
        z = gf.where(gf.real(z) > 0, z, -z) - gf.sum(z, axis=0)
        return gf.real(z * z), gf.imag(gf.reshape(z, (-1,)))

    path = tmp_path / "m.onnx"
    for sizes in ((2, 5, 4), (1, 3, 7)):
        compare(make, ("n", "h", "w"), sizes, path, rng, rtol=1e-3)


def test_movement(rng, tmp_path):
    def make(x):
        z = gf.fft.fft(x, axis=1)
        moved = gf.roll(gf.flip(gf.take(z, [2, 0, 2], axis=1), axis=0), 1, axis=1)
        put = gf.index_set(moved, (slice(None), 1), 1 + 2j)
        added = gf.index_add(put, (slice(1, 3),), z[1:3, :3])
        wide = gf.broadcast_to(added[:, None, :1], (4, 2, 1))
        return gf.abs(added), gf.imag(gf.sum(wide, axis=1)), gf.real(gf.stack([z, gf.conj(z)]))

    compare(make, (4, 5), (4, 5), tmp_path / "m.onnx", rng)


def test_lengths_and_quotients(rng, tmp_path):
    def make(x):
        n = x.shape[1]
        z = gf.fft.fft(x, n=2 * n) / (3 + 4j)
        back = gf.fft.irfft(gf.fft.rfft(x, n=n + 3), n=n)
        return gf.real(z / (gf.fft.fft(x, n=2 * n) + 9)), back, gf.abs(gf.fft.rfft(x, n=2))

    for size in (4, 5):
        compare(make, ("m", "n"), (2, size), tmp_path / "m.onnx", rng)


def test_a_filter_in_the_frequency_domain_and_its_gradient(rng, tmp_path):
    kernel = rng.normal(size=8).astype(np.float32)

    def make(x):
        y = gf.fft.irfft(gf.fft.rfft(x) * gf.fft.rfft(kernel), n=8)
        return y, gf.grad(gf.sum(y**2), x)

    compare(make, ("n", 8), (3, 8), tmp_path / "m.onnx", rng)
    kinds = [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node]
    assert kinds.count("DFT") >= 4


def test_complex_inputs_and_outputs_are_refused(tmp_path):
    with gf.Graph() as graph:
        x = gf.placeholder((4,), name="x")
        z = gf.placeholder((4,), gf.complex64, name="z")
        ends = [gf.fft.fft(x), gf.real(z), gf.real(gf.exp(gf.fft.fft(x)))]
    for end in ends:
        with pytest.raises(gf.onnx.OnnxError, match="complex"):
            gf.onnx.save(graph, end, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
