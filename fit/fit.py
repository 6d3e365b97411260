"""Fit every shipped model to the public profiles; write coefficients, error table and pictures.

Usage: python fit/fit.py DATA      DATA holds `profiles/`, as published.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import report

from rota.errors import RotaError
from rota.perf import profiles
from rota.perf.allreduce import fit_allreduce
from rota.perf.arena import arena_features, arena_names, arena_record, fit_arena
from rota.perf.colocation import fit_load, fit_memory, pair_table
from rota.perf.goodput import fit_noise
from rota.perf.hetero import PLACES, TYPICAL, fit_gains, job_name
from rota.perf.ps import fit_ps, ps_record
from rota.perf.sharing import fit_ranks
from rota.perf.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.perf.profile_file import Profile

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "src" / "rota" / "perf" / "data"
BATCH = {"roberta-base": 32, "roberta-large": 32, "vit": 512}
"""Total batch with which Titan's models are usually fine-tuned; it is not part of the profile."""


def ps(data: Path) -> dict[str, Any]:
    """Parameter-server models."""
    rows = profiles.dl2(data, drop_failed=True)
    found = {}
    for name in profiles.DL2_MODELS:
        some = rows.of(model=name)
        batch = float(some["total_batch_size"][0])
        servers, workers = some["num_ps"], some["num_workers"]
        model = fit_ps(servers, workers, some["sum_worker_speed"], batch)
        found[name] = ps_record(model, (int(servers.max()), int(workers.max())))
    return found


def allreduce(data: Path) -> dict[str, Any]:
    """All-reduce models by GPU type."""
    runs = {"t4": profiles.pollux(data)}
    runs |= {gpu.lower(): profiles.titan(data, gpu) for gpu in profiles.TITAN_GPUS}
    learns = profiles.pollux_convergence(data)
    batch = {
        name: int(learns.of(application=name)["batch_size"].min())
        for name in profiles.POLLUX_MODELS
    } | BATCH
    return {
        gpu: {
            name: {
                **vars(fit_allreduce(steps)),
                "batch": batch[name],
                "most": int(steps.batch.max()),
                "nodes": int(steps.nodes.max()),
                "gpus": int(steps.gpus.max()),
            }
            for name, steps in models.items()
        }
        for gpu, models in runs.items()
    }


def goodput(data: Path) -> dict[str, Any]:
    """Gradient noise by tenth of training."""
    rows = profiles.pollux_convergence(data)
    found = {}
    for name in profiles.POLLUX_MODELS:
        runs = rows.of(application=name)
        sizes = runs["batch_size"]
        found[name] = {
            "batch": int(sizes.min()),
            "largest": int(sizes.max()),
            "samples": float(sizes.min() * runs.of(batch_size=int(sizes.min()))["progress"].max()),
            "noise": fit_noise(runs).tolist(),
        }
    return found


def gavel(data: Path) -> dict[str, Any]:
    """Solo speeds of Gavel's jobs."""
    rows = profiles.gavel_solo(data, drop_failed=True)
    tried = profiles.gavel_solo(data, keep_failed=True)
    found: dict[str, Any] = {}
    for gpu in profiles.GAVEL_GPUS:
        jobs: dict[str, Any] = {}
        for family, batch in _jobs(rows):
            job = tried.of(gpu=gpu, job_type=family, batch_size=batch, consolidated=1)
            failed = job["num_gpus"][job["steps_per_s"] == 0]
            jobs[job_name(family, batch)] = {
                "one": float(job.of(num_gpus=1)["steps_per_s"][0]),
                "batch": int(batch or 1),
                **({"most": int(failed.min()) - 1} if len(failed) else {}),
            }
        gains = {
            family: law
            for family in profiles.GAVEL_FAMILIES
            if (law := fit_gains(rows.of(gpu=gpu, job_type=family)))
        }
        gains[TYPICAL] = _typical_gains(gains, jobs)
        found[gpu] = {"jobs": jobs, "gains": gains}
    return found


