"""What squeue, sinfo and slurmrestd answer in JSON, as records; of several versions of Slurm."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any, Final

from rota.backends.slurm.node_lists import expanded, named, natural
from rota.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_VALUES: Final = (0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF, 0xFFFE, 0xFFFF)
"""What Slurm writes where nothing is set, or where there is no limit."""
ENDS: Final = {
    "COMPLETED": "done", "CANCELLED": "cancelled", "PREEMPTED": "cancelled", "REVOKED": "cancelled",
    "FAILED": "failed", "TIMEOUT": "failed", "NODE_FAIL": "failed", "BOOT_FAIL": "failed",
    "OUT_OF_MEMORY": "failed", "DEADLINE": "failed",
}  # fmt: skip
"""States of jobs that are over, and what that means."""
_ALONE: Final = frozenset(("none", "user", "mcs"))
"""Ways to share nodes that keep some or all others from them."""
_GPU: Final = re.compile(r"gpu(?::(?P<kind>[A-Za-z0-9_.-]+?))?(?::(?P<count>\d+))?(?:\([^)]*\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """One job of `squeue --json`."""

    job_id: int
    array_id: int = 0
    array_task: int = -1
    array_tasks: str = ""
    """Tasks of an array that have not been split off yet."""
    array_most: int = 0
    """Tasks of the array that may run at a time; 0: all."""
    het_id: int = 0
    name: str = ""
    user: str = ""
    user_id: int = -1
    state: str = "PENDING"
    reason: str = ""
    said: str = ""
    """More about the reason, in words."""
    priority: float = 0.0
    partition: str = ""
    nodes: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    features: str = ""
    dependency: str = ""
    reservation: str = ""
    licenses: str = ""
    submit_s: float = 0.0
    eligible_s: float = 0.0
    start_s: float = nan
    end_s: float = nan
    comment: str = ""
    mark: str = ""
    """Its admin comment."""
    least_nodes: int = 1
    most_nodes: int = 1
    sized: bool = True
    """Whether it was said how many nodes it may have at most, or it has them; else `least_nodes` is
    Slurm's guess.
    """
    tasks: int = 1
    tasks_per_node: int = 0
    """0: as many as fit."""
    cpus: int = 1
    memory_mb: float = 0.0
    """On each node; 0: nothing was said, or all of it."""
    cpu_memory_mb: float = 0.0
    """For each CPU, where it was asked for so."""
    time_limit_s: float = inf
    restarts: int = 0
    requeue: bool = True
    batch: bool = True
    exclusive: bool = False
    """It wants its nodes for itself, or for its user, alone."""
    contiguous: bool = False
    """It wants nodes that are neighbours."""
    work_dir: str = ""
    gpus_per_node: str = ""
    """As it was asked for, such as `gres:gpu:a100:2`."""
    gpus_per_job: str = ""
    gpus_other: str = ""
    """Asked for per task or socket."""
    gpus_held: tuple[str, ...] = ()
    """By node, in the order of `nodes`."""

    @property
    def call(self) -> str:
        """By which users and scontrol call it."""
        if self.array_id and self.array_task >= 0:
            return f"{self.array_id}_{self.array_task}"
        return str(self.job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """One node of `sinfo --json`."""

    name: str
    gpus: int
    gpu_type: str = ""
    gpus_astray: int = 0
    """Counted as used although no job has a CPU there."""
    cpus: int = 1
    memory_mb: float = inf
    state: str = "idle"
    flags: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    reason: str = ""


def read_jobs(text: str) -> list[SlurmJob]:
    """The jobs in an answer of squeue."""
    return jobs_of(_parsed(text, "squeue --json"), "squeue --json")


def read_nodes(text: str) -> list[SlurmNode]:
    """The nodes in an answer of sinfo."""
    return nodes_of(_parsed(text, "sinfo --json"), "sinfo --json")


def jobs_of(answer: Any, asked: str) -> list[SlurmJob]:
    """The jobs in the document that `asked` gave."""
    return [_job(one, asked) for one in _rows(answer, "jobs", asked)]


def nodes_of(answer: Any, asked: str) -> list[SlurmNode]:
    """The nodes in the document that `asked` gave."""
    rows = _rows(answer, "nodes", asked)
    return sorted((_node(one, asked) for one in rows), key=lambda node: natural(node.name))


def _parsed(text: str, command: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BackendError(
            f"{command} gave no JSON ({error}); it needs Slurm 21.08 or later with its "
            "JSON serializer (Debian: slurm-wlm has it)."
        ) from None


def _rows(answer: Any, key: str, asked: str) -> list[dict[str, Any]]:
    rows, wrong = (answer.get(key), answer.get("errors")) if isinstance(answer, dict) else (None, 0)
    # Where no controller answers, squeue and sinfo of 22.05 list nothing and end with code 0.
    if wrong or not isinstance(rows, list):
        raise BackendError(f"{asked} listed no {key}{f': {wrong}' if wrong else ''}.")
    if strange := [row for row in rows if not isinstance(row, dict)]:
        raise BackendError(f"{asked} listed {strange[0]!r} among its {key}.")
    return rows


def _job(row: dict[str, Any], asked: str) -> SlurmJob:
    try:
        return _job_of(row)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise BackendError(
            f"{asked} describes job {row.get('job_id')!r} in a way that is not known "
            f"({type(error).__name__}: {error})."
        ) from error


def _job_of(row: dict[str, Any]) -> SlurmJob:
    array = number(row["array_job_id"], 0)
    task = number(row.get("array_task_id"), -1)
    tasks = _text(row.get("array_task_string"))
    least, most = (int(number(row.get(key), 0)) for key in ("node_count", "max_nodes"))
    # Of a waiting job Slurm tells a guess (22.05), at times one more than was asked for.
    least = max(1, min(least, most) if most > 0 else least)
    start_s, end_s = number(row.get("start_time"), 0), number(row.get("end_time"), 0)
    restarts = int(number(row.get("restart_cnt"), 0))
    others = [_text(row.get(f"tres_per_{what}")) for what in ("task", "socket")]
    return SlurmJob(
        job_id=int(row["job_id"]),
        array_id=int(array), array_task=-1 if tasks or not array else int(task), array_tasks=tasks,
        array_most=int(number(row.get("array_max_tasks"), 0)),
        het_id=int(number(row.get("het_job_id"), 0)),
        name=_text(row.get("name")),
        user=_text(row.get("user_name")) or str(row.get("user_id", "")),
        user_id=int(number(row.get("user_id"), -1)),
        state=_state(row["job_state"]), reason=_text(row.get("state_reason")),
        said=_text(row.get("state_description")).replace("_", " "),
        priority=number(row.get("priority"), 0),
        partition=_text(row.get("partition")),
        nodes=expanded(_text(row.get("nodes"))),
        required=named(_text(row.get("required_nodes"))),
        excluded=named(_text(row.get("excluded_nodes"))), features=_text(row.get("features")),
        dependency=_text(row.get("dependency")), reservation=_text(row.get("resv_name")),
        licenses=_text(row.get("licenses")),
        submit_s=number(row.get("submit_time"), 0), eligible_s=number(row.get("eligible_time"), 0),
        start_s=start_s if start_s > 0 else nan, end_s=end_s if end_s > 0 else nan,
        comment=_text(row.get("comment")), mark=_text(row.get("admin_comment")),
        least_nodes=least,
        most_nodes=max(least, most),
        sized=most > 0 or bool(row.get("nodes")) or "tasks" not in row,
        tasks=max(1, int(number(row.get("tasks"), 1))),
        tasks_per_node=int(number(row.get("tasks_per_node"), 0)),
        cpus=max(1, int(number(row.get("cpus"), 1))),
        memory_mb=_memory_mb(row, least), cpu_memory_mb=number(row.get("memory_per_cpu"), 0),
        time_limit_s=60.0 * number(row.get("time_limit"), inf),
        restarts=restarts, requeue=bool(row.get("requeue", True)),
        # Requeued jobs may seem to have no script (22.05); but those without are never requeued.
        batch=bool(row.get("batch_flag", True)) or restarts > 0,
        exclusive=_exclusive(row.get("shared")), contiguous=bool(row.get("contiguous")),
        work_dir=_text(row.get("current_working_directory")),
        gpus_per_node=_text(row.get("tres_per_node")), gpus_per_job=_text(row.get("tres_per_job")),
        gpus_other=" ".join(filter(None, others)),
        gpus_held=tuple(map(_text, row.get("gres_detail") or ())),
    )  # fmt: skip


def _node(row: dict[str, Any], asked: str) -> SlurmNode:
    try:
        kinds = gpus(row.get("gres") or "")
        most = max(kinds, key=lambda kind: kinds[kind], default="")
        features = row.get("active_features") or row.get("features") or ""
        names = features if isinstance(features, list) else features.split(",")
        flags = row.get("state_flags") or []
        state = row.get("state") or ""
        states = [str(one).lower() for one in (state if isinstance(state, list) else [state])]
        busy = number(row.get("alloc_cpus"), 1) > 0 or bool(flags) or len(states) > 1
        return SlurmNode(
            name=_text(row["name"]), gpus=sum(kinds.values()), gpu_type=most,
            gpus_astray=0 if busy else sum(gpus(row.get("gres_used") or "").values()),
            cpus=max(1, int(number(row.get("cpus"), 1))),
            memory_mb=number(row.get("real_memory"), inf), state=states[0] if states else "",
            flags=tuple(str(flag).lower() for flag in (*states[1:], *flags)),
            features=frozenset(filter(None, names)),
            partitions=frozenset(map(_text, row.get("partitions") or ())),
            reason=_text(row.get("reason")),
        )  # fmt: skip
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise BackendError(
            f"{asked} describes node {row.get('name')!r} in a way that is not known "
            f"({type(error).__name__}: {error})."
        ) from error


def _memory_mb(row: dict[str, Any], nodes: int) -> float:
    """Memory on each node, however it was asked for."""
    whole, each = number(row.get("memory_per_node"), 0), number(row.get("memory_per_cpu"), 0)
    return whole or each * -(-number(row.get("cpus"), 1) // nodes)


def number(value: Any, default: float) -> float:
    """A number of any version of Slurm; `default` where it is not set or has no limit."""
    if isinstance(value, dict):  # from 23.02 on
        if value.get("infinite") or not value.get("set", True):
            return default
        value = value.get("number")
    if value is None or value in NO_VALUES:
        return default
    found = float(value)
    return found if isfinite(found) else default


def _text(value: Any) -> str:
    """A text; "" where nothing is set."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _state(value: Any) -> str:
    """The base state; from 23.02 on it comes with flags, as a list."""
    if isinstance(value, list):
        states = [_text(one).upper() for one in value]
        return "COMPLETING" if "COMPLETING" in states else states[0]
    return _text(value).upper()


def _exclusive(value: Any) -> bool:
    return not _ALONE.isdisjoint(value if isinstance(value, list) else [value])


def gpus(text: str) -> dict[str, int]:
    """GPUs by type in a list of generic resources, such as `gpu:a100:4(S:0-1),craynetwork:4`."""
    found: dict[str, int] = {}
    for part in re.split(r",(?![^(]*\))", text):
        match = _GPU.fullmatch(part.strip().removeprefix("gres/").removeprefix("gres:"))
        if match is None:
            continue
        kind, count = match["kind"] or "", match["count"]
        if count is None and kind.isdecimal():
            kind, count = "", kind
        found[kind] = found.get(kind, 0) + (1 if count is None else int(count))
    return found


def array_tasks(text: str) -> Iterator[int]:
    """The tasks in a string such as `0-3,7%2`, as far as it is not cut off."""
    for part in text.partition("%")[0].split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match is None:
            return  # Slurm cuts long lists with dots
        low, high, step = match.groups()
        yield from range(int(low), int(high or low) + 1, max(1, int(step or 1)))
