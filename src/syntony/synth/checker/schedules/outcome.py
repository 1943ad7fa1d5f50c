"""Checks that demanded ranks end with whole values, equal everywhere, and that no transfer is unnecessary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syntony.base.rows import ascending
from syntony.synth.checker.schedules.columns import Columns, Mask, Numbers, ranks_of
from syntony.synth.checker.schedules.holdings import Holdings
from syntony.synth.checker.verdict import FaultError, Verdict, listed


def check_outcome(columns: Columns, holdings: Holdings, chunks: Sequence[int]) -> None:
    """Proves the outcome for these chunks. Raises FaultError."""
    used = _needed(holdings, _goals(columns, holdings, np.asarray(chunks, np.int64)))
    idle = ~used[holdings.made]
    if idle.any():
        t = int(idle.argmax())
        dst = int(columns.dst[t])
        raise columns.at(t, f"needless: {columns.name(dst)} neither needs it nor passes it on to who does", dst)


def _goals(columns: Columns, holdings: Holdings, chunks: Numbers) -> Numbers:
    """One holding for every demanded (rank, chunk): whole, and summed in the same order as at all other such ranks."""
    first, past = columns.contract.target_span(columns.block[chunks])
    low, high = np.zeros((2, len(columns.block)), np.int64)
    low[chunks], high[chunks] = first, past
    chunk, tree = columns.chunk[holdings.held], columns.tree[holdings.held]
    agent = holdings.agent
    ends = np.flatnonzero(columns.whole[holdings.held] & (agent >= low[chunk]) & (agent < high[chunk]))
    spot = chunk * columns.agents + agent
    ends = ends[np.lexsort((holdings.begin[ends], tree[ends], spot[ends]))]

    def starts(*keys: Numbers) -> Mask:
        """Marks those of `ends` that are the first with their keys."""
        changes: Mask = np.logical_or.reduce([np.diff(key[ends], prepend=-1) != 0 for key in keys])
        return changes

    met = np.bincount(chunk[ends[starts(spot)]], minlength=len(columns.block))
    if (met < high - low).any():
        lacking = int(chunks[(met[chunks] < past - first).argmax()])
        have = set(agent[ends[chunk[ends] == lacking]].tolist())
        rank = next(rank for rank in range(low[lacking], high[lacking]) if rank not in have)
        raise _lacks(columns, holdings, rank, lacking)
    ends = ends[starts(spot, tree)]  # the earliest of equal sums at a rank
    # A chunk's sum is good if as many ranks hold it as required.
    trees = int(tree.max(initial=0)) + 1
    _, sums, holders = np.unique(chunk[ends] * trees + tree[ends], return_inverse=True, return_counts=True)
    common = holders[sums] == (high - low)[chunk[ends]]
    agreed = np.zeros(len(columns.block), np.bool_)
    agreed[chunk[ends[common]]] = True
    apart = (high > low) & ~agreed
    if apart.any():
        raise _differ(columns, int(apart.argmax()), chunk[ends], agent[ends], tree[ends])
    ends = ends[common]
    ends = ends[np.lexsort((holdings.begin[ends], spot[ends]))]
    goals: Numbers = ends[starts(spot)]
    return goals


def _needed(holdings: Holdings, goals: Numbers) -> Mask:
    """Marks the holdings that serve the goals, walking back from each result to what it was made from."""
    sources = np.r_[holdings.taken, holdings.spent[:, 1]]
    makes = np.r_[holdings.made, holdings.spent[:, 0]]
    sources = sources[np.argsort(makes, kind="stable")]
    count = np.bincount(makes, minlength=len(holdings.held))
    offset = np.r_[0, np.cumsum(count)]
    needed = np.zeros(len(holdings.held), np.bool_)
    front = goals
    while len(front):
        needed[front] = True
        behind = np.repeat(offset[front] - np.r_[0, np.cumsum(count[front])[:-1]], count[front])
        reached = sources[behind + np.arange(len(behind))]
        front = ascending(reached[~needed[reached]])
    return needed


def _differ(columns: Columns, chunk: int, chunks: Numbers, agents: Numbers, trees: Numbers) -> FaultError:
    held: dict[int, set[int]] = {}
    for rank, tree in zip(agents[chunks == chunk].tolist(), trees[chunks == chunk].tolist(), strict=True):
        held.setdefault(rank, set()).add(tree)
    first = min(held)
    shared = set(held[first])
    for rank in sorted(held):
        shared &= held[rank]
        if not shared:
            break
    message = f"rank {rank} ends with chunk {chunk} summed in another order than rank {first}"
    return FaultError(Verdict(False, message, agent=rank, step=columns.steps - 1, chunk=chunk))


def _lacks(columns: Columns, holdings: Holdings, rank: int, chunk: int) -> FaultError:
    held = holdings.held[(holdings.agent == rank) & (columns.chunk[holdings.held] == chunk)].tolist()
    lacking = f"rank {rank} never receives chunk {chunk}"
    if held:
        have = columns.contributors(max(held, key=lambda value: columns.contributors(value).bit_count()))
        missing = ranks_of(columns.all_contributors(chunk) & ~have)
        lacking = f"rank {rank} lacks the contributions of ranks {listed(missing)} to chunk {chunk}"
    message = f"after step {columns.steps - 1}, the last, {lacking}"
    return FaultError(Verdict(False, message, agent=rank, step=columns.steps - 1, chunk=chunk))
