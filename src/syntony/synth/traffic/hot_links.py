"""The hottest links of a run, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syntony.base.rows import ascending
from syntony.base.text_table import aligned
from syntony.base.wording import counted, rate
from syntony.synth.traffic.run import Outcome

_FULL = 0.999


@dataclass(frozen=True)
class HotLink:
    """A link; fractions of the whole time and of its capacity, 0 to 1.

    used   the mean part of its capacity in use
    full   the part of the time for which it was full
    flows  the most flows at once
    """

    link: int
    name: str
    bandwidth: str
    used: float
    full: float
    flows: int


def hottest(outcome: Outcome, most: int = 8) -> list[HotLink]:
    """The most used links, and of equals the first ones. The outcome must have its timeline."""
    topology, times, seconds = outcome.traffic.topology, outcome.times, outcome.seconds
    use = outcome.utilization
    found = []
    on_flow, on_link, _ = outcome.on_links
    for link in np.argsort(-np.round(use, 9), kind="stable")[:most].tolist():
        if not use[link]:
            break
        rows = times.link == link
        moments, rates = times.times[rows], times.rate[rows]
        lasted = np.diff(moments, append=seconds)
        full = float(lasted[rates >= _FULL * outcome.traffic.flows.capacity[link]].sum())
        flows = ascending(on_flow[on_link == link])
        flows = flows[times.left[flows] > times.start[flows]]
        starts, ends = np.sort(times.start[flows]), np.sort(times.left[flows])
        # Departures precede arrivals at the same moment; moments differ by rounding.
        ahead = np.searchsorted(ends, starts + 1e-9 * seconds, side="right")
        ends_of = topology.links[link]
        found.append(
            HotLink(
                link,
                f"{topology.nodes[ends_of.src].name} -> {topology.nodes[ends_of.dst].name}",
                rate(ends_of.bandwidth),
                float(use[link]),
                full / seconds,
                int((np.arange(1, len(starts) + 1) - ahead).max(initial=0)),
            )
        )
    return found


def table(links: Sequence[HotLink]) -> list[str]:
    """Lines of text, a heading and a line per link."""
    rows = [
        (link.name, link.bandwidth, f"{link.used:.1%}", f"{link.full:.1%}", counted(link.flows, "flow"))
        for link in links
    ]
    return aligned([("link", "bandwidth", "used", "full", "most at once"), *rows], "<>>><", "  ")
