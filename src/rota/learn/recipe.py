"""The settings of a training, table by table; `rota.learn.recipe_file` reads them from TOML."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rota.envs.rewards import KINDS, Reward
from rota.errors import ConfigError
from rota.learn.clone import CloneConfig
from rota.learn.learners import LEARNING, settings_tables
from rota.scenarios import OUTSIDE, TEST
from rota.systems.dl2.dl2_settings import ExploreConfig
from rota.systems.registry import system

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.learn.learners import Learner
    from rota.systems.registry import System


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """The worlds that are played."""

    scenario: str
    """A scenario's name or file."""
    also: tuple[str, ...] = ()
    """Further scenarios to learn from, in turn; validations are geometric means over all."""
    turns: tuple[int, ...] = ()
    """How often updates learn from `scenario` and from each of `also`, in proportion, such as
    [3, 1]; empty: from all equally often."""
    changes: tuple[str, ...] = ()
    """Changed settings of the scenario, such as "workload.epoch_error=0.1"."""
    reward: str = "progress"
    """The reward of a round: "progress", "jobs" (−jobs × time), "fee", "slowdown", "deepshare"
    (−speed lost to neighbours + utilisation), or "das" (1 / (fee × time) of who starts)."""
    contention_weight: float = 0.5
    """Weight of lost speed in the reward "deepshare"."""
    utilisation_weight: float = 0.5
    """Weight of utilisation in the reward "deepshare"."""
    fine: float = 0.01
    """In the reward "das", for waiting jobs: of what their GPUs cost in an hour."""
    dollar_s: float = 0.0
    """In the reward "jobs": the seconds that a dollar of fee counts as, at most. Each trace has its
    own worth, in one of four 0, and validations count fees too, so `against` must be []."""
    train: str = "3000:10000"
    """Seeds of traces to learn from, "A:B" without B."""
    validate: str = "1000:1050"
    """Seeds of the validation traces, by which the checkpoint is chosen; none of `train`."""
    trace: str = ""
    """Instead of seeds: a journal or job log whose jobs are played in the scenario's world."""
    parts: int = 10
    """Episodes that the jobs of `trace` are cut into, one after the other; the last fifth
    validates."""
    against: tuple[str, ...] = ("auto",)
    """Rivals: policies that the network is compared with on the validation traces, beside the
    teacher and the strongest rule that fits the scenario. "auto" stands for three rules that fit;
    [] compares with none."""
    clusters: int = 128
    """Clusters that are played at once."""
    pool: int = 256
    """Traces that are drawn at a time; clusters take their episodes from them."""
    renew: int = 100
    """Updates after which other traces are drawn; 0: never."""
    max_rounds: int = 100_000
    """Rounds after which an episode is cut short; a validation with such an episode is infinite."""
    replicas: int = 1
    """Clusters that replay the same trace at the same time, for `ppo.same_inputs`."""

    def __post_init__(self) -> None:
        if self.reward not in KINDS:
            raise ConfigError(f"reward = {self.reward!r} must be one of {', '.join(KINDS)}.")
        for name in ("contention_weight", "utilisation_weight", "fine", "dollar_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} = {getattr(self, name)} must be 0 or more.")
        if self.dollar_s and (self.reward != "jobs" or self.against):
            raise ConfigError(
                f"dollar_s = {self.dollar_s} counts fees, which goes with reward = 'jobs' and "
                f"against = [] only: rivals are compared by time alone. They are {self.reward!r} "
                f"and {list(self.against)}."
            )
        train, validate = (seeds_of(name, getattr(self, name)) for name in ("train", "validate"))
        if set(train) & set(validate):
            raise ConfigError(
                f"train = {self.train!r} and validate = {self.validate!r} share seeds; a "
                "checkpoint must be chosen on traces that nothing was learned from. Change one."
            )
        for name in ("clusters", "replicas", "pool", "max_rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)} must be 1 or more.")
        if self.clusters % self.replicas:
            raise ConfigError(
                f"clusters = {self.clusters} must be a multiple of replicas = {self.replicas}."
            )
        if self.also and self.trace:
            raise ConfigError(
                f"also = {list(self.also)} does not go with trace = {self.trace!r}, whose jobs are "
                "played in one scenario; leave one of them out."
            )
        if len({self.scenario, *self.also}) <= len(self.also):
            raise ConfigError(f"also = {list(self.also)} names a scenario twice; name each once.")
        if self.turns and (
            len(self.turns) != 1 + len(self.also) or not all(1 <= n <= 1000 for n in self.turns)
        ):
            raise ConfigError(
                f"turns = {list(self.turns)} must be {1 + len(self.also)} whole numbers from 1 to "
                "1,000, one for the scenario and one for each of `also`; or [] for equal turns."
            )
        if self.parts < 2:
            raise ConfigError(
                f"parts = {self.parts} must be 2 or more: some to learn from, some to validate."
            )

    @property
    def cycle(self) -> tuple[int, ...]:
        """Which scenario each update learns from, again and again; the turns of one far apart."""
        turns = self.turns or (1,) * (1 + len(self.also))
        at = [((k + 0.5) / many, i) for i, many in enumerate(turns) for k in range(many)]
        return tuple(i for _, i in sorted(at))

    @property
    def rewards(self) -> Reward:
        """The reward with its settings."""
        return Reward(
            kind=self.reward, contention_weight=self.contention_weight,
            utilisation_weight=self.utilisation_weight, fine=self.fine, dollar_s=self.dollar_s,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The length of a training, its seed, and how often it is validated and saved."""

    seed: int = 0
    """Seeds everything random."""
    start: str = ""
    """A checkpoint file or a trained policy's name, whose weights are the first; empty: random."""
    learner: str = "ppo"
    """"ppo", "actor-critic", "look-ahead", one of an installed package; or "none": warm-up
    alone."""
    updates: int = 400
    """Updates by reinforcement learning."""
    minutes: float = 0.0
    """Minutes after which the training stops, if it has not ended before; 0: no limit."""
    validate_every: int = 20
    """Updates between two validations."""
    patience: int = 0
    """Validations in a row without a better one after which the training stops; 0: no limit."""
    save_every_s: float = 30.0
    """Seconds between two saved states that `--resume` continues from; 60 at most."""
    threads: int = 1
    """Threads of torch in an update. Two are a tenth faster on idle cores, and many times slower
    where another process uses a core. Better train with two seeds at once."""

    def __post_init__(self) -> None:
        if not 0 < self.save_every_s <= 60:
            raise ConfigError(f"save_every_s = {self.save_every_s} must be above 0 and at most 60.")
        for name in ("updates", "validate_every", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)} must be 1 or more.")
        for name in ("seed", "patience"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)} must be 0 or more.")
        if not 0 <= self.minutes < float("inf"):
            raise ConfigError(f"minutes = {self.minutes} must be 0 or more, and finite.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a training."""

    name: str
    about: str
    system: str
    world: WorldConfig
    lens: Any
    network: Any
    learners: Mapping[str, Any]
    """The settings of learners, by table."""
    clone: CloneConfig = field(default_factory=CloneConfig)
    explore: ExploreConfig = field(default_factory=ExploreConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def built_by(self) -> System:
        """The learned system that it trains."""
        return system(self.system)

    @property
    def learner(self) -> Learner:
        """The learner that trains it."""
        return LEARNING.get(self.run.learner)

    @property
    def learning(self) -> Any:
        """The settings of that learner."""
        return self.learners[self.learner.table]

    @property
    def tell(self) -> str:
        """What its learner needs beside rewards: "gains", "potential" or nothing."""
        if self.built_by.follows_jobs:
            return ""
        return str(self.learning.tell(self.built_by.agents))

    def others(self) -> list[Recipe]:
        """The same for each of the further scenarios."""
        alone = replace(self.world, also=(), turns=(), changes=())
        worlds = (replace(alone, scenario=name) for name in self.world.also)
        return [replace(self, world=world) for world in worlds]

    def facts(self) -> dict[str, Any]:
        """All settings, for JSON, table by table as in a file."""
        facts = asdict(self)
        learners = facts.pop("learners")
        return {**facts, **learners}


def tables_of(kind: System, learner: str = "ppo") -> dict[str, type[Any]]:
    """The tables of a recipe for this system and learner, and the dataclass of each."""
    return {
        "world": WorldConfig, "lens": kind.lens_settings, "network": kind.network_settings,
        "clone": CloneConfig, **settings_tables(learner), "explore": ExploreConfig,
        "run": RunConfig,
    }  # fmt: skip


def seeds_of(name: str, text: str) -> range:
    """The seeds of `A:B`, none of which is reserved for tests or outside checks."""
    first, colon, end = text.partition(":")
    if not (colon and first.strip().isdecimal() and end.strip().isdecimal()):
        raise ConfigError(f"{name} = {text!r} must be a range such as '3000:10000'.")
    found = range(int(first), int(end))
    usual = WorldConfig.__dataclass_fields__[name].default
    if not found:
        raise ConfigError(f"{name} = {text!r} holds no seed; the default is {usual!r}.")
    if found[-1] >= OUTSIDE:
        raise ConfigError(
            f"{name} = {text!r} holds the seed {max(found[0], OUTSIDE)}: those from {OUTSIDE} up "
            f"are reserved for outside checks; take lower ones, such as {usual!r}."
        )
    tests = range(max(found[0], TEST[0]), min(found[-1], TEST[-1]) + 1)
    if tests:
        raise ConfigError(
            f"{name} = {text!r} holds the test seed {tests[0]}: results are measured on "
            f"{TEST[0]} to {TEST[-1]}, and a network that was learned from or chosen by them would "
            f"prove nothing there; take others, such as {usual!r}."
        )
    return found
