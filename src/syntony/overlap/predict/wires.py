"""Wires: communication costs of a Layout's groups on a Topology, from the algorithms that would run there.

    for each lane and collective: all groups of all stages at once, each by every applicable classical algorithm
    (synth/traffic/patterns/table.py), simulated at two sizes; the fastest at the usual size gives alpha and beta

Ranks are placed as in ranks.py: tp innermost. If one group has the lane for itself, a schedule can be synthesized and
is used if it is faster. Lanes with the same hottest links take turns on them: they get one `link`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.overlap.step.cost import Linear, Wire
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import Kind
from syntony.overlap.step.ranks import Ranks, members
from syntony.synth.traffic.messages import Messages
from syntony.topologies.topology import Topology

SMALL = 1 << 10
"""Bytes for which the alpha is measured."""
_PATTERNS: Mapping[Kind, tuple[str, ...]] = {
    Kind.ALL_REDUCE: ("ring", "halving-doubling", "direct", "tree"),
    Kind.REDUCE_SCATTER: ("ring", "halving", "direct"),
    Kind.ALL_GATHER: ("ring", "doubling", "direct"),
    Kind.ALL_TO_ALL: ("direct", "rotated"),
    Kind.BROADCAST: ("tree", "chain"),
}
_CROWD = 40_000  # messages of all groups at once, above which rings and direct exchanges are not simulated
_HOT = 0.5  # of the hottest link's use: above it, a link is also hot


@dataclass(frozen=True)
class Wires:
    """wires: by lane, for Cost; algorithms: by lane and collective, the one with that cost."""

    wires: Mapping[str, Wire]
    algorithms: Mapping[tuple[str, Kind], str]


Known = dict[tuple[bool, tuple[int, ...], bytes], list[tuple[Kind, list["_Tried"]]]]
"""Results for groups: messages of a pipeline or collectives, and their ranks."""


def wires_of(
    topology: Topology, layout: Layout, size: int = 16 << 20, synthesis: float = 0.0, known: Known | None = None
) -> Wires:
    """Wires of the layout's groups, for ops of about `size` bytes. `synthesis`: seconds per search for a schedule.

    known    results of other layouts on this topology with the same two numbers; it grows

    Raises UserError if the topology has too few ranks.
    """
    if topology.ranks < layout.ranks:
        raise UserError(f"the layout has {layout.ranks} ranks, but {topology.name} has {topology.ranks}")
    known = {} if known is None else known

    def found_of(key: tuple[bool, tuple[int, ...], bytes], flat: Ranks) -> list[tuple[Kind, list[_Tried]]]:
        if key not in known:
            messages = key[0]
            known[key] = list(
                _messages(topology, flat, size) if messages else _collectives(topology, flat, size, synthesis)
            )
        return known[key]

    lines: dict[str, dict[Kind, Linear]] = {}
    algorithms: dict[tuple[str, Kind], str] = {}
    hot: dict[str, set[int]] = {}
    for lane in layout.groups:
        groups = members(layout, lane)
        flat = groups.reshape(-1, groups.shape[-1])
        tried = found_of((lane == "pp", flat.shape, flat.tobytes()), flat)
        lines[lane], hot[lane] = {}, set()
        for kind, found in tried:
            best = min(found, key=lambda one: one.line.alpha + one.line.beta * size)
            lines[lane][kind] = best.line
            algorithms[lane, kind] = best.name
            hot[lane] |= best.hot
    link = _shared(hot)
    return Wires({lane: Wire(kinds, link[lane]) for lane, kinds in lines.items()}, algorithms)


@dataclass(frozen=True)
class _Tried:
    name: str
    line: Linear
    hot: set[int]


def _collectives(topology: Topology, groups: Ranks, size: int, synthesis: float) -> Iterator[tuple[Kind, list[_Tried]]]:
    count, ranks = groups.shape
    for kind, names in _PATTERNS.items():
        found = []
        for name in names:
            if name in ("halving-doubling", "halving", "doubling") and ranks & (ranks - 1):
                continue
            if name in ("ring", "direct", "rotated") and count * ranks * ranks > _CROWD and kind is not Kind.ALL_TO_ALL:
                continue
            found.append(_timed(topology, groups, f"{kind}:{name}", size))
        if synthesis and count == 1:
            found += _synthesised(topology, groups[0], kind, size, synthesis, found[0].hot)
        yield kind, found
    yield Kind.SHIFT, [_sent(topology, groups, np.arange(ranks), np.roll(np.arange(ranks), -1), size)]


def _timed(topology: Topology, groups: Ranks, pattern: str, size: int) -> _Tried:
    from syntony.synth.traffic.patterns.table import pattern_messages

    times, hot = [], set[int]()
    for amount in (SMALL, size):
        messages = pattern_messages(pattern, groups.shape[1], amount)
        seconds, hot = _run(topology, groups, messages)
        times.append(seconds)
    return _Tried(pattern.partition(":")[2], _line((SMALL, size), times), hot)


def _messages(topology: Topology, lines: Ranks, size: int) -> Iterator[tuple[Kind, list[_Tried]]]:
    """From stage to stage: every rank to its successor, all at once."""
    pairs = np.concatenate([lines[:, stage : stage + 2] for stage in range(lines.shape[1] - 1)])
    for kind in (Kind.SEND, Kind.RECV):
        yield kind, [_sent(topology, pairs, np.array([0]), np.array([1]), size)]


def _sent(topology: Topology, groups: Ranks, src: Ranks, dst: Ranks, size: int) -> _Tried:
    """Messages between members of every group, all at once."""
    times, hot = [], set[int]()
    for amount in (SMALL, size):
        seconds, hot = _run(topology, groups, Messages.make(groups.shape[1], src, dst, amount))
        times.append(seconds)
    return _Tried("message", _line((SMALL, size), times), hot)


def _run(topology: Topology, groups: Ranks, messages: Messages) -> tuple[float, set[int]]:
    """Seconds with all groups at once, and the links that are about as busy as the busiest."""
    from syntony.synth.traffic.choice import Choice
    from syntony.synth.traffic.job import Job
    from syntony.synth.traffic.run import run

    jobs = [Job(str(number), tuple(group), messages) for number, group in enumerate(groups.tolist())]
    outcome = run(topology, jobs, Choice("spray"))
    use: NDArray[np.float64] = outcome.utilization
    return outcome.seconds, set(np.flatnonzero(use >= _HOT * use.max()).tolist())


def _synthesised(
    topology: Topology, group: Ranks, kind: Kind, size: int, seconds: float, hot: set[int]
) -> list[_Tried]:
    from syntony.synth.engines.auto import run, seconds_at
    from syntony.synth.engines.engine import Budget, EngineError
    from syntony.synth.model.collective import Collective

    try:
        schedule = run(topology, Collective.make(str(kind), members=group.tolist()), size, Budget(seconds))
    except EngineError:
        return []
    times = [seconds_at(schedule, amount) for amount in (SMALL, size)]
    return [_Tried(f"engine {schedule.engine}", _line((SMALL, size), times), hot)]


def _line(sizes: tuple[int, int], times: list[float]) -> Linear:
    beta = max(0.0, (times[1] - times[0]) / (sizes[1] - sizes[0])) if sizes[1] > sizes[0] else 0.0
    return Linear(max(0.0, times[0] - beta * sizes[0]), beta)


def _shared(hot: Mapping[str, set[int]]) -> dict[str, str]:
    """By lane, the name of its link: that of the first lane with the same hot links."""
    names: dict[str, str] = {}
    for lane, links in hot.items():
        mine = [other for other in names if hot[other] & links]
        name = names[mine[0]] if mine else lane
        joined = {names[other] for other in mine}
        names = {other: name if own in joined else own for other, own in names.items()} | {lane: name}
    return names
