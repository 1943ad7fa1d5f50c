"""View models: the few things that a page or a picture can show, whatever the kind of file.

A View describes a file: a headline, facts, questions with their answers, and panels. Each panel has one renderer in
page/ and one in picture.py, so a new kind of file only needs a maker (makers/):

    Drawing    nodes and links of a network; with Motion, chunks that move over it, and holders over time
    Timeline   lanes of spans: links, ranks, queues of devices
    Use        how busy links are, and how busy some must be according to the bound
    Curves     values over an axis: time over size, memory over time
    Grid       a table
    Words      sentences
    Circle     who waits for whom

Bulk data is in NumPy columns, which are sent to the page as packed binary (page.py). Times are seconds, rates bytes/s;
nodes and links are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int32]
Seconds = NDArray[np.float64]
Tone = Literal["plain", "good", "bad", "proof"]


@dataclass(frozen=True)
class Highlight:
    """A part of the drawing that can be highlighted: a cut, a host, a fault."""

    name: str
    words: str
    nodes: tuple[int, ...] = ()
    links: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Motion:
    """Messages that move over the drawing. Rows by `start`.

    chunk, src, dst   int32 (M,)   `src` and `dst` are nodes
    step              int32 (M,)
    start, left, arrival  float64 (M,)  seconds; when the first byte leaves, the last byte has left, and it arrives
    share             float32 (M,)  the share of the chunk's sum that `dst` then has, 0..1; 1 if nothing is summed
    adds              uint8 (M,)    1: it is added at `dst`
    path_offset, path int32         the links of message m are path[path_offset[m]:path_offset[m+1]]
    holders, held     int32 (H,)    node, chunk: the holders at the beginning
    initial           float32 (H,)  the share of the sum that the holder has
    wanted_by, wanted int32 (W,)    node, chunk: who must end with it
    agents            int32 (A,)    nodes that hold chunks, in order
    chunks            names of the chunks
    seconds           total time; size: the bytes that it was simulated for
    representative    "" if all messages are included, otherwise a description of those that are
    """

    chunk: Integers
    src: Integers
    dst: Integers
    step: Integers
    start: Seconds
    left: Seconds
    arrival: Seconds
    share: NDArray[np.float32]
    adds: NDArray[np.uint8]
    path_offset: Integers
    path: Integers
    holders: Integers
    held: Integers
    initial: NDArray[np.float32]
    wanted_by: Integers
    wanted: Integers
    agents: Integers
    chunks: tuple[str, ...]
    seconds: float
    size: int
    representative: str = ""


@dataclass(frozen=True, eq=False)
class Drawing:
    """A network. Nodes at (x, y), y downwards, neighbours about 80 apart; a line per cable.

    kind       uint8 (N,)   0 rank, 1 switch, 2 NIC
    line_link, line_back  int32 (D,)  the link of each line, and its reverse link or -1
    bend       float32 (D,) how far the line bends to the left
    speed      int32 (L,)   number of each link's speed in `speeds`
    """

    title: str
    name: str
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    kind: NDArray[np.uint8]
    names: tuple[str, ...]
    link_src: Integers
    link_dst: Integers
    speed: Integers
    speeds: tuple[tuple[float, float, str], ...]
    line_link: Integers
    line_back: Integers
    bend: NDArray[np.float32]
    host: Integers
    highlights: tuple[Highlight, ...] = ()
    motion: Motion | None = None


EXPOSED, CRITICAL, FAULT = 1, 2, 4
"""Bit flags of spans."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """Lanes of spans. Rows by track, then begin; spans of a track do not overlap, and a lane may have several tracks.

    track         int32 (S,)    track of each span; track_lane int32 (K,) is the lane of each track
    begin, end    float64 (S,)
    colour        uint8 (S,)    number in `colours`, which the legend names
    label         int32 (S,)    number in `labels`
    detail        int32 (S,)    number in `details`, or -1
    mark          uint8 (S,)    bits EXPOSED, CRITICAL, FAULT
    late          highlighted lanes: those that are behind
    clock         whether its axis is that of the page's cursor
    until         least end of the axis, so that several can be compared
    what          what a lane represents ("link", "rank" or ""), `thing` its number or -1
    """

    title: str
    lanes: tuple[str, ...]
    groups: tuple[str, ...]
    track_lane: Integers
    track: Integers
    begin: Seconds
    end: Seconds
    colour: NDArray[np.uint8]
    label: Integers
    mark: NDArray[np.uint8]
    labels: tuple[str, ...]
    colours: tuple[str, ...]
    detail: Integers = field(default_factory=lambda: np.zeros(0, np.int32))
    details: tuple[str, ...] = ()
    what: str = ""
    thing: Integers = field(default_factory=lambda: np.zeros(0, np.int32))
    late: tuple[int, ...] = ()
    clock: bool = True
    words: str = ""
    until: float = 0.0


@dataclass(frozen=True, eq=False)
class Use:
    """How busy links are: share of the time, 0..1, in descending order; `cut`: links of the bound's witness.

    bound: the least share for which the witness's links are busy in any schedule; 0: no bound.
    """

    title: str
    link: Integers
    names: tuple[str, ...]
    busy: NDArray[np.float64]
    cut: NDArray[np.uint8]
    bound: float
    words: str


@dataclass(frozen=True, eq=False)
class Series:
    """A curve; `limit`: it is a limit that nobody can exceed. low, high: the spread, if it was measured."""

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    limit: bool = False
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None


Unit = Literal["bytes", "seconds", "rate", "ratio", "number"]


@dataclass(frozen=True)
class Curves:
    """Curves over one axis; `stepped`: a value lasts until the next one."""

    title: str
    x: tuple[str, Unit]
    y: tuple[str, Unit]
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    stepped: bool = False
    words: str = ""


@dataclass(frozen=True)
class Grid:
    """A table; cells are text. `best`: highlighted rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: tuple[int, ...] = ()
    bad: tuple[int, ...] = ()


