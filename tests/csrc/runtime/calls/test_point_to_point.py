"""Tagged messages: matching, order, sizes, and that they never wait behind collectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from syntony import _core
from tests.csrc.runtime.cases import generator
from tests.csrc.runtime.group import failure_of
from tests.csrc.runtime.harness import Rank, run_as_processes, run_as_threads

ANY = -1
LARGE = 3_000_017  # elements: more than all slots of a stream
HOSTS = pytest.mark.parametrize("hosts", ["", "aabb", "abcd"])


def filled(rank: int, tag: int, count: int) -> np.ndarray:
    return (np.arange(count) * (rank + 3) + tag % 1000).astype(np.int32)


def all_pairs(rank: Rank, plan: Sequence[tuple[int, int, int, int]], seed: int) -> None:
    """`plan`: (source, destination, tag, count). All sends start before any receive; receives in an order of their own,
    waits in another."""
    group = rank.join()
    sends, receives = [], []
    for source, destination, tag, count in plan:
        if source == rank.rank:
            sends.append(group.send(filled(source, tag, count), destination, tag, async_op=True))
    mine = [entry for entry in plan if entry[1] == rank.rank]
    order = np.random.default_rng((seed, rank.rank)).permutation(len(mine))
    for i in order:
        source, _, tag, count = mine[i]
        buffer = np.zeros(count, np.int32)
        receives.append((group.receive(buffer, source, tag, async_op=True), buffer, mine[i]))
    for work, buffer, (source, _, tag, count) in reversed(receives):
        work.wait()
        assert work.source == source
        assert np.array_equal(buffer, filled(source, tag, count))
    for work in sends:
        work.wait()
    group.shutdown()


@HOSTS
def test_every_pair_with_tags_in_any_order(hosts: str) -> None:
    rng = generator("pairs", hosts)
    plan = [
        (source, destination, tag, int(rng.choice([0, 1, 5, 1000, 70_001])))
        for source in range(4)
        for destination in range(4)
        for tag in rng.permutation([0, 1, 7, (1 << 63) + 5])
    ]
    plan = [(s, d, int(t), c) for s, d, t, c in plan]
    run_as_processes(all_pairs, 4, plan, 17, hosts=hosts)


@pytest.mark.parametrize("share_process", [False, True])
def test_every_pair_between_threads(share_process: bool) -> None:
    plan = [(s, d, tag, 100 * tag + 1) for s in range(3) for d in range(3) for tag in range(3)]
    run_as_threads(all_pairs, 3, plan, 3, share_process=share_process)


def both_send_first(rank: Rank, count: int) -> None:
    group = rank.join()
    other = 1 - rank.rank
    work = group.send(filled(rank.rank, 1, count), other, 1, async_op=True)
    buffer = np.zeros(count, np.int32)
    group.receive(buffer, other, 1)
    work.wait()
    assert np.array_equal(buffer, filled(other, 1, count))
    # Even blocking sends may cross: a rank that sends makes room for what comes.
    group.send(filled(rank.rank, 2, count), other, 2)
    group.receive(buffer, other, 2)
    assert np.array_equal(buffer, filled(other, 2, count))
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_two_large_messages_cross(hosts: str) -> None:
    run_as_processes(both_send_first, 2, LARGE, hosts=hosts)


def same_tag_in_order(rank: Rank) -> None:
    group = rank.join()
    if rank.rank == 0:
        for i in range(50):
            group.send(filled(0, i, i % 7), 1, 5, async_op=True)
        group.barrier()
    else:
        buffers = [np.zeros(i % 7, np.int32) for i in range(50)]
        works = [group.receive(buffer, 0, 5, async_op=True) for buffer in buffers]
        for work in works:
            work.wait()
        assert all(np.array_equal(buffer, filled(0, i, i % 7)) for i, buffer in enumerate(buffers))
        group.barrier()
    group.shutdown()


def test_messages_of_one_tag_keep_their_order() -> None:
    run_as_processes(same_tag_in_order, 2)


def from_anyone(rank: Rank) -> None:
    group = rank.join()
    if rank.rank == 0:
        seen = []
        for _ in range(9):
            buffer = np.zeros(3, np.int32)
            seen.append(group.receive(buffer, ANY, 4).source)
            assert np.array_equal(buffer, filled(seen[-1], 4, 3))
        assert sorted(seen) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        own = np.zeros(2, np.int32)
        # Sent before it is asked for: once all others have left, waiting for anybody is an error at once.
        sent = group.send(filled(0, 9, 2), 0, 9, async_op=True)
        assert group.receive(own, ANY, 9).source == 0
        sent.wait()
        assert np.array_equal(own, filled(0, 9, 2))
    else:
        for _ in range(3):
            group.send(filled(rank.rank, 4, 3), 0, 4)
    group.shutdown()  # those who have sent may leave: the others' messages still come


@HOSTS
def test_any_source(hosts: str) -> None:
    run_as_processes(from_anyone, 4, hosts=hosts)


def beside_collectives(rank: Rank) -> None:
    """A receive that is answered last does not hold up collectives, nor they it."""
    group = rank.join()
    right, left = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    late = np.zeros(LARGE // 10, np.int32)
    waiting = group.receive(late, left, 99, async_op=True)
    for i in range(20):
        buffer = np.zeros(1000, np.int32)
        receive = group.receive(buffer, left, i, async_op=True)
        total = np.full(5000, rank.rank + i, np.int64)
        reduce = group.all_reduce(total, async_op=True)
        group.send(filled(rank.rank, i, 1000), right, i)
        reduce.wait()
        receive.wait()
        assert np.array_equal(buffer, filled(left, i, 1000))
        assert np.all(total == sum(range(rank.size)) + i * rank.size)
    assert not waiting.done
    group.barrier()
    group.send(filled(rank.rank, 99, LARGE // 10), right, 99, async_op=True)
    waiting.wait()
    assert np.array_equal(late, filled(left, 99, LARGE // 10))
    group.barrier()
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "aab"])
def test_interleaved_with_collectives(hosts: str) -> None:
    run_as_processes(beside_collectives, 3, hosts=hosts)


def wrong_size(rank: Rank) -> None:
    group = rank.join()
    if rank.rank == 0:
        group.send(np.zeros(10, np.uint8), 1, 3)
        group.send(np.full(4, 7, np.uint8), 1, 4)
    else:
        kind, ranks, sentence, _ = failure_of(lambda: group.receive(np.zeros(8, np.uint8), 0, 3))
        assert (kind, set(ranks)) == ("mismatch", {0, 1})
        assert "rank 0 sent 10 bytes with tag 3 to rank 1, which expected 8" in sentence
        small = np.zeros(4, np.uint8)
        group.receive(small, 0, 4)  # the group goes on
        assert np.all(small == 7)
    group.barrier()
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_mismatched_sizes_are_named_and_the_group_goes_on(hosts: str) -> None:
    run_as_processes(wrong_size, 2, hosts=hosts)


def nobody_sends(rank: Rank) -> None:
    group = rank.join()
    if rank.rank == 1:
        kind, ranks, sentence, _ = failure_of(lambda: group.receive(np.zeros(8, np.uint8), 0, 3, timeout=0.2))
        assert (kind, ranks) == ("timeout", (0,))
        assert "rank 0 sent nothing with tag 3 (8 bytes expected)" in sentence
        kind, ranks, sentence, _ = failure_of(lambda: group.receive(np.zeros(8, np.uint8), ANY, 3, timeout=0.2))
        assert (kind, ranks) == ("timeout", ())
        assert "any rank sent nothing" in sentence
    group.barrier()  # an unanswered receive harms nobody else
    group.shutdown()


def test_an_unanswered_receive_times_out_alone() -> None:
    run_as_processes(nobody_sends, 2)


def nobody_receives(rank: Rank) -> None:
    group = rank.join()
    if rank.rank == 0:
        kind, _, sentence, _ = failure_of(lambda: group.send(np.zeros(LARGE, np.uint8), 1, 3, timeout=0.3))
        assert kind == "timeout"
        assert "rank 1 does not receive (tag 3" in sentence
    rank.meet("end")


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_an_unreceived_large_send_times_out(hosts: str) -> None:
    run_as_processes(nobody_receives, 2, hosts=hosts)


def wrong_peers(rank: Rank) -> None:
    group = rank.join()
    with pytest.raises(ValueError, match="cannot send to rank 2: the group has 2 ranks"):
        group.send(np.zeros(1, np.uint8), 2)
    with pytest.raises(ValueError, match="cannot receive from rank -2"):
        group.receive(np.zeros(1, np.uint8), -2)
    group.barrier()
    group.shutdown()


def test_ranks_that_do_not_exist_are_refused() -> None:
    run_as_threads(wrong_peers, 2)


def random_traffic(rank: Rank, plan: Sequence[tuple[int, int, int, int]], seed: int) -> None:
    for round_ in range(20):
        all_pairs(rank, plan, seed + round_)


@pytest.mark.soak
@HOSTS
def test_random_traffic(hosts: str) -> None:
    rng = generator("traffic", hosts)
    plan = [
        (int(rng.integers(4)), int(rng.integers(4)), tag, int(rng.choice([0, 1, 17, 5000, 100_003])))
        for tag in range(200)
    ]
    run_as_processes(random_traffic, 4, plan, 5, hosts=hosts, environment={"SYNTONY_SLOT_BYTES": "4096"})


def test_the_module_says_what_failed() -> None:
    assert issubclass(_core.CommunicationError, RuntimeError)
