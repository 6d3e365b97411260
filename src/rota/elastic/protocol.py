"""What a scheduler and a running job exchange: files, environment variables, messages.

A job has one agent process, which starts the workers of its host and controls every change; it goes
on without a scheduler. The scheduler finds it by a file in the job's folder and exchanges JSON
lines with it over TCP: one request per line, one answer per line, in order.

    FOLDER/job.json      what to run (`JobSpec`); written by the scheduler, read by the agent
    FOLDER/agent.json    where the agent listens (`Address`), readable by its owner only
    FOLDER/result.json   how it ended (`Result`); exists exactly when the job is over
    FOLDER/agent.log     what the agent did, one line each
    FOLDER/logs/NAME.log what member NAME printed
    FOLDER/agent.lock    locked while the agent runs

    request                                          answer, besides "ok": true
    {"op": "hello", "protocol": 2}                   {"protocol": 2, "pid": …}
    {"op": "observe"}                                {"status": {…}}               see `Status`
    {"op": "resize", "members": [{…}, …]}            {"target": 3}                 see `Member`
    {"op": "join", "member": {…}}                    {"target": 4}     one member more
    {"op": "leave", "name": "w3"}                    {"target": 5}     all but this one
    {"op": "stop", "grace_s": 30}                    {}

A request that cannot be carried out is answered {"ok": false, "error": "one line"}. Before hello
both sides prove that they know the token (`handshake`). Messages of members: see `coordinator`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, get_args

from rota.errors import ConfigError

PROTOCOL: Final = 2
"""Increased by a change that makes old and new versions incompatible."""
MOST_LINE: Final = 1 << 20
"""Bytes in a line; a connection that sends more is closed."""

AHEAD: Final = 2
"""Steps that a member may still do after it was asked to hold."""

JOB_FILE: Final = "job.json"
AGENT_FILE: Final = "agent.json"
RESULT_FILE: Final = "result.json"
AGENT_LOG: Final = "agent.log"
LOCK_FILE: Final = "agent.lock"
LOGS: Final = "logs"

ENV_AGENT: Final = "ROTA_AGENT"
"""host:port of the agent; without it a script trains alone, as a single worker."""
ENV_TOKEN: Final = "ROTA_TOKEN"
"""The secret that members and agent share; it is in no command line, no message and no log."""
ENV_MEMBER: Final = "ROTA_MEMBER"
"""The member's name, one per process."""
ENV_KIND: Final = "ROTA_KIND"
"""worker or server."""
ENV_HOST: Final = "ROTA_HOST"
"""The address at which the other members reach this one."""

