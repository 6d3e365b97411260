"""Reads jobs and nodes through slurmrestd; it never changes anything."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from rota.backends.slurm.http_get import HttpGet
from rota.backends.slurm.replies import jobs_of, nodes_of
from rota.backends.slurm.tools import MOST_SAID, PATIENCE_S
from rota.errors import BackendError, ConfigError

if TYPE_CHECKING:
    from rota.backends.slurm.replies import SlurmJob, SlurmNode

MOST_BYTES: Final = 512 << 20
"""Of one answer; 100,000 jobs are some 300 MB."""
PAGES: Final = ("/openapi/v3", "/openapi")
"""Where slurmrestd lists what it offers."""
_OFFER: Final = re.compile(r"/slurm/v(\d{1,9}(?:\.\d{1,9})*)/(jobs|nodes)/?")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._=-]+")


class Slurmrestd:
    """A slurmrestd, asked in the newest version that it offers."""

    def __init__(
        self,
        address: str,
        token: str = "",
        user: str = "",
        *,
        patience_s: float = PATIENCE_S,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """The token is a JWT of `user`; a unix socket needs none."""
        if token and not _TOKEN.fullmatch(token):
            raise ConfigError("SLURM_JWT is no token; `scontrol token` prints one.")
        self.address = address
        self.version = ""
        """Known when it has been asked."""
        self._http = HttpGet(address, patience_s, most_bytes)
        self._paths: dict[str, str] = {}
        self._headers = {"Accept": "application/json"}
        if token and not self._http.is_local:
            self._headers["X-SLURM-USER-TOKEN"] = token
            if user:
                self._headers["X-SLURM-USER-NAME"] = user

    def jobs(self) -> list[SlurmJob]:
        """What `squeue --json` would say."""
        return jobs_of(self._read("jobs"), "slurmrestd")

    def nodes(self) -> list[SlurmNode]:
        """What `sinfo --json` would say."""
        return nodes_of(self._read("nodes"), "slurmrestd")

    def _read(self, what: str) -> dict[str, Any]:
        try:
            if not self._paths:
                self.version, self._paths = self._newest()
            return self._document(self._paths[what], *self._get(self._paths[what]))
        except BackendError:
            self._paths = {}  # another version may answer next time
            raise

    def _newest(self) -> tuple[str, dict[str, str]]:
        """The newest version that has both, and where it has them."""
        for page in PAGES:
            status, text = self._get(page)
            if status != 404:
                break
        listed = self._document(page, status, text).get("paths")
        found: dict[tuple[int, ...], dict[str, str]] = {}
        for path in listed if isinstance(listed, dict) else ():
            if offer := _OFFER.fullmatch(path):
                version = tuple(int(part) for part in offer[1].split("."))
                found.setdefault(version, {})[offer[2]] = path
        whole = [version for version, paths in found.items() if len(paths) == 2]
        if not whole:
            raise BackendError(
                f"{self.address} offers no list of jobs and nodes; start slurmrestd with its "
                "plugins for that (`slurmrestd -s list` names them)."
            )
        return "v" + ".".join(map(str, max(whole))), found[max(whole)]

    def _document(self, path: str, status: int, text: str) -> dict[str, Any]:
        """What an answer holds; BackendError if that is what went wrong."""
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        errors = answer.get("errors") if isinstance(answer, dict) else None
        if status in (401, 403):
            raise BackendError(
                f"{self.address} refuses this account ({status}); a unix socket is open to the "
                "account that slurmrestd runs as, http needs a token in SLURM_JWT that has not "
                "expired (`scontrol token lifespan=SECONDS`)."
            )
        if status != 200 or errors:
            raise BackendError(f"{self.address}: GET {path}: {status}: {_line(errors or text)}")
        if not isinstance(answer, dict):
            raise BackendError(f"{self.address}: GET {path} gave no JSON object: {_line(text)}")
        return answer

    def _get(self, path: str) -> tuple[int, str]:
        return self._http.get(path, self._headers)


def _line(wrong: Any) -> str:
    """What went wrong, in one line."""
    if isinstance(wrong, list) and all(isinstance(one, dict) for one in wrong):
        wrong = "; ".join(str(one.get("description") or one.get("error") or one) for one in wrong)
    text = " ".join(str(wrong).split())
    return (text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}…") or "nothing was said"
