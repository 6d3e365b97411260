"""Small networks of many forms, for tests of growth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

CLASSES = 4


def norm_of(kind: str, units: int, dims: int) -> list[nn.Module]:
    """A norm over `units`, for tensors with `dims` axes of places; or none."""
    batch: list[Callable[..., nn.Module]] = [nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d]
    if kind == "batch":
        return [batch[dims](units)]
    if kind == "group":
        return [nn.GroupNorm(1 if units % 2 else 2, units)]
    if kind == "layer":  # over channels: as one group
        return [nn.LayerNorm(units) if dims == 0 else nn.GroupNorm(1, units)]
    return []


class Perceptron(nn.Sequential):
    """Linear layers."""

    def __init__(self, widths: list[int], norm: str, act: type[nn.Module], bias: bool) -> None:
        layers: list[nn.Module] = []
        for before, after in zip([5, *widths], widths, strict=False):
            layers += [nn.Linear(before, after, bias=bias), *norm_of(norm, after, 0), act()]
        super().__init__(*layers, nn.Linear(widths[-1], CLASSES))

    sample = (5,)


class Convolutions(nn.Module):
    """Convolutions of one or two dimensions, pooling, flatten or a mean, and linear layers."""

    def __init__(
        self,
        widths: list[int],
        norm: str,
        act: type[nn.Module],
        bias: bool,
        dims: int = 2,
        end: str = "flatten",
        kernel: int = 3,
    ) -> None:
        super().__init__()
        conv: Any = nn.Conv2d if dims == 2 else nn.Conv1d
        self.sample = (2, *(8,) * dims)
        layers: list[nn.Module] = []
        for before, after in zip([2, *widths], widths, strict=False):
            layers += [conv(before, after, kernel, padding=kernel // 2, bias=bias)]
            layers += [*norm_of(norm, after, dims), act()]
        pool: Any = nn.MaxPool2d if dims == 2 else nn.AvgPool1d
        self.features = nn.Sequential(*layers, pool(2))
        self.end, self.dims = end, dims
        with torch.no_grad():
            size = self.features.eval()(torch.zeros(1, *self.sample)).shape[1:].numel()
        self.train()
        self.head = nn.Sequential(
            nn.Linear(size if end != "mean" else widths[-1], 6), act(), nn.Linear(6, CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        if self.end == "mean":
            x = x.mean(dim=(2, 3) if self.dims == 2 else 2)
        elif self.end == "view":
            x = x.view(x.size(0), -1)
        elif self.end == "fixed":
            x = x.reshape(-1, self.head[0].in_features)
        else:
            x = torch.flatten(x, 1)
        return self.head(x)  # type: ignore[no-any-return]


class Block(nn.Module):
    """A residual block, with a convolution beside it where the width changes."""

    def __init__(self, before: int, after: int, norm: str, act: type[nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=norm == "none")
        self.norm1 = nn.Sequential(*norm_of(norm, after, 2))
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=norm == "none")
        self.norm2 = nn.Sequential(*norm_of(norm, after, 2))
        self.act = act()
        self.beside = None if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        y = y + (x if self.beside is None else self.beside(x))
        return self.act(y)  # type: ignore[no-any-return]


class Residual(nn.Module):
    """Residual blocks behind a convolution."""

    sample = (2, 6, 6)

    def __init__(self, widths: list[int], norm: str, act: type[nn.Module], bias: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, widths[0], 3, padding=1, bias=bias)
        pairs = zip([widths[0], *widths], widths, strict=False)
        self.blocks = nn.Sequential(*(Block(a, b, norm, act) for a, b in pairs))
        self.fc = nn.Linear(widths[-1], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.stem(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))  # type: ignore[no-any-return]


class Branching(nn.Module):
    """Branches that are joined side by side, a gate, and a depthwise convolution."""

    sample = (2, 6, 6)

    def __init__(self, widths: list[int], norm: str, act: type[nn.Module], bias: bool) -> None:
        super().__init__()
        a, b = widths[0], widths[-1]
        self.left = nn.Sequential(nn.Conv2d(2, a, 1, bias=bias), *norm_of(norm, a, 2), act())
        self.right = nn.Sequential(nn.Conv2d(2, b, 3, padding=1), *norm_of(norm, b, 2), act())
        self.depthwise = nn.Conv2d(a, 2 * a, 3, padding=1, groups=a)
        self.both = nn.Conv2d(2 * a + b, 5, 1)
        self.squeeze = nn.Linear(5, 3)
        self.excite = nn.Linear(3, 5)
        self.act = act()
        self.fc = nn.Linear(5 * 9, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.depthwise(self.left(x)), self.right(x)], dim=1)
        x = self.act(self.both(x))
        gate = torch.sigmoid(self.excite(self.act(self.squeeze(x.mean((2, 3))))))
        x = x * gate.unsqueeze(-1).unsqueeze(-1)
        return self.fc(torch.flatten(F.max_pool2d(x, 2), 1))  # type: ignore[no-any-return]


def digits_like(seed: int, sample: tuple[int, ...], count: int = 24) -> tuple[Tensor, Tensor]:
    """Inputs, and classes that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *sample, generator=generator)
    return x, (x.flatten(1)[:, :CLASSES]).argmax(1)
