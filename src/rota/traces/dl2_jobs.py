"""DL2's workloads (Peng et al., 2021): eight kinds of parameter-server jobs, by slots or Poisson.

What a job gains from its servers and workers is not known here: the speed of each kind at the
size it asks for is handed in, and turns work in samples into a run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import ConfigError
from rota.traces.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats, Ints


@dataclass(frozen=True)
class Kind:
    """One of DL2's eight kinds of job."""

    model: str
    batches: int
    """In an epoch."""
    batch: int
    """Samples in a batch."""
    on_gpus: bool
    """Whether a worker holds a GPU; the others compute on CPUs."""
    epochs: float
    """Part of the longest job's epochs, where lengths are `normal`."""
    minutes: float
    """Length of its stand-in among Alibaba's jobs, the longest being LONGEST_MIN."""
    weight: float
    """How often Alibaba's users submitted such a job."""


KINDS: Final = (
    Kind("resnet-50", 115, 32, True, 0.30, 35, 0.6812080536912751),
    Kind("vgg-16", 115, 32, True, 0.96, 180, 0.15962740106456838),
    Kind("resnext-110", 390, 128, True, 0.05, 300, 0.054096274010645685),
    Kind("inception-bn", 120, 128, True, 0.54, 436, 0.024704929414487386),
    Kind("seq2seq", 780, 64, True, 0.95, 559, 0.02048137005322842),
    Kind("cnn-text-classification", 193, 50, False, 0.46, 679, 0.018051376996065724),
    Kind("dssm", 349, 256, False, 0.33, 806, 0.012959962971534367),
    Kind("wlm", 165, 160, True, 0.23, 1155, 0.02887063179819486),
)
MODELS: Final = tuple(kind.model for kind in KINDS)
LONGEST_MIN: Final = 1155
USUAL_BATCH: Final = 32
"""Of the two kinds that make up 84 % of Alibaba's jobs; see `Slots.units`."""
CPUS_PER_TASK: Final = 2.0
REQUEST: Final = 2
"""Workers, and servers, that a job asks for; it takes anything from 1 of each upwards."""
MINUTE_S: Final = 60.0
SHIFTS: Final = 5

# Jobs per slot of a day at Alibaba, and of one at Google clipped to at most 3 per slot.
_ALI: Final = (
    23, 8, 10, 13, 24, 21, 17, 29, 11, 16, 39, 61, 25, 28, 59, 50, 82, 59, 35, 46, 46, 32, 28, 16,
    19, 8, 22, 10, 19, 17, 24, 16, 29, 30, 47, 63, 39, 48, 42, 42, 57, 64, 22, 46, 42, 23, 17, 68,
    24, 3, 8, 10, 13, 18, 16, 28, 17, 47, 54, 54, 42, 36, 72, 46, 53, 77, 27, 44, 68, 25, 10, 43,
)  # fmt: skip
_GOOGLE: Final = (
    2, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 3, 3, 3, 2, 3, 3, 3, 3, 3, 2, 2, 3, 3, 3, 2, 2, 2, 1, 2, 2,
    2, 2, 2, 2, 3, 3, 1, 2, 2, 1, 2, 2, 2, 2, 2, 2, 2, 1, 2, 1, 2, 3, 3, 3, 3, 3, 2, 2, 2, 2, 3, 2,
    1, 2, 1, 2, 2, 2, 2, 2, 2, 3, 2,
)  # fmt: skip
_GOOGLE_MOST: Final = 3
_PATTERN: Final = 100
"""Slots of the made-up patterns, uniform and poisson."""
MAX_SLOTS: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class Slots:
    """DL2's own generator: jobs come at the beginnings of slots."""

    jobs: int
    per_slot: int
    """Most jobs that arrive in one slot."""
    max_epochs: int
    """Epochs of the longest kind of job."""
    slot_s: float
    arrivals: str = "ali"
    lengths: str = "ali"
    vary_lengths: bool = False
    """Whether a job has 90 to 109 % of its kind's epochs."""
    epoch_error: float = 0.0
    """Real epochs lie within this part of the epochs that a scheduler is told."""
    units: str = "samples"
    """What an epoch's work is counted in. `batches` keeps the original's slip, which divides
    samples per second by batches per epoch. `samples` mends it: batches × batch. That alone
    would make every job 32 to 256 times longer, so epochs are divided by 32: the two most
    common kinds keep their length, the others are as much longer as their batches are."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Poisson arrivals at a load where scheduling matters."""

    jobs: int
    per_hour: float
    types: str = "ali"
    """`ali`: as often as at Alibaba; `uniform`: all kinds alike."""
    lengths: str = "ali"
    """Run time at the requested size: `ali` gives each kind its own ± 10 %, `lognormal` draws
    from a heavy tail, `one` is the same for all."""
    median_min: float = 30.0
    """Of the heavy tail; or the one length."""
    sigma: float = 1.8
    longest_min: float = 2880.0


@dataclass(frozen=True)
class KindSpeeds:
    """What the generators must know of the kinds' speed."""

    reference: Floats  # (8,) samples per second with REQUEST servers and as many workers
    most_servers: Ints  # (8,)
    most_workers: Ints  # (8,)


