"""What is a user's own stays so, and nothing that others wrote steers a terminal."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from local_jobs import asked

from rota.backends.local import StateDir
from rota.backends.local.held import Ended
from rota.cli.app import run
from rota.cli.table import shown
from rota.errors import ConfigError, DamagedError

if TYPE_CHECKING:
    from pathlib import Path

EVIL = "a\x1b[2Jb\x07\x9b31m\u202egnp\x7f\nc\ud800"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_state_directory_is_closed_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        new = StateDir(tmp_path / "a" / "b").root
        assert (_mode(new), _mode(new / "jobs")) == (0o700, 0o700)
        new.chmod(0o755)
        StateDir(new)
        assert _mode(new) == 0o700
        new.chmod(0o777)
        StateDir(new, create=False)
        assert _mode(new) == 0o700
        (empty := tmp_path / "empty").mkdir()
        StateDir(empty)
        assert _mode(empty) == 0o700
        (shared := tmp_path / "shared").mkdir()
        (shared / "thesis").touch()
        with pytest.raises(ConfigError, match="holds other things, and others can look into it"):
            StateDir(shared)
        assert os.listdir(shared) == ["thesis"]
        assert run(("submit", "--state", str(new), "--", "true")) == 0
        assert run(("run", "--drain", "--gpus", "1", "--state", str(new))) == 0
        assert _mode(new / "journal.db") == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give files away")
def test_what_belongs_to_somebody_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StateDir(tmp_path / "state")
    uid = store.submit(asked(["true"]))
    request = store.folder(uid) / "request.json"
    os.chown(request, 12345, 12345)
    with pytest.raises(DamagedError, match=r"belongs to somebody else \(user 12345\)"):
        store.request(uid)
    os.chown(request, 0, 0)
    os.chown(store.root, 12345, 12345)
    for words in (("queue",), ("submit", "--", "true"), ("run", "--drain"), ("cancel", "1")):
        at = words.index("--") if "--" in words else len(words)
        assert run((*words[:at], "--state", str(store.root), *words[at:])) == 2
        assert "belongs to somebody else (user 12345)" in capsys.readouterr().err
    os.chown(store.root, 0, 0)
    link = tmp_path / "link"
    link.symlink_to(store.root)
    StateDir(link)
    os.chown(link, 12345, 12345, follow_symlinks=False)
    with pytest.raises(ConfigError, match="belongs to somebody else"):
        StateDir(link)
    (store.root / "journal.db").touch()
    os.chown(store.root / "journal.db", 12345, 12345)
    assert run(("run", "--drain", "--gpus", "1", "--state", str(store.root))) != 0
    assert "belongs to somebody else" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("queue",), ("cancel", "1"), ("logs", "1"), ("cancel", "--all")])
def test_a_misspelt_directory_is_not_made(
    tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run((*words, "--state", str(tmp_path / "typo"))) == 2
    assert "There is no state directory" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
    run((*words, "--state", str(tmp_path)))
    assert os.listdir(tmp_path) == []


def test_nothing_steers_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = StateDir(tmp_path / "state")
    words = ("--state", str(store.root))
    for option in ("--name", "--model"):
        assert run(("submit", option, EVIL, *words, "--", "true")) == 2
    for evil in (replace(asked(["true"]), name=EVIL, user=EVIL), asked(["true", EVIL])):
        store.submit(evil)
    store.end(1, Ended("failed", 1.0, EVIL))
    (store.folder(2) / "held.json").write_text(json.dumps({EVIL: 1}))
    for verb in (("queue",), ("queue", "--all"), ("queue", "--all", "--json"), ("logs", "1")):
        assert run((*verb, *words)) == 0
    assert run(("submit", *words, "--", EVIL)) == 2
    said = "".join(capsys.readouterr())
    assert shown(EVIL) == r"a\x1b[2Jb\x07\x9b31m\u202egnp\x7f\nc\ud800"
    assert all(c == "\n" or c.isprintable() for c in said)


def test_the_name_of_the_state_directory_writes_no_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in (("queue",), ("cancel", "7"), ("submit", "--", "true")):
        assert run((verb[0], "--state", str(tmp_path / "a\x1b[2J\nerror: b"), *verb[1:])) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "a\\x1b[2J\\nerror: b' has a line break" in said
    assert os.listdir(tmp_path) == []


def test_queue_goes_on_after_a_job_that_there_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StateDir(tmp_path)
    for name in ("first", "second"):
        store.submit(replace(asked(["true"]), name=name))
    assert run(("queue", "9", "1", "8", "2", "--state", str(tmp_path))) == 2
    out, err = capsys.readouterr()
    assert "job 1  first" in out
    assert "job 2  second" in out
    assert "There is no job 9" in err
    assert "There is no job 8" in err
    assert run(("queue", "9", "1", "--json", "--state", str(tmp_path))) == 2
    facts = json.loads(capsys.readouterr().out)
    assert [one["job"] for one in facts["jobs"]] == [1]
    assert [one["job"] for one in facts["errors"]] == [9]


def test_json_says_the_same_as_ever(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = StateDir(tmp_path)
    store.submit(replace(asked(["true"]), name=EVIL, user="Jürgen"))
    assert run(("queue", "--json", "--state", str(tmp_path))) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["jobs"][0]["name"] == EVIL
    assert "Jürgen" in out


def test_cancel_goes_on_after_one_that_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StateDir(tmp_path)
    for _ in range(3):
        store.submit(asked(["true"]))
    store.end(1, Ended("done", 1.0))
    assert run(("cancel", "1", "3", "9", "--state", str(tmp_path))) == 2
    said = capsys.readouterr().err
    assert "Job 1 is over already (done)." in said
    assert "There is no job 9" in said
    assert [store.cancelled(uid) for uid in (1, 2, 3)] == [False, False, True]
