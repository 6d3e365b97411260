"""Tiny trainings with a fixed seed give what they gave before: learners are rebuilt, results stay.

The numbers were written down when rollouts were tables with a place for every job of a window.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from small_training import small_trainer

if TYPE_CHECKING:
    from rota.learn.training_report import Report

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "golden" / "trainings.json").read_text()
)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_training_gives_what_it_gave(name: str, tmp_path: Path) -> None:
    wanted, found = GOLDEN[name], []

    def watch(report: Report) -> None:
        if report.phase == "rl":
            found.append(dict(report.facts))

    training = small_trainer(
        tmp_path, system=wanted["system"], tables=wanted["tables"], watcher=watch
    )
    training.run()
    for ours, theirs in zip(found, wanted["facts"], strict=True):
        assert {key: ours[key] for key in theirs} == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    sums = [
        float(part.detach().double().abs().sum())
        for one in (training.network, training.critic)
        for part in one.parameters()
    ]
    assert sums == pytest.approx(wanted["weights"], rel=1e-5)
