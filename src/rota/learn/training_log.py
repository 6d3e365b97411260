"""The log of a training: scalars for TensorBoard, and the validation curve."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from time import time
from typing import TYPE_CHECKING, Any, Final

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from rota.errors import TrainingError
from rota.traces.text_files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CURVE: Final = "curve.jsonl"


class TrainingLog:
    """One training's log; when a call returns, its line has been handed to the operating system.

    A resumed training continues after `step`: TensorBoard is told to ignore later scalars, and
    later lines of the curve are removed, because those updates will be done again.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self._curve = folder / CURVE
        self._path = folder / f"events.out.tfevents.{int(time()):010d}.rota.{os.getpid()}"
        with _writing(self._path):
            self._file = self._path.open("ab")
        self._records = RecordWriter(self._file)
        self._put(Event(wall_time=time(), file_version="brain.Event:2"))
        begins = SessionLog(status=SessionLog.START)
        self._put(Event(wall_time=time(), step=step + 1, session_log=begins))
        self._forget(step)

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # everything was flushed, or an error said why not
            self._file.close()

    def scalars(self, group: str, facts: Mapping[str, float], step: int) -> None:
        """Write numbers of one step."""
        values = [
            Summary.Value(tag=f"{group}/{name}", simple_value=float(value))
            for name, value in facts.items()
        ]
        self._put(Event(wall_time=time(), step=step, summary=Summary(value=values)))

    def point(self, line: Mapping[str, Any]) -> None:
        """Add a line to the curve."""
        with _writing(self._curve), self._curve.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _put(self, event: Event) -> None:
        with _writing(self._path):
            self._records.write(event.SerializeToString())
            self._file.flush()

    def _forget(self, step: int) -> None:
        if self._curve.is_file():
            lines = self._curve.read_text().splitlines()
            write_text(self._curve, "".join(f"{x}\n" for x in lines if _step(x) <= step))


def _step(line: str) -> float:
    """The update of a line of the curve; infinite if the line is damaged, so that it is removed."""
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"Cannot write {path}: {error.strerror or error}. The checkpoints written before are "
            "untouched. Make room, then go on with --resume."
        ) from None