def _typical_gains(
    gains: Mapping[str, Mapping[str, list[list[float]]]], jobs: Mapping[str, Any]
) -> dict[str, list[list[float]]]:
    """The median gain over all jobs that have one, whatever the batch."""
    typical: dict[str, list[list[float]]] = {}
    for place in PLACES:
        each = [
            [level + slope * np.log2(job["batch"]) for level, slope in gains[family][place]]
            for name, job in jobs.items()
            if (family := name.split(" (")[0]) in gains
        ]
        typical[place] = [[float(level), 0.0] for level in np.median(each, axis=0)]
    return typical


def _jobs(rows: Profile) -> list[tuple[str, str]]:
    pairs = zip(rows["job_type"].tolist(), rows["batch_size"].tolist(), strict=True)
    return sorted(set(pairs), key=lambda job: (job[0], int(job[1] or 0)))


def colocation(data: Path) -> dict[str, Any]:
    """Gavel's pairs on one GPU."""
    solo, pairs = profiles.gavel_solo(data, drop_failed=True), profiles.gavel_pairs(data)
    found: dict[str, Any] = {}
    for gpu in profiles.GAVEL_GPUS:
        names, ratio = pair_table(pairs, solo, gpu)
        known = ratio > 0
        hurt, harm = fit_ranks(np.where(known, 1 - ratio, 0.0), known)
        memory, load = fit_memory(ratio), fit_load(ratio)
        found[gpu] = {
            name: {
                "hurt": float(hurt[k]),
                "harm": float(harm[k]),
                "memory": float(memory[k]),
                "load": float(load[k]),
            }
            for k, name in enumerate(names)
        }
    return found


def arena(data: Path) -> dict[str, Any]:
    """Large models."""
    rows = profiles.arena(data)
    jobs = sorted(set(arena_names(rows)))
    theta = fit_arena(arena_features(rows, jobs), rows["global_batch_size"] / rows["iter_s"])
    return arena_record(rows, jobs, theta)


def deepshare(data: Path) -> dict[str, Any]:
    """DeepShare's isolated speeds and its contention."""
    alone = profiles.deepshare_isolated(data)
    alone = alone.where(alone["num_nodes"] <= 4)  # (8, 8) was computed, not run
    hurt, harm = fit_ranks(1 - profiles.deepshare_ratios(data))
    found: dict[str, Any] = {}
    sizes = profiles.DEEPSHARE_MEASURED
    for c, name in enumerate(profiles.DEEPSHARE_MODELS):
        rows = alone.of(model=name)
        A = np.stack(
            [np.ones(len(rows)), np.log(rows["num_gpus"]), np.log(rows["num_nodes"])], axis=1
        )
        one, by_gpus, by_nodes = np.linalg.lstsq(A, np.log(rows["samples_per_s"]), rcond=None)[0]
        found[name] = {
            "one": float(np.exp(one)),
            "by_gpus": float(by_gpus),
            "by_nodes": float(by_nodes),
            "kinds": [
                [*size, float(hurt[c * len(sizes) + k]), float(harm[c * len(sizes) + k])]
                for k, size in enumerate(sizes)
            ],
        }
    return found


FITS = {
    "ps": ps, "allreduce": allreduce, "goodput": goodput, "gavel": gavel,
    "colocation": colocation, "arena": arena, "deepshare": deepshare,
}  # fmt: skip


def write(name: str, found: Mapping[str, Any]) -> None:
    """One line per model, six digits: small, and readable in a diff."""
    (OUT / f"{name}.json").write_text(_lines(found, "") + "\n", encoding="utf-8")


def _lines(value: Mapping[str, Any], indent: str) -> str:
    parts = []
    for key, inner in value.items():
        nested = isinstance(inner, dict) and all(isinstance(v, dict) for v in inner.values())
        text = _lines(inner, f"{indent} ") if nested else _short(inner)
        parts.append(f"{indent} {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_short(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value)


def main(data: Path) -> None:
    """Fit and write."""
    for name, fit in FITS.items():
        write(name, fit(data))
        print(f"fitted {name}")
    shipped.cache_clear()
    report.write_table(data, ROOT / "docs" / "speed.md")
    report.draw(data, ROOT / "docs" / "img")
    print("wrote docs/speed.md and docs/img")


if __name__ == "__main__":
    try:
        if len(sys.argv) != 2:
            sys.exit("error: name the folder that holds `profiles/`: make fit ROTA_DATA=DIR")
        main(Path(sys.argv[1]))
    except RotaError as error:
        sys.exit(f"error: {error}")
