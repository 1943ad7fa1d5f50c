"""A plot as a file: whole or not at all, like all others."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.command import UserError
from syntony.base.files.whole_file import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figure(path: str | Path, figure: Figure, **options: Any) -> None:
    """Writes it as what the name ends in (.png, .svg, .pdf; .png where it ends in nothing); `options` are savefig's.

    Raises FileError where it cannot be written, and UserError for another ending.
    """
    content = io.BytesIO()
    try:
        figure.savefig(content, format=Path(path).suffix[1:] or "png", **options)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    write_bytes(path, content.getvalue())
