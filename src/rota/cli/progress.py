"""A progress bar for whatever takes longer than two seconds; short commands never show it."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class LateBar:
    """A bar on stderr that appears late and vanishes when done; it needs a terminal.

    rich is imported by the timer that shows the bar, so that quick commands need not wait
    for it.
    """

    def __init__(self, *, after_s: float = 2.0, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._timer = threading.Timer(after_s, self._show)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._what, self._total, self._done = "", 0, 0
        self._bar: Any = None
        self._over = False

    def begin(self, what: str, total: int) -> Callable[[int], None]:
        """Turn to another piece of work; the function returned is told how much of it is done."""
        with self._lock:
            self._what, self._total, self._done = what, total, 0
            if self._bar is not None:
                self._bar.update(0, description=what, total=total or None, completed=0)
        return self._report

    def _report(self, done: int) -> None:
        self._done = done
        if self._bar is not None:
            self._bar.update(0, completed=done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as EtaColumn

        words = TextColumn("{task.description}", markup=False)
        with self._lock:
            if self._over:
                return
            self._bar = Progress(
                words, BarColumn(), MofNCompleteColumn(), EtaColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.add_task(self._what, total=self._total or None, completed=self._done)
            self._bar.start()

    def __enter__(self) -> LateBar:
        if self._shown:
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()
