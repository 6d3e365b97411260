"""`rota report`: draws what a journal tells."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.progress import LateBar
from rota.cli.table import print_json, print_table, shown
from rota.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.dash.past_run import PastRun

POINTS = 400
"""Stretches of time over which the curves are averaged."""


def report(
    journal: Annotated[
        Path,
        typer.Argument(metavar="JOURNAL", help="Of `rota simulate --journal FILE` or `rota run`."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page; default: JOURNAL's name with .html."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON; a page only with --out.")
    ] = False,
    by: Annotated[
        list[str] | None, typer.Option(metavar="size|user", help="Print a further table; repeat.")
    ] = None,
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Of `rota run --shadow`: compare what it would have done."),
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", help="With --shadow: play others than the one in shadow."),
    ] = None,
) -> None:
    """Draw the report of a journal: who ran where and when, per node and per user.

    The journal may be a simulation's or a daemon's, finished or still being written. With --shadow:
    which jobs would have waited less and which more, and how often the policy agreed with Slurm.
    """
    wanted = list(dict.fromkeys(by or ()))
    if unknown := [name for name in wanted if name not in ("size", "user")]:
        raise InputError(f"--by takes size or user, not {unknown[0]!r}.")
    if policy and not shadow:
        raise InputError("-p goes with --shadow; `rota simulate JOURNAL -p …` replays any journal.")
    if wanted and shadow:
        raise InputError("--by is not for --shadow, whose page has a table by user.")
    suffix = ".shadow.html" if shadow else ".html"
    page = Path(f"{journal.stem}{suffix}") if out is None and not as_json else out
    if page is not None:
        check_page(page)
    if shadow:
        from rota.cli.shadow_report import shadow_report

        shadow_report(journal, policy or [], page, as_json=as_json)
        _told(page)
        return
    with LateBar() as bar:
        bar.begin(f"reading {journal.name}", 0)
        run, found, over_time = _read(journal)
        if page is not None:
            _write(page, run, found, over_time, bar)
    if as_json:
        print_json({**found, "over_time": over_time})
    else:
        _print(run, found, wanted)
    _told(page)


def _told(page: Path | None) -> None:
    if page is not None:
        typer.echo(f"Wrote {shown(str(page))}.", err=True)


def check_page(path: Path) -> None:
    """Refuse to replace what is not a page of ours, the journal itself above all."""
    from rota.dash.page import GENERATOR

    if path.is_dir():
        raise InputError(f"{path} is a folder; --out needs the name of a file.")
    if path.exists() and GENERATOR.encode() not in path.read_bytes()[:1000]:
        raise InputError(f"{path} exists and is not a report; give --out another name.")


def _read(journal: Path) -> tuple[PastRun, dict[str, Any], dict[str, Any]]:
    """The journal, its numbers, and its curves."""
    from rota.dash.past_run import PastRun, summary
    from rota.run.metrics import series
    from rota.sim.past import opened

    with opened(journal) as view:
        run = PastRun.read(view)
    return run, summary(run), series(run.outcome, POINTS)


def _write(
    path: Path, run: PastRun, found: Mapping[str, Any], over_time: Mapping[str, Any], bar: LateBar
) -> None:
    from rota.dash.journal_page import SECTIONS, render
    from rota.traces.text_files import write_text

    write_text(path, render(run, found, over_time, bar.begin("drawing", SECTIONS)))


def _print(run: PastRun, found: Mapping[str, Any], by: Sequence[str]) -> None:
    from rota.cli.loading import short_names
    from rota.cli.runs import print_groups
    from rota.dash.journal_page import SUMMARY
    from rota.dash.metric_columns import metric_columns

    columns = metric_columns([found], SUMMARY)
    stopped = " (stopped early)" if "stopped" in run.meta else " (not ended yet)"
    state = "" if run.finished else stopped
    title = f"{run.name}{state}: {found['policy']} on {found['cluster']['about']}"
    print_table(columns, title=shown(title), left=0)
    for note in found["notes"]:
        typer.echo(shown(note))
    for group in by:
        typer.echo()
        print_groups(found, group, short_names([found["policy"]])[found["policy"]])
