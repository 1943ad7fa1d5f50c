"""Orbits and group orders against brute force."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from syntony.topologies import Permutation, parse
from syntony.topologies.graph.symmetry import group_order, moving, orbits, swap_and_turn
from tests.sampled import examples
from tests.topologies.named import names


def _closure(size: int, generators: list[Permutation]) -> set[Permutation]:
    elements = {tuple(range(size))}
    frontier = list(elements)
    while frontier:
        element = frontier.pop()
        for generator in generators:
            product = tuple(generator[image] for image in element)
            if product not in elements:
                elements.add(product)
                frontier.append(product)
    return elements


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.permutations(range(n)), max_size=3))))
def test_order_and_orbits_equal_those_of_the_whole_group(case: tuple[int, list[list[int]]]) -> None:
    size, generators = case[0], [tuple(generator) for generator in case[1]]
    group = _closure(size, generators)
    assert group_order(size, generators) == len(group)
    expected = sorted({tuple(sorted({element[point] for element in group})) for point in range(size)})
    assert [tuple(orbit) for orbit in orbits(size, generators)] == expected


def test_orders_of_known_groups() -> None:
    for name, order in [
        ("ring:12", 24),
        ("full:9", math.factorial(9)),
        ("torus:4x4x4", 4**3 * 48),
        ("hypercube:6", 2**6 * math.factorial(6)),
        ("dgx-a100:2", math.factorial(8) ** 2 * 2),
        ("rail:boxes=4,gpus=8,rails=8", math.factorial(8) * math.factorial(4)),
        ("rail:boxes=2,gpus=4,rails=2", 2 * 2 * 2 ** (2 * 2)),
        ("rail:boxes=3,gpus=1,rails=4", math.factorial(4) * math.factorial(3)),
    ]:
        topology = parse(name)
        assert group_order(len(topology.nodes), topology.generators) == order, name


def test_counting_gives_up_when_told() -> None:
    topology = parse("full:20")
    assert group_order(20, topology.generators, patience=1000) is None
    assert group_order(20, topology.generators) == math.factorial(20)


@given(st.integers(0, 5), st.integers(1, 2))
def test_swap_and_turn_generate_every_order_of_the_blocks(count: int, width: int) -> None:
    size = count * width + 1
    blocks = [list(range(i * width, (i + 1) * width)) for i in range(count)]
    assert len(_closure(size, swap_and_turn(size, blocks))) == math.factorial(count)


def test_moving_moves_only_what_it_is_told() -> None:
    assert moving(5, {1: 3, 3: 1}) == (0, 3, 2, 1, 4)


@examples(50)
@given(names(), st.data())
def test_links_move_with_the_nodes_and_respect_composition(name: str, data: st.DataObject) -> None:
    topology = parse(name)
    if not topology.generators:
        return
    first, second = (data.draw(st.sampled_from(topology.generators)) for _ in range(2))
    both = tuple(second[image] for image in first)
    one, two = topology.link_permutation(first), topology.link_permutation(second)
    assert topology.link_permutation(both) == tuple(two[image] for image in one)
    for link in topology.links:
        image = topology.links[one[link.id]]
        assert (image.src, image.dst) == (first[link.src], first[link.dst])
        assert (image.alpha, image.bandwidth) == (link.alpha, link.bandwidth)
