"""Architectures in PyTorch's layers, with the names that weights have in torchvision.

It has no UNet, whose names are graphfw's.
"""

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

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


class Permute(nn.Module):
    def __init__(self, *dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(self.dims)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layer_scale = nn.Parameter(torch.rand(c, 1, 1))
        self.block = nn.Sequential(
            nn.Conv2d(c, c, 7, padding=3, groups=c),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(c, eps=1e-6),
            nn.Linear(c, 4 * c),
            nn.GELU(),
            nn.Linear(4 * c, c),
            Permute(0, 3, 1, 2),
        )

    def forward(self, x):
        return x + self.layer_scale * self.block(x)


class ConvNeXt(nn.Module):
    def __init__(self, depths, channels, classes=1000):
        super().__init__()
        stem = nn.Conv2d(3, channels[0], 4, 4), LayerNorm2d(channels[0], eps=1e-6)
        self.features = nn.Sequential(nn.Sequential(*stem))
        for stage, (count, c) in enumerate(zip(depths, channels, strict=True)):
            if stage:
                before = channels[stage - 1]
                norm = LayerNorm2d(before, eps=1e-6)
                self.features.append(nn.Sequential(norm, nn.Conv2d(before, c, 2, 2)))
            self.features.append(nn.Sequential(*[ConvNeXtBlock(c) for _ in range(count)]))
        norm, last = LayerNorm2d(channels[-1], eps=1e-6), nn.Linear(channels[-1], classes)
        self.classifier = nn.Sequential(norm, nn.Flatten(), last)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3), keepdim=True))


class VisionLayer(nn.Module):
    def __init__(self, heads, c, width):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(c, eps=1e-6), nn.LayerNorm(c, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(c, heads, batch_first=True)
        inner = nn.Linear(c, width), nn.GELU(), nn.Dropout(0.0), nn.Linear(width, c)
        self.mlp = nn.Sequential(*inner, nn.Dropout(0.0))

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class VisionEncoder(nn.Module):
    def __init__(self, count, length, heads, c, width):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, length, c))
        layers = {f"encoder_layer_{i}": VisionLayer(heads, c, width) for i in range(count)}
        self.layers = nn.Sequential()
        for name, layer in layers.items():
            self.layers.add_module(name, layer)
        self.ln = nn.LayerNorm(c, eps=1e-6)

    def forward(self, x):
        return self.ln(self.layers(x + self.pos_embedding))


class VisionTransformer(nn.Module):
    def __init__(self, patch, patches, count, heads, c, width, classes=1000):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, c, patch, patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, c))
        self.encoder = VisionEncoder(count, 1 + patches, heads, c, width)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(c, classes))

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).mT
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1)
        return self.heads(self.encoder(x)[:, 0])


class UNetBlock(nn.Module):
    def __init__(self, c, out, size, act):
        super().__init__()
        self.conv1, self.conv2 = conv_norm(c, out, 3, act=act), conv_norm(out, out, 3, act=act)
        self.act, self.projection = act(), nn.Linear(size, out) if size else None

    def forward(self, x, e):
        x = self.conv1(x)
        if e is not None:
            x = x + self.projection(self.act(e))[:, :, None, None]
        return self.conv2(x)


class UNetStep(nn.Module):
    """UNetDown, or UNetUp where it has a convolution."""

    def __init__(self, c, out, is_up, *options):
        super().__init__()
        self.conv = nn.Conv2d(c, out, 3, padding=1) if is_up else None
        self.block = UNetBlock(2 * out if is_up else c, out, *options)

    def forward(self, x, skip, e):
        if self.conv is None:
            return self.block(nn.functional.max_pool2d(x, 2), e)
        x = self.conv(nn.functional.interpolate(x, skip.shape[2:]))
        return self.block(torch.cat([skip, x], 1), e)


class UNet(nn.Module):
    def __init__(self, c, out, depth, base, *options):
        super().__init__()
        widths = [base << level for level in range(depth + 1)]
        self.first = UNetBlock(c, base, *options)
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList([UNetStep(a, b, False, *options) for a, b in pairs])
        self.up = nn.ModuleList([UNetStep(b, a, True, *options) for a, b in reversed(pairs)])
        self.last = nn.Conv2d(base, out, 1)

    def forward(self, x, e=None):
        kept = [self.first(x, e)]
        for step in self.down:
            kept.append(step(kept[-1], None, e))
        x = kept.pop()
        for step in self.up:
            x = step(x, kept.pop(), e)
        return self.last(x)
