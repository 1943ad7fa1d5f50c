"""Files that come with the package and that one can name without a path: example algorithms, configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from syntony.base.wording import did_you_mean


def bundled(folder: Path, ending: str) -> dict[str, Path]:
    """The files of a folder that end so, by the name that stands for them."""
    return {path.stem: path for path in sorted(folder.glob(f"*{ending}")) if not path.stem.startswith("_")}


def ours(text: str, files: Mapping[str, Path]) -> str:
    """For the sentence about a file that is not there: "; of ours there are ring, tree (did you mean ring?)"."""
    return f"; of ours there are {', '.join(files)}{did_you_mean(Path(text).stem, files)}"
