"""Models of images: sizes, options and mistakes."""

from functools import partial

import numpy as np
import pytest

import graphfw as gf
from graphfw import models
from tests.models.parity import count, images

SMALL = {"num_classes": 5, "base_channels": 8}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (models.resnet18, 11_689_512),
        (models.resnet34, 21_797_672),
        (models.resnet50, 25_557_032),
        pytest.param(models.resnet101, 44_549_160, marks=pytest.mark.slow),
        pytest.param(models.resnet152, 60_192_808, marks=pytest.mark.slow),
    ],
)
def test_numbers_of_parameters(make, expected):
    assert count(make) == expected


def test_other_norms():
    norm = partial(gf.nn.GroupNorm, 4, axis=1)
    with gf.Graph() as g:
        model = models.ResNet(models.Bottleneck, (1, 1, 1, 1), norm_layer=norm, **SMALL)
        y = model(gf.asarray(images(2, 3, 64, 64)))
    assert any(isinstance(module, gf.nn.GroupNorm) for module in model.modules())
    assert not any(isinstance(module, gf.nn.BatchNorm) for module in model.modules())
    with gf.Session(g) as session:
        assert np.isfinite(session.run(y)).all()


@pytest.mark.parametrize(
    ("make", "message", "fix"),
    [
        (
            lambda: models.resnet18(num_classes=0),
            "ResNet: num_classes=0 must be 1 or more",
            "use num_classes=1",
        ),
        (
            lambda: models.ResNet("basic", (1, 1, 1, 1)),
            "ResNet: block is a str, not a function",
            "pass a function, which is called as block(in_channels, channels, stride)",
        ),
        (
            lambda: models.ResNet(models.BasicBlock, (1, 1, 1)),
            "ResNet: layers=(1, 1, 1) is no sequence of 4 numbers",
            "use layers=(2, 2, 2, 2)",
        ),
        (
            lambda: models.ResNet(models.BasicBlock, (1, 0, 1, 1)),
            "ResNet: layers=0 must be 1 or more",
            "use layers=1",
        ),
        (
            lambda: models.ResNet(models.BasicBlock, (1, 1, 1, 1), norm_layer=None),
            "ResNet: norm_layer is a NoneType, not a function",
            "pass a function, which is called as norm_layer(channels)",
        ),
        (
            lambda: models.Bottleneck(8, 8, width_per_group=4),
            "Bottleneck: channels=8 with width_per_group=4 leave no channels",
            "use width_per_group=8",
        ),
    ],
)
def test_mistakes(make, message, fix):
    with gf.Graph(), pytest.raises(gf.ArgumentError) as caught:
        make()
    assert (caught.value.summary, caught.value.fix) == (message, fix)


def test_images_in_another_layout():
    with gf.Graph():
        model = models.ResNet(models.BasicBlock, (1, 1, 1, 1), **SMALL)
        with pytest.raises(gf.ShapeError) as caught:
            model(gf.placeholder(("batch", 64, 64, 3)))
    assert caught.value.fix == "Conv2d wants the channels in dim 1: gf.moveaxis(x, -1, 1)"
