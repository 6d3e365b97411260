"""What policies are told of jobs whose workers must be apart."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from tests.backends.fake_cluster import FakeCluster

from rota.backends.cluster_backend import ClusterBackend
from rota.backends.driver import JobRequest, NodeSight
from rota.backends.job_book import JobBook
from rota.backends.node_table import NodeTable
from rota.backends.packed_needs import packed_needs
from rota.policies.catalogue import make_policy
from rota.run.guard import Guard
from rota.run.loop import rounds
from rota.run.speeds import Speeds

if TYPE_CHECKING:
    from pathlib import Path

NODES = [
    NodeSight(name=f"n{k}", gpus=4, cpus=32.0, memory_gb=64.0, gpu_type="ab"[k % 2])
    for k in range(4)
]


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        ({"memory_gb_per_worker": 60.0}, (0.0, 16.0)),  # 4 workers go on one node
        ({"memory_gb_per_worker": 10.0}, (0.0, 10.0)),
        ({"memory_gb_per_worker": 60.0, "gpus_per_worker": 2}, (0.0, 32.0)),
        ({"memory_gb_per_worker": 60.0, "gpus_per_worker": 4}, (0.0, 60.0)),
        ({"memory_gb_per_worker": 60.0, "workers": 2, "max_workers": 2}, (0.0, 32.0)),
        ({"memory_gb_per_worker": 60.0, "workers": 1, "max_workers": 1}, (0.0, 60.0)),
        ({"memory_gb_per_worker": 60.0, "apart": False}, (0.0, 60.0)),
        ({"cpus_per_worker": 20.0, "gpu_type": "b"}, (8.0, 0.0)),
        ({"cpus_per_worker": 20.0, "gpus_per_worker": 0}, (8.0, 0.0)),
        ({"memory_gb_per_worker": 65.0}, (0.0, 65.0)),  # fits nowhere, and that shall be seen
        ({"memory_gb_per_worker": inf}, (0.0, inf)),
    ],
)
def test_a_node_has_room_for_as_many_workers_as_its_gpus_serve(
    asks: dict[str, Any], expected: tuple[float, float]
) -> None:
    nodes = NodeTable(())
    nodes.see(NODES)
    assert nodes.cluster is not None
    request = JobRequest(**{"workers": 4, "max_workers": 4, "gpus_per_worker": 1, "apart": True,
                            **asks})  # fmt: skip
    assert packed_needs(request, nodes.cluster) == expected


@pytest.mark.parametrize("policy", ["srtf", "fifo", "hull-greedy"])
def test_jobs_that_fill_the_memory_of_several_nodes_start(tmp_path: Path, policy: str) -> None:
    cluster = FakeCluster(NODES)
    asks = {"workers": 3, "min_workers": 3, "max_workers": 3, "gpus_per_worker": 1, "apart": True}
    for name in ("j1", "j2"):
        cluster.submit(name, 0.05, memory_gb_per_worker=60.0, estimate_s=1.0, **asks)
    book = JobBook(tmp_path / "journal.db", 1000.0)
    backend = ClusterBackend(
        cluster, book, Speeds(tmp_path / "speeds.npz"), look_s=0.02, every_s=0.1, drain=True
    )
    guard = Guard(fallback=None)
    for turn in rounds(make_policy(policy), backend, guard=guard):
        assert turn.trouble == "", turn.trouble
    starts = [place for action, _, place in cluster.done if action == "start"]
    assert [sorted(workers for _, workers, _ in place) for place in starts] == [[1, 1, 1]] * 2
    backend.close()
    book.close()
