"""Satellites as their own job submits and cancels them: with its user's rights, not with rota's."""

from __future__ import annotations

import sys
from importlib.resources import as_file, files
from math import ceil, isfinite
from typing import TYPE_CHECKING, Final

from rota.backends.slurm.hints import read_hints
from rota.backends.slurm.replies import gpus
from rota.errors import BackendError, DamagedError
from rota.files import is_count, read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rota.backends.slurm.replies import SlurmJob
    from rota.backends.slurm.tools import SlurmTools

MOST: Final = 256
"""Satellites of one job."""
MOST_AGAIN: Final = 8
"""Satellites of one run that are submitted in place of others that are over."""
_KEPT: Final = ("SLURM_CONF",)
_OWN: Final = ("SLURM", "SBATCH_", "ROTA_", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
               "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")  # fmt: skip
_MODULE: Final = "rota.backends.slurm.elastic_member"


class SatelliteJobs:
    """The satellites of one run of a job; their numbers are kept in a file for its next run."""

    def __init__(self, tools: SlurmTools, path: Path) -> None:
        self._tools, self._path = tools, path
        self._again = MOST_AGAIN

    def submit(self, job: SlurmJob, folder: Path, environ: Mapping[str, str]) -> int:
        """Submit as many as the job may grow by; `folder` is that of its present run."""
        hints, _ = read_hints(job.comment)
        count = min(MOST, hints.max_nodes - len(job.nodes)) if hints.elastic else 0
        self._add(max(0, count), [], job, folder, environ)
        return max(0, count)

    def replace_lost(self, job: SlurmJob, folder: Path, environ: Mapping[str, str]) -> int:
        """Submit new ones for those that are over while the job runs; how many."""
        numbers = self._numbers()
        there = self._listed(job, numbers)
        count = min(self._again, len(numbers) - len(there))
        if count:
            self._again -= count
            self._add(count, there, job, folder, environ)
        return count

    def _add(
        self, count: int, numbers: list[int], job: SlurmJob, folder: Path,
        environ: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Submit so many beside those that are there; each is written down at once."""
        with as_file(files("rota.backends.slurm") / "satellite.sh") as script:
            words = satellite_words(job, environ, [str(script), sys.executable, "-m", _MODULE,
                                                   str(folder)])  # fmt: skip
            for _ in range(count):
                said = self._tools.run(*words)
                number = said.out.strip().partition(";")[0]
                if said.code != 0 or not number.isdecimal():
                    raise BackendError(f"sbatch gave no satellite: {said.line}")
                numbers = [*numbers, int(number)]
                replace_file(self._path, {"satellites": numbers})

    def _listed(self, job: SlurmJob, numbers: list[int]) -> list[int]:
        """Those that squeue lists; all of them if it does not answer."""
        said = self._tools.run("squeue", "-h", f"--name={job_name(job.job_id)}", "-o", "%A")
        there = set(said.out.split())
        return [n for n in numbers if said.code != 0 or str(n) in there]

    def _numbers(self) -> list[int]:
        """Those that were submitted; none if that cannot be read any more."""
        try:
            found = (read_file(self._path) or {}).get("satellites")
        except (DamagedError, OSError):
            return []
        return [number for number in found if is_count(number)] if isinstance(found, list) else []

    def cancel(self) -> None:
        """Cancel those that were submitted, in this run or an earlier one.

        If Slurm does not answer, rota cancels them when it finds that their job is over.
        """
        for number in self._numbers():
            if self._tools.cancel(str(number)).unanswered:
                break
        self._path.unlink(missing_ok=True)


def satellite_words(job: SlurmJob, environ: Mapping[str, str], command: list[str]) -> list[str]:
    """The command that submits one satellite: one node, with what each node of the job has."""
    unset = [word for name in environ if name not in _KEPT and name.startswith(_OWN)
             for word in ("-u", name)]  # fmt: skip
    nodes = max(1, len(job.nodes))
    options = {
        "comment": f"rota:satellite-of={job.job_id}", "job-name": job_name(job.job_id),
        "partition": job.partition, "nodes": "1", "ntasks": "1",
        "cpus-per-task": str(ceil(job.cpus / nodes)), "chdir": job.work_dir,
        "output": f"{folder_name(job.job_id)}/satellite-%j.out", "open-mode": "append",
        "exclude": ",".join(dict.fromkeys((*job.nodes, *job.excluded))),
        "time": str(ceil(job.time_limit_s / 60)) if isfinite(job.time_limit_s) else "UNLIMITED",
    }  # fmt: skip
    held = gpus(job.gpus_held[0]) if job.gpus_held else {}
    if held:
        options["gres"] = ",".join(f"gpu:{kind}:{n}".replace("::", ":") for kind, n in held.items())
    if job.memory_mb > 0:
        options["mem"] = f"{ceil(job.memory_mb)}M"
    optional = {
        "constraint": job.features, "account": environ.get("SLURM_JOB_ACCOUNT", ""),
        "qos": environ.get("SLURM_JOB_QOS", ""),
    }  # fmt: skip
    options |= {option: value for option, value in optional.items() if value}
    words = [f"--{option}={value}" for option, value in options.items()]
    return ["env", *unset, "sbatch", "--parsable", "--requeue", *words, *command]


def job_name(job_id: int) -> str:
    """What the satellites of a job are called."""
    return f"satellite-{job_id}"


def folder_name(job_id: int) -> str:
    """The folder of an elastic job, in its working directory."""
    return f"rota-elastic-{job_id}"
