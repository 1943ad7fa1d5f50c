"""The forest engine meets the throughput bound exactly, and its schedules are right."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _solve
from syntony.synth.bounds.throughput import throughput
from syntony.synth.checker.schedules.check import check_schedule
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.forest.fixed import Search, fixed_rooms
from syntony.synth.engines.forest.narrowed import narrowed
from syntony.synth.engines.forest.nic_to_nic import nic_to_nic
from syntony.synth.engines.forest.passed_on import passed_on
from syntony.synth.engines.forest.rerouted import even_parts
from syntony.synth.engines.forest.search import pack, run
from syntony.synth.engines.forest.trees import Trees, common_weights, spread
from syntony.synth.engines.forest.two_trees import along_two_trees, binary_trees
from syntony.synth.engines.workers import seconds_at
from syntony.synth.model.collective import MOST_WEIGHT, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.long_messages import estimate
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, Topology
from tests.sampled import examples, one_in
from tests.synth.networks import replay

NAMES = [
    "dgx1",
    "dgx-a100:2",
    "dgx-h100:2",
    "ring:5",
    "star:4",
    "mesh:3x3",
    "torus:3x3",
    "torus:4x4",
    "full:2",
    "ring:2",
]
KINDS = ["all_gather", "reduce_scatter", "broadcast", "reduce"]


@pytest.mark.parametrize(("name", "kind"), one_in(2, NAMES, KINDS))
def test_the_bound_is_met(name: str, kind: str) -> None:
    topology = parse(name)
    schedule = run(topology, Collective.make(kind, topology.ranks), 1 << 30, Budget())
    replay(schedule)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    assert gap_of(schedule) == 0


@pytest.mark.parametrize("name", NAMES)
def test_all_reduce_is_both_halves_at_their_bounds(name: str) -> None:
    topology = parse(name)
    schedule = run(topology, Collective.make("all_reduce", topology.ranks), 1 << 30, Budget())
    replay(schedule)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    halves = [
        seconds_per_byte(run(topology, Collective.make(kind, topology.ranks), 1 << 30, Budget()))
        for kind in ("reduce_scatter", "all_gather")
    ]
    assert seconds_per_byte(schedule) <= sum(halves)


@pytest.mark.parametrize(
    ("name", "links"), [("mesh:3x3", 1.5), ("mesh:4x4", 1.6), ("mesh:5x5", 5 / 3), ("mesh:4x4,bandwidth=1e9x2e9", 2.4)]
)
def test_all_reduce_on_meshes_beats_both_halves(name: str, links: float) -> None:
    """2n/(n+1) links on an n x n mesh, where reduce_scatter, then all_gather reaches no more than n²/(n²-1)."""
    topology = parse(name)
    schedule = run(topology, Collective.make("all_reduce", topology.ranks), 1 << 30, Budget())
    replay(schedule)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    rate = 1 / float(seconds_per_byte(schedule)) / 1e9
    assert 0.998 * links <= rate <= links * (1 + 1e-9)


@st.composite
def cabled(draw: st.DrawFn) -> Topology:
    """Ranks and relays joined by cables, so that every relay is balanced; connected, parallel cables occur."""
    ranks, relays = draw(st.integers(2, 6)), draw(st.integers(0, 3))
    count = ranks + relays
    nodes = [Node(i, "rank" if i < ranks else draw(st.sampled_from(["switch", "nic"])), f"n{i}") for i in range(count)]
    order = draw(st.permutations(range(count)))
    ends = [(order[i], order[draw(st.integers(0, i - 1))]) for i in range(1, count)]
    pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda ends: ends[0] != ends[1])
    ends += draw(st.lists(pair, max_size=8))
    links: list[Link] = []
    for a, b in ends:
        rate = draw(st.sampled_from([Fraction(1), Fraction(2), Fraction(3, 2), Fraction(12)]))
        for src, dst in ((a, b), (b, a)):
            links.append(Link(len(links), src, dst, 0.0, rate))
    return Topology("cabled", tuple(nodes), tuple(links))


@examples(150)
@given(topology=cabled(), data=st.data())
def test_random_networks(topology: Topology, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    weights = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    rooted = kind in ("broadcast", "reduce")
    root = data.draw(st.integers(0, topology.ranks - 1)) if rooted else 0
    schedule = run(topology, Collective.make(kind, topology.ranks, root=root, weights=weights), 1, Budget())
    replay(schedule)
    assert gap_of(schedule) == 0


@examples(50)
@given(topology=cabled())
def test_random_all_reduce(topology: Topology) -> None:
    replay(run(topology, Collective.make("all_reduce", topology.ranks), 1, Budget()))


def test_one_way_wires() -> None:
    """Relays need balance, ranks do not; the two halves of all_reduce then cut their chunks differently."""
    ends = [(0, 1, 3), (1, 2, 2), (2, 0, 1), (0, 2, 1), (2, 1, 1)]
    links = tuple(Link(i, src, dst, 0.0, Fraction(rate)) for i, (src, dst, rate) in enumerate(ends))
    topology = Topology("one way", tuple(Node(i, "rank", f"n{i}") for i in range(3)), links)
    for kind in (*KINDS, "all_reduce"):
        schedule = run(topology, Collective.make(kind, 3), 1, Budget())
        replay(schedule)
        assert kind == "all_reduce" or gap_of(schedule) == 0


def test_members_only() -> None:
    schedule = run(parse("torus:3x3"), Collective.make("all_gather", members=(0, 1, 2, 5)), 1, Budget())
    replay(schedule)
    assert gap_of(schedule) == 0


def test_trees_are_shallow_where_they_can_be() -> None:
    torus = parse("torus:8x8")
    assert int(pack(torus, Collective.make("all_gather", 64)).depths().max()) + 1 == 8  # the diameter
    boxes = parse("dgx-h100:16")
    trees = pack(boxes, Collective.make("all_gather", 128))
    assert len(trees.root) == 128  # one tree per rank
    assert int(trees.depths().max()) + 1 == 2


def test_a_thousand_ranks_within_the_capacities() -> None:
    """Load per link, recomputed: rank r's tree takes its weight from every link on its way."""
    topology = replace(parse("rail:boxes=128,gpus=8,rails=8"), generators=())
    trees = pack(topology, Collective.make("all_gather", 1024))
    load = np.zeros(len(topology.links))
    hops = np.diff(trees.offset)
    used = np.bincount(trees.route.reshape(-1), np.repeat(trees.weight, 1023), minlength=len(hops))
    np.add.at(load, trees.link, np.repeat(used, hops))
    rate = np.asarray([float(link.bandwidth) for link in topology.links])
    weight = trees.weight[trees.root == 0].sum()
    assert max(load / rate) / weight == pytest.approx(127 / 50e9)  # 127 boxes send 8 blocks each over 8 NICs
    for tree in range(0, 1024, 97):
        assert sorted([int(trees.root[tree]), *trees.dst[tree].tolist()]) == list(range(1024))


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"])
def test_measured_rates_without_a_common_denominator(kind: str) -> None:
    """Exact trees would be more than the weights of chunks can count, on links and through switches alike."""
    rates = [24371234567, 3100000007, 12345678901, 9999999967, 11111111113, 7654321987]
    ring, hosts = Wiring("measured"), Wiring("measured hosts")
    for place in enumerate(range(6)):
        ring.rank(place)
        hosts.rank(place)
    leaves = [hosts.switch(f"leaf{number}", (number, 6)) for number in range(2)]
    hosts.cable(*leaves, Fraction(10**11, 7), 1e-6)
    for rank, rate in enumerate(rates):
        ring.cable(rank, (rank + 1) % 6, Fraction(rate), 1e-6)
        hosts.cable(rank, leaves[rank // 3], Fraction(rate), 1e-6)
    ring.cable(0, 3, Fraction(10**10, 3), 1e-6)
    for topology in (ring.topology(), hosts.topology()):
        schedule = run(topology, Collective.make(kind, 6), 1 << 30, Budget())
        verdict = check_schedule(schedule)
        assert verdict, verdict.fault
        bound = throughput(Network(topology, schedule.collective)).seconds_per_byte
        assert bound <= seconds_per_byte(schedule) <= bound * Fraction(1005, 1000)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([[3, 2], [4, 1]], [[2, 3], [5]]),  # exactly
        ([[2**20, 1], [2**20 + 1]], [[2**21, 2, 1], [2**20, 2**20 + 3]]),  # pieces have more than 32 bits
        ([[2**31 - 1], [2**31 - 2, 1]], [[2**31 - 3], [2**30, 2**30 - 3]]),  # sums have more than 64
    ],
)
def test_pieces_of_trees_agree_and_have_32_bits(one: list[list[int]], other: list[list[int]]) -> None:
    forests = [_bare(weights) for weights in (one, other)]
    pieces = common_weights(*forests)
    assert np.array_equal(pieces[0].weight, pieces[1].weight)
    assert np.array_equal(pieces[0].root, pieces[1].root)
    assert 0 < pieces[0].weight.min() <= pieces[0].weight.max() <= MOST_WEIGHT
    for forest, cut in zip(forests, pieces, strict=True):
        shares = np.bincount(cut.root, cut.weight)
        assert (shares == shares[0]).all()
        of_tree = np.bincount(cut.src[:, 0], cut.weight, len(forest.root)) / cut.weight.sum()
        assert of_tree == pytest.approx(forest.weight / forest.weight.sum(), abs=1e-9)


