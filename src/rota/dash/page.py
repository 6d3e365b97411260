"""The frame of every page that rota writes, and its tables: one file, no scripts, no downloads."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import TYPE_CHECKING, Final

from rota.dash.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GENERATOR: Final = '<meta name="generator" content="rota">'
"""By this line a page of ours is known, which a newer one may replace."""
_OVER: Final = ((350, "over1"), (560, "over2"), (850, "over3"))
"""From which width of a table on, in pixels, which hint: each is shown below some page width."""


def page(title: str, body: Iterable[str]) -> str:
    """A whole HTML document; characters that no file can hold become question marks."""
    text = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{GENERATOR}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )
    return text.encode(errors="replace").decode()


def table(
    headings: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], caption: str = ""
) -> str:
    """A table; a row is its class and its cells, which are HTML already.

    Where it is wider than the page it scrolls. Shadows at its edges show that, and a line of text.
    """
    rows = list(rows)
    top = f'<p class="caption">{escape(caption)}</p>' if caption else ""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    lines = [
        f"<tr{f' class={kind!r}' if kind else ''}>"
        f'<th scope="row">{cells[0]}</th>'
        + "".join(f"<td>{cell}</td>" for cell in cells[1:])
        + "</tr>"
        for kind, cells in rows
    ]
    about = escape(caption or headings[0], quote=True)
    return (
        f'{top}{_hint(headings, rows)}<div class="scroll" tabindex="0" role="region" '
        f'aria-label="Table: {about}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _hint(headings: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A line that says how to see all columns, shown where the page is too narrow for them."""
    texts = [list(headings), *(list(map(_plain, cells)) for _, cells in rows)]
    width = sum(16 + 7 * max(map(len, column)) for column in zip(*texts, strict=True))
    kinds = [kind for least, kind in _OVER if width >= least]
    if not kinds:
        return ""
    return f'<p class="hint {kinds[-1]}">Scroll the table sideways to see all columns →</p>'


def _plain(cell: str) -> str:
    """The text of a cell without its tags."""
    return unescape(re.sub(r"<[^>]*>", "", cell))


def legend(items: Iterable[str]) -> str:
    """A list on one line; items are HTML already."""
    return f'<ul class="legend">{"".join(f"<li>{item}</li>" for item in items)}</ul>'


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """A few numbers to see first: a value, and below it what it is."""
    items = "".join(f"<li><b>{escape(value)}</b>{escape(name)}</li>" for name, value in pairs)
    return f'<ul class="tiles">{items}</ul>'


def charts(figures: Sequence[str]) -> str:
    """Figures side by side; one alone takes the whole width."""
    return f'<div class="grid-of{" lone" * (len(figures) == 1)}">{"".join(figures)}</div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of names and values."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl>{items}</dl>"
