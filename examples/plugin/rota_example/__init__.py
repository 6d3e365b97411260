"""One plug-in of each kind that rota takes; docs/extending.md explains them."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""Where the scenario files are."""
