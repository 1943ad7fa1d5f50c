"""Traffic on fabrics small enough to be worked out by hand, and what holds for any traffic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from syntony.base.command import UserError
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.model.collective import Collective
from syntony.synth.simulation.program_simulator import simulate_program
from syntony.synth.simulation.schedule_simulator import simulate as simulate_schedule
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.from_files import program_messages, schedule_messages
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import Messages
from syntony.synth.traffic.patterns.table import pattern_messages
from syntony.synth.traffic.run import Outcome, Shift, run
from syntony.topologies import Topology, parse
from tests.sampled import examples
from tests.synth.networks import networks

RATE, ALPHA = 1e9, 1e-6
SIZE = 100e6
CHOICES = ["single", "ecmp", "e-ecmp:3", "spray", "least-loaded"]
# Two hosts below each of two leaves, two spines: two flows across need both spines.
FABRIC = "clos:leaves=2,hosts=2,spines=2"


def pairs(*ends: tuple[int, int], size: float = SIZE) -> Messages:
    """One message per pair of members."""
    src, dst = zip(*ends, strict=True)
    return Messages.make(1 + max(map(max, ends)), src, dst, size)


def across(choice: str, seed: int = 0) -> Outcome:
    """0 -> 2 and 1 -> 3, both from leaf 0 to leaf 1."""
    return run(parse(FABRIC), [Job("a", (0, 1, 2, 3), pairs((0, 2), (1, 3)))], Choice.parse(choice, seed))


IDEAL = SIZE / RATE + 4 * ALPHA


def test_one_spine_is_half_speed_and_two_are_full_speed() -> None:
    assert across("single").seconds == pytest.approx(2 * SIZE / RATE + 4 * ALPHA)
    for choice in ("spray", "least-loaded"):
        assert across(choice).seconds == pytest.approx(IDEAL)


def test_ecmp_collides_in_half_of_the_cases_and_is_then_half_as_fast() -> None:
    times = np.array([across("ecmp", seed).seconds for seed in range(200)])
    collided = times > 1.5 * SIZE / RATE
    assert times[collided] == pytest.approx(np.full(collided.sum(), 2 * SIZE / RATE + 4 * ALPHA))
    assert times[~collided] == pytest.approx(np.full((~collided).sum(), IDEAL))
    assert 70 < collided.sum() < 130  # the seeds are fixed; five sigma are 35


def test_more_queue_pairs_are_better_in_distribution() -> None:
    by_pairs = [np.array([across(f"e-ecmp:{k}", seed).seconds for seed in range(60)]) for k in (1, 4, 32)]
    means = [times.mean() for times in by_pairs]
    assert means[0] > means[1] > means[2] > IDEAL
    worst = [np.quantile(times, 0.9) for times in by_pairs]
    assert worst[0] > worst[1] > worst[2]
    # One queue pair is plain ECMP.
    assert by_pairs[0].tolist() == [across("ecmp", seed).seconds for seed in range(60)]


def test_two_jobs_between_the_same_hosts_are_two_flows() -> None:
    jobs = [Job(name, (0, 2), pairs((0, 1))) for name in "ab"]
    links = []
    for seed in range(40):
        carried = run(parse(FABRIC), jobs, Choice("ecmp", 1, seed)).carried
        links.append(int((carried > 0).sum()))
    assert set(links) == {4, 6}  # on one spine, or on both


@pytest.mark.parametrize("pattern", ["direct", "rotated"])
def test_all_to_all_of_64_on_an_8_to_1_fat_tree(pattern: str) -> None:
    """What leaves a leaf: 8 hosts times 56 others above it, over the leaf's uplinks, 8 times thinner than its hosts."""
    topology = parse("clos:leaves=8,hosts=8,spines=4,oversubscription=8")
    job = Job("a", tuple(range(64)), pattern_messages(f"all_to_all:{pattern}", 64, SIZE))
    found = run(topology, [job], Choice("spray"))
    uplinks = 8 * RATE / 8
    assert found.seconds == pytest.approx(8 * 56 * SIZE / 64 / uplinks, rel=1e-4)
    up = [link.id for link in topology.links if topology.nodes[link.src].name.startswith("leaf") and link.dst > 71]
    assert found.utilization[up] == pytest.approx(np.ones(len(up)), rel=1e-3)
    for other in ("ecmp", "e-ecmp:4", "least-loaded"):
        assert run(topology, [job], Choice.parse(other)).seconds >= found.seconds * (1 - 1e-9)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(1, 5))
