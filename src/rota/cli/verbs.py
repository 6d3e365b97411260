"""Which verbs there are; the module of one is imported when it is called or its help is shown."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Mapping


class Verb(NamedTuple):
    """Where a verb is, and what the list of verbs says of it."""

    where: str
    """Module and name: a function or, for all that is more than one, a `typer.Typer`."""
    about: str
    """The first paragraph of its help."""
    hidden: bool = False


VERBS: Final[Mapping[str, Verb]] = {
    "simulate": Verb(
        "simulate:simulate", "Replay TRACE, or play a scenario, under one or more policies."
    ),
    "compare": Verb(
        "compare:compare", "Compare policies over many traces, clusters, restart costs and seeds."
    ),
    "report": Verb(
        "report:report",
        "Draw the report of a journal: who ran where and when, per node and per user.",
    ),
    "train": Verb(
        "train:train",
        "Train a policy: warm-up, reinforcement learning, validation; keeps the best network.",
    ),
    "evaluate": Verb(
        "evaluate:evaluate",
        "Play a scenario under POLICY and others; compare them, with confidence intervals.",
    ),
    "learn": Verb(
        "learn:learn",
        "Learn on from a checkpoint on a journal's jobs; keep what is not worse on held-out jobs.",
    ),
    "run": Verb(
        "daemon:run",
        "Schedule the jobs that `rota submit` puts in line, until Ctrl-C; jobs outlive the daemon.",
    ),
    "setup": Verb(
        "slurm_setup:setup",
        "Write the files that a Slurm cluster needs for rota: hold hook, watchdog, systemd units.",
    ),
    "doctor": Verb(
        "doctor:doctor", "Check a cluster that rota is to schedule, and say what to put right."
    ),
    "elastic-run": Verb(
        "elastic_batch:elastic_run",
        "Train elastically in a batch script of Slurm: the job gains and loses nodes as it runs.",
    ),
    "queue": Verb("queue:app", "Show which jobs wait and why, which run, and on what."),
    "explain": Verb(
        "explain:explain",
        "Say why a job waits, who is before it and when it will start, or what became of it.",
    ),
    "submit": Verb(
        "submit:submit",
        "Put a job in line, to run here and with this environment; prints its number.",
    ),
    "logs": Verb(
        "job_logs:logs", "Show what a job has printed, run by run, and why it failed if it did."
    ),
    "hold": Verb("hold:hold", "Keep jobs from running until `rota resume`."),
    "resume": Verb("hold:resume", "Put jobs that are on hold back in line."),
    "cancel": Verb("cancel:cancel", "End jobs, waiting or running."),
    "resubmit": Verb(
        "resubmit:resubmit",
        "Submit jobs once more: same command, folder, environment and options; prints new numbers.",
    ),
    "profile": Verb(
        "profile:profile",
        "Measure your own jobs alone and in pairs, and fit laws of speed and contention to that.",
    ),
    "adapt": Verb(
        "adapt:app",
        "Let networks grow when their job does: measure, train agents, compare them.",
    ),
    "policies": Verb("policies:policies", "List the policies and how their names combine."),
    "fuzz": Verb(
        "fuzz:fuzz",
        "Play random worlds under random policies and check what must always hold.",
        hidden=True,
    ),
    "scenarios": Verb("scenarios:app", "List scenarios and show what is in them."),
    "traces": Verb("traces:app", "List, describe and convert job logs."),
}
"""In the order in which the help lists them."""


class VerbGroup(TyperGroup):
    """Lists verbs by the table, and imports the one that is named."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, verb in VERBS.items():
            self.add_command(TyperCommand(name, help=verb.about, hidden=verb.hidden))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command itself in place of the line that stands for it, and the rest."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else imported(name), rest


def imported(name: str) -> Any:
    """The command of a verb, with all its options."""
    module, _, attribute = VERBS[name].where.partition(":")
    found = getattr(import_module(f"rota.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
        found.command(hidden=VERBS[name].hidden)(function)
    return typer.main.get_command(found)
