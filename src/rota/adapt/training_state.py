"""The state of an optimizer as named arrays, so that a training can be resumed without a pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from rota.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

_MOMENTS: Final = ("exp_avg", "exp_avg_sq")


def adam_arrays(adam: torch.optim.Adam, network: nn.Module) -> dict[str, NDArray[Any]]:
    """What Adam keeps of a network's parameters, by their names."""
    names = _learned(network)
    return {
        f"adam.{what}.{names[index]}": value.numpy().copy()
        for index, moments in adam.state_dict()["state"].items()
        for what, value in moments.items()
    }


def restore_adam(
    adam: torch.optim.Adam, network: nn.Module, arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Give Adam what `adam_arrays` took; a KeyError or ValueError where that does not fit."""
    state = adam.state_dict()
    shapes = {name: tuple(weight.shape) for name, weight in network.named_parameters()}
    for index, name in enumerate(_learned(network)):
        found = {what: arrays[f"adam.{what}.{name}"] for what in ("step", *_MOMENTS)}
        if any(found[what].shape != shapes[name] for what in _MOMENTS):
            raise ValueError(name)
        state["state"][index] = {w: torch.from_numpy(x.copy()) for w, x in found.items()}
    adam.load_state_dict(state)


def check_same(path: Path, facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse the state of another training than the one that goes on."""
    for what, mine in wanted.items():
        if facts.get(what) != mine:
            raise CheckpointError(
                f"{path}: The training has the {what} {facts.get(what)!r}, not {mine!r}; go on "
                "with the same, or begin another training."
            )


def _learned(network: nn.Module) -> list[str]:
    return [name for name, weight in network.named_parameters() if weight.requires_grad]
