"""Engine `bfb`: every block spreads breadth first, along shortest paths, and every step is balanced exactly.

In step t each rank u receives the blocks of the ranks that are t links away, from neighbours that are t - 1 links away
from those ranks and so hold the whole blocks. Which neighbour sends which part is the only thing left to decide:

        step 1     step 2                         block of v at u: half by the link from w, half by that from x
          w          w
         / \\         \\╲                           in step 2, u divides what it takes in over its links so that the
        v   .    v    u    t = 2 for v, u         busiest is as little busy as can be: for every rank and step alone
         \\ /         //                           a small flow, solved exactly (engines/bfb_balance.py)
          x          x

The number of steps is the least possible, the network's diameter. If steps were barriers, the time would be the sum of
the loads of their busiest links; it meets the throughput bound on tori, hypercubes and circulants, and comes near it on
graphs of low diameter (generalized Kautz, line graphs). Zhao et al., "Efficient Direct-Connect Topologies for
Collective Communications", NSDI'25.

Symmetry: under a free group of automorphisms (symmetry/free_group.py) only the flows of one rank per orbit are needed,
and the Schedule lists the transfers of one block per orbit: a torus of 2,500 is 50 small flows and 2,499 arrivals.

broadcast is the same with one block. reduce and reduce_scatter are these in reverse (symmetry/reversal.py); all_reduce
is a reduce_scatter followed by an all_gather.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from syntony._solve import ShortestPaths
from syntony.base.rows import ascending, pieces
from syntony.synth.bounds.demand import block_weights, fitting_generators
from syntony.synth.bounds.distance import latency
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.bfb.balance import Balance
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError
from syntony.synth.model.collective import MOST_WEIGHT, ChunkTable, Collective
from syntony.synth.model.network import Network, round_bandwidth
from syntony.synth.model.schedule import Generator, Schedule, Transfers
from syntony.synth.model.values import Values
from syntony.synth.symmetry.free_group import FreeGroup
from syntony.synth.symmetry.groups import chunk_permutation
from syntony.synth.symmetry.link_orbits import link_orbits
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.topology import Topology

ENGINE = "bfb"
MOST_GRAIN = 2520
"""Most parts per unit of weight; if exact loads need more, a link carries up to one part more."""

Integers = NDArray[np.signedinteger]


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine; see the module docstring. Raises EngineError for unsupported problems, OutOfTimeError.

    `size` does not matter. Blocks are cut anew, as the flows divide them.
    """
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine bfb takes the fewest steps there are; --engine sccl takes --steps and --rounds")
    if collective.kind in ("all_to_all", "gather", "scatter"):
        raise EngineError(f"engine bfb is for what copies or sums, not for {collective.kind}; use --engine flow")
    bounds = bounds_of(topology, collective, budget.for_bounds())
    if collective.kind == "all_reduce":
        schedule = _all_reduce(topology, collective, budget)
    elif collective.combining:
        plan = _Plan.of(Network(topology.reversed(), collective.dual()), budget)
        schedule = summed(plan.schedule(plan.grain, plan.cuts(plan.grain)), topology)
    else:
        plan = _Plan.of(Network(topology, collective), budget)
        schedule = plan.schedule(plan.grain, plan.cuts(plan.grain))
    bounds = replace(bounds, latency=latency(Network(topology, schedule.collective)))
    schedule = replace(schedule, bounds=bounds)
    proof = (
        f"fewest steps{' of both halves' if collective.kind == 'all_reduce' else ''}: all blocks take shortest paths"
    )
    if gap_of(schedule) == 0:
        proof += "; optimal throughput: the busiest links of all steps, counted exactly, meet the bound"
    return replace(schedule, proof=proof if schedule.steps else "")


def _all_reduce(topology: Topology, collective: Collective, budget: Budget) -> Schedule:
    """Both halves, in the same chunks: each block is cut where either half divides it."""
    _, gather = in_owned_chunks(collective)
    up = _Plan.of(Network(topology.reversed(), gather), budget)
    down = _Plan.of(Network(topology, gather), budget)
    grain = lcm(up.grain, down.grain)
    cuts = np.union1d(up.cuts(grain), down.cuts(grain))
    spread = down.schedule(grain, cuts)
    chunks = ChunkTable(np.zeros(len(spread.collective.chunks), np.int32), spread.collective.chunks.weight)
    return summed_and_spread(up.schedule(grain, cuts), spread, replace(collective, chunks=chunks))


