"""Patterns: everybody's data reaches whoever must have it, and a crossbar takes the time of the textbook."""

from __future__ import annotations

import math

import numpy as np
import pytest

from syntony.base.command import UserError
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import Messages
from syntony.synth.traffic.patterns.table import PATTERNS, pattern_messages, written
from syntony.synth.traffic.run import Outcome, run
from syntony.topologies import parse
from tests.sampled import one_in

RATE, ALPHA = 1e9, 1e-6  # of a star's links; a message takes two
SIZE = 64e6


def reached(messages: Messages) -> list[set[int]]:
    """Whose data each member has at the end, if a message carries all that its sender has heard of by its waits."""

    def brings(before: int, row: int) -> bool:
        return bool(messages.dst[before] == messages.src[row])

    carried: list[set[int]] = []
    has = [{member} for member in range(messages.members)]
    for row in range(len(messages)):
        waits = messages.after[messages.offset[row] : messages.offset[row + 1]].tolist()
        assert all(before < row for before in waits)
        assert messages.follows[row] < row
        known = {int(messages.src[row])}.union(*(carried[before] for before in waits if brings(before, row)))
        if messages.follows[row] >= 0 and messages.src[messages.follows[row]] == messages.src[row]:
            known |= carried[messages.follows[row]]  # it has been there when that was sent
        carried.append(known)
        has[messages.dst[row]] |= known
    return has


@pytest.mark.parametrize(
    ("name", "members"),
    one_in(
        2, [name for name in PATTERNS if name.startswith("all_") or "colocated" in name], [2, 3, 4, 5, 7, 8, 13, 16]
    ),
)
def test_everybody_hears_of_everybody(name: str, members: int) -> None:
    if name == "all_gather:doubling" and members & (members - 1):
        with pytest.raises(UserError, match="it needs a power of two"):
            pattern_messages(name, members, SIZE)
        return
    has = reached(pattern_messages(name, members, SIZE))
    assert all(len(known) == members for known in has)


@pytest.mark.parametrize("members", [2, 5, 8])
def test_roots_hear_of_everybody_and_everybody_of_roots(members: int) -> None:
    for name in ("reduce:tree", "gather:direct"):
        assert reached(pattern_messages(name, members, SIZE))[0] == set(range(members))
    for name in ("broadcast:tree", "broadcast:chain", "scatter:direct"):
        assert all(0 in known for known in reached(pattern_messages(name, members, SIZE)))


def on_star(name: str, members: int, choice: str = "single") -> Outcome:
    job = Job("job", tuple(range(members)), pattern_messages(name, members, SIZE))
    return run(parse(f"star:{members}"), [job], Choice.parse(choice))


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_closed_forms_on_a_crossbar(n: int) -> None:
    whole, log, hop = SIZE / RATE, int(math.log2(n)), 2 * ALPHA
    expected = {
        "all_reduce:ring": 2 * (n - 1) * (whole / n + hop),
        "all_reduce:halving-doubling": 2 * (n - 1) / n * whole + 2 * log * hop,
        "all_reduce:direct": 2 * ((n - 1) / n * whole + hop),
        "all_reduce:tree": 2 * log * (whole + hop),
        "all_gather:ring": (n - 1) * (whole / n + hop),
        "all_gather:doubling": (n - 1) / n * whole + log * hop,
        "all_gather:direct": (n - 1) / n * whole + hop,
        "reduce_scatter:ring": (n - 1) * (whole / n + hop),
        "reduce_scatter:halving": (n - 1) / n * whole + log * hop,
        "reduce_scatter:direct": (n - 1) / n * whole + hop,
        "all_to_all:direct": (n - 1) / n * whole + hop,
        "all_to_all:rotated": (n - 1) * (whole / n + hop),
        "broadcast:tree": log * whole + hop * log,
        "broadcast:chain": (8 + n - 2) * whole / 8 + (n - 1) * hop,
        "reduce:tree": log * (whole + hop),
        "gather:direct": (n - 1) / n * whole + hop,
        "scatter:direct": (n - 1) / n * whole + hop,
    }
    assert set(expected) == {name for name, pattern in PATTERNS.items() if ":" in name and not pattern.number}
    # A parent serves its children one after another and pays the alphas of its messages only once.
    for name, seconds in expected.items():
        slack = 2 * n * hop if "tree" in name else 1e-9
        assert on_star(name, n).seconds == pytest.approx(seconds, abs=slack, rel=1e-9), name


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (4, 1), (4, 2), (8, 3), (3, 4)])
def test_dedicated_parameter_servers(workers: int, servers: int) -> None:
    """A server's link carries workers/servers of the size each way, a worker's the size: the greater one decides."""
    found = on_star(f"parameter-server:{servers}", workers + servers)
    out = [link.id for link in found.traffic.topology.links if link.src < workers + servers]
    assert found.carried[out[:workers]] == pytest.approx(np.full(workers, SIZE))
    assert found.carried[out[workers:]] == pytest.approx(np.full(servers, SIZE * workers / servers))
    busiest = max(1.0, workers / servers) * SIZE / RATE
    # Pulls follow pushes by a piece of sixteen, and by two hops.
    assert busiest < found.seconds <= busiest * (1 + 1.01 / 16) + 40 * ALPHA