def slotted(plan: Slots, speeds: KindSpeeds, seed: int, name: str = "dl2") -> Trace:
    """Draw DL2's trace number `seed`: the numbers, and their order, are the original's."""
    # The legacy generator, because the published traces were drawn with it.
    rng = np.random.RandomState(seed)
    pattern = _pattern(plan, rng)
    shift = int(rng.randint(SHIFTS))
    jobs: list[tuple[int, int, float, float]] = []  # slot, kind, epochs told, real epochs
    for slot in range(MAX_SLOTS):
        arrive = min(plan.per_slot, pattern[(slot + shift) % len(pattern)])
        for _ in range(min(arrive, plan.jobs - len(jobs))):
            kind, epochs = _kind_and_epochs(plan, rng)
            error = plan.epoch_error * (2 * rng.random_sample() - 1)  # drawn even if it is 0
            jobs.append((slot, kind, epochs, (1 + error) * epochs))
        if len(jobs) == plan.jobs:
            break
    else:
        raise ConfigError(f"{name}: {plan.jobs} jobs do not arrive within {MAX_SLOTS:,} slots.")
    slots, kinds, told, real = (np.array(column) for column in zip(*jobs, strict=True))
    worth = np.array([_worth(kind, plan.units) for kind in KINDS])[kinds]
    return _built(
        name, kinds, slots * plan.slot_s, real * worth, speeds,
        told=told * worth if plan.epoch_error else None,
    )  # fmt: skip


def _pattern(plan: Slots, rng: np.random.RandomState) -> Sequence[int]:
    """Jobs per slot, before the clip at `per_slot`."""
    most = plan.per_slot
    if plan.arrivals == "uniform":
        return [most] * _PATTERN
    if plan.arrivals == "poisson":
        drawn: list[int] = rng.poisson(most, _PATTERN).tolist()
        return drawn
    if plan.arrivals == "ali":
        return [ceil(jobs * most / max(_ALI)) for jobs in _ALI]
    if most != _GOOGLE_MOST:
        raise ConfigError(
            f"Arrivals as at Google are known for per_slot = {_GOOGLE_MOST} only, not {most}."
        )
    return _GOOGLE


def _kind_and_epochs(plan: Slots, rng: np.random.RandomState) -> tuple[int, int]:
    if plan.lengths == "normal":
        kind = int(rng.randint(len(KINDS)))
        epochs = int(KINDS[kind].epochs * plan.max_epochs)
    else:
        edges = np.cumsum([kind.weight for kind in KINDS])
        kind = int(np.searchsorted(edges, rng.random_sample() * edges[-1], side="right"))
        epochs = int(KINDS[kind].minutes / LONGEST_MIN * plan.max_epochs)
    if plan.vary_lengths:
        epochs = int(epochs * int(rng.randint(90, 110)) / 100)
    return kind, max(1, epochs)


def _worth(kind: Kind, units: str) -> float:
    """What an epoch counts for, in the units of a speed table."""
    return kind.batches * (1.0 if units == "batches" else kind.batch / USUAL_BATCH)


def poisson(plan: Stream, speeds: KindSpeeds, rng: np.random.Generator, name: str = "dl2") -> Trace:
    """Draw jobs that come at random, each with a run time at the size it asks for."""
    weights = [k.weight if plan.types == "ali" else 1.0 for k in KINDS]
    kind: Ints = rng.choice(len(KINDS), plan.jobs, p=np.array(weights) / sum(weights))
    submit_s = np.cumsum(rng.exponential(3600.0 / plan.per_hour, plan.jobs))
    if plan.lengths == "ali":
        minutes = np.array([k.minutes for k in KINDS])[kind] * rng.uniform(0.9, 1.1, plan.jobs)
    elif plan.lengths == "lognormal":
        minutes = plan.median_min * np.exp(plan.sigma * rng.standard_normal(plan.jobs))
        minutes = np.minimum(minutes, plan.longest_min)
    else:
        minutes = np.full(plan.jobs, plan.median_min)
    work = minutes * MINUTE_S * speeds.reference[kind]
    return _built(name, kind, submit_s - submit_s[0], work, speeds)


def _built(
    name: str, kind: Ints, submit_s: Floats, work: Floats, speeds: KindSpeeds,
    told: Floats | None = None,
) -> Trace:  # fmt: skip
    """The trace; `told` is what a scheduler believes of the work, if not the truth."""
    jobs, unit = len(kind), speeds.reference[kind]
    extra: dict[str, Any] = {} if told is None else {"estimate_s": told / unit}
    return Trace.build(
        name,
        submit_s=submit_s,
        duration_s=work / unit,
        samples=work,
        num_gpus=np.full(jobs, REQUEST),
        gpus_per_worker=np.array([int(k.on_gpus) for k in KINDS])[kind],
        min_workers=np.ones(jobs),
        max_workers=np.maximum(REQUEST, speeds.most_workers[kind]),
        cpus_per_worker=np.full(jobs, CPUS_PER_TASK),
        num_servers=np.full(jobs, REQUEST),
        min_servers=np.ones(jobs),
        max_servers=np.maximum(REQUEST, speeds.most_servers[kind]),
        cpus_per_server=np.full(jobs, CPUS_PER_TASK),
        model=kind,
        models=MODELS,
        **extra,
    )
