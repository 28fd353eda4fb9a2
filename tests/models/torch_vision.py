"""Architectures of torchvision in PyTorch's layers, as compact as names of weights permit."""

from torch import nn


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
