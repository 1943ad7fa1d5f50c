"""Paths against a plain search, and choices against what can be counted by hand."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.synth.simulation.flows import Paths
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.paths import MAX_PATHS, PathFinder
from syntony.topologies import Link, Node, Topology, parse
from tests.synth.networks import networks


def plain_search(topology: Topology, src: int, dst: int) -> set[tuple[int, ...]]:
    """All paths of fewest links: around ranks, or where that is impossible through them."""
    for through in (False, True):
        level: list[tuple[int, tuple[int, ...]]] = [(src, ())]
        seen = {src}
        while level:
            found = {way for node, way in level if node == dst}
            if found:
                return found
            onward = [
                (link.dst, (*way, link.id))
                for node, way in level
                for link in topology.links_from(node)
                if (through or node >= topology.ranks or node == src) and link.dst not in seen
            ]
            seen |= {node for node, _ in onward}
            level = onward
    return set()


def sets_of(paths: Paths) -> list[list[tuple[int, ...]]]:
    offsets = paths.set_offset.tolist()
    return [[paths.links(path) for path in range(a, b)] for a, b in pairwise(offsets)]


def all_pairs(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    src, dst = np.indices((topology.ranks, topology.ranks)).reshape(2, -1)
    return src, dst


def check(topology: Topology) -> None:
    src, dst = all_pairs(topology)
    sets = sets_of(PathFinder(topology).every(src, dst))
    for one, other, paths in zip(src.tolist(), dst.tolist(), sets, strict=True):
        expected = plain_search(topology, one, other)
        assert len(paths) == len(set(paths)) == min(len(expected), MAX_PATHS)
        assert set(paths) <= expected, f"{topology.name}: {one} -> {other}"
    for choice in ("single", "ecmp"):
        zero = np.zeros_like(src)
        walked = sets_of(Choice.parse(choice, 7).place(PathFinder(topology), src, dst, zero, zero))
        assert all(way[0] in choices for way, choices in zip(walked, sets, strict=True) if len(choices) < MAX_PATHS)


@pytest.mark.parametrize(
    "name",
    [
        "dgx1", "star:5", "ring:6", "torus:4x3", "dgx-h100:2", "rail:boxes=2,gpus=4,rails=4", "full:4", "ring:2",
        "clos:leaves=3,hosts=2,spines=4", "clos:leaves=2,hosts=1,spines=3", "fat-tree:4", "rail:2,4,2", "rail:3,2,4",
        "clos:leaves=2,hosts=2,spines=2,pods=2,cores=2",
    ],
)  # fmt: skip
def test_named_networks(name: str) -> None:
    check(parse(name))


@given(networks(switches=5))
def test_any_network(topology: Topology) -> None:
    check(topology)


@given(networks(switches=6))
def test_any_network_of_cables(topology: Topology) -> None:
    """Heads and tails are cut off only where every link has its way back."""
    back = [Link(len(topology.links) + x.id, x.dst, x.src, x.alpha, x.bandwidth) for x in topology.links]
    check(Topology("cables", topology.nodes, (*topology.links, *back)))


@given(st.integers(1, 6), st.integers(0, 3))
def test_hosts_on_long_leads(switches: int, extra: int) -> None:
    """A line of switches between two hosts, with hosts hanging on: heads and tails must not swallow one another."""
    ranks = 2 + extra
    nodes = [Node(i, "rank" if i < ranks else "switch", f"n{i}") for i in range(ranks + switches)]
    line = [0, *range(ranks, ranks + switches), 1]
    ends = list(pairwise(line)) + [(2 + i, ranks + i % switches) for i in range(extra)]
    both = [pair for one, other in ends for pair in ((one, other), (other, one))]
    links = tuple(Link(i, src, dst, 0.0, Fraction(1)) for i, (src, dst) in enumerate(both))
    check(Topology("line", tuple(nodes), links))


def test_many_paths_are_thinned_evenly() -> None:
    paths = PathFinder(parse(f"clos:leaves=2,hosts=1,spines={3 * MAX_PATHS}")).every(np.array([0]), np.array([1]))
    first_switches = [paths.links(path)[1] for path in range(len(paths.path_offset) - 1)]
    assert len(set(first_switches)) == MAX_PATHS
    gaps = np.diff(first_switches)
    assert gaps.min() == gaps.max()  # every third spine


def test_fat_tree_paths_are_those_of_the_paper() -> None:
    """(k/2)^2 paths between pods, k/2 within one, one below a switch (Al-Fares et al., SIGCOMM'08, section 3)."""
    paths = PathFinder(parse("fat-tree:8")).every(np.array([0, 0, 0]), np.array([127, 4, 1]))
    assert np.diff(paths.set_offset).tolist() == [16, 4, 1]


def test_no_path_is_refused_by_name() -> None:
    lonely = Topology("two", (Node(0, "rank", "a"), Node(1, "rank", "b")), (Link(0, 0, 1, 0.0, Fraction(1)),))
    with pytest.raises(UserError, match="two: no path leads from rank 1 to rank 0"):
        PathFinder(lonely).every(np.array([0, 1]), np.array([1, 0]))


def test_ecmp_is_a_fair_die_and_stays_where_it_fell() -> None:
    topology = parse("clos:leaves=2,hosts=64,spines=4")
    src, dst = (column.ravel() for column in np.meshgrid(np.arange(64), np.arange(64, 128)))
    zero = np.zeros_like(src)

    def spine(choice: Choice, queue_pair: np.ndarray) -> np.ndarray:
        paths = choice.place(PathFinder(topology), src, dst, zero, queue_pair)
        return paths.link[paths.path_offset[:-1] + 1]

    taken = spine(Choice("ecmp", 1, 5), zero)
    counts = Counter(taken.tolist())
    assert len(counts) == 4
    assert all(abs(count - 1024) < 5 * np.sqrt(4096 * 0.25 * 0.75) for count in counts.values())
    assert np.array_equal(taken, spine(Choice("ecmp", 1, 5), zero))
    for other in (spine(Choice("ecmp", 1, 6), zero), spine(Choice("e-ecmp", 2, 5), zero + 1)):
        assert 0.2 < np.mean(taken == other) < 0.3  # another seed or queue pair: another die


@pytest.mark.parametrize("text", ["", "ECMP", "e-ecmp", "e-ecmp:0", "e-ecmp:x", "ecmp:2", "spray:", "e-ecmp:65"])
def test_bad_choices_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="it must be single, ecmp, e-ecmp:K"):
        Choice.parse(text)