@dataclass(frozen=True)
class Words:
    """Sentences, each with its tone."""

    title: str
    lines: tuple[tuple[Tone, str], ...]
    preformatted: bool = False


@dataclass(frozen=True)
class Waiter:
    """One member of a cycle of waits: what it is, its current instruction, why it cannot continue, its progress."""

    name: str
    at: str
    why: str
    done: int
    total: int


@dataclass(frozen=True)
class Circle:
    """A cycle of waits: each waits for the next, the last for the first."""

    title: str
    waiters: tuple[Waiter, ...]


Panel = Drawing | Timeline | Use | Curves | Grid | Words | Circle


ANOTHER = "What would another schedule bring?"
"""A question about schedules, programs, portfolios and steps; answered with the other files, if there are any."""


@dataclass(frozen=True)
class Question:
    """A common question about such a file, and its answer; `panel` (by its title) shows it once `state` is set."""

    question: str
    answer: str
    panel: str = ""
    state: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """The display of one file; `headline` says the most important thing in a sentence or two."""

    title: str
    kind: str
    file: str
    headline: str
    panels: tuple[Panel, ...]
    tone: Tone = "plain"
    facts: tuple[tuple[str, str], ...] = ()
    questions: tuple[Question, ...] = ()


def tracked(lane: Integers, begin: Seconds, end: Seconds, lanes: int) -> tuple[NDArray[np.int64], Integers, Integers]:
    """An order of the spans, the track of each in that order, and the lane of every track.

    Overlapping spans of a lane get separate tracks (first fit by begin); a lane without spans has one empty track.
    """
    order = np.lexsort((begin, lane))
    lane, begin, end = lane[order], begin[order], end[order]
    starts = np.searchsorted(lane, np.arange(lanes + 1))
    clash = np.zeros(lanes, bool)
    inner = lane[1:] == lane[:-1]
    reach = 1e-9 * float(end.max(initial=0.0))
    clash[lane[1:][inner & (begin[1:] < end[:-1] - reach)]] = True
    local = np.zeros(len(lane), np.int64)
    for which in np.flatnonzero(clash).tolist():
        free: list[float] = []
        for row in range(starts[which], starts[which + 1]):
            place = next((number for number, until in enumerate(free) if until <= begin[row] + reach), len(free))
            free[place : place + 1] = [float(end[row])]
            local[row] = place
    tracks = np.ones(lanes, np.int64)
    np.maximum.at(tracks, lane, local + 1)
    first = np.cumsum(tracks) - tracks
    track = first[lane] + local
    final = np.lexsort((begin, track))
    return (
        order[final],
        track[final].astype(np.int32),
        np.repeat(np.arange(lanes), tracks).astype(np.int32),
    )


def timeline(
    title: str,
    lanes: Sequence[str],
    lane: Integers,
    begin: Seconds,
    end: Seconds,
    colour: NDArray[np.integer],
    label: NDArray[np.integer],
    labels: Sequence[str],
    colours: Sequence[str],
    groups: Sequence[str] = (),
    mark: NDArray[np.integer] | None = None,
    details: Sequence[str] = (),
    what: str = "",
    things: Sequence[int] = (),
    late: Sequence[int] = (),
    clock: bool = True,
    words: str = "",
    until: float = 0.0,
) -> Timeline:
    """A Timeline of spans in any order; `details` has a text per span, or is empty."""
    order, track, track_lane = tracked(lane, begin, end, len(lanes))
    texts = list(dict.fromkeys(details))
    number = {text: at for at, text in enumerate(texts)}
    detail = np.asarray([number[text] for text in details], np.int32)[order] if details else np.zeros(0, np.int32)
    marks = np.zeros(len(order), np.uint8) if mark is None else mark[order].astype(np.uint8)
    return Timeline(
        title,
        tuple(lanes),
        tuple(groups) or ("",) * len(lanes),
        track_lane,
        track,
        begin[order],
        end[order],
        colour[order].astype(np.uint8),
        label[order].astype(np.int32),
        marks,
        tuple(labels),
        tuple(colours),
        detail,
        tuple(texts),
        what,
        np.asarray(things, np.int32),
        tuple(late),
        clock,
        words,
        until,
    )
