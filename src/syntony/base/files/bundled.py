"""Files that come with the package and have names without a path: example algorithms, configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from syntony.base.wording import did_you_mean


def bundled(folder: Path, ending: str) -> dict[str, Path]:
    """The files of a folder with this ending, by name."""
    return {path.stem: path for path in sorted(folder.glob(f"*{ending}")) if not path.stem.startswith("_")}


def ours(text: str, files: Mapping[str, Path]) -> str:
    """The end of the sentence about a missing file: "; of ours there are ring, tree (did you mean ring?)"."""
    return f"; of ours there are {', '.join(files)}{did_you_mean(Path(text).stem, files)}"
