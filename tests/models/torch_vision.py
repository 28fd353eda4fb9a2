"""Architectures of torchvision in PyTorch's layers, as compact as names of weights permit."""

import torch
from torch import nn

torch.set_num_threads(1)  # arrays are small, and the threads would wait by turning in a loop


def conv_norm(c, out, kernel, stride=1, groups=1, act=nn.ReLU, **norm):
    conv = nn.Conv2d(c, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out, **norm), *([act()] if act else []))


class Residual(nn.Module):
    """BasicBlock or, with an expansion, Bottleneck."""

    def __init__(self, c, channels, stride, is_bottleneck, groups=1, per_group=64):
        super().__init__()
        width, out = channels * per_group // 64 * groups, 4 * channels
        plan = [(c, width, 1, 1, 1), (width, width, 3, stride, groups), (width, out, 1, 1, 1)]
        if not is_bottleneck:
            out = channels
            plan = [(c, channels, 3, stride, 1), (channels, channels, 3, 1, 1)]
        self.count, self.out = len(plan), out
        for number, sizes in enumerate(plan, start=1):
            conv, norm = conv_norm(*sizes, act=None)
            self.add_module(f"conv{number}", conv)
            self.add_module(f"bn{number}", norm)
        is_same = stride == 1 and c == out
        self.downsample = None if is_same else conv_norm(c, out, 1, stride, act=None)

    def forward(self, x):
        y = x if self.downsample is None else self.downsample(x)
        for number in range(1, self.count + 1):
            x = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(x))
            x = x.relu() if number < self.count else x
        return (x + y).relu()


class ResNet(nn.Module):
    def __init__(self, layers, is_bottleneck, base=64, classes=1000, channels=3, **options):
        super().__init__()
        self.conv1, self.bn1 = conv_norm(channels, base, 7, 2, act=None)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        width = base
        for stage, count in enumerate(layers):
            blocks = []
            for number in range(count):
                stride = 2 if stage and not number else 1
                blocks.append(Residual(width, base << stage, stride, is_bottleneck, **options))
                width = blocks[-1].out
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class SqueezeExcitation(nn.Module):
    def __init__(self, c, squeezed, act, gate):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, squeezed, 1), nn.Conv2d(squeezed, c, 1)
        self.act, self.gate = act(), gate()

    def forward(self, x):
        return x * self.gate(self.fc2(self.act(self.fc1(x.mean((2, 3), keepdim=True)))))


class InvertedResidual(nn.Module):
    """The layers are in the scope `block`, or, those of MobileNetV2, in `conv`."""

    def __init__(self, c, width, out, kernel, stride, act, squeeze=None, **norm):
        super().__init__()
        self.is_residual = stride == 1 and c == out
        layers = [conv_norm(c, width, 1, act=act, **norm)] if c != width else []
        layers.append(conv_norm(width, width, kernel, stride, width, act, **norm))
        layers += [squeeze] if squeeze else []
        last = conv_norm(width, out, 1, act=None, **norm)
        self.name = "conv" if act is nn.ReLU6 else "block"
        layers += last if act is nn.ReLU6 else [last]
        self.add_module(self.name, nn.Sequential(*layers))

    def forward(self, x):
        y = getattr(self, self.name)(x)
        return x + y if self.is_residual else y


class Classified(nn.Module):
    def __init__(self, features, *classifier):
        super().__init__()
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(*classifier)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def divisible(channels):
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 * (nearest < 0.9 * channels)


def mobilenet_v2(classes=1000, factor=1.0):
    width = divisible(32 * factor)
    features = [conv_norm(3, width, 3, 2, act=nn.ReLU6)]
    for t, c, n, s in [
        *[(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)],
        *[(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)],
    ]:
        for stride in [s] + [1] * (n - 1):
            out = divisible(c * factor)
            features.append(InvertedResidual(width, width * t, out, 3, stride, nn.ReLU6))
            width = out
    last = divisible(1280 * max(1, factor))
    features.append(conv_norm(width, last, 1, act=nn.ReLU6))
    return Classified(features, nn.Dropout(), nn.Linear(last, classes))


RE, HS = nn.ReLU, nn.Hardswish
V3 = {
    "large": [
        *[(3, 16, 16, 0, RE, 1), (3, 64, 24, 0, RE, 2), (3, 72, 24, 0, RE, 1)],
        *[(5, 72, 40, 1, RE, 2), (5, 120, 40, 1, RE, 1), (5, 120, 40, 1, RE, 1)],
        *[(3, 240, 80, 0, HS, 2), (3, 200, 80, 0, HS, 1), (3, 184, 80, 0, HS, 1)],
        *[(3, 184, 80, 0, HS, 1), (3, 480, 112, 1, HS, 1), (3, 672, 112, 1, HS, 1)],
        *[(5, 672, 160, 1, HS, 2), (5, 960, 160, 1, HS, 1), (5, 960, 160, 1, HS, 1)],
    ],
    "small": [
        *[(3, 16, 16, 1, RE, 2), (3, 72, 24, 0, RE, 2), (3, 88, 24, 0, RE, 1)],
        *[(5, 96, 40, 1, HS, 2), (5, 240, 40, 1, HS, 1), (5, 240, 40, 1, HS, 1)],
        *[(5, 120, 48, 1, HS, 1), (5, 144, 48, 1, HS, 1), (5, 288, 96, 1, HS, 2)],
        *[(5, 576, 96, 1, HS, 1), (5, 576, 96, 1, HS, 1)],
    ],
}


def mobilenet_v3(size, classes=1000, factor=1.0):
    norm = {"eps": 1e-3, "momentum": 0.01}
    width = divisible(16 * factor)
    features = [conv_norm(3, width, 3, 2, act=HS, **norm)]
    for kernel, wide, out, is_squeezed, act, stride in V3[size]:
        wide, out = divisible(wide * factor), divisible(out * factor)
        squeeze = SqueezeExcitation(wide, divisible(wide // 4), RE, nn.Hardsigmoid)
        options = squeeze if is_squeezed else None
        features.append(InvertedResidual(width, wide, out, kernel, stride, act, options, **norm))
        width = out
    features.append(conv_norm(width, 6 * width, 1, act=HS, **norm))
    hidden = divisible((1280 if size == "large" else 1024) * factor)
    last = [nn.Linear(6 * width, hidden), HS(), nn.Dropout(), nn.Linear(hidden, classes)]
    return Classified(features, *last)


def efficientnet(wide, deep, classes=1000, **norm):
    width = divisible(32 * wide)
    features = [conv_norm(3, width, 3, 2, act=nn.SiLU, **norm)]
    for t, k, s, c, n in [
        *[(1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)],
        *[(6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)],
    ]:
        blocks = []
        for stride in [s] + [1] * (-int(-n * deep // 1) - 1):
            inner, out = divisible(width * t), divisible(c * wide)
            squeeze = SqueezeExcitation(inner, max(1, width // 4), nn.SiLU, nn.Sigmoid)
            sizes = width, inner, out, k, stride
            blocks.append(InvertedResidual(*sizes, nn.SiLU, squeeze, **norm))
            width = out
        features.append(nn.Sequential(*blocks))
    features.append(conv_norm(width, 4 * width, 1, act=nn.SiLU, **norm))
    return Classified(features, nn.Dropout(), nn.Linear(4 * width, classes))
