"""Engine `flow`: all_to_all, gather and scatter, divided over paths by a linear program.

These collectives neither copy nor add, so data are flows, and the best division over paths is a linear program
(bounds/flow_program.py). Its optimum is the throughput bound. The rounded solution meets it exactly if the solution
consists of fractions with a small denominator:

    torus, rank 0's data      to 1: all by one link        to (1,1): 1/2 by (1,0), 1/2 by (0,1)
    the same for all ranks    every link carries the same; chunks of weight 1/2, relayed by the ranks between

1. the bound gives the time, and so what each link can carry; the program finds the shortest flows within that (if no
   flow meets the bound, the least time is found first);
2. flows become paths, and paths chunks of whole weights (flow/paths.py), counted again exactly;
3. paths are cut into hops from rank to rank. Those of an all_to_all have an order on every route (flow/steps.py). For
   scatter and gather, a hop's step is its number on the path: all chunks move at once, slice by slice, so what lies
   behind every link has work from the first slice on. Those with the longest way are first.

The solver's flow of a scatter or gather may lead through one rank what two could share; so as little as possible is led
through each (flow/narrowed.py).

If the program is too large (hundreds of ranks without symmetry), chunks are not divided and their paths are balanced,
with a proven gap (flow/whole.py).

Symmetry: one source per orbit of a free group of automorphisms (symmetry/free_group.py) stands for all, in the program,
in its paths and in the Schedule: a torus of 512 is solved and stored as the paths of rank 0 and three generators.

gather is scatter on reversed links, each path walked the other way. One flow out of every source, for all_to_all: the
master program of Basu et al., "Efficient All-to-All Collective Communication Schedules for Direct-Connect Topologies",
HPDC'24 (arXiv 2309.13541); they decompose its solution by a program per source, here it is decomposed path by path.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import pieces
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.demand import block_weights, fitting_generators
from syntony.synth.bounds.distance import latency
from syntony.synth.bounds.flow_program import FlowProgram
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import MEETS_BOUND, Budget, EngineError, OutOfTimeError
from syntony.synth.engines.flow.narrowed import narrowed
from syntony.synth.engines.flow.paths import Path, denominators, paths_of, whole_weights
from syntony.synth.engines.flow.steps import steps_of
from syntony.synth.engines.flow.whole import whole_paths
from syntony.synth.model.collective import MOST_WEIGHT, ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Generator, Schedule, Transfer, Transfers
from syntony.synth.model.values import Values
from syntony.synth.symmetry.free_group import FreeGroup
from syntony.synth.symmetry.groups import chunk_permutation
from syntony.synth.symmetry.link_orbits import link_orbits
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.topology import Topology

ENGINE = "flow"
KINDS = ("all_to_all", "gather", "scatter")

MOST_VARIABLES = 200_000
"""Flow programs with more (sources times links) are not tried: HiGHS would need hours. Paths are balanced instead."""
_SLACK = 1e-9
"""How much longer than the exact time the program may load a link, so that rounding does not make it infeasible."""

Integers = NDArray[np.signedinteger]


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine; see the top of the file. Raises EngineError for kinds that copy or add, OutOfTimeError.

    `size` does not matter: the schedule is for sizes at which bandwidth does. Blocks are cut anew, as the paths need.
    """
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine flow takes no --steps or --rounds; use --engine sccl")
    if collective.kind not in KINDS:
        raise EngineError(
            f"engine flow is for data from one rank to one other ({', '.join(KINDS)}), and {collective.kind} copies or "
            "adds on its way; use --engine forest"
        )
    bounds = bounds_of(topology, collective, budget.for_bounds())
    problem = _Problem.of(Network(topology, collective))
    if collective.ranks == 1:
        return replace(_schedule(problem, [], np.zeros(0, np.int64), 1), bounds=bounds)
    if collective.kind == "all_to_all" and problem.variables > MOST_VARIABLES:
        return whole_paths(problem.network, bounds, ENGINE, budget.left())
    paths = _paths(problem, bounds.throughput.seconds_per_byte, budget)
    found: list[tuple[Fraction, Schedule]] = []
    for denominator in denominators(paths, MOST_WEIGHT // max(int(problem.table.max()), 1)):
        schedule = _schedule(problem, paths, whole_weights(paths, problem.wanted, denominator), denominator)
        found.append((seconds_per_byte(schedule), schedule))
        if found[-1][0] <= bounds.throughput.seconds_per_byte:
            break
    rate, best = min(found, key=lambda one: one[0])
    proof = MEETS_BOUND if rate <= bounds.throughput.seconds_per_byte else ""
    return replace(best, bounds=replace(bounds, latency=latency(Network(topology, best.collective))), proof=proof)


@dataclass(frozen=True, eq=False)
class _Problem:
    """What each rank sends to each other one over which arcs, up to symmetry.

    arcs     of the network; for gather reversed, and then the root sends
    table    (senders, ranks): units of chunk weight from each sender to each rank of the collective
    senders  ranks of the collective that stand for all, one per orbit of the group
    orbit    per arc, the number of its orbit
    """

    network: Network
    arcs: Arcs
    group: FreeGroup
    orbit: Integers
    senders: tuple[int, ...]
    table: NDArray[np.int64]

    @staticmethod
    def of(network: Network) -> _Problem:
        collective, arcs = network.collective, Arcs.of(network)
        members = collective.members
        weights = block_weights(collective)
        if collective.kind == "all_to_all":
            nodes = len(network.topology.nodes)
            group = FreeGroup.within(nodes, members, fitting_generators(network))
            position = {member: rank for rank, member in enumerate(members)}
            senders = tuple(position[home] for home in group.homes)
            table = weights[list(senders)].copy()
        else:
            trivial = FreeGroup.of(len(network.topology.nodes), members, ())
            assert trivial is not None
            group, senders, table = trivial, (collective.root,), weights[None, :].copy()
        if collective.kind == "gather":
            arcs = arcs.reversed()
        table[np.arange(len(senders)), list(senders)] = 0
        whole = link_orbits(network.topology, group.generators)
        orbit = np.unique(whole[list(arcs.links)], return_inverse=True)[1]
        return _Problem(network, arcs, group, orbit, senders, table)

    @property
    def variables(self) -> int:
        """How large the flow program is."""
        return len(self.senders) * len(self.arcs.links)

    @property
    def wanted(self) -> list[dict[int, int]]:
        """Per sender, what each node wants of it."""
        members = self.network.collective.members
        return [
            {members[rank]: int(amount) for rank, amount in enumerate(row.tolist()) if amount} for row in self.table
        ]

    def program(self) -> FlowProgram:
        """The flow program, with room in units of the fastest link's bandwidth."""
        arcs, members = self.arcs, self.network.collective.members
        room = np.zeros(int(self.orbit.max()) + 1)
        fastest = max(arcs.capacity)
        np.add.at(room, self.orbit, [float(Fraction(capacity, fastest)) for capacity in arcs.capacity])
        wanted = np.zeros((len(self.senders), arcs.nodes), np.int64)
        wanted[:, list(members)] = self.table
        sources = tuple(members[sender] for sender in self.senders)
        times = (self.group.order,) * len(sources)
        return FlowProgram(arcs.tails, arcs.heads, self.orbit, room, arcs.usable, sources, times, wanted)


def _paths(problem: _Problem, seconds_per_byte: Fraction, budget: Budget) -> list[Path]:
    """The paths of all senders, as the program's solution says. Raises EngineError, OutOfTimeError."""
    arcs, collective = problem.arcs, problem.network.collective
    program = problem.program()
    time = float(seconds_per_byte / collective.unit * arcs.unit * max(arcs.capacity))
    time *= 1 + _SLACK
    flows = program.flows(time, budget.left())
    if flows is None:
        least = program.least_time(budget.left())
        if least is not None:
            time = least * (1 + 1e-7)
            flows = program.flows(time, budget.left())
    if flows is None:
        raise OutOfTimeError(
            f"engine flow found no solution of its linear program of {problem.variables} variables within "
            f"{budget.timeout:g} s; allow more with --timeout, or use --engine greedy"
        )
    if collective.kind != "all_to_all":
        flows = narrowed(program, time, flows, budget)
    ends = list(zip(arcs.tails.tolist(), arcs.heads.tolist(), strict=True))
    found = []
    for number, (start, wanted, flow) in enumerate(zip(program.sources, problem.wanted, flows, strict=True)):
        found += paths_of(number, start, wanted, flow, ends)
    return found


def _schedule(problem: _Problem, paths: list[Path], weights: NDArray[np.int64], denominator: int) -> Schedule:
    """The paths with a weight, as chunks of the representatives and their hops."""
    network, arcs, group = problem.network, problem.arcs, problem.group
    topology = network.topology
    used = [(path, int(weight)) for path, weight in zip(paths, weights.tolist(), strict=True) if weight]
    used.sort(key=lambda item: (item[0].source, item[0].end))
    cut, first = _cut(problem, used, denominator)
    backwards = cut.kind == "gather"

    position = {member: rank for rank, member in enumerate(cut.members)}
    agent = [position.get(node.id, -1) for node in topology.nodes]
    hops = []
    for path, _ in used:
        route = [arcs.links[arc] for arc in path.arcs]
        hops.append(_hops(topology, route[::-1] if backwards else route))
    alone = cut.kind != "all_to_all"
    steps = [list(range(len(path))) for path in hops] if alone else steps_of(_ways(problem, hops))
    rows = [
        Transfer(value, value, agent[topology.links[route[0]].src], agent[topology.links[route[-1]].dst], step, route)
        for value, (routes, times) in enumerate(zip(hops, steps, strict=True))
        for route, step in zip(routes, times, strict=True)
    ]
    rows.sort(key=lambda row: (row.step, -len(hops[row.value])))  # the longest way first
    owners = [agent[path.end] if backwards else problem.senders[path.source] for path, _ in used] + list(
        problem.senders
    )
    count = len(owners)
    values = Values(first, np.asarray(owners, np.int64), np.zeros(count + 1, np.int64), np.zeros(0, np.int64))
    symmetry = []
    for generator in group.generators:
        chunks = chunk_permutation(cut, generator)
        assert chunks is not None, "blocks of an orbit are cut alike"
        symmetry.append(Generator(tuple(generator), chunks))
    return Schedule(topology, cut, values, Transfers.of(rows), engine=ENGINE, symmetry=tuple(symmetry))


def _cut(problem: _Problem, used: list[tuple[Path, int]], denominator: int) -> tuple[Collective, Integers]:
    """The collective with a chunk for every path, and the senders' chunks: each path's, then their own blocks'."""
    collective = problem.network.collective
    ranks, members = collective.ranks, np.asarray(collective.members)
    position = np.full(len(problem.network.topology.nodes), -1)
    position[members] = np.arange(ranks)
    # What does not move (a rank's block for itself) is one chunk.
    counts = np.ones((len(problem.senders), ranks), np.int64)
    flat: list[int] = []
    pieces_of: list[list[list[int]]] = [[[] for _ in range(ranks)] for _ in problem.senders]
    for path, part in used:
        pieces_of[path.source][int(position[path.end])].append(part)
    blocks = block_weights(collective)
    table = blocks if blocks.ndim == 2 else blocks[None, :]
    for number, sender in enumerate(problem.senders):
        for rank in range(ranks):
            row = pieces_of[number][rank] or [int(table[sender if len(table) > 1 else 0, rank]) * denominator]
            counts[number, rank] = len(row)
            flat += row
    offset = (np.cumsum(counts.reshape(-1)) - counts.reshape(-1)).reshape(counts.shape)
    weight: Integers = np.asarray(flat, np.int64)
    length: Integers = counts.reshape(-1)
    if len(table) > 1:
        starts, lengths = np.zeros((ranks, ranks), np.int64), np.zeros((ranks, ranks), np.int64)
        for element in problem.group.elements:
            image = position[element[members]]
            for number, sender in enumerate(problem.senders):
                starts[image[sender], image] = offset[number]
                lengths[image[sender], image] = counts[number]
        length = lengths.reshape(-1)
        weight = pieces(weight, starts.reshape(-1), length)
    cut = replace(collective, chunks=ChunkTable(np.repeat(np.arange(len(length)), length), weight))
    begin = (np.cumsum(length) - length).reshape(len(table), ranks)
    ends = [(problem.senders[path.source], int(position[path.end])) for path, _ in used]
    chunks: list[int] = []
    taken: dict[tuple[int, int], int] = {}
    for sender, end in [*ends, *((sender, sender) for sender in problem.senders)]:
        place = taken[sender, end] = taken.get((sender, end), -1) + 1
        chunks.append(int(begin[sender if len(table) > 1 else 0, end]) + place)
    return cut, np.asarray(chunks, np.int64)


def _hops(topology: Topology, route: list[int]) -> list[tuple[int, ...]]:
    """The route cut at its ranks."""
    hops, begin = [], 0
    for place, link in enumerate(route, 1):
        if topology.nodes[topology.links[link].dst].kind == "rank":
            hops.append(tuple(route[begin:place]))
            begin = place
    return hops


def _ways(problem: _Problem, hops: list[list[tuple[int, ...]]]) -> list[list[tuple[int, ...]]]:
    """A name for the route of every hop, equal within an orbit: the orbits of its links, and its relative end."""
    topology = problem.network.topology
    home, element = problem.group.home, problem.group.element
    undone = np.argsort(problem.group.elements, axis=1)
    orbit = dict(zip(problem.arcs.links, problem.orbit.tolist(), strict=True))
    names: dict[tuple[int, ...], tuple[int, ...]] = {}
    for path in hops:
        for route in path:
            if route not in names:
                src, dst = topology.links[route[0]].src, topology.links[route[-1]].dst
                seen = undone[element[src], dst]
                names[route] = (int(home[src]), int(seen), *(orbit[link] for link in route))
    return [[names[route] for route in path] for path in hops]
