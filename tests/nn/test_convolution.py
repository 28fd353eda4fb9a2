"""Layers of convolutional networks against PyTorch's, and what they say of what doesn't fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.errors import ArgumentError, ShapeError

torch = pytest.importorskip("torch")
tnn = torch.nn


def compare(
    make: Callable[[], nn.Module], theirs: Any, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Compare results, and all gradients of a weighted sum, with PyTorch's layer."""
    with gf.Graph() as graph:
        layer, x = make(), gf.placeholder(shape, name="x")
        y = layer(x)
        weights = rng.normal(size=y.shape).astype(np.float32)
        slopes = gf.grad(gf.sum(y * weights), [x, *layer.parameters()])
    array = rng.normal(size=shape).astype(np.float32)
    parameters = dict(theirs.named_parameters())
    with gf.Session(graph, seed=3) as session:
        for name, variable in layer.named_parameters():
            with torch.no_grad():
                parameters[name].copy_(torch.tensor(np.array(session[variable])))
        value, gradients = session.run([y, slopes], {x: array})
    leaf = torch.tensor(array, requires_grad=True)
    expected = theirs(leaf)
    np.testing.assert_allclose(value, expected.detach(), rtol=1e-4, atol=1e-4)
    names = [name for name, _ in layer.named_parameters()]
    wanted = torch.autograd.grad(
        (expected * torch.tensor(weights)).sum(), [leaf, *[parameters[n] for n in names]]
    )
    for gradient, other in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_conv(mode: str, rng: np.random.Generator) -> None:
    how: dict[str, Any] = {"stride": 2, "padding": (1, 2), "groups": 2, "padding_mode": mode}
    ours, theirs = nn.Conv2d, tnn.Conv2d(4, 6, (3, 2), **how)
    compare(lambda: ours(4, 6, (3, 2), **how), theirs, (2, 4, 7, 6), rng)
    how = {"padding": "same", "dilation": 2, "padding_mode": mode, "bias": False}
    compare(lambda: nn.Conv1d(4, 6, 3, **how), tnn.Conv1d(4, 6, 3, **how), (2, 4, 7), rng)


LAYERS = [
    ("Conv3d", (2, 4, (1, 2, 3), 1, 1), (2, 2, 3, 4, 3)),
    ("ConvTranspose1d", (4, 6, 3, 2, 1, 1, 2), (2, 4, 5)),
    ("ConvTranspose2d", (4, 6, (3, 2), 2, 1, 1, 2, False, 2), (2, 4, 3, 4)),
    ("ConvTranspose3d", (2, 3, 2), (1, 2, 2, 3, 1)),
    ("MaxPool1d", (2,), (2, 3, 7)),
    ("MaxPool2d", (3, 2, 1, 1, False, True), (2, 3, 8, 6)),
    ("MaxPool3d", ((1, 2, 2),), (1, 2, 3, 4, 4)),
    ("AvgPool1d", (2, 1, 1), (2, 3, 7)),
    ("AvgPool2d", (3, 2, 1, True, False), (2, 3, 8, 6)),
    ("AvgPool3d", (2, None, 0, False, True, 3), (1, 2, 4, 4, 5)),
    ("LPPool1d", (2, 3), (2, 3, 7)),
    ("LPPool2d", (2, (2, 3), 1), (2, 3, 5, 6)),
    ("LPPool3d", (2, 2), (1, 2, 4, 4, 5)),
    ("AdaptiveAvgPool1d", (3,), (2, 3, 7)),
    ("AdaptiveAvgPool2d", ((None, 3),), (2, 3, 4, 7)),
    ("AdaptiveAvgPool3d", (1,), (2, 3, 4, 2, 3)),
    ("AdaptiveMaxPool1d", (3,), (2, 3, 7)),
    ("AdaptiveMaxPool2d", ((2, 3),), (2, 3, 4, 7)),
    ("AdaptiveMaxPool3d", (2,), (2, 3, 4, 2, 3)),
    ("BatchNorm1d", (3,), (5, 3)),
    ("BatchNorm1d", (3, 1e-3, 0.2, False), (5, 3, 4)),
    ("BatchNorm2d", (3,), (2, 3, 4, 5)),
    ("BatchNorm3d", (3,), (2, 3, 2, 4, 3)),
    ("InstanceNorm1d", (3,), (2, 3, 5)),
    ("InstanceNorm2d", (3, 1e-2, 0.1, True), (2, 3, 4, 3)),
    ("InstanceNorm3d", (3, 1e-4), (2, 3, 2, 4, 3)),
    ("Upsample", ((5, 7),), (2, 3, 3, 4)),
    ("Upsample", (None, 2, "nearest-exact"), (2, 3, 4)),
    ("Upsample", (None, 2, "bilinear", True), (2, 3, 3, 4)),
    ("Upsample", (None, 1.5, "trilinear"), (1, 2, 2, 4, 2)),
    ("Upsample", (None, 1.3, "linear", True), (2, 3, 5)),
    ("Upsample", (None, (1.5, 0.7), "bilinear", False, True), (2, 3, 5, 4)),
    ("Upsample", (None, 1.7, "nearest", None, True), (2, 3, 5)),
    ("Upsample", ((5, 7), None, "bicubic"), (2, 3, 3, 4)),
    ("PixelShuffle", (2,), (2, 8, 3, 4)),
    ("PixelUnshuffle", (2,), (2, 3, 4, 6)),
    ("Unfold", (2, 1, 1, 2), (2, 3, 3, 4)),
    ("Fold", ((3, 4), 2, 1, 1, 2), (2, 12, 6)),
    ("Fold", (4, 2, 1, 1, (2, 1)), (2, 12, 15)),
    ("LocalResponseNorm", (2, 0.1, 0.5, 2.0), (2, 3, 3, 4)),
    ("Dropout2d", (0.0,), (2, 3, 3, 4)),
]


