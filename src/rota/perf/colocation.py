"""Jobs that share a GPU or a machine, after Gavel's measurements of pairs on one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.speed import MACHINES, Contention
from rota.errors import ConfigError, InputError
from rota.perf.hetero import job_name
from rota.perf.physics import Drift
from rota.perf.sharing import fit_ranks
from rota.perf.shipped import chosen, shipped

if TYPE_CHECKING:
    from rota.core.speed import Curves
    from rota.core.types import Floats
    from rota.perf.profile_file import Profile

FLOOR: Final = 0.1
"""No job falls below this part of its speed, whatever the number of jobs on its machine."""
MACHINE_DRIFT: Final = Drift(sd=0.1)
"""Half of Alibaba's jobs have step times with a coefficient of variation above .10; a log-normal
with that coefficient has a standard deviation of √log(1 + .1²) = .0998 in its logarithm."""
_EPOCHS: Final = 2000
_MARGIN: Final = 0.02


def pair_table(pairs: Profile, solo: Profile, gpu: str) -> tuple[tuple[str, ...], Floats]:
    """Speed of each job type beside each other one, as part of its speed alone, (K, K).

    0 where the two cannot share a GPU, NaN where they were not tried.
    """
    alone = {
        job_name(family, batch): speed
        for family, batch, speed in zip(
            *(solo.of(gpu=gpu, consolidated=1, num_gpus=1)[key]
              for key in ("job_type", "batch_size", "steps_per_s")), strict=True,
        )
    }  # fmt: skip
    names = tuple(alone)
    place = {name: k for k, name in enumerate(names)}
    ratio = np.full((len(names), len(names)), np.nan)
    rows = pairs.of(gpu=gpu, num_gpus_a=1, num_gpus_b=1)
    keys = ("job_type_a", "job_type_b", "steps_per_s_a", "steps_per_s_b")
    for line, a, b, speed_a, speed_b in zip(
        rows.line, *(rows[key].tolist() for key in keys), strict=True
    ):
        strange = [name for name in (a, b) if name not in place]
        if strange:
            raise InputError(
                f"{rows.file}, row {line}: {strange[0]!r} has no speed of its own on {gpu}; "
                "without one its slowdown cannot be told."
            )
        ratio[place[a], place[b]] = speed_a / alone[a]
        ratio[place[b], place[a]] = speed_b / alone[b]
    return names, ratio


def fit_memory(ratio: Floats) -> Floats:
    """Part of a GPU's memory each job type seems to need, (K,): two fit if they add up to ≤ 1.

    A perceptron on which pairs were seen to fit; it only has to separate the two cases.
    """
    need = np.full(len(ratio), 0.4)
    want = np.where(ratio > 0, -1.0, 1.0) * np.isfinite(ratio)
    for epoch in range(_EPOCHS):
        total = need[:, None] + need[None, :]
        wrong = np.where(want > 0, total < 1 + _MARGIN, total > 1 - _MARGIN) & (want != 0)
        if not wrong.any():
            break
        need = need + 0.02 / (1 + epoch / 100) * (want * wrong).sum(axis=1) / len(need)
        need = np.clip(need, 0.0, 1.0)
    return need


def pair_speed(gpu: str) -> tuple[tuple[str, ...], Floats]:
    """Fitted speed of each job type beside each other one on a GPU type; 0: they do not fit."""
    known = shipped("colocation")
    (gpu,) = chosen("GPU type with measured pairs", [gpu], known)
    names = tuple(known[gpu])
    hurt, harm, need = (
        np.array([known[gpu][name][key] for name in names]) for key in ("hurt", "harm", "memory")
    )
    left = np.clip(1 - np.outer(hurt, harm), 0.05, 1.0)
    return names, np.where(need[:, None] + need[None, :] <= 1.0, left, 0.0)


def fit_load(ratio: Floats) -> Floats:
    """One number per job type, (K,), whose products come closest to what pairs lose."""
    known = ratio > 0
    lost = np.where(known, 1 - ratio, 0.0)
    both = known & known.T
    hurt, harm = fit_ranks((lost + lost.T) / 2, both)
    return np.sqrt(np.maximum(hurt * harm, 0.0))


def machine_contention(
    curves: Curves | None = None, *, gpu: str = "v100", strength: float = 1.0
) -> Contention:
    """Each job on a machine slows the other jobs there, the more of the machine it holds.

    A job's speed is multiplied by 1 − strength · load_i · load_j · (part of the GPUs that j holds)
    for each neighbour j. At strength 1 a neighbour that holds the whole machine weighs as much as
    one that shares a job's GPU in Gavel's pairs; jobs of other models have the typical load.
    """
    if not 0 <= strength <= 1:
        raise ConfigError(f"strength={strength} must lie in 0 … 1.")
    known = shipped("colocation")
    (gpu,) = chosen("GPU type with measured pairs", [gpu], known)
    typical = float(np.median([job["load"] for job in known[gpu].values()]))
    names = curves.names if curves is not None else ()
    load = [known[gpu][name]["load"] if name in known[gpu] else typical for name in names]
    shape = curves.speed.shape[2:] if curves is not None else (2, 2)
    kind = np.empty((len(names) + 1, *shape), np.int64)
    kind[:] = np.arange(len(names) + 1)[:, None, None]
    u = np.sqrt(strength) * np.array([*load, typical])
    none = np.zeros(len(u))
    return Contention(
        MACHINES, kind, np.zeros((0, 0)), u, u, FLOOR, none, none, np.zeros(0), np.zeros(0), np.inf
    )  # fmt: skip
