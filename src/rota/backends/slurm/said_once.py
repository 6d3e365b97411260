"""What the driver says of jobs and nodes, each thing once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.backends.slurm.replies import SlurmJob, SlurmNode

MOST_SAID: Final = 10_000
"""Things said until those are forgotten whose jobs are not listed any more."""


@dataclass
class SaidOnce:
    """Says things; remembers which, while the jobs are there that they are about."""

    say: Callable[[str], None]
    _said: set[tuple[int, str]] = field(default_factory=set)  # by job; 0: about a node

    def about_job(self, job: SlurmJob, text: str) -> None:
        """Say something of a job."""
        self._once(job.job_id, text, f"job {job.call}: {text}")

    def astray(self, nodes: Iterable[SlurmNode]) -> None:
        """Say which GPUs nobody can use, as happens after a controller was killed."""
        for node in nodes:
            if node.gpus_astray:
                text = (
                    f"Slurm counts {node.gpus_astray} GPUs of {node.name} as used, but no job is "
                    "there"
                )
                mend = "no job is started on them; `scontrol reconfigure` mends that"
                self._once(0, text, f"{text}: {mend}")

    def forget(self, jobs: Iterable[SlurmJob]) -> None:
        """These jobs are listed; what was said of others does not matter if it is much."""
        if len(self._said) > MOST_SAID:
            there = {0, *(job.job_id for job in jobs)}
            self._said = {about for about in self._said if about[0] in there}

    def _once(self, number: int, about: str, text: str) -> None:
        if (number, about) not in self._said:
            self._said.add((number, about))
            self.say(text)