@pytest.mark.parametrize(
    ("name", "arguments", "shape"), LAYERS, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(LAYERS)]
)
def test_layers_take_pytorch_s_arguments(
    name: str, arguments: tuple[Any, ...], shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    theirs = getattr(tnn, name)(*arguments)
    compare(lambda: getattr(nn, name)(*arguments), theirs, shape, rng)


def test_instance_norm_with_weights(rng: np.random.Generator) -> None:
    theirs = tnn.InstanceNorm2d(3, affine=True)
    compare(lambda: nn.InstanceNorm2d(3, affine=True), theirs, (2, 3, 4, 5), rng)


def test_antialias(rng: np.random.Generator) -> None:
    x = rng.normal(size=(1, 2, 9, 7)).astype(np.float32)
    for mode in ("bilinear", "bicubic"):
        y = nn.Upsample((4, 3), mode=mode, antialias=True)(x)
        expected = tnn.functional.interpolate(torch.tensor(x), (4, 3), mode=mode, antialias=True)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_indices() -> None:
    _, indices = nn.MaxPool1d(2, return_indices=True)(np.array([[[1.0, 2.0, 3.0, 0.0]]]))
    assert indices.tolist() == [[[1, 2]]]
    _, indices = nn.AdaptiveMaxPool1d(1, return_indices=True)(np.array([[[1.0, 3.0, 3.0]]]))
    assert indices.tolist() == [[[1]]]


@pytest.mark.parametrize(
    ("rank", "how"), [(1, (2,)), (2, (3, 2, 1)), (3, ((1, 2, 2), None, (0, 1, 0)))]
)
def test_unpooling_takes_pytorch_s_arguments(
    rank: int, how: tuple[Any, ...], rng: np.random.Generator
) -> None:
    name, shape = f"MaxUnpool{rank}d", (2, 3, *(7, 8, 6)[:rank])
    x = rng.permutation(np.prod(shape)).reshape(shape).astype(np.float32)
    y, indices = getattr(tnn, f"MaxPool{rank}d")(*how, return_indices=True)(torch.tensor(x))
    mine = getattr(nn, name)(*how)(y.numpy(), indices.numpy(), output_size=x.shape)
    theirs = getattr(tnn, name)(*how)(y, indices, output_size=x.shape)
    np.testing.assert_array_equal(mine, theirs.numpy(), strict=True)
    assert repr(nn.MaxUnpool2d(2)) == "MaxUnpool2d((2, 2), stride=None, padding=0)"
    with pytest.raises(ShapeError, match=f"{name}"):
        getattr(nn, name)(*how)(np.ones((2, 3)), np.ones((2, 3), np.int64))


@pytest.mark.parametrize(
    ("make", "fan"),
    [
        (lambda: nn.Conv2d(8, 64, (3, 5), groups=2), 4 * 15),
        (lambda: nn.ConvTranspose1d(64, 8, 9, groups=2), 4 * 9),
    ],
)
def test_initial_weights(make: Callable[[], Any], fan: int) -> None:
    with gf.Graph() as graph:
        layer = make()
    with gf.Session(graph, seed=1) as session:
        for weight in (session[layer.weight], session[layer.bias]):
            assert np.abs(weight).max() <= fan**-0.5
        assert np.std(session[layer.weight]) == pytest.approx((3 * fan) ** -0.5, rel=0.1)


def test_options() -> None:
    with gf.Graph():
        layer = nn.Conv2d(2, 3, 1, dtype=gf.float64, weight_init=nn.init.ones, bias=False)
        assert layer.bias is None
        assert layer.weight.dtype is gf.float64
        y = layer(gf.ones((1, 2, 4, 4), dtype=gf.float64))
        assert y.shape == (1, 3, 4, 4)


@pytest.mark.parametrize("layer", [nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_whole_channels_are_dropped(layer: Any) -> None:
    rank = layer.rank
    with gf.Graph() as graph:
        module = layer(0.25)
        y, same = (
            module(gf.ones((40, 25, *[2] * rank))),
            module.eval()(gf.ones((1, 1, *[2] * rank))),
        )
    with gf.Session(graph, seed=2) as session:
        value, kept = session.run([y, same])
    flat = value.reshape(1000, -1)
    assert (flat == flat[:, :1]).all()
    assert set(np.unique(flat)) == {0.0, np.float32(1 / 0.75)}
    assert 0.18 < (flat[:, 0] == 0).mean() < 0.32
    assert (kept == 1).all()


def test_running_statistics_are_per_channel(rng: np.random.Generator) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 3, "h", "w"), name="x")
        layer = nn.BatchNorm2d(3)
        train = gf.optim.SGD(0.1).minimize(gf.sum(layer(x) ** 2))
    theirs, array = tnn.BatchNorm2d(3), rng.normal(2, 3, size=(4, 3, 5, 6)).astype(np.float32)
    theirs(torch.tensor(array))
    with gf.Session(graph) as session:
        session.run(train, {x: array})
        np.testing.assert_allclose(session[layer.running_mean], theirs.running_mean, rtol=1e-4)
        np.testing.assert_allclose(session[layer.running_var], theirs.running_var, rtol=1e-4)


RUNNING: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("BatchNorm1d", {"track_running_stats": False}, (4, 3)),
    ("BatchNorm1d", {"momentum": None}, (4, 3)),
    ("BatchNorm2d", {"momentum": None, "affine": False}, (2, 3, 4, 5)),
    ("BatchNorm3d", {"momentum": None, "track_running_stats": False}, (2, 3, 2, 4, 3)),
    ("InstanceNorm1d", {"track_running_stats": True, "momentum": 0.3}, (4, 3, 5)),
    ("InstanceNorm2d", {"affine": True, "track_running_stats": True}, (2, 3, 5, 4)),
    ("InstanceNorm3d", {"momentum": 1.0, "track_running_stats": True}, (2, 3, 2, 3, 4)),
]


