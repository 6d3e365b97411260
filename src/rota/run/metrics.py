"""Numbers that say how well a run went; docs/metrics.md defines each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from rota.core.types import Bools, Floats, Ints
    from rota.run.outcome import Outcome

SIZES: Final = ("1", "2-4", "5-8", "9-16", "17+")
"""Classes of jobs by the GPUs they ask for."""
_SIZE_ENDS: Final = (1, 4, 8, 16)
UNFAIR: Final = 1.0 + 1e-9
"""A job is treated unfairly if its rho is above this: above 1 by more than rounding."""


@dataclass(frozen=True)
class Times:
    """How the finished jobs fared; F of them, NaN where something is not known."""

    finished: Bools  # (J,)
    jct_s: Floats  # (F,) end − submission
    wait_s: Floats  # (F,) first start − submission
    delay_s: Floats  # (F,) JCT − run time alone
    slowdown: Floats  # (F,) JCT / run time alone
    rho: Floats  # (F,) JCT / fair finish time

    @classmethod
    def of(cls, outcome: Outcome) -> Times:
        """The times of an outcome's finished jobs; a job that gave up has not finished."""
        done = ~np.isnan(outcome.done_s) & ~outcome.gave_up
        submit_s, duration_s = outcome.submit_s[done], outcome.duration_s[done]
        jct_s = outcome.done_s[done] - submit_s
        crowd = _mean_live(outcome)[done] * outcome.num_gpus[done] / max(1, outcome.total_gpus)
        # A live cluster may not know how long a job takes alone.
        alone_s = np.where(duration_s > 0, duration_s, np.nan)
        return cls(
            finished=done,
            jct_s=jct_s,
            wait_s=outcome.started_s[done] - submit_s,
            delay_s=jct_s - alone_s,
            slowdown=_slowdown(jct_s, alone_s, outcome.done_s[done]),
            rho=np.where(jct_s > 0, jct_s, np.nan) / (alone_s * np.maximum(1.0, crowd)),
        )


def _slowdown(jct_s: Floats, alone_s: Floats, done_s: Floats) -> Floats:
    """JCT / run time alone; 1 where they differ only because late times have coarse fractions."""
    lost = (jct_s < alone_s) & (alone_s - jct_s <= np.spacing(np.abs(done_s)))
    return np.where(lost, 1.0, jct_s / alone_s)


def _mean_live(outcome: Outcome) -> Floats:
    """How many jobs lived on average while each job (J,) did, itself included."""
    submit_s = outcome.submit_s
    end_s = np.where(np.isnan(outcome.done_s), outcome.end_s, outcome.done_s)
    end_s = np.maximum(end_s, submit_s)  # a job that is still to come does not live at all
    times_s = np.concatenate((submit_s, end_s))
    order = np.argsort(times_s, kind="stable")
    change = np.where(order < len(submit_s), 1, -1)
    span_s = np.diff(times_s[order], append=times_s[order[-1:]])
    lived = np.empty(len(times_s))  # job-seconds lived by all up to each submission and end
    lived[order] = np.concatenate(([0.0], np.cumsum(change.cumsum() * span_s)))[:-1]
    life_s = end_s - submit_s
    job_s = lived[len(submit_s) :] - lived[: len(submit_s)]
    return np.divide(job_s, life_s, out=np.ones(len(submit_s)), where=life_s > 0)


