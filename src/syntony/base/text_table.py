"""Tables of text: every column as wide as its widest cell."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[object]], columns: str, indent: str = "") -> list[str]:
    """One line per row. `columns`: `<` or `>` per column, the alignment of its cells; rows may be shorter."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max((len(row[at]) for row in cells if at < len(row)), default=0) for at in range(len(columns))]
    return [
        (
            indent + "  ".join(f"{cell:{side}{wide}}" for cell, side, wide in zip(row, columns, widths, strict=False))
        ).rstrip()
        for row in cells
    ]
