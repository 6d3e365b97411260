"""`rota cancel`: end jobs, waiting or running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.job_verbs import STATE, State, to_each  # noqa: TC001
from rota.cli.options import AsJson  # noqa: TC001
from rota.errors import InputError, RotaError

if TYPE_CHECKING:
    from rota.backends.local.state_dir import StateDir


def cancel(
    jobs: Annotated[list[int] | None, typer.Argument(metavar="JOB...", help="Numbers.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that wait or run.")] = False,
    state: State = STATE,
    as_json: AsJson = False,
) -> None:
    """End jobs, waiting or running."""
    from rota.backends.local.state_dir import StateDir

    store = StateDir(state, create=False)
    if bool(jobs) == everything:
        raise InputError("Say which jobs to cancel, by number; or --all.")

    chosen = jobs or [uid for uid in store.uids() if not is_over(store, uid)]
    to_each(store, chosen, store.cancel, as_json=as_json,
            when="they end when `rota run` starts one")  # fmt: skip


def is_over(store: StateDir, uid: int) -> bool:
    """Whether a job has ended; not if its files are damaged, so that it can be cancelled."""
    try:
        return store.ended(uid) is not None
    except RotaError:
        return False