@pytest.mark.parametrize(("name", "options", "shape"), RUNNING)
def test_what_running_statistics_become(
    name: str, options: dict[str, Any], shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    theirs = getattr(tnn, name)(3, **options)
    with gf.Graph() as graph:
        x = gf.placeholder(("n", *shape[1:]), name="x")
        layer = getattr(nn, name)(3, **options)
        gain = gf.Variable(np.float32(1), name="gain")
        # Nothing but the statistics is to change.
        train = gf.optim.SGD(0.1).minimize(0 * gf.sum(layer(x) * gain))
        tested = layer.eval()(x)
    with gf.Session(graph) as session:
        for _ in range(3):
            array = rng.normal(2, 3, size=shape).astype(np.float32)
            theirs(torch.tensor(array))
            session.run(train, {x: array})
        state = theirs.state_dict()
        for key, variable in layer.named_variables():
            np.testing.assert_allclose(session[variable], state[key], rtol=1e-4, err_msg=key)
        expected = theirs.eval()(torch.tensor(array)).detach()
        np.testing.assert_allclose(session.run(tested, {x: array}), expected, 1e-3, 1e-4)


def test_a_network_learns_on_images_of_any_size(rng: np.random.Generator) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 1, "h", "w"), name="x")
        labels = gf.placeholder(("n",), gf.int64, name="labels")
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding="same", groups=8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 2),
        )
        loss = nn.cross_entropy(model(x), labels)
        train = gf.optim.Adam(0.05).minimize(loss)

    def batch(size: int) -> tuple[np.ndarray, np.ndarray]:
        """Stripes along the one axis or the other, with noise."""
        kinds = rng.integers(0, 2, 16)
        stripes = (np.arange(size) % 2)[:, None] * np.ones(size)
        images = [stripes if kind else stripes.T for kind in kinds]
        return (np.array(images)[:, None] + rng.normal(0, 0.2, (16, 1, size, size))), kinds

    losses = []
    with gf.Session(graph, seed=4) as session:
        for step in range(40):
            images, kinds = batch(8 + step % 2)
            feeds = {x: images.astype(np.float32), labels: kinds}
            losses.append(float(session.run([loss, train], feeds)[0]))
    assert np.mean(losses[-5:]) < 0.2 * losses[0]


