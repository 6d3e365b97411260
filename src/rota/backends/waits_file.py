"""Why jobs wait, as of the daemon's last round, in a file that `rota queue` reads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, get_args

from rota.errors import DamagedError
from rota.files import is_count, is_number, read_file, replace_file
from rota.run.wait_reason import Tier, WaitReason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WAITS: Final = "waits.json"


class WaitsFile:
    """Written when a reason changes; jobs with the same reason share one entry."""

    def __init__(self, root: Path) -> None:
        self._path = root / WAITS
        self._last: dict[str, Any] | None = None

    def write(
        self, reasons: Mapping[int, WaitReason], left: Mapping[str, str] | None = None
    ) -> None:
        """Replace all reasons; `left` says of jobs without a number why others start them."""
        # Most jobs share few objects. A reason may name a thousand holders, and hashing takes them
        # all, so each object is looked at once.
        objects = {id(reason): reason for reason in reasons.values()}
        numbers = {reason: k for k, reason in enumerate(dict.fromkeys(objects.values()))}
        number = {key: numbers[reason] for key, reason in objects.items()}
        facts = {
            "reasons": [asdict(reason) for reason in numbers],
            "jobs": {str(uid): number[id(reason)] for uid, reason in reasons.items()},
            "left": dict(left or {}),
        }
        if facts != self._last:
            replace_file(self._path, facts)
            self._last = facts

    def read(self) -> dict[int, WaitReason]:
        """The reasons by uid; none if the file is missing or damaged: nothing depends on it."""
        facts = self._facts()
        listed, jobs = facts.get("reasons"), facts.get("jobs")
        if not isinstance(listed, list) or not isinstance(jobs, dict):
            return {}
        reasons = [_decode(one) for one in listed]
        return {
            int(uid): reason
            for uid, k in jobs.items()
            if uid.isdecimal() and is_count(k) and k < len(reasons) and (reason := reasons[k])
        }

    def left(self) -> dict[str, str]:
        """Jobs that others start, by name, and why; none if the file is missing or damaged."""
        left = self._facts().get("left")
        told = left if isinstance(left, dict) else {}
        return {name: why for name, why in told.items() if isinstance(why, str)}

    def _facts(self) -> dict[str, Any]:
        with suppress(DamagedError, OSError):
            return read_file(self._path) or {}
        return {}


def _decode(facts: object) -> WaitReason | None:
    if not isinstance(facts, dict) or facts.get("tier") not in get_args(Tier):
        return None
    texts = {key: facts.get(key) for key in ("tier", "text", "next", "unit")}
    holders, ahead = facts.get("holders"), facts.get("ahead")
    if not (
        all(isinstance(text, str) for text in texts.values())
        and isinstance(holders, list)
        and all(isinstance(one, list) and len(one) == 2 for one in holders)
        and all(is_count(uid) and is_number(amount) for uid, amount in holders)
        and (ahead is None or is_count(ahead))
    ):
        return None
    pairs = tuple((uid, amount) for uid, amount in holders)
    return WaitReason(**texts, holders=pairs, ahead=ahead)  # type: ignore[arg-type]