def _bare(weights: list[list[int]]) -> Trees:
    """Trees of the weights of every root; in place of a source they have their number."""
    weight = np.concatenate(weights)
    edges = np.arange(len(weight))[:, None]
    root = np.repeat(np.arange(len(weights)), [len(own) for own in weights])
    return Trees(root, weight, edges, edges, edges, np.arange(len(weight) + 1), edges[:, 0])


def test_what_has_no_trees_is_refused_by_name() -> None:
    topology = parse("ring:4")
    with pytest.raises(EngineError, match="packs trees, which all_to_all does not need; use --engine flow"):
        run(topology, Collective.make("all_to_all", 4), 1, Budget())
    with pytest.raises(EngineError, match="takes no --steps or --rounds"):
        run(topology, Collective.make("all_gather", 4), 1, Budget(steps=3))


def test_an_unbalanced_relay_is_refused_by_name() -> None:
    ends = [(0, 2, 2), (2, 1, 1), (1, 2, 1), (2, 0, 1)]
    links = tuple(Link(i, src, dst, 0.0, Fraction(rate)) for i, (src, dst, rate) in enumerate(ends))
    nodes = (Node(0, "rank", "a"), Node(1, "rank", "b"), Node(2, "switch", "c"))
    with pytest.raises(EngineError, match="relay 2 can take in 3 and send out 2; a forest needs them equal"):
        run(Topology("lame", nodes, links), Collective.make("all_gather", 2), 1, Budget())


