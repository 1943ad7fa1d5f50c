"""From topology to machines, wires, addresses and rates: nothing here needs root."""

from __future__ import annotations

from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network

import pytest

from syntony.lab.aggregators import adding_switches, services, ways
from syntony.lab.lab_spec import LabError, LabSpec, at_rate, delayed, spec_of
from syntony.lab.processes import environment_of
from syntony.topologies.aggregator import PROFILES
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, Topology

NAMES = ["star:4", "torus:2x2", "ring:3", "dgx1", "dgx-a100:2", "rail:boxes=2,gpus=2,rails=2", "hypercube:3"]


@pytest.mark.parametrize("name", NAMES)
def test_every_cable_between_machines_is_a_wire_and_every_address_is_its_own(name: str) -> None:
    topology = parse(name)
    spec = spec_of(topology)
    home = {node: machine.id for machine in spec.machines for node in machine.nodes}
    assert sorted(home) == list(range(len(topology.nodes)))
    outside = [link.id for link in topology.links if home[link.src] != home[link.dst]]
    assert sorted(end.link for wire in spec.wires for end in wire.ends) == outside
    for wire in spec.wires:
        for near, far in (wire.ends, wire.ends[::-1]):
            link = topology.links[near.link]
            assert (link.src, link.dst) == (near.node, far.node)
            assert (near.machine, near.rate) == (home[link.src], link.bandwidth)
    addresses = [IPv4Address(port.address) for machine in spec.machines for port in machine.ports]
    links = [IPv4Address(end.link_address) for wire in spec.wires for end in wire.ends]
    assert len({*addresses, *links}) == len(addresses) + len(links)
    assert all(address in IPv4Network("198.18.0.0/15") for address in addresses)
    assert all(address.is_link_local for address in links)


def test_a_star_is_hosts_around_a_switch() -> None:
    spec = spec_of(parse("star:3"))
    assert [(machine.name, machine.ranks, machine.forwards) for machine in spec.machines] == [
        ("h0", (0,), True),
        ("h1", (1,), True),
        ("h2", (2,), True),
        ("s0", (), True),
    ]
    assert [[end.machine for end in wire.ends] for wire in spec.wires] == [[0, 3], [1, 3], [2, 3]]


def test_a_rail_host_has_an_address_per_nic_and_does_not_forward() -> None:
    spec = spec_of(parse("rail:boxes=2,gpus=2,rails=2"))
    host = spec.hosts[1]
    assert (host.name, host.ranks, host.forwards) == ("h1", (2, 3), False)
    assert spec.label(host) == "rank2 rank3 nvswitch1 nic1.0 nic1.1"
    assert [spec.topology.nodes[port.node].name for port in host.ports] == ["nic1.0", "nic1.1"]
    assert spec.host_of[3] is host


def rates(spec: LabSpec) -> list[int]:
    return [int(end.rate) for wire in spec.wires for end in wire.ends]


def uneven() -> Topology:
    wiring = Wiring("uneven")
    for place in range(3):
        wiring.rank((place, 0))
    wiring.cable(0, 1, Fraction(100), 0.0)
    wiring.cable(1, 2, Fraction(40), 0.0)
    return wiring.topology()


def test_rates_keep_their_proportion() -> None:
    spec = spec_of(uneven())
    assert rates(at_rate(spec, Fraction(1000))) == [1000, 1000, 400, 400]
    assert rates(at_rate(spec, Fraction(1000), "rank1-rank2")) == [2500, 2500, 1000, 1000]


def test_delays_go_to_all_wires_or_to_the_one_named() -> None:
    spec = spec_of(uneven())
    assert [wire.delay for wire in delayed(spec, 0.5).wires] == [0.5, 0.5]
    assert [wire.delay for wire in delayed(delayed(spec, 0.5), 0.1, "rank2-rank1").wires] == [0.5, 0.1]


def test_a_wire_is_named_by_its_ends() -> None:
    spec = spec_of(parse("rail:boxes=2,gpus=2,rails=2"))
    for pair, names in (
        ("nic0.1-rail1", ["w1"]),
        ("rail1-nic0.1", ["w1"]),
        ("h0-rail0", ["w0"]),
        ("rank3-s1", ["w3"]),  # a rank stands for its host
        ("h1-s0", ["w2"]),
    ):
        assert [wire.name for wire in spec.wires_between(pair)] == names, pair


def test_names_may_hold_dashes() -> None:
    nodes = (Node(0, "rank", "a-b"), Node(1, "rank", "c"))
    links = (Link(0, 0, 1, 0.0, Fraction(1)), Link(1, 1, 0, 0.0, Fraction(1)))
    spec = spec_of(Topology("dashes", nodes, links))
    assert spec.wires_between("a-b-c") == spec.wires_between("c-a-b") == spec.wires


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ("rank0", "'rank0' names no wire; one is named by its two ends, such as rank0-switch"),
        ("rank0-swich", r"'rank0-swich': there is no 'swich' in the lab of star:3 \(did you mean switch\?\)"),
        ("xyz-switch", "'xyz-switch': there is no 'xyz' in the lab of star:3; a wire is named like rank0-switch"),
        ("rank0-rank1", "'rank0-rank1': no wire of the lab leads from rank0 to rank1"),
    ],
)
def test_a_wire_that_is_not_there_is_named(pair: str, sentence: str) -> None:
    with pytest.raises(LabError, match=f"^{sentence}$"):
        spec_of(parse("star:3")).wires_between(pair)


