"""What a user asks for when submitting a job."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from rota.elastic.protocol import check_env, check_preload
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["plain", "elastic", "servers"]
"""How workers meet: as the script has it; by all-reduce or parameter servers of rota.elastic."""
_AT_LEAST: Final = {
    "workers": 1, "min_workers": 1, "max_workers": 1, "servers": 0, "min_servers": 0,
    "max_servers": 0, "gpus_per_worker": 0, "cpus_per_worker": 0, "memory_gb_per_worker": 0,
    "threads": 0, "retries": 0, "grace_s": 0, "restart_s": 0,
    "park_every_s": 0,
}  # fmt: skip
_BELOW: Final = 1_000_000_000
"""All numbers of a request are smaller."""
_MOST_NAME: Final = 200
"""Characters in a name that is submitted."""
_MOST_TITLE: Final = 40
"""Characters in the title of a job without a name."""
_WHOLE: Final = ("gpus_per_worker", "workers", "min_workers", "max_workers", "servers",
                 "min_servers", "max_servers", "threads", "retries")  # fmt: skip
_SIZES: Final = ("gpus_per_worker", "min_workers", "max_workers", "min_servers", "max_servers",
                 "cpus_per_worker", "memory_gb_per_worker")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Request:
    """A command, and what it runs with; every worker runs the same command."""

    command: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    kind: Kind = "plain"
    name: str = ""
    user: str = ""
    model: str = ""
    """Jobs of one model are taken to speed up alike."""
    submitted_at: float
    """Seconds since 1970."""
    workers: int = 1
    min_workers: int = 0
    """0: as many as `workers`."""
    max_workers: int = 0
    servers: int = 0
    min_servers: int = 0
    max_servers: int = 0
    gpus_per_worker: int = 1
    cpus_per_worker: float = 0.0
    memory_gb_per_worker: float = 0.0
    estimate_s: float | None = None
    """Run time with `workers`, if its user knows it."""
    preload: tuple[str, ...] = ()
    """Modules that are imported once for all workers, which then start faster."""
    preemptible: bool = False
    """Whether a script may be stopped, moved and resized: it goes on from its own checkpoint."""
    threads: int = 0
    """OMP_NUM_THREADS of each worker; 0: that of `env`, or 1."""
    retries: int = 0
    """How often it is started again after it has failed."""
    grace_s: float = 30.0
    """Seconds it may take to end when it is told to."""
    restart_s: float = 10.0
    """Seconds that a stop and a start are assumed to cost it, until that was measured."""
    park_every_s: float = 300.0
    """How often an elastic job keeps its state, should its agent be killed; 0 is never."""

    def sizes(self) -> dict[str, Any]:
        """What each worker gets and how many there may be, by the names that all records have."""
        return {name: getattr(self, name) for name in _SIZES}

    def __post_init__(self) -> None:
        for low, base in (("min_workers", "workers"), ("max_workers", "workers"),
                          ("min_servers", "servers"), ("max_servers", "servers")):  # fmt: skip
            if not getattr(self, low):
                object.__setattr__(self, low, getattr(self, base))
        self._check()

    def _check(self) -> None:
        self._check_texts()
        if not self.command:
            raise ConfigError("There is no command; give it behind --, such as -- python train.py.")
        if self.kind not in get_args(Kind):
            kinds = ", ".join(get_args(Kind))
            raise ConfigError(f"kind={self.kind!r} is unknown; choose from {kinds}.")
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if not (type(value) in (int, float) and least <= value < _BELOW):
                raise ConfigError(
                    f"{name}={value!r} must be a number of at least {least} and below {_BELOW}."
                )
            if name in _WHOLE and value != int(value):
                raise ConfigError(f"{name}={value!r} must be a whole number.")
        if not (type(self.submitted_at) in (int, float) and abs(self.submitted_at) < 1e15):
            raise ConfigError(f"submitted_at={self.submitted_at!r} must be a time.")
        if self.workers * self.gpus_per_worker >= _BELOW:
            raise ConfigError(
                f"workers={self.workers} × gpus_per_worker={self.gpus_per_worker} are more GPUs "
                "than can be counted."
            )
        if self.estimate_s is not None and not 0 < self.estimate_s < _BELOW:
            raise ConfigError(f"estimate_s={self.estimate_s!r} must be above 0 and below {_BELOW}.")
        for what in ("workers", "servers"):
            low, asked, high = (getattr(self, key) for key in (f"min_{what}", what, f"max_{what}"))
            if not low <= asked <= high:
                raise ConfigError(
                    f"{what}={asked} must lie between min_{what}={low} and max_{what}={high}."
                )
        if (self.kind == "servers") != (self.servers > 0):
            raise ConfigError(
                f"kind={self.kind} does not go with servers={self.servers}: parameter servers are "
                "for jobs of kind servers, which need at least one."
            )

    def _check_texts(self) -> None:
        """Refuse what no process can be started with."""
        if not isinstance(self.env, dict):
            raise ConfigError("env is no environment; give names and values.")
        if not isinstance(self.preemptible, bool):
            raise ConfigError(f"preemptible={self.preemptible!r} must be true or false.")
        texts = [self.cwd, self.name, self.user, self.model, *self.command, *self.preload]
        for text in (*texts, *self.env.keys(), *self.env.values()):
            if not isinstance(text, str) or "\0" in text:
                raise ConfigError(f"{str(text)[:40]!r} is no text that a process can be given.")
        check_env(self.env, "env")
        check_preload(self.command, self.preload, "preload")

    @property
    def resumes(self) -> bool:
        """Whether it goes on where it was when it is stopped and started again."""
        return self.kind != "plain" or self.preemptible

    @property
    def title(self) -> str:
        """A few words for tables."""
        words = " ".join(Path(word).name or word for word in self.command[:2])
        short = words if len(words) <= _MOST_TITLE else f"{words[: _MOST_TITLE - 1]}…"
        return self.name or short

    def check_here(self) -> None:
        """Refuse what could not run on this machine, or would play tricks with a terminal."""
        for what in ("name", "model", "user"):
            if not (text := getattr(self, what)).isprintable():
                raise ConfigError(f"{what}={text!r} holds characters that cannot be printed.")
        if len(self.name) > _MOST_NAME:
            raise ConfigError(
                f"name='{self.name[:40]}…' has {len(self.name)} characters; give it at most "
                f"{_MOST_NAME}."
            )
        if not Path(self.cwd).is_dir():
            raise ConfigError(f"There is no folder {self.cwd} to run in.")
        path = self.env.get("PATH")
        program = self.command[0]
        if "/" in program and not Path(program).is_absolute():
            program = str(Path(self.cwd, program))
        if shutil.which(program, path=path) is None:
            raise ConfigError(
                f"The command {self.command[0]!r} does not exist, or cannot be executed; give a "
                "program on the PATH, or its whole path."
            )

    def encode(self) -> dict[str, Any]:
        """As it is kept in a file."""
        return asdict(self)

    @classmethod
    def decode(cls, facts: Mapping[str, Any]) -> Request:
        """Read what `encode` gave, or ConfigError."""
        known = {item.name for item in fields(cls)}
        if foreign := sorted(facts.keys() - known):
            raise ConfigError(
                f"A request has no setting {foreign[0]!r}; was it made by a newer rota?"
            )
        try:
            lists = {key: _words(facts.get(key, ())) for key in ("command", "preload")}
            return cls(**{**facts, **lists})
        except (TypeError, OverflowError) as error:
            raise ConfigError(f"This is no request: {error}.") from None


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{str(value)[:40]!r} is no list of words")
    return tuple(value)
