"""A small network that engines are asked about."""

from __future__ import annotations

import pytest

from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.model.collective import Collective
from syntony.topologies.topology import Topology


@pytest.fixture(scope="module")
def small() -> tuple[Topology, Collective]:
    topology = random_network(0)
    return topology, Collective.make("reduce_scatter", topology.ranks)
