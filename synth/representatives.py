"""Representatives: a symmetric schedule simulated by one transfer per orbit, without expanding it.

    representative   rank 0 ──▶ rank 1  of chunk 0, then 1 ──▶ 2 of it           the group turns ring and chunks by one
    seen from 0      rank 0 ──▶ rank 1  of chunk 0, then 0 ──▶ 1 of chunk 3      n transfers each; 2 are simulated

Let G be the group that the schedule's generators generate. If no element of G but the identity leaves an agent of the
schedule in its place, every agent is g(r) for one representative r of its orbit and one g. Seen from r, that is moved
by g's inverse, every transfer, lane and held value has one normal form, and those of an orbit have the same. Then one
transfer stands for |G| of them, each of which loads the links of its orbits alike, so that a link of an orbit of k
links carries |G| / k flows of it per crossing.

Why this is exact. Let the transfers that have started, and the bytes that each has left, be invariant under G at some
moment. Max-min fair rates are unique, and an automorphism of the links maps fair rates to fair rates, so the rates are
invariant too. Filling (csrc/core/simulator/fair_share.hpp) raises all rates together; with equal rates in an orbit, the
links of an orbit are full at the same level, that of one link of capacity c with weights |G| / k. So what ends next are
whole orbits, and at one time. What starts then depends on what is held, which is invariant, and on the order of lanes;
where the steps alone give that order (else nothing is simulated by representatives), it is invariant too. The beginning
is invariant, hence by induction everything.

Where a group element fixes an agent (a reflection of a ring, a switch in the middle), and where switches add (they have
limits besides their links), the schedule is expanded instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth.link_orbits import orbits_under
from synth.moves import Moves, lanes_of, path_latency, single_paths
from synth.rows import distinct, pieces
from synth.schedule import Schedule
from synth.symmetry import ACTED_ON, Action, action_of
from synth.utilization import LinkRates
from synth.values import Values

Integers = NDArray[np.signedinteger]

# A group is spelled out element by element. Beyond this it does not fit into memory, and expansion does.
_MOST_ENTRIES = 10**8


@dataclass(frozen=True, eq=False)
class Representatives:
    """One transfer per orbit, seen from the representative agents, on one link per orbit.

    link_orbit  int64 (L,)  the representative of every link
    """

    moves: Moves
    link_orbit: Integers

    def spread(self, load: NDArray[np.float64]) -> NDArray[np.float64]:
        """Per link, what its representative has."""
        return load[self.link_orbit]

    def spread_rates(self, rates: LinkRates) -> LinkRates:
        """The rates of all links, from those of the representatives."""
        order = np.argsort(self.link_orbit, kind="stable")
        size = np.bincount(self.link_orbit, minlength=len(order))
        first = np.cumsum(size) - size
        many = size[rates.link]
        within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        return LinkRates(
            np.repeat(rates.times, many),
            order[np.repeat(first[rates.link], many) + within],
            np.repeat(rates.rate, many),
        )


def representatives_of(schedule: Schedule) -> Representatives | None:
    """The schedule by representatives; None where that is not exact (see above), or the group is huge.

    Raises SymmetryError for generators that do not fit.
    """
    actions = [action_of(schedule, generator) for generator in schedule.symmetry]
    moved = schedule.transfers
    if schedule.in_network:
        return None
    group = _FreeGroup.of(actions, np.unique(np.r_[moved.src, moved.dst]))
    if group is None:
        return None
    if len(np.unique(np.r_[moved.src, moved.dst])) * len(schedule.values) > _MOST_ENTRIES:
        return None
    ends_and_values = [(end, value) for end in (moved.src, moved.dst) for value in (moved.value, moved.result)]
    seen = _SeenValues(group, schedule.values, ends_and_values)
    need, result_there, part, result = (seen.of(*asked) for asked in ends_and_values)

    # Normal forms: two rows with the same one are of one orbit. The way of a transfer is seen from its source.
    hops = np.diff(moved.offset)
    owner = np.repeat(np.arange(len(moved)), hops)
    link_seen = group.seen("links", moved.src[owner], moved.link)
    ends = np.stack([group.home[moved.src], group.seen("agents", moved.src, moved.dst)], axis=1)
    forms = np.stack([*ends.T, need, result_there, moved.step], axis=1)
    kept = np.sort(lanes_of(forms, moved.offset, link_seen)[1])
    lane, first = lanes_of(ends[kept], *_rows(moved.offset, link_seen, kept))
    if len(distinct(np.stack([lane, moved.step[kept]], axis=1))[0]) < len(kept):
        return None

    orbit, size = _link_orbits(actions, len(schedule.topology.links))
    offset, link = _rows(moved.offset, link_seen, kept[first])
    weight = group.order / size[orbit[link]]
    paths = single_paths(np.diff(offset), orbit[link], weight)
    alphas = np.asarray([link.alpha for link in schedule.topology.links])
    moves = Moves(
        seen.values(),
        group.home[moved.src][kept],
        need[kept],
        group.home[moved.dst][kept],
        result[kept],
        part[kept],
        moved.step[kept],
        lane,
        lane,
        paths,
        path_latency(paths, alphas),
        np.asarray([float(link.bandwidth) for link in schedule.topology.links]),
    )
    return Representatives(moves, orbit)


@dataclass(frozen=True, eq=False)
class _FreeGroup:
    """A group that fixes no agent in use, element by element.

    home   int64 (agents,)  the representative of the agent's orbit
    order  how many elements the group has
    view   int64 (agents,)  the number of the element that moves the agent home
    seen_  per kind of thing, (elements, things): what they are once the element has moved them
    """

    home: Integers
    order: int
    view: Integers
    seen_: dict[str, Integers]

    @staticmethod
    def of(actions: list[Action], used: Integers) -> _FreeGroup | None:
        """The group that the actions generate, if it is free on the orbits of `used`."""
        home = np.arange(len(actions[0].agents))
        back: dict[int, Action] = {}
        orbit: list[int] = []
        for start in used.tolist():
            if start in back:
                continue
            back[start] = actions[0].identity()
            orbit = [start]
            for agent in orbit:
                for action in actions:
                    image = int(action.agents[agent])
                    way = back[agent].after_inverse(action)
                    if image not in back:
                        back[image] = way
                        home[image] = start
                        orbit.append(image)
                    elif not way.equals(back[image]):
                        return None  # two elements lead from here to there: their quotient fixes the representative
                    if len(back) * max(len(action.links), len(action.chunks)) > _MOST_ENTRIES:
                        return None
        view = np.zeros(len(home), np.int64)
        view[list(back)] = np.arange(len(back))
        spelled = {kind: np.stack([getattr(way, kind) for way in back.values()]) for kind in ACTED_ON}
        return _FreeGroup(home, len(orbit), view, spelled)

    def seen(self, kind: str, viewpoint: Integers, numbers: Integers) -> Integers:
        """What `numbers[i]`, one of the things ACTED_ON, is when `viewpoint[i]` is moved home."""
        looks: Integers = self.seen_[kind][self.view[viewpoint], numbers]
        return looks


class _SeenValues:
    """Values as they look from homes: equal ones have one number there, whatever they are called in the schedule."""

    def __init__(self, group: _FreeGroup, values: Values, asked: list[tuple[Integers, Integers]]) -> None:
        self._viewpoints = np.unique(np.concatenate([viewpoint for viewpoint, _ in asked]))
        self._table = values
        depth = _depths(values)
        wanted = np.zeros((len(self._viewpoints), len(values)), bool)
        for viewpoint, value in asked:
            wanted[self._position(viewpoint), value] = True
        for total in reversed(range(len(values))):
            for operand in values.operands(total):
                wanted[:, operand] |= wanted[:, total]
        self._names = np.full(wanted.shape, -1, np.int32)
        self._chunk: list[Integers] = []
        self._rank: list[Integers] = []
        self._operand: list[Integers] = []
        self._arity: list[Integers] = []
        self._count = 0
        for level in range(int(depth.max(initial=-1)) + 1):
            here = np.flatnonzero(depth == level)
            view, at = np.nonzero(wanted[:, here])
            if len(view):
                (self._name_sums if level else self._name_contributions)(group, view, here[at])

    def of(self, viewpoint: Integers, value: Integers) -> Integers:
        """The number of `value[i]`, seen from `viewpoint[i]`."""
        numbers: Integers = self._names[self._position(viewpoint), value].astype(np.int64)
        return numbers

    def values(self) -> Values:
        """The table of everything that is seen."""
        offset = np.r_[0, np.cumsum(np.concatenate(self._arity))]
        return Values(
            np.concatenate(self._chunk),
            np.concatenate(self._rank),
            offset,
            np.concatenate([np.zeros(0, np.int64), *self._operand]),
        )

    def _position(self, viewpoint: Integers) -> Integers:
        return np.searchsorted(self._viewpoints, viewpoint)

    def _name_contributions(self, group: _FreeGroup, view: Integers, value: Integers) -> None:
        viewpoint = self._viewpoints[view]
        chunk = group.seen("chunks", viewpoint, self._table.chunk[value])
        rank = group.seen("agents", viewpoint, self._table.rank[value])
        first = self._enter(view, value, np.stack([chunk, rank], axis=1))
        self._chunk.append(chunk[first])
        self._rank.append(rank[first])
        self._arity.append(np.zeros(len(first), np.int64))

    def _name_sums(self, group: _FreeGroup, view: Integers, value: Integers) -> None:
        """Names sums by the names of their operands, which are known already."""
        first, arity = self._table.offset[value], np.diff(self._table.offset)[value]
        operands = np.full((len(value), int(arity.max())), -1, np.int64)
        for place in range(operands.shape[1]):
            has = arity > place
            operands[has, place] = self._names[view[has], self._table.operand[first[has] + place]]
        kept = self._enter(view, value, operands)
        self._chunk.append(group.seen("chunks", self._viewpoints[view[kept]], self._table.chunk[value[kept]]))
        self._rank.append(np.full(len(kept), -1))
        self._arity.append(arity[kept])
        self._operand.append(operands[kept][operands[kept] >= 0])

    def _enter(self, view: Integers, value: Integers, forms: Integers) -> Integers:
        """Gives equal forms one name; the first of each."""
        first, number = distinct(forms)
        self._names[view, value] = self._count + number
        self._count += len(first)
        return first


def _depths(values: Values) -> Integers:
    """0 for contributions; one more than the deepest operand for sums."""
    depth = [0] * len(values)
    for value in np.flatnonzero(values.rank < 0).tolist():
        depth[value] = 1 + max(depth[operand] for operand in values.operands(value))
    return np.asarray(depth, np.int64)


def _rows(offset: Integers, column: Integers, rows: Integers) -> tuple[Integers, Integers]:
    """The pieces of `rows` of a column that `offset` cuts, and their own offset."""
    lengths = np.diff(offset)[rows]
    return np.r_[0, np.cumsum(lengths)], pieces(column, offset[rows], lengths)


def _link_orbits(actions: list[Action], links: int) -> tuple[Integers, Integers]:
    """The least link of every link's orbit, and how many links the orbit of such a link has."""
    orbit = orbits_under(links, [action.links for action in actions])
    _, first = np.unique(orbit, return_index=True)
    least = first[orbit]
    return least, np.bincount(least, minlength=links)
