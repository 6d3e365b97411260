"""Networks at deployment: whole rounds without torch are the rounds that torch would write."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rota.envs.book import new_book
from rota.envs.lens import new_arrays
from rota.envs.lens_policy import MOST_EDITS
from rota.envs.view import view_of_snapshot
from rota.errors import CheckpointError
from rota.learn import checkpoint
from rota.learn.deploy import as_policy, begin_with, load_network
from rota.learn.recipe_file import load_recipe
from rota.run.loop import rounds
from rota.scenarios import load
from rota.sim import Simulator
from rota.systems.registry import WEIGHTS, system

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ORIGINAL = {
    "ordinal": True, "rescale": False, "keep_capped": True, "mask_room": False, "bundle": False,
}  # fmt: skip


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mended": ({"one_hot": True}, {"scale": True}),
    "original": (ORIGINAL, {"layers": 1, "cluster": True}),
    "shared": ({}, {"kind": "shared"}),
    "shared, free": (
        {"least_first": False, "lengths": True, "one_hot": True, "most": 24},
        {"kind": "shared"},
    ),
    "shared, original": (ORIGINAL, {"kind": "shared", "width": 9}),
}
"""Settings of the lens and of the network."""


def made(form: str, spread: float, seed: int = 1) -> tuple[Any, Any, Any]:
    """A system with random weights; with no spread all logits are equal."""
    lens, network = FORMS[form]
    kind = system("dl2")
    sees = kind.make_lens(kind.lens_settings(window=6, **lens))
    thinks = kind.make_network(kind.network_settings(**network), sees)
    generator = torch.Generator().manual_seed(seed)
    for weights in thinks.parameters():
        torch.nn.init.normal_(weights, std=spread, generator=generator)
    return kind, sees, thinks


def played(scenario: str, seed: int, policy: Any, until: int) -> Iterator[Any]:
    """The snapshots of a policy's first rounds."""
    world = load(scenario).draw(seed)
    sim = Simulator(world.cluster, world.trace, world.when, seed=seed, physics=world.physics)
    for turn in islice(rounds(policy, sim), until):
        yield turn.snapshot


def written(snapshot: Any, lens: Any, write: Any, edits: int = MOST_EDITS) -> tuple[Any, Any, bool]:
    """View and book of a round after so many edits, and whether it has ended."""
    view, book = view_of_snapshot(snapshot), new_book(1, len(snapshot.jobs), lens.window)
    lens.open(view, book, np.ones(1, np.bool_))
    return view, book, write(view, book, edits)


def check_rounds(policy: Any, scenario: str, seed: int, until: int) -> int:
    """Compare rounds in one call with the same edit by edit; how many edits they took."""
    edits = 0
    assert policy.play is not None
    for snapshot in played(scenario, seed, policy, until):
        (_, ours, ended), (_, torchs, _) = (
            written(snapshot, policy.lens, write) for write in (policy.play, policy._edit)
        )
        assert ended
        for one, other in zip(ours, torchs, strict=True):
            np.testing.assert_array_equal(one, other)
        edits += int(ours.edits[0])
    return edits


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0], ids=["all equal", "random", "wild"])
@pytest.mark.parametrize("form", FORMS)
def test_a_round_in_one_call_is_the_round_edit_by_edit(form: str, spread: float) -> None:
    policy = as_policy(*made(form, spread), "dl2")
    assert check_rounds(policy, "dl2-busy", 0, 30) > 25


@pytest.mark.parametrize("form", ["mended", "shared"])
@pytest.mark.parametrize("scenario", ["dl2-template", "dl2-small-published", "elastic-unknown"])
def test_and_so_it_is_elsewhere_with_other_weights(scenario: str, form: str) -> None:
    assert sum(
        check_rounds(as_policy(*made(form, 0.3, seed), "dl2"), scenario, seed, 8)
        for seed in range(3)
    ) > 100  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_those_of_torch_but_for_rounding(form: str) -> None:
    _, sees, thinks = made(form, 0.3)
    player = thinks.player(sees)
    *_, snapshot = played("dl2-template", 1, as_policy(*made(form, 0.3), "dl2"), 15)
    _, book, _ = written(snapshot, sees, player)
    for edits in range(book.edits[0]):
        view, book, _ = written(snapshot, sees, player, edits)
        seen = new_arrays(sees.observation_space, 1)
        sees.encode(view, book, seen)
        with torch.inference_mode():
            logits, _ = thinks({name: torch.from_numpy(array) for name, array in seen.items()})
        written(snapshot, sees, player, edits + 1)
        scale = float(logits.abs().max())
        there = np.append(np.repeat(seen["present"][0] > 0, 3), True)
        np.testing.assert_allclose(
            player.logits[there], logits[0].numpy()[there], rtol=1e-5, atol=1e-5 * scale
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 2}, "version 2 of 'deepshare'.* this rota has version 1"),
        ({"version": None}, "version None of 'deepshare'"),
        ({"lens": {"name": "deepshare", "most": 16.5}}, r"\[lens\] most = 16.5 must be a whole"),
        ({"lens": {"name": "deepshare", "most": 0}}, r"\[lens\] lens.most=0 must be from 1"),
        ({"lens": {"name": "deepshare", "mots": 16}}, "mots"),
        ({"network": {"width": "64"}}, r"\[network\] width = '64' must be a whole number"),
        ({"network": 3}, "network must be a table"),
    ],
)
def test_a_checkpoint_with_settings_of_another_kind_is_refused(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    facts, weights = checkpoint.read(WEIGHTS / "deepshare.ckpt")
    path = tmp_path / "changed.ckpt"
    checkpoint.write(path, {**facts, **changes}, weights)
    with pytest.raises(CheckpointError, match=words):
        load_network(path)


def test_a_training_does_not_begin_with_weights_of_another_version(tmp_path: Path) -> None:
    facts, weights = checkpoint.read(WEIGHTS / "deepshare.ckpt")
    path = tmp_path / "changed.ckpt"
    checkpoint.write(path, {**facts, "version": 2}, weights)
    recipe = load_recipe("deepshare", [f"run.start={path}"])
    lens = recipe.built_by.make_lens(recipe.lens)
    network = recipe.built_by.make_network(recipe.network, lens)
    with pytest.raises(CheckpointError, match="version 2 of 'deepshare'"):
        begin_with(network, recipe.built_by.make_critic(recipe.network, lens), str(path), recipe)
