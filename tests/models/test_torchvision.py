"""Models of images compute what the same architectures do in PyTorch, and load its files."""

from functools import partial

import numpy as np
import pytest

import graphfw as gf
from graphfw import models
from tests.models.parity import compare, images

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("tests.models.torch_vision")

SMALL = {"num_classes": 5, "base_channels": 8}


@pytest.mark.parametrize("size", [64, 45])
def test_resnet_of_basic_blocks(size, tmp_path):
    def make():
        return models.ResNet(models.BasicBlock, (1, 2, 1, 1), in_channels=2, **SMALL)

    reference = theirs.ResNet((1, 2, 1, 1), False, 8, 5, 2)
    compare(make, reference, images(2, 2, size, size), folder=tmp_path)


@pytest.mark.parametrize("options", [{}, {"groups": 2, "width_per_group": 32}])
def test_resnet_of_bottlenecks(options, tmp_path):
    def make():
        return models.ResNet(partial(models.Bottleneck, **options), (1, 1, 2, 1), **SMALL)

    renamed = {"groups": options.get("groups", 1), "per_group": options.get("width_per_group", 64)}
    reference = theirs.ResNet((1, 1, 2, 1), True, 8, 5, **renamed)
    compare(make, reference, images(2, 3, 64, 64), folder=tmp_path)


@pytest.mark.parametrize("size", [64, pytest.param(96, marks=pytest.mark.slow)])
def test_a_training_step_of_resnet(size):
    """Logits, gradients and statistics of the batch are those of PyTorch."""
    reference = theirs.ResNet((1, 1, 1, 1), False, 8, 5).double()
    x, labels = images(4, 3, size, size).astype(np.float64), np.array([0, 3, 1, 4])
    before = {name: t.numpy().copy() for name, t in reference.state_dict().items()}
    with gf.default_dtype(gf.float64), gf.Graph() as g:
        model = models.ResNet(models.BasicBlock, (1, 1, 1, 1), **SMALL)
        loss = gf.nn.cross_entropy(model(gf.asarray(x)), labels)
        grads = gf.grad(loss, model.parameters())
        train = gf.optim.SGD(0.0).minimize(loss)
    with gf.Session(g) as session:
        model.load_pytorch(session, before)
        found, values, _ = session.run([loss, grads, train])
        state = model.state_dict(session)
    expected = torch.nn.functional.cross_entropy(
        reference(torch.from_numpy(x)), torch.from_numpy(labels)
    )
    expected.backward()
    np.testing.assert_allclose(found, expected.item(), 1e-10)
    theirs_by_name = dict(reference.named_parameters())
    for (name, _), value in zip(model.named_parameters(), values, strict=True):
        grad = theirs_by_name[name].grad.numpy()
        grad = grad.T if name == "fc.weight" else grad
        np.testing.assert_allclose(value, grad, 1e-7, 1e-10, err_msg=name)
    for name, tensor in reference.state_dict().items():
        if "running" in name:
            np.testing.assert_allclose(state[name], tensor.numpy(), 1e-7, err_msg=name)


def test_mobilenet_v2(tmp_path):
    reference = theirs.mobilenet_v2(5, 0.25)
    compare(
        lambda: models.MobileNetV2(5, width_mult=0.25),
        reference,
        images(2, 3, 64, 48),
        folder=tmp_path,
    )


@pytest.mark.parametrize("size", ["large", "small"])
def test_mobilenet_v3(size, tmp_path):
    def make():
        return models.MobileNetV3(size, 5, width_mult=0.25)

    compare(make, theirs.mobilenet_v3(size, 5, 0.25), images(2, 3, 64, 48), folder=tmp_path)


@pytest.mark.parametrize(
    ("width", "depth"), [(0.25, 0.4), pytest.param(0.3, 1.1, marks=pytest.mark.slow)]
)
def test_efficientnet(width, depth, tmp_path):
    def make():
        return models.EfficientNet(width, depth, num_classes=5)

    compare(make, theirs.efficientnet(width, depth, 5), images(2, 3, 64, 48), folder=tmp_path)


def test_convnext(tmp_path):
    sizes = (1, 2, 1, 1), (4, 6, 8, 10), 5
    reference = theirs.ConvNeXt(*sizes)
    compare(lambda: models.ConvNeXt(*sizes), reference, images(2, 3, 64, 48), folder=tmp_path)


def test_vision_transformer(tmp_path):
    def make():
        return models.VisionTransformer((16, 24), (8, 4), 2, 2, 8, 20, num_classes=5)

    reference = theirs.VisionTransformer((8, 4), 12, 2, 2, 8, 20, 5)
    compare(make, reference, images(2, 3, 16, 24), folder=tmp_path)


def test_older_names_of_a_vision_transformer():
    """Torchvision's files have them."""
    reference = theirs.VisionTransformer(8, 4, 2, 2, 8, 20, 5)
    state = {
        name.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): tensor
        for name, tensor in reference.state_dict().items()
    }
    with gf.Graph() as g:
        model = models.VisionTransformer(16, 8, 2, 2, 8, 20, num_classes=5)
    with gf.Session(g) as session:
        assert model.load_pytorch(session, state) == gf.io.Mismatch()
        found = session[model.encoder.layers[1].linear2.weight]
    expected = reference.encoder.layers[1].mlp[3].weight.detach().numpy().T
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [(32, 16), (21, 13)])
def test_unet(size, tmp_path):
    reference = theirs.UNet(2, 3, 2, 4, None, torch.nn.ReLU)
    compare(lambda: models.UNet(2, 3, 2, 4), reference, images(2, 2, *size), folder=tmp_path)


def test_unet_with_an_embedding(tmp_path):
    def make():
        return models.UNet(2, 3, 2, 4, embedding_dim=6, activation="silu")

    reference = theirs.UNet(2, 3, 2, 4, 6, torch.nn.SiLU)
    compare(make, reference, images(2, 2, 8, 12), images(2, 6, seed=1), folder=tmp_path)


PUBLISHED = {
    "resnet18": (models.resnet18, lambda: theirs.ResNet((2, 2, 2, 2), False)),
    "resnet50": (models.resnet50, lambda: theirs.ResNet((3, 4, 6, 3), True)),
    "mobilenet_v2": (models.mobilenet_v2, theirs.mobilenet_v2),
    "mobilenet_v3_large": (models.mobilenet_v3_large, lambda: theirs.mobilenet_v3("large")),
    "efficientnet_b0": (models.efficientnet_b0, lambda: theirs.efficientnet(1.0, 1.0)),
    "efficientnet_b5": (models.efficientnet_b5, lambda: theirs.efficientnet(1.6, 2.2, eps=1e-3)),
    "convnext_tiny": (
        models.convnext_tiny,
        lambda: theirs.ConvNeXt((3, 3, 9, 3), (96, 192, 384, 768)),
    ),
    "vit_b_16": (
        models.vit_b_16,
        lambda: theirs.VisionTransformer(16, 14 * 14, 12, 12, 768, 3072),
    ),
    "unet": (
        lambda: models.UNet(3, 2, base_channels=32),
        lambda: theirs.UNet(3, 2, 4, 32, None, torch.nn.ReLU),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("make", "reference"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_sizes(make, reference, tmp_path):
    """With native code, in float32: later layers add up rounding errors."""
    compare(make, reference(), images(1, 3, 224, 224), folder=tmp_path, rtol=1e-4)
