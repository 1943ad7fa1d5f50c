"""Right schedules for the tests, and a simulation of schedules that shares nothing with the checker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from syntony.synth.engines.engine import Budget
from syntony.synth.engines.sccl import search as sccl
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.symmetry.groups import expand
from syntony.topologies import Topology
from syntony.topologies.aggregator import PROFILES
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse


def link_between(topology: Topology, src: int, dst: int) -> int:
    """The first link from src to dst."""
    return next(link.id for link in topology.links if (link.src, link.dst) == (src, dst))


def ring_all_gather(ranks: int) -> Schedule:
    """Every block goes round the ring, ranks - 1 steps."""
    topology, collective = parse(f"ring:{ranks}"), Collective.make("all_gather", ranks)
    values = ValueBuilder.of_chunks(collective)
    rows = [
        Transfer(block, block, src, (src + 1) % ranks, step, (link_between(topology, src, (src + 1) % ranks),))
        for step in range(ranks - 1)
        for src in range(ranks)
        for block in [(src - step) % ranks]
    ]
    return Schedule(topology, collective, values.build(), Transfers.of(rows), rounds=[1] * (ranks - 1), engine="hand")


def star_reduce(ranks: int) -> Schedule:
    """All ranks send to rank 0, which sums once, in the order of the ranks; one local operand, no rounds."""
    topology, collective = parse(f"full:{ranks}"), Collective.make("reduce", ranks, weights=(1, 2))
    values = ValueBuilder()
    rows = []
    for chunk in range(2):
        terms = [values.contribution(chunk, rank) for rank in range(ranks)]
        total = values.sum(terms)
        rows += [Transfer(terms[src], total, src, 0, 0, (link_between(topology, src, 0),)) for src in range(1, ranks)]
    return Schedule(topology, collective, values.build(), Transfers.of(rows), engine="hand")


def chain_all_reduce(ranks: int) -> Schedule:
    """Partial sums go up the line of ranks, the whole sum comes down again."""
    topology, collective = parse(f"mesh:{ranks}"), Collective.make("all_reduce", ranks)
    values = ValueBuilder()
    partial = values.contribution(0, 0)
    rows = []
    for rank in range(1, ranks):
        total = values.sum((partial, values.contribution(0, rank)))
        rows.append(Transfer(partial, total, rank - 1, rank, rank - 1, (link_between(topology, rank - 1, rank),)))
        partial = total
    for rank in range(ranks - 2, -1, -1):
        route = (link_between(topology, rank + 1, rank),)
        rows.append(Transfer(partial, partial, rank + 1, rank, 2 * ranks - 3 - rank, route))
    return Schedule(topology, collective, values.build(), Transfers.of(rows), engine="hand")


def switch_all_reduce(ranks: int) -> Schedule:
    """The switch of a star adds everybody's parts of two chunks and sends the sums to all; one slot is enough."""
    topology = parse(f"star:{ranks},aggregator=switchml,aggregator.slots=1")
    collective = Collective.make("all_reduce", ranks, 2)
    values = ValueBuilder()
    rows = []
    for chunk in range(2):
        terms = [values.contribution(chunk, rank) for rank in range(ranks)]
        total = values.sum(terms)
        for rank in range(ranks):
            rows.append(Transfer(terms[rank], total, rank, ranks, chunk, (link_between(topology, rank, ranks),)))
            rows.append(Transfer(total, total, ranks, rank, chunk + 1, (link_between(topology, ranks, rank),)))
    rows.sort(key=lambda row: row.step)
    return Schedule(
        topology, collective, values.build(), Transfers.of(rows), engine="hand", number_format="int32_block"
    )


def switch_reduce_scatter(ranks: int) -> Schedule:
    """The switch of a star adds block r, starting with rank r's part, for rank r: turning the star changes nothing."""
    topology, collective = parse(f"star:{ranks},aggregator=sharp"), Collective.make("reduce_scatter", ranks)
    values = ValueBuilder()
    rows = []
    for block in range(ranks):
        terms = [values.contribution(block, (block + k) % ranks) for k in range(ranks)]
        total = values.sum(terms)
        for k, term in enumerate(terms):
            src = (block + k) % ranks
            rows.append(Transfer(term, total, src, ranks, 0, (link_between(topology, src, ranks),)))
        rows.append(Transfer(total, total, ranks, block, 1, (link_between(topology, ranks, block),)))
    rows.sort(key=lambda row: row.step)
    return Schedule(topology, collective, values.build(), Transfers.of(rows), engine="hand", number_format="float32")