def summarise(outcome: Outcome) -> dict[str, Any]:
    """All metrics of a run, ready for JSON; None where there is nothing to measure."""
    times = Times.of(outcome)
    ended_s = outcome.done_s[~np.isnan(outcome.done_s)]
    first_s = outcome.submit_s.min() if len(ended_s) else np.nan
    return {
        "policy": outcome.policy,
        "seed": outcome.seed,
        "jobs": len(outcome.submit_s),
        "finished": int(times.finished.sum()),
        "gave_up": int(outcome.gave_up.sum()),
        "mean_jct_s": _mean(times.jct_s),
        **_percentiles("jct_s", times.jct_s, (50, 90, 99)),
        "mean_wait_s": _mean(times.wait_s),
        **_percentiles("wait_s", times.wait_s, (99,)),
        "mean_delay_s": _mean(times.delay_s),
        "mean_slowdown": _mean(times.slowdown),
        **_percentiles("slowdown", times.slowdown, (99,)),
        "makespan_s": _number(ended_s.max(initial=-np.inf) - first_s),
        "utilisation": _ratio(outcome.held_gpu_s, outcome.up_gpu_s),
        "fragmentation": _ratio(outcome.stray_gpu_s, outcome.up_gpu_s - outcome.held_gpu_s),
        "preemptions": int(outcome.preemptions.sum()),
        "moves": int(outcome.moves),
        "resizes": int(outcome.resizes),
        "kills": int(outcome.kills),
        "lost_gpu_h": float(outcome.lost_s @ outcome.num_gpus) / 3600,
        "mean_fee": _mean(outcome.fee) if outcome.fee.any() else None,
        **_learned(outcome),
        **_fairness(times.rho[~np.isnan(times.rho)]),
        "rounds": int(outcome.rounds),
        "wall_s": float(outcome.wall_s),
        "by_size": _by_size(outcome, times),
        "by_user": _by_user(outcome, times),
        "notes": list(outcome.notes),
    }


def _fairness(rho: Floats) -> dict[str, float | None]:
    """Finish-time fairness (Mahajan et al., 2020) and Jain's index of 1/rho."""
    if not len(rho):
        return dict.fromkeys(("mean_rho", "max_rho", "unfair_share", "jain"))
    speed = 1.0 / rho
    if speed @ speed == 0.0:  # too small to be squared
        speed = rho.min() / rho
    return {
        "mean_rho": float(rho.mean()),
        "max_rho": float(rho.max()),
        "unfair_share": float((rho > UNFAIR).mean()),
        "jain": float(speed.sum() ** 2 / (len(speed) * (speed @ speed))),
    }


def _learned(outcome: Outcome) -> dict[str, float | int | None]:
    """What the networks have learned by their deadlines; nothing without learning curves."""
    if not len(outcome.accuracy):
        return {}
    return {
        "mean_accuracy": _mean(outcome.accuracy),
        "mean_accuracy_gain": _mean(outcome.accuracy - outcome.ungrown),
        "grown": int((outcome.level > 0).sum()),
    }


def _by_size(outcome: Outcome, times: Times) -> list[dict[str, Any]]:
    group = np.searchsorted(_SIZE_ENDS, outcome.num_gpus)
    rows = _by(group, len(SIZES), times)
    return [{"size": size, **row} for size, row in zip(SIZES, rows, strict=True)]


def _by_user(outcome: Outcome, times: Times) -> list[dict[str, Any]]:
    """One row per user with jobs, by GPU-hours asked for, most first; None: jobs without a user."""
    codes, group = np.unique(outcome.user, return_inverse=True)
    asked = outcome.num_gpus * np.nan_to_num(outcome.duration_s) / 3600
    gpu_h = np.bincount(group, asked, len(codes))
    rows = _by(group, len(codes), times)
    names = [outcome.users[code] if code >= 0 else None for code in codes.tolist()]
    return [
        {"user": names[k], "gpu_h": float(gpu_h[k]), **rows[k]}
        for k in np.argsort(-gpu_h, kind="stable").tolist()
    ]


