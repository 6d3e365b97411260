"""`rota hold` and `rota resume`: keep jobs from running for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.job_verbs import STATE, Jobs, State, to_each  # noqa: TC001
from rota.cli.options import AsJson  # noqa: TC001


def hold(
    jobs: Jobs,
    force: Annotated[
        bool, typer.Option("--force", help="Also a running job that has to begin again.")
    ] = False,
    state: State = STATE,
    as_json: AsJson = False,
) -> None:
    """Keep jobs from running until `rota resume`.

    A waiting job is not started. A running job that can go on later is stopped: an elastic one at a
    step, a --preemptible one by SIGTERM. Any other running job is refused, unless you say --force.
    """
    from rota.backends.local.holds import hold_job
    from rota.backends.local.state_dir import StateDir

    store = StateDir(state, create=False)

    to_each(store, jobs, lambda uid: hold_job(store, uid, force=force), as_json=as_json,
            when="running jobs stop when `rota run` starts one")  # fmt: skip


def resume(jobs: Jobs, state: State = STATE, as_json: AsJson = False) -> None:
    """Put jobs that are on hold back in line."""
    from rota.backends.local.holds import resume_job
    from rota.backends.local.state_dir import StateDir

    store = StateDir(state, create=False)

    to_each(store, jobs, lambda uid: resume_job(store, uid), as_json=as_json,
            when="they wait until `rota run` starts one")  # fmt: skip
