"""Cluster files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rota.cli.app import run
from rota.errors import ConfigError
from rota.traces.clusterfile import load_cluster, with_more_nodes

if TYPE_CHECKING:
    from pathlib import Path

MIXED = """
[[node]]
name = "a"
count = 3
gpus = 8
gpu_type = "v100"
cpus = 96
memory_gb = 512
rack = 4
price_per_gpu_h = 2.5

[[node]]
name = "old"
gpus = 4
link_gbps = 25

[[node]]
count = 5
gpus = 2
per_rack = 2
"""


def written(folder: Path, text: str, name: str = "cluster.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_kinds_of_nodes_are_repeated_and_numbered(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, MIXED))
    assert cluster.names[:5] == ("a-0", "a-1", "a-2", "old", "node-4")
    assert cluster.gpus.tolist() == [8, 8, 8, 4, 2, 2, 2, 2, 2]
    assert [cluster.gpu_types[code] for code in cluster.type] == ["v100"] * 3 + ["gpu"] * 6
    # Rack 4 as said, the next free one for those that say nothing, then two to a rack.
    assert cluster.rack.tolist() == [4, 4, 4, 5, 6, 6, 7, 7, 8]
    assert cluster.cpus.tolist() == [96] * 3 + [np.inf] * 6
    assert cluster.link_gbps.tolist() == [100] * 3 + [25] + [100] * 5
    assert cluster.price_per_gpu_h.tolist() == [2.5] * 3 + [0] * 6


def test_a_list_of_nodes_as_csv(tmp_path: Path) -> None:
    rows = "".join(f"n{k},{8 - 4 * (k == 1)},{'a100' if k else ''},\n" for k in range(18))
    cluster = load_cluster(written(tmp_path, f"name, gpus, gpu_type, cpus\n{rows}\n", "nodes.csv"))
    assert len(cluster) == 18
    assert cluster.gpus[:3].tolist() == [8, 4, 8]
    assert cluster.gpu_types == ("gpu", "a100")
    assert cluster.rack.tolist() == [0] * 16 + [1] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[node]]\ngpu = 8", "node entry 1: There is no key 'gpu'. Did you mean 'gpus'?"),
        ("[[nodes]]\ngpus = 8", "There is no key 'nodes'. Did you mean 'node'?"),
        (
            "[[node]]\ngpus = 8\n[[node]]\ngpus = 65537",
            "node entry 2: gpus = 65537 must be a whole",
        ),
        ("[[node]]\ngpus = 8.0", "gpus = 8.0 must be a whole number from 0 to 65536"),
        ("[[node]]\ngpus = true", "gpus = True must be"),
        ("[[node]]\ngpus = 8\ncount = 0", "count = 0 must be"),
        ("[[node]]\ngpus = 8\ncpus = -1", "cpus = -1 must be a number of 0 or more"),
        ("[[node]]\ngpus = 8\nmemory_gb = nan", "memory_gb = nan must be"),
        ("[[node]]\ngpus = 8\nname = ''", "name = '' must be a text"),
        ("[[node]]\ngpus = 8\ngpu_type = 5", "gpu_type = 5 must be a text"),
        ("[[node]]\ncount = 2", "node entry 1: The number of GPUs is missing"),
        ("[[node]]\ngpus = 8\nrack = 1\nper_rack = 4", "Give rack or per_rack, not both"),
        ("[[node]]\ngpus = 1\nname = 'x'\n[[node]]\ngpus = 1\nname = 'x'", "node 'x' is there"),
        ("[node]\ngpus = 8", "double brackets"),
        ("", "at least one node"),
        ("[[node]\n", "no valid TOML"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_cluster(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,gpus\na,8,3\n", "line 2: 3 fields, but the header names 2"),
        ("name,gpus\na,eight\n", "line 2: gpus = 'eight' must be a whole number"),
        ("name,rack\na,1\n", "'gpus' among them"),
        ("name,gpus,colour\na,8,red\n", "line 2: There is no key 'colour'"),
        ("name,gpus\na,8\na,8\n", "line 3: A node 'a' is there already (line 2)"),
    ],
)
def test_a_broken_csv_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_cluster(written(tmp_path, text, "nodes.csv"))
    assert message in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_cluster(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_cluster(tmp_path)


def test_nodes_are_added_like_most_there_are(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, MIXED.replace("count = 5", "count = 2")))
    more = with_more_nodes(cluster, 2)
    assert more.gpus.tolist() == [8, 8, 8, 4, 2, 2, 8, 8]
    assert more.names[-2:] == ("added-0", "added-1")
    assert more.cpus[-1] == 96
    assert more.rack[-1] == cluster.rack.max() + 1
    assert with_more_nodes(cluster, 1, "gpu").gpus[-1] == 2
    assert with_more_nodes(with_more_nodes(cluster, 1), 1).names[-2:] == ("added-0", "added-1")
    with pytest.raises(ConfigError, match="no node with GPU type 'h100'"):
        with_more_nodes(cluster, 1, "h100")


def test_the_simulator_uses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MIXED)
    assert run(["simulate", "poisson:jobs=20", "-p", "fifo", "--cluster", str(path)]) == 0
    assert "on 9 nodes × 2–8 GPUs" in capsys.readouterr().out
