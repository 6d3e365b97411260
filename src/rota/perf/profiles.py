"""Read public measurements of training speed, and refuse what cannot be one.

Each profile is a folder of small CSV files below `profiles/` of a data folder. Two ship with rota
(`rota.perf.measured`) and need no folder: the scenarios that repeat published work read them. The
others serve fitting and tests; everything else runs on coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import InputError, UnknownNameError
from rota.perf import measured
from rota.perf.profile_file import ProfileColumn, read_profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.core.types import Bools, Floats, Ints
    from rota.perf.profile_file import Profile

DL2_MODELS: Final = (
    "resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text-classification",
    "dssm", "wlm",
)  # fmt: skip
POLLUX_MODELS: Final = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
TITAN_MODELS: Final = ("roberta-base", "roberta-large", "vit")
TITAN_GPUS: Final = ("A100", "V100")
GAVEL_GPUS: Final = ("k80", "p100", "v100")
GAVEL_FAMILIES: Final = (
    "A3C", "CycleGAN", "LM", "Recommendation", "ResNet-18", "ResNet-50", "Transformer",
)  # fmt: skip
ARENA_GPUS: Final = ("a100", "a40", "a10", "v100")
ARENA_FAMILIES: Final = ("bert", "moe", "wide_resnet")
DEEPSHARE_MODELS: Final = ("MobileNetV3", "GraphSage", "FSDP", "Transformer-XL", "DLRM", "MoE")
DEEPSHARE_MEASURED: Final = ((2, 2), (4, 2), (4, 4), (8, 2), (8, 4))
"""(GPUs, nodes) that were run; the file's (8, 8) is computed from two of them."""

_SOURCES: Final = {
    "dl2_ps_worker": "config_speed.txt of github.com/pengyanghua/DL2",
    "pollux_t4": "simulator/traces of github.com/petuum/adaptdl, branch osdi21-artifact",
    "titan_fm": "client/application/appinfo/fminfo of github.com/gaow0007/TitanSched",
    "gavel": "scheduler/*_throughputs.json of github.com/stanford-futuredata/gavel",
    "arena_large_models": "database of github.com/sjtu-epcc/arena, branch ae-eurosys",
    "deepshare": "scheduler/jobs of github.com/gajagajago/deepshare",
}


def _file(data: Path, profile: str, name: str) -> Path:
    path = Path(data) / "profiles" / profile / name
    if not path.is_file():
        raise InputError(
            f"The measurements in {path} are missing. They are public: {_SOURCES[profile]}. "
            "Name the folder that holds `profiles/` with --data DIR."
        )
    return path


def _without_failed(profile: Profile, column: str, drop_failed: bool) -> Profile:
    """A speed of 0 is a run that failed, not one that was slow."""
    failed = profile[column] == 0
    if failed.any() and not drop_failed:
        line = int(profile.line[failed][0])
        raise InputError(
            f"{profile.file}, row {line}, column {column!r}: a speed of 0 means that the run "
            f"failed ({int(failed.sum())} such rows); leave them out with drop_failed=True."
        )
    return profile.where(~failed) if drop_failed else profile


def dl2(
    data: Path | None = None, *, drop_failed: bool = False, keep_failed: bool = False
) -> Profile:
    """Samples/s of eight models by parameter servers and workers, synchronous, one total batch.

    `keep_failed` gives the file as it is: the published simulator took failed runs for speed 0.
    """
    profile = measured.dl2_speeds() if data is None else _dl2_file(data)
    profile.refuse_twins("model", "num_ps", "num_workers")
    if keep_failed:
        return profile
    return _without_failed(profile, "sum_worker_speed", drop_failed)


def _dl2_file(data: Path) -> Profile:
    return read_profile(
        _file(data, "dl2_ps_worker", "dl2_ps_worker_speed.csv.gz"),
        {
            "model": ProfileColumn("text", DL2_MODELS),
            "total_batch_size": ProfileColumn("count"),
            "num_ps": ProfileColumn("count"),
            "num_workers": ProfileColumn("count"),
            "sum_worker_speed": ProfileColumn("rate"),
        },
    )


