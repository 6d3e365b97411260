"""A short stretch of chaos, always the same; `make chaos-slurm` plays longer ones."""

from __future__ import annotations

import os

import pytest
from chaos import unleash
from chaos_job import Line, faults, idle_runs

pytestmark = pytest.mark.slurm


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_jobs_survive_a_short_stretch_of_chaos() -> None:
    assert unleash(seed=117, events=7, policy="srtf") == []


def test_what_must_never_be_is_found_in_a_book() -> None:
    good = [
        Line("began", 1.0, "1.0", 0, 0), Line("step", 2.0, "1.0", 0, 2),
        Line("stopped", 2.5, "1.0", 2, 2), Line("began", 3.0, "1.1", 2, 2),
        Line("step", 4.0, "1.1", 2, 4), Line("ended", 4.1, "1.1", 4, 4),
    ]  # fmt: skip
    assert faults(good) == []
    again = Line("step", 3.5, "1.1", 0, 2)
    assert faults([*good, again]) == ["run 1.1 has done step 2 again"]
    beside = [Line("began", 1.5, "2.0", 0, 0), Line("stopped", 1.6, "2.0", 0, 0)]
    assert faults([*good, *beside]) == ["runs 1.0 and 2.0 overlap"]
    late = [Line("began", 5.0, "1.2", 4, 4), Line("ended", 5.1, "1.2", 4, 4)]
    assert (faults([*good, *late]), idle_runs([*good, *late])) == ([], 1)
    assert (faults(good), idle_runs(good)) == ([], 0)
