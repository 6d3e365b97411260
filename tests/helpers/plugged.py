"""A package as pip would have installed it into a folder: modules, metadata, entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def install(
    folder: Path, package: str, points: Mapping[str, Mapping[str, str]], **modules: str
) -> Path:
    """Put a package there; `points` are its entry points by group, `modules` the text of each."""
    about = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = []
    for group, named in points.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in named.items()), ""]
    (about / "entry_points.txt").write_text("\n".join(lines))
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder
