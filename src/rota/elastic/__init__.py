"""The library inside a training job: its workers come and go while it runs.

`Elastic` belongs in the training script and needs torch; `Job` is the scheduler's side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.elastic.job import Job
from rota.elastic.protocol import Change, JobSpec, Limits, Member, Result, Status
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.elastic.trainer import Elastic

__all__ = ["Change", "Elastic", "Job", "JobSpec", "Limits", "Member", "Result", "Status"]


def __getattr__(name: str) -> Any:
    if name == "Elastic":
        try:
            from rota.elastic.trainer import Elastic
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ConfigError(
                "Elastic needs torch, which is not installed: pip install 'rota[elastic]'."
            ) from None
        return Elastic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
