"""What `rota run --backend slurm` and the commands beside it refuse, before any Slurm is asked."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from rota.backends.job_book import JobBook
from rota.cli.app import run

if TYPE_CHECKING:
    from pathlib import Path

SLURM = ("run", "--backend", "slurm", "--partition", "gpu")


@pytest.fixture
def slurm_state(tmp_path: Path) -> Path:
    """A state directory with the tables of a daemon beside a cluster."""
    root = tmp_path / "state"
    root.mkdir(mode=0o700)
    with closing(JobBook(root / "journal.db", 0.0)):
        pass
    return root


@pytest.mark.parametrize(
    "words", [("submit", "true"), ("queue",), ("run",), ("hold", "1"), ("cancel", "1")]
)
def test_jobs_of_this_machine_are_kept_out_of_the_state_of_a_cluster(
    slurm_state: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([words[0], "--state", str(slurm_state), *words[1:]]) == 2
    said = capsys.readouterr().err
    assert "belongs to `rota run --backend slurm`" in said
    assert "choose another --state" in said
    assert [path.name for path in slurm_state.iterdir()] == ["journal.db"]


def test_a_cluster_is_kept_out_of_the_state_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    assert run(["submit", "--state", str(state), "true"]) == 0
    assert run([*SLURM, "--state", str(state)]) == 2
    assert "give the jobs of Slurm another --state" in capsys.readouterr().err
    assert not (state / "journal.db").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--partition", "gpu"), "--partition is for --backend slurm, but the backend is"),
        (("run", "--heartbeat", "beat"), "--heartbeat is for --backend slurm"),
        (("run", "--preempt-rate", "3"), "--preempt-rate is for --backend slurm"),
        ((*SLURM, "--nodes", "4"), "--nodes is for --backend local, but the backend is slurm"),
        ((*SLURM, "--profile", "p.json"), "--profile is for --backend local"),
        ((*SLURM, "--keep-jobs", "9"), "--keep-jobs is for --backend local"),
        (("run", "--backend", "slurm:a=1"), "--backend slurm takes no settings, so not 'a=1'"),
        (("run", "--backend", "slurmm"), "Did you mean 'slurm'?"),
        ((*SLURM, "--deadline", "99999999d"), "--deadline 8.64e+12 is too long; give 1d or less"),
    ],
)
def test_options_that_would_count_for_nothing_are_refused(
    tmp_path: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--state", str(tmp_path / "state")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "state").exists()
