"""`rota explain`: why a job waits and when it will start, or what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from rota.cli.job_verbs import STATE, State  # noqa: TC001
from rota.cli.loading import note
from rota.cli.options import AsJson  # noqa: TC001
from rota.cli.table import print_json, shown
from rota.dash.units import plural, rough_time
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rota.backends.cluster_explainer import ClusterExplainer
    from rota.backends.explanation import Expected, Explanation, Step
    from rota.backends.local.local_explainer import LocalExplainer
    from rota.core import Policy
    from rota.run.last_round import Deciders

MOST_STEPS: Final = 12
"""Things that happened to a job which are printed; --json has all."""
MOST_BEFORE: Final = 6


def explain(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="As its cluster calls it; uid:N where that names several."
        ),
    ],
    state: State = STATE,
    as_json: AsJson = False,
) -> None:
    """Say why a job waits, who is before it and when it will start, or what became of it.

    It reads what the daemon has written down, and asks nobody: it works while the daemon runs and
    after it has stopped.
    """
    found = _explainer(state).explain(job)
    if as_json:
        print_json({"state_dir": str(state.expanduser().absolute()), **found.as_json()})
    else:
        _print(found)


def _explainer(state: Path) -> ClusterExplainer | LocalExplainer:
    from rota.backends.cluster_explainer import ClusterExplainer
    from rota.backends.local.local_explainer import LocalExplainer
    from rota.backends.local.state_dir import StateDir
    from rota.errors import JournalError

    root = state.expanduser().absolute()
    is_local = (root / "jobs").is_dir()

    def policies(deciders: Deciders) -> tuple[Policy, Policy | None]:
        return _policies(deciders, root)

    try:
        if (found := ClusterExplainer.of(root, policies)) is not None:
            return found
    except JournalError:
        if not is_local:
            raise
    if not is_local:
        raise ConfigError(
            f"{root} holds no journal of `rota run`; say where it is with --state DIR."
        )
    return LocalExplainer(StateDir(root, create=False), policies)


def _policies(deciders: Deciders, root: Path) -> tuple[Policy, Policy | None]:
    """The policy that decides, and the one that does when it fails."""
    from rota.cli.daemon_loop import policy_named
    from rota.systems.registry import checkpoint_named

    policy = policy_named(deciders.policy, deciders.history)
    if (named := checkpoint_named(deciders.policy)) is not None:
        policy = _with_weights(*named, root)
    fallback = policy_named(deciders.fallback, deciders.history) if deciders.fallback else None
    return policy, fallback


def _with_weights(file: Path, settings: str, root: Path) -> Policy:
    """A checkpoint with the weights that the daemon has learned since, if it has."""
    from rota.learn.live_weights import running_file
    from rota.policies import make_policy

    file = running_file(file, root, lambda text, **_: note(text))
    return make_policy(f"{file}:{settings}" if settings else str(file))


def _print(found: Explanation) -> None:
    if not found.daemon:
        note("no daemon runs on this state directory now: this is as of its last round.")
    for text in found.notes:
        note(text)
    typer.secho(shown(f"job {found.job}: {found.state}"), bold=True)
    for head, text in _lines(found):
        typer.echo(f"  {head:9} {shown(text)}")


def _lines(found: Explanation) -> Iterator[tuple[str, str]]:
    if found.asks:
        yield "asks for", found.asks
    if not found.reasons:
        yield "state", found.text
    for why in found.reasons:
        tier = f"{why.tier}, tier {why.level} of 4" if why.level else why.tier
        yield "why", f"{why.text} [{tier}]"
        for job, amount in why.holders:
            unit = why.unit.removesuffix("s") if amount == 1 else why.unit
            yield "", f"job {job} holds {amount:g} {unit}"
        if why.next:
            yield "next", why.next
    if found.expected is not None:
        yield from _expected(found, found.expected)
    if found.said:
        yield "refused", found.said
    if found.waited_s is not None:
        yield "waited", f"{rough_time(found.waited_s)} until its first start"
    if found.ran_s:
        yield "ran", f"{rough_time(found.ran_s)} in runs that have ended"
    yield from _steps(found.steps)


def _expected(found: Explanation, expected: Expected) -> Iterator[tuple[str, str]]:
    from rota.backends.written_down import clock

    if expected.start_at is None:
        yield "start", f"not known: {expected.why_not}"
        if expected.before:
            names = ", ".join(expected.before[:MOST_BEFORE])
            yield "before it", f"{plural(len(expected.before), 'job')} at least: {names}"
    else:
        in_s = expected.start_at - (found.as_of or expected.start_at)
        yield (
            "start",
            (
                f"expected at {clock(expected.start_at)}, {rough_time(in_s)} after the last round, "
                f"under {expected.policy}"
            ),
        )
        names = ", ".join(expected.before[:MOST_BEFORE])
        more = len(expected.before) - MOST_BEFORE
        rest = f" and {more} more" if more > 0 else ""
        after = f", after {names}{rest}" if names else ""
        jobs = plural(expected.waiting, "job that waits", "jobs that wait")
        yield "order", f"{expected.position} of {jobs}{after}"
    for text in expected.assumed:
        yield "assuming", text


def _steps(steps: tuple[Step, ...]) -> Iterator[tuple[str, str]]:
    from rota.backends.written_down import clock, on

    if len(steps) > MOST_STEPS:
        yield "happened", f"({len(steps) - MOST_STEPS} earlier things are left out; see --json)"
    for step in steps[-MOST_STEPS:]:
        told = f"{clock(step.at)} {step.what}"
        told += f" on {on(step.on)}" if step.on else ""
        told += f" by {step.by}" if step.by else ""
        told += f", for {', '.join(step.gainers)}" if step.gainers else ""
        told += f": {step.why}" if step.why else ""
        yield "happened", told
