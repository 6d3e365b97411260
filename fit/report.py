"""The table of errors and the pictures of docs/speed.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pictures import Panel, save

from rota.perf import profiles, quality
from rota.perf.allreduce import allreduce_model
from rota.perf.arena import arena_curves, arena_names
from rota.perf.colocation import pair_speed, pair_table
from rota.perf.goodput import efficiency
from rota.perf.hetero import gavel_curves, job_name
from rota.perf.ps import ps_model
from rota.perf.sharing import deepshare_curves
from rota.perf.shipped import shipped

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.types import Floats
    from rota.perf.profiles import Steps

BEGIN, END = "<!-- errors: written by make fit -->", "<!-- end of errors -->"


def runs(data: Path) -> dict[str, dict[str, Steps]]:
    """Step times by GPU type and model."""
    titan = {gpu.lower(): profiles.titan(data, gpu) for gpu in profiles.TITAN_GPUS}
    return {"t4": profiles.pollux(data), **titan}


def ranks() -> Floats:
    """The fitted ratios of DeepShare's kinds, (30, 30)."""
    kinds = [kind for model in shipped("deepshare").values() for kind in model["kinds"]]
    hurt, harm = (np.array([kind[k] for kind in kinds]) for k in (2, 3))
    return 1 - np.outer(hurt, harm)


def table(data: Path) -> str:
    """All errors, in Markdown."""
    lines = [
        "| model | what is held out | rows | median error | 90 % below |",
        "|---|---|---|---|---|",
    ]

    def row(name: str, out: str, errors: Floats) -> None:
        middle, high = np.quantile(errors, [0.5, 0.9])
        lines.append(f"| {name} | {out} | {len(errors)} | {middle:.1%} | {high:.1%} |")

    for name, errors in quality.ps_errors(data).items():
        row(f"servers: {name}", "a (servers, workers)", errors)
    for gpu, models in runs(data).items():
        for name, steps in models.items():
            row(f"all-reduce: {name}, {gpu}", "a (nodes, GPUs)", quality.allreduce_errors(steps))
    for name, errors in quality.efficiency_errors(data).items():
        row(f"efficiency: {name}", "progress, not used by the fit", errors)
    for gpu in profiles.GAVEL_GPUS:
        row(f"Gavel: {gpu}, 2–8 GPUs", "a row", quality.gavel_errors(data, gpu))
    row("Arena", "a row", quality.arena_errors(data))
    row("DeepShare, alone", "nothing", deepshare_alone(data))
    lines += ["", "| model of pairs | pairs | R² | median distance |", "|---|---|---|---|"]
    for name, fitted, measured in pairs(data):
        off = np.median(np.abs(fitted - measured))
        r2 = quality.explained(fitted, measured)
        lines.append(f"| {name} | {len(measured)} | {r2:.2f} | {off:.3f} |")
    return "\n".join(lines)


def deepshare_alone(data: Path) -> Floats:
    """Errors of the power law at the placements it was fitted to."""
    measured, fitted = alone(data)
    return quality.relative_error(fitted, measured)


def alone(data: Path) -> tuple[Floats, Floats]:
    """Measured and fitted isolated speeds, (30,)."""
    rows = profiles.deepshare_isolated(data)
    rows = rows.where(rows["num_nodes"] <= 4)
    curves = deepshare_curves()
    at = [curves.index(name) for name in rows["model"]]
    return rows["samples_per_s"], curves.speed[at, 0, rows["num_nodes"], rows["num_gpus"]]


def pairs(data: Path) -> list[tuple[str, Floats, Floats]]:
    """Name, fitted and measured ratios of each model of pairs; only pairs that can share."""
    ratio = profiles.deepshare_ratios(data)
    found = [("DeepShare, over the network", ranks().ravel(), ratio.ravel())]
    solo, both = profiles.gavel_solo(data, drop_failed=True), profiles.gavel_pairs(data)
    for gpu in profiles.GAVEL_GPUS:
        _, measured = pair_table(both, solo, gpu)
        _, fitted = pair_speed(gpu)
        some = (measured > 0) & (fitted > 0)
        found.append((f"Gavel, on one {gpu}", fitted[some], measured[some]))
    return found


def write_table(data: Path, page: Path) -> None:
    """Replace the table between the two marks of the page."""
    text = page.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    page.write_text(f"{head}{BEGIN}\n{table(data)}\n{END}{tail}", encoding="utf-8")


