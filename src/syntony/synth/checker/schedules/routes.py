"""Checks that every route is a path of the topology from source to destination, only through switches and NICs."""

from __future__ import annotations

import numpy as np

from syntony.synth.checker.schedules.columns import Columns
from syntony.synth.checker.verdict import FaultError, Verdict


def check_routes(columns: Columns) -> None:
    """Raises FaultError at the first transfer whose route is not such a path."""
    schedule, src, dst = columns.schedule, columns.src, columns.dst
    topology, members = schedule.topology, schedule.collective.members
    outside = [m for m in members if not 0 <= m < len(topology.nodes) or topology.nodes[m].kind != "rank"]
    if outside:
        raise FaultError(Verdict(False, f"member {outside[0]} is not a rank of {topology.name}"))
    offset, links = schedule.transfers.offset, schedule.transfers.link.astype(np.int64)
    lengths = np.diff(offset)
    fit = len(offset) == len(src) + 1 and offset[0] == 0 and offset[-1] == len(links) and lengths.min(initial=0) >= 0
    if not fit:
        raise FaultError(Verdict(False, "the route offsets do not fit the transfers"))
    empty = (lengths == 0) & (src != dst)
    if empty.any():
        raise columns.at(int(empty.argmax()), "its route is empty")
    owner = np.repeat(np.arange(len(src)), lengths)
    unknown = (links < 0) | (links >= len(topology.links))
    if unknown.any():
        hop = int(unknown.argmax())
        raise columns.at(int(owner[hop]), f"link {links[hop]} does not exist in {topology.name}")

    home = np.asarray([*members, *(switch.id for switch in columns.able)], np.int64)
    leaves, reaches = (
        np.asarray(ends, np.int64)[links]
        for ends in ([link.src for link in topology.links], [link.dst for link in topology.links])
    )
    start, end = home[src][owner], home[dst][owner]
    first = np.arange(len(links)) == offset[owner]
    last = np.arange(len(links)) == offset[owner + 1] - 1
    before = np.where(first, start, np.roll(reaches, 1))
    torn = leaves != before
    is_rank = np.asarray([node.kind == "rank" for node in topology.nodes], np.bool_)
    through_rank = ~last & is_rank[reaches]
    through_end = ~last & ((reaches == start) | (reaches == end))
    astray = last & (reaches != end)
    wrong = torn | through_rank | through_end | astray
    if not wrong.any():
        return
    hop = int(wrong.argmax())
    t, there = int(owner[hop]), topology.nodes[int(reaches[hop])].name
    if torn[hop]:
        leaving, at = topology.nodes[int(leaves[hop])].name, topology.nodes[int(before[hop])].name
        raise columns.at(t, f"link {links[hop]} of its route leaves {leaving}, but the message is at {at}")
    if through_rank[hop]:
        raise columns.at(t, f"its route passes through {there}; only switches and NICs forward")
    if through_end[hop]:
        raise columns.at(t, f"its route passes through {there}, which is one of its ends")
    raise columns.at(t, f"its route ends at {there}, not at {columns.name(int(dst[t]))}")
