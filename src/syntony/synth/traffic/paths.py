"""Paths: all shortest paths through the switches, computed between switches instead of between hosts.

    host 3 ─▶ nic ─▶ leaf 0 ═══▶ spine 0 ═══▶ leaf 1 ─▶ nic ─▶ host 9
    └───── head ─────┘      ═══▶ spine 1 ═══▶ └───── tail ─────┘

The only way out of a host up to the first switch with a choice is its *head*, the only way in is its *tail*; what lies
between is the same for all hosts below two switches, and is computed once. One breadth-first search, run for many
destinations at once as a product with the (sparse) matrix of links, gives the distance of every node to them; a link
that leads one hop closer is an equal-cost next hop. All links count the same, whatever their bandwidth, as in data
centre routing.

Paths pass through ranks only if there is no way around them: the router of a torus node, a BCube server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.base.rows import ascending
from syntony.synth.simulation.flows import Paths
from syntony.synth.traffic.messages import Column, TooMuchError
from syntony.synth.traffic.ragged import offsets, ranges
from syntony.topologies.topology import Topology

MAX_PATHS = 128
"""If there are more equal-cost paths, this many are listed, evenly spread over all of them."""
_MOST_LINKS = 50_000_000
_AT_ONCE = 512  # destinations searched for together: bounds the memory of large networks

Pick = Callable[[Column, Column, Column], Column]
"""(indices of walkers, their current nodes, their numbers of next links) -> the link that each takes."""


class PathFinder:
    """The shortest paths between ranks of a topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        around = _Search(topology, through_ranks=False)
        self._searches = (around, _Search(topology, through_ranks=True))

    def every(self, src: Column, dst: Column) -> Paths:
        """One set per pair of ranks: all its shortest paths, at most MAX_PATHS; an empty path from a rank to itself."""
        return self._by_search(src, dst, lambda search, rows: search.every(src[rows], dst[rows]))

    def walk(self, src: Column, dst: Column, pick: Pick) -> Paths:
        """One path per pair: at every node, `pick` chooses among the next links, as a switch does."""

        def walk(search: _Search, rows: Column) -> Paths:
            return search.walk(src[rows], dst[rows], lambda who, node, choices: pick(rows[who], node, choices))

        return self._by_search(src, dst, walk)

    def _by_search(self, src: Column, dst: Column, find: Callable[[_Search, Column], Paths]) -> Paths:
        """Around ranks if possible, through them otherwise."""
        around, through = self._searches
        reached = around.reaches(src, dst)
        if reached.all():
            return find(around, np.arange(len(src)))
        cut_off = np.flatnonzero(~reached & ~through.reaches(src, dst))
        if len(cut_off):
            ends = f"rank {src[cut_off[0]]} to rank {dst[cut_off[0]]}"
            raise UserError(f"{self.topology.name}: no path leads from {ends}, so nothing can be sent there")
        rows = np.flatnonzero(reached), np.flatnonzero(~reached)
        parts = find(around, rows[0]), find(through, rows[1])
        return _taken(_stacked(parts), np.argsort(np.concatenate(rows)))


class _Search:
    """Shortest paths, either through ranks or around them."""

    def __init__(self, topology: Topology, through_ranks: bool) -> None:
        self._topology = topology
        self._through_ranks = through_ranks
        self._src = np.asarray([link.src for link in topology.links], np.int64)
        self._dst = np.asarray([link.dst for link in topology.links], np.int64)
        self._is_rank = np.arange(len(topology.nodes)) < topology.ranks
        order = np.argsort(self._src, kind="stable")
        self._leaving = order  # links by source, then id
        self._first = np.searchsorted(self._src[order], np.arange(len(topology.nodes) + 1))
        self._column: dict[int, int] = {}
        self._hops = np.zeros((len(topology.nodes), 0), np.int16)

    @cached_property
    def _ends(self) -> tuple[Column, list[tuple[int, ...]], Column, list[tuple[int, ...]]]:
        """Per rank, the end and the links of its head; the beginning and the links of its tail."""
        out: list[list[int]] = [[] for _ in self._topology.nodes]
        into: list[list[int]] = [[] for _ in self._topology.nodes]
        for link in self._topology.links:
            out[link.src].append(link.id)
            into[link.dst].append(link.id)
        cables = sorted(zip(self._src, self._dst, strict=True)) == sorted(zip(self._dst, self._src, strict=True))
        ranks = range(self._topology.ranks)
        heads = [self._only_way(rank, out, self._dst) if cables else (rank, ()) for rank in ranks]
        tails = [self._only_way(rank, into, self._src) if cables else (rank, ()) for rank in ranks]
        return (
            np.asarray([node for node, _ in heads], np.int64),
            [links for _, links in heads],
            np.asarray([node for node, _ in tails], np.int64),
            [links[::-1] for _, links in tails],
        )

    def _only_way(self, rank: int, links: list[list[int]], other_end: Column) -> tuple[int, tuple[int, ...]]:
        """From the rank to the first node with a choice; nowhere if that leads to a rank first."""
        node, before = rank, -1
        way: list[int] = []
        while True:
            onward = [link for link in links[node] if other_end[link] != before]
            if len(onward) != 1:
                return (node, tuple(way)) if onward and way else (rank, ())
            before, node = node, int(other_end[onward[0]])
            if self._is_rank[node]:
                return rank, ()
            way.append(onward[0])

    def reaches(self, src: Column, dst: Column) -> NDArray[np.bool_]:
        """Whether each pair has a path."""
        head, _, tail, _ = self._ends
        a, b = self._middle(src, dst, head, tail)
        return self._distance(a, b) >= 0

    def every(self, src: Column, dst: Column) -> Paths:
        head, head_links, tail, tail_links = self._ends
        a, b = self._middle(src, dst, head, tail)
        nodes = len(self._topology.nodes)
        keys, number = np.unique(a * nodes + b, return_inverse=True)
        middles = self._all_between(keys // nodes, keys % nodes)
        links = int(
            (middles.path_offset[middles.set_offset[1:]] - middles.path_offset[middles.set_offset[:-1]])[number].sum()
        )
        if links > _MOST_LINKS:
            raise TooMuchError(
                f"{self._topology.name}: all shortest paths between these ranks have {links} links, at most "
                f"{_MOST_LINKS} are listed; ecmp follows one path at a time"
            )
        return _joined(head_links, _taken(middles, number), tail_links, src, dst)

    def walk(self, src: Column, dst: Column, pick: Pick) -> Paths:
        head, head_links, tail, tail_links = self._ends
        a, b = self._middle(src, dst, head, tail)
        hops = self._distance(a, b)
        offset = offsets(hops)
        links = np.zeros(offset[-1], np.int64)
        node, who, step = a.copy(), np.flatnonzero(hops > 0), 0
        while len(who):
            first, count, choices = self._next_links(node[who], b[who])
            taken = choices[first + pick(who, node[who], count)]
            links[offset[who] + step] = taken
            node[who] = self._dst[taken]
            step += 1
            who = who[hops[who] > step]
        return _joined(head_links, Paths.single(offset, links), tail_links, src, dst)

    def _middle(self, src: Column, dst: Column, head: Column, tail: Column) -> tuple[Column, Column]:
        """Beginning and end of the middle of the path; empty from a rank to itself."""
        same = src == dst
        return np.where(same, src, head[src]), np.where(same, src, tail[dst])

    def _distance(self, a: Column, b: Column) -> Column:
        """Hops from a to b; -1 if there is no path."""
        self._search(ascending(b))
        return self._hops[a, self._columns_of(b)].astype(np.int64)

    def _columns_of(self, nodes: Column) -> Column:
        keys, number = np.unique(nodes, return_inverse=True)
        columns: Column = np.asarray([self._column[node] for node in keys.tolist()], np.int64)[number]
        return columns

    def _search(self, targets: Column) -> None:
        """Fills the distances to the targets."""
        from scipy.sparse import csr_array

        new = [node for node in targets.tolist() if node not in self._column]
        if not new:
            return
        nodes = len(self._topology.nodes)
        towards = csr_array((np.ones(len(self._src), np.float32), (self._src, self._dst)), shape=(nodes, nodes))
        blocks = [self._hops]
        for begin in range(0, len(new), _AT_ONCE):
            some = new[begin : begin + _AT_ONCE]
            hops = np.full((nodes, len(some)), -1, np.int16)
            hops[some, np.arange(len(some))] = 0
            reached, level = (hops == 0).astype(np.float32), 0
            while reached.any():
                level += 1
                found = ((towards @ reached) > 0) & (hops < 0)
                hops[found] = level
                reached = found.astype(np.float32)
                if not self._through_ranks:
                    reached[self._is_rank] = 0
            for column, node in enumerate(some, self._hops.shape[1] + begin):
                self._column[node] = column
            blocks.append(hops)
        self._hops = np.concatenate(blocks, axis=1)

    def _next_links(self, node: Column, target: Column) -> tuple[Column, Column, Column]:
        """Per walker, the range (first, count) in the third column of its next links, by id."""
        nodes = len(self._topology.nodes)
        keys, number = np.unique(node * nodes + target, return_inverse=True)
        here, there = keys // nodes, keys % nodes
        column = self._columns_of(there)
        degree = self._first[here + 1] - self._first[here]
        owner = np.repeat(np.arange(len(keys)), degree)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(degree) - degree, degree)
        link = self._leaving[self._first[here][owner] + within]
        then = self._dst[link]
        closer = self._hops[then, column[owner]] == self._hops[here, column][owner] - 1
        if not self._through_ranks:
            closer &= ~self._is_rank[then] | (then == there[owner])
        count = np.bincount(owner[closer], minlength=len(keys))
        first = np.cumsum(count) - count
        return first[number], count[number], link[closer]

    def _all_between(self, a: Column, b: Column) -> Paths:
        """One set per pair of nodes, at most MAX_PATHS in each."""
        hops = self._distance(a, b)
        pair, node = np.arange(len(a)), a.copy()  # one row per started path
        way = np.full((len(a), int(hops.max(initial=0))), -1, np.int64)
        for step in range(way.shape[1]):
            going = np.where(hops[pair] > step, 1, 0)
            first, count, choices = self._next_links(node, b[pair])
            count = np.where(going, count, 1)
            row = np.repeat(np.arange(len(pair)), count)
            which = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
            kept = _evenly(pair[row], MAX_PATHS)
            row, which = row[kept], which[kept]
            pair, way, goes = pair[row], way[row], going[row] > 0
            node = node[row]
            taken = choices[first[row[goes]] + which[goes]]
            way[goes, step] = taken
            node[goes] = self._dst[taken]
        paths = np.bincount(pair, minlength=len(a))
        length = hops[pair]
        return _paths(
            offsets(paths),
            offsets(length),
            way[np.arange(way.shape[1]) < length[:, None]],
        )


