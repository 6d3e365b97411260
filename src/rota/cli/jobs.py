"""`rota submit`, `queue`, `cancel` and `logs`: a user's side of the local backend."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rota.cli.loading import note
from rota.cli.table import print_json, print_table
from rota.errors import ConfigError, InputError, RotaError

if TYPE_CHECKING:
    from rota.backends.local.held import Held
    from rota.backends.local.overview import Overview
    from rota.backends.local.store import Store

State = Annotated[
    Path,
    typer.Option(
        "--state", metavar="DIR", envvar="ROTA_STATE", help="Where jobs and their logs are kept."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
JobNumber = Annotated[int, typer.Argument(metavar="JOB", help="Its number, as submit printed it.")]
STATE: Final = Path("~/.local/state/rota")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_OWN: Final = ("_", "SHLVL", "PWD", "OLDPWD")
"""Variables that mean something in the submitting shell only."""
_LOOK_S: Final = 0.2
ANSWER_S: Final = 0.5
"""For all agents together to say how far their jobs are; then it is what was known last."""


def submit(
    command: Annotated[list[str], typer.Argument(help="Behind --, such as -- python train.py.")],
    name: Annotated[str, typer.Option(help="What tables call it.")] = "",
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes.")] = 1,
    min_workers: Annotated[int, typer.Option(min=0, help="Fewest; 0: as --workers.")] = 0,
    max_workers: Annotated[int, typer.Option(min=0, help="Most; 0: as --workers.")] = 0,
    servers: Annotated[int, typer.Option(min=0, help="Parameter servers, with --elastic.")] = 0,
    max_servers: Annotated[int, typer.Option(min=0, help="Most; 0: as --servers.")] = 0,
    gpus: Annotated[
        int, typer.Option("--gpus-per-worker", min=0, help="GPUs, or CPU slots, of each worker.")
    ] = 1,
    elastic: Annotated[
        bool, typer.Option("--elastic", help="The script uses rota.elastic: resize it as it runs.")
    ] = False,
    estimate: Annotated[
        str, typer.Option(metavar="90s|20m|3h|1d", help="How long it takes, if you know.")
    ] = "",
    model: Annotated[str, typer.Option(help="Jobs of one model speed up alike.")] = "",
    preemptible: Annotated[
        bool,
        typer.Option(
            "--preemptible",
            help="It writes a checkpoint on SIGTERM, and may be stopped for others.",
        ),
    ] = False,
    preload: Annotated[
        list[str] | None, typer.Option(help="Import this once for all workers; repeat for more.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="OMP_NUM_THREADS of each worker.")] = 1,
    retries: Annotated[int, typer.Option(min=0, help="Start it again if it fails.")] = 0,
    grace: Annotated[float, typer.Option(min=0, help="Seconds it may take to end.")] = 30.0,
    park_every: Annotated[
        str,
        typer.Option(metavar="5m", help="Keep the state of an elastic job so often; 0: never."),
    ] = "5m",
    state: State = STATE,
    as_json: AsJson = False,
) -> None:
    """Put a job in line, here and with this environment; prints its number.

    A job without --elastic is one process per worker, with RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT set. It is left alone until it ends, unless it is --preemptible: then, to stop,
    move or resize it, it gets SIGTERM and is started again later, to go on from its checkpoint.
    """
    from rota.backends.local.request import Request
    from rota.backends.local.store import Store

    request = Request(
        command=tuple(command),
        cwd=os.getcwd(),
        env={key: value for key, value in os.environ.items() if not _is_own(key)},
        kind="servers" if servers else "elastic" if elastic else "plain",
        name=name,
        user=os.environ.get("USER") or str(os.getuid()),
        model=model,
        submitted_at=time.time(),
        workers=workers,
        min_workers=min_workers,
        max_workers=max_workers,
        servers=servers,
        max_servers=max_servers,
        min_servers=1 if servers else 0,
        gpus_per_worker=gpus,
        estimate_s=seconds("--estimate", estimate) if estimate else None,
        preload=tuple(preload or ()),
        preemptible=preemptible,
        threads=threads,
        retries=retries,
        grace_s=grace,
        park_every_s=seconds("--park-every", park_every),
    )
    if servers and not elastic:
        raise ConfigError("--servers needs a script that uses rota.elastic; say --elastic, too.")
    request.check_here()
    store = Store(state)
    uid = store.submit(request)
    if as_json:
        print_json({"job": uid})
    else:
        typer.echo(uid)
    if store.daemon() is None:
        note(f"nobody schedules {store.root} now; `rota run` does.")


def _is_own(name: str) -> bool:
    return name in _OWN or name.startswith("ROTA_")


def seconds(option: str, text: str) -> float:
    """A length of time such as 90s, 20m, 3h or 1d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if found is None:
        raise ConfigError(f"{option} {text!r} is no length of time; say 90s, 20m, 3h or 1d.")
    return float(found[1]) * _UNITS[found[2] or "s"]


