"""A daemon that starts on a full disk loses nothing: it says so, and waits for room."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rota.backends.job_book import JobBook
from rota.backends.reconciler import Intent
from rota.cli import slurm_daemon
from rota.cli.daemon_loop import journal_of
from rota.errors import JournalError
from rota.run.journal_file import lacks_room

if TYPE_CHECKING:
    from collections.abc import Iterator

META = {"policy": "fifo", "total_gpus": 8, "cluster": {"names": ["n1"], "gpus": [8]}}


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can be written to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_journal_is_not_put_aside_because_the_disk_is_full(tmp_path: Path) -> None:
    path, said = tmp_path / "journal.db", list[str]()

    def make(journal: Any) -> JobBook:
        return JobBook(journal.path, 0.0)

    with journal_of(path, META, make, said.append) as book, closing(book):  # type: ignore[arg-type]
        book.keep_intents([Intent(3, ((0, 1, 0),))])
    grown = {**META, "cluster": {"names": ["n1", "n2"], "gpus": [8, 8]}}
    with (
        full_disk(),
        pytest.raises(JournalError) as caught,
        journal_of(path, grown, make, said.append),  # type: ignore[arg-type]
    ):
        pass
    assert lacks_room(caught.value)
    with journal_of(path, grown, make, said.append) as book, closing(book):  # type: ignore[arg-type]
        assert book.intents() == {3: Intent(3, ((0, 1, 0),))}
    assert said == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_daemon_waits_for_room_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    said, tries = list[str](), [0]
    write = Path.write_bytes

    def fails_twice(path: Path, data: bytes) -> int:
        tries[0] += 1
        if tries[0] < 3:
            raise OSError(code, os.strerror(code))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", fails_twice)
    monkeypatch.setattr(slurm_daemon, "sleep", lambda _: None)
    slurm_daemon._await_room(tmp_path, lambda text, **_: said.append(text))  # type: ignore[arg-type]
    assert (tries, len(said), list(tmp_path.iterdir())) == ([3], 1, [])
    assert os.strerror(code) in said[0]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_fills_up_while_a_daemon_starts_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    said, begun = list[str](), [0]

    def schedule(*_: object) -> None:
        begun[0] += 1
        if begun[0] == 1:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(slurm_daemon, "_schedule", schedule)
    options: Any = SimpleNamespace(
        partition=["gpu"], state=tmp_path / "state", shadow=False, slurmrestd=None
    )
    say: Any = lambda text, **_: said.append(text)  # noqa: E731
    if code == errno.EACCES:
        with pytest.raises(OSError, match=os.strerror(code)):
            slurm_daemon.run_on_slurm(options, None, None, say)  # type: ignore[arg-type]
    else:
        slurm_daemon.run_on_slurm(options, None, None, say)  # type: ignore[arg-type]
        assert (begun, len(said)) == ([2], 1)
