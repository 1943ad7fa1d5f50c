"""How many packets a worker has under way: more while nothing is in the way, fewer for marks, few when all is lost."""

from __future__ import annotations

import socket
import threading

import numpy as np

from tests.csrc.aggregator.serving import LEAVE, MARKED, SUM, WELCOME, Job, Wire, aggregator, everybody
from tests.csrc.aggregator.test_sums import in_rank_order, numbers

CONGESTED = 3
"""What a switch writes into the lowest bits of a packet's type of service (RFC 3168)."""
CHUNK = 16
"""Elements of a slot of 64 bytes."""


def under_way(flags: int = 0, congested: bool = False, chunks: int = 800) -> int:
    """Packets that a client would have under way after a sum of `chunks`, when the other rank's come with flags."""
    with aggregator(slots=512, slot_bytes=64) as address:
        job = Job(address, 2)
        data = np.ones(CHUNK * chunks, np.float32)

        def work(rank: int) -> int:
            if rank == 0:
                client = job.join(0)
                np.testing.assert_array_equal(job.reduce(client, data), data)  # the other brings zeros
                return client.under_way
            wire = Wire(job, 1)
            assert wire.receive()[0] == WELCOME
            if congested:
                wire.packets.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, CONGESTED)
            sent = 0
            for known in range(chunks):
                while sent < min(chunks, known + 60):
                    wire.send_packet(wire.part(sent, data.size, CHUNK, flags=flags))
                    sent += 1
                kind, _, said, _ = wire.receive_packet()
                assert kind == SUM, (known, kind, said)
                assert bool(said & MARKED) == bool(congested or flags), (known, said)
            wire.send(wire.frame(LEAVE))
            wire.close()
            return 0

        mine, other = everybody(2, work)
        assert other == 0, other
        assert isinstance(mine, int), mine
        return mine


def test_where_nothing_is_in_the_way_the_window_opens() -> None:
    assert under_way() > 32


def test_marks_of_others_packets_close_it() -> None:
    """PANAMA's idea: an aggregator hands on whether any of the parts was marked."""
    assert under_way(flags=MARKED) <= 3


def test_a_mark_that_a_switch_has_made_is_seen() -> None:
    assert under_way(congested=True) <= 3


def test_a_late_rank_is_no_congestion() -> None:
    """The others ask again, are told that their parts are held, and keep their windows, but where it comes just after a
    question."""
    sources = numbers(2, 50_000)
    with aggregator(slots=512, slot_bytes=64) as address:
        job, never = Job(address, 2), threading.Event()

        def work(rank: int) -> tuple[list[bool], int]:
            client = job.join(rank)
            kept = []
            for _ in range(4):
                if rank == 1:
                    never.wait(0.3)
                before = client.under_way
                np.testing.assert_array_equal(job.reduce(client, sources[rank]), in_rank_order(sources))
                kept.append(client.under_way >= min(before, 8) // 2)
            return kept, client.resent

        (kept, resent), _ = everybody(2, work)
        assert resent > 0
        assert any(kept)
