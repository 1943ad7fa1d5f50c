"""Jobs that share switches that add: what is taken is there, sharing is fair, and slots are used where they are."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.benchmarks.synthesis.systems.hire import CLUSTER, requests
from syntony.synth.placement import adding_switches
from syntony.synth.placement.adding_switches import POLICIES, Cluster, Place, Request, over_spines, serve

SMALL = Cluster(leaves=(1, 0), spines=(1,), hosts=4, host=10e9, up=10e9)


def job(ranks: int, arrival: float = 0.0, size: float = 10e9) -> Request:
    return Request(arrival, ranks, size, 1.0, 10)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_taken_twice(policy: str, seed: int) -> None:
    jobs = requests(seed, 1.0, 60)
    served = serve(jobs, CLUSTER, policy)
    for moment in [one.begin for one in served]:
        running = [one.place for one in served if one.begin <= moment < one.end]
        assert (np.sum([place.hosts for place in running], axis=0) <= CLUSTER.hosts).all(), f"seed {seed}"
        leaves, spines = np.zeros(len(CLUSTER.leaves), int), np.zeros(len(CLUSTER.spines), int)
        for place in running:
            if place.added:
                leaves[place.racks] += 1
                if len(place.racks) > 1:
                    spines[place.spine] += 1
        assert (leaves <= CLUSTER.leaves).all()
        assert (spines <= CLUSTER.spines).all()
    assert [sum(one.place.hosts) for one in served] == [one.ranks for one in jobs]
    assert all(one.begin >= request.arrival for request, one in zip(jobs, served, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_hire_serves_more_jobs_by_switches(seed: int) -> None:
    jobs = requests(seed, 0.9)
    by = {policy: sum(one.place.added for one in serve(jobs, CLUSTER, policy)) for policy in POLICIES}
    assert by["hire"] > by["packed"] > by["spread"], f"seed {seed}"


def test_seconds() -> None:
    """10 iterations of 1 s, and of 10 GB at 10 GB/s: by a leaf 1 s, round a ring of 4 ranks 1.5 s; in two racks, a
    rack's links carry as much as a host's, and two such jobs halve them."""
    assert [one.end for one in serve([job(4)], SMALL, "hire")] == pytest.approx([20.0])
    assert [one.end for one in serve([job(4)], Cluster((0, 0), (0,), 4, 10e9, 10e9), "hire")] == pytest.approx([25.0])
    both = serve([job(4), job(4)], Cluster((0, 0), (0,), 4, 10e9, 10e9), "spread")
    assert [one.place.hosts for one in both] == [(2, 2), (2, 2)]
    assert [one.end for one in both] == pytest.approx([40.0, 40.0])
    assert over_spines(both) == 1.5


def test_jobs_wait_for_hosts_and_slots_come_back() -> None:
    served = serve([job(4), job(4, 1.0), job(8, 2.0)], SMALL, "hire")
    first, second, both = (one.place for one in served)
    assert first == Place((4, 0), -1, True)
    assert second == Place((0, 4), -1, False)  # its leaf cannot add
    assert both.hosts == (4, 4)
    assert served[2].begin == max(one.end for one in served[:2])
    again = serve([job(2), job(2, 50.0)], SMALL, "hire")
    assert [one.place.added for one in again] == [True, True]
    with pytest.raises(ValueError, match="more ranks than the cluster has hosts"):
        serve([job(9)], SMALL, "packed")


def test_flows_are_whole_and_cheapest() -> None:
    cost = np.array([[0.0, 1.0], [0.0, 3.0]])
    flow = adding_switches._flow(np.array([2, 2]), np.array([2, 3]), cost)
    assert flow.tolist() == [[0, 2], [2, 0]]
