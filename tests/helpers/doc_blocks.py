"""The fenced examples of README and docs: their commands, and the files that they show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
STARTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("start-*.md"))]
"""Pages whose commands work one after the other in an empty folder."""

SMALLER = [
    (r"jobs=\d+", "jobs=40"),
    (r"--seeds (\d+):\d+", r"--seeds \1"),
    (r"^rota simulate (?!jobs)(?=.*--scenario)", "rota simulate --head 8 "),
    (r"^rota evaluate (?!.*--seeds)", "rota evaluate --seeds 2000 "),
    (r"^rota compare examples/compare.toml", "rota compare small.toml --force"),
    (r"^rota train ",
     "rota train --set run.updates=1 --set run.validate_every=1 --set run.threads=1 "
     "--set world.clusters=2 --set world.replicas=1 --set world.pool=2 "
     "--set world.validate=1000:1001 --set world.train=3000:3002 "),
    (r"^(rota train .* deepshare\b.*)",
     r"\1 --set clone.samples=200 --set clone.again=0 --set ppo.steps=16 --set ppo.minibatches=1"),
    (r"^(rota train .* dl2\b(?!-onepass).*)",
     r"\1 --set clone.samples=200 --set ppo.steps=16 --set ppo.minibatches=1"),
    (r"^(rota train .* das-paper\b.*)",
     r"\1 --set clone.samples=200 --set clone.clusters=2 --set ppo.steps=16"),
    (r"^rota adapt table \S+", "rota adapt table tiny --processes 1 --out small.db"),
    (r"^rota adapt train\b", "rota adapt train --episodes 32"),
    (r"^rota traces convert ", "rota traces convert --force "),
    (r"--journal ", "--force --journal "),
]  # fmt: skip
"""What stands in the docs → what is run in its place: the same commands on fewer jobs and seeds."""

OTHERS = ("make", "tensorboard", "TZ=UTC")
"""Programs that are not ours."""
SACCT = (
    "JobID|User|State|Submit|Start|ElapsedRaw|TimelimitRaw|AllocTRES|JobName\n"
    "1|ann|COMPLETED|2026-01-02T10:00:00|2026-01-02T10:00:05|600|60|gres/gpu=2|train\n"
    "2|bob|COMPLETED|2026-01-02T10:05:00|2026-01-02T10:06:00|300|60|gres/gpu=1|train\n"
)
"""A tiny log as `sacct` writes it."""


@dataclass(frozen=True)
class Block:
    """A fenced example."""

    page: Path
    line: int
    kind: str
    text: str
    saved_as: str | None
    """The file that the sentence before it says to save it as."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*kinds: str, pages: list[Path] | None = None) -> list[Block]:
    """The examples of these kinds."""
    found = []
    for page in PAGES if pages is None else pages:
        lines = page.read_text().splitlines()
        fences = [k for k, line in enumerate(lines) if line.startswith("```")]
        for begin, end in zip(fences[::2], fences[1::2], strict=True):
            kind = lines[begin].removeprefix("```")
            before = " ".join(filter(None, lines[max(0, begin - 3) : begin]))
            name = re.search(r"as `([\w.]+)`[^`]*:$", before)
            text = "\n".join(lines[begin + 1 : end]) + "\n"
            if kind in kinds:
                found.append(Block(page, begin + 1, kind, text, name[1] if name else None))
    return found


def command_lines(text: str) -> list[str]:
    """The command lines of an example, without comments and what a shell does with them."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        for command in re.sub(r"\s#.*", "", line).split(";"):
            words = " ".join(command.strip().removesuffix("&").split(">")[0].split())
            if words.startswith(("rota ", *OTHERS)):
                found.append(words)
    return found


def commands() -> list[str]:
    """Every command line, once."""
    lines = [line for block in blocks("sh", "") for line in command_lines(block.text)]
    return list(dict.fromkeys(lines))


def smaller(line: str) -> str:
    """The same command on fewer jobs and seeds."""
    for pattern, small in SMALLER:
        line = re.sub(pattern, small, line)
    return line