@pytest.mark.parametrize(
    ("name", "trees", "rate"),
    [("dgx-a100:2", 1, "342.857"), ("dgx-a100:2", 13, "346.667"), ("mi250:1", 1, "266.667"), ("mi250:2", 1, "320.000")],
)
def test_so_many_trees_per_root(name: str, trees: int, rate: str) -> None:
    """Rates as ForestColl's own Python has them."""
    topology = parse(name)
    schedule = run(topology, Collective.make("all_gather", topology.ranks), 1, Budget(), argument=str(trees))
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    assert f"{float(1 / seconds_per_byte(schedule)) / 1e9:.3f}" == rate
    assert schedule.collective.chunks.weight.sum() == trees * topology.ranks


@examples(60)
@given(topology=cabled(), trees=st.integers(1, 4), kind=st.sampled_from([*KINDS, "all_reduce"]))
def test_no_packing_of_so_many_trees_is_faster(topology: Topology, trees: int, kind: str) -> None:
    """The time before the one that was found: some cut has not enough room, or the trees would fit."""
    collective = Collective.make(kind, topology.ranks)
    replay(run(topology, collective, 1, Budget(), argument=str(trees)))
    if kind != "all_gather":
        return
    network = Network(topology, collective)
    found = fixed_rooms(network, [trees] * topology.ranks, Fraction(1, 100))
    slower = [Fraction(room) / link.bandwidth for room, link in zip(found, network.links, strict=True)]
    last = [room - (time == max(slower)) for room, time in zip(found, slower, strict=True)]
    nodes = range(len(topology.nodes))
    crowded = False
    for chosen in range(1, 1 << len(nodes)):
        inside = [node for node in nodes if chosen >> node & 1]
        roots = sum(node < topology.ranks for node in inside)
        if roots < topology.ranks:
            leaving = [link.src in inside and link.dst not in inside for link in network.links]
            assert roots * trees <= sum(room for room, out in zip(found, leaving, strict=True) if out)
            crowded |= roots * trees > sum(room for room, out in zip(last, leaving, strict=True) if out)
    assert crowded


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_no_lane_of_deep_trees_waits_for_a_slice_that_is_on_its_way(kind: str) -> None:
    """With a step for every hop, four trees that share lanes take 1.27 times as long as the bound."""
    topology, size = parse("frontier:groups=1,switches=8,nodes=2"), 1 << 30
    schedule = run(topology, Collective.make(kind, topology.ranks), size, Budget())
    assert check_schedule(schedule)
    assert schedule.bounds is not None
    assert seconds_at(schedule, size) <= 1.02 * schedule.bounds.seconds(size)


