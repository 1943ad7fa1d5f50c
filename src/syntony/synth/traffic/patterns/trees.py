"""Binomial trees: in round k, every member that has the data sends it to the one 2^k further.

    round 0   0 ─▶ 1
    round 1   0 ─▶ 2   1 ─▶ 3                       sums go the other way: leaves first
    round 2   0 ─▶ 4   1 ─▶ 5   2 ─▶ 6   3 ─▶ 7

Thakur, Rabenseifner and Gropp (IJHPCA 2005), sections 4.5 (broadcast) and 4.6 (reduce). A member sends to its children
one after another. The root is member 0.
"""

from __future__ import annotations

import numpy as np

from syntony.synth.traffic.messages import Column, Messages, in_order, one_after_another


def broadcast(members: int, size: float) -> Messages:
    """The whole size on every edge."""
    parent, child, follows = _edges(members)
    return Messages.make(members, parent, child, size, _below(parent), follows=follows)


def reduce(members: int, size: float) -> Messages:
    """The whole size on every edge, towards the root."""
    parent, child, _ = _edges(members)
    lower, upper = _below(parent)
    # Rows begin at the leaves: edge e is row n-2-e.
    return Messages.make(members, child[::-1], parent[::-1], size, (members - 2 - upper, members - 2 - lower))


def all_reduce(members: int, size: float) -> Messages:
    """reduce, then broadcast."""
    return one_after_another([reduce(members, size), broadcast(members, size)])


def star(members: int, size: float) -> Messages:
    """gather to the root, size/n bytes from each: every member sends at once (incast)."""
    return Messages.make(members, np.arange(1, members), np.zeros(members - 1), size / members)


def star_out(members: int, size: float) -> Messages:
    """scatter from the root, size/n bytes to each (outcast)."""
    return Messages.make(members, np.zeros(members - 1), np.arange(1, members), size / members)


def _edges(members: int) -> tuple[Column, Column, Column]:
    """Parents and children in the order of rounds, and the edge that each parent serves before."""
    child = np.arange(1, members)
    parent = np.asarray([number - (1 << (number.bit_length() - 1)) for number in range(1, members)], np.int64)
    return parent, child, in_order(parent)


def _below(parent: Column) -> tuple[Column, Column]:
    """Pairs of edges: the lower one, and the one that reaches its parent. Edge c-1 leads to member c."""
    lower = np.flatnonzero(parent > 0)
    return lower, parent[lower] - 1
