"""Trainings that gain and lose workers while they run.

`Elastic` is for the training script and needs torch; `ElasticJob` is the scheduler's side.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rota.elastic.protocol import Change, JobSpec, Member, Result, Status, TimeLimits
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.elastic.job import ElasticJob
    from rota.elastic.training import Elastic

__all__ = ["Change", "Elastic", "ElasticJob", "JobSpec", "Member", "Result", "Status", "TimeLimits"]


def __getattr__(name: str) -> Any:
    if name == "ElasticJob":  # its sockets and secrets are for those who talk to an agent
        from rota.elastic.job import ElasticJob

        return ElasticJob
    if name == "Elastic":
        try:
            from rota.elastic.training import Elastic
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ConfigError(
                f"Elastic needs torch, which {sys.executable} does not have; try: "
                f"{sys.executable} -m pip install 'rota[elastic]'"
            ) from None
        return Elastic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
