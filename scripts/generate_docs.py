"""Writes what docs can take from the program itself: every command's options, and the policies.

    make docs                                  rewrites the generated parts of docs/
    python scripts/generate_docs.py --check    says which pages are out of date

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of a page is
written by hand and left alone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rota.cli.app import app
from rota.policies import listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOCS = Path(__file__).parents[1] / "docs"
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def cell(text: object) -> str:
    """A text as it may stand in a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(heads: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """A Markdown table."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(map(cell, line)) + " |\n" for line in lines)


# -- commands ---------------------------------------------------------------------------------


def commands(group: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is not hidden, by the words that call it."""
    context = group.context_class(group, info_name=names[-1])
    for name in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [name])
        if command.hidden:
            continue
        yield (*names, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))


PLAIN = {"<int range>": "N", "<int>": "N", "<float range>": "X", "<float>": "X", "<path>": "PATH"}


def spelled(param: Any, context: Any) -> str:
    """How an option or an argument is written on the command line."""
    value = param.make_metavar(context)
    value = PLAIN.get(value.lower(), value.replace("<str>", "NAME"))
    if param.param_type_name == "argument":
        return f"`{value}`"
    flag = getattr(param, "is_flag", False)
    names = [*param.opts, *param.secondary_opts]
    return ", ".join(f"`{name}`" if flag else f"`{name} {value}`" for name in names)


def default_of(param: Any) -> str:
    """What holds if an option is not given; nothing where its help says it, or it is a flag."""
    if param.required:
        return "required"
    value = None if getattr(param, "show_default", None) is False else param.default
    if value is None or value is False or value == () or callable(value):
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def command_reference() -> str:
    """A section for every command: what it does, and a table of its options."""
    found = []
    root = typer.main.get_command(app)
    for words, command in commands(root, ("rota",)):
        context = command.context_class(command, info_name=words[-1])
        arguments = [p.make_metavar(context) for p in command.params if not hasattr(p, "is_flag")]
        inner = ["[COMMAND]"] if hasattr(command, "commands") else []
        found.append(f"### `{' '.join([*words, *arguments, *inner, '[OPTIONS]'])}`\n\n")
        found.append((command.help or "").strip() + "\n\n")
        rows: list[tuple[object, ...]] = [
            (spelled(param, context), getattr(param, "help", None) or "", default_of(param))
            for param in command.params
            if not getattr(param, "hidden", False) and param.name != "help"
        ]
        if rows:
            found.append(table(("option", "meaning", "default"), rows) + "\n")
    return "\n" + "".join(found)


# -- policies ---------------------------------------------------------------------------------


def policy_table(kind: str) -> str:
    """The policies of one kind with their settings."""
    rows: list[tuple[object, ...]] = []
    for entry in listing():
        if entry["kind"] != kind:
            continue
        settings = "; ".join(
            f"`{name}`: {what}" for name, what in entry.get("settings", {}).items()
        )
        rows.append((f"`{entry['name']}`", entry["summary"], entry.get("source", ""), settings))
    heads = ("name", "what it does", "source", "settings")
    used = [k for k in range(len(heads)) if any(row[k] for row in rows)]
    return table(
        tuple(heads[k] for k in used), [tuple(row[k] for k in used) for row in rows]
    )  # fmt: skip


PARTS: dict[str, Callable[[], str]] = {
    "commands": command_reference,
    "orderings": lambda: policy_table("ordering"),
    "aware": lambda: policy_table("speed-aware"),
    "placements": lambda: policy_table("placement"),
}


def renewed(text: str) -> str:
    """A page with its generated parts as they should be."""
    return PART.sub(lambda part: part[1] + PARTS[part[2]]() + part[3], text)


def main() -> int:
    """Rewrite the pages, or only say which ones differ."""
    stale = []
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        new = renewed(text)
        if new != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(new)
    if stale:
        print(f"{'out of date' if '--check' in sys.argv else 'rewritten'}: {', '.join(stale)}")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
