"""Choice: which of the equal-cost paths a message takes.

    single         always the first one: no load balancing
    ecmp           every switch hashes the 5-tuple to pick its next link. All messages of a job from one rank to another
                   are one flow, so colliding elephants collide permanently (RFC 2992; Al-Fares et al., "Hedera",
                   NSDI'10, section 2)
    e-ecmp:K       K queue pairs per pair of ranks, each hashed separately; a message is split over them (E-ECMP with
                   QP scaling: Gangidi et al., "RDMA over Ethernet for distributed training at Meta scale", SIGCOMM'24)
    spray          packets use all paths in turn, so every path carries an equal share (Dixit et al., INFOCOM'13; Ultra
                   Ethernet)
    least-loaded   a message takes, when it starts, the path whose busiest link has the least to carry (Qian et al.,
                   "Alibaba HPN", SIGCOMM'24, path selection of the hosts; Difreal)

The hash is a 64-bit mixer (SplitMix64's, Steele et al., OOPSLA'14) of seed, switch, source, destination, job and queue
pair: another seed is another assignment of port numbers, and every switch hashes differently.
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
        """Parses `ecmp`, `e-ecmp:4`, ..; raises UserError for an unknown choice."""
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
        """How the simulator uses the paths of a flow."""
        return {"spray": PathPolicy.spray, "least-loaded": PathPolicy.least_loaded}.get(self.name, PathPolicy.fixed)

    def ways(self, topology: Topology) -> Ways:
        """The paths of a Program's messages: all messages between two ranks are one connection here."""
        finder = PathFinder(topology)

        def places(src: Column, dst: Column, queue_pair: Column) -> Paths:
            return self.place(finder, src, dst, np.zeros_like(src), queue_pair)

        return Ways(places, self.policy, self.queue_pairs)

    def place(self, finder: PathFinder, src: Column, dst: Column, connection: Column, queue_pair: Column) -> Paths:
        """One set of paths per flow: its fixed path, or all paths that it may use.

        `connection` and `queue_pair` distinguish the flows of one pair of ranks.
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
"""No choice: the routes of a Schedule. It cannot place anything."""


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
