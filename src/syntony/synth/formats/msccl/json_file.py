"""Reads algorithm files of msccl-tools (`.msccl.json`), steps of sends between ranks, as a Schedule.

    algorithm   name, instance, collective, topology, steps, input_map, output_map
      collective  chunks [{pre: ranks, post: ranks, addr}]: equal addresses are summed
      topology    links[dst][src]: chunks per round; switches [[srcs, dsts, chunks per round, name]]: shared limits
      steps       [{rounds, sends [[address, src, dst]]}]

A send moves everything that its source holds at the address when the step begins. Arriving data is added to what is
there, in the order of the least rank in each term; if it already contains all contributions that are there, it replaces
them. With `instance.chunks` = k, address a of the collective is cut into addresses a*k .. a*k + k - 1.

A shared limit becomes a link of that bandwidth between two NICs, which the routes of its pairs take one after another:

    rank 0 ──▶ ┐            ┌──▶ rank 2        links 0->2, 1->2, .. have their own bandwidth,
               NIC ──bw──▶ NIC                 the link in the middle that of the group
    rank 1 ──▶ ┘            └──▶ rank 3

Sends that no rank needs, which solvers leave in their results, are dropped. input_map and output_map repeat the
collective and are not read.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from math import gcd

import numpy as np

from syntony.base.files.fields import Fields, FileError
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, ABSTRACT_BANDWIDTH, Wiring, circle
from syntony.topologies.topology import Topology

_MAX_RANKS, _MAX_CHUNKS = 1 << 10, 1 << 20


def is_algorithm(data: object) -> bool:
    """Whether the JSON value looks like an algorithm of msccl-tools."""
    return isinstance(data, dict) and data.get("msccl_type") == "algorithm"


def read_msccl_json(data: object, where: str) -> Schedule:
    """The Schedule of a parsed file; FileError if it is malformed. The checker decides whether it is correct."""
    fields = Fields(data, where)
    instance = fields.child("instance")
    cut = instance.whole("chunks")
    if not 1 <= cut <= _MAX_CHUNKS:
        raise instance.wrong("chunks", f"it must be 1..{_MAX_CHUNKS}")
    if instance.has("pipeline"):
        instance.take("pipeline")
        raise instance.wrong("pipeline", "steps of a Schedule do not overlap; it must be null")
    wires = _wires(fields.child("topology"), where)
    collective, chunk_of = _collective(fields.child("collective"), cut, where)
    ranks = wires.topology.ranks
    if collective.ranks != ranks:
        raise FileError(f"{where}: its collective has {collective.ranks} ranks, its topology {ranks}")
    rounds, sends = [], []
    for step in fields.children("steps"):
        rounds.append(step.whole("rounds") * wires.scale)
        if rounds[-1] < 1:
            raise step.wrong("rounds", "a step lasts at least 1 round")
        rows = []
        step.ragged("sends")
        for index, send in enumerate(step.seen("sends")):
            if len(send) != 3:
                raise step.wrong("sends", "it must be [address, source, destination]", index)
            address, src, dst = send
            if address not in chunk_of:
                raise step.wrong("sends", f"the collective has no address {address}", index)
            if (src, dst) not in wires.routes:
                raise step.wrong("sends", f"there is no link from {src} to {dst}", index)
            rows.append((chunk_of[address], src, dst))
        sends.append(sorted(set(rows)))
    return _schedule(where, wires, collective, rounds, sends)


# --- the network ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wires:
    """The topology, the route of each pair of ranks, and the number of our rounds per round of the file."""

    topology: Topology
    routes: dict[tuple[int, int], tuple[int, ...]]
    scale: int


def _wires(fields: Fields, where: str) -> _Wires:
    table = fields.rows("links")
    ranks = len(table)
    if not 1 <= ranks <= _MAX_RANKS:
        raise FileError(f"{where}: topology.links lists {ranks} ranks; it must be 1..{_MAX_RANKS}")
    for dst, row in enumerate(table):
        if not isinstance(row, list) or len(row) != ranks or not all(type(bw) is int and bw >= 0 for bw in row):
            raise fields.wrong("links", f"it must be a list of {ranks} whole numbers, at least 0", dst)
        if row[dst]:
            raise fields.wrong("links", "a rank has no link to itself; the entry on the diagonal must be 0", dst)
    pairs = {(src, dst): table[dst][src] for src in range(ranks) for dst in range(ranks) if table[dst][src]}
    groups: list[tuple[set[tuple[int, int]], int]] = []
    for index, group in enumerate(fields.rows("switches")):
        match group:
            case [[*sources], [*destinations], int() as bandwidth, str()] if bandwidth > 0:
                members = {(src, dst) for src in sources for dst in destinations if (src, dst) in pairs}
                groups.append((members, bandwidth))
            case _:
                raise fields.wrong("switches", "it must be [sources, destinations, bandwidth above 0, name]", index)
    wiring = Wiring(fields.string("name"))
    for place in circle(ranks):
        wiring.rank(place)
    gates = [(wiring.nic(f"in{g}", (0.0, 0.0)), wiring.nic(f"out{g}", (0.0, 0.0))) for g in range(len(groups))]
    count = 0

    def link(src: int, dst: int, bandwidth: int) -> int:
        nonlocal count
        wiring.link(src, dst, bandwidth * ABSTRACT_BANDWIDTH, ABSTRACT_ALPHA)
        count += 1
        return count - 1

    shared = [link(enter, leave, groups[g][1]) for g, (enter, leave) in enumerate(gates)]
    routes = {}
    for (src, dst), bandwidth in pairs.items():
        at, route = src, []
        for g, (members, _) in enumerate(groups):
            if (src, dst) in members:
                route += [link(at, gates[g][0], bandwidth), shared[g]]
                at = gates[g][1]
        routes[src, dst] = (*route, link(at, dst, bandwidth))
    # A round of ours carries the greatest common divisor of all bandwidths, one of theirs carries 1.
    scale = reduce(gcd, [*pairs.values(), *(bandwidth for _, bandwidth in groups)], 0)
    return _Wires(wiring.topology(), routes, max(scale, 1))


# --- the collective ---------------------------------------------------------------------------------------------------


def _collective(fields: Fields, cut: int, where: str) -> tuple[Collective, dict[int, int]]:
    """The collective, and the chunk of each address."""
    ranks = fields.whole("nodes")
    if not 1 <= ranks <= _MAX_RANKS:
        raise fields.wrong("nodes", f"it must be 1..{_MAX_RANKS}")
    everyone = frozenset(range(ranks))
    starts: dict[int, list[frozenset[int]]] = defaultdict(list)
    ends: dict[int, frozenset[int]] = {}
    for row in fields.children("chunks"):
        pre, post = (frozenset(row.column(key).tolist()) for key in ("pre", "post"))
        address = row.whole("addr")
        if not pre or not pre | post <= everyone:
            raise row.wrong("pre", f"it must list ranks 0..{ranks - 1}, at least one; post likewise")
        if ends.setdefault(address, post) != post:
            raise row.wrong("post", f"the terms of address {address} end at different ranks")
        starts[address].append(pre)
    if fields.has("triggers") and fields.take("triggers"):
        raise fields.wrong("triggers", "they are not supported; it must be {}")
    if len(starts) * cut > _MAX_CHUNKS or not starts:
        raise FileError(f"{where}: collective: has {len(starts) * cut} chunks; it must be 1..{_MAX_CHUNKS}")
    kind, root, block_of = _kind(ranks, starts, ends, where)
    members: dict[int, list[int]] = defaultdict(list)
    for address in sorted(block_of):
        members[block_of[address]] += [address * cut + k for k in range(cut)]
    sizes = {len(found) for found in members.values()}
    collective = Collective.make(kind, ranks, sizes.pop(), root)
    if sizes or len(members) != collective.blocks:
        raise FileError(f"{where}: collective: {kind} on {ranks} ranks has {collective.blocks} blocks of equal size")
    order = [address for block in sorted(members) for address in members[block]]
    return collective, {address: chunk for chunk, address in enumerate(order)}


def _kind(
    ranks: int, starts: dict[int, list[frozenset[int]]], ends: dict[int, frozenset[int]], where: str
) -> tuple[str, int, dict[int, int]]:
    """The kind, the root, and the block of each address, from the ranks that start and end with each."""
    everyone = frozenset(range(ranks))
    single = [frozenset({rank}) for rank in range(ranks)]
    post = set(ends.values())
    if all(sorted(terms, key=min) == single for terms in starts.values()) and (ranks > 1 or len(starts) != ranks):
        if post == {everyone}:
            return "all_reduce", 0, dict.fromkeys(starts, 0)
        if len(post) == 1 and len(next(iter(post))) == 1:
            return "reduce", min(next(iter(post))), dict.fromkeys(starts, 0)
        if post == set(single):
            return "reduce_scatter", 0, {address: min(ends[address]) for address in starts}
    elif all(len(terms) == 1 and len(terms[0]) == 1 for terms in starts.values()):
        source = {address: min(terms[0]) for address, terms in starts.items()}
        sources = set(source.values())
        if post == {everyone} and len(sources) == ranks:
            return "all_gather", 0, source
        if post == {everyone} and len(sources) == 1:
            return "broadcast", sources.pop(), dict.fromkeys(starts, 0)
        if all(len(found) == 1 for found in post):
            target = {address: min(ends[address]) for address in starts}
            if len(post) == 1 and len(sources) == ranks:
                return "gather", target.popitem()[1], source
            if len(sources) == 1 and len(post) == ranks:
                return "scatter", sources.pop(), target
            return "all_to_all", 0, {address: source[address] * ranks + target[address] for address in starts}
    raise FileError(
        f"{where}: collective: the ranks that start and end with its chunks match none of the eight collectives"
    )


# --- the sends --------------------------------------------------------------------------------------------------------


def _schedule(
    where: str,
    wires: _Wires,
    collective: Collective,
    rounds: list[int],
    sends: list[list[tuple[int, int, int]]],
) -> Schedule:
    values = ValueBuilder()
    parts: dict[int, frozenset[int]] = {}  # value -> the ranks in it
    held: dict[tuple[int, int], int] = {}  # (rank, chunk) -> value
    for chunk in range(len(collective.chunks)):
        for rank in sorted(collective.pre(chunk)):
            value = held[rank, chunk] = values.contribution(chunk, rank)
            parts[value] = frozenset({rank})
    rows: list[Transfer] = []
    kept_from: dict[tuple[int, int], int] = {}  # (rank, sum) -> the operand that was already there
    for step, moves in enumerate(sends):
        arriving: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # -> value -> its sender
        for chunk, src, dst in moves:
            if (src, chunk) not in held:
                raise FileError(
                    f"{where}: steps[{step}]: rank {src} sends chunk {chunk}, which it does not hold by then"
                )
            own = held.get((dst, chunk))
            if own is None or not parts[held[src, chunk]] <= parts[own]:
                arriving[dst, chunk].setdefault(held[src, chunk], src)
        after = dict(held)
        for (dst, chunk), found in arriving.items():
            own = held.get((dst, chunk))
            terms = sorted({*found, *([] if own is None else [own])}, key=lambda value: min(parts[value]))
            joined = frozenset().union(*(parts[term] for term in terms))
            result = next((value for value in found if parts[value] == joined), None)
            if result is not None:
                found = {result: found[result]}
            elif len(joined) < sum(len(parts[term]) for term in terms):
                raise FileError(f"{where}: steps[{step}]: rank {dst} adds some contribution to chunk {chunk} twice")
            else:
                result = values.sum(terms)
                parts[result] = joined
                if own is not None:
                    kept_from[dst, result] = own
            after[dst, chunk] = result
            for value, src in found.items():
                rows.append(Transfer(value, result, src, dst, step, wires.routes[src, dst]))
        held = after
    wanted = {
        (rank, held[rank, chunk])
        for chunk in range(len(collective.chunks))
        for rank in collective.post(chunk)
        if (rank, chunk) in held
    }
    needed: list[Transfer] = []  # found by going back from the required final state
    for row in reversed(rows):
        if (row.dst, row.result) in wanted:
            wanted |= {(row.src, row.value), (row.dst, kept_from.get((row.dst, row.result), row.result))}
            needed.append(row)
    transfers = Transfers.of(needed[::-1])
    count = np.asarray(rounds, np.int32)
    return Schedule(wires.topology, collective, values.build(), transfers, count, "msccl-tools")