def _by(group: Ints, groups: int, times: Times) -> list[dict[str, Any]]:
    """The same few metrics for each group of jobs, of which `group` (J,) gives the number."""
    of = group[times.finished]
    columns = {
        "jobs": np.bincount(group, minlength=groups).tolist(),
        "finished": np.bincount(of, minlength=groups).tolist(),
        "mean_jct_s": _group_means(of, groups, times.jct_s),
        "p99_jct_s": _group_percentiles(of, groups, times.jct_s, 99),
        "mean_wait_s": _group_means(of, groups, times.wait_s),
        "mean_slowdown": _group_means(of, groups, times.slowdown),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _group_means(of: Ints, groups: int, values: Floats) -> list[float | None]:
    known = ~np.isnan(values)
    count = np.bincount(of[known], minlength=groups)
    total = np.bincount(of[known], values[known], groups)
    return _numbers(np.divide(total, count, out=np.full(groups, np.nan), where=count > 0))


def _group_percentiles(of: Ints, groups: int, values: Floats, percent: float) -> list[float | None]:
    """`np.percentile` of each group, but of all at once: there may be many thousand users."""
    count = np.bincount(of, minlength=groups)
    there = np.flatnonzero(count)
    ranked = values[np.lexsort((values, of))]
    place = (count[there] - 1) * (percent / 100)
    below = place.astype(np.int64)
    first = (count.cumsum() - count)[there]
    low, high = ranked[first + below], ranked[first + np.minimum(below + 1, count[there] - 1)]
    out = np.full(groups, np.nan)
    out[there] = low + (high - low) * (place - below)
    return _numbers(out)


def series(outcome: Outcome, points: int = 400) -> dict[str, Any]:
    """Utilisation, GPUs, running and waiting jobs over time, averaged over `points` equal bins.

    `time_s` is where each bin begins. Exact averages, as long as the run kept every round.
    """
    rounds = outcome.series
    time_s = rounds["time_s"]
    end_s = max(outcome.end_s, time_s[-1]) if len(rounds) else 0.0
    if not len(rounds) or not end_s > time_s[0]:
        names = ("time_s", "utilisation", "running", "waiting", "held_gpus", "up_gpus")
        return {"bin_s": None, **{name: [] for name in names}}
    edges_s = np.linspace(time_s[0], end_s, points + 1)
    knots_s, span_s = np.append(time_s, end_s), np.diff(time_s, append=end_s)
    mean = {}
    for name in ("held_gpus", "up_gpus", "running", "waiting"):
        # A round's numbers hold until the next, so the integral is linear in between.
        area = np.concatenate(([0.0], np.cumsum(rounds[name] * span_s)))
        mean[name] = np.diff(np.interp(edges_s, knots_s, area)) / np.diff(edges_s)
    up, used = mean["up_gpus"], np.full(points, np.nan)
    np.divide(mean["held_gpus"], up, out=used, where=up > 0)
    return {
        "time_s": edges_s[:-1].tolist(),
        "bin_s": float(end_s - time_s[0]) / points,
        "utilisation": _numbers(used),
        "running": mean["running"].tolist(),
        "waiting": mean["waiting"].tolist(),
        "held_gpus": mean["held_gpus"].tolist(),
        "up_gpus": up.tolist(),
    }


def cdf(values: ArrayLike, points: int = 200) -> dict[str, list[float]]:
    """Points of the empirical distribution: a share `p` of the values is at most `x`.

    NaN are left out. The smallest and the largest value are always among the points.
    """
    ranked = np.asarray(values, np.float64)
    ranked = np.sort(ranked[~np.isnan(ranked)])
    if not len(ranked):
        return {"x": [], "p": []}
    rank = np.unique(np.linspace(1, len(ranked), min(points, len(ranked))).round().astype(np.int64))
    return {"x": ranked[rank - 1].tolist(), "p": (rank / len(ranked)).tolist()}


def mean_over(runs: Sequence[Mapping[str, Any]], keys: Iterable[str]) -> dict[str, float | None]:
    """The mean of each metric over the runs that have it; None where none has."""
    found = {key: [run[key] for run in runs if run.get(key) is not None] for key in keys}
    return {key: float(np.mean(known)) if known else None for key, known in found.items()}


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _percentiles(name: str, values: Floats, percents: Sequence[int]) -> dict[str, float | None]:
    known = values[~np.isnan(values)]
    found = np.percentile(known, percents).tolist() if len(known) else [None] * len(percents)
    return {f"p{percent}_{name}": value for percent, value in zip(percents, found, strict=True)}


def _ratio(part: float, whole: float) -> float | None:
    return _number(part / whole) if whole > 0 else None


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _numbers(values: Floats) -> list[float | None]:
    return [_number(value) for value in values.tolist()]
