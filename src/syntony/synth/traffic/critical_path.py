"""The critical path: why the traffic took as long as it did, traced back from the last arrival.

    arrived last ─┐
                  flow 7 [==== wire ====]·alpha·      its time on the wire is attributed to the busiest link of its
                  │                                   path in that time
          flow 3 [== wire ==]·alpha·                  what 7 waited for longest
          │
    computing [........]

Each piece of advice is another simulation: the same traffic with the worst link wide enough for all its messages at
once; and the same traffic sprayed over all paths. These are what-ifs, not promises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import ascending
from syntony.base.wording import counted, time
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.messages import Column, TooMuchError
from syntony.synth.traffic.run import Outcome
from syntony.topologies.topology import Topology

_SAME = 1e-9  # of the whole time: smaller differences count as equal
_SMALL = 0.005  # of the whole time: smaller causes are not listed separately


@dataclass(frozen=True)
class Share:
    """A part of the critical path: `seconds` of it are attributed to `link` or, if that is None, to `cause`.

    flows  how many messages used the link at once while on the critical path (the most at any time)
    saved  seconds by which the whole would be shorter if they did not share it; None if that was not tried
    also   how many other links, as full as this one, are also widened for `saved`
    """

    cause: str
    seconds: float
    link: int | None = None
    flows: int = 0
    saved: float | None = None
    also: int = 0


def critical_path(outcome: Outcome) -> list[int]:
    """The flows on it, first to last."""
    flows, times = outcome.traffic.flows, outcome.times
    if not len(flows):
        return []
    at = int(np.argmax(times.arrival))
    chain = [at]
    while True:
        arrived = flows.after[flows.after_offset[at] : flows.after_offset[at + 1]]
        left = flows.after_left[flows.after_left_offset[at] : flows.after_left_offset[at + 1]]
        before = np.r_[arrived, left].astype(np.int64)
        if not len(before):
            return chain[::-1]
        ready = np.r_[times.arrival[arrived], times.left[left]]
        latest = int(np.argmax(ready))
        if flows.release[at] > ready[latest] + _SAME * outcome.seconds:
            return chain[::-1]  # it waited only for its release time
        at = int(before[latest])
        chain.append(at)


def shares(outcome: Outcome, what_if: bool = True) -> list[Share]:
    """The causes of the total time, the largest first. The outcome must have its timeline."""
    traffic, times = outcome.traffic, outcome.times
    chain = critical_path(outcome)
    meter = _Meter(outcome)
    on_link: defaultdict[int, float] = defaultdict(float)
    windows: dict[int, list[tuple[float, float]]] = {}
    other: defaultdict[str, float] = defaultdict(float)
    begin = 0.0
    for position, flow in enumerate(chain):
        start, left, arrival = float(times.start[flow]), float(times.left[flow]), float(times.arrival[flow])
        end = float(times.start[chain[position + 1]]) if position + 1 < len(chain) else arrival
        if start > begin:
            other["waiting for the time to begin"] += start - begin
        if left > start:
            link = meter.busiest(flow, start, left)
            on_link[link] += min(left, end) - start
            windows.setdefault(link, []).append((start, left))
        after = max(end - max(left, start), 0.0)
        if after:
            job = traffic.jobs[int(traffic.flows.job[flow])].name
            computing = traffic.message[flow] < 0
            other[f"computing (job {job})" if computing else "latency of links"] += after
        begin = max(end, start)
    found = [Share(cause, seconds) for cause, seconds in other.items()]
    for link, seconds in on_link.items():
        found.append(Share(_named(traffic.topology, link), seconds, link, meter.most_at_once(link, windows[link])))
    found.sort(key=lambda share: -share.seconds)
    if what_if:
        worst = next((row for row, share in enumerate(found) if share.flows > 1), None)
        if worst is not None:
            found[worst] = _without_sharing(outcome, meter, found[worst])
    return found


def describe(outcome: Outcome, most: int = 4) -> list[str]:
    """The critical path in words, a line per cause; small causes are combined."""
    if not outcome.seconds:
        return ["nothing takes time"]
    found = shares(outcome)
    whole = outcome.seconds
    shown = [share for share in found[:most] if share.seconds >= _SMALL * whole]
    lines = []
    for share in shown:
        line = f"{share.seconds / whole:.0%} of {time(whole)} is {share.cause}"
        if share.flows > 1:
            line += f", shared by {share.flows} messages"
        elif share.link is not None:
            line += ", which no other message uses then"
        if share.saved is not None:
            line += f"; without sharing it{_others(share.also)}, {time(share.saved)} would be saved"
        lines.append(line)
    lines += _rest(found[len(shown) :], whole)
    sprayed = _sprayed(outcome)
    if sprayed is not None and sprayed < whole * (1 - _SAME):
        less = f"{time(sprayed)}: {time(whole - sprayed)} less"
        lines.append(f"spread evenly over all equal-cost paths (spray), it would take {less}")
    return lines


def _rest(found: Sequence[Share], whole: float) -> list[str]:
    seconds = sum(share.seconds for share in found)
    if seconds < _SMALL * whole:
        return []
    links = [share for share in found if share.link is not None]
    if not links:
        return [f"{seconds / whole:.0%} is in {counted(len(found), 'smaller part')}"]
    flows = max(share.flows for share in links)
    shared = f"shared by at most {flows} messages" if flows > 1 else "which no two messages use at once"
    return [f"{seconds / whole:.0%} is in small parts on {counted(len(links), 'link')}, {shared}"]


def _sprayed(outcome: Outcome) -> float | None:
    """Seconds of the same traffic, sprayed; None if it already was, or is too much to simulate."""
    if outcome.traffic.choice.name in ("spray", "least-loaded"):
        return None
    try:
        return outcome.seconds_by(Choice("spray"))
    except TooMuchError:
        return None


def _named(topology: Topology, link: int) -> str:
    ends = topology.links[link]
    parallel = topology.links_between(ends.src, ends.dst)
    which = f" (number {[twin.id for twin in parallel].index(link)} of {len(parallel)})" if len(parallel) > 1 else ""
    return f"link {topology.nodes[ends.src].name} -> {topology.nodes[ends.dst].name}{which}"


def _others(also: int) -> str:
    if not also:
        return ""
    return " and the link that is as full" if also == 1 else f" and the {also} links that are as full"


def _without_sharing(outcome: Outcome, meter: _Meter, share: Share) -> Share:
    """What widening the link for all its flows at once would save; if that is nothing, widens all links as full."""
    use = outcome.utilization
    assert share.link is not None
    everything = [(0.0, outcome.seconds)]
    as_full = np.asarray(
        [
            link
            for link in np.flatnonzero(use >= use[share.link] * 0.999).tolist()
            if link == share.link or meter.most_at_once(link, everything) > 1
        ]
    )
    saved = _saved(outcome, np.asarray([share.link]), share.flows)
    if saved > 0.001 * outcome.seconds or len(as_full) == 1:
        return replace(share, saved=saved)
    return replace(share, saved=_saved(outcome, as_full, share.flows), also=len(as_full) - 1)


def _saved(outcome: Outcome, links: Column, flows: int) -> float:
    """Seconds saved if the links had the capacity for this many flows at once."""
    capacity: NDArray[np.float64] = outcome.traffic.flows.capacity.copy()
    capacity[links] *= flows
    return max(outcome.seconds - outcome.seconds_with(capacity), 0.0)


class _Meter:
    """The load of links over time."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        times = outcome.times
        order = np.lexsort((times.times, times.link))
        self._link: Column = times.link[order].astype(np.int64)
        self._time: NDArray[np.float64] = times.times[order]
        self._rate: NDArray[np.float64] = times.rate[order]
        same = self._link[1:] == self._link[:-1]
        bytes_ = np.where(same, self._rate[:-1] * np.diff(self._time), 0.0)
        self._carried = np.concatenate(([0.0], np.cumsum(bytes_)))[: len(self._time)]
        flow, link, _ = outcome.on_links
        by_flow, by_link = np.argsort(flow, kind="stable"), np.argsort(link, kind="stable")
        self._links_of = link[by_flow]
        self._flow_offset = np.searchsorted(flow[by_flow], np.arange(len(times.start) + 1))
        self._flows_on = flow[by_link]
        self._link_offset = np.searchsorted(link[by_link], np.arange(len(outcome.traffic.topology.links) + 1))

    def carried(self, link: int, start: float, end: float) -> float:
        """Bytes on the link between two moments."""
        first, last = np.searchsorted(self._link, [link, link + 1])

        def until(moment: float) -> float:
            row = first + int(np.searchsorted(self._time[first:last], moment, side="right")) - 1
            return float(self._carried[row] + self._rate[row] * (moment - self._time[row])) if row >= first else base

        base = float(self._carried[first]) if first < last else 0.0
        return until(end) - until(start) if first < last else 0.0

    def busiest(self, flow: int, start: float, end: float) -> int:
        """The link of the flow with the highest load relative to its capacity; the first of equals."""
        capacity = self._outcome.traffic.flows.capacity
        links = self._links_of[self._flow_offset[flow] : self._flow_offset[flow + 1]].tolist()
        loads = [self.carried(link, start, end) / capacity[link] for link in links]
        most = max(loads) * (1 - 1e-6)
        full = [link for link, load in zip(links, loads, strict=True) if load >= most]
        # If a link used by no other flow is also full, sharing takes nothing from the flow.
        shared = [self.most_at_once(link, [(start, end)]) for link in full]
        return int(full[int(np.argmin(shared))])

    def most_at_once(self, link: int, windows: list[tuple[float, float]]) -> int:
        """The most messages on the link at one time within a window; queue pairs of a message count as one."""
        times = self._outcome.times
        most = 0
        for start, end in windows:
            flows = self._whole_messages(self._together(link, start, end))
            moments = np.r_[np.maximum(times.start[flows], start), np.minimum(times.left[flows], end)]
            steps = np.repeat([1, -1], len(flows))
            order = np.lexsort((steps, moments))  # at equal times, departures precede arrivals
            most = max(most, int(np.cumsum(steps[order]).max(initial=0)))
        return most

    def _whole_messages(self, flows: Column) -> Column:
        """One flow for every message among the flows: the last one to leave."""
        traffic, left = self._outcome.traffic, self._outcome.times.left
        order = flows[
            np.lexsort((left[flows], traffic.message[flows], traffic.iteration[flows], traffic.flows.job[flows]))
        ]
        same = (
            (np.diff(traffic.message[order]) == 0)
            & (np.diff(traffic.iteration[order]) == 0)
            & (np.diff(traffic.flows.job[order]) == 0)
        )
        whole: Column = order[~np.r_[same, False][: len(order)]]
        return whole

    def _together(self, link: int, start: float, end: float) -> Column:
        """The flows that used the link for some time between the two moments."""
        times = self._outcome.times
        flows = self._flows_on[self._link_offset[link] : self._link_offset[link + 1]]
        slack = _SAME * self._outcome.seconds
        together: Column = flows[(times.start[flows] < end - slack) & (times.left[flows] > start + slack)]
        return ascending(together)
