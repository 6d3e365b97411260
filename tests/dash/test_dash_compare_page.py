"""The page of `rota compare`."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest

from rota.dash import axes, svg, units
from rota.dash.compare_page import render, write_report

if TYPE_CHECKING:
    from pathlib import Path

NASTY = 'a<script>alert("x")</script>&b.csv'
VOID = {"meta"}


def results(policies: int = 3, traces: tuple[str, ...] = ("one", NASTY)) -> dict[str, Any]:
    """What `rota compare` might have found; values vary a little from policy to policy."""
    names = [f"policy-{k}" for k in range(policies)]
    grid = np.geomspace(3, 4e5, 160)
    curves = [
        {
            "trace": trace, "policy": name,
            "jct_cdf": {"x": grid.tolist(), "p": np.linspace(0, 1, 160).tolist()},
            "utilisation": {"time_s": np.linspace(0, 9e5, 160).tolist(),
                            "share": [None, *np.random.default_rng(k).random(159).tolist()]},
        }
        for trace in traces for k, name in enumerate(names)
    ]  # fmt: skip
    numbers = dict.fromkeys(
        ("mean_jct_s", "p50_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s", "preemptions",
         "moves"), 7200.0
    )  # fmt: skip
    table = [
        {"trace": t, "policy": n, "runs": 3, "jobs": 100, "utilisation": 0.5, **numbers}
        for t in traces for n in names
    ]  # fmt: skip
    comparisons = [
        {"scope": t, "policy": n, "baseline": names[0], "over": "runs", "n": 3,
         "ratio": 0.2 * k - 0.5, "ratio_ci": (0.2 * k - 0.6, 0.2 * k - 0.3)}
        for t in traces for k, n in enumerate(names) if k
    ]  # fmt: skip
    return {
        "name": "study", "made_at": "2026-01-01T00:00:00+00:00", "versions": {"rota": "0"},
        "cluster": {"about": "2 nodes × 8 GPUs", "gpus": 16}, "seeds": [0, 1, 2],
        "conditions": {"restart_s": 30.0, "resize_s": None, "slot_s": 0.0, "node_mtbf_s": None,
                       "retries": 0, "job_mtbf_s": 7200.0, "trust_trace": True},
        "baseline": names[0], "policies": names, "traces": list(traces), "resamples": 500,
        "notes": ["Ran once."], "table": table, "comparisons": comparisons,
        "runs": [{}] * 6, "curves": curves,
    }  # fmt: skip


class Strict(HTMLParser):
    """Notes the tags, and fails where they are not nested properly."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.ids += [value or "" for key, value in attrs if key == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_asks_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, results())
    text = path.read_text()
    page = Strict()
    page.feed(text)
    page.close()
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(page.seen)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|src=|href=", text)
    assert "prefers-color-scheme: dark" in text


def test_text_of_the_users_is_escaped() -> None:
    text = render(results())
    assert "<script" not in text
    assert "a&lt;script&gt;" in text


def test_every_chart_is_sound_svg_with_words_for_those_who_cannot_see_it() -> None:
    charts = re.findall(r'(<svg class="chart.*?</svg>)</figure>', render(results()), re.DOTALL)
    assert len(charts) == 2 + 2 + 2  # differences, completion times, utilisation; two traces
    for chart in charts:
        root = ElementTree.fromstring(chart)
        assert root.get("role") == "img"
        assert [child.tag for child in root[:2]] == ["title", "desc"]
        assert all(child.text for child in root[:2])
    words = render(results())
    for label in ("job completion time", "jobs", "GPUs in use", "time since the first job (d)"):
        assert f">{label}</text>" in words


def test_says_what_was_found_and_how_it_was_run() -> None:
    text = render(results())
    assert "policy-1 has the lowest mean JCT: −30.0 % against policy-0" in text
    assert "Ran once." in text
    assert "<dt>cost of starting again after a stop</dt><dd>30.0 s</dd>" in text
    assert "<dt>cost of a resize or move</dt><dd>the same</dd>" in text
    assert "<dt>job failures</dt><dd>every 2.00 h on average</dd>" in text
    assert "<dt>retries of a failed job</dt><dd>0</dd>" in text
    assert "<dt>estimates</dt><dd>as the trace gives them</dd>" in text


def test_a_lone_policy_has_a_report_too() -> None:
    text = render({**results(1), "comparisons": []})
    assert "Difference to the baseline" not in text
    assert "Job completion times" in text


def test_a_report_of_six_policies_stays_small() -> None:
    traces = tuple(f"trace {k}" for k in range(6))
    assert len(render(results(6, traces)).encode()) < 500_000


def test_many_policies_can_be_told_apart() -> None:
    swatches = {svg.swatch(k) for k in range(16)}
    assert len(swatches) == 16


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        ([90.0, 30.0], ["90.0 s", "30.0 s"]),
        ([7200.0, 60.0], ["2.00 h", "0.02 h"]),
        ([86400 * 30.0, None], ["30.0 d", "–"]),
        ([], []),
    ],
)
def test_a_column_of_times_has_one_unit(seconds: list[float | None], shown: list[str]) -> None:
    assert units.times(seconds) == shown


def test_axes_mark_round_values() -> None:
    assert [text for _, text in axes.time_axis("t", 9e5).ticks] == ["0", "5", "10"]
    assert [text for _, text in axes.log_time_axis("t", 5, 5000).ticks] == [
        "10 s", "1 min", "10 min", "1 h",
    ]  # fmt: skip
    axis = axes.log_time_axis("t", 0.0, 0.0)
    assert 0 <= axis.at(0.0) <= axis.at(1.0) <= 1
