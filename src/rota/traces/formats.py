"""The formats of job logs that rota reads, recognised by what is in the file.

One parser per format turns a sheet into columns of the plain form. A parser says which rows are
no jobs to replay (`sheet.leave_out`); what is wrong with a value is checked for all alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import RotaError, TraceError
from rota.plugins import Registry
from rota.traces.plain_csv import parse_plain
from rota.traces.sacct import parse_sacct, parsed
from rota.traces.slurm_db import COLUMNS_OF_DUMP, parse_slurm_db
from rota.traces.slurm_jobs import known_starts
from rota.traces.swf import SWF_FIELDS, parse_swf
from rota.traces.tres import parse_instant_s
from rota.traces.work_to_time import deepshare_lengths, gavel_lengths, pollux_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.plugins import Plugin
    from rota.traces.log_sheet import Layout, Sheet


@dataclass(frozen=True)
class Format:
    """How one kind of job log is recognised and read."""

    name: str
    about: str
    columns: tuple[str, ...]
    """Columns that a file of this format has; together they tell it from the others."""
    parse: Callable[[Sheet], dict[str, Any]]
    layout: Layout = "commas"
    header: Sequence[str] = field(default=())
    """Names of the fields where the file itself has no header."""


def _renamed(**sources: str) -> Callable[[Sheet], dict[str, Any]]:
    """A parser that only renames columns: plain name = name in the file."""
    texts = {"job_id", "user", "model"}

    def parse(sheet: Sheet) -> dict[str, Any]:
        sheet.require(*sources.values())
        sheet.sources.update(sources)
        return {
            name: sheet.cells[source] if name in texts else sheet.numbers(source)
            for name, source in sources.items()
        }

    return parse


def _parse_chronus(sheet: Sheet) -> dict[str, Any]:
    """Minutes to seconds; strict jobs must end `expect_time_list` after their submission."""
    sheet.require(*_CHRONUS)
    gpus, submit_s = sheet.numbers("num_gpu"), 60 * sheet.numbers("submit_time")
    sheet.leave_out(gpus == 0, "no GPU")
    strict = np.array([kind == "strict" for kind in sheet.cells["job_type"]])
    allowed_s = 60 * sheet.numbers("expect_time_list", empty=np.inf)
    sheet.sources.update(
        model="model_name", submit_s="submit_time", duration_s="duration", num_gpus="num_gpu",
        deadline_s="expect_time_list",
    )  # fmt: skip
    return {
        "job_id": sheet.cells["job_id"],
        "submit_s": submit_s,
        "duration_s": 60 * sheet.numbers("duration"),
        "num_gpus": gpus,
        "user": sheet.cells["user"],
        "model": sheet.cells["model_name"],
        "deadline_s": np.where(strict, submit_s + allowed_s, np.inf),
    }


def _parse_openb(sheet: Sheet) -> dict[str, Any]:
    """Pods; a share of a GPU counts as one GPU, several allowed types count as any."""
    sheet.require(*_OPENB)
    gpus = sheet.numbers("num_gpu")
    duration_s = sheet.numbers("duration_s", empty=np.nan)
    sheet.leave_out(gpus == 0, "no GPU")
    sheet.leave_out(np.array([cell == "" for cell in sheet.cells["duration_s"]]), "never ran")
    per_worker = 1 / np.maximum(gpus, 1)
    submit_s = sheet.numbers("creation_time")
    started_s = np.full(len(sheet), np.nan)
    if "scheduled_time" in sheet:
        started_s = known_starts(sheet, submit_s, sheet.numbers("scheduled_time", empty=np.nan))
    types = sheet.cells.get("gpu_spec_aug33", [""] * len(sheet))
    sheet.sources.update(
        job_id="name", submit_s="creation_time", num_gpus="num_gpu", started_s="scheduled_time",
        cpus_per_worker="cpu_milli", memory_gb_per_worker="memory_mib",
    )  # fmt: skip
    return {
        "job_id": sheet.cells["name"],
        "submit_s": submit_s,
        "duration_s": duration_s,
        "num_gpus": gpus,
        "cpus_per_worker": sheet.numbers("cpu_milli") / 1000 * per_worker,
        "memory_gb_per_worker": sheet.numbers("memory_mib") / 1024 * per_worker,
        "gpu_type": ["" if "|" in allowed else allowed for allowed in types],
        "started_s": started_s,
        "ran_on_nodes": np.ones(len(sheet)),
    }


def _parse_helios_log(sheet: Sheet) -> dict[str, Any]:
    """Timestamps become seconds since the first submission; CPU-only jobs are left out."""
    sheet.require(*_HELIOS_LOG)
    gpus, duration_s = sheet.numbers("gpu_num", empty=0), sheet.numbers("duration", empty=0)
    sheet.leave_out(gpus == 0, "no GPU")
    sheet.leave_out(duration_s == 0, "never ran")
    submit_s, started_s = (
        parsed(sheet, column, parse_instant_s, "is not a timestamp")
        for column in ("submit_time", "start_time")
    )
    sheet.leave_out(np.isnan(submit_s), "no submit time")
    first_s = submit_s[sheet.live].min(initial=np.inf)
    sheet.sources.update(
        submit_s="submit_time", duration_s="duration", num_gpus="gpu_num", started_s="start_time",
        cpus_per_worker="cpu_num", ran_on_nodes="node_num",
    )  # fmt: skip
    found: dict[str, Any] = {
        "job_id": sheet.cells["job_id"],
        "submit_s": submit_s - first_s,
        "duration_s": duration_s,
        "num_gpus": gpus,
        "started_s": known_starts(sheet, submit_s, started_s) - first_s,
    }
    if "user" in sheet:
        found["user"] = sheet.cells["user"]
    if "cpu_num" in sheet:
        found["cpus_per_worker"] = sheet.numbers("cpu_num", empty=0) / np.maximum(gpus, 1)
    if "node_num" in sheet:
        found["ran_on_nodes"] = sheet.numbers("node_num", empty=np.nan)
    return found


def _parse_gavel(sheet: Sheet) -> dict[str, Any]:
    """Steps become seconds on V100s; the virtual cluster is the user."""
    sheet.require(*_GAVEL)
    batch = sheet.cells.get("batch_size", [""] * len(sheet))
    model = [
        f"{kind} (batch size {float(size):g})" if size else kind
        for kind, size in zip(sheet.cells["job_type"], batch, strict=True)
    ]
    gpus, steps = sheet.numbers("num_gpus"), sheet.numbers("total_steps")
    vc = sheet.cells["vc"]
    sheet.sources.update(submit_s="arrival_s", duration_s="total_steps", samples="total_steps")
    return {
        "job_id": [f"{who}-{k}" for who, k in zip(vc, sheet.cells["seq"], strict=True)],
        "submit_s": sheet.numbers("arrival_s"),
        "duration_s": gavel_lengths(sheet, model, gpus, steps),
        "num_gpus": gpus, "user": vc, "model": model, "samples": steps,
    }  # fmt: skip


def _parse_pollux(sheet: Sheet) -> dict[str, Any]:
    """Whole trainings become seconds on T4s; load and workload, if given, are the user."""
    sheet.require(*_POLLUX)
    gpus, batch = sheet.numbers("num_replicas"), sheet.numbers("batch_size")
    model = sheet.cells["application"]
    duration_s, samples = pollux_lengths(sheet, model, gpus, batch)
    sheet.sources.update(submit_s="time", num_gpus="num_replicas")
    found = {
        "job_id": sheet.cells["name"], "submit_s": sheet.numbers("time"),
        "duration_s": duration_s, "num_gpus": gpus, "model": model, "samples": samples,
    }  # fmt: skip
    if "load" in sheet and "workload" in sheet:  # several of Pollux's files in one
        pairs = zip(sheet.cells["load"], sheet.cells["workload"], strict=True)
        user = [f"{load}/{which}" for load, which in pairs]
        ids = [f"{who}/{name}" for who, name in zip(user, sheet.cells["name"], strict=True)]
        found |= {"job_id": ids, "user": user}
    return found


def _parse_deepshare(sheet: Sheet) -> dict[str, Any]:
    """Samples become seconds alone on two or four nodes."""
    sheet.require(*_DEEPSHARE)
    gpus, samples = sheet.numbers("num_gpus"), sheet.numbers("total_samples")
    model = sheet.cells["model"]
    sheet.sources.update(duration_s="total_samples", samples="total_samples")
    return {
        "job_id": sheet.cells["job_id"], "submit_s": sheet.numbers("submit_s"),
        "duration_s": deepshare_lengths(sheet, model, gpus, samples), "num_gpus": gpus,
        "model": model, "samples": samples,
    }  # fmt: skip


_PHILLY = ("job_id", "submit_time", "submit_s", "duration_s", "num_gpus", "vc")
_HELIOS = ("job_id", "submit_time", "submit_s", "duration_s", "num_gpus", "clamped_48h")
_PAI = ("job_id", "start_s", "duration_s", "num_gpus", "task_role")
_OPENB = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "duration_s")
_MURI = ("job_id", "vc", "submit_s", "duration_s", "num_gpus", "model_name", "iteration_time_ms")
_TIRESIAS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")
_CHRONUS = (*_TIRESIAS, "user", "expect_time_list", "job_type")
_SHOCKWAVE = ("seq", "job_type", "total_steps", "num_gpus", "mode", "duration_s", "arrival_s")
_GAVEL = ("vc", "seq", "job_type", "total_steps", "arrival_s", "num_gpus")
_HELIOS_LOG = ("job_id", "gpu_num", "submit_time", "start_time", "duration")
_POLLUX = ("name", "time", "application", "num_replicas", "batch_size")
_DEEPSHARE = ("job_id", "submit_s", "model", "num_gpus", "total_samples")
_PLAIN = ("job_id", "submit_s", "duration_s", "num_gpus")

_TIMES = {"submit_s": "submit_s", "duration_s": "duration_s", "num_gpus": "num_gpus"}

# Where one format's columns include another's, the richer one stands first.
_ALL: Final = (
    Format(
        "muri",
        "Muri's Philly traces; the virtual cluster is the user",
        _MURI,
        _renamed(job_id="job_id", **_TIMES, user="vc", model="model_name"),
    ),
    Format(
        "philly",
        "Microsoft Philly jobs; the virtual cluster is the user",
        _PHILLY,
        _renamed(job_id="job_id", **_TIMES, user="vc"),
    ),
    Format(
        "helios",
        "SenseTime Helios jobs (cluster Venus)",
        _HELIOS,
        _renamed(job_id="job_id", **_TIMES),
    ),
    Format(
        "helios-log",
        "Helios and Acme logs as published, with starts (cluster_log.csv, trace_*.csv)",
        _HELIOS_LOG,
        _parse_helios_log,
    ),
    Format(
        "pai",
        "Alibaba PAI 2020 tasks; the start stands for the submission",
        _PAI,
        _renamed(job_id="job_id", **(_TIMES | {"submit_s": "start_s"})),
    ),
    Format(
        "openb", "Alibaba OpenB 2023 pods; a share of a GPU counts as one", _OPENB, _parse_openb
    ),
    Format("chronus", "Chronus's Philly jobs with deadlines, in minutes", _CHRONUS, _parse_chronus),
    Format(
        "tiresias",
        "Tiresias's simulator input",
        _TIRESIAS,
        _renamed(
            job_id="job_id",
            submit_s="submit_time",
            duration_s="duration",
            num_gpus="num_gpu",
            model="model_name",
        ),
    ),
    Format(
        "shockwave",
        "Shockwave's generated traces",
        _SHOCKWAVE,
        _renamed(job_id="seq", **(_TIMES | {"submit_s": "arrival_s"}), model="job_type"),
    ),
    Format("gavel", "Gavel's Philly traces; steps become seconds on V100s", _GAVEL, _parse_gavel),
    Format("pollux", "Pollux's workloads; trainings become seconds on T4s", _POLLUX, _parse_pollux),
    Format(
        "deepshare",
        "DeepShare's trace; samples become seconds alone on several nodes",
        _DEEPSHARE,
        _parse_deepshare,
    ),
    Format("csv", "rota's plain form", _PLAIN, parse_plain),
    Format(
        "sacct",
        "Slurm's accounting log, from `sacct --parsable2`",
        ("JobID", "State"),
        parse_sacct,
        layout="pipes",
    ),
    Format(
        "slurm-db",
        "The job table of Slurm's database (id_job, time_submit, tres_alloc, …)",
        COLUMNS_OF_DUMP,
        parse_slurm_db,
    ),
    Format(
        "swf",
        "Standard Workload Format; processors count as GPUs",
        (),
        parse_swf,
        layout="blanks",
        header=SWF_FIELDS,
    ),
)
FORMATS: Final = {known.name: known for known in _ALL}


def _plugged(thing: Any, plugin: Plugin) -> Format:
    """A format of another package; its parser's mistakes are told as such."""
    if not isinstance(thing, Format) or thing.name != plugin.name:
        raise TypeError(f"{thing!r} is no rota.traces.formats.Format called {plugin.name!r}")

    def parse(sheet: Sheet) -> dict[str, Any]:
        try:
            columns = thing.parse(sheet)
            missing = [name for name in _PLAIN if name not in columns]
        except RotaError:
            raise
        except Exception as error:
            missing = [f"{type(error).__name__}: {error}"]
        if missing:
            raise TraceError(
                f"The format {plugin.name!r} of package {plugin.package!r} does not give "
                f"job_id, submit_s, duration_s and num_gpus: {', '.join(missing)}.",
                file=sheet.file,
            )
        return columns

    return replace(thing, parse=parse)


LOG_FORMATS: Final = Registry("rota.trace_formats", "trace format", [lambda: FORMATS], _plugged)
"""Ours and those of plug-ins."""