def test_trees_are_in_time_if_steps_are_as_many_turns_apart_as_a_hop_takes() -> None:
    """Two trees along the same chain: the turn of a lane takes as long as two slices."""
    turn = 2 * executor_slice(4)
    for latency, steps in ((0.0, [0, 1, 2]), (0.4, [0, 1, 2]), (0.5, [0, 1, 3]), (1.0, [0, 2, 4]), (1.2, [0, 2, 4])):
        wiring = Wiring("chain")
        for rank in range(4):
            wiring.rank((rank, 0))
        for rank in range(3):
            wiring.cable(rank, rank + 1, Fraction(1), latency * turn)
        column = np.tile(np.arange(3), (2, 1))
        trees = Trees(np.zeros(2, int), np.ones(2, int), column, column + 1, column, np.arange(4), np.arange(0, 6, 2))
        assert trees.steps().tolist() == [[0, 1, 2]] * 2
        assert trees.in_time(wiring.topology()).steps().tolist() == [steps] * 2


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("dgx-h100:24", 7),
        ("rail:boxes=24,gpus=8,rails=8", 9),
        ("rail:boxes=24,gpus=8,rails=8,bandwidth=200GB/s", 12),  # some data leave the box and return
        ("star:200", 9),
        ("dragonfly:8", 9),  # some take longer routes, so that no link between groups is taken twice
        ("fat-tree:10", 8),  # 36 routes between two pods
    ],
)
@pytest.mark.parametrize(("kind", "root"), [("broadcast", 0), ("broadcast", 77), ("reduce", 191)])
def test_a_large_broadcast_goes_along_two_trees_of_hosts(name: str, steps: int, kind: str, root: int) -> None:
    topology = parse(name)
    schedule = run(topology, Collective.make(kind, topology.ranks, root=root), 1, Budget())
    assert gap_of(schedule) == 0
    assert schedule.steps <= steps
    assert check_schedule(schedule)


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize("name", ["dgx2:12", "dgx2:3"])
def test_trees_that_stream_are_chosen(name: str, kind: str) -> None:
    """The shallowest trees that meet the bound fill NVLinks, too, and take 1.3 to 1.4 times as long."""
    topology = parse(name)
    schedule = run(topology, Collective.make(kind, topology.ranks), 1, Budget())
    assert schedule.bounds is not None
    assert estimate(schedule, 1 << 30, 1 << 16).seconds <= 1.05 * schedule.bounds.seconds(1 << 30)
    assert check_schedule(schedule)