Kind = Literal["worker", "server"]
Mode = Literal["allreduce", "servers", "plain"]
State = Literal["starting", "running", "changing", "stopping", "done", "stopped", "failed"]
ENDED: Final = ("done", "stopped", "failed")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Member:
    """One process that the scheduler wants to exist; no later one of the job has its name."""

    name: str
    kind: Kind = "worker"
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the process, such as CUDA_VISIBLE_DEVICES."""
    outside: bool = False
    """Started not by the agent, and maybe on another host, with the ROTA_* environment."""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise ConfigError(
                f"A member cannot be called {self.name!r}; use up to 64 letters, digits, '.', "
                "'_' and '-', a letter or digit first."
            )
        if self.kind not in get_args(Kind):
            raise ConfigError(
                f"Member {self.name}: no kind is called {self.kind!r}; say worker or server."
            )
        if not isinstance(self.outside, bool):
            raise ConfigError(f"Member {self.name}: outside={self.outside!r} is not true or false.")
        check_env(self.env, f"Member {self.name}")


@dataclass(frozen=True, kw_only=True)
class TimeLimits:
    """Seconds that the agent waits in each situation, before it acts."""

    start_s: float = 120.0
    """From the start of a process until it is ready; then it is killed and left out."""
    connect_s: float = 20.0
    """For members to connect to one another; then the change is tried again."""
    transfer_s: float = 120.0
    """For new members to receive the state; then they are killed."""
    silent_s: float = 30.0
    """Between two messages of a member; then it is killed and counts as lost."""
    leave_s: float = 30.0
    """For a member that leaves to end by itself; then it is killed."""
    stall_s: float = 1800.0
    """Between two steps of a job; then the members that block the others are killed."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (isinstance(value, int | float) and 0 < value < 1e7):
                raise ConfigError(
                    f"limits.{item.name}={value!r} is not a number of seconds above 0."
                )


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What the agent is to run."""

    command: tuple[str, ...]
    """Starts one member, such as ("python", "train.py"); the same for every member."""
    members: tuple[Member, ...]
    """The members of the first group."""
    mode: Mode = "allreduce"
    """How gradients are combined: by all-reduce among the workers, or at parameter servers. The
    script of a plain job does not use rota.elastic, and communicates in its own way."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of every member."""
    cwd: str = "."
    """Working directory of the members, relative to the job's folder."""
    threads: int = 0
    """OMP_NUM_THREADS of every member; 0: that of `env`, or 1."""
    preload: tuple[str, ...] = ()
    """Modules to import once, such as "torch"; members are then forked, in milliseconds."""
    bind: str = "127.0.0.1"
    """Address at which the agent listens; the host's own, if members run on other hosts."""
    port: int = 0
    """Port at which the agent listens; 0 lets the kernel choose."""
    park_every_s: float = 300.0
    """Seconds from one save of a training with ROTA_PARK to the next; 0: only at a stop."""
    limits: TimeLimits = field(default_factory=TimeLimits)

    def __post_init__(self) -> None:
        if not self.command:
            raise ConfigError("job.command is empty; give the program that starts one member.")
        check_preload(self.command, self.preload, "job.preload")
        if self.mode not in get_args(Mode):
            known = ", ".join(get_args(Mode))
            raise ConfigError(f"job.mode={self.mode!r} is unknown; there are {known}.")
        if not 0 <= self.port < 65536:
            raise ConfigError(f"job.port={self.port} is not a port; 0 lets the kernel choose.")
        if not (isinstance(self.park_every_s, int | float) and 0 <= self.park_every_s < 1e9):
            raise ConfigError(
                f"job.park_every_s={self.park_every_s!r} is not a number of seconds; 0 is never."
            )
        check_env(self.env, "job.env")
        check_members(self.members, self.mode)
        if self.mode == "plain" and (guest := next((m for m in self.members if m.outside), None)):
            raise ConfigError(
                f"Member {guest.name} is outside, but in a plain job the agent starts all members."
            )

    @classmethod
    def decode(cls, facts: Mapping[str, Any]) -> JobSpec:
        """Read what `asdict` wrote, or say which setting is wrong."""
        known = {item.name for item in fields(cls)}
        if foreign := sorted(facts.keys() - known):
            raise ConfigError(f"job.json: there is no setting {foreign[0]!r}.")
        try:
            return cls(
                **{
                    **facts,
                    "command": tuple(facts["command"]),
                    "preload": tuple(facts.get("preload", ())),
                    "members": decode_members(facts["members"]),
                    "limits": TimeLimits(**facts.get("limits", {})),
                }
            )
        except KeyError as error:
            raise ConfigError(f"job.json: {error.args[0]} is missing.") from None
        except TypeError as error:
            raise ConfigError(f"job.json: {error}.") from None


@dataclass(frozen=True)
class Address:
    """Where an agent listens, and the token that it expects."""

    host: str
    port: int
    token: str = field(repr=False)
    pid: int
    protocol: int = PROTOCOL


