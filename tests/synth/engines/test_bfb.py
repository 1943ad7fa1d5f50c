"""Engine bfb: fewest steps, every step balanced exactly, alike with and without the network's symmetry."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.benchmarks.synthesis.systems.bfb import circulant, generalized_kautz, line_graph, twice_lined_bipartite
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker.schedules.check import check_schedule
from syntony.synth.engines.bfb.balance import Balance
from syntony.synth.engines.bfb.search import MOST_GRAIN, run
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.link_loads import link_loads, link_loads_by_step
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, Topology
from tests.sampled import examples, one_in
from tests.synth.networks import networks, replay

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")


def _proven(schedule: Schedule) -> Schedule:
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    return schedule


def _run(topology: Topology, kind: str = "all_gather", **more: object) -> Schedule:
    return _proven(run(topology, Collective.make(kind, topology.ranks, **more), 1, Budget()))  # type: ignore[arg-type]


def _diameter(schedule: Schedule) -> int:
    """The most links from one rank to another; from or to the root, where there is one."""
    hops = Network(schedule.topology, schedule.collective).hops
    kind, root = schedule.collective.kind, schedule.collective.root
    rows = hops[root] if kind == "broadcast" else hops[:, root] if kind == "reduce" else hops
    return int(rows.max())


@pytest.mark.parametrize(
    ("name", "kind"), one_in(2, ["ring:5", "ring:2", "full:4", "dgx1", "mesh:3x3", "torus:3x4", "hypercube:3"], KINDS)
)
def test_schedules_are_right_and_take_the_fewest_steps(name: str, kind: str) -> None:
    schedule = _run(parse(name), kind)
    replay(schedule)
    halves = 2 if kind == "all_reduce" else 1
    assert schedule.steps == len(schedule.rounds) == halves * _diameter(schedule)
    assert schedule.proof.startswith("fewest steps")


@pytest.mark.parametrize("name", ["ring:6", "ring:7", "torus:4x4", "torus:3x5", "torus:3x3x3", "hypercube:4", "full:5"])
def test_tori_and_hypercubes_meet_the_throughput_bound(name: str) -> None:
    for kind in ("all_gather", "reduce_scatter", "all_reduce"):
        schedule = _run(parse(name), kind)
        assert gap_of(schedule) == 0
        assert "optimal throughput" in schedule.proof


def test_circulants_meet_the_throughput_bound_too() -> None:
    assert gap_of(_run(circulant(13, 2, 3))) == 0
    assert gap_of(_run(circulant(24, 3, 4))) == 0


def test_the_published_line_graph() -> None:
    """L2(K4,4) of Zhao et al., NSDI'25: T_L = 4 alpha, T_B = 1.031 M/B."""
    topology = twice_lined_bipartite()
    schedule = run(topology, Collective.make("all_gather", topology.ranks), 1, Budget())
    assert (topology.ranks, schedule.steps) == (128, 4)
    assert round(float(seconds_per_byte(schedule) * 4 * topology.links[0].bandwidth), 3) == 1.031


def test_the_benchmarks_graphs() -> None:
    assert line_graph([(0, 1), (1, 0), (1, 2)]) == [(0, 1), (0, 2), (1, 0)]
    assert {(link.src, link.dst) for link in generalized_kautz(2, 3).links} == {
        (x, y) for x in range(3) for y in range(3) if x != y
    }


@examples(60)
@given(topology=networks(switches=0), data=st.data())
def test_random_networks(topology: Topology, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    root = data.draw(st.integers(0, topology.ranks - 1)) if kind in ("broadcast", "reduce") else 0
    weights = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    schedule = _run(topology, kind, root=root, weights=weights)
    replay(schedule)
    assert schedule.steps == len(schedule.rounds) == _diameter(schedule) * (2 if kind == "all_reduce" else 1)


@examples(25)
@given(topology=networks(switches=0), data=st.data())
def test_every_step_is_as_long_as_a_linear_program_says(topology: Topology, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=topology.ranks, max_size=topology.ranks))
    collective = Collective.make("all_gather", topology.ranks, block_sizes=sizes)
    schedule = _proven(run(topology, collective, 1, Budget()))
    loads = link_loads_by_step(schedule)
    total = sum(sizes)
    weight = int(schedule.collective.chunks.weight.sum())
    for step in range(schedule.steps):
        longest = max(
            (
                Fraction(int(load), weight) * total / link.bandwidth
                for load, link in zip(loads[step], topology.links, strict=True)
            )
        )
        least = _least_step(topology, sizes, step + 1)
        # Exact, or a part of the finest grain more on a link where exact shares would need finer ones.
        grain = 1 / (MOST_GRAIN * min(float(link.bandwidth) for link in topology.links))
        assert least * (1 - 1e-6) <= float(longest) <= least * (1 + 1e-6) + grain


def _least_step(topology: Topology, sizes: list[int], step: int) -> float:
    """The busiest link's time in a step, over all ranks, by a linear program that knows nothing of the engine."""
    from scipy.optimize import linprog

    hops = Network(topology, Collective.make("all_gather", topology.ranks)).hops
    worst = 0.0
    for rank in range(topology.ranks):
        links = topology.links_to(rank)
        jobs = [source for source in range(topology.ranks) if hops[source, rank] == step]
        if not jobs:
            continue
        ways = [(job, e) for job in jobs for e, link in enumerate(links) if hops[job, link.src] == step - 1]
        busy = np.zeros((len(links), len(ways) + 1))
        whole = np.zeros((len(jobs), len(ways) + 1))
        for column, (job, e) in enumerate(ways):
            busy[e, column] = sizes[job] / float(links[e].bandwidth)
            whole[jobs.index(job), column] = 1
        busy[:, -1] = -1
        cost = np.zeros(len(ways) + 1)
        cost[-1] = 1
        found = linprog(cost, busy, np.zeros(len(links)), whole, np.ones(len(jobs)))
        worst = max(worst, float(found.fun))
    return worst


