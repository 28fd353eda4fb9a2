"""Models of images compute what torchvision's do, with weights that they load from its files."""

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
    compare(make, reference, images(2, 2, size, size), tmp_path)


@pytest.mark.parametrize("options", [{}, {"groups": 2, "width_per_group": 32}])
def test_resnet_of_bottlenecks(options, tmp_path):
    def make():
        return models.ResNet(partial(models.Bottleneck, **options), (1, 1, 2, 1), **SMALL)

    renamed = {"groups": options.get("groups", 1), "per_group": options.get("width_per_group", 64)}
    reference = theirs.ResNet((1, 1, 2, 1), True, 8, 5, **renamed)
    compare(make, reference, images(2, 3, 64, 64), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "layers", "is_bottleneck"),
    [(models.resnet18, (2, 2, 2, 2), False), (models.resnet50, (3, 4, 6, 3), True)],
)
def test_resnets_of_published_sizes(make, layers, is_bottleneck, tmp_path):
    compare(make, theirs.ResNet(layers, is_bottleneck), images(1, 3, 224, 224), tmp_path)


def test_a_training_step_of_resnet():
    """Logits, gradients and statistics of the batch are those of PyTorch."""
    reference = theirs.ResNet((1, 1, 1, 1), False, 8, 5).double()
    x, labels = images(4, 3, 64, 64).astype(np.float64), np.array([0, 3, 1, 4])
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
        lambda: models.MobileNetV2(5, width_mult=0.25), reference, images(2, 3, 64, 48), tmp_path
    )


@pytest.mark.parametrize("size", ["large", "small"])
def test_mobilenet_v3(size, tmp_path):
    def make():
        return models.MobileNetV3(size, 5, width_mult=0.25)

    compare(make, theirs.mobilenet_v3(size, 5, 0.25), images(2, 3, 64, 48), tmp_path)


@pytest.mark.parametrize(("width", "depth"), [(0.25, 0.4), (0.3, 1.1)])
def test_efficientnet(width, depth, tmp_path):
    def make():
        return models.EfficientNet(width, depth, num_classes=5)

    compare(make, theirs.efficientnet(width, depth, 5), images(2, 3, 64, 48), tmp_path)
