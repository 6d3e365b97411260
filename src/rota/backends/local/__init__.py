"""One machine as a cluster: real processes on virtual nodes; docs/local.md.

Whoever only submits or looks needs neither numpy nor anything else of the backend.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rota.backends.local.backend import LocalBackend
    from rota.backends.local.request import Request
    from rota.backends.local.store import Store

__all__ = ["LocalBackend", "Request", "Store"]
_HOMES: Final = {"LocalBackend": "backend", "Request": "request", "Store": "store"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