def draw(data: Path, folder: Path) -> None:
    """All pictures."""
    save(folder / "speed-servers.svg", "Speed by workers, measured and fitted", servers(data))
    save(folder / "speed-allreduce.svg", "Step time by GPUs", allreduce(data))
    save(folder / "speed-efficiency.svg", "Efficiency by batch size", learning(data), columns=3)
    save(folder / "speed-types.svg", "Fitted against measured speed", gpu_types(data))
    save(folder / "speed-contention.svg", "Fitted against measured ratios", contention(data))


def servers(data: Path) -> list[Panel]:
    """Speed by workers for a few numbers of servers."""
    panels = []
    for name in profiles.DL2_MODELS:
        rows = profiles.dl2(data, drop_failed=True).of(model=name)
        panel = Panel(name, "workers", "samples/s")
        ran = np.unique(rows["num_ps"])
        counts = sorted({int(ran[np.abs(ran - p).argmin()]) for p in (1, 4, 12)})
        panel.legend = [f"{p} server{'s' * (p > 1)}" for p in counts]
        for k, p in enumerate(counts):
            some = rows.of(num_ps=p)
            panel.dots.append((k, some["num_workers"], some["sum_worker_speed"]))
            w = np.arange(1, some["num_workers"].max() + 1)
            panel.lines.append((k, w, ps_model(name).speed(p, w)))
        panels.append(panel)
    return panels


def allreduce(data: Path) -> list[Panel]:
    """Step time by GPUs at the middle batch size, on one node and over several."""
    panels = []
    for gpu, models in runs(data).items():
        for name, steps in models.items():
            middle = np.sort(np.unique(steps.batch))[len(np.unique(steps.batch)) // 2]
            fit = allreduce_model(name, gpu)
            panel = Panel(f"{name}, {gpu}, {middle} a GPU", "GPUs", "s per step", log=True)
            panel.legend = ("one node", "several")
            for k, some in enumerate((steps.nodes == 1, steps.nodes > 1)):
                some = some & (steps.batch == middle)
                panel.dots.append((k, steps.gpus[some], steps.step_s[some]))
                r = np.unique(steps.gpus[some])
                panel.lines.append((k, r, fit.step_s(k + 1, r, middle)))
            panels.append(panel)
    return panels


def learning(data: Path) -> list[Panel]:
    """Efficiency by batch size, from gradient noise and as seen in progress."""
    rows = profiles.pollux_convergence(data)
    panels = []
    for name in profiles.POLLUX_MODELS:
        some = rows.of(application=name)
        sizes = np.unique(some["batch_size"])
        ends = [some.of(batch_size=int(size)) for size in sizes]
        gain = np.array([end["progress"][-1] / end["iteration"][-1] for end in ends])
        seen = gain * sizes[0] / sizes
        panel = Panel(name, "batch", "efficiency", log=True)
        panel.dots.append((0, sizes, seen))
        panel.lines.append((0, sizes, efficiency(name, sizes)))
        panels.append(panel)
    return panels


def against(title: str, measured: Floats, fitted: Floats, *, log: bool = True) -> Panel:
    """Fitted over measured; on the line they agree."""
    panel = Panel(title, "measured", "fitted", log)
    panel.dots.append((0, measured, fitted))
    ends = [float(measured.min()), float(measured.max())]
    panel.lines.append((1, ends, ends))
    return panel


def gpu_types(data: Path) -> list[Panel]:
    """Gavel by GPU type, and Arena."""
    panels = []
    curves = gavel_curves()
    rows = profiles.gavel_solo(data, drop_failed=True)
    for t, gpu in enumerate(curves.gpu_types):
        some = rows.of(gpu=gpu)
        names = [job_name(*job) for job in zip(some["job_type"], some["batch_size"], strict=True)]
        at = [curves.index(name) for name in names]
        spread = np.where((some["consolidated"] == 1) | (some["num_gpus"] == 1), 1, 2)
        fitted = curves.speed[at, t, spread, some["num_gpus"]]
        panels.append(against(f"Gavel, {gpu}, steps/s", some["steps_per_s"], fitted))
    rows, curves = profiles.arena(data), arena_curves()
    at = [curves.index(name) for name in arena_names(rows)]
    types = [curves.gpu_types.index(gpu) for gpu in rows["gpu"]]
    fitted = curves.speed[at, types, rows["num_nodes"], rows["num_gpus"]]
    speed = rows["global_batch_size"] / rows["iter_s"]
    return [*panels, against("Arena, samples/s", speed, fitted)]


def contention(data: Path) -> list[Panel]:
    """Ratios of pairs, and DeepShare's speeds alone."""
    measured, fitted = alone(data)
    return [
        against("DeepShare alone, samples/s", measured, fitted),
        *(against(name, seen, said, log=False) for name, said, seen in pairs(data)),
    ]