def test_texts() -> None:
    with gf.Graph():
        assert repr(nn.Conv2d(3, 8, 3)).startswith("Conv2d(3 -> 8, kernel_size=(3, 3), bias=True)")
        text = "ConvTranspose1d(4 -> 2, kernel_size=(3,), stride=(2,), padding=1, bias=False)"
        assert repr(nn.ConvTranspose1d(4, 2, 3, 2, 1, bias=False)).startswith(text)
        assert repr(nn.Upsample(scale_factor=2)) == "Upsample(scale_factor=2, mode='nearest')"
        assert "kernel_size=(2, 2)" in repr(nn.MaxPool2d(2))


IMAGES = np.ones((2, 8, 8, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "text", "fix"),
    [
        (
            lambda: nn.Conv2d(3, 4, 3)(IMAGES),
            ShapeError,
            "conv: x has 8 channels, and the weight takes 3",
            "Conv2d wants the channels in dim 1: gf.moveaxis(x, -1, 1)",
        ),
        (
            lambda: nn.Conv2d(4, 4, 3)(IMAGES),
            ShapeError,
            "conv: x has 8 channels, and the weight takes 4",
            "Conv2d(in_channels=4) receives 8 channels: use in_channels=8",
        ),
        (
            lambda: nn.Conv2d(8, 4, 3)(IMAGES[0]),
            ShapeError,
            "Conv2d: x must be [N, C, H, W], and has 3 dims",
            "x[None] adds a dim for the batch",
        ),
        (
            lambda: nn.Conv1d(8, 4, 3)(IMAGES),
            ShapeError,
            "Conv1d: x must be [N, C, L], and has 4 dims",
            "use the layer for 2d",
        ),
        (lambda: nn.MaxPool3d(2)(IMAGES), ShapeError, "must be [N, C, D, H, W]", "x[None]"),
        (lambda: nn.BatchNorm1d(8)(IMAGES), ShapeError, "BatchNorm1d: x must be", "for 2d"),
        (
            lambda: nn.InstanceNorm2d(3)(IMAGES),
            ShapeError,
            "x has 8 channels at axis 1, not 3",
            "3",
        ),
        (lambda: nn.Dropout2d()(IMAGES[0]), ShapeError, "Dropout2d: x must be", "x[None]"),
        (lambda: nn.Conv2d(3, 4, 0), ArgumentError, "Conv2d: kernel_size=0 must be 1", "1 or more"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), ArgumentError, "does not fit 2 spatial dims", "2"),
        (lambda: nn.Conv2d(3, 4, 3, padding=-1), ArgumentError, "the padding -1 is", "slice"),
        (lambda: nn.Conv2d(0, 4, 3), ArgumentError, "in_channels=0 must be 1 or more", "1"),
        (
            lambda: nn.Conv2d(3, 4, 3, groups=2),
            ArgumentError,
            "in_channels=3 is no multiple of groups=2",
            "use groups=1, which divides both",
        ),
        (
            lambda: nn.Conv2d(3, 4, 3, padding_mode="edge"),
            ArgumentError,
            'padding_mode=\'edge\' is none of "zeros", "reflect", "replicate", "circular"',
            'use padding_mode="replicate"',
        ),
        (lambda: nn.MaxPool2d((2, 2, 2)), ArgumentError, "MaxPool2d: kernel_size=(2, 2, 2)", "2"),
        (lambda: nn.Upsample(), ArgumentError, "give either size or scale_factor", "scale_factor"),
        (
            lambda: nn.Upsample(scale_factor=(2, 2, 2))(IMAGES),
            ShapeError,
            "scale_factor=(2, 2, 2) is not for 2 spatial dims",
            "one for each",
        ),
        (
            lambda: nn.Upsample(2, recompute_scale_factor=True),
            ArgumentError,
            "recompute_scale_factor is for a scale_factor",
            "leave it out",
        ),
        (lambda: nn.InstanceNorm1d(3, momentum=0), ArgumentError, "momentum=0 must be", "0.1"),
        (lambda: nn.BatchNorm2d(3, momentum=1.5), ArgumentError, "momentum=1.5 must", "or None"),
        (
            lambda: nn.Upsample(2, mode="area"),
            ArgumentError,
            "mode='area' is none of",
            "use one of",
        ),
        (
            lambda: nn.Upsample(2, align_corners=True),
            ArgumentError,
            "align_corners and antialias are not for mode='nearest'",
            "linear",
        ),
        (
            lambda: nn.Upsample(2, mode="bilinear")(IMAGES[0]),
            ShapeError,
            "bilinear is not for 1 spatial dims",
            "linear",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str, fix: str) -> None:
    with gf.Graph(), pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert fix in caught.value.fix  # type: ignore[attr-defined]  # of a graphfw error
