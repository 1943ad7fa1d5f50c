"""Writes a plot as a file, whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.command import UserError
from syntony.base.files.whole_file import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figure(path: str | Path, figure: Figure, **options: Any) -> None:
    """Writes the format of the name's ending (.png, .svg, .pdf; default .png); `options` are savefig's.

    Raises FileError if it cannot be written, and UserError for another ending.
    """
    content = io.BytesIO()
    try:
        figure.savefig(content, format=Path(path).suffix[1:] or "png", **options)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    write_bytes(path, content.getvalue())
