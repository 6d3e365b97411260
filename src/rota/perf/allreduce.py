"""Speed of a job that synchronises by all-reduce, in the form of Pollux (Qiao et al., 2021).

With m samples per GPU on r GPUs over n nodes, gradients take grad + grad_each·m seconds and their
exchange takes nothing on one GPU, local + local_each·max(0, r−2) within a node and across +
across_each·max(0, r−2) between nodes. How far the two overlap is γ: a step takes
(gradient^γ + exchange^γ)^(1/γ), from their sum (γ = 1) to their maximum (γ → ∞).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.speed import Curves
from rota.errors import ConfigError
from rota.perf.goodput import efficiency, max_batch
from rota.perf.least_squares import levenberg_marquardt
from rota.perf.shipped import chosen, shipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from rota.core.types import Floats
    from rota.perf.profiles import Steps

_MOST_OVERLAP: Final = 10.0
"""γ beyond this is a maximum for all purposes, and its slope too flat to fit."""
_BATCHES: Final = 48
"""Batch sizes tried between a model's own and its largest, evenly spaced in their logarithm."""


@dataclass(frozen=True)
class AllReduce:
    """Seconds that the parts of a step take on one GPU type."""

    grad: float
    grad_each: float
    local: float
    local_each: float
    across: float
    across_each: float
    overlap: float

    def gradient_s(self, batch: ArrayLike) -> Floats:
        """Seconds to compute gradients of `batch` samples on each GPU."""
        return np.asarray(self.grad + self.grad_each * np.asarray(batch, np.float64))

    def exchange_s(self, nodes: ArrayLike, gpus: ArrayLike) -> Floats:
        """Seconds to exchange them."""
        n, r = np.asarray(nodes), np.asarray(gpus, np.float64)
        more = np.maximum(0.0, r - 2)
        within = self.local + self.local_each * more
        between = self.across + self.across_each * more
        return np.where(r <= 1, 0.0, np.where(n <= 1, within, between))

    def step_s(self, nodes: ArrayLike, gpus: ArrayLike, batch: ArrayLike) -> Floats:
        """Seconds per step with `batch` samples on each GPU."""
        gradient = self.gradient_s(batch)
        ratio = self.exchange_s(nodes, gpus) / gradient
        longer = np.maximum(ratio, 1.0)  # taken out, so that no power overflows
        rest = longer**-self.overlap + (ratio / longer) ** self.overlap
        return np.asarray(gradient * longer * rest ** (1 / self.overlap))

    def iteration_s(
        self, nodes: ArrayLike, gpus: ArrayLike, total: ArrayLike, most: float
    ) -> Floats:
        """Seconds per update with `total` samples on all GPUs together, at most `most` at once.

        What does not fit into a GPU's memory is done in several passes before the exchange.
        """
        each = np.maximum(np.asarray(total, np.float64) / np.asarray(gpus), 1.0)
        passes = np.ceil(each / most - 1e-9)
        return np.asarray(
            (passes - 1) * self.gradient_s(each / passes) + self.step_s(nodes, gpus, each / passes)
        )


def fit_allreduce(steps: Steps, start: AllReduce | None = None) -> AllReduce:
    """Fit the logarithm of the step time by Levenberg–Marquardt, from several starts or one.

    The parameters are searched as logarithms, which keeps them positive.
    """
    goal = np.log(steps.step_s)

    def residual(x: Floats) -> Floats:
        model = _from_free(x)
        return np.log(model.step_s(steps.nodes, steps.gpus, steps.batch)) - goal

    typical = float(np.median(steps.step_s))
    guesses = [
        AllReduce(typical / 3, typical / 3 / float(np.median(steps.batch)), typical / 3,
                  typical / 50, typical / 2, typical / 50, overlap)
        for overlap in (1.2, 2.5)
    ] if start is None else [start]  # fmt: skip
    ends = [levenberg_marquardt(residual, _to_free(guess)) for guess in guesses]
    return _from_free(min(ends, key=lambda x: float(np.square(residual(x)).sum())))


def _to_free(model: AllReduce) -> Floats:
    *times, overlap = astuple(model)
    inside = np.clip((overlap - 1) / (_MOST_OVERLAP - 1), 1e-4, 1 - 1e-4)
    return np.append(np.log(np.maximum(times, 1e-9)), np.log(inside / (1 - inside)))


