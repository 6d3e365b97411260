"""The folder of a training.

- `best.ckpt`: the network with the lowest validation JCT so far, the earliest of equals. This is
  the only rule by which the result is chosen. A network that leaves a job unfinished has an
  infinite JCT and is never the best.
- `last.ckpt` and `last.resume`: what `--resume` continues from, at most a minute old.
- `warm-up.ckpt`: the network after cloning.
- `copy.json`: what a perfect copy of the teacher reaches (`rota.learn.copy_score`).
- `rivals.json`: what other policies reach (`rota.learn.rivals`).
- `curve.jsonl` and `events…`: written by `rota.learn.training_log`.
- `recipe.json`: all settings; a recipe that `rota train` takes.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from rota import weights_file
from rota.errors import CheckpointError, ConfigError
from rota.learn.learners import LEARNING
from rota.learn.recipe import tables_of
from rota.traces.text_files import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from rota.learn.recipe import Recipe

BEST: Final = "best.ckpt"
LAST: Final = "last.ckpt"
RESUME: Final = "last.resume"
WARM: Final = "warm-up.ckpt"
COPY: Final = "copy.json"
RIVALS: Final = "rivals.json"
RECIPE: Final = "recipe.json"
_FIXED: Final = ("system", "world", "lens", "network", "clone", "explore")
"""What a resumed training must have in common with the one that was stopped, beside learners."""
_MEASURED: Final = ("system", "world", "lens", "clone")
"""What `COPY` and `RIVALS` were measured with."""


def make_folder(folder: Path, recipe: Recipe) -> None:
    """Make the folder of a new training; refuse one that holds a training already."""
    state, best = folder / RESUME, folder / BEST
    if best.exists() or state.exists():
        raise ConfigError(
            f"{folder} holds a training already; "
            f"{'go on with --resume, or ' if state.exists() else ''}name another folder with "
            "--out."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made a folder for this training: {error.strerror}; name "
            "another with --out."
        ) from None
    text = json.dumps(recipe.facts(), indent=2) + "\n"
    _drop_measured(folder, json.loads(text))
    write_text(folder / RECIPE, text)


def _drop_measured(folder: Path, now: dict[str, Any]) -> None:
    """Remove what an earlier start with other settings has measured."""
    try:
        then = json.loads((folder / RECIPE).read_text())
        same = all(then[table] == now[table] for table in _MEASURED)
    except (OSError, ValueError, TypeError, KeyError):
        same = False
    if not same:
        for path in (folder / COPY, *folder.glob(f"*{RIVALS}")):
            path.unlink(missing_ok=True)


def read_state(folder: Path, recipe: Recipe) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts and arrays of the state to resume from, if it is of the same recipe."""
    state = folder / RESUME
    if not state.is_file():
        another = ", and name another folder with --out" if (folder / BEST).exists() else ""
        raise CheckpointError(
            f"{folder}: There is no {RESUME} to go on from; leave --resume out{another}."
        )
    facts, arrays = weights_file.read(state)
    then, now = facts.get("recipe", {}), json.loads(json.dumps(recipe.facts()))
    earlier = then.get("run", {}).get("learner", recipe.run.learner)
    # "none" keeps the state of a PPO that never updates, so these two may follow each other.
    if earlier not in LEARNING or LEARNING.get(earlier).table != recipe.learner.table:
        raise ConfigError(
            f"{folder} was trained with learner = {earlier!r}; resume with the same, or train "
            "again with another --out."
        )
    for table in (*_FIXED, recipe.learner.table):
        if _whole(then.get(table), table, recipe) != now[table]:
            raise ConfigError(
                f"{folder} was trained with other settings in [{table}]; resume with its own by "
                f"`rota train {quote(str(folder / RECIPE))} --out {quote(str(folder))} --resume`, "
                "or train again with another --out."
            )
    return facts, arrays


def _whole(content: Any, table: str, recipe: Recipe) -> Any:
    """A table of an earlier recipe; a setting that there was not yet had its default."""
    kind = tables_of(recipe.built_by, recipe.run.learner).get(table)
    if kind is None or not isinstance(content, dict):
        return content
    usual = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    return {**json.loads(json.dumps(usual)), **content}
