"""The page of `rota compare`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest
from pages import Strict

from rota.dash import axes, svg, units
from rota.dash.compare_page import render, write_report
from rota.dash.groups import losses
from rota.dash.page import table

if TYPE_CHECKING:
    from pathlib import Path

NASTY = 'a<script>alert("x")</script>&b.csv'


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


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0 s"), (59.0, "59 s"), (60.0, "1.0 min"), (5400.0, "1.5 h"), (864000.0, "10.0 d")],
)
def test_a_rough_time_has_the_largest_unit_that_it_fills(seconds: float, shown: str) -> None:
    assert units.rough_time(seconds) == shown


def test_axes_mark_round_values() -> None:
    assert [text for _, text in axes.time_axis("t", 9e5).ticks] == ["0", "5", "10"]
    assert [text for _, text in axes.log_time_axis("t", 5, 5000).ticks] == [
        "10 s", "1 min", "10 min", "1 h",
    ]  # fmt: skip
    assert [text for _, text in axes.time_axis("t", 30 * 3600).ticks] == [
        "0",
        "6",
        "12",
        "18",
        "24",
        "30",
    ]
    assert [text for _, text in axes.time_axis("t", 90.0, 30.0).ticks] == [
        "30",
        "45",
        "60",
        "75",
        "90",
    ]
    assert [text for _, text in axes.count_axis("n", 7).ticks] == ["0", "2", "4", "6", "8"]
    assert [text for _, text in axes.count_axis("n", 0).ticks] == ["0", "1"]
    axis = axes.log_time_axis("t", 0.0, 0.0)
    assert 0 <= axis.at(0.0) <= axis.at(1.0) <= 1


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.5, 1.03, ["−50 %", "−40 %", "−30 %", "−20 %", "−10 %", "0 %"]),
        (0.2, 6.0, ["× 0.25", "× 0.5", "× 1", "× 2", "× 4"]),
        (0.005, 300.0, ["× 0.01", "× 0.1", "× 1", "× 10", "× 100"]),
        (0.005, 1e12, ["× 1", "× 1e+04", "× 1e+08", "× 1e+12"]),
    ],
)
def test_marks_of_changes_are_equally_far_apart(low: float, high: float, shown: list[str]) -> None:
    axis = axes.change_axis("x", low, high)
    assert [text for _, text in axis.ticks] == shown
    steps = np.diff([axis.at(value) for value, _ in axis.ticks])
    np.testing.assert_allclose(steps, steps[0])


def test_one_trace_takes_the_whole_width_and_several_share_it() -> None:
    assert 'class="grid-of lone"' in render(results(traces=("one",)))
    assert 'class="grid-of lone"' not in render(results())


def test_only_tables_that_may_not_fit_say_that_they_scroll() -> None:
    wide, narrow = table(["policy"] * 12, [("", ["x"] * 12)]), table(["a", "b"], [("", ["1", "2"])])
    assert "Scroll the table sideways" in wide
    assert "Scroll the table sideways" not in narrow
    for text in (wide, narrow):
        assert 'class="scroll" tabindex="0" role="region"' in text


def test_text_in_charts_keeps_its_size_at_every_width() -> None:
    charts = re.findall(r'<svg class="chart[^>]*>', render(results()))
    assert charts
    assert not any("viewBox" in chart for chart in charts)


def run_of(policy: str, **more: Any) -> dict[str, Any]:
    """What a run says of its groups; jobs take half the time under the second policy."""
    jct_s = {"policy-0": 7200.0, "policy-1": 3600.0}[policy]
    row = {"jobs": 4, "finished": 4, "mean_jct_s": jct_s}
    return {
        "trace": "one", "policy": policy,
        "by_size": [{"size": "1", **row}, {"size": "17+", "jobs": 0}],
        "by_user": [{"user": NASTY, **row}, {"user": None, **row, "mean_jct_s": None}], "users": 40,
        **more,
    }  # fmt: skip


def test_groups_types_and_losses_are_told() -> None:
    lost = {"skipped": 2, "left_out": {"still queued": 1}, "oversized": 0}
    runs = [run_of(f"policy-{k}", jobs_by_gpu_type={"a100": 3}, **lost) for k in range(2)]
    given = {**results(2, ("one",)), "runs": runs}
    given["cluster"] |= {"gpus_by_type": {"v100": 8, "a100": 8}}
    text = render(given)
    assert "100 jobs (some of the log left out, see the end)" in text
    assert '<th scope="row">1 GPU</th><td>4</td><td>2.00 h</td><td>1.00 h</td>' in text
    assert '<th scope="row">(no user)</th><td>4</td><td>–</td><td>–</td>' in text
    assert "17+" not in text  # nobody asked for that many
    assert "Not shown: 38 further users with fewer GPU-hours." in text
    assert "<dd>2 nodes × 8 GPUs, 8 × v100, 8 × a100</dd>" in text
    assert "<dt>types asked for in one</dt><dd>a100: 3 jobs</dd>" in text
    assert "<script" not in text
    assert losses(lost) == ["2 broken lines skipped.", "1 job left out: still queued."]
