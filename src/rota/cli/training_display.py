"""The progress of a training, on stderr."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from rota.learn.training_report import Report

QUIET_S: Final = 30.0
"""The longest silence of a training whose output is no terminal."""
WIDE: Final = 130
"""Columns from which a terminal shows all numbers."""


class TrainingDisplay:
    """One line on stderr that is kept up to date, where there is a terminal; else now and then."""

    def __enter__(self) -> TrainingDisplay:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.fields[phase]:>6}"), BarColumn(10),
            TextColumn("{task.completed}/{task.total}"), TextColumn("{task.fields[says]}"),
            TimeElapsedColumn(), console=self._console, transient=True,
            disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=1, phase="setup", says="drawing traces")
        self._bar.start()
        self._said: tuple[str, float | None] = ("", None)
        self._said_s = 0.0
        self._copy_told = False
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, words: str) -> None:
        """Print lines above the bar."""
        self._console.print(words, markup=False, highlight=False, soft_wrap=True)

    def show(self, report: Report) -> None:
        """Bring the line up to date."""
        if report.copy is not None and not self._copy_told:
            self.say(report.copy.words())
            self._copy_told = True
        if self._console.is_terminal:
            says = _words(report) if self._console.width >= WIDE else _brief(report)
            self._bar.update(
                self._task, completed=report.update, total=max(1, report.updates),
                phase=report.phase, says=says,
            )  # fmt: skip
            return
        news, now_s = (report.phase, report.validation), monotonic()
        ends = report.update == report.updates
        if news != self._said or ends or now_s - self._said_s > QUIET_S:
            where = f"{report.phase} {report.update}/{report.updates}"
            typer.echo(f"{where}: {_words(report)}".removesuffix(": "), err=True)
            self._said_s = now_s
        self._said = news


def _brief(report: Report) -> str:
    """What matters most, in the 45 columns that a plain terminal leaves."""
    facts, parts = report.facts or {}, []
    if report.best is not None:
        change = f" ({report.best / report.strongest[1] - 1:+.1%})" if report.strongest else ""
        parts.append(f"JCT {report.best:.3f}{change}")
    parts += [f"{name} {facts[name]:.2f}" for name in ("entropy", "agreement") if name in facts]
    return ", ".join(parts + [f"{report.rate:,.0f} steps/s"] * (report.rate > 0))


def _words(report: Report) -> str:
    """All there is to say."""
    facts = report.facts or {}
    parts = [f"{report.rate:,.0f} steps/s"] if report.rate else []
    if report.validation is not None:
        parts.append(f"validation JCT {report.validation:.3f} {report.unit}")
    if report.best is not None:
        parts.append(f"best {report.best:.3f}")
    for name, jct in (("teacher", report.teacher), report.strongest or ("", None)):
        if report.best is not None and jct:
            parts.append(f"{report.best / jct - 1:+.1%} against {name} ({jct:.3f})")
    parts += [f"{name} {facts[name]:.3f}" for name in ("jct", "entropy", "agreement")
              if name in facts]  # fmt: skip
    return ", ".join(parts)
