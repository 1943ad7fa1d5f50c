"""Right schedules for the tests, and a simulation of schedules that shares nothing with the checker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from synth.collective import Collective
from synth.engines import sccl
from synth.engines.engine import Budget
from synth.schedule import Schedule, Transfer, Transfers
from synth.values import ValueBuilder
from topologies import Topology
from topologies.parse import parse


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


def engine(topology: str, kind: str, chunks: int, steps: int, rounds: int) -> Schedule:
    """What the exact engine finds, all transfers listed."""
    wires = parse(topology)
    collective = Collective.make(kind, wires.ranks, chunks)
    return sccl.run(wires, collective, 1 << 20, Budget(60.0, steps, rounds)).expand()


SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "ring all_gather": cache(lambda: ring_all_gather(4)),
    "star reduce": cache(lambda: star_reduce(4)),
    "chain all_reduce": cache(lambda: chain_all_reduce(4)),
    "dgx1 all_gather": cache(lambda: engine("dgx1", "all_gather", 2, 2, 3)),
    "ring all_reduce by dual": cache(lambda: engine("ring:4", "all_reduce", 4, 4, 6)),
    "switched all_gather": cache(lambda: engine("star:4", "all_gather", 1, 2, 4)),
}


def works(schedule: Schedule, runs: int = 3) -> bool:
    """Runs it with numbers, transfers of a step in random order: right sums, real routes, links not overfull."""
    whole = schedule.expand()
    return _routes_lead(whole) and _links_suffice(whole) and all(_sums_right(whole, seed) for seed in range(runs))


def _routes_lead(schedule: Schedule) -> bool:
    members, nodes = schedule.collective.members, schedule.topology.nodes
    for row in schedule.transfers.rows():
        at = members[row.src]
        for number, link_id in enumerate(row.route):
            link = schedule.topology.links[link_id]
            if link.src != at or (number and nodes[at].kind == "rank"):
                return False
            at = link.dst
        if at != members[row.dst]:
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
    dice = random.Random(seed)
    collective, values = schedule.collective, schedule.values
    own = {
        (rank, chunk): dice.getrandbits(60) for chunk in range(len(collective.chunks)) for rank in collective.pre(chunk)
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
        dice.shuffle(rows)
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
