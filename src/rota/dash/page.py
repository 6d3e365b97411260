"""The frame of every page that rota writes: one file, no scripts, nothing fetched."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The palette is Okabe and Ito's, which colour-blind readers can tell apart, without its yellow;
# its order puts the strongest contrasts first. The dark one is the same, lighter.
_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fcfcfa; --ink: #1d2127; --soft: #5c6470;
  --rule: #e3e4e0; --wash: #f3f3ef; --good: #00694d; --bad: #a63d00;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b8608f; --c4: #b37800; --c5: #3a9bd6;
  --c6: #6b6b6b; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e6e7e9; --soft: #9aa2ad;
  --rule: #2d3138; --wash: #1e2126; --good: #4fd0a5; --bad: #ff9d5c;
  --c0: #58b4f0; --c1: #ff8b3d; --c2: #2fc79a; --c3: #e39ac0; --c4: #f0b429; --c5: #9fd6ff;
  --c6: #b5b5b5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 1200px; background: var(--paper);
  color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.8rem 0 .6rem; padding-top: 1rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .4rem 0; max-width: 75ch; }
.sub, figcaption, .note { color: var(--soft); }
.lead { font-size: 1.1rem; margin-top: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .3rem 0 .8rem;
  min-width: 100%; font-size: .88rem; }
small { color: var(--soft); }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { padding: .32rem .5rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; padding-left: .2rem; }
thead th { font-weight: 600; color: var(--soft); font-size: .82rem; vertical-align: bottom; }
tbody th { font-weight: 500; }
tr.baseline { background: var(--wash); }
.good { color: var(--good); } .bad { color: var(--bad); }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.3rem; list-style: none; padding: 0;
  margin: .6rem 0; font-size: .92rem; }
.swatch { vertical-align: middle; margin-right: .4rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 430px), 1fr));
  gap: 1.4rem; }
figure { margin: .4rem 0; }
.chart { width: 100%; height: auto; display: block; overflow: visible; }
.wide .chart { max-width: 900px; }
.chart text { font-size: 12px; fill: var(--soft); }
.chart .head { font-size: 13px; font-weight: 600; fill: var(--ink); }
.chart .label { fill: var(--ink); font-variant-numeric: tabular-nums; }
.chart .mid { text-anchor: middle; } .chart .end { text-anchor: end; }
.chart .grid { stroke: var(--rule); fill: none; } .chart .axis { stroke: var(--soft); fill: none; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart .dot { stroke: var(--paper); stroke-width: 1.5; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.4rem; margin: .4rem 0; }
dt { color: var(--soft); } dd { margin: 0; }
@media print { body { max-width: none; padding: 0; } figure, table { break-inside: avoid; } }
"""
_COLOURS: Final = "".join(
    f".c{k} {{ stroke: var(--c{k}); }} .dot.c{k} {{ fill: var(--c{k}); }}\n" for k in range(7)
)


def page(title: str, body: Iterable[str]) -> str:
    """A whole HTML document."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{_COLOURS}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def table(
    headings: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], caption: str = ""
) -> str:
    """A table; a row is its class and its cells, which are HTML already."""
    top = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    lines = [
        f"<tr{f' class={kind!r}' if kind else ''}>"
        f'<th scope="row">{cells[0]}</th>'
        + "".join(f"<td>{cell}</td>" for cell in cells[1:])
        + "</tr>"
        for kind, cells in rows
    ]
    return (
        f'<div class="scroll"><table>{top}<thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of names and values."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl>{items}</dl>"
