"""`rota profile`: measure jobs alone and beside each other, and fit laws of speed to it."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.job_verbs import STATE
from rota.cli.loading import note
from rota.cli.options import AsJson, command, duration  # noqa: TC001
from rota.cli.progress import LateBar
from rota.cli.signals import on_signals
from rota.cli.table import print_json, print_table
from rota.dash.units import plural
from rota.errors import ConfigError, JobError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rota.backends.local.measuring import Measuring
    from rota.backends.local.request import Request
    from rota.cli.profile_plan import ProfilePlan
    from rota.perf.job_laws import JobLaw, JobLaws
    from rota.perf.job_tables import JobTables, PlacedModel, Throughput

MOST_FAILED = 3
"""Failed measurements whose reasons are told in full."""


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """What `rota profile` is told."""

    jobs: Annotated[
        Path,
        typer.Argument(
            metavar="JOBS", help="A TOML file: a table [[job]] each, with submit's options as keys."
        ),
    ]
    backend: Annotated[str, typer.Option(metavar="NAME", help="What cluster: local.")] = "local"
    nodes: Annotated[int, typer.Option(min=1, help="Virtual nodes of this machine.")] = 1
    gpus: Annotated[
        int, typer.Option(min=0, help="GPUs of each; 0: all there are, or one slot per CPU.")
    ] = 0
    workers: Annotated[
        list[int] | None,
        typer.Option(
            "--workers", "-w", min=1, help="Measure jobs with so many; repeat for more. Default: "
            "the least, the asked and the most of each.",
        ),
    ] = None  # fmt: skip
    over: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Nodes to spread a job over; repeat for more. Default: 1 and up."),
    ] = None
    pairs: Annotated[bool, typer.Option(help="Measure every two jobs on the same nodes, too.")] = (
        True
    )
    seconds: Annotated[float, duration("Each measurement, warm-up left out.")] = 30.0
    warm_up: Annotated[float, duration("Training that does not count.")] = 5.0
    step_limit: Annotated[
        float, duration("In which a job must make a step, the first and any other.")
    ] = 300.0
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where tables and fitted laws are written.")
    ] = Path("profile")
    state: Annotated[
        Path,
        typer.Option(
            "--state", metavar="DIR", envvar="ROTA_STATE",
            help="Refuse to measure while a daemon runs on this state directory.",
        ),
    ] = STATE  # fmt: skip
    as_json: AsJson = False

    def __post_init__(self) -> None:
        if not self.seconds >= 1:
            raise ConfigError(f"--seconds {self.seconds:g} is too short; give 1s or more.")
        if self.backend != "local":
            raise ConfigError(
                f"--backend {self.backend}: jobs can be placed and measured on local only."
            )


@command(ProfileOptions)
def profile(options: ProfileOptions) -> None:
    """Measure your own jobs alone and in pairs, and fit laws of speed and contention to that.

    No daemon is needed, and none may run. What DIR has already is not measured again, so a profile
    that was interrupted is completed by the same command. DIR/profile.json is for `rota run
    --profile` and for scenarios.
    """
    from rota.backends.local.machine import machine
    from rota.cli.jobs_file import read_jobs
    from rota.cli.profile_plan import plan_profile
    from rota.perf.job_laws import fit_laws

    jobs = read_jobs(options.jobs)
    cluster, real = machine(options.nodes, options.gpus)
    plan = plan_profile(
        jobs, cluster, workers=options.workers or (), over=options.over or (), pairs=options.pairs
    )
    if plan.crowded:
        a, b = plan.crowded[0]
        note(
            f"{plural(len(plan.crowded), 'pair')} cannot share nodes, such as {a} and {b}; with "
            "more --gpus they could."
        )
    tables = _tables(options, jobs, claim=False)
    failed: list[str] = []
    if _left(plan, tables):
        _refuse_daemon(options.state)
        with _measuring(options, jobs, cluster, real_gpus=real) as bench:
            # Another process may have added to them until now.
            tables = _tables(options, jobs, claim=True)
            failed = _measure(bench, plan, jobs, tables, options)
    total = len(plan.alone) + len(plan.pairs)
    if not tables.alone:
        raise JobError(_told(failed, total))
    laws = fit_laws(tables)
    path = laws.write(options.out)
    if options.as_json:
        print_json(_facts(tables, laws, path, failed))
    else:
        _show(tables, laws, path)
    if failed:
        raise JobError(_told(failed, total))


def _tables(options: ProfileOptions, jobs: Mapping[str, Request], *, claim: bool) -> JobTables:
    """What was measured before, of just these jobs; only who will measure may `claim` them."""
    from rota.perf.job_tables import JobTables

    try:
        options.out.mkdir(parents=True, exist_ok=True)
        tables = JobTables(options.out)
        facts = {model: _identity(request) for model, request in jobs.items()}
        (tables.claim if claim else tables.check)(facts)
    except OSError as error:
        raise ConfigError(
            f"The folder {options.out} cannot be written: {error.strerror}; choose another --out."
        ) from None
    return tables


def _identity(request: Request) -> dict[str, Any]:
    """What a measurement depends on beside its placement."""
    keys = ("cwd", "gpus_per_worker", "cpus_per_worker")
    threads = request.threads or request.env.get("OMP_NUM_THREADS", 1)
    facts = {"command": list(request.command), "threads": str(threads)}
    return facts | {key: getattr(request, key) for key in keys}


def _left(plan: ProfilePlan, tables: JobTables) -> int:
    """How many measurements are still to be made."""
    alone = sum(placed not in tables.alone for placed in plan.alone)
    return alone + sum(not tables.has_pair(*pair) for pair in plan.pairs)


def _refuse_daemon(state: Path) -> None:
    """Other jobs on the machine would spoil every measurement."""
    from rota.backends.local.state_dir import StateDir

    if not state.expanduser().is_dir():
        return
    if (found := StateDir(state, create=False).daemon()) is not None:
        raise ConfigError(
            f"A daemon (process {found.get('pid', 'unknown')}) schedules jobs on this machine, "
            "which would spoil the measurements; stop it first, or, if it is idle, name another "
            "--state."
        )


@contextmanager
def _measuring(
    options: ProfileOptions, jobs: Mapping[str, Request], cluster: Any, *, real_gpus: bool
) -> Iterator[Measuring]:
    """What measures; SIGTERM and SIGHUP end it as Ctrl-C does, with all its jobs."""
    from rota.backends.local.measuring import Measuring, Spans
    from rota.backends.local.state_dir import StateDir

    if (other := StateDir(options.out / "state").daemon()) is not None:
        raise ConfigError(
            f"Another `rota profile` (process {other.get('pid', 'unknown')}) measures into "
            f"{options.out}; wait for it, or choose another --out."
        )

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    preload = dict.fromkeys(name for request in jobs.values() for name in request.preload)
    spans = Spans(options.seconds, options.warm_up, options.step_limit)
    with (
        on_signals(interrupt, signal.SIGTERM, signal.SIGHUP),
        Measuring(
            options.out / "state", cluster, spans, real_gpus=real_gpus, preload=tuple(preload)
        ) as bench,
    ):
        yield bench


def _measure(
    bench: Measuring,
    plan: ProfilePlan,
    jobs: Mapping[str, Request],
    tables: JobTables,
    options: ProfileOptions,
) -> list[str]:
    """Make all measurements that are left; why some could not be made."""
    from rota.backends.local.measuring import PlacedRequest
    from rota.perf.job_tables import Throughput

    failed: list[str] = []
    each_s = options.seconds + options.warm_up
    total = len(plan.alone) + len(plan.pairs)
    left = _left(plan, tables)
    note(f"{plural(left, 'measurement')} of {each_s:g} s to make, and {total - left} made before.")
    with LateBar() as bar:
        report = bar.begin("", int(total * each_s))
        done = total - left

        def rates(*placed: PlacedModel) -> list[list[float]]:
            bar.begin(" beside ".join(map(str, placed)), int(total * each_s))
            report(int(done * each_s))
            runs = [PlacedRequest(jobs[one.model], one.workers, one.nodes) for one in placed]
            return bench.rates(runs, lambda part: report(int((done + part) * each_s)))

        for one in plan.alone:
            if one not in tables.alone:
                try:
                    tables.add_alone(one, Throughput.of(rates(one)[0]))
                except JobError as error:
                    failed.append(f"{one} alone: {error}")
                done += 1
        for a, b in plan.pairs:
            if tables.has_pair(a, b):
                continue
            if a in tables.alone and b in tables.alone:
                try:
                    tables.add_pair(_both(a, b, rates(a, b)))
                except JobError as error:
                    failed.append(f"{a} beside {b}: {error}")
            else:
                failed.append(f"{a} beside {b}: its speed alone is not known.")
            done += 1
    return failed


def _both(
    a: PlacedModel, b: PlacedModel, found: list[list[float]]
) -> dict[tuple[PlacedModel, PlacedModel], Throughput]:
    """The speed of each beside the other; of two of a kind, both count as one."""
    from rota.perf.job_tables import Throughput

    if a == b:
        return {(a, a): Throughput.of(found[0] + found[1])}
    return {(a, b): Throughput.of(found[0]), (b, a): Throughput.of(found[1])}


def _told(failed: list[str], total: int) -> str:
    """One sentence for all failures."""
    more = f" And {len(failed) - MOST_FAILED} more." if len(failed) > MOST_FAILED else ""
    return (
        f"{len(failed)} of {total} measurements failed; the same command tries them again, and "
        f"only them. {' '.join(failed[:MOST_FAILED])}{more}"
    )


def _show(tables: JobTables, laws: JobLaws, path: Path) -> None:
    alone = list(tables.alone.items())
    print_table(
        [
            ("job", [placed.model for placed, _ in alone]),
            ("workers", [str(placed.workers) for placed, _ in alone]),
            ("nodes", [str(placed.nodes) for placed, _ in alone]),
            ("samples/s", [f"{found.value:.4g}" for _, found in alone]),
            ("±", [_spread(found) for _, found in alone]),
        ],
        title="alone",
    )
    beside = list(tables.ratios.items())
    if beside:
        typer.echo()
        print_table(
            [
                ("job", [str(victim) for (victim, _), _ in beside]),
                ("beside", [str(other) for (_, other), _ in beside]),
                ("keeps", [f"{found.value:.3f}" for _, found in beside]),
                ("±", [_spread(found) for _, found in beside]),
                ("fitted", [
                    f"{_fitted(laws, victim, other):.3f}" for (victim, other), _ in beside
                ]),
            ],
            title="beside another job, as part of its speed alone", left=2,
        )  # fmt: skip
    typer.echo()
    spans = {"1": 1, "2 or more": 2} if laws.apart else {"any": 2}
    each: list[tuple[str, JobLaw | JobLaws]] = [*laws.models.items(), ("any other", laws)]
    fitted = [(name, span, law.ranks(nodes)) for name, law in each for span, nodes in spans.items()]
    usual = "other jobs" if any(ranks.paired for *_, ranks in fitted) else "published jobs"
    explained = "" if laws.r2 is None else f", R² {laws.r2:.2f}"
    print_table(
        [
            ("job", [name for name, *_ in fitted]),
            *([("nodes", [span for _, span, _ in fitted])] if laws.apart else []),
            ("sensitivity", [f"{ranks.sensitivity:.3f}" for *_, ranks in fitted]),
            ("intensity", [f"{ranks.intensity:.3f}" for *_, ranks in fitted]),
            ("from", ["pairs" if ranks.paired else usual for *_, ranks in fitted]),
        ],
        title=f"fitted: a job loses its sensitivity × the other's intensity{explained}",
    )
    typer.echo(f"\nWritten to {path}.")


def _spread(found: Throughput) -> str:
    """In words for tables; one window has none."""
    return f"{found.spread:.1%}" if found.windows > 1 else "–"


def _fitted(laws: JobLaws, victim: PlacedModel, other: PlacedModel) -> float:
    hurt = laws.models.get(victim.model, laws).ranks(victim.nodes).sensitivity
    return 1.0 - hurt * laws.models.get(other.model, laws).ranks(other.nodes).intensity


def _facts(tables: JobTables, laws: JobLaws, path: Path, failed: list[str]) -> dict[str, Any]:
    """The same for programs."""
    from dataclasses import asdict

    return {
        "file": os.fspath(path),
        "alone": [{**one._asdict(), **asdict(found)} for one, found in tables.alone.items()],
        "pairs": [
            {"job": victim._asdict(), "beside": other._asdict(), **asdict(found)}
            for (victim, other), found in tables.ratios.items()
        ],
        "laws": asdict(laws),
        "failed": failed,
    }
