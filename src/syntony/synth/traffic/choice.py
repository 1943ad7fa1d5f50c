"""Choice: which of the equal-cost paths a message takes.

    single         the first one, always: no load balancing at all
    ecmp           every switch hashes the 5-tuple and so picks its next link. All messages of a job from one rank to
                   another are one flow, so two elephants that collide, collide for good (RFC 2992; Al-Fares et al.,
                   "Hedera", NSDI'10, section 2)
    e-ecmp:K       K queue pairs per pair of ranks, each hashed for itself; a message is split over them (E-ECMP with
                   QP scaling: Gangidi et al., "RDMA over Ethernet for distributed training at Meta scale", SIGCOMM'24)
    spray          packets go round all paths, so every path carries an even share (Dixit et al., INFOCOM'13; Ultra
                   Ethernet)
    least-loaded   a message takes, when it starts, the path whose busiest link has the least to carry (Qian et al.,
                   "Alibaba HPN", SIGCOMM'24, path selection of the hosts; Difreal)

The hash is a 64-bit mixer (SplitMix64's, Steele et al., OOPSLA'14) of seed, switch, source, destination, job and queue
pair: another seed is another assignment of port numbers, and every switch has a hash of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.synth.simulation.connections import Ways
from syntony.synth.simulation.flows import PathPolicy, Paths
from syntony.synth.traffic.messages import Column
from syntony.synth.traffic.paths import PathFinder
from syntony.topologies.topology import Topology

CHOICES = "single, ecmp, e-ecmp:K (such as e-ecmp:4), spray or least-loaded"
_MOST_QUEUE_PAIRS = 64


@dataclass(frozen=True)
class Choice:
    """How paths are chosen: the name, the queue pairs of `e-ecmp`, and the seed of the hash."""

    name: str
    queue_pairs: int = 1
    seed: int = 0

    @staticmethod
    def parse(text: str, seed: int = 0) -> Choice:
        """`ecmp`, `e-ecmp:4`, ..; raises UserError for what is none."""
        name, colon, number = text.partition(":")
        if name == "e-ecmp" and number.isascii() and number.isdecimal() and 0 < int(number) <= _MOST_QUEUE_PAIRS:
            return Choice(name, int(number), seed)
        if colon or name not in ("single", "ecmp", "spray", "least-loaded"):
            raise UserError(f"paths '{text}': it must be {CHOICES}, with K from 1 to {_MOST_QUEUE_PAIRS}")
        return Choice(name, 1, seed)

    def __str__(self) -> str:
        return f"{self.name}:{self.queue_pairs}" if self.name == "e-ecmp" else self.name

    @property
    def policy(self) -> PathPolicy:
        """What the simulator does with the paths of a flow."""
        return {"spray": PathPolicy.spray, "least-loaded": PathPolicy.least_loaded}.get(self.name, PathPolicy.fixed)

    def ways(self, topology: Topology) -> Ways:
        """How the messages of a Program find their way: all of two ranks are one connection here."""
        finder = PathFinder(topology)

        def places(src: Column, dst: Column, queue_pair: Column) -> Paths:
            return self.place(finder, src, dst, np.zeros_like(src), queue_pair)

        return Ways(places, self.policy, self.queue_pairs)

    def place(self, finder: PathFinder, src: Column, dst: Column, connection: Column, queue_pair: Column) -> Paths:
        """One set of paths per flow: the path that a flow is fixed to, or all that it may use.

        `connection` and `queue_pair` tell the flows of one pair of ranks apart.
        """
        if self.name in ("spray", "least-loaded"):
            return finder.every(src, dst)
        if self.name == "single":
            return finder.walk(src, dst, lambda who, node, choices: np.zeros(len(who), np.int64))
        flow = _mixed(self.seed, src, dst, connection, queue_pair)
        return finder.walk(
            src, dst, lambda who, node, choices: (_mixed(flow[who], node) % choices.astype(np.uint64)).astype(np.int64)
        )


AS_SCHEDULED = Choice("as scheduled")
"""No choice: what a Schedule says. Nothing can be placed by it."""


def _mixed(*words: int | NDArray[np.integer]) -> NDArray[np.uint64]:
    """One 64-bit hash of the words, column by column."""
    result = np.zeros(1, np.uint64)
    with np.errstate(over="ignore"):
        for word in words:
            result = result + np.asarray(word).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            result = (result ^ (result >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            result = result ^ (result >> np.uint64(31))
    return result
