"""`rota report --shadow`: what a policy would have made of the jobs that Slurm has run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import typer

from rota.cli.loading import named_policies, note
from rota.cli.progress import LateBar
from rota.cli.table import print_json, print_table, shown
from rota.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rota.core.types import Floats
    from rota.run.outcome import Outcome
    from rota.sim.shadow_world import ShadowWorld

CHECKS: Final = ("fifo", "fifo-easy")
"""Played as well: what Slurm itself does, or nearly, so that one sees how good the simulator is."""
SAME_S: Final = 1.0
"""Waits that differ by no more are equal: Slurm counts whole seconds."""
POINTS: Final = 400
"""Stretches of time over which the queue is averaged."""
MOST_ROWS: Final = 5
"""Jobs with the largest gain, and with the largest loss, that are printed."""


def shadow_report(
    journal: Path, policies: Sequence[str], page: Path | None, *, as_json: bool
) -> None:
    """Compare, print, and draw a page if one is wanted."""
    with LateBar() as bar:
        bar.begin(f"reading {journal.name}", 0)
        found = compare_shadow(journal, policies, bar)
    if page is not None:
        from rota.dash.shadow_page import render
        from rota.traces.text_files import write_text

        write_text(page, render(found))
    if as_json:
        print_json(found)
    else:
        _print(found)


def compare_shadow(journal: Path, policies: Sequence[str], bar: LateBar) -> dict[str, Any]:
    """All that is said of a journal in shadow, ready for JSON."""
    from rota.backends.book_reader import read_known
    from rota.run.journal_file import told
    from rota.run.shadow_rounds import read_shadow_rounds
    from rota.sim import simulate
    from rota.sim.past import opened
    from rota.sim.shadow_world import ASSUMED, ShadowWorld

    with opened(journal) as view:
        if not (told(view.meta, "shadow") or [False])[-1]:
            raise InputError(
                f"{journal} was not written by `rota run --shadow`; leave out --shadow, or name "
                "the journal in the --state of such a run."
            )
        names, foreign = dict[str, str](), set[int]()
        for job in read_known(journal):
            names[str(job.uid)] = job.name
            if not job.ours:
                foreign.add(job.uid)
        live = read_shadow_rounds(view, foreign)
        world = ShadowWorld.of(view, {str(uid) for uid in foreign})
        asked = list(policies) or [str(told(view.meta, "policy")[-1])]
    made = named_policies(list(dict.fromkeys([*asked, *CHECKS])))
    runs: dict[str, Outcome] = {}
    for name, policy in made.items():
        report = bar.begin(name, len(world.trace))
        runs[name] = simulate(
            world.cluster, world.trace, policy, world.when, series=True, progress=report
        )
    waits = {name: world.waited_s(run) for name, run in runs.items()}
    rows = [
        {**_fared(world, waits[name]), "policy": name, "check": name not in asked,
         **_against(world, waits[name]), **_changes(runs[name])}
        for name in runs
    ]  # fmt: skip
    began = world.compared & (world.trace.submit_s <= 0)
    return {
        "journal": str(journal), "watched_s": world.record.end_s - world.record.begin_s,
        "cluster": {"about": world.cluster.describe(), "gpus": world.cluster.total_gpus},
        "asked": asked, "compared": int(world.compared.sum()), "not_compared": dict(world.aside),
        "waited_at_the_beginning": int(began.sum()), "assumed": list(ASSUMED),
        "live": {**vars(live), "judged": live.judged},
        "slurm": {**_fared(world, world.wait_s), **_changes(world.record)},
        "policies": rows, "by_user": _by_user(world, waits),
        "jobs": _jobs(world, waits, names), "over_time": _over_time(world, runs),
    }  # fmt: skip


def _fared(world: ShadowWorld, wait_s: Floats) -> dict[str, float | None]:
    """How long the compared jobs wait."""
    own = wait_s[world.compared]
    if not len(own):
        return dict.fromkeys(("mean_wait_s", "p50_wait_s", "p90_wait_s", "max_wait_s"))
    return {
        "mean_wait_s": float(own.mean()), "p50_wait_s": float(np.percentile(own, 50)),
        "p90_wait_s": float(np.percentile(own, 90)), "max_wait_s": float(own.max()),
    }  # fmt: skip


def _against(world: ShadowWorld, wait_s: Floats) -> dict[str, Any]:
    """How many jobs wait less, more, or as long as they really did."""
    change = (wait_s - world.wait_s)[world.compared]
    return {
        "mean_gap_s": float(np.abs(change).mean()) if len(change) else None,
        "less": int((change < -SAME_S).sum()), "more": int((change > SAME_S).sum()),
        "same": int((np.abs(change) <= SAME_S).sum()),
    }  # fmt: skip


def _changes(run: Outcome) -> dict[str, int]:
    """What a run does to running jobs, of all of the world's jobs."""
    stops = run.preemptions
    return {
        "preemptions": int(stops.sum()), "preempted_jobs": int((stops > 0).sum()),
        "moves": run.moves, "resizes": run.resizes,
    }  # fmt: skip


