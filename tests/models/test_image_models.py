"""Models of images: sizes, options and mistakes."""

import math
import pickle
from functools import partial

import numpy as np
import pytest

import graphfw as gf
from graphfw import models
from tests.models.parity import images

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
        (models.convnext_tiny, 28_589_128),
        (models.convnext_small, 50_223_688),
        (models.convnext_base, 88_591_464),
        (models.convnext_large, 197_767_336),
        (models.vit_b_16, 86_567_656),
        (models.vit_b_32, 88_224_232),
        (models.vit_l_16, 304_326_632),
        (models.vit_l_32, 306_535_400),
    ],
)
def test_numbers_of_parameters(make, expected):
    with gf.Graph():
        parameters = make().parameters()
    assert sum(math.prod(v.shape) for v in parameters) == expected


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
            "pass a function, which is called as "
            "block(in_channels, channels, stride, norm_layer=norm_layer)",
        ),
        (
            lambda: models.ResNet(lambda *sizes, norm_layer: gf.nn.ReLU(), (1, 1, 1, 1)),
            "ResNet: block returns a ReLU, which has no out_channels",
            "use gf.models.BasicBlock",
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
            lambda: models.ConvNeXt((1, 1, 1)),
            "ConvNeXt: depths=(1, 1, 1) is no sequence of 4 numbers",
            "use depths=(2, 2, 2, 2)",
        ),
        (
            lambda: models.ConvNeXt(channels=64),
            "ConvNeXt: channels=64 is no sequence of 4 numbers",
            "use channels=(2, 2, 2, 2)",
        ),
        (
            lambda: models.ConvNeXtBlock(8, layer_scale="small"),
            "ConvNeXtBlock: layer_scale='small' is no positive number",
            "use layer_scale=1.0",
        ),
        (
            lambda: models.LayerNorm2d(0),
            "LayerNorm2d: channels=0 must be 1 or more",
            "use channels=1",
        ),
        (
            lambda: models.VisionTransformer(30, 8, 1, 1, 8),
            "VisionTransformer: image_size=30 is no multiple of patch_size=8",
            "use image_size=24",
        ),
        (
            lambda: models.VisionTransformer((16, 4), 8, 1, 1, 8),
            "VisionTransformer: image_size=(16, 4) is no multiple of patch_size=8",
            "use image_size=(16, 8)",
        ),
        (
            lambda: models.VisionTransformer(16, 8, 1, 3, 8),
            "MultiHeadAttention: embed_dim=8 is no multiple of num_heads=3",
            "use num_heads=2, which divides 8",
        ),
        (
            lambda: models.UNet(depth=0),
            "UNet: depth=0 must be 1 or more",
            "use depth=1",
        ),
        (
            lambda: models.UNet(3, 1, 64),
            "UNet: depth=64 would halve images more than 16 times",
            "use depth=4",
        ),
        (
            lambda: models.UNet(embedding_dim=-3),
            "UNetBlock: embedding_dim=-3 must be 1 or more",
            "use embedding_dim=3",
        ),
        (
            lambda: models.UNet(depth=2, base_channels=4)(gf.ones((1, 3, 8, 8)), gf.ones((1, 5))),
            "UNet: there is an embedding, and no embedding_dim",
            "make the layer with embedding_dim=64, or the size that it has",
        ),
        (
            lambda: models.UNet(depth=2, base_channels=4, embedding_dim=5)(gf.ones((1, 3, 8, 8))),
            "UNet: it has an embedding_dim, and there is no embedding",
            "call it with embedding=e, of shape [N, embedding_dim]",
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


def test_arguments_of_torchvision_s():
    with gf.Graph(), pytest.raises(gf.CallError) as caught:
        models.resnet18(weights="DEFAULT")
    assert "model.load_pytorch(session, path)" in caught.value.fix
    with gf.Graph(), pytest.raises(gf.CallError) as caught:
        models.VisionTransformer(hidden_dim=64)
    assert "VisionTransformer(embed_dim=64)" in caught.value.fix


def test_images_in_another_layout():
    with gf.Graph():
        model = models.ResNet(models.BasicBlock, (1, 1, 1, 1), **SMALL)
        with pytest.raises(gf.ShapeError) as caught:
            model(gf.placeholder(("batch", 64, 64, 3)))
    assert caught.value.fix == "Conv2d wants the channels in dim 1: gf.moveaxis(x, -1, 1)"


@pytest.mark.parametrize("activation", [gf.nn.Softplus, lambda: gf.softplus])
def test_other_activations(activation):
    x = images(2, 3, 8, 8)
    with gf.Graph() as g:
        block = models.ConvNormActivation(3, 4, activation=activation())
        y, expected = block(x), gf.softplus(block[1](block[0](x)))
    with gf.Session(g) as session:
        np.testing.assert_array_equal(*session.run([y, expected]))


@pytest.mark.parametrize(
    ("make", "shape", "message", "fix"),
    [
        (
            lambda: models.VisionTransformer(16, 8, 1, 1, 8),
            ("batch", 3, 32, 24),
            "VisionTransformer: images are 32 × 24, and there are positions for 16 × 16",
            "resize them by gf.resize(x, (16, 16)), or use image_size=(32, 24)",
        ),
        (
            lambda: models.VisionTransformer(16, 8, 1, 1, 8),
            ("batch", 3, "h", "w"),
            "VisionTransformer: images are h × w, and there are positions for 16 × 16",
            "say gf.assert_shape(x, (None, None, 16, 16))",
        ),
        (
            lambda: models.UNet(3, 2, 3, 4),
            ("batch", 3, 7, "w"),
            "UNet: x has a side of 7 elements, and depth=3 needs 8",
            "use depth=2",
        ),
        (
            lambda: models.UNet(3, 2, 3, 4),
            ("batch", 3, 16),
            "UNet: x must be [N, C, H, W], and has 3 dims",
            "x[None] adds a dim for the batch",
        ),
        (
            models.resnet18,
            ("batch", 1, 16, 16),
            "conv: x has 1 channel, and the weight takes 3",
            "Conv2d(in_channels=3) receives 1 channel: use in_channels=1",
        ),
        (
            lambda: lambda x: models.UNetBlock(1, 4, 6)(x, gf.ones(6)),
            ("batch", 1, 8, 8),
            "UNetBlock: embedding is [6], and must be [N, 6]",
            "embedding[None] is one vector for all images",
        ),
        (
            lambda: lambda x: models.UNetBlock(1, 4, 6)(x, gf.ones((1, 5))),
            ("batch", 1, 8, 8),
            "UNetBlock: embedding is [1, 5], and must be [N, 6]",
            "use embedding_dim=5",
        ),
        (
            lambda: lambda x: models.UNetUp(8, 4)(gf.ones((1, 8, 4, 4)), x),
            (1, 3, 8, 8),
            "UNetUp: skip has 3 channels, not 4",
            "use UNetUp(8, 3)",
        ),
        (
            lambda: models.LayerNorm2d(4),
            ("batch", 3, 16, 16),
            "layer_norm: weight must have shape [3], as x has at axis 1, not [4]",
            "use LayerNorm2d(3)",
        ),
    ],
)
def test_images_that_do_not_fit(make, shape, message, fix):
    with gf.Graph():
        model = make()
        with pytest.raises(gf.ShapeError) as caught:
            model(gf.placeholder(shape))
    assert (caught.value.summary, caught.value.fix) == (message, fix)


SMALL_MODELS = {
    "resnet": lambda: models.ResNet(models.Bottleneck, (1, 1, 1, 1), **SMALL),
    "mobilenet_v2": lambda: models.MobileNetV2(5, width_mult=0.1),
    "mobilenet_v3": lambda: models.MobileNetV3("small", 5, width_mult=0.1),
    "efficientnet": lambda: models.EfficientNet(0.1, 0.3, num_classes=5),
    "convnext": lambda: models.ConvNeXt((1, 1, 1, 1), (4, 4, 4, 4), num_classes=5, drop_path=0.0),
    "vision_transformer": lambda: models.VisionTransformer(32, 16, 1, 1, 8, num_classes=5),
    "unet": lambda: models.UNet(3, 5, 2, 4),
}


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("make", SMALL_MODELS.values(), ids=SMALL_MODELS)
def test_gradients_reach_every_parameter(make):
    with gf.Graph() as g:
        model = make()
        loss = gf.sum(gf.square(model(gf.asarray(images(4, 3, 32, 32)))))
        grads = gf.grad(loss, model.parameters())
    with gf.Session(g) as session:
        values = session.run(grads)
    for (name, _), value in zip(model.named_parameters(), values, strict=True):
        assert np.isfinite(value).all(), name
        assert np.abs(value).max() > 0, name


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("make", SMALL_MODELS.values(), ids=SMALL_MODELS)
def test_copies_compute_the_same(make):
    with gf.Graph() as g:
        model = make()
    copied = pickle.loads(pickle.dumps(model))
    results = []
    for one in (model, copied):
        graph = one.parameters()[0].graph
        with graph:
            y = one(gf.asarray(images(1, 3, 32, 32)), training=False)
        with gf.Session(graph, seed=3) as session:
            results.append(session.run(y))
    assert copied.parameters()[0].graph is not g
    np.testing.assert_array_equal(*results)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [(32, 32), (45, 39)])
@pytest.mark.parametrize("name", ["resnet", "mobilenet_v3", "convnext", "unet"])
def test_symbolic_sizes(name, size):
    with gf.Graph() as g:
        model = SMALL_MODELS[name]()
        x = gf.placeholder(("batch", 3, "height", "width"))
        symbolic = model(x, training=False)
        fixed = model(gf.asarray(images(2, 3, *size)), training=False)
    with gf.Session(g) as session:
        found, expected = session.run([symbolic, fixed], {x: images(2, 3, *size)})
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_layers_of_a_unet_may_be_other_modules():
    class Wrapped(gf.nn.Module):
        def __init__(self, base):
            self.base = base

        def forward(self, x):
            return self.base(x)

    with gf.Graph() as graph:
        up = models.UNetUp(8, 4, embedding_dim=6)
        arguments = gf.ones((2, 8, 4, 4)), gf.ones((2, 4, 8, 8)), gf.ones((2, 6))
        expected = up(*arguments)
        up.conv, up.block.projection = Wrapped(up.conv), Wrapped(up.block.projection)
        found = up(*arguments)
    with gf.Session(graph) as session:
        np.testing.assert_array_equal(*session.run([found, expected]))