@examples(100)
@given(data=st.data())
def test_the_least_load_is_that_of_the_worst_set_of_jobs(data: st.DataObject) -> None:
    jobs, links = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    rows = st.lists(st.booleans(), min_size=links, max_size=links).filter(any)
    allowed = np.asarray(data.draw(st.lists(rows, min_size=jobs, max_size=jobs)))
    weights = np.asarray(data.draw(st.lists(st.integers(1, 5), min_size=jobs, max_size=jobs)))
    rate = np.asarray(data.draw(st.lists(st.integers(1, 7), min_size=links, max_size=links)))
    balance = Balance.of(weights, allowed, rate)
    sets = [list(some) for count in range(1, jobs + 1) for some in combinations(range(jobs), count)]
    worst = max(Fraction(int(weights[some].sum()), int(rate[allowed[some].any(axis=0)].sum())) for some in sets)
    assert balance.load == worst
    grain = data.draw(st.integers(1, 30)) if data.draw(st.booleans()) else worst.denominator
    carried = balance.divided(grain)
    assert (carried.sum(axis=1) == balance.weight * grain).all()
    assert (carried[~balance.allowed] == 0).all()
    assert all(
        load <= -(-worst * grain * speed // 1)
        for load, speed in zip(carried.sum(axis=0).tolist(), rate.tolist(), strict=True)
    )


@pytest.mark.parametrize("name", ["ring:6", "torus:3x4", "hypercube:3", "dgx1", "full:6", "mesh:2x3"])
def test_symmetry_changes_no_step(name: str) -> None:
    topology = parse(name)
    plain = _run(replace(topology, generators=()))
    folded = _run(topology)
    assert not plain.symmetry
    assert seconds_per_byte(plain) == seconds_per_byte(folded) == seconds_per_byte(expand(folded))
    for loads in (link_loads, link_loads_by_step):
        assert np.array_equal(loads(folded), loads(expand(folded)))


def test_large_networks_are_listed_by_representatives() -> None:
    topology = parse("torus:12x12")
    schedule = run(topology, Collective.make("all_gather", 144), 1, Budget())
    assert schedule.symmetry
    assert len(schedule.transfers) < 600
    assert gap_of(schedule) == 0
    bounds = bounds_of(topology, schedule.collective)
    assert schedule.steps == bounds.latency.steps == 12


def test_members_and_uneven_blocks() -> None:
    topology = parse("mesh:3x3")
    collective = Collective.make("all_gather", members=[0, 1, 3, 4], block_sizes=[1, 2, 3, 1])
    replay(_proven(run(topology, collective, 1, Budget())))


def test_loads_too_fine_to_be_exact_are_off_by_no_more_than_a_part_of_the_grain() -> None:
    """Links of 101, 103 and 107 a second: shares that are exact for all ranks would need millions of parts."""
    rates = (101, 103, 107)
    links = [(src, dst, rates[(src + dst) % 3]) for src in range(4) for dst in range(4) if src != dst]
    wires = tuple(Link(i, src, dst, 0.0, Fraction(rate)) for i, (src, dst, rate) in enumerate(links))
    topology = Topology("uneven", tuple(Node(i, "rank", f"n{i}") for i in range(4)), wires)
    thin = replace(
        topology,
        links=tuple(
            replace(link, id=i)
            for i, link in enumerate(link for link in wires if (link.src, link.dst) not in ((0, 1), (2, 3), (3, 0)))
        ),
    )
    schedule = _run(thin)
    replay(schedule)
    exact = sum(
        Fraction(_least_step(thin, [1] * 4, step + 1)).limit_denominator(10**6) for step in range(schedule.steps)
    )
    assert float(seconds_per_byte(schedule) * 4) <= float(exact) * 1.001


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("dgx-a100:1", "all_gather", "engine bfb is for links from rank to rank, and dgx-a100:1 has switch"),
        ("ring:4", "all_to_all", "engine bfb is for what copies or sums, not for all_to_all; use --engine flow"),
        ("ring:4", "gather", "use --engine flow"),
    ],
)
def test_what_it_does_not_do_is_said(name: str, kind: str, sentence: str) -> None:
    topology = parse(name)
    with pytest.raises(EngineError, match=sentence):
        run(topology, Collective.make(kind, topology.ranks), 1, Budget())


def test_limits() -> None:
    topology = parse("ring:4")
    collective = Collective.make("all_gather", 4)
    with pytest.raises(EngineError, match="takes the fewest steps there are"):
        run(topology, collective, 1, Budget(steps=3))
    with pytest.raises(OutOfTimeError, match="engine bfb needs more than 1e-09 s; allow more with --timeout"):
        run(topology, collective, 1, Budget(timeout=1e-9))
    one_way = Topology("one way", topology.nodes[:2], (Link(0, 0, 1, 0.0, Fraction(1)),))
    with pytest.raises(UserError, match="1"):
        run(one_way, Collective.make("all_gather", 2), 1, Budget())