@pytest.mark.parametrize("name", ["dgx-h100:4", "rail:boxes=3,gpus=4,rails=2", "star:9"])
def test_two_trees_of_a_group(name: str) -> None:
    """Every second rank, the root in the last host."""
    topology = parse(name)
    members = range(0, topology.ranks, 2)
    collective = Collective.make("broadcast", members=members, root=len(members) - 1)
    network = Network(topology, collective)
    least = float(throughput(network).seconds_per_byte)
    trees = along_two_trees(network, lambda two: pack(two.topology, two.collective), least)
    assert trees is not None
    assert check_schedule(spread(topology, collective, trees))
    schedule = run(topology, collective, 1, Budget())
    assert gap_of(schedule) == 0
    assert check_schedule(schedule)


@pytest.mark.parametrize("name", ["hpn:segments=2,boxes=8,spines=2", "hpn:segments=2,boxes=4,spines=15"])
def test_two_trees_use_the_ports_of_nics_evenly(name: str) -> None:
    """A NIC has a port in each of two planes. With 15 spines, a cable to a spine has room for half of a tree only."""
    topology = parse(name)
    collective = Collective.make("broadcast", topology.ranks)
    network = Network(topology, collective)
    least = float(throughput(network).seconds_per_byte)
    trees = along_two_trees(network, lambda two: pack(two.topology, two.collective), least)
    assert trees is not None
    assert trees.seconds_per_byte(topology) == pytest.approx(least)
    assert check_schedule(spread(topology, collective, trees))


@examples(100)
@given(edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=60))
def test_edges_are_dealt_evenly_at_both_ends(edges: list[tuple[int, int]]) -> None:
    src, dst = np.asarray(edges, np.int64).reshape(-1, 2).T
    part = even_parts(src, dst)
    for end in (src, dst):
        for rank in range(6):
            own = part[end == rank]
            assert abs((own < 1 / 2).sum() - (own >= 1 / 2).sum()) <= 1
            assert abs((own < 1 / 4).sum() - ((own >= 1 / 4) & (own < 1 / 2)).sum()) <= 1


@pytest.mark.parametrize(
    ("name", "kind", "root", "steps"),
    [
        ("nvl72:2", "reduce", 100, 7),
        ("nvl72:3", "broadcast", 0, 5),
        ("nvl72:4,planes=1", "broadcast", 287, 7),
        ("nvl72:4,nic_bandwidth=63e9", "reduce", 5, 6),
    ],
)
def test_in_large_hosts_some_shares_go_from_nic_to_nic(name: str, kind: str, root: int, steps: int) -> None:
    topology = parse(name)
    schedule = run(topology, Collective.make(kind, topology.ranks, root=root), 1, Budget())
    assert (gap_of(schedule) or 0) < Fraction(3, 100)
    assert schedule.steps <= steps
    assert len(set(schedule.collective.chunks.weight.tolist())) == 1
    assert check_schedule(schedule)


@pytest.mark.parametrize("name", ["dgx-h100:4", "rail:boxes=3,gpus=32,rails=32", "star:8", "torus:4x4"])
def test_nics_that_have_no_room_or_do_not_reach_all_take_no_more_shares(name: str) -> None:
    topology = parse(name)
    assert nic_to_nic(Network(topology, Collective.make("broadcast", topology.ranks))) is None


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_trees_that_are_found_early_are_told(kind: str) -> None:
    topology = parse("dgx-h100:5")
    told: list[Schedule] = []
    best = run(topology, Collective.make(kind, topology.ranks, root=9), 1, Budget(better=told.append))
    assert told
    for schedule in told:
        assert check_schedule(schedule)
        assert schedule.bounds == best.bounds
        assert seconds_per_byte(schedule) >= seconds_per_byte(best)


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize(("name", "root"), [("full:3", 1), ("full:9", 4), ("full:200", 0), ("mi300x", 7)])
def test_where_every_two_ranks_have_a_link_each_passes_a_share_on(name: str, root: int, kind: str) -> None:
    topology = parse(name)
    schedule = run(topology, Collective.make(kind, topology.ranks, root=root), 1, Budget())
    assert gap_of(schedule) == 0
    assert schedule.steps == 2
    assert len(schedule.collective.chunks) == topology.ranks - 1
    assert check_schedule(schedule)


