"""Inception-v3 without the auxiliary classifier: Szegedy et al. 2015 (arXiv 1512.00567)."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

from .vision import conv_norm

Tensor = torch.Tensor


class Branches(nn.Module):
    """Branches side by side, their channels concatenated."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class _Mean3(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 3, stride=1, padding=1)


def _chain(cin: int, *steps: tuple[int, int | tuple[int, int]]) -> nn.Sequential:
    """Convolutions of (width, kernel) one after the other."""
    layers = []
    for width, kernel in steps:
        layers.append(conv_norm(cin, width, kernel))
        cin = width
    return nn.Sequential(*layers)


def _square(cin: int, pooled: int) -> Branches:  # 35 x 35
    return Branches(
        _chain(cin, (64, 1)),
        _chain(cin, (48, 1), (64, 5)),
        _chain(cin, (64, 1), (96, 3), (96, 3)),
        nn.Sequential(_Mean3(), conv_norm(cin, pooled, 1)),
    )


def _reduce_35(cin: int) -> Branches:  # 35 x 35 -> 17 x 17
    return Branches(
        conv_norm(cin, 384, 3, 2, padding=0),
        nn.Sequential(_chain(cin, (64, 1), (96, 3)), conv_norm(96, 96, 3, 2, padding=0)),
        nn.MaxPool2d(3, 2),
    )


def _factorised(width: int) -> Branches:  # 17 x 17
    row, column, cin = (1, 7), (7, 1), 768
    return Branches(
        _chain(cin, (192, 1)),
        _chain(cin, (width, 1), (width, row), (192, column)),
        _chain(cin, (width, 1), (width, column), (width, row), (width, column), (192, row)),
        nn.Sequential(_Mean3(), conv_norm(cin, 192, 1)),
    )


def _reduce_17() -> Branches:  # 17 x 17 -> 8 x 8
    seven = _chain(768, (192, 1), (192, (1, 7)), (192, (7, 1)))
    return Branches(
        nn.Sequential(conv_norm(768, 192, 1), conv_norm(192, 320, 3, 2, padding=0)),
        nn.Sequential(seven, conv_norm(192, 192, 3, 2, padding=0)),
        nn.MaxPool2d(3, 2),
    )


def _wide(cin: int) -> Branches:  # 8 x 8
    def fork() -> Branches:
        return Branches(conv_norm(384, 384, (1, 3)), conv_norm(384, 384, (3, 1)))

    return Branches(
        _chain(cin, (320, 1)),
        nn.Sequential(conv_norm(cin, 384, 1), fork()),
        nn.Sequential(_chain(cin, (448, 1), (384, 3)), fork()),
        nn.Sequential(_Mean3(), conv_norm(cin, 192, 1)),
    )


class InceptionV3(nn.Module):
    """(N, 3, 299, 299) -> (N, classes)."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, 32, 3, 2, padding=0),
            conv_norm(32, 32, 3, padding=0),
            conv_norm(32, 64, 3),
            nn.MaxPool2d(3, 2),
            conv_norm(64, 80, 1),
            conv_norm(80, 192, 3, padding=0),
            nn.MaxPool2d(3, 2),
        )
        self.mixed = nn.Sequential(
            *(_square(cin, pooled) for cin, pooled in ((192, 32), (256, 64), (288, 64))),
            _reduce_35(288),
            *(_factorised(width) for width in (128, 160, 160, 192)),
            _reduce_17(),
            *(_wide(cin) for cin in (1280, 2048)),
        )
        self.head = nn.Sequential(nn.Dropout(), nn.Linear(2048, classes))

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.head(self.mixed(self.stem(x)).mean((2, 3))))
