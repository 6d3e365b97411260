"""Start networks: small ones whose narrow place lies in front, at the back, or nowhere.

Each has three blocks, as the published ones have: two hidden layers and the last one. Which block
is worth growing depends on the network, so no constant answer is right for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

import torch
from torch import nn

from rota.adapt.growth import Growth
from rota.adapt.tasks import TASKS
from rota.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.adapt.growth import Form
    from rota.adapt.tasks import LearningTask


@dataclass(frozen=True)
class StartNetwork:
    """A network before it grows, and what it learns."""

    name: str
    task: LearningTask
    about: str
    make: Callable[[], nn.Module]
    blocks: tuple[str, str, str]
    """Names of the layers that an agent may choose, in order."""
    held_out: bool = False
    """No agent learns on it."""
    published: bool = field(default=False)
    """It is there for comparison with the published tables only."""

    def build(self, seed: int) -> nn.Module:
        """The network with the first weights of a seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make()


Menu = Literal["published", "deepen", "all"]
"""What an agent may choose among: the published four choices as they were, which put an identity
behind a block; the same in the form that keeps the function; or growth of every kind."""


def growths(start: StartNetwork, menu: Menu) -> tuple[Growth | None, ...]:
    """The choices of a menu on a start network; the last is to leave it as it is."""
    if menu not in get_args(Menu):
        raise ConfigError(f"There is no menu {menu!r}, but {', '.join(get_args(Menu))}.")
    form: Form = "identity" if menu == "published" else ""
    deeper = [Growth("deepen", layer, form=form) for layer in start.blocks]
    wider = [Growth("widen", layer) for layer in start.blocks[:2]] if menu == "all" else []
    return (*deeper, *wider, None)


class ResidualImages(nn.Module):
    """Convolutions with a way around the second one."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width)
        self.second, self.norm2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.last = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = torch.relu(self.norm1(self.first(images)))
        found = nn.functional.max_pool2d(found, 2)
        found = torch.relu(found + self.norm2(self.second(found)))
        result: torch.Tensor = self.last(found.mean((2, 3)))
        return result


class ResidualSignals(nn.Module):
    """Convolutions over a signal with a way around the second one."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv1d(1, width, 5, padding=2), nn.BatchNorm1d(width)
        self.second, self.norm2 = nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width)
        self.last = nn.Linear(width, classes)

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        found = torch.relu(self.norm1(self.first(signals)))
        found = nn.functional.max_pool1d(found, 2)
        found = torch.relu(found + self.norm2(self.second(found)))
        result: torch.Tensor = self.last(found.mean(2))
        return result


class ResidualPoints(nn.Module):
    """Linear layers with a way around the second one."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, width)
        self.last = nn.Linear(width, classes)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        found = torch.relu(self.first(points))
        result: torch.Tensor = self.last(torch.relu(found + self.second(found)))
        return result


def _images(front: int, back: int, classes: int = 10) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Conv2d(1, front, 3, padding=1), nn.BatchNorm2d(front), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(front, back, 3, padding=1), nn.BatchNorm2d(back), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(back, classes),
    )  # fmt: skip


def _published(width: int, *, clamped: bool) -> Callable[[], nn.Module]:
    """The published CNN#1, narrower; `clamped` is its ReLU behind the last layer (B2)."""
    return lambda: nn.Sequential(
        nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(width, width, 3), nn.BatchNorm2d(width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10), *[nn.ReLU()] * clamped,
    )  # fmt: skip


def _signals(front: int, back: int, classes: int = 12) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Conv1d(1, front, 5, padding=2), nn.BatchNorm1d(front), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(front, back, 5, padding=2), nn.BatchNorm1d(back), nn.ReLU(),
        nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(2 * back, classes),
    )  # fmt: skip


def _points(inputs: int, front: int, back: int, classes: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Linear(inputs, front), nn.ReLU(), nn.Linear(front, back), nn.ReLU(),
        nn.Linear(back, classes),
    )  # fmt: skip


def _flat(front: int, back: int, classes: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, front), nn.ReLU(), nn.Linear(front, back), nn.ReLU(),
        nn.Linear(back, classes),
    )  # fmt: skip


