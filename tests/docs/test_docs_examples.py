"""What README and docs show is run, or at least parsed: a renamed option or policy fails here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import typer
from doc_blocks import PAGES, ROOT, SACCT, blocks, commands, smaller
from elastic_jobs import ending, script
from live import Queue, Task, ToyCluster
from plugged import install
from shadow_journal import write_shadow_journal

from rota.cli.app import app, run
from rota.cli.compare_config import load_config
from rota.cli.jobs_file import read_jobs
from rota.learn.recipe_file import load_recipe
from rota.policies import make_policy
from rota.scenarios import load
from rota.testing import check_policy
from rota.traces import SACCT_COMMAND
from rota.traces.clusterfile import load_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from doc_blocks import Block

PLUGIN = ROOT / "examples" / "plugin" / "pyproject.toml"

LIVE = ("run", "submit", "queue", "logs", "cancel", "hold", "resume", "resubmit", "profile",
        "learn", "doctor", "explain", "elastic-run")  # fmt: skip
"""Verbs that start or need a daemon or its journal: words are parsed, and policies made."""
VERBS_WITH_ARGUMENTS = (
    "train", "evaluate", "compare", "report", "submit", "describe", "convert", "logs", "hold",
    "resume", "resubmit", "profile", "learn", "explain", "elastic-run",
)  # fmt: skip
FOREIGN = {
    "--parsable2", "--logdir", "--editable", "--hypothesis-profile", "--exclusive", "--help",
    "--version", "--debug", "--nodes", "--gres", "--comment", "--begin", "--constraint",
    "--exclude", "--gpus", "--gpus-per-task", "--nodelist", "--requeue", "--signal", "--switches",
    "--system", "--tmp",
}  # fmt: skip
"""Options of others, and those of every command."""


def parsed(words: list[str]) -> list[tuple[Any, dict[str, Any]]]:
    """The commands that the words name, outermost first, with their settings; nothing is run."""
    command: Any = typer.main.get_command(app)
    context, found = None, []
    while True:
        context = command.make_context(command.name, words, parent=context)
        found.append((command, context.params))
        words = [*getattr(context, "_protected_args", ()), *context.args]
        if not hasattr(command, "resolve_command") or not words:
            return found
        _, command, words = command.resolve_command(context, words)


def policies_in(params: dict[str, Any]) -> list[str]:
    given = [params.get("policy"), params.get("fallback")]
    return [name for one in given if one for name in ([one] if isinstance(one, str) else one)]


RUN = [line for line in commands() if line.startswith("rota ") and line.split()[1] not in LIVE]
PARSED = [line for line in commands() if line.startswith("rota ") and line.split()[1] in LIVE]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the examples name."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "examples", folder / "examples")
    small = (folder / "examples" / "compare.toml").read_text()
    small = small.replace("jobs=2000", "jobs=30").replace('"0:5"', '"0:2"')
    (folder / "small.toml").write_text(small.replace("longest_wait.py", "examples/longest_wait.py"))
    shutil.copy(folder / "examples" / "longest_wait.py", folder / "mine.py")
    with (folder / "mine.py").open("a") as mine:
        mine.write("\n\nMine = LongestWait\n")
    (folder / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,num_gpus,model,total_samples\n"
        "0,0,60,2,FSDP,900\n1,5,90,4,MoE,700\n2,9,30,2,DLRM,30000\n"
    )
    for name in ("jobs.txt", "sacct.txt"):
        (folder / name).write_text(SACCT)
    for block in blocks("toml", "python"):
        if block.saved_as and not (folder / block.saved_as).exists():
            text = smaller(block.text).replace('"0:5"', '"0:2"').replace('"0:3"', '"0:2"')
            (folder / block.saved_as).write_text(text)
    shipped = files("rota.systems") / "weights" / "dl2-onepass.ckpt"
    for name in ("best.ckpt", "runs/mine/best.ckpt", "runs/dl2-onepass-0/best.ckpt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(Path(str(shipped)).read_bytes())
    words = "simulate --scenario dl2-busy --seed 3000 -p drf --head 12 --journal"
    assert run([*words.split(), str(folder / "run.db")]) == 0
    grown = folder / "runs" / "adapt"
    table, agent = str(grown / "learn.db"), str(grown / "agent.ckpt")
    assert run(["adapt", "table", "tiny", "--processes", "1", "--out", table]) == 0
    assert run(["adapt", "train", "--episodes", "32", "--table", table, "--out", agent]) == 0
    shutil.copy(grown / "learn.db", grown / "held-out.db")
    (folder / "state").mkdir()
    for name in ("cluster.db", "state/journal.db"):
        shutil.copy(folder / "run.db", folder / name)
    (folder / "shadow").mkdir()
    write_shadow_journal(folder / "shadow" / "journal.db")
    return folder


@pytest.fixture
def here(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder as the working directory; the example package is installed."""
    shutil.copytree(place, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    about = tomllib.loads(PLUGIN.read_text())["project"]
    site = install(tmp_path / "site", about["name"], about["entry-points"])
    shutil.copytree(PLUGIN.parent / "rota_example", site / "rota_example")
    monkeypatch.syspath_prepend(site)
    return tmp_path / "here"


def test_examples_are_found() -> None:
    assert len(RUN) >= 25
    assert len(PARSED) >= 6
    assert len(blocks("python")) >= 10


@pytest.mark.parametrize("line", RUN)
def test_a_command_runs(
    line: str, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here == Path.cwd()
    words = shlex.split(smaller(line))[1:]
    if words[0] == "train" and "--out" not in words:
        words += ["--out", str(tmp_path / "run")]
    elif words[0] == "train":
        words[words.index("--out") + 1] = str(tmp_path / "run")
    assert run(words) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("line", PARSED)
def test_a_live_command_is_understood(line: str) -> None:
    (_, params) = parsed(shlex.split(line)[1:])[-1]
    for name in policies_in(params):
        make_policy(name)


def test_what_others_run_is_known() -> None:
    targets = set(re.findall(r"^([a-z-0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in commands():
        words = line.split()
        if words[0] == "make":
            assert words[1] in targets, line
        if words[0] == "TZ=UTC":
            assert " ".join(SACCT_COMMAND.split(" >")[0].split()) == line


def spans() -> Iterator[tuple[Path, str]]:
    """Code inside sentences and tables."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for found in re.findall(r"`([^`\n]+)`", text):
            yield page, found


def test_commands_in_sentences_are_understood() -> None:
    seen = 0
    for _, text in spans():
        if text.startswith("rota ") and not re.search(r"[\[|…]|COMMAND", text):
            words, seen = shlex.split(text)[1:], seen + 1
            if words[-1] in VERBS_WITH_ARGUMENTS:  # only the verb is meant
                continue
            found = parsed(words)
            for name in policies_in(found[-1][1]):
                if not re.search(r"\.py:|POLICY|\.ckpt", name):
                    make_policy(name)
    assert seen > 20


def every_option() -> set[str]:
    def below(command: Any) -> Iterator[str]:
        for param in command.params:
            yield from (*param.opts, *param.secondary_opts)
        if hasattr(command, "list_commands"):
            context = command.context_class(command)
            for name in command.list_commands(context):
                yield from below(command.resolve_command(context, [name])[1])

    return set(below(typer.main.get_command(app)))


def test_options_that_are_named_exist() -> None:
    known = every_option() | FOREIGN
    for page, text in spans():
        for option in re.findall(r"(?:^|(?<=[\s\[(]))--[a-z][a-z0-9-]*", text):
            assert option in known, f"{page.relative_to(ROOT)}: {text}"


# -- files ------------------------------------------------------------------------------------


def as_in_the_example(path: Path) -> None:
    """The entry points that are shown are those of the example package."""
    shown, true = (tomllib.loads(file.read_text())["project"] for file in (path, PLUGIN))
    assert shown["entry-points"] == true["entry-points"]


def profiled(path: Path) -> None:
    """A file of jobs, or a scenario that names a profile."""
    if "[[job]]" not in path.read_text():
        load(path)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        assert read_jobs(path)


READERS = {
    "commands.md": load_cluster,
    "compare.md": load_config,
    "learning.md": load_recipe,
    "README.md": load_config,
    "start-operator.md": load_config,
    "start-researcher.md": load_config,
    "scenarios.md": lambda path: load(path).draw(0),
    "profiling.md": profiled,
    "extending.md": as_in_the_example,
}


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_a_file_is_read(block: Block, here: Path) -> None:
    path = here / f"shown-{block.page.stem}.toml"
    path.write_text(block.text)
    READERS[block.page.name](path)


@pytest.mark.parametrize("block", blocks("sql"), ids=str)
def test_a_query_is_answered(block: Block, here: Path) -> None:
    with sqlite3.connect(here / "run.db") as journal:
        for query in filter(str.strip, block.text.split(";")):
            journal.execute(query).fetchall()


# -- Python -----------------------------------------------------------------------------------

JOURNAL = """
import sqlite3
import numpy
from rota.core.layout import EVENT, ROUND, SHARE
from rota.run.journal import Journal
from rota.run.loop import rounds
from rota.run.reader import EventChunk, JobChunk, RoundChunk, follow, read_journal
from rota.run.recorder import Recorder
"""
PRELUDE = {
    "guard.md": """
from rota.policies import make_policy
from rota.run.guard import Guard
from rota.run.loop import rounds
""",
    "estimation.md": """
from rota.core import Cluster, Job, Snapshot
from rota.perf.estimate import Estimator
snapshot, j = Snapshot.of(Cluster.uniform(2), [Job(workers=2, servers=1, max_workers=4)]), 0
""",
    "price.md": """
from rota.core import Cluster
cluster = Cluster.uniform(2, 8, gpu_type="V100")
""",
    "elastic.md": """
import torch
from torch.nn.functional import cross_entropy
class Data:
    def __len__(self):
        return 512
    def __getitem__(self, indices):
        return torch.zeros(len(indices), 4), torch.zeros(len(indices), dtype=torch.long)
data, model = Data(), torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    "growth.md": """
import torch
from torch import nn
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(64, 2)
    def forward(self, x):
        return self.head(self.features(x).flatten(1))
network, batch = Network(), torch.randn(8, 1, 8, 8)
optimizer = torch.optim.Adam(network.parameters())
""",
    "journal.md": JOURNAL,
    "journal-format.md": JOURNAL,
}
"""What a page takes for granted before its examples."""


def names_of_journal(block: Block, folder: Path) -> dict[str, Any]:
    """What the examples of writing call their arrays, and what they write to."""
    from rota.core.layout import EVENT, ROUND, SHARE
    from rota.run.journal import Journal
    from rota.run.loop import rounds

    name = f"line{block.line}.db"
    made: dict[str, Any] = {
        "job_id": ["a"], "user": [0], "users": ["ann"], "num_gpus": [1], "submit_s": [0.0],
        "duration_s": [9.0], "more": None, "names": None, "notes": None,
        "events": np.array([(0.0, 0, 1, 1)], EVENT), "entries": np.array([(0, 1, 0)], SHARE),
        "end_s": 9.0, "held_gpu_s": 9.0, "wall_s": 1.0, "lost_s": np.zeros(1), "now_s": 99.0,
        "rounds": np.array([(0.0, 0, 1, 1, 8, 0)], ROUND), "path": str(folder / name),
    }  # fmt: skip
    if "reopen" in block.text:
        Journal.create(made["path"], meta={"policy": "srtf", "total_gpus": 8}).close()
    if "Recorder" in block.text:
        made |= {"rounds": rounds, "policy": Queue(), "guard": None}
        made["backend"] = ToyCluster([Task(0, 3, 2)])
        made["journal"] = Journal.create(made["path"], meta={"policy": "q", "total_gpus": 8})
    return made


def executed(block: Block, folder: Path) -> dict[str, Any]:
    space: dict[str, Any] = {}
    text = block.text
    exec(PRELUDE.get(block.page.name, ""), space)
    if block.page.stem.startswith("journal"):
        names = names_of_journal(block, folder)
        space |= names
        if "create(" in text or "reopen(" in text:
            text = text.replace('"run.db"', repr(names["path"]))
    if block.page.name == "guard.md":
        space |= {"policy": Queue(), "backend": ToyCluster([Task(0, 3, 2)])}
    exec(compile(text, str(block), "exec"), space)
    return space


LAUNCHES = "ElasticJob.launch("


@pytest.mark.parametrize(
    "block", [b for b in blocks("python") if LAUNCHES not in b.text], ids=str
)  # fmt: skip
def test_python_runs(block: Block, here: Path, tmp_path: Path) -> None:
    assert here == Path.cwd()
    space = executed(block, tmp_path)
    if block.page.name == "README.md":
        check_policy(space["LongestWait"])


@pytest.mark.parametrize("block", [b for b in blocks("python") if LAUNCHES in b.text], ids=str)
def test_a_job_is_launched_as_shown(block: Block, tmp_path: Path) -> None:
    command = script(tmp_path / "out", epochs=10**6, pace_s=0.01)
    text = block.text.replace('("python", "/path/train.py")', repr(command))
    text = text.replace("/var/lib/rota/jobs/17", str(tmp_path / "job"))
    text = text.replace("timeout_s=60", "timeout_s=600")  # where others use the machine
    assert text.count(str(tmp_path / "job")) == 2
    with ending(tmp_path / "job"):
        space: dict[str, Any] = {}
        exec(compile(text, str(block), "exec"), space)
        assert space["result"].state == "stopped"