def test_least_loaded_stays_within_its_bound(sizes: list[int], spines: int) -> None:
    """Messages placed one by one on the least loaded of m links: at most sum/m + (1 - 1/m) max of them on one
    (Graham, "Bounds for certain multiprocessing anomalies", 1966). One path for all carries the sum."""
    count = len(sizes)
    thin = f"clos:leaves=2,hosts={count},spines={spines},alpha=0,bandwidth=1e9,oversubscription={count}"
    topology = parse(thin)  # all uplinks of a leaf together are one host's link
    messages = Messages.make(2 * count, range(count), range(count, 2 * count), np.asarray(sizes) * 1e6)
    job = Job("a", tuple(range(2 * count)), messages)
    uplink = RATE / spines
    placed, single = (run(topology, [job], Choice(name)).seconds for name in ("least-loaded", "single"))
    graham = (sum(sizes) / spines + (1 - 1 / spines) * max(sizes)) * 1e6 / uplink
    assert placed <= graham * (1 + 1e-9)
    assert single == pytest.approx(sum(sizes) * 1e6 / uplink)
    assert placed <= single * (1 + 1e-9)


@st.composite
def jobs_on(draw: st.DrawFn, topology: Topology) -> list[Job]:
    """One to three jobs of random messages between random members."""
    jobs = []
    for number in range(draw(st.integers(1, 3))):
        members = draw(st.permutations(range(topology.ranks)).map(lambda order: order[: max(1, len(order) - 1)]))
        member = st.integers(0, len(members) - 1)
        rows = draw(st.lists(st.tuples(member, member, st.integers(0, 5)), min_size=1, max_size=8))
        waits = [(row, draw(st.integers(0, row - 1))) for row in range(1, len(rows)) if draw(st.booleans())]
        src, dst, size = zip(*rows, strict=True)
        later, earlier = zip(*waits, strict=True) if waits else ((), ())
        messages = Messages.make(len(members), src, dst, size, (later, earlier))
        compute, start = draw(st.sampled_from([0.0, 2.0])), draw(st.sampled_from([0.0, 3.0]))
        jobs.append(Job(f"job{number}", tuple(members), messages, draw(st.integers(1, 3)), compute, start))
    return jobs


@examples(150)
@given(st.data(), networks(switches=4), st.sampled_from(CHOICES), st.integers(0, 3))
def test_what_holds_for_any_traffic(data: st.DataObject, topology: Topology, choice: str, seed: int) -> None:
    jobs = data.draw(jobs_on(topology))
    found = run(topology, jobs, Choice.parse(choice, seed), timeline=True)
    flows, times = found.traffic.flows, found.times
    assert np.isfinite(times.arrival).all()
    # Bytes on links are bytes times hops, and nothing comes from or goes to where it should not.
    flow, link, amount = found.on_links
    hops = np.zeros(len(flows))
    np.add.at(hops, flow, amount)
    src = np.asarray([topology.links[one].src for one in link.tolist()], np.int64)
    dst = np.asarray([topology.links[one].dst for one in link.tolist()], np.int64)
    net = np.zeros((len(flows), len(topology.nodes)))
    np.add.at(net, (flow, src), amount)
    np.add.at(net, (flow, dst), -amount)
    for row in range(len(flows)):
        job, message = jobs[int(flows.job[row])], int(found.traffic.message[row])
        if message < 0:
            assert not hops[row]
            continue
        ends = job.members[job.messages.src[message]], job.members[job.messages.dst[message]]
        expected = np.zeros(len(topology.nodes))
        if ends[0] != ends[1]:
            expected[ends[0]], expected[ends[1]] = flows.bytes[row], -flows.bytes[row]
        assert net[row] == pytest.approx(expected)
    total = sum(job.messages.bytes[job.messages.src != job.messages.dst].sum() * job.iterations for job in jobs)
    assert net.clip(min=0).sum() == pytest.approx(total)
    # No link carries more than it can, at any time or on average; and what the timeline says is what was sent.
    assert (found.utilization <= 1 + 1e-9).all()
    assert (times.rate <= flows.capacity[times.link] * (1 + 1e-9)).all()
    for one in range(len(topology.links)):
        rows = times.link == one
        lasted = np.diff(times.times[rows], append=found.seconds)
        assert (times.rate[rows] * lasted).sum() == pytest.approx(found.carried[one], abs=1e-6)
    # Iterations follow one another; each computes first.
    for number, job in enumerate(jobs):
        took = found.iterations(number)
        assert (took >= job.compute - 1e-9).all()
        mine = flows.job == number
        assert times.start[mine].min() >= job.start - 1e-9
        assert took.sum() == pytest.approx(times.arrival[mine].max() - job.start)


