"""Random networks: short programs over tensors, in the ways in which people write them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SAMPLE = (3, 6)
"""Channels and length of what a program is given."""
_ACTIVE: list[Callable[[Tensor], Tensor]] = [
    F.relu,
    F.gelu,
    torch.tanh,
    lambda h: h.sigmoid(),
    lambda h: F.leaky_relu(h, 0.1),
    lambda h: h.clone().relu_(),
    lambda h: F.relu6(h + 1),
    lambda h: F.hardswish(h, inplace=False),
    lambda h: 1 / (1 + h.square()),
    lambda h: h.clamp(-1, 1),
]


class Program(nn.Module):
    """A network that does one thing after another; some of it with earlier results."""

    def __init__(self, seed: int, length: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList()
        self.weights = nn.ParameterList()
        self.steps: list[tuple[str, Callable[..., Any]]] = []
        self.sequences, self.rows = [SAMPLE], list[int]()
        self._random = random.Random(seed)
        torch.manual_seed(seed)
        for _ in range(length):
            step = self._random.choice([self._layer, self._layer, self._norm, self._way])
            step()
        self._end()

    # Each step takes the list of all results so far (channels first), and gives one more.

    def _pick(self) -> tuple[int, int, int]:
        last = len(self.sequences) - 1
        number = last if self._random.random() < 0.7 else self._random.randint(0, last)
        return number, *self.sequences[number]

    def _add(self, name: str, shape: tuple[int, int], run: Callable[..., Any]) -> None:
        self.steps.append((name, run))
        self.sequences.append(shape)

    def _part(self, part: nn.Module) -> int:
        self.parts.append(part)
        return len(self.parts) - 1

    def _layer(self) -> None:
        i, channels, length = self._pick()
        units = self._random.choice([1, 2, 4, 4, 6])
        kind = self._random.choice(
            [
                "conv",
                "conv",
                "point",
                "depthwise",
                "grouped",
                "linear",
                "mixed",
                "transposed",
                "again",
            ]
        )
        if kind == "linear":
            p = self._part(nn.Linear(length, units, bias=self._random.random() < 0.7))
            self._add(kind, (channels, units), lambda s, v: s.parts[p](v[i]))
        elif kind == "mixed":
            p = self._part(nn.Linear(channels, units))
            self._add(kind, (units, length), lambda s, v: s.parts[p](v[i].transpose(1, 2)).mT)
        elif kind == "again" and channels == length:
            p = self._part(nn.Linear(length, length))
            self._add(kind, (channels, length), lambda s, v: s.parts[p](s.parts[p](v[i])))
        elif kind == "transposed":
            p = self._part(nn.ConvTranspose1d(channels, units, 1))
            self._add(kind, (units, length), lambda s, v: s.parts[p](v[i]))
        else:
            groups = 1
            if kind == "depthwise":
                groups, units = channels, channels * self._random.choice([1, 2])
            elif kind == "grouped" and channels % 2 == 0:
                groups, units = 2, 4
            width = 1 if kind == "point" else min(3, length)
            pad = self._random.choice(["same", 0]) if width > 1 else 0
            p = self._part(nn.Conv1d(channels, units, width, padding=pad, groups=groups))
            after = length if pad else length - width + 1
            self._add(kind, (units, after), lambda s, v: s.parts[p](v[i]))

    def _norm(self) -> None:
        i, channels, length = self._pick()
        groups = self._random.choice([g for g in (1, 2, 3, 4) if channels % g == 0])
        whole = nn.LayerNorm([channels, length])
        norms = [nn.BatchNorm1d(channels)] * 3 + [nn.GroupNorm(groups, channels), whole]
        norms += [nn.PReLU(channels), nn.PReLU(), nn.LayerNorm(length), nn.ReLU(inplace=True)]
        if length > 1:
            norms.append(nn.InstanceNorm1d(channels, affine=True))
        norm = self._random.choice(norms)
        if isinstance(norm, nn.BatchNorm1d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
        copied = isinstance(norm, nn.ReLU)
        p = self._part(norm)
        self._add(
            type(norm).__name__,
            (channels, length),
            lambda s, v: s.parts[p](v[i].clone() if copied else v[i]),
        )

    def _way(self) -> None:
        i, c, n = self._pick()
        same = [j for j, shape in enumerate(self.sequences) if shape == (c, n)]
        j = self._random.choice(same)
        others = [k for k, (_, length) in enumerate(self.sequences) if length == n]
        k = self._random.choice(others)
        act = self._random.choice(_ACTIVE)
        q = len(self.weights)
        ways: list[tuple[str, tuple[int, int], Callable[..., Any]]] = [
            ("act", (c, n), lambda _, v: act(v[i])),
            ("act", (c, n), lambda _, v: act(v[i])),
            ("add", (c, n), lambda _, v: v[i] + v[j]),
            ("add", (c, n), lambda _, v: torch.add(v[i], v[j], alpha=0.5)),
            ("mul", (c, n), lambda _, v: v[i] * torch.sigmoid(v[j])),
            ("max", (c, n), lambda _, v: torch.maximum(v[i], v[j])),
            ("gate", (c, n), lambda _, v: v[i] * v[j].mean(2, keepdim=True)),
            ("gate2", (c, n), lambda _, v: v[i] * v[j].mean(-1).unsqueeze(-1).tanh()),
            ("over", (c, n), lambda _, v: v[i] - v[j].mean(1, keepdim=True)),
            ("over batch", (c, n), lambda _, v: v[i] - v[j].mean(0)),
            ("weight", (c, n), lambda s, v: v[i] * s.weights[q]),
            ("scalar", (c, n), lambda s, v: v[i] * s.weights[q].exp()),
            ("cat", (c + self.sequences[k][0], n), lambda _, v: torch.cat([v[i], v[k]], 1)),
            ("softmax", (c, n), lambda _, v: v[i].softmax(-1)),
            ("softmax units", (c, n), lambda _, v: F.softmax(v[i], 1)),
            ("turn", (n, c), lambda _, v: v[i].permute(0, 2, 1).contiguous()),
            ("norm", (c, n), lambda _, v: F.normalize(v[i], dim=1)),
            ("flat", (c * n, 1), lambda _, v: v[i].flatten(1).unsqueeze(2)),
            ("flat2", (1, c * n), lambda _, v: v[i].reshape(v[i].size(0), 1, -1)),
            ("view", (c * n, 1), lambda _, v: v[i].reshape(-1, c * n, 1)),
            ("rows", (n, c), lambda _, v: v[i].reshape(-1, n).view(-1, c, n).mT),
            ("pool", (c, n), lambda _, v: F.max_pool1d(v[i], 3, 1, 1)),
            ("mean", (c, 1), lambda _, v: v[i].mean(dim=-1, keepdim=True)),
            ("attend", (c, n), lambda _, v: (v[i] @ v[j].mT).softmax(-1) @ v[i]),
            ("ein", (c, n), lambda _, v: torch.einsum("bcn,bcn->bcn", v[i], v[j])),
            ("width", (c, n), lambda _, v: v[i] / v[i].shape[1] ** 0.5),
            ("length", (c, n), lambda _, v: v[i] / v[i].shape[2] ** 0.5),
            ("in place", (c, n), lambda _, v: v[i].clone().add_(v[j]).mul_(0.5)),
        ]
        if c % 2 == 0:
            ways += [
                (
                    "shuffle",
                    (c, n),
                    lambda _, v: v[i].reshape(-1, 2, c // 2, n).transpose(1, 2).reshape(-1, c, n),
                ),
                ("half", (c // 2, n), lambda _, v: (lambda a, b: a * b)(*v[i].chunk(2, 1))),
                ("slice", (c // 2, n), lambda _, v: v[i][:, ::2]),
            ]
        name, shape, run = self._random.choice(ways)
        if shape[0] * shape[1] > 64:
            return
        if name in ("weight", "scalar"):
            one = (1, 1) if name == "scalar" or self._random.random() < 0.5 else (c, 1)
            self.weights.append(nn.Parameter(0.5 + torch.rand(one)))
        self._add(name, shape, run)

    def _end(self) -> None:
        i, (channels, length) = len(self.sequences) - 1, self.sequences[-1]
        if self._random.random() < 0.5:
            p = self._part(nn.Linear(channels, 3))
            self.steps.append(("end", lambda s, v: s.parts[p](v[i].mean(2))))
        else:
            p = self._part(nn.Linear(channels * length, 3))
            self.steps.append(("end", lambda s, v: s.parts[p](v[i].flatten(1))))

    def forward(self, x: Tensor) -> Tensor:
        """What the last step gives."""
        values = [x]
        for _, run in self.steps:
            values.append(run(self, values))
        return values[-1]