def two_leaves() -> Topology:
    """Four ranks, two per leaf switch, and a spine over the leaves."""
    wiring = Wiring("two leaves")
    ranks = [wiring.rank((rank, 0.0)) for rank in range(4)]
    leaves = [wiring.switch(f"leaf{leaf}", (2.0 * leaf, 1.0)) for leaf in range(2)]
    spine = wiring.switch("spine", (1.0, 2.0))
    for rank in ranks:
        wiring.cable(rank, leaves[rank // 2], Fraction(10**9), 1e-6)
    for leaf in leaves:
        wiring.cable(leaf, spine, Fraction(10**9), 1e-6)
    return wiring.topology([(1, 0, 2, 3, 4, 5, 6), (2, 3, 0, 1, 5, 4, 6)])


def leaf_spine_all_reduce() -> Schedule:
    """Leaves add two parts each, the spine adds two sums; copies come down the same tree."""
    topology = two_leaves().with_aggregator(PROFILES["sharp"].aggregator)
    collective = Collective.make("all_reduce", 4)
    values = ValueBuilder()
    own = [values.contribution(0, rank) for rank in range(4)]
    halves = [values.sum(own[:2]), values.sum(own[2:])]
    total = values.sum(halves)
    rows = []
    for rank in range(4):
        leaf = 4 + rank // 2
        rows.append(Transfer(own[rank], halves[rank // 2], rank, leaf, 0, (link_between(topology, rank, leaf),)))
        rows.append(Transfer(total, total, leaf, rank, 3, (link_between(topology, leaf, rank),)))
    for leaf in (4, 5):
        rows.append(Transfer(halves[leaf - 4], total, leaf, 6, 1, (link_between(topology, leaf, 6),)))
        rows.append(Transfer(total, total, 6, leaf, 2, (link_between(topology, 6, leaf),)))
    rows.sort(key=lambda row: row.step)
    return Schedule(topology, collective, values.build(), Transfers.of(rows), engine="hand", number_format="float32")


def engine(topology: str, kind: str, chunks: int, steps: int, rounds: int) -> Schedule:
    """What the exact engine finds, all transfers listed."""
    wires = parse(topology)
    collective = Collective.make(kind, wires.ranks, chunks)
    return expand(sccl.run(wires, collective, 1 << 20, Budget(60.0, steps, rounds)))


SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "ring all_gather": cache(lambda: ring_all_gather(4)),
    "star reduce": cache(lambda: star_reduce(4)),
    "chain all_reduce": cache(lambda: chain_all_reduce(4)),
    "dgx1 all_gather": cache(lambda: engine("dgx1", "all_gather", 2, 2, 3)),
    "ring all_reduce by dual": cache(lambda: engine("ring:4", "all_reduce", 4, 4, 6)),
    "switched all_gather": cache(lambda: engine("star:4", "all_gather", 1, 2, 4)),
}


SWITCHED: dict[str, Callable[[], Schedule]] = {
    "switch all_reduce": cache(lambda: switch_all_reduce(3)),
    "switch reduce_scatter": cache(lambda: switch_reduce_scatter(3)),
    "leaf-spine all_reduce": cache(leaf_spine_all_reduce),
}
"""Schedules in which switches add and copy."""


def works(schedule: Schedule, runs: int = 3) -> bool:
    """Runs it with numbers, transfers of a step in random order: right sums, real routes, links not overfull."""
    whole = expand(schedule)
    possible = _routes_lead(whole) and _links_suffice(whole) and _switches_can(whole)
    return possible and all(_sums_right(whole, seed) for seed in range(runs))


def homes(schedule: Schedule) -> list[int]:
    """The node of every agent."""
    able = [node.id for node in schedule.topology.nodes if node.multicast or node.reduces]
    return [*schedule.collective.members, *able]


def _routes_lead(schedule: Schedule) -> bool:
    home, nodes = homes(schedule), schedule.topology.nodes
    for row in schedule.transfers.rows():
        at = home[row.src]
        for number, link_id in enumerate(row.route):
            link = schedule.topology.links[link_id]
            if link.src != at or (number and (nodes[at].kind == "rank" or at in (home[row.src], home[row.dst]))):
                return False
            at = link.dst
        if at != home[row.dst]:
            return False
    return True


def _switches_can(schedule: Schedule) -> bool:
    """Every sum in a switch has all its operands brought; steps run one by one, no switch lacks a slot."""
    home, nodes, ranks = homes(schedule), schedule.topology.nodes, schedule.collective.ranks
    rows = schedule.transfers.rows()
    for row in rows:
        switch = nodes[home[row.dst]]
        if row.dst < ranks:
            continue
        if row.value == row.result:
            if not switch.multicast:
                return False
            continue
        brought = {other.value for other in rows if (other.dst, other.result) == (row.dst, row.result)}
        if not switch.reduces or row.src == row.dst or brought != set(schedule.values.operands(row.result)):
            return False
        if switch.aggregator and schedule.number_format not in switch.aggregator.formats:
            return False
    sums = {(row.dst, row.result) for row in rows if row.dst >= ranks and row.value != row.result}
    for step in range(schedule.steps):
        busy: Counter[int] = Counter()
        for agent, total in sums:
            first = min(row.step for row in rows if (row.dst, row.result) == (agent, total))
            end = max((row.step for row in rows if (row.src, row.value) == (agent, total)), default=first)
            busy[agent] += first <= step < max(end, first + 1)
        for agent, count in busy.items():
            aggregator = nodes[home[agent]].aggregator
            if aggregator and aggregator.slots is not None and count > aggregator.slots:
                return False
    return True


def _links_suffice(schedule: Schedule) -> bool:
    if not len(schedule.rounds):
        return True
    bandwidths = [link.bandwidth for link in schedule.topology.links]
    unit = bandwidths[0]
    for bandwidth in bandwidths:  # Euclid, on fractions
        while bandwidth:
            unit, bandwidth = bandwidth, unit % bandwidth
    load: Counter[tuple[int, int]] = Counter()
    for row in schedule.transfers.rows():
        for link in row.route:
            load[row.step, link] += int(schedule.collective.chunks.weight[schedule.values.chunk[row.value]])
    return all(
        Fraction(weight) <= int(schedule.rounds[step]) * schedule.topology.links[link].bandwidth / unit
        for (step, link), weight in load.items()
    )


def _sums_right(schedule: Schedule, seed: int) -> bool:
    rng = random.Random(seed)
    collective, values = schedule.collective, schedule.values
    own = {
        (rank, chunk): rng.getrandbits(60) for chunk in range(len(collective.chunks)) for rank in collective.pre(chunk)
    }
    held: dict[tuple[int, int], int] = {}
    for value, rank in enumerate(values.rank.tolist()):
        if rank >= 0:
            if (rank, int(values.chunk[value])) not in own:
                return False
            held[rank, value] = own[rank, int(values.chunk[value])]
    moving: dict[tuple[int, int, int], int] = {}  # (rank, sum, operand) -> what arrived
    for step in range(schedule.steps):
        rows = [row for row in schedule.transfers.rows() if row.step == step]
        rng.shuffle(rows)
        if any((row.src, row.value) not in held for row in rows):
            return False
        before = dict(held)
        for row in rows:
            if row.value == row.result:
                held[row.dst, row.value] = before[row.src, row.value]
            else:
                moving[row.dst, row.result, row.value] = before[row.src, row.value]
        for _ in range(len(values)):
            for rank, total in {(rank, total) for rank, total, _ in moving}:
                parts = [moving.get((rank, total, term), held.get((rank, term))) for term in values.operands(total)]
                if (rank, total) not in held and all(part is not None for part in parts):
                    held[rank, total] = sum(part for part in parts if part is not None)
    for chunk in range(len(collective.chunks)):
        wanted = sum(own[rank, chunk] for rank in collective.pre(chunk))
        for rank in collective.post(chunk):
            found = {held[rank, v] for v in range(len(values)) if values.chunk[v] == chunk and (rank, v) in held}
            if wanted not in found:
                return False
    return True
