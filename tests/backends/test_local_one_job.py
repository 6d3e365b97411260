"""Whatever is wrong with one job, the daemon goes on, and nothing of the job is thrown away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from local_jobs import asked, site
from test_local_damage import DAMAGES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_job_that_never_ran_is_kept_when_its_request_is_damaged(
    tmp_path: Path, damage: str
) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"]))
        file = here.store.folder(uid) / "request.json"
        sound = file.read_text()
        DAMAGES[damage](file)
        here.reopen()
        here.backend.wait(here.backend.now_s + 0.1)
        assert any("is set aside" in text for text in here.said)
        assert here.store.ended(uid) is None
        if file.is_dir():
            (file / "x").rmdir()
            file.rmdir()
        else:
            file.unlink()
        file.write_text(sound)  # as the docs advise
        here.reopen()
        here.backend.wait(here.backend.now_s + 0.1)
        assert [job.uid for job in here.backend.jobs] == [uid]


def test_a_request_that_is_damaged_later_does_not_keep_a_job_from_being_listed(
    tmp_path: Path,
) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"], name="known"))
        here.backend.wait(0)
        before = here.backend.listing(uid)
        (here.store.folder(uid) / "request.json").write_text("")
        assert here.backend.listing(uid) == before


def test_a_folder_that_is_away_for_a_moment_is_looked_at_again(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        here.backend.wait(0)
        away = tmp_path / "away"
        here.store.jobs.rename(away)
        here.backend.wait(here.backend.now_s + 0.1)
        assert any("No such file" in text for text in here.said)
        away.rename(here.store.jobs)
        uid = here.submit(asked(["sleep", "1000"]))
        here.until(lambda: uid in here.backend._jobs)


def test_a_daemon_that_drains_carries_out_the_cancel_of_a_broken_job_first(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"]))
        (here.store.folder(uid) / "held.json").write_text("")
        here.store.run_folder(uid, 1).mkdir()
        here.store.cancel(uid)
        here.more["drain"] = True
        here.reopen()
        while here.backend.wait(here.backend.now_s + 0.1):
            pass
        assert not here.backend._aside
        assert any(f"job {uid} cancelled" in text for text in here.said)
