"""What a comparison found, in the form of its results.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rota.cli import loading
from rota.dash import units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.cli.cases import Case
    from rota.cli.compare_config import CompareConfig
    from rota.cli.digest import AllRuns
    from rota.cli.plays import Play

ROUGH: Final = (
    "Intervals over jobs take the jobs of a run as independent, which they are not quite: "
    "read them as a rough guide, or give three seeds or traces."
)


def record_of(case: Case, play: Play) -> list[dict[str, Any]]:
    """What a log records of its own schedule, as a list of one; of a scenario there is nothing."""
    import numpy as np

    from rota.cli.digest import curves_of, place_of
    from rota.cli.work import CDF_POINTS, SERIES_POINTS
    from rota.run.metrics import cdf, series
    from rota.sim.as_it_was import as_it_was, doubts_as_it_was, summary_as_it_was

    record = None if case.trace.is_scenario else as_it_was(play.jobs, play.cluster)
    if record is None:
        return []
    summary = summary_as_it_was(record)
    del summary["by_user"]  # long, and no table of a comparison shows it
    jct_s = np.subtract(record.done_s, record.submit_s)
    return [{
        **place_of(case), **summary, "runs": 1,
        "notes": doubts_as_it_was(play.jobs, play.cluster),
        "curves": curves_of([cdf(jct_s, CDF_POINTS)], series(record, SERIES_POINTS)),
    }]  # fmt: skip


def results_of(
    config: CompareConfig, all_runs: AllRuns, records: list[dict[str, Any]],
    learners: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    """Everything there is to say, as JSON has it."""
    import platform
    from datetime import UTC, datetime

    import numba
    import numpy as np

    from rota import __version__
    from rota.cli import digest

    compared, cases = digest.comparisons(all_runs), all_runs.cases
    shared = next((case for case in cases if not case.trace.is_scenario), cases[0])
    return {
        "name": config.name,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "rota": __version__, "python": platform.python_version(), "numpy": np.__version__,
            "numba": numba.__version__,
        },
        "cluster": loading.facts_of_cluster(shared.cluster),
        "conditions": loading.facts_of_conditions(config.when),
        "seeds": list(config.seeds),
        "baseline": config.baseline,
        "policies": list(config.policies),
        "traces": [case.label for case in cases],
        "axes": {
            "traces": [trace.label for trace in config.traces],
            "clusters": [spec.name for spec in config.clusters],
            "restart_s": list(config.restart_costs_s),
        },
        "cases": {case.label: case.facts() for case in cases},
        "scenarios": _facts_of_scenarios(config),
        "resamples": config.resamples,
        "notes": [
            *_notes(config, all_runs, compared), *_note_on_learning(config, learners),
            *dict.fromkeys(note for record in records for note in record["notes"]),
        ],
        "as_it_was": [
            {key: value for key, value in record.items() if key != "curves"} for record in records
        ],
        "table": digest.table(all_runs),
        "comparisons": compared,
        "runs": [run.summary for run in all_runs.runs.values()],
        "curves": digest.curves(all_runs),
        "curves_as_it_was": [
            {"trace": record["trace"], "policy": record["policy"], **record["curves"]}
            for record in records
        ],
    }  # fmt: skip


def _facts_of_scenarios(config: CompareConfig) -> dict[str, Any]:
    """What each scenario brings with it, by label."""
    from rota.scenarios import load

    found = {}
    for spec in config.traces:
        if spec.is_scenario:
            scenario = load(spec.source)
            found[spec.label] = {
                "name": scenario.name, "version": scenario.version, "digest": scenario.digest,
                "seeds": list(spec.seeds), "cluster": loading.facts_of_cluster(scenario.cluster),
                "conditions": loading.facts_of_conditions(scenario.when),
                "aliases": {
                    name: scenario.policy(policy)
                    for name, policy in config.policies.items()
                    if scenario.policy(policy) != policy
                },
            }  # fmt: skip
    return found


def _notes(
    config: CompareConfig, all_runs: AllRuns, compared: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What a reader must know to understand the numbers."""
    from rota.dash.groups import losses

    notes = []
    free = config.restart_costs_s == (0.0,) and not config.when.resize_s
    if free and not all(trace.is_scenario for trace in config.traces):
        notes.append("Preemption and moving are free (conditions.restart_s = 0).")
    cases = all_runs.cases
    once = dict.fromkeys(
        case.trace.label
        for case in cases
        if not any(all_runs.varies[case.label, policy] for policy in config.policies)
    )
    if once and len(config.seeds) > 1:
        notes.append(
            f"Seeds make no difference to {' and '.join(once)} (a file, without faults or errors "
            "of estimates), so each policy ran there once."
        )
    over = {row["over"] for row in compared}
    if "runs" in over:
        notes.append("Differences over runs: a pair is one trace and seed under both policies.")
    if len(cases) > len(config.traces):
        notes.append(
            "In all settings together, the cases of one trace and seed count as one observation."
        )
    if "jobs" in over:
        notes.append(f"Differences over jobs: a pair is one job under both policies. {ROUGH}")
    notes += [
        f"{label} is scenario {facts['name']} (version {facts['version']}, {facts['digest']}) with "
        f"its own cluster and conditions, {units.plural(len(facts['seeds']), 'seed')} from "
        f"{facts['seeds'][0]}"
        + "".join(f"; {name} means {other} there" for name, other in facts["aliases"].items())
        + "."
        for label, facts in _facts_of_scenarios(config).items()
    ]
    notes += dict.fromkeys(note for case in cases for note in case.notes)
    runs = [run.summary for run in all_runs.runs.values()]
    if len(config.clusters) > 1 and any(run["oversized"] for run in runs):
        notes.append(
            "Jobs that one of the clusters cannot hold are left out on all of them, so that all "
            "cases of a trace have the same jobs."
        )
    notes += dict.fromkeys(
        f"{run['policy']} on {run['trace']}, seed {run['seed']}: {note}"
        for run in runs
        for note in run["notes"]
    )
    lost = {run["of_trace"]: losses(run) for run in runs}  # alike in all cases of a trace
    return notes + [f"{label}: {text}" for label, texts in lost.items() for text in texts]


def _note_on_learning(config: CompareConfig, learners: Sequence[str]) -> list[str]:
    if not learners or config.history is not None:
        return []
    return [f"{', '.join(learners)} learns from the very jobs it schedules (no history given)."]
