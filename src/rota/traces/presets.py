"""Named workloads: three fitted to public traces, three simple ones for teaching and tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import ConfigError, UnknownNameError
from rota.traces import calibrated
from rota.traces.clusterfile import build_cluster
from rota.traces.distributions import Bursts, Exponential, Lognormals
from rota.traces.log_cluster import USUAL_GPUS
from rota.traces.synthetic import Rhythm, Workload

if TYPE_CHECKING:
    from rota.core.cluster import Cluster


@dataclass(frozen=True)
class Preset:
    """A workload with a name that users can type."""

    about: str
    workload: Workload
    usual_load: float
    """Load on the reference cluster, kept when `total_gpus` is changed and `load` is not given."""
    nodes: tuple[tuple[int, int, str], ...] = ()
    """The cluster it was recorded on: nodes, GPUs of each, their type; empty: it has none."""
    cluster_source: str = ""
    """That cluster in words, and where it is published."""


# The public traces do not say what was trained: names as in Gavel's profiles, shares invented.
_MODELS: Final = tuple(
    (name, 1.0)
    for name in ("ResNet-18", "ResNet-50", "Transformer", "LM", "Recommendation", "CycleGAN", "A3C")
)
_WORKDAY: Final = Rhythm(
    hours=(*(0.4,) * 8, 1.0, *(1.8,) * 10, 1.4, 1.2, 1.0, 0.8, 0.6),
    days=(1.1, 1.1, 1.1, 1.1, 1.1, 0.75, 0.75),
)
_HEAVY: Final = Lognormals((0.7, 0.3), (300.0, 7200.0), (1.2, 1.0), cap=172800.0)
"""Many short trials and some long trainings: mean about 1 h, at most two days."""


def _simple(name: str, gaps: Exponential | Bursts, rhythm: Rhythm | None = None) -> Workload:
    return Workload(
        name=name,
        jobs=1000,
        total_gpus=64,
        load=0.7,
        users=10,
        gaps=gaps,
        rhythm=rhythm or Rhythm(),
        durations=((np.inf, _HEAVY),),
        models=_MODELS,
    )


PRESETS: Final = {
    "philly": Preset(
        "Microsoft Philly 2017 (11 virtual clusters): mostly 1-GPU jobs, very long tail",
        Workload(
            name="philly",
            jobs=10_000,
            total_gpus=352 * 8,
            users=100,
            gaps=calibrated.PHILLY_GAPS,
            rhythm=calibrated.PHILLY_RHYTHM,
            sizes=calibrated.PHILLY_SIZES,
            durations=calibrated.PHILLY_DURATIONS,
            models=_MODELS,
        ),
        usual_load=0.11,
        nodes=((352, 8, "gpu"),),
        cluster_source="352 nodes × 8 GPUs, the 11 virtual clusters (Hu et al., SC 2021)",
    ),
    "venus": Preset(
        "SenseTime Helios, cluster Venus 2020: half 1-GPU, a quarter 8-GPU, gangs up to 200",
        Workload(
            name="venus",
            jobs=10_000,
            total_gpus=133 * 8,
            users=100,
            gaps=calibrated.VENUS_GAPS,
            rhythm=calibrated.VENUS_RHYTHM,
            sizes=calibrated.VENUS_SIZES,
            durations=calibrated.VENUS_DURATIONS,
            models=_MODELS,
        ),
        usual_load=0.47,
        nodes=((133, 8, "gpu"),),
        cluster_source="133 nodes × 8 GPUs, Venus from July 2020 on (HeliosData)",
    ),
    "pai": Preset(
        "Alibaba PAI 2020 (a sample of its tasks): small jobs and wide gangs of cheap workers",
        Workload(
            name="pai",
            jobs=10_000,
            total_gpus=6742,
            users=100,
            gaps=calibrated.PAI_GAPS,
            rhythm=calibrated.PAI_RHYTHM,
            sizes=calibrated.PAI_SIZES,
            durations=calibrated.PAI_DURATIONS,
            models=_MODELS,
        ),
        usual_load=0.06,
        nodes=(
            (280, 8, "misc"),
            (798, 2, "p100"),
            (497, 2, "t4"),
            (104, 8, "v100"),
            (135, 8, "v100m32"),
        ),
        cluster_source="1,814 nodes of 2 or 8 GPUs, its machine list (alibaba/clusterdata 2020)",
    ),
    "poisson": Preset(
        "independent arrivals, heavy-tailed durations, gangs of 1-8",
        _simple("poisson", Exponential(60.0)),
        usual_load=0.7,
    ),
    "bursty": Preset(
        "as poisson, but jobs come in bursts of 20, as sweeps do",
        _simple("bursty", Bursts(jobs=20.0, within=1.0, between=1200.0)),
        usual_load=0.7,
    ),
    "diurnal": Preset(
        "as poisson, but busy by day and quiet by night and at weekends",
        _simple("diurnal", Exponential(60.0), _WORKDAY),
        usual_load=0.7,
    ),
}

SETTINGS: Final = {"jobs": int, "total_gpus": int, "load": float, "users": int}
"""What may follow a preset's name, as in `venus:jobs=5000,load=0.9`."""


def preset(name: str, settings: str = "") -> Workload:
    """Look up a preset and apply settings such as `jobs=5000,load=0.9`."""
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    chosen = PRESETS[name]
    wanted: dict[str, int | float] = {}
    for item in filter(None, settings.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if key == "gpus":
            raise ConfigError(f"{name}: write total_gpus={value}, the GPUs of the whole cluster.")
        if key not in SETTINGS:
            raise UnknownNameError(f"setting of preset {name!r}", key, SETTINGS)
        if key in wanted:
            raise ConfigError(f"{name}: {key} is set twice.")
        try:
            wanted[key] = SETTINGS[key](value)
        except ValueError:
            need = "a whole number" if SETTINGS[key] is int else "a number"
            raise ConfigError(
                f"{name}: {key}{equals}{value} needs {need}, as in '{name}:jobs=5000,load=0.9'."
            ) from None
    if "total_gpus" in wanted and "load" not in wanted:
        wanted["load"] = chosen.usual_load
    return replace(chosen.workload, **wanted)  # type: ignore[arg-type]


def preset_cluster(source: str) -> tuple[Cluster, str] | None:
    """The cluster that a preset such as `venus:jobs=5000` comes with, in words as well.

    None if it has none. With other `total_gpus` it is made of nodes with 8 GPUs each.
    """
    name, _, settings = source.partition(":")
    if name not in PRESETS or not PRESETS[name].nodes:
        return None
    chosen, total = PRESETS[name], preset(name, settings).total_gpus
    if total == chosen.workload.total_gpus:
        entries = [
            ("", {"count": count, "gpus": gpus, "gpu_type": kind})
            for count, gpus, kind in chosen.nodes
        ]
        return build_cluster(name, entries), chosen.cluster_source
    whole, rest = divmod(total, USUAL_GPUS)
    sizes = [USUAL_GPUS] * whole + [rest] * (rest > 0)
    cluster = build_cluster(name, [("", {"gpus": size}) for size in sizes])
    return cluster, f"{cluster.describe()}, as total_gpus={total} asks"