@dataclass(frozen=True, kw_only=True)
class Change:
    """One completed change of the members."""

    generation: int
    cause: Literal["start", "resize", "growth", "loss"]
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    step: int = 0
    """Steps done when it happened."""
    pause_s: float = 0.0
    """Longest time that a member which stayed did not train."""
    took_s: float = 0.0
    """From the request, or the loss, to the first step of the new group."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """A job as its agent sees it."""

    state: State
    step: int = 0
    """Steps done since the job began."""
    epoch: int = 0
    samples: int = 0
    """Samples done, over all workers and epochs."""
    samples_per_s: float = 0.0
    """Average of the last seconds; 0 after a change until a step is reported."""
    ago_s: float = 0.0
    """Seconds since the end of the last step that was reported."""
    total: int = 0
    """Samples of the whole training, over all epochs; 0 before a member has told."""
    busy_s: float = 0.0
    """Seconds from the first group to the last reported step, without the pauses of changes."""
    changes: int = 0
    """Number of changes of the members since the first group."""
    paused_s: float = 0.0
    """Sum of the pauses of these changes."""
    generation: int = 0
    """Number of the present group; grows with every change, and may skip numbers."""
    active: tuple[str, ...] = ()
    """Members of the present group, by rank, workers before servers."""
    waiting: tuple[str, ...] = ()
    """Members that are starting, or ready and not joined yet."""
    target: int = 0
    """Number of the last request to resize; the first members are request 0."""
    reached: int = -1
    """Number of the last request that is done; equal to `target` when nothing is left to do."""
    pids: Mapping[str, int] = field(default_factory=dict)
    """Process ids of the members on the agent's host."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why members that were wanted could not join, or were lost; by name."""
    last: Change | None = None
    version: int = 0
    """Number of growths that the network has."""
    growth: Mapping[str, Any] | None = None
    """The last one of them."""
    ungrown: str = ""
    """Why the last growth that was proposed was not made."""
    error: str = ""
    """Why the job has failed."""

    @classmethod
    def decode(cls, facts: Mapping[str, Any]) -> Status:
        """Read what `asdict` wrote."""
        last: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in (facts.get("last") or {}).items()
        }
        return cls(
            **{
                **facts,
                "active": tuple(facts["active"]),
                "waiting": tuple(facts["waiting"]),
                "last": Change(**last) if last else None,
            }
        )


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a job ended."""

    state: Literal["done", "stopped", "failed"]
    step: int
    samples: int
    error: str = ""


def check_env(env: Mapping[str, str], whose: str) -> None:
    """Refuse an environment that no process can have."""
    if not isinstance(env, Mapping):
        raise ConfigError(f"{whose}: {env!r} is not an environment; give names and values.")
    for key, value in env.items():
        try:
            good = b"\0" not in os.fsencode(key) + os.fsencode(value) and "=" not in key
        except (TypeError, UnicodeEncodeError):
            good = False
        if not (good and key):
            raise ConfigError(f"{whose}: {key!r} cannot be set to its value in an environment.")


def check_preload(command: tuple[str, ...], preload: tuple[str, ...], key: str) -> None:
    """Refuse modules to import beforehand if the command is no Python script."""
    if preload and (len(command) < 2 or not command[1].endswith(".py")):
        raise ConfigError(f"{key} needs a command `python script.py …`, not `{' '.join(command)}`.")


def check_members(members: tuple[Member, ...], mode: Mode) -> None:
    """Refuse a list of members that a job of this mode cannot have."""
    names = [member.name for member in members]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"Two members are called {twice!r}; every process has its own name.")
    kinds = [member.kind for member in members]
    if "worker" not in kinds:
        raise ConfigError("A job needs at least one worker; to end it, stop it.")
    if mode == "servers" and "server" not in kinds:
        raise ConfigError("A job with parameter servers needs at least one server.")
    if mode != "servers" and "server" in kinds:
        server = names[kinds.index("server")]
        raise ConfigError(f"Member {server} is a server, but the job's mode is {mode}.")


def decode_members(facts: Any) -> tuple[Member, ...]:
    """Read members from a message or a file."""
    try:
        return tuple(Member(**item) for item in facts)
    except TypeError:
        raise ConfigError(
            f"{facts!r:.200} is not a list of members; each is "
            '{"name": …, "kind": "worker" | "server", "env": {…}, "outside": false}.'
        ) from None


def encode_line(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, Any]:
    """A message as it was sent, or ConfigError."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError, MemoryError):
        message = None
    if not isinstance(message, dict):
        raise ConfigError(f"{line[:80]!r} is not a message; send one JSON object per line.")
    return message
