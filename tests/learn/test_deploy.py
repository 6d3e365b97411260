"""Networks at deployment: whole rounds without torch are the rounds that torch would write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rota.envs.book import new_book
from rota.envs.deploy import MOST_EDITS
from rota.envs.lens import new_arrays
from rota.envs.view import view_of_snapshot
from rota.learn.deploy import as_policy
from rota.run.loop import rounds
from rota.scenarios import load
from rota.sim import Simulator
from rota.systems.catalogue import system

ORIGINAL = {
    "ordinal": True, "rescale": False, "keep_capped": True, "mask_room": False, "bundle": False,
}  # fmt: skip


def made(lens: dict[str, Any], network: dict[str, Any], spread: float) -> tuple[Any, Any, Any]:
    """A system with random weights; with no spread all logits are equal."""
    kind = system("dl2")
    sees = kind.make_lens(kind.lens_settings(window=6, **lens))
    thinks = kind.make_network(kind.network_settings(**network), sees)
    generator = torch.Generator().manual_seed(1)
    for weights in thinks.parameters():
        torch.nn.init.normal_(weights, std=spread, generator=generator)
    return kind, sees, thinks


@pytest.mark.parametrize("spread", [0.0, 0.3], ids=["all equal", "random"])
@pytest.mark.parametrize(
    ("lens", "network"),
    [({"one_hot": True}, {"scale": True}), (ORIGINAL, {"layers": 1, "cluster": True})],
    ids=["mended", "original"],
)  # fmt: skip
def test_a_round_in_one_call_is_the_round_edit_by_edit(
    lens: dict[str, Any], network: dict[str, Any], spread: float
) -> None:
    kind, sees, thinks = made(lens, network, spread)
    policy = as_policy(kind, sees, thinks, "dl2")
    assert policy.play is not None
    world = load("dl2-busy").draw(0)
    sim = Simulator(world.cluster, world.trace, world.when, seed=0, physics=world.physics)
    edits = 0
    for turn in rounds(policy, sim):
        books = []
        for write in (policy.play, policy._edit):
            view = view_of_snapshot(turn.snapshot)
            book = new_book(1, len(turn.snapshot.jobs), sees.window)
            sees.open(view, book, np.ones(1, np.bool_))
            assert write(view, book, MOST_EDITS)
            books.append(book)
        for ours, torchs in zip(*books, strict=True):
            np.testing.assert_array_equal(ours, torchs)
        edits += int(books[0].edits[0])
        if turn.number == 30:
            break
    assert edits > 100


def test_logits_are_those_of_torch_but_for_rounding() -> None:
    _, sees, thinks = made({}, {}, 0.3)
    player = thinks.player(sees)
    world = load("dl2-busy").draw(1)
    sim = Simulator(world.cluster, world.trace, world.when, seed=1, physics=world.physics)
    sim.wait(np.inf)
    view = view_of_snapshot(sim.observe())
    book = new_book(1, view.jobs.shape[1], sees.window)
    seen = new_arrays(sees.observation_space, 1)
    sees.open(view, book, np.ones(1, np.bool_))
    sees.encode(view, book, seen)
    player(view, book, 1)
    with torch.inference_mode():
        logits, _ = thinks({name: torch.from_numpy(array) for name, array in seen.items()})
    np.testing.assert_allclose(player.logits, logits[0].numpy(), rtol=1e-5, atol=1e-5)