def _by_user(world: ShadowWorld, waits: Mapping[str, Floats]) -> list[dict[str, Any]]:
    """One row per user with compared jobs, the longest waits first."""
    found = []
    for code in np.unique(world.trace.user[world.compared]).tolist():
        own = world.compared & (world.trace.user == code)
        found.append({
            "user": world.trace.users[code] if code >= 0 else None, "jobs": int(own.sum()),
            "slurm_wait_s": float(world.wait_s[own].mean()),
            "wait_s": {name: float(wait_s[own].mean()) for name, wait_s in waits.items()},
        })  # fmt: skip
    return sorted(found, key=lambda row: -float(row["slurm_wait_s"]))


def _jobs(
    world: ShadowWorld, waits: Mapping[str, Floats], names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """One row per compared job, in order of submission; `names` are Slurm's."""
    trace, users = world.trace, world.trace.names("user")
    return [
        {"job": names.get(str(trace.job_id[k]), str(trace.job_id[k])), "user": users[k],
         "gpus": int(trace.num_gpus[k]), "submit_s": float(trace.submit_s[k]),
         "run_s": float(trace.duration_s[k]), "slurm_wait_s": float(world.wait_s[k]),
         "wait_s": {name: float(wait_s[k]) for name, wait_s in waits.items()}}
        for k in np.flatnonzero(world.compared).tolist()
    ]  # fmt: skip


def _over_time(world: ShadowWorld, runs: Mapping[str, Outcome]) -> dict[str, Any]:
    """Waiting jobs over time, as it was and under each policy."""
    from rota.run.metrics import series

    found = {"Slurm": world.record, **runs}
    curves = {name: series(outcome, POINTS) for name, outcome in found.items()}
    return {
        name: {"time_s": one["time_s"], "waiting": one["waiting"]} for name, one in curves.items()
    }


def _print(found: Mapping[str, Any]) -> None:
    from rota.dash import units
    from rota.dash.shadow_page import live_sentences, table_columns, verdicts

    about = f"{units.time(found['watched_s'])} of Slurm on {found['cluster']['about']}"
    title = f"{found['journal']}: {about}; {found['compared']:,} jobs compared"
    print_table(table_columns(found), title=shown(title))
    for sentence in [*verdicts(found), *live_sentences(found["live"])]:
        typer.echo(shown(sentence))
    first = found["asked"][0]
    change = {id(job): job["wait_s"][first] - job["slurm_wait_s"] for job in found["jobs"]}
    ranked = sorted(found["jobs"], key=lambda job: change[id(job)])
    for head, jobs in (
        ("would have waited less", [j for j in ranked if change[id(j)] < -SAME_S][:MOST_ROWS]),
        ("would have waited more", [j for j in ranked[::-1] if change[id(j)] > SAME_S][:MOST_ROWS]),
    ):
        if jobs:
            typer.echo()
            columns = [
                ("job", [str(job["job"]) for job in jobs]), ("user", [job["user"] for job in jobs]),
                ("GPUs", units.counts([job["gpus"] for job in jobs])),
                ("Slurm", units.times([job["slurm_wait_s"] for job in jobs])),
                (first, units.times([job["wait_s"][first] for job in jobs])),
            ]  # fmt: skip
            print_table(columns, title=f"Under {first} {head} (the first {len(jobs)})", left=2)
    for why, count in found["not_compared"].items():
        note(f"{units.plural(count, 'job')} not compared: {why}.")
    if early := found["waited_at_the_beginning"]:
        note(f"{units.plural(early, 'job')} waited already when watching began; waits count from "
             "then.")  # fmt: skip
    for sentence in found["assumed"]:
        note(sentence)
