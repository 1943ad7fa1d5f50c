"""Rows of numbers: finds equal rows, cuts and pads ragged ones. Ragged columns are an offset column and a flat one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.signedinteger]


def ascending(numbers: Integers) -> Integers:
    """The different numbers, ascending.

    Sorts. np.unique hashes since NumPy 2.3, which takes a hundred times as long for a million numbers.
    """
    found: Integers = np.sort(numbers, axis=None)
    return found[np.r_[True, found[1:] != found[:-1]]] if len(found) else found


def distinct(rows: Integers) -> tuple[Integers, Integers]:
    """The first row of each class of equal rows (entries from -1), and the class of every row."""
    key, kinds = np.zeros(len(rows), np.int64), 1
    for column in rows.T:
        # Combines one more column at a time into a single number, so that only plain numbers are compared.
        values = int(column.max(initial=0)) + 2
        if kinds * values >= 1 << 62:
            first, key = _numbered(key, kinds)
            kinds = len(first)
        key, kinds = key * values + column + 1, kinds * values
    return _numbered(key, kinds)


def alike(offset: Integers, column: Integers) -> Integers:
    """The class of every piece of a ragged column; equal pieces (entries from -1) are of one class."""
    lengths = np.diff(offset)
    kind, kinds = np.zeros(len(lengths), np.int64), 0
    for length in ascending(lengths):  # pieces of one length are a table without padding
        chosen = np.flatnonzero(lengths == length)
        first, kind[chosen] = distinct(column[offset[chosen][:, None] + np.arange(length)])
        kind[chosen] += kinds
        kinds += len(first)
    return kind


def in_order(numbers: Integers) -> Integers:
    """A stable argsort of numbers from 0 on.

    Small numbers are radix-sorted, which is much faster.
    """
    short = numbers.astype(np.int16) if numbers.max(initial=0) < 1 << 15 else numbers
    return np.argsort(short, kind="stable")


def first_uses(numbers: Integers, limit: int) -> Integers:
    """The first position of each of 0..limit-1 in `numbers`; -1 if it does not occur."""
    first = np.full(limit, -1, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # the last assignment wins
    return first


def _numbered(key: Integers, limit: int) -> tuple[Integers, Integers]:
    """The first of each class of equal keys in 0..limit-1, and the class of every key."""
    if limit > 4 * len(key) + 1024:
        _, first, kind = np.unique(key, return_index=True, return_inverse=True)
        return first, kind
    first = first_uses(key, limit)
    number = np.cumsum(first >= 0) - 1
    return first[first >= 0], number[key]


def pieces(column: Integers, first: Integers, lengths: Integers) -> Integers:
    """The concatenation of column[first[i] : first[i] + lengths[i]] for all i."""
    before = np.cumsum(lengths) - lengths
    at = np.repeat(first - before, lengths) + np.arange(int(lengths.sum()))
    return column[at]


def ragged(offset: Integers, column: Integers) -> Integers:
    """The pieces of a column as rows of a table, padded with -1."""
    lengths = np.diff(offset)
    table = np.full((len(lengths), int(lengths.max(initial=0))), -1, np.int64)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    table[owner, np.arange(len(column)) - offset[owner]] = column
    return table