def _evenly(group: Column, most: int) -> NDArray[np.bool_]:
    """Marks the rows to keep: at most `most` rows of a group, evenly spread. Rows of a group are adjacent."""
    size = np.bincount(group)[group] if len(group) else group
    first = np.searchsorted(group, group)
    place = np.arange(len(group)) - first
    kept: NDArray[np.bool_] = (size <= most) | (place == 0) | (place * most // size != (place - 1) * most // size)
    return kept


def _taken(sets: Paths, which: Column) -> Paths:
    """The sets with these numbers, in this order."""
    paths = sets.set_offset[which + 1] - sets.set_offset[which]
    path = ranges(sets.set_offset[which], paths)
    links = sets.path_offset[path + 1] - sets.path_offset[path]
    return _paths(
        offsets(paths),
        offsets(links),
        sets.link[ranges(sets.path_offset[path], links)],
    )


def _stacked(parts: tuple[Paths, ...]) -> Paths:
    """The sets of all parts, one part after another."""
    return _paths(
        offsets(np.concatenate([np.diff(part.set_offset) for part in parts])),
        offsets(np.concatenate([np.diff(part.path_offset) for part in parts])),
        np.concatenate([part.link for part in parts]),
    )


def _joined(
    heads: list[tuple[int, ...]], middles: Paths, tails: list[tuple[int, ...]], src: Column, dst: Column
) -> Paths:
    """Head of the source, middle, tail of the destination: set i belongs to pair i."""
    pair = np.repeat(np.arange(len(src)), np.diff(middles.set_offset))
    apart = (src != dst)[pair]
    head_offset, head = _flat(heads)
    tail_offset, tail = _flat(tails)
    head_count = np.where(apart, np.diff(head_offset)[src[pair]], 0)
    tail_count = np.where(apart, np.diff(tail_offset)[dst[pair]], 0)
    middle_count = np.diff(middles.path_offset)
    offset = offsets(head_count + middle_count + tail_count)
    link = np.zeros(offset[-1], np.int64)
    link[ranges(offset[:-1], head_count)] = head[ranges(head_offset[src[pair]], head_count)]
    link[ranges(offset[:-1] + head_count, middle_count)] = middles.link
    link[ranges(offset[1:] - tail_count, tail_count)] = tail[ranges(tail_offset[dst[pair]], tail_count)]
    return _paths(middles.set_offset, offset, link)


def _flat(lists: list[tuple[int, ...]]) -> tuple[Column, Column]:
    offset = offsets([len(links) for links in lists])
    return offset, np.asarray([link for links in lists for link in links], np.int64)


def _paths(set_offset: Column, path_offset: Column, link: Column) -> Paths:
    return Paths(set_offset, path_offset, link, np.ones(len(link)))
