"""`rota evaluate`: a trained policy against others, over many seeds, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rota.cli import loading, plays
from rota.cli.options import AsJson, Tables, command, duration  # noqa: TC001
from rota.cli.progress import LateBar
from rota.cli.table import print_json, print_table
from rota.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.core import Policy
    from rota.scenarios import Scenario

METRICS: Final = (
    "mean_jct_s", "p50_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s", "utilisation", "moves",
    "resizes", "preemptions",
)  # fmt: skip
_RESAMPLES_SEED: Final = 0


@dataclass(frozen=True)
class EvaluateOptions:
    """What `rota evaluate` can be asked for."""

    policy: Annotated[
        str, typer.Argument(metavar="CKPT|POLICY", help="A checkpoint, or any policy by name.")
    ]
    scenario: Annotated[
        str, typer.Option("--scenario", metavar="NAME", help="A scenario or its file.")
    ]
    seeds: Annotated[
        str, typer.Option(metavar="A:B", help="Seeds from A up to B, B excluded; or a,b,c.")
    ] = "2000:2020"
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A policy to compare with; repeat it for several; default, or auto: rules that "
            "fit the scenario.",
        ),
    ] = None
    through: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Also play a perfect copy of POLICY through the lens of a recipe of `rota train`.",
        ),
    ] = None
    as_json: AsJson = False
    data: Tables = None
    deadline: Annotated[float, duration("Time that a policy may take per round.")] = 60.0


@command(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> None:
    """Play a scenario under POLICY and others; compare them, with confidence intervals."""
    from rota.learn.rivals import named_rivals
    from rota.run.metrics import mean_over
    from rota.scenarios import load

    if options.deadline <= 0:
        raise InputError("--deadline must be above 0.")
    policy = options.policy
    chosen, wanted = load(options.scenario), plays.read_seeds(options.seeds)
    loading.tell_outside(wanted)
    rivals = ["auto"] if options.against is None else filter(None, options.against)
    world = chosen.draw(wanted[0], options.data)
    names = list(dict.fromkeys([policy, *named_rivals(rivals, chosen, world)]))
    policies = loading.named_policies(names, chosen.policy)
    if options.through is not None:
        copy = f"{policy} through {options.through}"
        policies = {copy: _copied(policies[policy], options.through), **policies}
        policy = copy
    runs = _played(chosen, wanted, policies, options.data, options.deadline)
    facts = {
        "scenario": chosen.name,
        "seeds": list(wanted),
        "policies": [{"policy": name, **mean_over(own, METRICS)} for name, own in runs.items()],
        "paired": _paired(runs, policy),
    }
    if options.as_json:
        print_json(facts)
    else:
        _print(facts, chosen.when.slot_s)


def _copied(policy: Policy, recipe: str) -> Policy:
    """A perfect copy of the policy through the lens of a recipe."""
    try:
        from rota.envs import PerfectCopy
        from rota.learn.recipe_file import load_recipe
        from rota.policies import Heuristic
    except ModuleNotFoundError as error:
        raise InputError(
            f"--through needs {error.name}, which is not installed: pip install 'rota[train]'."
        ) from None
    if isinstance(policy, Heuristic) and (policy.learns or policy.error > 0):
        raise InputError(
            f"--through cannot copy {policy.name!r}, which has a table of past jobs or errors of "
            "its own; name another policy."
        )
    chosen = load_recipe(recipe)
    return PerfectCopy(chosen.built_by.make_lens(chosen.lens), policy)


def _played(
    scenario: Scenario, seeds: tuple[int, ...], policies: Mapping[str, Policy],
    data: Path | None, deadline_s: float,
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    """The results of every policy, seed by seed."""
    from rota.run.metrics import summarise
    from rota.sim import simulate

    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in policies}
    with LateBar() as bar:
        report = bar.begin(scenario.name, len(seeds) * len(policies))
        for count, seed in enumerate(seeds):
            world = scenario.draw(seed, data)
            for number, (name, policy) in enumerate(policies.items()):
                outcome = simulate(
                    world.cluster, world.trace, policy, world.when, seed=seed,
                    physics=world.physics, deadline_s=deadline_s,
                )  # fmt: skip
                runs[name].append(summarise(outcome))
                report(count * len(policies) + number + 1)
    return runs


def _paired(runs: Mapping[str, Sequence[Mapping[str, Any]]], policy: str) -> list[dict[str, Any]]:
    """The change of the mean JCT against every other policy, with intervals over seeds."""
    import numpy as np

    from rota.run.stats import paired

    own = np.array([run["mean_jct_s"] for run in runs[policy]], np.float64)
    found = []
    for name, others in runs.items():
        if name == policy:
            continue
        theirs = np.array([run["mean_jct_s"] for run in others], np.float64)
        result = paired(own, theirs, np.random.default_rng(_RESAMPLES_SEED))
        found.append({
            "policy": policy, "against": name, "mean_jct_change": result.ratio,
            "ci95": None if result.ratio_ci is None else list(result.ratio_ci),
        })  # fmt: skip
    return found


def _print(facts: Mapping[str, Any], slot_s: float) -> None:
    from rota.dash import units
    from rota.dash.metric_columns import metric_columns

    rows = facts["policies"]
    names = loading.short_names(row["policy"] for row in rows)
    columns = [
        ("policy", list(names.values())),
        *metric_columns(rows, ("mean_jct_s", "p99_jct_s", "makespan_s")),
        ("resizes", units.counts([round(row["resizes"]) for row in rows])),
        ("moves", units.counts([round(row["moves"]) for row in rows])),
    ]
    if slot_s:
        slots = [f"{row['mean_jct_s'] / slot_s:.3f}" for row in rows]
        columns.insert(1, ("slots", slots))
    title = f"{facts['scenario']}: means over {units.plural(len(facts['seeds']), 'seed')}"
    print_table(columns, title=title)
    for row in facts["paired"]:
        ends = row["ci95"]
        within = f" (95 % interval {ends[0]:+.1%} to {ends[1]:+.1%})" if ends else ""
        change = "-" if row["mean_jct_change"] is None else f"{row['mean_jct_change']:+.1%}"
        policy, against = names[row["policy"]], names[row["against"]]
        typer.echo(f"mean JCT of {policy} against {against}: {change}{within}")
