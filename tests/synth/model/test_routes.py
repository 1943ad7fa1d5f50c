"""Routes between ranks."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.model import routes
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import routes_between, routes_of
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology


def _compare(topology: Topology) -> None:
    """Paths of pairs end at ranks that are not asked for, too, and pass through none; a pair may have no route."""
    network = Network(topology, Collective.make("all_to_all", topology.ranks))
    every = defaultdict(list)
    for route in routes_of(network).routes:
        every[route.src, route.dst].append(route.links)
    pairs = [(src, dst) for src in range(topology.ranks) for dst in range(topology.ranks) if src != dst]
    for asked in (pairs, [(src, dst) for src, dst in pairs if (src + dst) % 3 == 1]):
        src, dst = np.asarray(asked).T
        found = routes_between(network, src, dst)
        links = [tuple(found.link[a:b].tolist()) for a, b in zip(found.offset[:-1], found.offset[1:], strict=True)]
        assert {pair: links[found.first[p] : found.first[p + 1]] for p, pair in enumerate(asked)} == {
            pair: every.get(pair, []) for pair in asked
        }


@pytest.mark.parametrize("seed", range(14))
def test_pairs_have_the_routes_of_all(seed: int) -> None:
    """Two networks of each kind."""
    _compare(random_network(seed))


@pytest.mark.parametrize("name", ["fat-tree:8", "dgx-h100:2", "rail:boxes=4,gpus=4,rails=4", "dragonfly:4,2,2"])
@pytest.mark.parametrize("states", [1, 1 << 24])
def test_switches_with_more_paths_than_are_listed(name: str, states: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search from one rank at a time, or from all, leaves out the same paths."""
    monkeypatch.setattr(routes, "MOST_STATES", states)
    _compare(parse(name))
