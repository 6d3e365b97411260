"""What an agent is told when it is launched: the command, its members, their environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rota.elastic.parking import ENV_PARK, ENV_RESUME
from rota.elastic.protocol import JOB_FILE, JobSpec, Member
from rota.errors import DamagedError
from rota.files import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from rota.backends.local.held import Held
    from rota.backends.local.request import Request
    from rota.backends.local.seating import Seat
    from rota.backends.local.state_dir import StateDir

    SeatEnv = Callable[[Seat], dict[str, str]]

_MODES: Final = {"plain": "plain", "elastic": "allreduce", "servers": "servers"}


def job_spec(store: StateDir, uid: int, request: Request, held: Held, env_of: SeatEnv) -> JobSpec:
    """The present run of a job, with a member in each of its seats."""
    env, resume = {"ROTA_JOB": str(uid)}, {}
    if request.kind != "plain":
        env[ENV_PARK] = str(store.park_folder(uid, held.run))
        if held.parked:
            resume[ENV_RESUME] = str(store.park_folder(uid, held.parked))
    return JobSpec(
        command=request.command,
        members=members_of(held, held.seats, env_of, resume),
        mode=_MODES[request.kind],  # type: ignore[arg-type]
        env={**request.env, **env},
        cwd=request.cwd,
        threads=request.threads,
        preload=request.preload,
        park_every_s=request.park_every_s,
    )


def members_of(
    held: Held, names: Iterable[str], env_of: SeatEnv, more: Mapping[str, str] | None = None
) -> tuple[Member, ...]:
    """The named members in the order of their seats, each with the environment of its seat."""
    chosen = set(names)
    return tuple(
        Member(name, seat.kind, {**env_of(seat), **(more or {})})
        for name, seat in held.seats.items()
        if name in chosen
    )


def launched_members(folder: Path) -> frozenset[str] | None:
    """The names of the members that a run was launched with; None if that cannot be read."""
    try:
        members = (read_file(folder / JOB_FILE) or {}).get("members", ())
        return frozenset(one["name"] for one in members)
    except (DamagedError, KeyError, TypeError):
        return None
