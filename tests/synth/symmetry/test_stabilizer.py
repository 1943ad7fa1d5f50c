"""Turns about a node are automorphisms that fix it and move other ranks in cycles of one length."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.synth.symmetry.stabilizer import turns_about
from syntony.topologies.parse import parse


@pytest.mark.parametrize("name", ["dgx-h100:4", "rail:boxes=4,gpus=4,rails=4", "torus:4x4", "star:6", "hypercube:4"])
@pytest.mark.parametrize("point", [0, 5])
def test_turns(name: str, point: int) -> None:
    topology = parse(name)
    nodes = len(topology.nodes)
    turns = list(turns_about(point, range(topology.ranks), topology.generators, nodes))
    assert turns
    moved = []
    for turn in turns:
        assert np.array_equal(turn.powers[0], np.arange(nodes))
        assert (turn.powers[:, point] == point).all()
        assert np.array_equal(np.asarray(turn.generator)[turn.powers[-1]], turn.powers[0])
        topology.link_permutation(turn.generator)  # raises if it is no automorphism
        fixed = turn.powers[1:, : topology.ranks] == np.arange(topology.ranks)
        assert (fixed == fixed[0]).all()
        moved.append(int((~fixed[0]).sum()))
    assert moved == sorted(set(moved), reverse=True)


def test_boxes_turn_about_that_of_the_root() -> None:
    topology = parse("dgx-h100:8")
    turn = next(turns_about(13, range(64), topology.generators, len(topology.nodes)))
    assert turn.order == 7
    assert (turn.powers[1][8:16] == np.arange(8, 16)).all()


def test_nothing_turns_without_symmetry() -> None:
    topology = parse("ring:5,without=0-1")
    assert not list(turns_about(0, range(5), topology.generators, 5))