def test_parallel_cables_are_several_wires() -> None:
    wiring = Wiring("double")
    wiring.rank((0, 0))
    wiring.rank((1, 0))
    wiring.cable(0, 1, Fraction(1), 0.0)
    wiring.cable(0, 1, Fraction(1), 0.0)
    assert len(spec_of(wiring.topology()).wires_between("h0-h1")) == 2


def test_a_link_without_a_way_back_is_refused() -> None:
    nodes = (Node(0, "rank", "a"), Node(1, "rank", "b"))
    topology = Topology("one-way", nodes, (Link(0, 0, 1, 0.0, Fraction(1)),))
    with pytest.raises(LabError, match=r"^one-way: link 0 leads from a to b and none leads back; the lab speaks TCP"):
        spec_of(topology)


def test_more_machines_than_one_computer_holds_are_refused() -> None:
    with pytest.raises(LabError, match=r"^torus:32x32 has 1024 hosts and 0 switches; the lab holds 256 machines$"):
        spec_of(parse("torus:32x32"))


def test_ranks_meet_at_the_adding_switch_nearest_to_all() -> None:
    assert ways(spec_of(parse("star:4"))) == ()
    spec = spec_of(parse("star:4,aggregator=switchml"))
    assert [switch.name for switch in adding_switches(spec)] == ["s0"]
    assert ways(spec) == ("198.18.0.5:29600",) * 4
    ((switch, command),) = services(spec)
    assert switch.name == "s0"
    assert command[1:5] == ("-m", "syntony.lab.aggregator", "--listen", "0.0.0.0:29600")
    assert "int32_block" in command


def test_of_several_adding_switches_the_middle_one_is_taken() -> None:
    wiring = Wiring("leaves and spine")
    hosts = [wiring.rank((place, 0)) for place in range(4)]
    leaves = [wiring.switch(f"leaf{place}", (place, 1)) for place in range(4)]
    spine = wiring.switch("spine", (1, 2))
    for host, leaf in zip(hosts, leaves, strict=True):
        wiring.cable(host, leaf, Fraction(1), 0.0)
        wiring.cable(leaf, spine, Fraction(1), 0.0)
    spec = spec_of(wiring.topology().with_aggregator(PROFILES["sharp"].aggregator))
    assert len(adding_switches(spec)) == 5
    assert ways(spec) == (f"{spec.machines[-1].ports[0].address}:29600",) * 4  # each leaf would add one rank's only


def test_ranks_go_by_their_own_switch_to_the_one_where_all_sums_meet() -> None:
    spec = spec_of(parse("clos:leaves=2,hosts=4,spines=1,aggregator=sharp"))
    first, second, root = [f"{switch.ports[0].address}:29600" for switch in adding_switches(spec)]
    assert ways(spec) == (f"{first},{root}",) * 4 + (f"{second},{root}",) * 4


def test_a_job_that_is_spread_has_a_tree_for_each_spine() -> None:
    spec = spec_of(parse("clos:leaves=2,hosts=2,spines=2,aggregator=panama"))
    first, second, *roots = [f"{switch.ports[0].address}:29600" for switch in adding_switches(spec)]
    expected = [";".join(f"{leaf},{root}" for root in roots) for leaf in (first, second)]
    assert ways(spec) == (expected[0],) * 2 + (expected[1],) * 2


def test_where_slots_are_shared_all_ways_go_on_to_a_server() -> None:
    spec = spec_of(parse("clos:leaves=2,hosts=2,spines=1,aggregator=atp"))
    first, second, root = [switch.ports[0].address for switch in adding_switches(spec)]
    server = f"{root}:29600,{root}:29601"
    assert ways(spec) == (f"{first}:29600,{server}",) * 2 + (f"{second}:29600,{server}",) * 2
    *switches, (beside, command) = services(spec)
    assert [("--shared" in words, switch.name) for switch, words in switches] == [
        (True, switch.name) for switch in adding_switches(spec)
    ]
    assert beside is switches[-1][0]
    assert "0.0.0.0:29601" in command
    assert "--shared" not in command


def test_a_switch_in_a_box_adds_without_the_lab() -> None:
    spec = spec_of(parse("rail:boxes=2,gpus=2,rails=2").with_aggregator(PROFILES["sharp"].aggregator, "nvswitch*"))
    assert adding_switches(spec) == ()


def test_what_is_tuned_in_a_lab_is_for_labs_with_the_same_wires() -> None:
    star = spec_of(parse("star:4"))
    networks = {
        environment_of(spec, rank, {})["SYNTONY_NETWORK"]
        for spec in (star, at_rate(star, Fraction(10**6)), spec_of(parse("ring:4")))
        for rank in (0, 3)
    }
    assert len(networks) == 3
    assert environment_of(spec_of(parse("star:4")), 1, {})["SYNTONY_NETWORK"] in networks
