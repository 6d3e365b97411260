"""One machine as a cluster: real processes on virtual nodes; docs/local.md."""

from rota.backends.local.backend import LocalBackend
from rota.backends.local.machine import machine
from rota.backends.local.request import Request
from rota.backends.local.store import Store

__all__ = ["LocalBackend", "Request", "Store", "machine"]