def queue(
    everything: Annotated[bool, typer.Option("--all", help="Also jobs that are over.")] = False,
    state: State = STATE,
    as_json: AsJson = False,
) -> None:
    """Who waits, who runs, and on what."""
    from rota.backends.local.overview import Overview
    from rota.backends.local.store import Store

    store = Store(state, create=False)
    daemon = store.daemon()
    past = store.history.all() if everything else {}
    uids = sorted({*store.uids(), *past})
    overview = Overview(store)
    found = (_fresh(store, overview, n) or _row(store, n, everything, past.get(n)) for n in uids)
    rows = [row for row in found if row]
    overview.keep(uids)
    _ask_agents(store, rows)
    if as_json:
        print_json({"state": str(store.root), "daemon": daemon, "jobs": rows})
        return
    if daemon is None:
        note(f"nobody schedules {store.root} now; `rota run` does.")
    if not rows:
        typer.echo("No jobs." if everything else "No jobs wait or run; --all shows the others.")
        return
    cells = [
        (str(row["job"]), row["name"], row["user"], row["state"], _short(row["age_s"]),
         _size(row), row["where"], "" if row["done"] is None else f"{row['done']:.0%}", row["why"])
        for row in rows
    ]  # fmt: skip
    heads = ("job", "name", "user", "state", "age", "workers", "on", "done", "")
    print_table(list(zip(heads, map(list, zip(*cells, strict=True)), strict=True)), left=4)


def _fresh(store: Store, overview: Overview, uid: int) -> dict[str, Any] | None:
    """The row of a job that has never run."""
    try:
        if (facts := overview.fresh(uid)) is None:
            return None
    except (RotaError, OSError):
        return None
    submitted_at = facts.pop("submitted_at")
    return {
        "job": uid, "state": "waiting", "submit_s": round(submitted_at - store.origin, 3),
        "started_s": None, "ended_s": None, "age_s": max(0.0, time.time() - submitted_at),
        "workers": 0, "servers": 0, "where": "", "done": None, "preemptions": 0, "why": "",
        "stopped": "", **facts,
    }  # fmt: skip


def _row(
    store: Store, uid: int, everything: bool, past: dict[str, Any] | None
) -> dict[str, Any] | None:
    ended = None
    try:
        ended = store.ended(uid) if past is None else store.past_ended(past)
        if ended is not None and not everything:
            return None
        request, held = store.load(uid) if past is None else store.past_load(past)
    except (RotaError, OSError) as error:
        state = ended.state if ended else "broken"
        return {"job": uid, "name": "?", "user": "?", "state": state, "age_s": 0.0, "kind": "?",
                "workers": 0, "min_workers": 0, "max_workers": 0, "servers": 0, "where": "",
                "done": None, "why": str(error)}  # fmt: skip
    now_s = time.time() - store.origin
    submit_s = request.submitted_at - store.origin
    running = bool(held.seats)
    phase: str = ended.state if ended else "running" if running else "waiting"
    if ended is None and store.cancelled(uid):
        phase = "ending"
    counts = [seat.kind for seat in held.seats.values()]
    return {
        "job": uid, "name": request.title, "user": request.user, "kind": request.kind,
        "state": phase, "submit_s": round(submit_s, 3), "started_s": held.started_s,
        "ended_s": ended and ended.time_s,
        "age_s": max(0.0, (ended.time_s if ended else now_s) - submit_s),
        "workers": counts.count("worker"), "servers": counts.count("server"),
        "min_workers": request.min_workers, "max_workers": request.max_workers,
        "where": _places(held), "done": _part(held.samples, held.total),
        "run": held.run if held.open else 0, "preemptions": held.preemptions,
        "why": ended.error if ended else held.note or ("" if running else held.stopped),
        "stopped": held.stopped,
    }  # fmt: skip


