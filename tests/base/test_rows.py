"""Rows of numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.rows import ascending


@given(st.lists(st.lists(st.integers(-3, 1 << 40), min_size=2, max_size=2)))
def test_different_numbers_ascend(rows: list[list[int]]) -> None:
    table = np.asarray(rows, np.int64).reshape(-1, 2)
    assert ascending(table).tolist() == sorted({number for row in rows for number in row})