@dataclass(frozen=True)
class Steps:
    """Step times of one model on one GPU type, (R,) each."""

    nodes: Ints
    gpus: Ints
    batch: Ints  # per GPU
    step_s: Floats

    def where(self, rows: Bools) -> Steps:
        """Some of the rows."""
        return Steps(self.nodes[rows], self.gpus[rows], self.batch[rows], self.step_s[rows])


def pollux(data: Path) -> dict[str, Steps]:
    """Step times of six applications on T4s."""
    return _steps(data, "pollux_t4", "application", {"application": POLLUX_MODELS})


def titan(data: Path, gpu: str) -> dict[str, Steps]:
    """Step times of three foundation models on A100s or V100s."""
    if gpu not in TITAN_GPUS:
        raise UnknownNameError("GPU type of this profile", gpu, TITAN_GPUS)
    known = {"gpu": TITAN_GPUS, "model": TITAN_MODELS}
    return _steps(data, "titan_fm", "model", known, gpu)


def _steps(
    data: Path, profile: str, model: str, known: Mapping[str, Sequence[str]], gpu: str = ""
) -> dict[str, Steps]:
    texts = {name: ProfileColumn("text", names) for name, names in known.items()}
    measured = {"local_bsz": ProfileColumn("count"), "step_time": ProfileColumn("time")}
    placed = read_profile(
        _file(data, profile, "placements.csv.gz"),
        {**texts, "placement": ProfileColumn("text"), **measured},
    )
    scaled = read_profile(
        _file(data, profile, "scalability.csv.gz"),
        {
            **texts,
            "num_nodes": ProfileColumn("count"),
            "num_replicas": ProfileColumn("count"),
            **measured,
        },
    )
    for line, text in zip(placed.line, placed["placement"], strict=True):
        if not text.isdecimal() or "0" in text:
            raise InputError(
                f"{placed.file}, row {line}, column 'placement': '{text}' must be the GPUs per "
                "node as digits, such as 211."
            )
    steps = {}
    for name in known[model]:
        only = {model: name} | ({"gpu": gpu} if gpu else {})
        a, b = placed.some(**only), scaled.of(**only)
        spread = [[int(digit) for digit in text] for text in a["placement"]]
        steps[name] = Steps(
            nodes=np.array([*map(len, spread), *b["num_nodes"]], np.int64),
            gpus=np.array([*map(sum, spread), *b["num_replicas"]], np.int64),
            batch=np.array([*a["local_bsz"], *b["local_bsz"]], np.int64),
            step_s=np.array([*a["step_time"], *b["step_time"]], np.float64),
        )
    return steps


def pollux_convergence(data: Path) -> Profile:
    """Gradient noise and progress of the six applications, one row an epoch and batch size."""
    return read_profile(
        _file(data, "pollux_t4", "convergence.csv.gz"),
        {
            "application": ProfileColumn("text", POLLUX_MODELS),
            "batch_size": ProfileColumn("count"),
            "progress": ProfileColumn("time"),
            "iteration": ProfileColumn("count"),
            "grad_sqr": ProfileColumn("real"),
            "grad_var": ProfileColumn("real"),
        },
    )


def gavel_solo(data: Path, *, drop_failed: bool = False, keep_failed: bool = False) -> Profile:
    """Steps/s of each job type alone on 1 to 8 GPUs, on one server or spread.

    `keep_failed` keeps the rows of speed 0: there the job does not fit.
    """
    profile = read_profile(
        _file(data, "gavel", "solo_throughput.csv.gz"),
        {
            "table": ProfileColumn("text"),
            "gpu": ProfileColumn("text", GAVEL_GPUS),
            "consolidated": ProfileColumn("flag"),
            "job_type": ProfileColumn("text", GAVEL_FAMILIES),
            "batch_size": ProfileColumn("text", blank=True),
            "num_gpus": ProfileColumn("count"),
            "steps_per_s": ProfileColumn("rate"),
        },
    )
    profile = profile.some(table="gavel_sim")
    return profile if keep_failed else _without_failed(profile, "steps_per_s", drop_failed)


