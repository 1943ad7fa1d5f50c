"""MLTCP: a flow's share of a link grows with what it has sent in its iteration, so that jobs interleave by themselves.

    share 1/4 .. 2      of a connection that has sent 0 .. all of its iteration's bytes

    a  ████████▁▁▁▁██████▁▁▁▁████▁▁▁▁       a started slightly earlier, so it has sent more, gets more, finishes even
    b  ▁█████████▁▁▁▁▁██████▁▁▁▁████        earlier, and starts its next iteration earlier by more than before, until
                                            the two no longer overlap, without any coordination

MLTCP (Rajasekaran, Narang, Zabreyko, Ghobadi, arXiv:2402.09589, HotNets'24) multiplies what a connection adds to its
congestion window by F(r) = intercept + slope r, where r is the part of the iteration's bytes that it has sent. Here the
rates of flows on a full link are proportional to their F, which is where such windows settle: max-min fair per unit of
F.

While two equal jobs communicate, F of both grows at one rate, so its ratio stays as it was when the second started. Let
d be their distance, as a part of the time that one communicates alone. One iteration changes it to

    d (intercept + slope) / (intercept + slope d)           8 d for small d, and 1 for 1: no more overlap

The simulator supports only constant shares: a message is cut where its connection has sent a multiple of 1 / PIECES of
its bytes, and a piece with share F counts as F times the bytes per byte of its path (`Paths.weight`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from syntony.base.wording import counted
from syntony.synth.simulation.flows import Flows, Paths
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import MOST, Column, TooMuchError
from syntony.synth.traffic.ragged import offsets, ranges
from syntony.synth.traffic.run import Outcome, Shift, Traffic, flows_of, simulate
from syntony.topologies.topology import Topology

INTERCEPT, SLOPE = 0.25, 1.75
"""F of a connection that starts, and its growth until the last byte. Quoted from memory of the paper's Reno; only their
ratio matters if all flows are MLTCP's."""
PIECES = 32
_SAME = 1e-9  # parts of a connection's bytes; smaller differences count as equal
_APART = 1e-3  # of its computing time: a model has no noise, so jobs that start together would stay tied


def mltcp(topology: Topology, jobs: Sequence[Job], choice: Choice, timeline: bool = False) -> Outcome:
    """Simulates the jobs side by side with MLTCP's shares. Job k starts k thousandths of its computing time later than
    given. Raises the same errors as `run`."""
    shifts = [Shift(job.start + number * _APART * job.compute, 0.0) for number, job in enumerate(jobs)]
    return simulate(growing_shares(flows_of(topology, jobs, choice, shifts)), timeline)


def growing_shares(traffic: Traffic) -> Traffic:
    """The same traffic, every message cut into pieces with growing shares. TooMuchError for too many pieces."""
    flows = traffic.flows
    begin, end = _sent(traffic)
    first = np.floor(begin * PIECES * (1 + _SAME)).astype(np.int64)
    pieces = np.maximum(np.ceil(end * PIECES * (1 - _SAME)).astype(np.int64) - first, 1)
    if pieces.sum() > MOST:
        raise TooMuchError(
            f"MLTCP's shares cut the jobs' messages into {counted(int(pieces.sum()), 'piece')}; "
            f"at most {MOST} are simulated at once: take fewer iterations"
        )
    row = np.repeat(np.arange(len(flows)), pieces)
    number = ranges(np.zeros(len(flows), np.int64), pieces)
    level = np.minimum(first[row] + number, PIECES - 1)
    starts, last = np.cumsum(pieces) - pieces, np.cumsum(pieces) - 1

    # The part of the message in the piece: the interval between two multiples of 1 / PIECES that it covers.
    low, high = np.maximum(begin[row], level / PIECES), np.minimum(end[row], (level + 1) / PIECES)
    width = end[row] - begin[row]
    part = np.divide(high - low, width, out=np.ones(len(row)), where=width > 0)
    share = INTERCEPT + SLOPE * (np.arange(PIECES) + 0.5) / PIECES
    waits, waits_left = np.diff(flows.after_offset), np.diff(flows.after_left_offset)
    head = number == 0
    behind = np.ones(
        len(row), np.int64
    )  # a piece follows the previous one; the first piece of a message has the message's dependencies
    behind[starts] = waits_left
    after_left = np.repeat(np.arange(len(row)) - 1, behind)
    after_left[ranges(offsets(behind)[starts], waits_left)] = last[flows.after_left]
    cut = Flows(
        bytes=flows.bytes[row] * part / share[level],
        latency=np.where(number == pieces[row] - 1, flows.latency[row], 0.0),
        release=np.where(head, flows.release[row], 0.0),
        after_offset=offsets(np.where(head, waits[row], 0)),
        after=last[flows.after],
        after_left_offset=offsets(behind),
        after_left=after_left,
        set=flows.set[row] + level * (len(flows.paths.set_offset) - 1),
        policy=flows.policy[row],
        job=flows.job[row],
        paths=_weighted(flows.paths, share),
        capacity=flows.capacity,
    )
    return replace(traffic, flows=cut, iteration=traffic.iteration[row], message=traffic.message[row])


def _sent(traffic: Traffic) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per flow, the parts of its connection's bytes in the iteration that have been sent before it and with it.

    A connection is the traffic of one job over one set of paths; its messages leave in row order.
    """
    flows = traffic.flows
    key: Column = flows.set.astype(np.int64)
    for column in (flows.job.astype(np.int64), traffic.iteration, (traffic.message < 0).astype(np.int64)):
        key = np.unique(key * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    order = np.argsort(key, kind="stable")
    total = np.bincount(key, flows.bytes)
    until = np.empty(len(flows))
    until[order] = np.cumsum(flows.bytes[order])
    until -= np.concatenate(([0.0], np.cumsum(total)))[key]
    whole = np.where(total[key] > 0, total[key], 1.0)
    return np.clip((until - flows.bytes) / whole, 0.0, 1.0), np.clip(until / whole, 0.0, 1.0)


def _weighted(paths: Paths, share: NDArray[np.float64]) -> Paths:
    """All sets of paths once per share: set s with share k has the number k * sets + s."""
    times = len(share)

    def repeated(offset: NDArray[np.signedinteger]) -> Column:
        return offsets(np.tile(np.diff(offset), times))

    weight = (share[:, None] * paths.weight).ravel()
    return Paths(repeated(paths.set_offset), repeated(paths.path_offset), np.tile(paths.link, times), weight)
