"""Which slow test suites have to run: those that cover what has changed since they passed.

    python3 scripts/suites.py due           names, one per line; why, on standard error
    python3 scripts/suites.py due --all     all of them
    python3 scripts/suites.py passed NAME   note that a suite has passed on HEAD

A suite covers paths. Their content at HEAD, as git's hashes, has a digest; `.ci/passed.json` keeps
the digest with which each suite last passed, and is committed. A suite is left out only if its
digest is still the same; where that cannot be known, it runs.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PASSED = Path(".ci/passed.json")
ALWAYS = ("pyproject.toml", "constraints.txt", "Makefile", "scripts/suites.py")
HELP = ("tests/conftest.py", "tests/helpers", "tests/fixtures")
BOUNDED = ("core", "sim", "policies", "envs", "run", "systems")
APART = tuple(
    f"src/rota/{room}/" for room in ("adapt", "backends", "cli", "dash", "elastic", "learn")
)
"""Rooms that the simulator does not use."""


@dataclass(frozen=True)
class Suite:
    """A suite, and what it is about."""

    covers: tuple[str, ...]
    apart_from: tuple[str, ...] = ()
    mark: str = ""
    """Test files with this pytest mark are covered, too."""
    by_hand: bool = False
    """Only `--all` runs it: it takes as long as everything else together."""


SUITES = {
    "logs": Suite(
        ("src/rota", *HELP),
        ("src/rota/adapt/", "src/rota/elastic/", "src/rota/backends/"),
        "logs",
    ),
    "bounds": Suite(
        ("src/rota", *HELP, *(f"tests/{room}" for room in BOUNDED)),
        APART,
    ),
    "fuzz": Suite(("src/rota",), tuple(room for room in APART if room != "src/rota/cli/")),
    "slow": Suite(("src/rota", *HELP), mark="slow", by_hand=True),
    "wheel": Suite(("src/rota", "README.md", "docs", "tests/wheel", "tests/helpers")),
    "slurm": Suite(
        (
            *("src/rota/backends", "src/rota/run", "src/rota/elastic", "src/rota/learn"),
            *("src/rota/cli", "src/rota/sim"),
            *("tests/slurm", "tests/conftest.py", "tests/helpers", "scripts/install_slurm.sh"),
        )
    ),
}
"""`make test-NAME` runs one, but for `make fuzz`. `make test` and `make check` run always."""


def git(*words: str) -> str:
    """What git says; nothing if it cannot."""
    done = subprocess.run(("git", *words), capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def digest(suite: Suite) -> str:
    """The digest of all that a suite covers at HEAD; nothing if it cannot be known."""
    paths = {*ALWAYS, *suite.covers}
    if suite.mark:
        marked = git("grep", "-l", f"mark.{suite.mark}", "HEAD", "--", "tests").splitlines()
        paths |= {line.removeprefix("HEAD:") for line in marked}
    listed = git("ls-tree", "-r", "HEAD", *sorted(paths)).splitlines()
    kept = [line for line in listed if not line.split("\t")[1].startswith(suite.apart_from)]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest() if kept else ""


def noted() -> dict[str, str]:
    """The digests with which suites have passed."""
    try:
        found = json.loads(PASSED.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def due(everything: bool) -> list[str]:
    """The suites that have to run; says of all of them why, or why not."""
    names, before = [], noted()
    for name, suite in SUITES.items():
        now = digest(suite)
        if everything:
            why = "all are wanted"
        elif suite.by_hand:
            print(f"suite {name}: left out, it is run by hand or with --all", file=sys.stderr)
            continue
        elif not now:
            why = "there is no git history to tell what has changed"
        elif name not in before:
            why = "it is not known to have passed"
        elif before[name] != now:
            why = "what it covers has changed since it passed"
        else:
            print(f"suite {name}: left out, it has passed with exactly this code", file=sys.stderr)
            continue
        print(f"suite {name}: runs, {why}", file=sys.stderr)
        names.append(name)
    return names


def main(words: list[str]) -> int:
    """Obey the command line."""
    if words[:1] == ["due"]:
        print("\n".join(due("--all" in words)))
        return 0
    if words[:1] == ["passed"] and len(words) == 2 and words[1] in SUITES:
        now = digest(SUITES[words[1]])
        if now:
            notes = {**noted(), words[1]: now}
            PASSED.write_text(json.dumps(notes, indent=0, sort_keys=True) + "\n")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
