"""Lane classes: of lanes that behave identically, only one is simulated.

    ring of 1,024 ranks        lane 0 ──FIFO──▶ lane 3 ──FIFO──▶ lane 6 ──▶ ..      3,072 lanes
    its quotient               lane 0 ──FIFO──▶ itself                              3 lanes

Lanes, connections and links are coloured so that equal colours mean equal surroundings: lanes of a colour have the same
rows, over connections of the same colours in the same places, and wait for lanes of the same colours in any order;
connections of a colour are fed and drained by lanes of the same colours, over links of the same colours; links of a
colour carry equally many connections of each colour. Such an equitable partition (Godsil and Royle, "Algebraic Graph
Theory", 9.3) is found by refinement: colours whose members have differently coloured surroundings are split until there
are none. No symmetry has to be declared or to exist.

Why simulating one lane per colour is exact: suppose that at some moment all lanes of a colour have made equal progress,
and all connections of a colour hold and carry the same. When links are shared
(csrc/solve/simulate/links/fair_share.hpp) all rates rise together. While connections of a colour have equal rates,
links of a colour are equally full, so they saturate at the same level and settle connections of whole colours. In the
quotient, one link represents its colour and carries connections of each colour as often as each of its links does,
which gives the same levels. So messages of a colour end at one time, and what lanes can do then depends on their rows
and on connections that are alike. The initial state is alike, so by induction every later state is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import alike, distinct, first_uses, pieces, ragged
from syntony.synth.simulation.flows import Paths
from syntony.synth.simulation.sim_program import SimProgram

Integers = NDArray[np.signedinteger]

# Refining lanes that differ may take as many rounds as there are lanes; for lanes that are alike, a few suffice.
_MOST_ROUNDS = 16


def one_of_each(lanes: SimProgram) -> tuple[SimProgram, Integers] | None:
    """One lane per colour, and the original row of each of its rows; None if not even half of the lanes are alike, or
    if connections share flows, have several, or choose among paths."""
    if not np.array_equal(lanes.flow, np.arange(len(lanes.kind))) or len(lanes.paths.set_offset) <= len(lanes.latency):
        return None
    colours = _Colours(lanes)
    for _ in range(_MOST_ROUNDS):
        before = colours.counts()
        colours.refine()
        if colours.counts()[0] * 2 > len(lanes.lane_slices):
            return None
        if colours.counts() == before:
            return colours.quotient()
    return None


class _Colours:
    """Colours of lanes, connections, routes and links, always at least as coarse as the partition sought."""

    def __init__(self, lanes: SimProgram) -> None:
        self._lanes = lanes
        length = np.diff(lanes.lane_offset)
        count = len(length)
        lane_of = np.repeat(np.arange(count), length)
        # A connection's index among those of its feeder, and of its drainer: by first use.
        self._out_place, self._outs = _places(lane_of, lanes.out, len(lanes.kind))
        self._into_place, self._intos = _places(lane_of, lanes.into, len(lanes.kind))

        # What each row waits for: a row of a lane, by its position there.
        self._needer = np.repeat(np.arange(len(lanes.out)), np.diff(lanes.need_offset))
        self._needed_lane = lane_of[lanes.need]
        position = np.arange(len(lanes.out)) - lanes.lane_offset[lane_of]
        self._needed_place = position[lanes.need]
        self._longest = int(length.max(initial=0))

        # What each row does, regardless of its lane.
        lengths = (lanes.chunk_bytes, lanes.slice_bytes)
        bytes_ = distinct(np.stack([np.unique(column, return_inverse=True)[1] for column in lengths], axis=1))[1]
        row = np.stack(
            [
                lanes.skew,
                _coloured(self._out_place, lanes.out),
                _coloured(self._into_place, lanes.into),
                lanes.signals,
                alike(lanes.chunk_offset, bytes_[lanes.chunk]),
            ],
            axis=1,
        )
        does = distinct(row)[1].astype(np.int64)
        text: dict[tuple[int, float, bytes], int] = {}
        spans = zip(
            lanes.lane_slices.tolist(),
            lanes.begin.tolist(),
            lanes.lane_offset[:-1].tolist(),
            lanes.lane_offset[1:].tolist(),
            strict=True,
        )
        self._text = np.asarray(
            [
                text.setdefault((slices, begin, does[first:end].tobytes()), len(text))
                for slices, begin, first, end in spans
            ],
            np.int64,
        )
        self.lane = self._text
        self.connection = np.zeros(len(lanes.kind), np.int64)
        self.route = np.zeros(len(lanes.latency), np.int64)
        self._capacity = np.unique(lanes.capacity, return_inverse=True)[1]
        self._latency = np.unique(lanes.latency, return_inverse=True)[1]
        self.link = self._capacity
        # The connections on every link, once per crossing.
        paths = lanes.paths
        hops = np.diff(paths.path_offset)[lanes.route]
        crossing = np.repeat(np.arange(len(lanes.kind)), hops)
        crossed = pieces(paths.link, paths.path_offset[lanes.route], hops)
        order = np.argsort(crossed, kind="stable")
        self._riders = _cut_by(crossed[order], crossing[order], len(lanes.capacity))

    def counts(self) -> tuple[int, ...]:
        """The number of colours of each kind."""
        return tuple(int(colour.max(initial=-1)) + 1 for colour in (self.lane, self.connection, self.route, self.link))

    def refine(self) -> None:
        """Splits colours by the colours of their surroundings."""
        lanes = self._lanes
        routes = ragged(lanes.paths.path_offset, self.link[lanes.paths.link])
        self.route = distinct(np.c_[self._latency, np.sort(routes, axis=1)])[1]
        ends = self.lane[lanes.feeder], self._out_place, _coloured(self.lane, lanes.drainer), self._into_place
        self.connection = distinct(np.stack([lanes.kind, *ends, self.route[lanes.route]], axis=1))[1]
        # In any order: a row waits for all that it needs.
        needed = self.lane[self._needed_lane] * self._longest + self._needed_place
        needed = needed[np.lexsort((needed, self._needer))]
        sees = [
            ragged(self._outs[0], self.connection[self._outs[1]]),
            ragged(self._intos[0], self.connection[self._intos[1]]),
            alike(lanes.lane_offset, alike(lanes.need_offset, needed))[:, None],
        ]
        self.lane = distinct(np.c_[self._text, *sees])[1]
        offset, riders = self._riders
        self.link = distinct(np.c_[self._capacity, np.sort(ragged(offset, self.connection[riders]), axis=1)])[1]

    def quotient(self) -> tuple[SimProgram, Integers]:
        """One lane, connection and link per colour, and the original row of each of its rows."""
        lanes = self._lanes
        lane, connection, link = (_firsts(colour) for colour in (self.lane, self.connection, self.link))
        # Lanes keep their order, so that the first stuck lane is also the first here.
        number = np.argsort(np.argsort(lane))
        lane, lane_colour = np.sort(lane), number[self.lane]
        length = np.diff(lanes.lane_offset)[lane]
        offset = np.r_[0, np.cumsum(length)]
        rows = pieces(np.arange(len(lanes.out)), lanes.lane_offset[lane], length)
        lane_of = np.repeat(np.arange(len(lanes.lane_slices)), np.diff(lanes.lane_offset))
        needs, chunks = np.diff(lanes.need_offset)[rows], np.diff(lanes.chunk_offset)[rows]
        need = pieces(lanes.need, lanes.need_offset[rows], needs)
        at = offset[lane_colour[lane_of[need]]] + need - lanes.lane_offset[lane_of[need]]

        # The representative link of a colour carries as many connections of each colour as every link of its colour.
        riders_offset, riders = self._riders
        many = np.diff(riders_offset)[link]
        colour = self.connection[pieces(riders, riders_offset[link], many)]
        pair, weight = np.unique(colour * len(link) + np.repeat(np.arange(len(link)), many), return_counts=True)
        crosses, crossed = np.divmod(pair, max(1, len(link)))
        drainer = lanes.drainer[connection]
        return (
            replace(
                lanes,
                lane_offset=offset,
                lane_slices=lanes.lane_slices[lane],
                begin=lanes.begin[lane],
                skew=lanes.skew[rows],
                out=_coloured(self.connection, lanes.out[rows]),
                into=_coloured(self.connection, lanes.into[rows]),
                signals=lanes.signals[rows],
                need_offset=np.r_[0, np.cumsum(needs)],
                need=at,
                chunk_offset=np.r_[0, np.cumsum(chunks)],
                chunk=pieces(lanes.chunk, lanes.chunk_offset[rows], chunks),
                kind=lanes.kind[connection],
                feeder=lane_colour[lanes.feeder[connection]],
                drainer=_coloured(lane_colour, drainer),
                flow_offset=np.arange(len(connection) + 1),
                flow=np.arange(len(connection)),
                route=np.arange(len(connection)),
                paths=Paths(
                    np.arange(len(connection) + 1),
                    np.searchsorted(crosses, np.arange(len(connection) + 1)),
                    crossed,
                    weight.astype(float),
                ),
                latency=lanes.latency[lanes.route[connection]],
                capacity=lanes.capacity[link],
            ),
            rows,
        )


def _coloured(colour: Integers, numbers: Integers) -> Integers:
    """The colours of the numbers; -1 stays -1."""
    return np.where(numbers >= 0, colour[numbers], -1) if len(colour) else numbers


def _firsts(colour: Integers) -> Integers:
    """The first member of every colour."""
    return first_uses(colour, int(colour.max(initial=-1)) + 1)


def _places(lane_of: Integers, column: Integers, connections: int) -> tuple[Integers, tuple[Integers, Integers]]:
    """Of every connection in `column`, one entry per row: its index among those of its lane, by first use; and the
    connections of every lane in that order, as an offset column and a flat one."""
    rows = np.flatnonzero(column >= 0)
    first = first_uses(column[rows], connections)
    used = np.flatnonzero(first >= 0)
    first = rows[first[used]]
    order = np.argsort(first)  # rows go lane by lane, so first uses do too
    used, lane = used[order], lane_of[first[order]]
    lanes = int(lane_of[-1]) + 1 if len(lane_of) else 0
    place = np.full(connections, -1, np.int64)
    place[used] = np.arange(len(used)) - np.searchsorted(lane, lane)
    return place, _cut_by(lane, used, lanes)


def _cut_by(owner: Integers, column: Integers, owners: int) -> tuple[Integers, Integers]:
    """A column whose entries go by ascending owner, with its offsets."""
    return np.searchsorted(owner, np.arange(owners + 1)), column
