"""From many runs to what a comparison says: means, paired differences, curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.run.metrics import mean_over
from rota.run.stats import paired

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.cli.cases import Case
    from rota.cli.compare_config import CompareConfig
    from rota.cli.work import Finished
    from rota.core.types import Floats, Ints
    from rota.run.stats import Paired

ENOUGH_PAIRS: Final = 3
"""Fewer independent pairs of runs than this say nothing of chance: then jobs are the units."""
CURVE_POINTS: Final = 160
ALL_TRACES: Final = "all traces"
ALL_CASES: Final = "all settings"
"""What is said of all cases together, without and with several clusters or restart costs."""
MEANS: Final = (
    "jobs", "mean_jct_s", "p50_jct_s", "p90_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s",
    "utilisation", "fragmentation", "mean_slowdown", "preemptions", "moves", "kills", "gave_up",
    "max_rho", "mean_fee",
)  # fmt: skip
"""What the table gives as a mean over runs."""


@dataclass(frozen=True)
class AllRuns:
    """All runs, to be looked up by case, policy and seed."""

    config: CompareConfig
    cases: tuple[Case, ...]
    runs: Mapping[tuple[str, str, int], Finished]
    varies: Mapping[tuple[str, str], bool]
    """Whether a policy's result in a case depends on the seed; if not, it ran once."""

    def of(self, case: Case, policy: str, seed: int) -> Finished:
        """The run, or the one that stands for it because seeds make no difference."""
        varies = self.varies[case.label, policy]
        return self.runs[case.label, policy, seed if varies else case.seeds[0]]

    def seeds(self, case: Case, *policies: str) -> tuple[int, ...]:
        """The seeds under which these policies differ in the case."""
        any_varies = any(self.varies[case.label, policy] for policy in policies)
        return case.seeds if any_varies else case.seeds[:1]


def table(all_runs: AllRuns) -> list[dict[str, Any]]:
    """One row per case and policy, means over its runs."""
    rows = []
    for case in all_runs.cases:
        for policy in all_runs.config.policies:
            seeds = all_runs.seeds(case, policy)
            means = mean_over([all_runs.of(case, policy, seed).summary for seed in seeds], MEANS)
            rows.append({**place_of(case), "policy": policy, "runs": len(seeds), **means})
    return rows


def place_of(case: Case) -> dict[str, Any]:
    """Where a row belongs: its case, and the case's part of each axis."""
    return {
        "trace": case.label, "of_trace": case.trace.label, "cluster_name": case.cluster_name,
        "restart_s": case.when.restart_s,
    }  # fmt: skip


def comparisons(all_runs: AllRuns) -> list[dict[str, Any]]:
    """Every policy against the baseline, in each case and, if there are several, in all."""
    config, cases = all_runs.config, all_runs.cases
    scopes: list[tuple[str, Sequence[Case]]] = [(case.label, [case]) for case in cases]
    if len(cases) > 1:
        scopes.append((ALL_TRACES if len(cases) == len(config.traces) else ALL_CASES, cases))
    return [
        _compared(all_runs, scope, among, policy)
        for scope, among in scopes
        for policy in config.policies
        if policy != config.baseline
    ]


def _compared(all_runs: AllRuns, scope: str, cases: Sequence[Case], policy: str) -> dict[str, Any]:
    baseline = all_runs.config.baseline
    places = [(case, seed) for case in cases for seed in all_runs.seeds(case, policy, baseline)]
    pairs = [
        (all_runs.of(case, policy, seed), all_runs.of(case, baseline, seed))
        for case, seed in places
    ]
    # One trace and seed under several clusters or restart costs is not several observations.
    numbers: dict[tuple[str, int], int] = {}
    source = [numbers.setdefault((case.trace.label, seed), len(numbers)) for case, seed in places]
    over = "runs" if len(numbers) >= ENOUGH_PAIRS else "jobs"
    a, b, group = _means(pairs, source) if over == "runs" else _jct(pairs, source)
    facts: dict[str, Any] = {
        "scope": scope, "policy": policy, "baseline": baseline, "metric": "mean_jct_s",
        "over": over, "pairs_of_runs": len(pairs),
    }  # fmt: skip
    if not len(a):
        return {**facts, **_outcome_of(None)}
    if len(cases) > 1 and over == "runs":
        # Seconds of a trace of long jobs would drown the others: each pair counts alike.
        a, b = a / b, np.ones(len(b))
    rng = np.random.default_rng(0)
    found = paired(a, b, rng, group=group, resamples=all_runs.config.resamples)
    return {**facts, **_outcome_of(found, seconds=len(cases) == 1 or over == "jobs")}


def _outcome_of(found: Paired | None, *, seconds: bool = False) -> dict[str, Any]:
    return {
        "n": found.n if found else 0,
        "ratio": found.ratio if found else None,
        "ratio_ci": found.ratio_ci if found else None,
        "difference_s": found.difference if found and seconds else None,
        "difference_ci_s": found.difference_ci if found and seconds else None,
        "level": found.level if found else None,
    }


def _means(
    pairs: Sequence[tuple[Finished, Finished]], source: Sequence[int]
) -> tuple[Floats, Floats, Ints]:
    """The mean JCT of each run (n,), where both runs of a pair finished any job, and its source."""
    rows = [[run.summary["mean_jct_s"] for run in pair] for pair in pairs]
    a, b = np.array(rows, np.float64).reshape(-1, 2).T  # NaN for None
    known = ~(np.isnan(a) | np.isnan(b))
    return a[known], b[known], np.array(source)[known]


def _jct(
    pairs: Sequence[tuple[Finished, Finished]], source: Sequence[int]
) -> tuple[Floats, Floats, Ints]:
    """The JCT of every job (n,) that finished in both runs of its pair, and which job it is.

    All cases of a trace have the same jobs, so a job is known by its source and its place.
    """
    a, b = (np.concatenate([_jobs_of(pair[side]) for pair in pairs]) for side in (0, 1))
    counts = [len(_jobs_of(pair[0])) for pair in pairs]
    places = zip(source, counts, strict=True)
    job = np.concatenate([k * max(counts) + np.arange(count) for k, count in places])
    known = ~(np.isnan(a) | np.isnan(b))
    return a[known], b[known], job[known]


def _jobs_of(run: Finished) -> Floats:
    assert run.jct_s is not None
    return run.jct_s


def curves(all_runs: AllRuns) -> list[dict[str, Any]]:
    """Per case and policy, the distribution of JCTs and the utilisation over time."""
    found = []
    for case in all_runs.cases:
        for policy in all_runs.config.policies:
            runs = [all_runs.of(case, policy, seed) for seed in all_runs.seeds(case, policy)]
            drawn = curves_of([run.cdf for run in runs], runs[0].series)
            found.append({"trace": case.label, "policy": policy, **drawn})
    return found


def curves_of(
    cdfs: Sequence[Mapping[str, list[float]]], series: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Curves to draw: the mean of distributions of JCTs, and the utilisation over time."""
    series = series or {"time_s": [], "utilisation": []}
    begin_s = series["time_s"][0] if series["time_s"] else 0.0
    return {
        "jct_cdf": _mean_cdf(cdfs),
        "utilisation": {
            "time_s": [round(t - begin_s, 1) for t in series["time_s"]],
            "share": [_rounded(share) for share in series["utilisation"]],
        },
    }


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