def test_iterations_compute_then_talk() -> None:
    job = Job("a", (0, 2), pairs((0, 1)), iterations=5, compute=0.3, start=1.0)
    found = run(parse(FABRIC), [job], Choice("spray"))
    assert found.iterations(0) == pytest.approx(np.full(5, 0.3 + SIZE / RATE + 4 * ALPHA))
    assert found.seconds == pytest.approx(1.0 + 5 * (0.3 + SIZE / RATE + 4 * ALPHA))
    held = run(parse(FABRIC), [job], Choice("spray"), [Shift(2.0, 0.5)])
    assert held.seconds == pytest.approx(2.0 + 4 * 0.5 + 0.3 + SIZE / RATE + 4 * ALPHA)


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all", "broadcast"])
@pytest.mark.parametrize("name", ["star:5", "ring:5", "dgx1"])
def test_a_schedule_takes_the_time_that_its_own_simulator_says(kind: str, name: str) -> None:
    """Where there is one path between neighbours, choice has nothing to choose."""
    topology = parse(name)
    schedule = greedy(topology, Collective.make(kind, topology.ranks), 1 << 20, Budget(20.0))
    job = Job("a", tuple(range(topology.ranks)), schedule_messages(schedule, 1 << 20))
    found = run(topology, [job], Choice("single"))
    if name == "dgx1":  # parallel links: the schedule uses both, one path only one
        assert found.seconds >= simulate_schedule(schedule, 1 << 20).seconds * (1 - 1e-6)
    else:
        assert found.seconds == pytest.approx(simulate_schedule(schedule, 1 << 20).seconds)


@pytest.mark.parametrize("algorithm", ["ring", "dbt", "direct"])
def test_a_program_takes_the_time_that_its_own_simulator_says(algorithm: str) -> None:
    """With FIFOs deep enough and the same slices."""
    topology, size = parse("star:8"), 8 << 20
    program = _core.build(algorithm, "all_reduce", 8)
    messages = program_messages(program, size)
    found = run(topology, [Job("a", tuple(range(8)), messages)], Choice("single"))
    most = int(messages.bytes.max())
    theirs = simulate_program(program, topology, size, slice_bytes=most, fifo_depth=64)
    assert found.seconds == pytest.approx(theirs.seconds, rel=0.02)


@pytest.mark.parametrize("algorithm", ["ring", "dbt", "hierarchical"])
def test_waits_of_programs_do_not_pile_up(algorithm: str) -> None:
    """Lanes that only receive must not make every message wait for all that ever arrived there."""
    messages = program_messages(_core.build(algorithm, "all_reduce", 32), 1 << 20)
    assert len(messages.after) <= 6 * len(messages)


def test_refusals() -> None:
    messages = pairs((0, 1))
    with pytest.raises(UserError, match=r"job a: member 4 is not a rank of .*; its ranks are 0\.\.3"):
        run(parse(FABRIC), [Job("a", (0, 4), messages)], Choice("spray"))
    with pytest.raises(UserError, match="job a: its traffic is between 2 members, but 3 are listed"):
        Job("a", (0, 1, 2), messages)
    with pytest.raises(UserError, match=r"the jobs send 10000000 messages; at most 5000000 .*: take fewer"):
        run(parse(FABRIC), [Job("a", (0, 1), messages, iterations=5_000_000)], Choice("spray"))
    with pytest.raises(UserError, match="job a: a rank is listed twice"):
        Job("a", (1, 1), messages)
