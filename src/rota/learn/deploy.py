"""Checkpoints as policies, what was trained is what runs; and as where training begins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rota.envs import LensPolicy
from rota.errors import CheckpointError, ConfigError, InputError, UnknownNameError
from rota.learn import checkpoint
from rota.learn.inference import infer
from rota.learn.lens_reader import LensReader
from rota.learn.recipe_file import Where, filled
from rota.plugins import OURS, canonical
from rota.systems.registry import LEARNED, trained

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import nn

    from rota.core.seams import Policy
    from rota.learn.recipe import Recipe
    from rota.policies.settings import Setting
    from rota.systems.registry import System


def load_policy(path: Path, name: str = "", settings: Mapping[str, Any] | None = None) -> Policy:
    """The policy whose weights are in a checkpoint; it always takes the likeliest actions.

    `settings` are of those that the system lets be set where it is used.
    """
    return as_policy(*load_network(path, settings), name or path.name)


def settings_at_use(path: Path) -> Mapping[str, Setting]:
    """What may be set of a checkpoint's policy."""
    found = checkpoint.load(path)
    kind = _system_of(found)
    return kind.at_use(_filled(kind.network_settings, found.about.network, path, "network"))


def _filled(settings: type[Any], table: Any, path: Path, name: str) -> Any:
    """Settings as a checkpoint has them."""
    try:
        return filled(settings, {name: table}, Where(str(path)), name)
    except ConfigError as error:
        raise CheckpointError(str(error)) from None


def load_network(
    path: Path, settings: Mapping[str, Any] | None = None
) -> tuple[System, Any, nn.Module]:
    """What a checkpoint holds: its system, its lens, with other settings if given, and network."""
    found = checkpoint.load(path)
    kind = _system_of(found)
    found.expect(lens=kind.name)
    found.expect_version(kind.version)
    seen = {key: value for key, value in found.about.lens.items() if key != "name"}
    seen |= settings or {}
    lens = kind.make_lens(_filled(kind.lens_settings, seen, path, "lens"))
    form = _filled(kind.network_settings, found.about.network, path, "network")
    network = kind.make_network(form, lens)
    found.player().fill(network)
    return kind, lens, network


def _system_of(found: checkpoint.Checkpoint) -> System:
    """The system that a checkpoint was trained for, by name, from the package that it names."""
    name, package = found.about.system, str(found.about.package)
    if name not in LEARNED:
        missing = (
            f"Known: {', '.join(LEARNED.names())}." if package == OURS
            else f"It comes from the package {package!r}: pip install {package}."
        )  # fmt: skip
        raise CheckpointError(f"{found.file}: No learned system is called {name!r}. {missing}")
    here = LEARNED.package(name)
    if canonical(here) != canonical(package):
        raise CheckpointError(
            f"{found.file}: The checkpoint was trained for {name!r} of the package {package!r}, "
            f"but {name!r} comes from {here!r} here: pip install {package}, and uninstall {here}."
        )
    try:
        return LEARNED.get(name)
    except InputError as error:
        raise CheckpointError(f"{found.file}: {error}") from None


def as_policy(kind: System, lens: Any, network: Any, name: str) -> LensPolicy:
    """A network as it is now, as a policy."""
    network.eval()
    act = _actor(LensReader(lens, kind.agents), network)
    play = network.player(lens) if hasattr(network, "player") else None
    return LensPolicy(lens, act, name, play)


def begin_with(network: nn.Module, critic: nn.Module, name: str, recipe: Recipe) -> None:
    """Let training begin with the weights of a checkpoint, `PATH.ckpt` or one that rota ships."""
    path = Path(name) if name.endswith(".ckpt") else trained().get(name)
    if path is None:
        raise UnknownNameError("trained policy (or PATH.ckpt)", name, trained())
    found = checkpoint.load(path, lens=recipe.system, system=recipe.system)
    found.expect_version(recipe.built_by.version)
    here = recipe.facts()
    for table, theirs in (("lens", found.about.lens), ("network", found.about.network)):
        for key, own in here[table].items():
            if theirs.get(key, own) != own:
                raise CheckpointError(
                    f"{path}: The checkpoint was trained with {table}.{key} = {theirs[key]!r}, "
                    f"not {own!r}; go on with --set {table}.{key}={theirs[key]}."
                )
    found.player().fill(network)
    judges = found.critic()
    if judges.weights:
        judges.fill(critic)


def _actor(reader: LensReader, network: Any) -> Callable[..., NDArray[Any]]:
    def act(seen: Any, mask: Any, view: Any, book: Any) -> NDArray[Any]:
        torch.set_num_threads(1)  # one cluster is too little for two, and others need them
        logits = infer(network, reader.states(seen, book.rows))
        return reader.choose(view, book, seen, mask, logits, None).actions

    return act
