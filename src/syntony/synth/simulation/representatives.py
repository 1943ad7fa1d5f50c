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
invariant too. Filling (csrc/solve/simulate/links/fair_share.hpp) raises all rates together; with equal rates in an
orbit, the links of an orbit are full at the same level, that of one link of capacity c with weights |G| / k. So what
ends next are whole orbits, and at one time. What starts then depends on what is held, which is invariant, and on the
order of lanes: by steps, then by orbits as they are listed (symmetry/groups.py). A lane has at most one transfer of an
orbit, so this is invariant too. The beginning is invariant, hence by induction everything.

Values are told apart without spelling the group out (symmetry/free_group.py). A value's anchor is the rank of the first
contribution in it; moved home by its anchor it has a form, made of its operands' forms and of where these have their
anchors. Two values look alike from two agents if their forms are equal, and their anchors look alike from there: the
group being free, whatever moves one anchor to the other moves one value to the other.

Where a group element fixes an agent (a reflection of a ring, a switch in the middle) or changes the weight of a chunk,
and where switches add (they have limits besides their links), the schedule is expanded instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import distinct, pieces, ragged
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import Values
from syntony.synth.simulation.moves import Moves, lanes_of, path_latency, single_paths
from syntony.synth.simulation.utilization import LinkRates
from syntony.synth.symmetry.free_group import FreeGroup
from syntony.synth.symmetry.groups import ACTED_ON, Action, action_of
from syntony.synth.symmetry.link_orbits import orbits_under
from syntony.topologies.topology import Permutation

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Representatives:
    """One transfer per orbit, seen from the representative agents, on one link per orbit.

    link_orbit  int64 (L,)  the representative of every link
    move_of     int64 (T,)  the row of `moves` that stands for each transfer of the schedule
    """

    moves: Moves
    link_orbit: Integers
    move_of: Integers

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
    weight = schedule.collective.chunks.weight
    if schedule.in_network or any((weight[action.chunks] != weight).any() for action in actions):
        return None
    moved = schedule.transfers
    view = _View.of(schedule, actions)
    if view is None:
        return None
    classes = _classes(view, schedule.values)
    seen = _SeenValues(view, schedule.values, classes, moved)
    need, result_there, part, result = seen.number

    # Normal forms: two rows with the same one are of one orbit. The way of a transfer is seen from its source.
    hops = np.diff(moved.offset)
    owner = np.repeat(np.arange(len(moved)), hops)
    link_seen = view.seen("links", moved.src[owner], moved.link)
    home = view.group.home
    ends = np.stack([home[moved.src], view.seen("agents", moved.src, moved.dst)], axis=1)
    forms = np.stack([*ends.T, need, result_there, moved.step], axis=1)
    alike, first_alike = lanes_of(forms, moved.offset, link_seen)
    kept = np.sort(first_alike)
    lane, first = lanes_of(ends[kept], *_rows(moved.offset, link_seen, kept))
    shared = len(distinct(np.stack([lane, moved.step[kept]], axis=1))[0]) < len(kept)
    if shared and len(kept) < len(moved):
        return None  # an orbit listed twice has no one place in the order

    orbit, size = _link_orbits(actions, len(schedule.topology.links))
    offset, link = _rows(moved.offset, link_seen, kept[first])
    paths = single_paths(np.diff(offset), orbit[link], view.group.order / size[orbit[link]])
    alphas = np.asarray([link.alpha for link in schedule.topology.links])
    moves = Moves(
        seen.values,
        home[moved.src][kept],
        need[kept],
        home[moved.dst][kept],
        result[kept],
        part[kept],
        moved.step[kept],
        lane,
        lane,
        paths,
        path_latency(paths, alphas),
        np.asarray([float(link.bandwidth) for link in schedule.topology.links]),
    )
    return Representatives(moves, orbit, np.searchsorted(kept, first_alike[alike]))


