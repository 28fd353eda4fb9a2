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
        (models.resnet101, 44_549_160),
        (models.resnet152, 60_192_808),
        (models.mobilenet_v2, 3_504_872),
        (models.mobilenet_v3_large, 5_483_032),
        (models.mobilenet_v3_small, 2_542_856),
        (models.efficientnet_b0, 5_288_548),
        (models.efficientnet_b1, 7_794_184),
        (models.efficientnet_b2, 9_109_994),
        (models.efficientnet_b3, 12_233_232),
        (models.efficientnet_b4, 19_341_616),
        (models.efficientnet_b5, 30_389_784),
        (models.efficientnet_b6, 43_040_704),
        (models.efficientnet_b7, 66_347_960),
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
            lambda: models.mobilenet_v2(num_classes=2.5),
            "MobileNetV2: num_classes=2.5 is no int",
            "give num_classes as an int",
        ),
        (
            lambda: models.MobileNetV2(width_mult=0),
            "MobileNetV2: width_mult=0 is no positive number",
            "use width_mult=1.0",
        ),
        (
            lambda: models.MobileNetV2(dropout=20),
            "MobileNetV2: dropout=20 must be at least 0 and below 1",
            "use dropout=0.2",
        ),
        (
            lambda: models.MobileNetV3("medium"),
            'MobileNetV3: size=\'medium\' is none of "large", "small"',
            'use one of "large", "small"',
        ),
        (
            lambda: models.EfficientNet(1.0, float("nan")),
            "EfficientNet: depth=nan is no positive number",
            "use depth=1.0",
        ),
        (
            lambda: models.EfficientNet("b0"),
            "EfficientNet: width='b0' is no positive number",
            "use width=1.0",
        ),
        (
            lambda: models.InvertedResidual(8, 16, 8, kernel_size=4),
            "ConvNormActivation: kernel_size=4 is even, and has no element in its centre",
            "use kernel_size=5",
        ),
        (
            lambda: models.ConvNormActivation(8, 16, activation="swish"),
            "ConvNormActivation: activation='swish' is none of "
            '"relu", "relu6", "silu", "hardswish", "gelu"',
            'use activation="silu"',
        ),
        (
            lambda: models.ConvNormActivation(8, 16, norm_layer=lambda channels: channels),
            "ConvNormActivation: norm_layer returns an int, which is no layer",
            "use norm_layer=gf.nn.BatchNorm2d",
        ),
        (
            lambda: models.InvertedResidual(8, 16, 8, squeeze_excite=8),
            "InvertedResidual: squeeze_excite=8 is no layer",
            "use squeeze_excite=gf.nn.SqueezeExcite(16, 4)",
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
