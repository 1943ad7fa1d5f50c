"""How many packets a worker has under way: the window by itself, and what aggregators tell it."""

from __future__ import annotations

import socket
import subprocess
import time
from typing import Any

import numpy as np

from tests.csrc.aggregator.serving import (
    AGAIN,
    HELD,
    LEAVE,
    MARKED,
    SUM,
    WANTED,
    WELCOME,
    Job,
    Wire,
    aggregator,
    everybody,
)
from tests.csrc.aggregator.test_sums import in_rank_order, numbers
from tests.programs import program

CONGESTED = 3
"""What a switch writes into the lowest bits of a packet's type of service (RFC 3168)."""
CHUNK = 16
"""Elements of a slot of 64 bytes."""
LEAST = 4
"""Packets, however congested switches are."""


def test_the_window() -> None:
    """It opens, is cut by the share of signs, and collapses, by a clock that the program sets."""
    done = subprocess.run([program("congestion_window")], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


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


def test_sums_of_packets_without_marks_have_none() -> None:
    under_way()  # asserts it


def test_marks_of_others_packets_close_it() -> None:
    """PANAMA's idea: an aggregator hands on whether any of the parts was marked."""
    assert under_way(flags=MARKED) == LEAST


def test_a_mark_that_a_switch_has_made_is_seen() -> None:
    assert under_way(congested=True) == LEAST


def test_who_asks_again_is_told_that_others_are_late() -> None:
    """So it knows that its packet is not lost: no congestion."""
    with aggregator(slots=512, slot_bytes=64) as address:
        job = Job(address, 2)
        wires = everybody(2, lambda rank: Wire(job, rank))
        assert all(wire.receive()[0] == WELCOME for wire in wires)
        for flags in (0, AGAIN):
            wires[0].send_packet(wires[0].part(0, CHUNK, CHUNK, flags=flags))
        assert wires[0].receive_packet()[:2] == (HELD, 0)
        wires[1].send_packet(wires[1].part(0, CHUNK, CHUNK))
        assert [wire.receive_packet()[:2] for wire in wires] == [(SUM, 0)] * 2
        for wire in wires:
            wire.close()


def test_who_asks_is_told_whose_part_is_missing() -> None:
    """Nobody's part travels again but the one that was lost."""
    with aggregator(slots=512, slot_bytes=64) as address:
        job = Job(address, 2)
        wires = everybody(2, lambda rank: Wire(job, rank))
        assert all(wire.receive()[0] == WELCOME for wire in wires)

        def asked() -> list[tuple[int, int]]:
            for wire in wires:
                wire.send_packet(wire.question(0, CHUNK))
            return [wire.receive_packet()[:2] for wire in wires]

        assert asked() == [(WANTED, 0)] * 2
        wires[0].send_packet(wires[0].part(0, CHUNK, CHUNK))
        assert asked() == [(HELD, 0), (WANTED, 0)]
        wires[1].send_packet(wires[1].part(0, CHUNK, CHUNK, flags=AGAIN))
        assert [wire.receive_packet()[:2] for wire in wires] == [(SUM, 0)] * 2
        assert asked() == [(SUM, 0)] * 2
        for wire in wires:
            wire.close()


def test_who_waits_for_a_late_rank_asks_again() -> None:
    """The other comes when it has been asked for."""
    sources = numbers(2, 50_000)
    with aggregator(slots=512, slot_bytes=64) as address:
        job = Job(address, 2)
        clients: list[Any] = [None, None]

        def work(rank: int) -> None:
            clients[rank] = job.join(rank)
            while rank == 1 and (clients[0] is None or clients[0].asked == 0):
                time.sleep(0.01)
            np.testing.assert_array_equal(job.reduce(clients[rank], sources[rank]), in_rank_order(sources))

        assert everybody(2, work) == [None, None]
        assert clients[0].resent == 0  # what was there was not sent again
