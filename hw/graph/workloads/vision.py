"""ResNet-18, ResNeXt-101 32x8d, VGG16 and MobileNetV3-large, as their papers define them.

Parameter counts equal those of torchvision's models of these names.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


def conv_norm(
    cin: int,
    cout: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    *,
    groups: int = 1,
    padding: int | tuple[int, int] | None = None,
    activation: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Convolution without bias, batch normalisation, activation; "same" padding by default."""
    if padding is None:
        padding = kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
    parts: list[nn.Module] = [
        nn.Conv2d(cin, cout, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(cout),
    ]
    return nn.Sequential(*parts, *([activation()] if activation else []))


class ResidualBlock(nn.Module):
    """He et al. 2015 (arXiv 1512.03385): basic block, or bottleneck with ``groups`` as in Xie et
    al. 2016 (arXiv 1611.05431) when ``inner`` is given."""

    def __init__(
        self, cin: int, cout: int, stride: int, inner: int | None = None, groups: int = 1
    ) -> None:
        super().__init__()
        if inner is None:
            body = [conv_norm(cin, cout, 3, stride), conv_norm(cout, cout, 3, activation=None)]
        else:
            body = [
                conv_norm(cin, inner, 1),
                conv_norm(inner, inner, 3, stride, groups=groups),
                conv_norm(inner, cout, 1, activation=None),
            ]
        self.body = nn.Sequential(*body)
        plain = stride == 1 and cin == cout
        self.skip = nn.Identity() if plain else conv_norm(cin, cout, 1, stride, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


class ResNet(nn.Module):
    """``depths`` blocks in each of four stages; ``inner`` is the bottleneck's width in the first
    (``None``: basic blocks)."""

    def __init__(
        self,
        depths: tuple[int, ...],
        inner: int | None = None,
        groups: int = 1,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        cin, stages = 64, []
        for stage, depth in enumerate(depths):
            cout = (64 if inner is None else 256) << stage
            width = None if inner is None else inner << stage
            blocks = []
            for index in range(depth):
                stride = 2 if stage and not index else 1
                blocks.append(ResidualBlock(cin, cout, stride, width, groups))
                cin = cout
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(cin, classes)

    def forward(self, x: Tensor) -> Tensor:  # (N, 3, H, W) -> (N, classes)
        x = self.stages(self.stem(x))
        return cast("Tensor", self.head(x.mean((2, 3))))


def resnet18() -> ResNet:
    return ResNet((2, 2, 2, 2))


def resnext101() -> ResNet:
    """32 groups of width 8."""
    return ResNet((3, 4, 23, 3), inner=256, groups=32)


class VGG16(nn.Module):
    """Simonyan and Zisserman 2014 (arXiv 1409.1556), configuration D."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        cin = 3
        for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(depth):
                layers += [nn.Conv2d(cin, width, 3, padding=1), nn.ReLU()]
                cin = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        dense = [nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout()]
        dense += [nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
        self.classifier = nn.Sequential(*dense, nn.Linear(4096, classes))

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.classifier(self.features(x).flatten(1)))


class SqueezeExcite(nn.Module):
    """Channel gates from the mean of each channel (Hu et al. 2017, arXiv 1709.01507)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))
        return x * gate


class InvertedResidual(nn.Module):
    """Expand, depthwise, (gate,) project; a skip where the shape stays."""

    def __init__(
        self, cin: int, kernel: int, expanded: int, cout: int, gate: bool, hard: bool, stride: int
    ) -> None:
        super().__init__()
        act = nn.Hardswish if hard else nn.ReLU
        parts = [conv_norm(cin, expanded, 1, activation=act)] if expanded != cin else []
        parts.append(conv_norm(expanded, expanded, kernel, stride, groups=expanded, activation=act))
        gates = [SqueezeExcite(expanded, _divisible(expanded / 4))] if gate else []
        self.body = nn.Sequential(*parts, *gates, conv_norm(expanded, cout, 1, activation=None))
        self.skip = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return x + y if self.skip else cast("Tensor", y)


def _divisible(channels: float, by: int = 8) -> int:
    """Nearest multiple, not more than 10% below."""
    near = max(by, int(channels + by / 2) // by * by)
    return near + by if near < 0.9 * channels else near


# kernel, expanded, out, gate, hard-swish, stride: table 1 of the paper.
_MOBILENET = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


class MobileNetV3(nn.Module):
    """MobileNetV3-large: Howard et al. 2019 (arXiv 1905.02244)."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 16, 3, 2, activation=nn.Hardswish)]
        cin = 16
        for kernel, expanded, cout, gate, hard, stride in _MOBILENET:
            layers.append(InvertedResidual(cin, kernel, expanded, cout, gate, hard, stride))
            cin = cout
        layers.append(conv_norm(cin, 960, 1, activation=nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(960, 1280), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1280, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.classifier(self.features(x).mean((2, 3))))
