"""The page of a contest of agents that let networks grow: who is ahead, where, and when."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.dash import svg
from rota.dash.axes import Axis, nice_step
from rota.dash.page import charts, legend, page, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DRAWN: Final = 7
"""Choosers that get a line; colours do not tell more apart."""


def render(found: Mapping[str, Any]) -> str:
    """The page as text; `found` is what `rota adapt evaluate --json` prints."""
    cases = found["cases"]
    body = [
        "<h1>Networks that grow</h1>",
        f'<p class="sub">Accuracy at the deadline on the test split, {len(cases)} cases</p>',
        _standings(found["standings"]),
        _differences(found["differences"]),
        *_by_network(found["standings"], cases),
    ]
    return page("Networks that grow", body)


def _points(value: float) -> str:
    return f"{100 * value:+.2f}"


def _standings(standings: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        ("", [escape(one["name"]), f"{100 * one['accuracy']:.2f} %", _points(one["gain"]),
              escape(one["about"])])
        for one in standings
    ]  # fmt: skip
    heads = ["who decides", "accuracy", "over no growth", "what it is"]
    return table(heads, rows, "Means over all cases and seeds; differences in points")


def _differences(differences: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        ("", [f"{escape(one['agent'])} against {escape(one['baseline'])}", _points(one["mean"]),
              f"{_points(one['low'])} to {_points(one['high'])}"])
        for one in differences
    ]  # fmt: skip
    heads = ["pair", "points", "95 % interval"]
    return table(heads, rows, "Paired differences") if rows else ""


def _by_network(standings: Sequence[Mapping[str, Any]], cases: Sequence[str]) -> list[str]:
    """One chart for each start network: the gain over no growth by the time of the change."""
    drawn = [one for one in standings if one["lines"]][:_DRAWN]
    times = list(dict.fromkeys(_when(case) for case in cases))
    figures = [
        _figure(f"network-{k}", name, drawn, times)
        for k, name in enumerate(dict.fromkeys(case.partition("/")[0] for case in cases))
    ]
    names = [f"{svg.swatch(k)} {escape(one['name'])}" for k, one in enumerate(drawn)]
    about = (
        "<p>Points of accuracy over the same trainings without growth, by the time at which the "
        "GPUs change; means over numbers of GPUs and seeds.</p>"
    )
    return ["<h2>By start network</h2>", about, legend(names), charts(figures)]


def _when(case: str) -> str:
    """The time of a case such as `waves-front/early-middle-1to2`."""
    return case.partition("/")[2].rpartition("-")[0]


def _figure(key: str, name: str, drawn: Sequence[Mapping[str, Any]], times: Sequence[str]) -> str:
    lines, values = [], [0.0]
    for k, one in enumerate(drawn):
        own = [line for line in one["lines"] if line["case"].startswith(f"{name}/")]
        means = [
            _mean([100 * line["gain"] for line in own if _when(line["case"]) == when])
            for when in times
        ]
        lines.append(svg.Line(one["name"], k, range(len(times)), means))
        values += [mean for mean in means if mean is not None]
    step = nice_step(max(max(values) - min(values), 1e-3) / 4)
    low, high = np.floor(min(values) / step), np.ceil(max(values) / step)
    marks = [(k * step, f"{k * step:g}") for k in range(int(low), int(high) + 1)]
    y = Axis("points over no growth", low * step, max(high * step, low * step + step), marks)
    x = Axis("when GPUs change", 0, max(1, len(times) - 1), list(enumerate(times)))
    about = f"Gain over no growth on {name}, by the time of the change, for each chooser."
    return svg.chart(key, name, about, lines, x, y)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