def test_shares_that_are_passed_on_are_as_the_slowest_link_of_each_allows() -> None:
    """Links from and to rank 3 have a quarter of the bandwidth, and 0 -> 1 has a slow one beside it."""
    pairs = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    pace = {pair: Fraction(1 if 3 in pair else 4) * 10**9 for pair in pairs}
    links = [Link(number, *pair, 1e-6, pace[pair]) for number, pair in enumerate(pairs)]
    slow = Link(len(links), 0, 1, 1e-6, Fraction(10**9))
    nodes = tuple(Node(rank, "rank", str(rank)) for rank in range(4))

    def trees_of(chosen: list[Link]) -> Trees | None:
        numbered = tuple(replace(link, id=number) for number, link in enumerate(chosen))
        topology = Topology("unequal", nodes, numbered)
        network = Network(topology, Collective.make("broadcast", 4))
        trees = passed_on(network)
        if trees is not None:
            assert check_schedule(spread(topology, network.collective, trees))
        return trees

    for trees in (trees_of([*links, slow]), trees_of([slow, *links])):
        assert trees is not None
        assert trees.weight.tolist() == [1, 1, 1]  # 3 gets all of it slowly
    fast = [replace(link, bandwidth=Fraction(4 * 10**9)) if link.dst == 3 else link for link in links]
    unequal = trees_of([*fast, slow])
    assert unequal is not None
    assert unequal.weight.tolist() == [4, 4, 1]
    assert slow.id not in unequal.link
    assert trees_of([link for link in links if (link.src, link.dst) != (1, 2)]) is None
    assert trees_of([link for link in links if (link.src, link.dst) != (1, 0)]) is not None


@pytest.mark.parametrize("hosts", range(1, 40))
def test_hosts_have_children_in_one_of_two_trees(hosts: int) -> None:
    trees = binary_trees(hosts)
    inner = [{parent for parent in tree.tolist() if parent} for tree in trees]
    assert not inner[0] & inner[1]
    for tree in trees:
        assert np.bincount(tree).max() <= 2
        assert (tree == 0).sum() == 1
        for host in range(1, hosts + 1):
            depth, at = 0, host
            while at:
                depth, at = depth + 1, int(tree[at - 1])
            assert depth <= hosts.bit_length() + 1


def test_fast_links_give_up_room_that_no_tree_needs() -> None:
    network = Network(parse("dgx-h100:2"), Collective.make("broadcast", 16))
    trees = [8, *[0] * 15]
    rooms = [int(Fraction(8, 400 * 10**9) * link.bandwidth) for link in network.links]
    found = narrowed(network, trees, rooms)
    assert {(room, less) for room, less in zip(rooms, found, strict=True)} == {(9, 7), (1, 1)}
    assert Search(network, trees).suffice(found)
    assert not Search(network, trees).suffice([room - (room == 7) for room in found])


@pytest.mark.parametrize("name", ["dgx-h100:2", "dgx-a100:2"])
@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_links_that_need_not_be_full_leave_messages_alone(name: str, kind: str) -> None:
    topology = parse(name)
    schedule = run(topology, Collective.make(kind, topology.ranks), 1, Budget())
    size = 1 << 30
    assert schedule.bounds is not None
    assert simulate(schedule, size, 1 << 17).seconds <= 1.01 * schedule.bounds.seconds(size)


@pytest.mark.parametrize("argument", ["0", "-1", "two", "1.5", "1001", "²"])
def test_how_many_trees_is_a_small_whole_number(argument: str) -> None:
    with pytest.raises(EngineError, match=f"trees per root, 1 to 1000, as in forest:2, but not '{argument}'"):
        run(parse("ring:4"), Collective.make("all_gather", 4), 1, Budget(), argument=argument)


def test_what_does_not_fit_is_refused() -> None:
    def column(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.asarray(numbers, np.int32)

    room = np.asarray([1, 1], np.int64)
    with pytest.raises(ValueError, match="the trees do not fit into the network"):
        _solve.pack_forest(2, column(0, 1), column(1, 0), room, np.asarray([2, 1], np.int64))
    with pytest.raises(ValueError, match="columns of unequal length"):
        _solve.pack_forest(2, column(0), column(1, 0), room, np.asarray([1, 1], np.int64))
