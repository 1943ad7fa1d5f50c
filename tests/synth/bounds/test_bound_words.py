"""Witnesses in words."""

from __future__ import annotations

import pytest

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.bounds.wording import describe
from syntony.synth.model.bound import Cut, Partition, Prices
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.topologies.parse import parse


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (
            "rail:boxes=8,gpus=8,rails=8",
            "all_gather",
            "7/8 of the size must enter box 0 (ranks 0-7) over 8 links of 50 GB/s (rail0 to nic0.0, ..), "
            "400 GB/s together",
        ),
        (
            "rail:boxes=8,gpus=8,rails=8",
            "reduce_scatter",
            "7/8 of the size must leave box 0 (ranks 0-7) over 8 links of 50 GB/s (nic0.0 to rail0, ..), "
            "400 GB/s together",
        ),
        ("ring:2", "broadcast", "all of the size must leave rank 0 over one link of 1 GB/s (rank0 to rank1)"),
        (
            "star:4,multicast=on",
            "reduce",
            "all of the size must leave rank 1 over one link of 1 GB/s (rank1 to switch)",
        ),
        (
            "dgx-h100:4",
            "all_reduce",
            "to be summed and spread among 4 boxes, each byte needs 6 messages that leave them over 32 links of "
            "50 GB/s (nic0.0 to network, ..), 1.6 TB/s together",
        ),
        (
            "torus:4x4",
            "all_reduce",
            "to be summed and spread among 16 ranks, each byte needs 30 messages that leave them over 64 links of "
            "1 GB/s (rank0 to rank4, ..), 64 GB/s together",
        ),
        (
            "torus:4x4",
            "all_to_all",
            "even on shortest paths, 32 times the size in total must cross 64 links, 64 GB/s together",
        ),
    ],
)
def test_words(name: str, kind: str, words: str) -> None:
    topology = parse(name)
    network = Network(topology, Collective.make(kind, topology.ranks))
    witness = bounds_of(topology, network.collective).throughput.witness
    assert witness is not None
    assert describe(network, witness) == words


def test_words_for_odd_sets() -> None:
    topology = parse("rail:boxes=4,gpus=2,rails=2")
    network = Network(topology, Collective.make("all_reduce", 8))
    boxes = {node.name: node.id for node in topology.nodes}
    two = [0, 1, 4, 5, *(boxes[name] for name in ("nvswitch0", "nvswitch2", "nic0.0", "nic0.1", "nic2.0", "nic2.1"))]
    into = [link for node in two for link in topology.links_to(node) if link.src not in two]
    half = Cut(tuple(two), tuple(link.id for link in into), 1, sum(link.bandwidth for link in into), True)
    assert describe(network, half).startswith(
        "all of the size must enter boxes 0, 2 (ranks 0-1, 4-5) over 4 links of 50 GB/s"
    )
    lonely = Cut((0, boxes["nic0.0"]), (0, 1), 1, 2 * topology.links[0].bandwidth)
    assert describe(network, lonely).startswith(
        "all of the size must leave rank 0 with nic0.0 over 2 links of 450 GB/s ("
    )
    parts = Partition(((0, 1), (2, 3, 4, 5, 6, 7)), (0, 1), 2, 2 * topology.links[0].bandwidth, True)
    assert describe(network, parts).startswith(
        "to be summed and spread among 2 parts (one is ranks 0-1), each byte needs 2"
    )
    prices = Prices((0, 1), (1, 2), 7, 30)
    assert describe(network, prices) == (
        "at the given prices per byte on 2 links all data must pay 7 times the size, and the links earn 30 per second"
    )
