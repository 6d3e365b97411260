"""`rota resubmit`: the same job once more."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import typer

from rota.cli.job_verbs import STATE, Jobs, State, environment, to_each  # noqa: TC001
from rota.cli.loading import note
from rota.cli.options import AsJson  # noqa: TC001


def resubmit(jobs: Jobs, state: State = STATE, as_json: AsJson = False) -> None:
    """Submit jobs once more: same command, folder, environment and options; prints new numbers.

    The environment of a job that is over is not kept: the present one is used then.
    """
    from rota.backends.local.state_dir import StateDir

    store = StateDir(state, create=False)

    def do(uid: int) -> dict[str, Any]:
        request, kept = store.request(uid), store.keeps_environment(uid)
        if not kept:
            request = replace(request, env=environment())
            note(f"the environment of job {uid} was not kept: the present one is used.")
        request = replace(request, submitted_at=time.time())
        request.check_here()
        new = store.submit(request)
        if not as_json:
            typer.echo(new)
        return {"job": new, "of": uid, "environment": "kept" if kept else "present"}

    to_each(store, jobs, do, as_json=as_json, when="they wait until `rota run` starts one")
