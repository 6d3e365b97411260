"""From many runs to what a comparison says: means, paired differences, curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.run.stats import paired

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.cli.compare_config import CompareConfig, TraceSpec
    from rota.cli.work import Finished
    from rota.core.types import Floats
    from rota.run.stats import Paired

ENOUGH_PAIRS: Final = 3
"""Fewer pairs of runs than this say nothing of chance: then jobs are the units."""
CURVE_POINTS: Final = 160
ALL: Final = "all traces"
MEANS: Final = (
    "jobs", "mean_jct_s", "p50_jct_s", "p90_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s",
    "utilisation", "fragmentation", "mean_slowdown", "preemptions", "moves", "kills", "gave_up",
    "max_rho", "mean_fee",
)  # fmt: skip
"""What the table gives as a mean over runs."""


@dataclass(frozen=True)
class AllRuns:
    """All runs, to be looked up by trace, policy and seed."""

    config: CompareConfig
    runs: Mapping[tuple[str, str, int], Finished]
    varies: Mapping[tuple[str, str], bool]
    """Whether a policy's result on a trace depends on the seed; if not, it ran once."""

    def of(self, trace: TraceSpec, policy: str, seed: int) -> Finished:
        """The run, or the one that stands for it because seeds make no difference."""
        varies = self.varies[trace.label, policy]
        return self.runs[trace.label, policy, seed if varies else trace.seeds[0]]

    def seeds(self, trace: TraceSpec, *policies: str) -> tuple[int, ...]:
        """The seeds under which these policies differ on the trace."""
        any_varies = any(self.varies[trace.label, policy] for policy in policies)
        return trace.seeds if any_varies else trace.seeds[:1]


def table(all_runs: AllRuns) -> list[dict[str, Any]]:
    """One row per trace and policy, means over its runs."""
    rows = []
    for trace in all_runs.config.traces:
        for policy in all_runs.config.policies:
            runs = [all_runs.of(trace, policy, seed) for seed in all_runs.seeds(trace, policy)]
            row: dict[str, Any] = {"trace": trace.label, "policy": policy, "runs": len(runs)}
            for key in MEANS:
                known = [run.summary[key] for run in runs if run.summary[key] is not None]
                row[key] = float(np.mean(known)) if known else None
            rows.append(row)
    return rows


def comparisons(all_runs: AllRuns) -> list[dict[str, Any]]:
    """Every policy against the baseline, on each trace and, if there are several, on all."""
    config = all_runs.config
    scopes: list[tuple[str, Sequence[TraceSpec]]] = [(t.label, [t]) for t in config.traces]
    if len(config.traces) > 1:
        scopes.append((ALL, config.traces))
    return [
        _compared(all_runs, scope, traces, policy)
        for scope, traces in scopes
        for policy in config.policies
        if policy != config.baseline
    ]


def _compared(
    all_runs: AllRuns, scope: str, traces: Sequence[TraceSpec], policy: str
) -> dict[str, Any]:
    baseline = all_runs.config.baseline
    pairs = [
        (all_runs.of(trace, policy, seed), all_runs.of(trace, baseline, seed))
        for trace in traces
        for seed in all_runs.seeds(trace, policy, baseline)
    ]
    over = "runs" if len(pairs) >= ENOUGH_PAIRS else "jobs"
    a, b = _means(pairs) if over == "runs" else _jct(pairs)
    facts: dict[str, Any] = {
        "scope": scope, "policy": policy, "baseline": baseline, "metric": "mean_jct_s",
        "over": over, "pairs_of_runs": len(pairs),
    }  # fmt: skip
    if not len(a):
        return {**facts, **_outcome_of(None)}
    if len(traces) > 1 and over == "runs":
        # Seconds of a trace of long jobs would drown the others: each pair counts alike.
        a, b = a / b, np.ones(len(b))
    rng = np.random.default_rng(0)
    found = paired(a, b, rng, resamples=all_runs.config.resamples)
    return {**facts, **_outcome_of(found, seconds=len(traces) == 1 or over == "jobs")}


def _outcome_of(found: Paired | None, *, seconds: bool = False) -> dict[str, Any]:
    return {
        "n": found.n if found else 0,
        "ratio": found.ratio if found else None,
        "ratio_ci": found.ratio_ci if found else None,
        "difference_s": found.difference if found and seconds else None,
        "difference_ci_s": found.difference_ci if found and seconds else None,
        "level": found.level if found else None,
    }


def _means(pairs: Sequence[tuple[Finished, Finished]]) -> tuple[Floats, Floats]:
    """The mean JCT of each run (n,), where both runs of a pair finished any job."""
    both = [tuple(run.summary["mean_jct_s"] for run in pair) for pair in pairs]
    known = [pair for pair in both if None not in pair]
    a, b = np.array(known, np.float64).reshape(-1, 2).T
    return a, b


def _jct(pairs: Sequence[tuple[Finished, Finished]]) -> tuple[Floats, Floats]:
    """The JCT of every job (n,) that finished in both runs of its pair."""
    a, b = (np.concatenate([_jobs_of(pair[side]) for pair in pairs]) for side in (0, 1))
    known = ~(np.isnan(a) | np.isnan(b))
    return a[known], b[known]


def _jobs_of(run: Finished) -> Floats:
    assert run.jct_s is not None
    return run.jct_s


def curves(all_runs: AllRuns) -> list[dict[str, Any]]:
    """Per trace and policy, the distribution of JCTs and the utilisation over time."""
    found = []
    for trace in all_runs.config.traces:
        for policy in all_runs.config.policies:
            runs = [all_runs.of(trace, policy, seed) for seed in all_runs.seeds(trace, policy)]
            series = runs[0].series or {"time_s": [], "utilisation": []}
            begin_s = series["time_s"][0] if series["time_s"] else 0.0
            found.append({
                "trace": trace.label,
                "policy": policy,
                "jct_cdf": _mean_cdf([run.cdf for run in runs]),
                "utilisation": {
                    "time_s": [round(t - begin_s, 1) for t in series["time_s"]],
                    "share": [_rounded(share) for share in series["utilisation"]],
                },
            })  # fmt: skip
    return found


def _mean_cdf(parts: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """The mean over runs of their distribution functions, on a grid even in log time."""
    there = [part for part in parts if part["x"]]
    if not there:
        return {"x": [], "p": []}
    low, high = min(part["x"][0] for part in there), max(part["x"][-1] for part in there)
    grid = np.geomspace(max(low, 1e-3), max(high, 1e-3), CURVE_POINTS)
    rows = [
        np.interp(grid, part["x"], part["p"], left=0.0) for part in there
    ]  # a step function would look no different at this resolution
    p = np.mean(rows, axis=0)
    p[-1] = 1.0  # the grid's last point may fall a rounding short of the largest JCT
    return {
        "x": [float(f"{x:.4g}") for x in grid.tolist()],
        "p": [round(share, 4) for share in p.tolist()],
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