def gavel_pairs(data: Path) -> Profile:
    """Steps/s of two job types that share GPUs; 0 means that they cannot."""
    return read_profile(
        _file(data, "gavel", "pair_throughput.csv.gz"),
        {
            "gpu": ProfileColumn("text", GAVEL_GPUS),
            "job_type_a": ProfileColumn("text"),
            "num_gpus_a": ProfileColumn("count"),
            "job_type_b": ProfileColumn("text"),
            "num_gpus_b": ProfileColumn("count"),
            "steps_per_s_a": ProfileColumn("rate"),
            "steps_per_s_b": ProfileColumn("rate"),
        },
    )


def arena(data: Path) -> Profile:
    """Iteration times of large models under their best parallelism."""
    return read_profile(
        _file(data, "arena_large_models", "optimal_iteration_time.csv"),
        {
            "model": ProfileColumn("text", ARENA_FAMILIES),
            "params": ProfileColumn("text"),
            "global_batch_size": ProfileColumn("count"),
            "gpu": ProfileColumn("text", ARENA_GPUS),
            "num_nodes": ProfileColumn("count"),
            "num_gpus": ProfileColumn("count"),
            "iter_s": ProfileColumn("time"),
        },
    )


def deepshare_isolated(data: Path | None = None) -> Profile:
    """Samples/s of six distributed jobs alone, by GPUs and nodes."""
    if data is None:
        return measured.deepshare_speeds()
    profile = read_profile(
        _file(data, "deepshare", "isolated_throughput.csv"),
        {
            "model": ProfileColumn("text", DEEPSHARE_MODELS),
            "num_gpus": ProfileColumn("count"),
            "num_nodes": ProfileColumn("count"),
            "samples_per_s": ProfileColumn("rate"),
        },
    )
    return _without_failed(profile, "samples_per_s", drop_failed=False)


def deepshare_samples(data: Path | None = None) -> Profile:
    """Samples in a whole job of each model and size."""
    if data is None:
        return measured.deepshare_samples()
    return read_profile(
        _file(data, "deepshare", "total_samples.csv"),
        {
            "model": ProfileColumn("text", DEEPSHARE_MODELS),
            "num_gpus": ProfileColumn("count"),
            "total_samples": ProfileColumn("time"),
        },
    )


def deepshare_ratios(data: Path | None = None) -> Floats:
    """What is left of a row's speed beside a column's job, (30, 30), measured pairs only.

    Kinds are ordered by model, then as in DEEPSHARE_MEASURED.
    """
    profile = measured.deepshare_pairs() if data is None else _pairs_file(data)
    place = {
        (model, *size): k
        for k, (model, size) in enumerate(
            (model, size) for model in DEEPSHARE_MODELS for size in DEEPSHARE_MEASURED
        )
    }
    ratio = np.full((len(place), len(place)), np.nan)
    for k in range(len(profile)):
        a, b = (
            place.get((
                str(profile[f"model_{who}"][k]),
                int(profile[f"num_gpus_{who}"][k]),
                int(profile[f"num_nodes_{who}"][k]),
            ))
            for who in "ab"
        )  # fmt: skip
        if a is not None and b is not None:
            ratio[a, b] = profile["ratio_a"][k]
    gaps = np.argwhere(np.isnan(ratio))
    if len(gaps):
        kinds = list(place)
        row, column = (kinds[int(i)] for i in gaps[0])
        raise InputError(f"{profile.file}: no row for {row} beside {column}; is the file complete?")
    return ratio


def _pairs_file(data: Path) -> Profile:
    side = {
        f"{what}_{who}": ProfileColumn("text" if what == "model" else "count",
                                DEEPSHARE_MODELS if what == "model" else ())
        for who in "ab" for what in ("model", "num_gpus", "num_nodes")
    }  # fmt: skip
    path = _file(data, "deepshare", "contention_ratio.csv.gz")
    return read_profile(path, {**side, "ratio_a": ProfileColumn("share")})


def missing_row(file: str, model: str, gpus: int, nodes: int, found: int) -> InputError:
    """The error for a placement that must stand in the file once."""
    return InputError(
        f"{file}: {found or 'no'} rows for {model!r} with {gpus} GPUs on {nodes} nodes; "
        "there must be one."
    )