@dataclass(frozen=True, eq=False)
class _Plan:
    """Which parts arrive where, when and over which link: columns, one row per part of a block and rank that receives
    it.

    Only for the blocks of `senders`, one per orbit of the group (of a broadcast: the root's).

    source    (P,)  position in `senders`
    rank      (P,)  rank of the collective that takes the part in
    step      (P,)
    link      (P,)  of the topology
    begin, end  (P,)  of the part, in 1/grain of a unit of the block's weight
    """

    network: Network
    group: FreeGroup
    senders: tuple[int, ...]
    grain: int
    source: Integers
    rank: Integers
    step: Integers
    link: Integers
    begin: Integers
    end: Integers

    @staticmethod
    def of(network: Network, budget: Budget) -> _Plan:
        """The plan of an all_gather or broadcast."""
        topology, collective = network.topology, network.collective
        for link in network.links:
            for end in (topology.nodes[link.src], topology.nodes[link.dst]):
                if end.kind != "rank":
                    raise EngineError(
                        f"engine bfb is for links from rank to rank, and {topology.name} has {end.kind} {end.name}; "
                        "use --engine forest"
                    )
        members = collective.members
        rooted = collective.kind == "broadcast"
        generators = [] if rooted else fitting_generators(network)
        group = FreeGroup.within(len(topology.nodes), members, generators)
        position = {member: rank for rank, member in enumerate(members)}
        senders = (collective.root,) if rooted else tuple(position[home] for home in group.homes)
        arrivals = _Arrivals(network, senders if rooted else tuple(range(collective.ranks)), budget)
        found = [arrivals.at(home) for home in group.homes]
        grain = lcm(*(balance.load.denominator for at in found for balance in at.balances))
        grain = min(grain, MOST_GRAIN)
        images = _Images(topology, group)
        columns = [
            images.of(home, at.parts(grain), senders, position) for home, at in zip(group.homes, found, strict=True)
        ]
        return _Plan(network, group, senders, grain, *np.concatenate(columns, axis=1))

    @cached_property
    def weights(self) -> Integers:
        """Per sender, the weight of its block."""
        weights = block_weights(self.network.collective)
        return weights if self.network.collective.kind == "broadcast" else weights[list(self.senders)]

    def cuts(self, grain: int) -> Integers:
        """Where blocks are cut, in 1/grain of a unit: source * span(grain) + place, ascending, both ends included."""
        span, times = self.span(grain), grain // self.grain
        ends = np.concatenate((self.begin, self.end)) * times + np.tile(self.source, 2) * span
        first = np.arange(len(self.senders)) * span
        return ascending(np.concatenate((ends, first, first + self.weights * grain)))

    def span(self, grain: int) -> int:
        """An upper bound on the length of blocks."""
        return int(self.weights.max()) * grain + 1

    def schedule(self, grain: int, cuts: Integers) -> Schedule:
        """The parts as chunks between `cuts`; `grain` is a multiple of the plan's."""
        network, group, span = self.network, self.group, self.span(grain)
        topology, collective = network.topology, network.collective
        count = np.diff(np.searchsorted(cuts, np.arange(len(self.senders) + 1) * span)) - 1
        before = np.searchsorted(cuts, np.arange(len(self.senders)) * span) - np.arange(len(self.senders))
        lengths = np.diff(cuts)[np.diff(cuts // span) == 0]  # of all chunks of the senders, one after another

        owner = self._owners()
        per_block = count[owner]
        weight = pieces(lengths, before[owner], per_block)
        weight //= gcd(*weight.tolist())
        if weight.max() > MOST_WEIGHT:
            raise EngineError(
                f"engine bfb divides {collective.kind}'s blocks too finely: a chunk has {weight.max()} parts"
            )
        cut = replace(collective, chunks=ChunkTable(np.repeat(np.arange(len(owner)), per_block), weight))

        # A part is all chunks from the cut at its begin to that at its end.
        offset, times = self.source * span, grain // self.grain
        first = np.searchsorted(cuts, offset + self.begin * times) - self.source
        chunks = np.searchsorted(cuts, offset + self.end * times) - self.source - first
        part = np.repeat(np.arange(len(first)), chunks)
        value = pieces(np.arange(len(lengths)), first, chunks)
        order = np.lexsort((value, self.step[part]))
        part, value = part[order], value[order]
        position = np.full(len(topology.nodes), -1)
        position[list(collective.members)] = np.arange(collective.ranks)
        link = self.link[part]
        transfers = Transfers(
            value,
            value,
            position[topology.ends[0][link]],
            self.rank[part],
            self.step[part],
            np.arange(len(part) + 1),
            link,
        )
        block_first = np.concatenate(([0], np.cumsum(per_block)))[self._blocks()]
        held = np.repeat(block_first - before, count) + np.arange(len(lengths))
        senders = np.repeat(np.asarray(self.senders), count)
        values = Values(held, senders, np.zeros(len(held) + 1, np.int64), np.zeros(0, np.int64))
        symmetry = []
        for generator in group.generators:
            moved = chunk_permutation(cut, generator)
            assert moved is not None, "blocks of an orbit are cut alike"
            symmetry.append(Generator(tuple(generator), moved))
        rounds = self._rounds(part, cut.chunks.weight[held[value]])
        return Schedule(topology, cut, values, transfers, rounds, ENGINE, symmetry=tuple(symmetry))

    def _blocks(self) -> Integers:
        """The block of every sender."""
        return np.zeros(1, np.int64) if self.network.collective.kind == "broadcast" else np.asarray(self.senders)

    def _owners(self) -> Integers:
        """Per block, the sender (its position) whose block is cut alike."""
        collective = self.network.collective
        if collective.kind == "broadcast":
            return np.zeros(1, np.int64)
        owner = np.full(len(self.network.topology.nodes), -1)
        for number, home in enumerate(self.group.homes):
            owner[self.group.elements[:, home]] = number
        return owner[list(collective.members)]

    def _rounds(self, part: Integers, weight: Integers) -> Integers:
        """Rounds per step, by its busiest link: of all images of a link together, as every image carries the same."""
        topology = self.network.topology
        orbit = link_orbits(topology, self.group.generators)
        load = np.zeros((int(self.step.max(initial=-1)) + 1, len(topology.links)), np.int64)
        np.add.at(load, (self.step[part], orbit[self.link[part]]), weight)
        images = np.bincount(orbit)
        unit = round_bandwidth(topology)
        rate = np.asarray([int(link.bandwidth / unit) for link in topology.links])[
            np.unique(orbit, return_index=True)[1]
        ]
        each = load[:, : len(rate)] * self.group.order // images
        return np.asarray((-(-each // rate)).max(axis=1, initial=0))


class _Arrivals:
    """Which links bring which blocks to a rank in which step, balanced."""

    def __init__(self, network: Network, sources: tuple[int, ...], budget: Budget) -> None:
        topology, collective = network.topology, network.collective
        self._network, self._budget = network, budget
        self._sources = np.asarray(sources)
        self._homes = np.asarray([collective.members[source] for source in sources])
        weights = block_weights(collective)
        self._weights = weights if collective.kind == "broadcast" else weights[self._sources]
        unit = round_bandwidth(topology)
        self._rate = [int(link.bandwidth / unit) for link in topology.links]
        tails = np.asarray([link.src for link in network.links], np.int32)
        heads = np.asarray([link.dst for link in network.links], np.int32)
        self._backwards = ShortestPaths(len(topology.nodes), heads, tails, np.ones(len(tails)))
        self._known: dict[int, Integers] = {}

    def at(self, node: int) -> _At:
        """The parts that arrive at a member's node. Raises OutOfTimeError."""
        if not self._budget.left():
            raise OutOfTimeError(
                f"engine bfb needs more than {self._budget.timeout:g} s; allow more with --timeout, or --engine greedy "
                "does it"
            )
        usable = self._network.usable
        links = [link for link in self._network.topology.links_to(node) if usable[link.src]]
        there = self._distances(node)
        nearer = np.asarray([self._distances(link.src) for link in links]).reshape(len(links), len(there)) + 1 == there
        rate = np.asarray([self._rate[link.id] for link in links], np.int64)
        jobs = [np.flatnonzero(there == step) for step in range(1, int(there.max(initial=0)) + 1)]
        balances = [Balance.of(self._weights[job], nearer[:, job].T, rate) for job in jobs]
        ids = np.asarray([link.id for link in links], np.int64)
        return _At(ids, [self._sources[job] for job in jobs], [self._weights[job] for job in jobs], balances)

    def _distances(self, node: int) -> Integers:
        """The distance from every source's node to this one."""
        if node not in self._known:
            self._known[node] = np.asarray(self._backwards.distances(node))[self._homes].astype(np.int64)
        return self._known[node]


@dataclass(frozen=True, eq=False)
class _At:
    """Arrivals at one rank, step by step: its links, and per step the source ranks, weights and balance."""

    links: Integers
    sources: list[Integers]
    weights: list[Integers]
    balances: list[Balance]

    def parts(self, grain: int) -> Integers:
        """(5, P): source rank, step, link, begin and end of every part, by source."""
        columns = [np.zeros((5, 0), np.int64)]
        for step, (sources, weights, balance) in enumerate(zip(self.sources, self.weights, self.balances, strict=True)):
            carried = balance.divided(grain)
            for kind in range(len(carried)):
                jobs = np.flatnonzero(balance.kind == kind)
                # All jobs of the kind on a line, and on the same line what each link carries of them.
                jobs_end, links_end = np.cumsum(weights[jobs] * grain), np.cumsum(carried[kind])
                ends = np.union1d(jobs_end, links_end[carried[kind] > 0])
                begins = np.concatenate(([0], ends[:-1]))
                job = np.searchsorted(jobs_end, begins, side="right")
                link = np.searchsorted(links_end, begins, side="right")
                start = jobs_end[job] - weights[jobs][job] * grain
                steps = np.full(len(ends), step)
                columns.append(np.stack((sources[jobs[job]], steps, self.links[link], begins - start, ends - start)))
        parts = np.concatenate(columns, axis=1)
        return parts[:, np.argsort(parts[0], kind="stable")]


class _Images:
    """Maps the arrivals at one rank of an orbit to all others."""

    def __init__(self, topology: Topology, group: FreeGroup) -> None:
        self._topology, self._group = topology, group
        self._wires = _wire_numbers(topology, *topology.ends, topology.speeds)
        self._order = np.argsort(self._wires, kind="stable")
        self._sorted = self._wires[self._order]
        self._inverse = np.argsort(group.elements, axis=1)

    def of(self, home: int, parts: Integers, senders: tuple[int, ...], position: dict[int, int]) -> Integers:
        """(6, P): the columns of _Plan, for all ranks of the home's orbit, of the blocks of `senders`."""
        members = np.asarray(sorted(position, key=position.__getitem__))
        rank_at = np.full(len(self._topology.nodes), -1)
        rank_at[members] = np.arange(len(members))
        # Element k maps the source, as seen from the home, to its sender.
        seen = rank_at[self._inverse[:, members[list(senders)]]]  # (order, senders)
        first = np.searchsorted(parts[0], seen.reshape(-1))
        many = np.searchsorted(parts[0], seen.reshape(-1), side="right") - first
        row = pieces(np.arange(parts.shape[1]), first, many)
        which = np.repeat(np.arange(seen.size), many)
        element, source = which // len(senders), which % len(senders)
        rank = rank_at[self._group.elements[element, home]]
        links, link_of = np.unique(parts[2], return_inverse=True)
        images = self._links(links)
        return np.stack(
            (source, rank, parts[1, row], images[element, link_of.reshape(-1)[row]], parts[3, row], parts[4, row])
        )

    def _links(self, links: Integers) -> Integers:
        """(order, links): where every element moves the links; equal parallel ones keep their order."""
        sources, destinations = self._topology.ends
        among = np.empty(len(self._wires), np.int64)
        among[self._order] = np.arange(len(self._wires)) - np.searchsorted(self._sorted, self._sorted)
        elements = self._group.elements
        moved = _wire_numbers(
            self._topology, elements[:, sources[links]], elements[:, destinations[links]], self._topology.speeds[links]
        )
        found: Integers = self._order[np.searchsorted(self._sorted, moved) + among[links]]
        return found


def _wire_numbers(topology: Topology, src: Integers, dst: Integers, speed: Integers) -> Integers:
    """One number for a link's ends and speed."""
    return (speed * len(topology.nodes) + src) * len(topology.nodes) + dst
