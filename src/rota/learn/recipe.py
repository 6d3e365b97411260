"""Recipes of training: TOML files, read strictly, every complaint with its line.

A recipe may stand on another (`base = "dl2-onepass"`): it then says only what differs, which is
how ablations are written.
"""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from rota.errors import ConfigError, UnknownNameError
from rota.learn.actor_critic import ActorCriticConfig
from rota.learn.clone import CloneConfig
from rota.learn.ppo import PPOConfig
from rota.scenarios import OUTSIDE, TEST
from rota.scenarios.reading import LONGEST_CHAIN, Lines, change_of
from rota.systems.dl2.config import ExploreConfig
from rota.systems.registry import presets, system
from rota.traces.clusterfile import read_toml_text, unknown_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.systems.registry import System

REWARDS: Final = ("progress", "jobs", "fee", "slowdown")


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """What is played."""

    scenario: str
    """A scenario's name or file."""
    changes: tuple[str, ...] = ()
    """Settings of the scenario that are different, such as "workload.epoch_error=0.1"."""
    reward: str = "progress"
    """What a round brings: progress, jobs (−jobs × time), fee or slowdown."""
    train: str = "3000:10000"
    """Seeds of traces to learn from."""
    validate: str = "1000:1050"
    """Seeds of traces that choose the checkpoint; none of those to learn from."""
    trace: str = ""
    """Instead of seeds: a journal or job log whose jobs are played, in this scenario's world."""
    parts: int = 10
    """Episodes that its jobs are cut into, one after the other; the last fifth validates."""
    against: tuple[str, ...] = ("drf", "optimus")
    """Policies that the validation is compared with, beside the teacher; [] for nobody at all."""
    clusters: int = 128
    """How many are played at once."""
    pool: int = 256
    """Traces that are dealt to them."""
    renew: int = 100
    """Updates after which the pool is drawn anew; 0: never."""
    max_rounds: int = 100_000
    """Rounds after which an episode is cut short; a validation with such an episode is infinite."""
    replicas: int = 1
    """Clusters that replay the same trace at the same time, for ppo.same_inputs."""

    def __post_init__(self) -> None:
        if self.reward not in REWARDS:
            raise ConfigError(f"reward = {self.reward!r} must be one of {', '.join(REWARDS)}.")
        train, validate = (seeds_of(name, getattr(self, name)) for name in ("train", "validate"))
        if set(train) & set(validate):
            raise ConfigError(
                f"train = {self.train!r} and validate = {self.validate!r} share seeds; a "
                "checkpoint must be chosen on traces that nothing was learned from."
            )
        if not 1 <= self.replicas <= self.clusters or self.clusters % self.replicas:
            raise ConfigError(
                f"clusters = {self.clusters} must be a multiple of replicas = {self.replicas}."
            )
        for name in ("pool", "max_rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)} must be 1 or more.")
        if self.parts < 2:
            raise ConfigError(
                f"parts = {self.parts} must be 2 or more: some to learn from, some to validate."
            )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How long, how often, and by which seed."""

    seed: int = 0
    """Seeds everything random."""
    start: str = ""
    """A checkpoint, or a trained policy by name, whose weights are the first; empty: random."""
    learner: str = "ppo"
    """"ppo", "actor-critic", or "none": warm-up alone."""
    updates: int = 400
    """Updates by reinforcement learning."""
    minutes: float = 0.0
    """Stop after so long, if sooner; 0: no limit."""
    validate_every: int = 20
    """Updates between two validations."""
    patience: int = 0
    """Stop after so many validations without a better one; 0: never."""
    save_every_s: float = 30.0
    """Seconds between two states to resume from; 60 at most."""
    threads: int = 1
    """Of torch, while it learns. Two are worth a tenth, and where another process has a core they
    wait for each other: many times slower. Train with two seeds at once instead."""

    def __post_init__(self) -> None:
        if self.learner not in ("ppo", "actor-critic", "none"):
            raise ConfigError(
                f"learner = {self.learner!r} must be 'ppo', 'actor-critic' or 'none'."
            )
        if not 0 < self.save_every_s <= 60:
            raise ConfigError(f"save_every_s = {self.save_every_s} must be above 0 and at most 60.")
        if self.updates < 1 or self.validate_every < 1 or self.threads < 1:
            raise ConfigError("updates, validate_every and threads must be 1 or more.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole training."""

    name: str
    about: str
    system: str
    world: WorldConfig
    lens: Any
    network: Any
    clone: CloneConfig = field(default_factory=CloneConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    actor_critic: ActorCriticConfig = field(default_factory=ActorCriticConfig)
    explore: ExploreConfig = field(default_factory=ExploreConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def built_by(self) -> System:
        """The system that it trains."""
        return system(self.system)

    @property
    def tell(self) -> str:
        """What its learner must be told beside rewards: "gains", "promise" or nothing."""
        if self.built_by.per_job:
            return ""
        if self.run.learner == "actor-critic":
            return "gains" if self.actor_critic.credit == "own" else ""
        return "promise" if self.ppo.shaped else ""

    def facts(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)


def seeds_of(name: str, text: str) -> range:
    """The seeds of `A:B`, none of which is kept for tests or outside checks."""
    first, colon, end = text.partition(":")
    if not (colon and first.strip().isdecimal() and end.strip().isdecimal()):
        raise ConfigError(f"{name} = {text!r} must be a range such as '3000:10000'.")
    found = range(int(first), int(end))
    usual = WorldConfig.__dataclass_fields__[name].default
    if not found:
        raise ConfigError(f"{name} = {text!r} holds no seed; the usual are {usual!r}.")
    if found[-1] >= OUTSIDE:
        raise ConfigError(
            f"{name} = {text!r} holds the seed {max(found[0], OUTSIDE)}: those from {OUTSIDE} up "
            f"are for outside checks; take some below, such as {usual!r}."
        )
    tests = range(max(found[0], TEST[0]), min(found[-1], TEST[-1]) + 1)
    if tests:
        raise ConfigError(
            f"{name} = {text!r} holds the test seed {tests[0]}: results are measured on "
            f"{TEST[0]} to {TEST[-1]}, and what was learned from or chosen by them would prove "
            f"nothing; take others, such as {usual!r}."
        )
    return found


def load_recipe(source: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """The preset called so, or a file's recipe, with changes such as "ppo.clip=0.1"."""
    path = _find(source)
    content, where = _read(path)
    for change in changes:
        _apply(content, where, change)
    return recipe_of(content, where, path.stem)


class Where:
    """Says where a key was set: the file and line, or the option of the command."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: list[Lines] = []
        self.changed: dict[tuple[str, ...], str] = {}

    def __call__(self, *path: str) -> str:
        """`file:line`, of the recipe itself before its bases."""
        if path in self.changed:
            return self.changed[path]
        for lines in self.lines:
            if path in lines.at:
                return lines.where(*path)
        return self.lines[0].where(*path) if self.lines else self.file


def recipe_of(content: Mapping[str, Any], where: Where, name: str) -> Recipe:
    """A checked recipe from the content of a file."""
    known = [f.name for f in fields(Recipe) if f.name != "name"]
    for key in content:
        if key not in known:
            raise unknown_key(where(key), key, known)
    for key in ("system", "about"):
        if not isinstance(content.get(key), str):
            raise ConfigError(f'{where(key)}: {key} = "…" is missing; it must be a text.')
    try:
        kind = system(content["system"])
    except UnknownNameError as error:
        raise ConfigError(f"{where('system')}: {error}") from None
    kinds: dict[str, type[Any]] = {
        "world": WorldConfig, "lens": kind.lens_settings, "network": kind.network_settings,
        "clone": CloneConfig, "ppo": PPOConfig, "actor_critic": ActorCriticConfig,
        "explore": ExploreConfig, "run": RunConfig,
    }  # fmt: skip
    tables = {table: filled(made, content, where, table) for table, made in kinds.items()}
    _check_exploration(kind, tables["explore"].kind, tables["run"].learner, where)
    _check_shaping(kind, tables["ppo"], tables["world"].reward, where)
    _check_order(kind, tables["clone"], where)
    return Recipe(name=name, about=content["about"], system=content["system"], **tables)


def _check_exploration(kind: System, explore: str, learner: str, where: Where) -> None:
    if explore == "none":
        return
    if learner != "actor-critic":
        raise ConfigError(
            f"{where('explore', 'kind')}: [explore] kind = {explore!r} does not go with learner = "
            f"{learner!r}: PPO needs to know how likely each action was, and one that was "
            "overruled has another probability; say run.learner = 'actor-critic', or kind = 'none'."
        )
    if kind.make_explorer is None:
        raise ConfigError(
            f"{where('explore', 'kind')}: [explore] kind = {explore!r} means nothing to "
            f"{kind.name!r}, which does not decide step by step; say 'none'."
        )


def _check_shaping(kind: System, ppo: PPOConfig, reward: str, where: Where) -> None:
    if not ppo.shaped:
        return
    if kind.per_job:
        raise ConfigError(
            f"{where('ppo', 'shaped')}: [ppo] shaped = true means nothing to {kind.name!r}, which "
            "does not decide step by step; leave it out."
        )
    if ppo.credit == "own" and (ppo.discount > 0 or reward != "progress"):
        raise ConfigError(
            f"{where('ppo', 'credit')}: [ppo] credit = 'own' with shaped = true judges by the "
            f"progress of one round, so it needs reward = 'progress' and discount = 0, not "
            f"{reward!r} and {ppo.discount}; say credit = 'team'."
        )


def _check_order(kind: System, clone: CloneConfig, where: Where) -> None:
    if clone.any_order and kind.per_job:
        raise ConfigError(
            f"{where('clone', 'any_order')}: [clone] any_order = true means nothing to "
            f"{kind.name!r}, which decides on all jobs at once; leave it out."
        )


def filled(kind: type[Any], content: Mapping[str, Any], where: Where, table: str) -> Any:
    """A dataclass from a table of the file: known keys only, each of its kind."""
    given = content.get(table, {})
    if not isinstance(given, dict):
        raise ConfigError(f"{where(table)}: {table} must be a table, written [{table}].")
    hints, known = get_type_hints(kind), {f.name: f for f in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise unknown_key(f"{where(table, key)}: [{table}]", key, known)
        values[key] = _value(value, hints[key], f"{where(table, key)}: [{table}] {key}")
    for key, one in known.items():
        if key not in values and one.default is MISSING and one.default_factory is MISSING:
            raise ConfigError(f"{where(table)}: [{table}] {key} is missing.")
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{where(table)}: [{table}] {error}") from None


_WANTS: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def _value(value: Any, hint: Any, where: str) -> Any:
    if hint in _WANTS:
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, hint) and (hint is bool) == isinstance(value, bool):
            return value
        raise ConfigError(f"{where} = {value!r} must be {_WANTS[hint]}.")
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ConfigError(f"{where} = {value!r} must be a list of texts.")


def _find(source: str | Path, beside: Path | None = None) -> Path:
    path = Path(source)
    if isinstance(source, Path) or path.suffix == ".toml" or len(path.parts) > 1:
        return path if beside is None else beside / path
    shipped = presets()
    if str(source) not in shipped:
        raise UnknownNameError("recipe", str(source), shipped)
    return shipped[str(source)]


def _read(path: Path) -> tuple[dict[str, Any], Where]:
    """A file's content over that of its bases."""
    where, chain = Where(str(path)), [path]
    layers: list[dict[str, Any]] = []
    while True:
        text, content = read_toml_text(chain[-1])
        where.lines.append(Lines.of(str(chain[-1]), text))
        base = content.pop("base", None)
        layers.append(content)
        if base is None:
            break
        try:
            chain.append(_find(base, chain[-1].parent))
        except UnknownNameError as error:
            raise ConfigError(f"{where.lines[-1].where('base')}: {error}") from None
        if chain[-1] in chain[:-1] or len(chain) > LONGEST_CHAIN:
            raise ConfigError(
                f"{where.lines[-1].where('base')}: base = {base!r} leads in a circle."
            )
    merged: dict[str, Any] = {}
    for content in reversed(layers):
        for key, value in content.items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = {**merged[key], **value} if both else value
    return merged, where


def _apply(content: dict[str, Any], where: Where, change: str) -> None:
    """Put `table.key=value` of the command line into the content."""
    try:
        path, value = change_of(change)
    except ConfigError as error:
        raise ConfigError(f"--set {error}") from None
    table, key = path
    if not isinstance(content.setdefault(table, {}), dict):
        raise ConfigError(f"--set {change}: There is no table [{table}].")
    content[table] = {**content[table], key: value}
    where.changed[path] = where.changed[table,] = f"--set {change}"
