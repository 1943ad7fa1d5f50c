"""Cells under each other, whatever their lengths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syntony.base.text_table import aligned

CELL = st.text("ab1.", min_size=1, max_size=9)


def test_a_table() -> None:
    rows = [("link", "used", ""), ("0 -> 1", 3), ("10 -> 11", "25", "full")]
    assert aligned(rows, "<><", "  ") == [
        "  link      used",
        "  0 -> 1       3",
        "  10 -> 11    25  full",
    ]
    assert aligned([], "<>") == []


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[CELL] * n), min_size=1)), st.data())
def test_every_column_has_one_edge(rows: list[tuple[str, ...]], data: st.DataObject) -> None:
    columns = "".join(data.draw(st.sampled_from("<>")) for _ in rows[0])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, line in zip(rows, aligned(rows, columns), strict=True):
        begin = 0
        for cell, side, wide in zip(row, columns, widths, strict=True):
            at = begin if side == "<" else begin + wide - len(cell)
            assert line[at : at + len(cell)] == cell
            begin += wide + 2
