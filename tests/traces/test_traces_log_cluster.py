"""What a log tells of its cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import Cluster
from rota.errors import ConfigError, InputError
from rota.traces import Trace
from rota.traces.log_cluster import cluster_of_log, gpu_type_use, missing_types, peak_gpus


def log(**columns: Any) -> Trace:
    """Four jobs: two a100 of 8 GPUs on 2 nodes each, one v100 of 3 on one node, one of any type."""
    given: dict[str, Any] = {
        "submit_s": [0, 0, 0, 0],
        "duration_s": [100, 100, 50, 10],
        "num_gpus": [8, 8, 3, 2],
        "gpu_type": ["a100", "a100", "v100", ""],
        "started_s": [0, 50, 10, 20],
        "ran_on_nodes": [2, 2, 1, np.nan],
    }
    return Trace.build("log", **{**given, **columns})


def shape(cluster: Cluster) -> list[tuple[str, int, int]]:
    names = [cluster.gpu_types[code] for code in cluster.type]
    rows = list(zip(names, cluster.gpus.tolist(), strict=True))
    return [(*row, rows.count(row)) for row in dict.fromkeys(rows)]


def test_types_are_listed_by_gpu_hours_with_what_the_log_says_of_them() -> None:
    rows = [
        (u.gpu_type, u.jobs, round(u.gpu_hours * 3600), u.largest, u.gpus_per_node, u.peak_gpus)
        for u in gpu_type_use(log())
    ]
    assert rows == [("a100", 2, 1600, 8, 4, 16), ("v100", 1, 150, 3, 3, 3), ("", 1, 20, 2, None, 2)]


def test_node_sizes_and_numbers_come_from_the_log() -> None:
    found = cluster_of_log(log())
    assert found is not None
    # 16 a100 in use at once on nodes of 4, 3 v100 on a node of 3: room for the fourth job, too.
    assert shape(found[0]) == [("a100", 4, 4), ("v100", 3, 1)]
    assert found[1].startswith("4 × 4 a100, 1 × 3 v100 (")


def test_jobs_of_any_type_get_room_as_well() -> None:
    found = cluster_of_log(log(num_gpus=[8, 8, 3, 40], started_s=[0, 50, 10, 60]))
    assert found is not None
    assert shape(found[0]) == [("a100", 4, 14), ("v100", 3, 1)]  # 16 + 40 GPUs at 60 s
    later = cluster_of_log(log(num_gpus=[8, 8, 3, 40], started_s=[0, 50, 10, np.nan]))
    assert later is not None
    assert later[0].total_gpus >= 40  # its start is not known, but it must fit


def test_options_replace_what_the_log_says() -> None:
    for options, wanted in (
        ({"nodes": 10}, [("a100", 4, 8), ("v100", 3, 2)]),
        ({"gpus": 8}, [("a100", 8, 2), ("v100", 8, 1)]),
        ({"nodes": 2, "gpus": 1}, [("a100", 1, 1), ("v100", 1, 1)]),
    ):
        found = cluster_of_log(log(), **options)
        assert found is not None
        assert shape(found[0]) == wanted
    with pytest.raises(ConfigError, match="2 types need at least 2 nodes, not 1"):
        cluster_of_log(log(), nodes=1)


def test_without_starts_the_number_of_nodes_must_be_given() -> None:
    bare = log(started_s=[np.nan] * 4, ran_on_nodes=[np.nan] * 4)
    with pytest.raises(InputError) as caught:
        cluster_of_log(bare)
    for said in ("'a100' (2 jobs", "'v100' (1 job,", "records no starts", "--ignore-gpu-types"):
        assert said in str(caught.value)
    found = cluster_of_log(bare, nodes=4)
    assert found is not None
    assert shape(found[0]) == [("a100", 8, 3), ("v100", 8, 1)]


def test_a_log_without_types_tells_of_no_cluster() -> None:
    assert cluster_of_log(log(gpu_type=[""] * 4)) is None
    assert cluster_of_log(log().without_gpu_types()) is None


def test_missing_types_are_named() -> None:
    said = missing_types(log(), Cluster.uniform(4, gpu_type="h100"))
    assert said is not None
    for part in ("'a100' (2 jobs, 0.4 GPU-hours)", "have 'h100'", "--ignore-gpu-types"):
        assert part in said
    found = cluster_of_log(log())
    assert found is not None
    assert missing_types(log(), found[0]) is None


spans = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(1, 9)), min_size=1)


@given(spans)
def test_peak_is_that_of_counting_every_second(jobs: list[tuple[int, int, int]]) -> None:
    start, length, gpus = zip(*jobs, strict=True)
    trace = Trace.build(
        "x", submit_s=[0] * len(jobs), duration_s=length, num_gpus=gpus, started_s=start
    )
    slow = max(sum(g for s, d, g in jobs if s <= now < s + d) for now in range(41))
    assert peak_gpus(trace, np.ones(len(jobs), np.bool_)) == slow
