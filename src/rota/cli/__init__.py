"""The verbs: parse, call the library, print. Results on stdout, everything else on stderr."""

from rota.cli.app import main

__all__ = ["main"]
