"""`rota fuzz`: random worlds under every policy, for those who work on rota or on a policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.progress import LateBar
from rota.cli.table import print_table

if TYPE_CHECKING:
    from rota.testing.examining import Finding
    from rota.testing.fuzzing import Tally


def fuzz(
    seed: Annotated[int, typer.Option(help="Names the series of worlds.", min=0)] = 0,
    first: Annotated[int, typer.Option(help="The first world of the series to play.", min=0)] = 0,
    worlds: Annotated[int, typer.Option(help="How many worlds.", min=0)] = 80,
    each: Annotated[int, typer.Option(help="Policies drawn for each world.", min=1)] = 4,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", help="Play these instead; repeatable.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; 0: one per core.", min=0)] = 0,
    limit: Annotated[int, typer.Option(help="Processor seconds until a run hangs.", min=1)] = 60,
    replay: Annotated[
        Path | None, typer.Option(help="Play the failures in this file, or below this directory.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where failures are written, cut down.")] = Path(
        "out/fuzz"
    ),
    shrink: Annotated[int, typer.Option(help="How many failures are cut down.", min=0)] = 5,
    bounds: Annotated[
        bool, typer.Option(help="Check every index in compiled code (slow to compile).")
    ] = False,
) -> None:
    """Play random worlds under random policies and check what must always hold."""
    if bounds:  # before anything is compiled, and with machine code of its own
        os.environ["NUMBA_BOUNDSCHECK"] = "1"
        os.environ.setdefault("NUMBA_CACHE_DIR", str(out.absolute() / "bounds-cache"))
    from rota.cli.loading import named_policies
    from rota.testing.fuzzing import FuzzPlan, fuzz, replayed, write_finding

    if policy:
        named_policies(policy)  # an unknown name is an error at once, not one in every world
    if replay is not None:
        findings = replayed(replay)
        _print_failures(findings)
        raise typer.Exit(1 if findings else 0)
    plan = FuzzPlan(seed, first, worlds, each, tuple(policy or ()), limit)
    with LateBar() as bar:
        report = bar.begin("worlds", worlds)

        told = 0

        def progress(tally: Tally) -> None:
            nonlocal told
            report(tally.worlds)
            for found in tally.failures[told:]:
                write_finding(found, out)  # as it is, in case nobody waits for the end
                typer.echo(f"{found.policy}: {found.kind}: {found.message}", err=True)
            told = len(tally.failures)

        tally = fuzz(plan, workers=workers or os.cpu_count() or 1, progress=progress)
    _print_summary(tally)
    if tally.failures:
        _print_failures(_cut_down(tally.failures, shrink, out))
        raise typer.Exit(1)


def _cut_down(failures: list[Finding], most: int, out: Path) -> list[Finding]:
    """Shrink one failure of each policy and kind, up to `most`, and write all down."""
    from rota.testing.candidates import base_of
    from rota.testing.fuzzing import shrunk, write_finding

    distinct = {(base_of(found.policy), found.kind): found for found in reversed(failures)}
    kept = list(reversed(distinct.values()))
    with LateBar() as bar:
        report = bar.begin("cutting down", min(most, len(kept)))
        for k in range(min(most, len(kept))):
            kept[k] = shrunk(kept[k])
            report(k + 1)
    for found in kept:
        write_finding(found, out)
    typer.echo(f"\nWritten to {out}; play one again with make fuzz REPLAY=FILE.")
    return kept


def _print_summary(tally: Tally) -> None:
    from collections import Counter

    from rota.testing.candidates import base_of

    runs = sum(tally.runs.values())
    typer.echo(
        f"{tally.worlds} worlds, {runs} times a policy in a world: {len(tally.failures)} failures, "
        f"{sum(tally.refused.values())} refused for a reason that was said."
    )
    if not tally.failures:
        return
    by = Counter((base_of(found.policy), found.kind) for found in tally.failures)
    rows = by.most_common()
    print_table(
        [
            ("policy", [policy for (policy, _), _ in rows]),
            ("kind", [kind for (_, kind), _ in rows]),
            ("failures", [str(count) for _, count in rows]),
            ("of", [str(tally.runs[policy]) for (policy, _), _ in rows]),
        ],
        left=2,
    )


def _print_failures(findings: list[Finding]) -> None:
    for found in findings:
        typer.echo(f"\n{found.policy}: {found.kind}: {found.message}")
        typer.echo(found.snippet())
