"""Policies of one's own: loading them by file or module, and the settings that a name gives."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from rota.cli.app import run
from rota.errors import ConfigError, InputError, UnknownNameError
from rota.policies import make_policy
from rota.policies.catalogue import FAMILIES, family, speed_aware
from rota.policies.classic.orderings import ORDERINGS
from rota.policies.own import parse_own
from rota.testing.candidates import base_of

if TYPE_CHECKING:
    from pathlib import Path

MINE = '''
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Optional

from rota.core import Draft

if TYPE_CHECKING:
    from rota.core import Decision, Snapshot

LOADED = []
LOADED.append(1)


@dataclass
class Base:
    """Starts nobody."""

    most: int = 1

    def decide(self, snapshot: Snapshot) -> Decision:
        return Draft(snapshot).commit()


@dataclass
class Mine(Base):
    """One of each kind of setting."""

    kind: ClassVar[str] = "mine"
    least: float = 0.5
    eager: bool = False
    label: str = "plain"
    weight: Literal["time", "work"] = "time"
    level: Literal[1, 2] = 1
    cap: Optional[int] = None
    share: float | None = 1.0
    oracle: bool = False
    name: str = ""
    seen: list[Snapshot] = field(default_factory=list)


class Plain(Base):
    def __init__(self, most: int, least: float = 2.0, guess=3, helper=None) -> None:
        self.given = (most, least, guess)


class Half(Base):
    def __init__(self, least: float = 2.0, guess=3, helper=None) -> None:
        self.given = (least, guess)


class Needs(Base):
    def __init__(self, model: Snapshot) -> None:
        pass


class Raises(Base):
    def __init__(self) -> None:
        raise KeyError("no such thing")


def build(most: int = 4) -> Mine:
    return Mine(most=most)


ready = Mine(most=7)
NUMBER = 5
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return file


def test_settings_are_read_by_the_annotations_of_the_fields(mine: Path) -> None:
    wanted = "most=2,least=3,eager=1,label=a b,weight=work,level=2,cap=9,share=none"
    policy: Any = make_policy(f"{mine}:Mine:{wanted}")
    assert (policy.most, policy.least, policy.eager, policy.label) == (2, 3.0, True, "a b")
    assert (policy.weight, policy.level, policy.cap, policy.share) == ("work", 2, 9, None)
    assert (policy.oracle, policy.name) == (False, f"{mine}:Mine:{wanted}")
    assert isinstance(policy.least, float)


def test_without_settings_the_defaults_hold(mine: Path) -> None:
    policy: Any = make_policy(f"{mine}:Mine")
    assert (policy.most, policy.cap, policy.share) == (1, None, 1.0)


def test_an_oracle_is_told_that_it_is_one(mine: Path) -> None:
    policy: Any = make_policy(f"{mine}:Mine@oracle")
    assert policy.oracle
    policy = make_policy(f"{mine}:Mine:label=me@oracle")
    assert (policy.oracle, policy.label) == (True, "me")
    with pytest.raises(ConfigError, match="'Base' has no field 'oracle'"):
        make_policy(f"{mine}:Base@oracle")


def test_parameters_of_init_are_settings_too(mine: Path) -> None:
    with pytest.raises(ConfigError, match="Policy 'Plain' needs the setting 'most': Plain:most=…"):
        make_policy(f"{mine}:Plain:least=4")
    with pytest.raises(InputError, match=r"Cannot make policy .*: its parameter 'model' has no"):
        make_policy(f"{mine}:Needs")
    policy: Any = make_policy(f"{mine}:build:most=6")
    assert policy.most == 6
    policy = make_policy(f"{mine}:Half:guess=5")
    assert policy.given == (2.0, 5)


def test_an_object_is_taken_as_it_is(mine: Path) -> None:
    policy: Any = make_policy(f"{mine}:ready")
    assert policy.most == 7
    with pytest.raises(ConfigError, match="'ready' has no setting 'most'; it takes: none"):
        make_policy(f"{mine}:ready:most=2")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("x=1", "Policy 'Mine' has no setting 'x'; it takes: most, least, eager, label, weight, "
                "level, cap, share."),
        ("name=x", "has no setting 'name'"),
        ("oracle=1", "has no setting 'oracle'"),
        ("seen=1", "has no setting 'seen'"),
        ("kind=x", "has no setting 'kind'"),
        ("most=two", "Policy setting most='two' of 'Mine' must be a whole number: default 1."),
        ("most=1.5", "most='1.5' of 'Mine' must be a whole number"),
        ("most", "most='' of 'Mine' must be a whole number"),
        ("most=", "most='' of 'Mine' must be a whole number"),
        ("least=nan", "least='nan' of 'Mine' must be a number"),
        ("least=inf", "least='inf' of 'Mine' must be a number"),
        ("eager=maybe", "eager='maybe' of 'Mine' must be 0 or 1"),
        ("weight=size", "weight='size' of 'Mine' must be time or work"),
        ("level=3", "level='3' of 'Mine' must be 1 or 2"),
        ("cap=x", "cap='x' of 'Mine' must be a whole number, or none"),
    ],
)  # fmt: skip
def test_a_setting_that_will_not_do_is_refused_as_for_ours(
    mine: Path, setting: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make_policy(f"{mine}:Mine:{setting}")
    assert says in str(caught.value)


def test_a_file_is_loaded_once_and_again_when_it_has_changed(mine: Path) -> None:
    first, again = make_policy(f"{mine}:Mine"), make_policy(f"{mine}:Mine:most=2")
    assert type(first) is type(again)
    other = mine.parent / "sub" / ".." / "mine.py"
    (mine.parent / "sub").mkdir()
    assert type(make_policy(f"{other}:Mine")) is type(first)
    assert sys.modules[type(first).__module__].LOADED == [1]
    mine.write_text(MINE.replace("most: int = 1", "most: int = 17"))
    changed: Any = make_policy(f"{mine}:Mine")
    assert changed.most == 17


def test_two_files_of_the_same_name_do_not_meet(mine: Path, tmp_path: Path) -> None:
    other = tmp_path / "b" / "mine.py"
    other.parent.mkdir()
    other.write_text(MINE.replace("most: int = 1", "most: int = 3"))
    first: Any = make_policy(f"{mine}:Mine")
    second: Any = make_policy(f"{other}:Mine")
    assert (first.most, second.most) == (1, 3)


def test_paths_may_hold_blanks_and_marks(tmp_path: Path) -> None:
    odd = tmp_path / "my +dir, at@home: x=1" / "my policy.py"
    odd.parent.mkdir()
    odd.write_text(MINE)
    policy: Any = make_policy(f"{odd}:Mine:most=5")
    assert policy.most == 5
    assert base_of(f"{odd}:Mine:most=5") == f"{odd}:Mine"


def test_a_module_takes_settings_too(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine.rename(mine.parent / "theirs_of_test.py")
    monkeypatch.syspath_prepend(mine.parent)
    policy: Any = make_policy("theirs_of_test:Mine:most=4@oracle")
    assert (policy.most, policy.oracle) == (4, True)
    sys.modules.pop("theirs_of_test")


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("{mine}:Nope", UnknownNameError, "No policy in {mine} is called 'Nope'. Known: Base, "),
        ("{mine}", InputError, "does not say which policy of the file is meant"),
        ("{mine}:", InputError, "does not say which policy"),
        ("{mine}:most=2", InputError, "does not say which policy"),
        ("{mine}:NUMBER", InputError, "is no policy: it has no method decide"),
        ("{mine}:Raises", InputError, "Cannot make policy '{mine}:Raises': KeyError"),
        ("{mine}:Mine+best-fit", ConfigError, "places jobs itself; leave '+best-fit' out"),
        ("{mine}:Mine@truth", UnknownNameError, "No view of a policy is called 'truth'"),
        (r"C:\files\mine.py:Mine", InputError, "There is no file"),
        ("/no/such.py:Mine", InputError, "There is no file '/no/such.py' to load a policy from"),
        ("nosuchmodule:Mine", InputError, "Cannot load a policy from 'nosuchmodule'"),
        ("srtf:error", ConfigError, "Policy setting error='' of 'srtf' must be a number"),
        ("fifo:Mine", ConfigError, "Policy 'fifo' has no setting 'Mine'"),
    ],
)
def test_a_name_that_leads_nowhere_says_why(
    mine: Path, name: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        make_policy(name.replace("{mine}", str(mine)))
    assert says.replace("{mine}", str(mine)) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [("def broken(:\n", "SyntaxError"), ("import nosuchthing\n", "nosuchthing"),
     ("raise SystemExit(3)\n", "SystemExit"), ("\0", "null bytes")],
)  # fmt: skip
def test_a_file_that_cannot_be_run_says_why_each_time(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    for _ in range(2):
        with pytest.raises(InputError, match="Cannot load a policy from") as caught:
            make_policy(f"{file}:Mine")
        assert says in str(caught.value)


def test_the_command_simulates_with_a_setting(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from rota.policies import make_policy\n@dataclass\nclass Mine:\n    base: str = 'fifo'\n"
        "    def decide(self, snapshot):\n        return make_policy(self.base).decide(snapshot)\n"
    )
    words = f"simulate poisson:jobs=20 --nodes 2 -p {mine}:Mine:base=sjf-skip -p sjf-skip --json"
    assert run(words.split()) == 0
    assert f"{mine}:Mine:base=sjf-skip" in capsys.readouterr().out


def test_a_name_belongs_to_one_family_only() -> None:
    names = [*ORDERINGS, *(name for one in FAMILIES for name in family(one))]
    assert len(names) == len(set(names)) == len(ORDERINGS) + len(speed_aware())
    assert all(entry.summary and entry.source for entry in speed_aware().values())


def test_other_names_are_not_taken_for_files() -> None:
    for name in ("fifo", "srtf:b=0.5", "hull-greedy:a=0.5", "fifo+best-fit", "a.ckpt", ""):
        assert parse_own(name) is None