_CONVS: Final = ("0", "4", "9")
_LINEARS: Final = ("0", "2", "4")
_DIGITS, _SPIRALS, _TEACHER, _WAVES = (
    TASKS[name] for name in ("digits", "spirals", "teacher", "waves")
)
_new = StartNetwork
STARTS: Final = {
    start.name: start
    for start in (
        _new("digits-front", _DIGITS, "narrow in front: 2 and 8", _images(2, 8), _CONVS),
        _new("digits-back", _DIGITS, "narrow at the back: 8 and 2", _images(8, 2), _CONVS),
        _new("spirals-even", _SPIRALS, "16 and 16 units", _points(2, 16, 16, 3), _LINEARS),
        _new("teacher-front", _TEACHER, "4 and 16 units", _points(4, 4, 16, 8), _LINEARS),
        _new("teacher-back", _TEACHER, "16 and 4 units", _points(4, 16, 4, 8), _LINEARS),
        _new("waves-even", _WAVES, "4 and 4 channels", _signals(4, 4), _CONVS),
        _new("digits-wide", _DIGITS, "8 and 8 channels", _images(8, 8), _CONVS),
        _new("digits-flat", _DIGITS, "no convolutions: 8 and 8 units", _flat(8, 8, 10),
              ("1", "3", "5")),
        _new("spirals-back", _SPIRALS, "24 and 6 units", _points(2, 24, 6, 3), _LINEARS),
        _new("spirals-narrow", _SPIRALS, "10 and 10 units", _points(2, 10, 10, 3), _LINEARS),
        _new("teacher-narrow", _TEACHER, "6 and 6 units", _points(4, 6, 6, 8), _LINEARS),
        _new("teacher-wide", _TEACHER, "16 and 16 units", _points(4, 16, 16, 8), _LINEARS),
        _new("teacher-residual", _TEACHER, "10 units and a way around",
              lambda: ResidualPoints(4, 10, 8), ("first", "second", "last")),
        _new("waves-wide", _WAVES, "8 and 6 channels", _signals(8, 6), _CONVS),
        _new("waves-narrow", _WAVES, "3 and 5 channels", _signals(3, 5), _CONVS),
        _new("digits-even", _DIGITS, "4 and 4 channels", _images(4, 4), _CONVS, True),
        _new("digits-residual", _DIGITS, "4 channels and a way around",
              lambda: ResidualImages(4, 10), ("first", "second", "last"), held_out=True),
        _new("spirals-front", _SPIRALS, "8 and 24 units", _points(2, 8, 24, 3), _LINEARS, True),
        _new("teacher-even", _TEACHER, "8 and 8 units", _points(4, 8, 8, 8), _LINEARS, True),
        _new("waves-front", _WAVES, "2 and 8 channels", _signals(2, 8), _CONVS, True),
        _new("waves-back", _WAVES, "8 and 2 channels", _signals(8, 2), _CONVS, True),
        _new("digits-narrow", _DIGITS, "3 and 3 channels", _images(3, 3), _CONVS, True),
        _new("digits-flat-front", _DIGITS, "no convolutions: 4 and 12 units", _flat(4, 12, 10),
             ("1", "3", "5"), True),
        _new("spirals-wide", _SPIRALS, "20 and 20 units", _points(2, 20, 20, 3), _LINEARS, True),
        _new("spirals-residual", _SPIRALS, "14 units and a way around",
             lambda: ResidualPoints(2, 14, 3), ("first", "second", "last"), held_out=True),
        _new("teacher-tilted", _TEACHER, "5 and 14 units", _points(4, 5, 14, 8), _LINEARS, True),
        _new("waves-residual", _WAVES, "4 channels and a way around",
             lambda: ResidualSignals(4, 12), ("first", "second", "last"), held_out=True),
        _new("cnn1", _DIGITS, "the published CNN#1 at an eighth of its width",
              _published(4, clamped=False), _CONVS, published=True),
        _new("cnn1-clamped", _DIGITS, "the same with its ReLU behind the last layer",
              _published(4, clamped=True), _CONVS, published=True),
    )
}  # fmt: skip


def start(name: str) -> StartNetwork:
    """The start network called so."""
    if name not in STARTS:
        raise UnknownNameError("start network", name, STARTS)
    return STARTS[name]
