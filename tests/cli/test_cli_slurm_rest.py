"""`--slurmrestd`: a wrong address is refused before anything else; who is given the token."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rota.cli.app import run
from rota.cli.slurm_rest import slurmrestd

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("verb", ["run", "doctor"])
def test_a_wrong_address_is_refused_before_anything_is_done(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [verb, "--backend", "slurm", "--partition", "gpu", "--state", str(tmp_path / "state")]
    for address in ("https://host:6820", "/run/slurmrestd.sock", "unix:"):
        assert run([*words, "--slurmrestd", address]) == 2
        assert "give unix:/PATH of its socket" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


def test_a_token_goes_to_slurmrestd_and_not_to_commands_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_JWT", "e30.e30.x\n")
    assert slurmrestd(None) is None
    local = slurmrestd("unix:/run/slurmrestd.sock")
    assert local is not None
    assert "X-SLURM-USER-TOKEN" not in local._headers
    assert os.environ["SLURM_JWT"] == "e30.e30.x\n"
    remote = slurmrestd("http://localhost:6820")
    assert remote is not None
    assert remote._headers["X-SLURM-USER-TOKEN"] == "e30.e30.x"
    assert "SLURM_JWT" not in os.environ
