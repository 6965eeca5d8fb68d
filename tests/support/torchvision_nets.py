"""The architectures of torchvision in plain PyTorch, with its modules' names: their state_dicts have its keys.

Written from the papers and torchvision's documented differences, independently of what converts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

RESNETS = {
    "resnet18": (1, (2, 2, 2, 2)),
    "resnet34": (1, (3, 4, 6, 3)),
    "resnet50": (4, (3, 4, 6, 3)),
    "resnet101": (4, (3, 4, 23, 3)),
    "resnet152": (4, (3, 8, 36, 3)),
}
"""Name → the factor of channels behind a block, and the number of blocks of each stage."""

VGGS = {
    "vgg11": "64 M 128 M 256 256 M 512 512 M 512 512 M",
    "vgg13": "64 64 M 128 128 M 256 256 M 512 512 M 512 512 M",
    "vgg16": "64 64 M 128 128 M 256 256 256 M 512 512 512 M 512 512 512 M",
    "vgg19": "64 64 M 128 128 M 256 256 256 256 M 512 512 512 512 M 512 512 512 512 M",
}
"""Name → channels of the convolutions, and M where the image is halved."""

NAMES = (*RESNETS, *(f"{name}{end}" for name in VGGS for end in ("", "_bn")), "alexnet", "googlenet")
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """A residual block: two 3x3 convolutions or, with ``expansion`` 4, 1x1, 3x3 with the stride, and 1x1."""

    def __init__(self, inputs: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        outputs = channels * expansion
        plans = [(inputs, channels, 3, stride), (channels, channels, 3, 1)]
        if expansion > 1:
            plans = [(inputs, channels, 1, 1), (channels, channels, 3, stride), (channels, outputs, 1, 1)]
        self.count = len(plans)
        for number, (before, after, kernel, step) in enumerate(plans, 1):
            convolution = nn.Conv2d(before, after, kernel, step, kernel // 2, bias=False)
            self.add_module(f"conv{number}", convolution)
            self.add_module(f"bn{number}", nn.BatchNorm2d(after))
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for number in range(1, self.count + 1):
            y = self.get_submodule(f"bn{number}")(self.get_submodule(f"conv{number}")(y))
            if number < self.count:
                y = y.relu()
        return cast(Tensor, (y + self.downsample(x)).relu())


class ResNet(nn.Module):
    def __init__(self, expansion: int, blocks: Sequence[int], classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for stage, count in enumerate(blocks):
            channels = 64 << stage
            layers = []
            for block in range(count):
                layers.append(Block(inputs, channels, 2 if stage and not block else 1, expansion))
                inputs = channels * expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return cast(Tensor, self.fc(x.mean((2, 3))))


class Sequence2d(nn.Module):
    """VGG or AlexNet: ``features``, then ``classifier``."""

    def __init__(self, features: Sequence[nn.Module], classifier: Sequence[nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(*classifier)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.classifier(self.features(x).flatten(1)))


def _vgg(name: str, classes: int) -> nn.Module:
    name, _, normalised = name.partition("_")
    features: list[nn.Module] = []
    inputs = 3
    for word in VGGS[name].split():
        if word == "M":
            features.append(nn.MaxPool2d(2, 2))
            continue
        features.append(nn.Conv2d(inputs, int(word), 3, padding=1))
        inputs = int(word)
        if normalised:
            features.append(nn.BatchNorm2d(inputs))
        features.append(nn.ReLU())
    wide = [nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
    return Sequence2d(features, [*wide, nn.Linear(4096, classes)])


def _alexnet(classes: int) -> nn.Module:
    features: list[nn.Module] = [nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    features += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    for before, after in ((192, 384), (384, 256), (256, 256)):
        features += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
    features.append(nn.MaxPool2d(3, 2))
    wide = [nn.Dropout(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU()]
    return Sequence2d(features, [*wide, nn.Linear(4096, classes)])


class Convolution(nn.Module):
    """GoogLeNet's convolution, with BatchNorm and ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.bn(self.conv(x)).relu())


class Inception(nn.Module):
    def __init__(self, inputs: int, one: int, small: int, three: int, tiny: int, five: int, pooled: int) -> None:
        super().__init__()
        self.branch1 = Convolution(inputs, one, 1)
        self.branch2 = nn.Sequential(Convolution(inputs, small, 1), Convolution(small, three, 3))
        self.branch3 = nn.Sequential(Convolution(inputs, tiny, 1), Convolution(tiny, five, 3))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1), Convolution(inputs, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class SideClassifier(nn.Module):
    """A classifier in the middle, whose weights are in the file; it takes no part in a test."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.conv = Convolution(inputs, 128, 1)
        self.fc1, self.fc2 = nn.Linear(2048, 1024), nn.Linear(1024, classes)


class GoogLeNet(nn.Module):
    """GoogLeNet; its pixels go from -1 to 1, as those of torchvision's weights do."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = Convolution(3, 64, 7, 2), Convolution(64, 64, 1), Convolution(64, 192, 3)
        self.inception3a = Inception(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = Inception(256, 128, 128, 192, 32, 96, 64)
        self.inception4a = Inception(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = Inception(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = Inception(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = Inception(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = Inception(528, 256, 160, 320, 32, 128, 128)
        self.inception5a = Inception(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = Inception(832, 384, 192, 384, 48, 128, 128)
        self.aux1, self.aux2 = SideClassifier(512, classes), SideClassifier(528, classes)
        self.fc = nn.Linear(1024, classes)

    def forward(self, x: Tensor) -> Tensor:
        pool = nn.functional.max_pool2d
        mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
        x = 2 * (x * deviation + mean) - 1
        x = pool(self.conv1(x), 3, 2, ceil_mode=True)
        x = pool(self.conv3(self.conv2(x)), 3, 2, ceil_mode=True)
        x = pool(self.inception3b(self.inception3a(x)), 3, 2, ceil_mode=True)
        for letter in "abcde":
            x = self.get_submodule(f"inception4{letter}")(x)
        x = self.inception5b(self.inception5a(pool(x, 2, 2, ceil_mode=True)))
        return cast(Tensor, self.fc(x.mean((2, 3))))


def network(name: str, classes: int = 1000) -> nn.Module:
    """The network, with the random numbers of PyTorch's own initialisation."""
    if name in RESNETS:
        return ResNet(*RESNETS[name], classes)
    if name == "googlenet":
        return GoogLeNet(classes)
    return _alexnet(classes) if name == "alexnet" else _vgg(name, classes)


def settled(name: str, classes: int, side: int, seed: int = 0) -> nn.Module:
    """The network for testing, all of its numbers random, and its statistics near those of random images."""
    torch.manual_seed(seed)
    model = network(name, classes)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.9  # the statistics are not quite those of the batch
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
        elif isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            nn.init.uniform_(module.bias, -0.1, 0.1)
    with torch.no_grad():
        model(torch.randn(2, 3, side, side))
    return model.eval()


def normalised(pixels: Tensor) -> Tensor:
    """Red, green and blue (N, 3, H, W) from 0 to 255 as torchvision's input."""
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    return (pixels.float() / 255 - mean) / deviation
