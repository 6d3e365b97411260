"""`rota queue`: which jobs wait, which run, on what, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from rota.cli.job_verbs import STATE, State  # noqa: TC001
from rota.cli.loading import note
from rota.cli.options import AsJson, duration  # noqa: TC001
from rota.cli.table import print_json, print_table, shown
from rota.dash.units import plural, rough_time
from rota.errors import ConfigError, InputError

if TYPE_CHECKING:
    from rota.backends.local.queue_rows import QueueRows
    from rota.backends.local.state_dir import StateDir

WATCH_S: Final = 2.0
_HEADS: Final = ("job", "name", "user", "state", "age", "workers", "on", "done", "")
_LEAST_S: Final = 0.1

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class QueueCommand(TyperCommand):
    """`--watch` with or without a duration, which typer itself cannot read."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give `--watch` its duration where it stands alone."""
        words = [
            f"--watch={WATCH_S:g}s" if word == "--watch" and after[:1] in ("", "-") else word
            for word, after in zip(args, [*args, ""][1:], strict=True)
        ]
        return super().parse_args(ctx, words)


@app.command(cls=QueueCommand)
def queue(
    jobs: Annotated[
        list[int] | None, typer.Argument(metavar="[JOB...]", help="Tell all about these.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also jobs that are over.")] = False,
    watch: Annotated[
        float | None,
        duration(
            f"Show it again until Ctrl-C, every {WATCH_S:g}s or as you say.", metavar="[DURATION]"
        ),
    ] = None,
    state: State = STATE,
    as_json: AsJson = False,
) -> None:
    """Show which jobs wait and why, which run, and on what."""
    from rota.backends.local.queue_rows import QueueRows
    from rota.backends.local.state_dir import StateDir

    if jobs and everything:
        raise InputError("Name jobs, or say --all; not both.")

    def show() -> None:
        _show(QueueRows(StateDir(state, create=False)), jobs or [], everything, as_json=as_json)

    if watch is None:
        show()
        return
    if not watch >= _LEAST_S:
        raise ConfigError(f"--watch {watch:g} is too short; give {_LEAST_S:g}s or more.")
    from rota.cli.watch import redraw

    redraw(show, watch)


def _show(rows_of: QueueRows, jobs: list[int], everything: bool, *, as_json: bool) -> None:
    rows = rows_of.some(dict.fromkeys(jobs)) if jobs else rows_of.all(over=everything)
    missing = {uid: str(error) for uid, error in rows_of.missing.items()}
    if as_json:
        facts = {"state": str(rows_of.store.root), "daemon": rows_of.daemon, "jobs": rows}
        errors = [{"job": uid, "error": text} for uid, text in missing.items()]
        print_json({**facts, "errors": errors} if jobs else facts)
    else:
        _print_rows(rows_of, rows, jobs, everything)
    if missing:
        raise ConfigError(" ".join(missing.values()))
    if rows_of.error is not None:
        raise rows_of.error


def _print_rows(
    rows_of: QueueRows, rows: list[dict[str, Any]], jobs: list[int], everything: bool
) -> None:
    store, daemon = rows_of.store, rows_of.daemon
    if daemon is None:
        note(f"no daemon schedules {store.root} now; `rota run` starts one.")
    if jobs:
        for k, row in enumerate(rows):
            _tell_one(store, row, first=k == 0)
    elif rows:
        *columns, whys = map(list, zip(*map(_cells, rows), strict=True))
        width = max(map(len, whys))  # padded, since sentences are not flush right
        columns.append([why.ljust(width) for why in whys])
        print_table(list(zip(_HEADS, columns, strict=True)), left=4)
    else:
        typer.echo("No jobs." if everything else "No jobs wait or run; --all shows the others.")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    done = "" if row["done"] is None else f"{row['done']:.0%}"
    why = ". ".join(filter(None, (row["why"].rstrip("."), row["hint"])))
    return (str(row["job"]), row["name"], row["user"], row["state"], rough_time(row["age_s"]),
            _size(row), row["where"], done, why)  # fmt: skip


def _tell_one(store: StateDir, row: dict[str, Any], *, first: bool) -> None:
    """The long form: a line for each thing that is known of one job."""
    ago = "ago" if row.get("ended_s") is None else "before it ended"
    lines = [("state", f"{row['state']}, submitted {rough_time(row['age_s'])} {ago}")]
    lines += _request_lines(store, row["job"])
    if row["where"]:
        lines.append(("holds", f"{_size(row)} workers on {row['where']} (node:GPUs)"))
    if row["done"] is not None:
        lines.append(("done", f"{row['done']:.0%}"))
    if row.get("preemptions"):
        lines.append(("stopped", f"{plural(row['preemptions'], 'time')} until now"))
    reasons = row["reasons"]
    if row["why"] and row["why"] not in [reason["text"] for reason in reasons]:
        lines.append(("error" if row["state"] in ("failed", "broken") else "note", row["why"]))
    if row["hint"]:
        lines.append(("hint", row["hint"]))
    for reason in reasons:
        lines.append(("why", reason["text"]))
        for holder in reason["holders"]:
            unit = reason["unit"].removesuffix("s") if holder["holds"] == 1 else reason["unit"]
            lines.append(("", f"job {holder['job']} holds {holder['holds']:g} {unit}"))
        if reason["next"]:
            lines.append(("next", reason["next"]))
    if not first:
        typer.echo()
    typer.secho(shown(f"job {row['job']}  {row['name']}  ({row['user']})"), bold=True)
    for head, text in lines:
        typer.echo(f"  {head:8} {shown(text)}")


def _request_lines(store: StateDir, uid: int) -> list[tuple[str, str]]:
    import shlex

    from rota.backends.local.start_hint import program_of
    from rota.errors import RotaError

    try:
        request = store.request(uid)
    except (RotaError, OSError):
        return []
    low, high = request.min_workers, request.max_workers
    sizes = f" ({low} to {high})" if low != high else ""
    each = f"{plural(request.gpus_per_worker, 'GPU')}{' each' * (request.workers > 1)}"
    servers = f" and {plural(request.servers, 'parameter server')}" if request.servers else ""
    return [
        ("asks for", f"{plural(request.workers, 'worker')}{sizes} with {each}{servers}"),
        ("command", shlex.join(request.command)),
        ("program", program_of(request)),
        ("folder", request.cwd),
    ]


def _size(row: dict[str, Any]) -> str:
    low, high = row["min_workers"], row["max_workers"]
    asked = str(low) if low == high else f"{low}–{high}"
    held = f"{row['workers']}+{row['servers']}" if row["servers"] else str(row["workers"])
    return f"{held} of {asked}"
