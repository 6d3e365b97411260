"""`rota policies`: what can be named."""

from __future__ import annotations

from typing import Any

import typer

from rota.cli.options import AsJson  # noqa: TC001
from rota.cli.table import only_json, print_json, print_table

GRAMMAR = "ordering[:setting=value,…][+placement][+elastic][@oracle]"
_EXAMPLES = (
    ("fifo", "an ordering with its default placement"),
    ("srtf+consolidate", "another placement"),
    ("tiresias:limits=3600/36000+topology", "settings, joined by commas"),
    ("fifo-skip+best-fit+elastic", "jobs of variable size grow and shrink"),
    ("hull-greedy:a=0.5", "a speed-aware policy with a setting; it sizes and places jobs itself"),
    ("srtf@oracle", "it is shown the truth where a scenario hides it"),
    ("runs/mine/best.ckpt", "what `rota train` made"),
    ("my_policy.py:MyPolicy", "a class of your own; also package.module:Name"),
    ("my_policy.py:MyPolicy:most=2", "with a setting: a field, or a parameter, of the class"),
)


def policies(as_json: AsJson = False) -> None:
    """List the policies and how their names combine."""
    from rota.cli.loading import note
    from rota.policies import listing
    from rota.policies.catalogue import CATALOGUE

    with only_json(as_json):  # plug-ins are imported
        entries = listing()
        for trouble in CATALOGUE.plugged()[1]:
            note(trouble)
    if as_json:
        print_json({"grammar": GRAMMAR, "policies": entries})
        return
    kinds = {kind: [e for e in entries if e["kind"] == kind] for kind in _kinds(entries)}
    typer.echo(f"A policy is named {GRAMMAR}, for example")
    width = max(len(name) for name, _ in _EXAMPLES)
    for name, what in _EXAMPLES:
        typer.echo(f"  {name:<{width}}  {what}")
    for kind, rows in kinds.items():
        typer.echo()
        columns = [
            (kind, [row["name"] for row in rows]),
            ("what it does", [row["summary"] for row in rows]),
        ]
        if kind in ("ordering", "speed-aware"):
            columns.append(("source", [row["source"] for row in rows]))
        if kind == "plug-in":
            columns.append(("package", [row["package"] for row in rows]))
            columns.append(("settings", [_with_help(row["settings"]) or "–" for row in rows]))
        if kind == "ordering":
            columns.append(("placement", [row["default_placement"] for row in rows]))
        if kind in ("ordering", "speed-aware"):
            columns.append(("settings", [", ".join(row["settings"]) or "–" for row in rows]))
        print_table(columns, left=len(columns))
    typer.echo()
    helps = {key: text for row in entries if row["kind"] != "plug-in"
             for key, text in row.get("settings", {}).items()}  # fmt: skip
    print_table([("setting", list(helps)), ("meaning", list(helps.values()))], left=2)


def _with_help(settings: dict[str, str]) -> str:
    return ", ".join(f"{key} ({text})" for key, text in settings.items())


def _kinds(entries: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(entry["kind"] for entry in entries))
