"""The critical path in words, on fabrics where it is known."""

from __future__ import annotations

import pytest

from syntony.base.command import UserError
from syntony.synth.traffic import paths
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.critical_path import critical_path, describe, shares
from syntony.synth.traffic.hot_links import hottest, table
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import Messages
from syntony.synth.traffic.patterns.table import pattern_messages
from syntony.synth.traffic.run import run
from syntony.topologies import parse

SIZE = 100e6


def crossing(count: int, compute: float = 0.0) -> Job:
    """`count` messages from the hosts of leaf 0 to those of leaf 1."""
    messages = Messages.make(2 * count, range(count), range(count, 2 * count), SIZE)
    return Job("a", tuple(range(2 * count)), messages, compute=compute)


def test_a_collision_is_named_with_what_it_costs() -> None:
    found = run(parse("clos:leaves=2,hosts=3,spines=3"), [crossing(3)], Choice("single"), timeline=True)
    (first, *rest) = describe(found)
    assert first.startswith("100% of 300 ms is link leaf0 -> spine0, shared by 3 messages; without sharing it")
    assert first.endswith("200 ms would be saved")  # both links of the path are as full
    assert rest == ["spread evenly over all equal-cost paths (spray), it would take 100 ms: 200 ms less"]


def test_computing_waiting_and_links_of_their_own() -> None:
    late = Job("late", (0, 3), Messages.make(2, [0], [1], SIZE), compute=0.3, start=0.5)
    found = run(parse("clos:leaves=2,hosts=3,spines=3,alpha=1e-3"), [late], Choice("spray"), timeline=True)
    assert describe(found) == [
        "55% of 904 ms is waiting for the time to begin",
        "33% of 904 ms is computing (job late)",
        "11% of 904 ms is link rank0 -> leaf0, which no other message uses then",
    ]


def test_the_path_follows_what_was_waited_for() -> None:
    """A chain of three, and a longer message beside that nobody waits for."""
    messages = Messages.make(4, [0, 1, 2, 3], [1, 2, 3, 0], [1e6, 2e6, 3e6, 5e6], ([1, 2], [0, 1]))
    found = run(parse("star:4"), [Job("a", (0, 1, 2, 3), messages)], Choice("single"), timeline=True)
    assert found.traffic.message[critical_path(found)].tolist() == [-1, 0, 1, 2]
    by_link = {share.cause: share.seconds for share in shares(found) if share.link is not None}
    assert sorted(by_link.values()) == pytest.approx([1e-3, 2e-3, 3e-3])
    latency = sum(share.seconds for share in shares(found) if share.link is None)
    assert sum(by_link.values()) + latency == pytest.approx(found.seconds)


@pytest.mark.parametrize("choice", ["single", "ecmp", "e-ecmp:2", "spray", "least-loaded"])
def test_parts_add_up_to_the_whole(choice: str) -> None:
    topology = parse("clos:leaves=4,hosts=4,spines=2,oversubscription=2")
    names = ("all_reduce:ring", "all_to_all:direct", "parameter-server:3")
    members = tuple(range(0, 16, 2)), tuple(range(1, 16, 2)), tuple(range(16))
    jobs = [
        Job(name, ranks, pattern_messages(name, len(ranks), 1e6), 3, 1e-3)
        for name, ranks in zip(names, members, strict=True)
    ]
    found = run(topology, jobs, Choice.parse(choice, 3), timeline=True)
    assert sum(share.seconds for share in shares(found, what_if=False)) == pytest.approx(found.seconds)
    assert all(share.flows >= 1 for share in shares(found, what_if=False) if share.link is not None)


def test_queue_pairs_of_one_message_do_not_fight() -> None:
    topology = parse("clos:leaves=2,hosts=1,spines=1")
    messages = Messages.make(2, [0], [1], SIZE)
    found = run(topology, [Job("a", (0, 1), messages)], Choice("e-ecmp", 8), timeline=True)
    assert "which no other message uses then" in describe(found)[0]


def test_what_is_too_much_to_spray_is_not_sprayed(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = parse("clos:leaves=2,hosts=3,spines=3")
    found = run(topology, [crossing(3)], Choice("single"), timeline=True)
    monkeypatch.setattr(paths, "_MOST_LINKS", 20)  # three pairs, three paths, two links between the leaves
    assert len(describe(found)) == 2
    monkeypatch.setattr(paths, "_MOST_LINKS", 17)
    assert len(describe(found)) == 1
    with pytest.raises(UserError, match="between these ranks have 18 links, at most 17 are listed"):
        run(topology, [crossing(3)], Choice("spray"))


def test_small_parts_share_a_line() -> None:
    job = Job("a", tuple(range(64)), pattern_messages("all_reduce:ring", 64, SIZE))
    found = run(parse("star:64"), [job], Choice("single"), timeline=True)
    (*_, last) = describe(found)
    assert last.endswith("links, which no two messages use at once")


def test_nothing_takes_no_time() -> None:
    found = run(parse("star:2"), [Job("a", (0, 1), Messages.make(2, [0], [0], 0.0))], Choice("spray"), timeline=True)
    assert describe(found) == ["nothing takes time"]


def test_hottest_links() -> None:
    found = run(parse("clos:leaves=2,hosts=3,spines=3"), [crossing(3, compute=0.3)], Choice("single"), timeline=True)
    first, second, *others = hottest(found, 5)
    assert {first.name, second.name} == {"leaf0 -> spine0", "spine0 -> leaf1"}
    for link in (first, second):
        assert (link.used, link.full, link.flows) == (pytest.approx(0.5, 1e-3), pytest.approx(0.5, 1e-3), 3)
    assert all((link.used, link.full, link.flows) == (pytest.approx(1 / 6, 1e-3), 0.0, 1) for link in others)
    lines = table([first])
    assert lines[0].split() == ["link", "bandwidth", "used", "full", "most", "at", "once"]
    assert lines[1].split() == ["leaf0", "->", "spine0", "1", "GB/s", "50.0%", "50.0%", "3", "flows"]