def _ask_agents(store: Store, rows: list[dict[str, Any]]) -> None:
    """Put in what agents say of progress, as far as they answer soon; all are asked at once."""
    from concurrent.futures import wait

    from rota.backends.local.calls import Calls
    from rota.elastic import Job

    calls = Calls()
    asked = {
        calls.submit(Job(store.run_folder(row["job"], run)).observe): row
        for row in rows
        if (run := row.pop("run", 0)) and row["kind"] != "plain"
    }
    for call in wait(asked, ANSWER_S).done:
        if call.exception() is None:
            status = call.result()
            said = _part(status.samples, status.total)
            asked[call]["done"] = max(filter(None, (said, asked[call]["done"])), default=None)


def _part(samples: int, total: int) -> float | None:
    """The part of its work that is done, if that is known."""
    return samples / total if total else None


def _places(held: Held) -> str:
    places: dict[int, list[int]] = {}
    for seat in held.seats.values():
        places.setdefault(seat.node, []).extend(seat.gpus)
    return " ".join(
        f"{node}:{','.join(map(str, sorted(gpus)))}" for node, gpus in sorted(places.items())
    )


def _size(row: dict[str, Any]) -> str:
    low, high = row["min_workers"], row["max_workers"]
    asked = str(low) if low == high else f"{low}–{high}"
    held = f"{row['workers']}+{row['servers']}" if row["servers"] else str(row["workers"])
    return f"{held} of {asked}"


def _short(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f}{unit}"
    return f"{seconds:.0f}s"


def cancel(
    jobs: Annotated[list[int] | None, typer.Argument(metavar="JOB…", help="Numbers.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that wait or run.")] = False,
    state: State = STATE,
) -> None:
    """End jobs, waiting or running."""
    from rota.backends.local.store import Store

    store = Store(state, create=False)
    if bool(jobs) == everything:
        raise InputError("Say which jobs to cancel, by number; or --all.")
    chosen = jobs or [uid for uid in store.uids() if not _is_over(store, uid)]
    troubles = []
    for uid in chosen:
        try:
            store.cancel(uid)
        except (RotaError, OSError) as error:
            troubles.append(str(error))
    if len(troubles) < len(chosen) and store.daemon() is None:
        note(f"nobody schedules {store.root} now: they end when `rota run` does.")
    if troubles:
        raise ConfigError(" ".join(troubles))


def _is_over(store: Store, uid: int) -> bool:
    try:
        return store.ended(uid) is not None
    except RotaError:  # nobody knows, so it can be cancelled
        return False


def logs(
    job: JobNumber,
    worker: Annotated[str, typer.Option(help="A worker's name, such as w0; default: all.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the job is over.")] = False,
    state: State = STATE,
) -> None:
    """What a job has printed, run by run."""
    from rota.backends.local.store import Store

    store = Store(state, create=False)
    if not store.log_folder(job).is_dir():
        store.request(job)
    told: dict[str, int] = {}
    while True:
        over = _is_over(store, job)
        _tell(store, job, worker, told)
        if over or not follow:
            break
        time.sleep(_LOOK_S)
    ended = store.ended(job) if over else None
    if ended is not None and ended.error:
        note(f"job {job} {ended.state}: {ended.error}")
    elif not told:
        note(f"job {job} has printed nothing yet.")


def _tell(store: Store, job: int, worker: str, told: dict[str, int]) -> None:
    """Print what is new in the logs."""
    folder = store.log_folder(job)  # a job that is over is put away at some moment
    found = sorted(folder.glob("run-*/logs/*.log"), key=_written)
    names = {path.stem for path in found}
    if worker and worker not in names and found:
        raise InputError(
            f"No worker of this job is called {worker!r}; there are {', '.join(sorted(names))}."
        )
    for path in found:
        if worker and path.stem != worker:
            continue
        name = str(path.relative_to(folder))
        try:
            with path.open("rb") as log:
                log.seek(told.get(name, 0))
                text = log.read()
                at = log.tell()
        except FileNotFoundError:  # it was put away just now
            _tell(store, job, worker, told)
            return
        if not text:
            continue
        told[name] = at
        if len(names) > 1:
            typer.secho(f"── {path.parents[1].name} {path.stem}", dim=True)
        sys.stdout.buffer.write(text)
        sys.stdout.flush()


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