def _from_free(x: Floats) -> AllReduce:
    x = np.clip(x, -25.0, 12.0)
    overlap = 1 + (_MOST_OVERLAP - 1) / (1 + np.exp(-x[-1]))
    grad, grad_each, local, local_each, across, across_each = np.exp(x[:-1]).tolist()
    return AllReduce(grad, grad_each, local, local_each, across, across_each, float(overlap))


def allreduce_model(name: str, gpu: str) -> AllReduce:
    """The shipped model of a job on a GPU type."""
    given = _record(name, gpu)
    return AllReduce(**{field.name: given[field.name] for field in fields(AllReduce)})


def _record(name: str, gpu: str) -> dict[str, float]:
    known = shipped("allreduce")
    (gpu,) = chosen("GPU type with all-reduce speeds", [gpu], known)
    (name,) = chosen(f"all-reduce model on {gpu}", [name], known[gpu])
    record: dict[str, float] = known[gpu][name]
    return record


def allreduce_curves(
    models: Sequence[str] | None = None,
    gpu_types: Sequence[str] = ("t4",),
    max_nodes: int = 16,
    max_gpus: int = 64,
    *,
    goodput: bool = False,
) -> Curves:
    """Speed by nodes and GPUs in samples per second at the model's own batch size.

    Without `goodput` that batch is kept and split among the GPUs. With it each point has the batch
    size that makes the most progress, and progress is counted in samples of the model's own batch:
    both speeds are of the same unit.
    """
    known = shipped("allreduce")
    types = chosen("GPU type with all-reduce speeds", gpu_types, known)
    common = [name for name in known[types[0]] if all(name in known[gpu] for gpu in types)]
    names = chosen(f"all-reduce model on {', '.join(types)}", models, common)
    n, r = np.arange(1, max_nodes + 1)[:, None], np.arange(1, max_gpus + 1)[None, :]
    speed = np.zeros((len(names), len(types), max_nodes + 1, max_gpus + 1))
    for c, name in enumerate(names):
        for t, gpu in enumerate(types):
            rate = _goodput(name, gpu, n, r) if goodput else _fixed(name, gpu, n, r)
            speed[c, t, 1:, 1:] = np.where(r >= n, rate, 0.0)
    measured = np.array(
        [[min(int(_record(name, gpu)[key]) for gpu in types) for key in ("nodes", "gpus")]
         for name in names], np.int64,
    )  # fmt: skip
    return Curves(names, types, speed, by_nodes=True, measured=measured)


def _fixed(name: str, gpu: str, nodes: ArrayLike, gpus: ArrayLike) -> Floats:
    record, model = _record(name, gpu), allreduce_model(name, gpu)
    batch = record["batch"]
    return batch / model.iteration_s(nodes, gpus, batch, record["most"])


def _goodput(name: str, gpu: str, nodes: ArrayLike, gpus: ArrayLike) -> Floats:
    return best_batch(name, gpu, nodes, gpus)[1]


def goodput_at(name: str, gpu: str, nodes: ArrayLike, gpus: ArrayLike, batch: ArrayLike) -> Floats:
    """Progress per second with this total batch, in samples of the model's own batch."""
    record, model = _record(name, gpu), allreduce_model(name, gpu)
    steps_per_s = 1 / model.iteration_s(nodes, gpus, batch, record["most"])
    return np.asarray(np.asarray(batch) * steps_per_s * efficiency(name, batch))


def best_batch(name: str, gpu: str, nodes: ArrayLike, gpus: ArrayLike) -> tuple[Floats, Floats]:
    """The total batch that makes the most progress on these GPUs, and that progress."""
    if name not in shipped("goodput"):
        raise ConfigError(
            f"How {name!r} learns with larger batches was not measured; goodput is known of "
            f"{', '.join(shipped('goodput'))}."
        )
    batch = np.geomspace(_record(name, gpu)["batch"], max_batch(name), _BATCHES)
    batch = batch.reshape(-1, *[1] * np.ndim(np.add(nodes, gpus)))
    # Only batches that divide well are tried in practice; a fraction of a sample is no matter here.
    gain = goodput_at(name, gpu, nodes, gpus, batch)
    best = gain.argmax(axis=0)
    return batch.ravel()[best], np.take_along_axis(gain, best[None], axis=0)[0]