@dataclass(frozen=True, eq=False)
class _View:
    """The group, acting freely on the agents in use, and what it does to everything.

    group    its nodes are the agents, then the links, then the chunks
    actions  of its generators
    """

    group: FreeGroup
    actions: list[Action]

    @staticmethod
    def of(schedule: Schedule, actions: list[Action]) -> _View | None:
        """None where the group is not free, or huge."""
        moved, ranks = schedule.transfers, schedule.values.rank
        agents = len(actions[0].agents)
        orbit = orbits_under(agents, [action.agents for action in actions])
        used = np.unique(np.concatenate([moved.src, moved.dst, ranks[ranks >= 0]]))
        points = np.flatnonzero(np.isin(orbit, orbit[used])).tolist()
        if not points:
            return None
        everything = [_joined(action) for action in actions]
        group = FreeGroup.of(len(everything[0]), points, everything)
        return None if group is None else _View(group, actions)

    def seen(self, kind: str, viewpoint: Integers, things: Integers) -> Integers:
        """What `things[i]`, one of the things ACTED_ON, is when the agent `viewpoint[i]` is moved home."""
        return self.group.undone(
            self.group.element[viewpoint], [getattr(action, kind) for action in self.actions], things
        )


def _joined(action: Action) -> Permutation:
    """The action as one permutation of agents, links and chunks."""
    columns = [getattr(action, kind) for kind in ACTED_ON]
    before = np.cumsum([0, *map(len, columns)])
    return tuple(np.concatenate([first + column for first, column in zip(before, columns, strict=False)]).tolist())


@dataclass(frozen=True, eq=False)
class _Classes:
    """Values without their place. Value v is its class, moved to where its anchor is.

    anchor  int64 (values,)  the rank of the first contribution in the value
    number  int64 (values,)  equal for values that look alike, each from its own anchor
    """

    anchor: Integers
    number: Integers


def _classes(view: _View, values: Values) -> _Classes:
    """The anchor's home, with the chunk, tells contributions apart; operands, with where they are, tell sums."""
    anchor, number = np.array(values.rank, np.int64), np.full(len(values), -1)
    depth = _depths(values)
    levels = [np.flatnonzero(depth == 0)]
    if (depth > 0).any():
        order = np.argsort(depth, kind="stable")
        levels = np.split(order, np.flatnonzero(np.diff(depth[order])) + 1)
    for sums in levels[1:]:
        anchor[sums] = anchor[values.operand[values.offset[sums]]]
    owner = np.repeat(np.arange(len(values)), np.diff(values.offset))
    place = view.seen("agents", anchor[owner], anchor[values.operand])
    own = levels[0]
    chunk = view.seen("chunks", anchor[own], values.chunk[own])
    first, number[own] = distinct(np.stack([view.group.home[anchor[own]], chunk], axis=1))
    count = len(first)
    for sums in levels[1:]:
        operands = ragged(*_rows(values.offset, number[values.operand], sums))
        first, form = distinct(np.c_[operands, ragged(*_rows(values.offset, place, sums))])
        number[sums] = count + form
        count += len(first)
    return _Classes(anchor, number)


class _SeenValues:
    """Values as they look from homes: equal ones have one number there, whatever they are called in the schedule.

    number  what each transfer's value and result are seen from its source, and then from its destination
    values  the table of these, and of the operands of results; what those operands are made of is left out, for it is
            nothing that a destination waits for
    """

    def __init__(self, view: _View, values: Values, classes: _Classes, moved: Transfers) -> None:
        arity = np.diff(values.offset)[moved.result]
        operand = pieces(values.operand, values.offset[moved.result], arity)
        viewpoint = np.concatenate([moved.src, moved.src, moved.dst, moved.dst, np.repeat(moved.dst, arity)])
        value = np.concatenate([moved.value, moved.result, moved.value, moved.result, operand]).astype(np.int64)
        place = view.seen("agents", viewpoint, classes.anchor[value])
        first, number = distinct(np.stack([classes.number[value], place], axis=1))
        count = len(moved)
        self.number = number[: 4 * count].reshape(4, count)
        row = np.full(len(first), -1)
        row[self.number[3]] = np.arange(count)  # a transfer that brings the result, if there is one
        has = row >= 0
        lengths, begin = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
        lengths[has], begin[has] = arity[row[has]], (np.cumsum(arity) - arity)[row[has]]
        self.values = Values(
            view.seen("chunks", viewpoint[first], values.chunk[value[first]]),
            np.where(values.rank[value[first]] < 0, -1, place[first]),
            np.r_[0, np.cumsum(lengths)],
            pieces(number[4 * count :], begin, lengths),
        )


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
