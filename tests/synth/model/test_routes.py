"""Routes between ranks."""

from __future__ import annotations

from collections import defaultdict

import pytest

from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import links_between, routes_of


@pytest.mark.parametrize("seed", range(14))
def test_some_pairs_have_the_routes_of_all(seed: int) -> None:
    """Two networks of each kind: paths end at ranks that are not asked for, too, and pass through none."""
    topology = random_network(seed)
    network = Network(topology, Collective.make("all_to_all", topology.ranks))
    every = defaultdict(list)
    for route in routes_of(network).routes:
        every[route.src, route.dst].append(route.links)
    assert links_between(network, every) == every
    some = {(src, dst) for src, dst in every if (src + dst) % 3 == 1}
    assert links_between(network, some) == {pair: every[pair] for pair in some}
