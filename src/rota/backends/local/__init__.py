"""One machine as a cluster: real processes on virtual nodes; docs/local.md.

Names are imported on first use, so that submitting or listing jobs loads no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rota.backends.local.local_backend import LocalBackend
    from rota.backends.local.request import Request
    from rota.backends.local.state_dir import StateDir

__all__ = ["LocalBackend", "Request", "StateDir"]
_HOMES: Final = {"LocalBackend": "local_backend", "Request": "request", "StateDir": "state_dir"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