@pytest.mark.parametrize("workers", [2, 4, 9])
def test_colocated_parameter_servers_move_what_a_ring_moves(workers: int) -> None:
    found = on_star("parameter-server-colocated", workers)
    busiest = 2 * (workers - 1) / workers * SIZE
    assert found.carried == pytest.approx(np.full(2 * workers, busiest))
    assert busiest / RATE < found.seconds <= busiest / RATE * 1.1


@pytest.mark.parametrize(("workers", "servers"), [(4, 1), (4, 2), (4, 4), (8, 3)])
def test_byteps_keeps_every_link_equally_busy(workers: int, servers: int) -> None:
    """2n(n-1)/(n^2+kn-2k) of the size on every link (BytePS, OSDI'20, section 4.1)."""
    n, k = workers, servers
    found = on_star(f"byteps:{k}", n + k)
    busiest = 2 * n * (n - 1) / (n * n + k * n - 2 * k) * SIZE
    assert found.carried == pytest.approx(np.full(2 * (n + k), busiest))
    assert busiest / RATE < found.seconds <= busiest / RATE * 1.3  # pushes and pulls get in each other's way


def test_pipeline_fills_and_drains() -> None:
    """Stages - 1 hops fill it, a micro-batch more per turn; then all the way back."""
    stages, batches = 4, 6
    one_way = (stages - 1 + batches - 1) * SIZE / RATE
    assert on_star(f"pipeline:{batches}", stages).seconds == pytest.approx(2 * one_way, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "members", "why"),
    [
        ("all_reduce:rign", 4, "did you mean all_reduce:ring"),
        ("ring", 4, "no pattern 'ring'"),
        ("pipeline", 4, "write how many microbatches, such as pipeline:4"),
        ("pipeline:0", 4, "write how many microbatches"),
        ("parameter-server:4", 4, "too few workers beside 4 servers"),
        ("byteps:3", 5, "3 servers for 2 workers"),
        ("all_reduce:ring", 1, "at least 2"),
        ("all_reduce:ring", 100_000, "100000 members send about 20000000000 messages, of at most 5000000"),
        ("byteps:2", 5000, "send about"),
        ("reduce_scatter:halving", 6, "6 members; it needs a power of two, such as 4"),
    ],
)
def test_refusals(name: str, members: int, why: str) -> None:
    with pytest.raises(UserError, match=why):
        pattern_messages(name, members, SIZE)


def test_written() -> None:
    assert written(PATTERNS["pipeline"]) == "pipeline:MICROBATCHES"
    assert written(PATTERNS["all_reduce:ring"]) == "all_reduce:ring"
