"""all_reduce on meshes by plans in which partial sums cross (pipeline/meshes.py)."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.deadline import Deadline
from syntony.synth.checker import check_program, check_schedule
from syntony.synth.engines.pipeline.departures import Wires, departures
from syntony.synth.engines.pipeline.meshes import Mesh
from syntony.synth.engines.pipeline.partial_sums import Plan, plans_of
from syntony.synth.lowering.lower import lower
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.target import CPU
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.parse import parse
from tests.sampled import examples
from tests.synth import random_executor


def mesh_of(name: str, kind: str = "all_reduce") -> Mesh | None:
    topology = parse(name)
    return Mesh.of(Network(topology, Collective.make(kind, topology.ranks)))


def sums_of(plan: Plan, ranks: int) -> list[frozenset[int]]:
    """By value, whose contributions are in it; none is added twice."""
    found = [frozenset({rank}) for rank in range(ranks)]
    for one, other in plan.sums:
        assert not found[one] & found[other]
        found.append(found[one] | found[other])
    return found


@given(st.integers(2, 6), st.integers(2, 6))
@examples(30)
def test_a_plan_waits_for_nothing_and_sums_everything_everywhere(rows: int, columns: int) -> None:
    ranks = rows * columns
    grid = np.arange(ranks).reshape(rows, columns)
    for plan in plans_of([grid, grid.T], 1.0):
        sums = sums_of(plan, ranks)
        since = {(rank, rank): 0.0 for rank in range(ranks)}  # by rank and value
        for hop in plan.hops:
            assert since[hop.src, hop.value] <= hop.start
            assert (hop.dst, hop.result) not in since or hop.value != hop.result
            since[hop.dst, hop.result] = max(since.get((hop.dst, hop.result), 0.0), hop.start + 1)
        whole = {rank for (rank, value) in since if len(sums[value]) == ranks}
        assert whole == set(range(ranks))
        assert plan.seconds == max(hop.start for hop in plan.hops) + 1
        assert plan.seconds >= rows + columns - 2


@given(st.integers(2, 4), st.integers(2, 4), st.sampled_from((1, 2, 4)), st.sampled_from((2_000, 100_000)))
@examples(15)
def test_schedules_are_right(rows: int, columns: int, times: int, size: int) -> None:
    name = f"mesh:{rows}x{columns},bandwidth=50e9x{50 * times}e9"
    mesh = mesh_of(name)
    assert mesh is not None
    schedules = list(mesh.schedules(size, 1 / 50e9, Deadline(60)))
    assert schedules
    for schedule in schedules:
        assert check_schedule(schedule).fault is None
    if rows * columns <= 6:
        program = lower(schedules[0], CPU)
        assert check_program(program).fault is None
        random_executor.run(program, False, random.Random(name))


@pytest.mark.parametrize("size", [10_000, 1_000_000])
def test_no_link_is_planned_to_carry_more_than_it_can(size: int) -> None:
    grid = np.arange(12).reshape(3, 4)
    pairs = [pair for line in (*grid.tolist(), *grid.T.tolist()) for pair in pairwise(line)]
    links = [*pairs, *((other, one) for one, other in pairs)]
    speed = np.where([abs(one - other) == 1 for one, other in links], 200e9, 50e9)
    wires = Wires({pair: number for number, pair in enumerate(links)}, speed, np.ones(len(links), np.int64))
    found = departures(plans_of([grid, grid.T], 1.1e-6), wires, size, 0.55e-6, Deadline(60))
    assert found is not None
    assert found.bytes.sum() == pytest.approx(size)
    carried = np.zeros((len(links), found.bytes.shape[1]))
    for plans, begun in zip(found.classes, found.bytes, strict=True):
        for plan in plans if begun.any() else ():
            for hop in plan.hops:
                later = round(hop.start / found.slot)
                assert not begun[len(begun) - later :].any()
                place = links.index((hop.src, hop.dst))
                carried[place, later:] += begun[: len(begun) - later] / len(plans)
    assert (carried <= speed[:, None] * found.slot * (1 + 1e-6)).all()
    slices = found.slices(100)
    assert abs(len(slices) - 100) <= np.count_nonzero(found.bytes.sum(axis=1))
    assert [begin for begin, _ in slices] == sorted(begin for begin, _ in slices)


def test_partial_sums_are_faster_than_any_sums_at_one_rank() -> None:
    """If each byte is summed at one rank, the slow middle cannot be used in the first 3 and the last 4 microseconds,
    and the bytes need 5 (docs/benchmarks.md)."""
    mesh = mesh_of("mesh:4x4,bandwidth=50e9x200e9")
    assert mesh is not None
    schedules = mesh.schedules(10**6, 1 / 200e9, Deadline(60))
    assert min(simulate(schedule, 10**6).seconds for schedule in schedules) < 0.97 * 12e-6


@pytest.mark.parametrize("name", ["torus:3x3", "ring:6", "mesh:2x2x2", "dgx1", "dgx-a100:1", "mesh:1x4", "star:4"])
def test_other_networks_are_none(name: str) -> None:
    assert mesh_of(name) is None


def test_other_collectives_are_none() -> None:
    assert mesh_of("mesh:3x3", "all_gather") is None
