"""Random networks and collectives for property tests, and a replay of schedules on real numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from syntony.synth.model.collective import KINDS, Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.groups import expand
from syntony.topologies.aggregator import Aggregator
from syntony.topologies.topology import Link, Node, Topology


@st.composite
def networks(draw: st.DrawFn, max_ranks: int = 6, switches: int = 2) -> Topology:
    """Strongly connected: a ring through all nodes, plus up to a dozen other links; parallel links occur."""
    ranks, others = draw(st.integers(1, max_ranks)), draw(st.integers(0, switches))
    count = ranks + others
    nodes = [Node(i, "rank" if i < ranks else "switch", f"n{i}") for i in range(count)]
    order = draw(st.permutations(range(count)))
    ends = [(order[i], order[(i + 1) % count]) for i in range(count)] if count > 1 else []
    if count > 1:
        pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda ends: ends[0] != ends[1])
        ends += draw(st.lists(pair, max_size=12))
    rates = st.sampled_from([Fraction(1), Fraction(2), Fraction(3, 2), Fraction(12)])
    alphas = st.sampled_from([0.0, 0.5, 1.0])
    links = [Link(i, src, dst, draw(alphas), draw(rates)) for i, (src, dst) in enumerate(ends)]
    return Topology("random", tuple(nodes), tuple(links))


@st.composite
def able_networks(draw: st.DrawFn, max_ranks: int = 5, switches: int = 3) -> Topology:
    """`networks` whose switches multicast or reduce or both or neither; some add only so much per second."""
    topology = draw(networks(max_ranks, switches))
    nodes = []
    for node in topology.nodes:
        if node.kind == "switch":
            node = replace(node, multicast=draw(st.booleans()), reduces=draw(st.booleans()))
            rate = draw(st.sampled_from([None, Fraction(1, 3), Fraction(5)]))
            if node.reduces and rate:
                adder = Aggregator("adder", None, 4, ("float32",), rate=rate, multicast=node.multicast)
                node = replace(node, aggregator=adder)
        nodes.append(node)
    return replace(topology, nodes=tuple(nodes))


@st.composite
def collectives(draw: st.DrawFn, topology: Topology, max_chunks: int = 2) -> Collective:
    """Any kind, on some of the topology's ranks or all, with uneven chunks and blocks."""
    kind = draw(st.sampled_from(KINDS))
    ranks = topology.ranks
    rooted = kind in ("broadcast", "reduce", "gather", "scatter")
    root = draw(st.integers(0, ranks - 1)) if rooted else 0
    weights = draw(st.lists(st.integers(1, 3), min_size=1, max_size=max_chunks))
    return Collective.make(kind, ranks, root=root, weights=weights)


def replay(schedule: Schedule, seed: int = 0) -> None:
    """Runs the schedule step by step on random whole numbers; asserts routes, order, rounds and the post-condition."""
    whole = expand(schedule)
    topology, collective, values = whole.topology, whole.collective, whole.values
    rng = random.Random(seed)
    numbers = [[rng.getrandbits(60) for _ in range(collective.ranks)] for _ in range(len(collective.chunks))]
    held: dict[tuple[int, int], int] = {}
    for value, rank in enumerate(values.rank.tolist()):
        chunk = int(values.chunk[value])
        if rank >= 0 and rank in collective.pre(chunk):
            held[rank, value] = numbers[chunk][rank]
    rows = whole.transfers.rows()
    home = [*collective.members, *(node.id for node in topology.nodes if node.multicast or node.reduces)]
    waiting: dict[tuple[int, int], dict[int, int]] = {}  # operands may arrive in several steps
    for step in range(whole.steps):
        now = [row for row in rows if row.step == step]
        load: dict[int, int] = {}
        after = dict(held)
        for row in now:
            assert (row.src, row.value) in held, f"step {step}: rank {row.src} lacks value {row.value}"
            node = home[row.src]
            for link in row.route:
                assert topology.links[link].src == node, f"broken route {row.route}"
                node = topology.links[link].dst
                assert link == row.route[-1] or topology.nodes[node].kind != "rank"
                load[link] = load.get(link, 0) + int(collective.chunks.weight[values.chunk[row.value]])
            assert node == home[row.dst]
            if row.value == row.result:
                assert (row.dst, row.value) not in held, f"step {step}: rank {row.dst} gets value {row.value} again"
                after[row.dst, row.value] = held[row.src, row.value]
            else:
                waiting.setdefault((row.dst, row.result), {})[row.value] = held[row.src, row.value]
        held = after
        complete: dict[tuple[int, int], int] | None = None
        while complete is None or complete:  # a sum may be an operand of another
            complete = {
                key: sum(terms)
                for key, parts in waiting.items()
                if (terms := _operands(values.operands(key[1]), key[0], parts, held)) is not None
            }
            held |= complete
            for key in complete:
                del waiting[key]
        if len(whole.rounds):
            unit = Fraction(*round_unit(topology))
            for link, weight in load.items():
                assert weight <= int(whole.rounds[step]) * topology.links[link].bandwidth / unit
    assert not waiting, f"sums {list(waiting)} are never complete"
    for chunk in range(len(collective.chunks)):
        expected = sum(numbers[chunk]) if collective.combining else numbers[chunk][min(collective.pre(chunk))]
        for rank in collective.post(chunk):
            mine = {number for (at, value), number in held.items() if at == rank and values.chunk[value] == chunk}
            assert expected in mine, f"rank {rank} lacks chunk {chunk}"


def _operands(
    wanted: Sequence[int], agent: int, parts: dict[int, int], held: dict[tuple[int, int], int]
) -> list[int] | None:
    """The operands of a sum: what was brought, else what the agent holds; None while one is missing."""
    terms = [parts.get(operand, held.get((agent, operand))) for operand in wanted]
    return None if None in terms else [term for term in terms if term is not None]


def round_unit(topology: Topology) -> tuple[int, int]:
    """The greatest common divisor of the bandwidths as (numerator, denominator), by Euclid's algorithm on fractions."""
    unit = Fraction(0)
    for link in topology.links:
        a, b = link.bandwidth, unit
        while b:
            a, b = b, a % b
        unit = a
    return unit.numerator, unit.denominator
