"""The delay line of emulated wires, with socket pairs in the place of TUN devices: both keep packets apart."""

from __future__ import annotations

import os
import random
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from syntony._emulation import run_delay_line

Figures = tuple[int, int, int, float, float]


@contextmanager
def running(
    *delays: float, loss: float = 0.0
) -> Iterator[tuple[list[tuple[socket.socket, socket.socket]], list[Figures]]]:
    """The outer ends of one wire per delay, and, after the context, the line's figures."""
    pairs = [[socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)] for _ in delays]
    for pair in pairs:
        for outer, inner in pair:
            outer.settimeout(20)
            inner.setblocking(False)
    stop, stopped = os.pipe()
    figures: list[Figures] = []
    wires = [
        (one[1].fileno(), other[1].fileno(), delay, loss) for (one, other), delay in zip(pairs, delays, strict=True)
    ]
    thread = threading.Thread(target=lambda: figures.append(run_delay_line(wires, stop)))
    thread.start()
    try:
        yield [(one[0], other[0]) for one, other in pairs], figures
    finally:
        os.close(stopped)  # as when the lab has died
        thread.join()
        os.close(stop)
        for pair in pairs:
            for ends in pair:
                for end in ends:
                    end.close()


@pytest.mark.parametrize("delay", [0.0, 0.003])
def test_packets_arrive_whole_in_order_and_never_early(delay: float) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    packets = [source.randbytes(source.randint(1, 9000)) for _ in range(50)]
    with running(delay) as ([(one, other)], figures):
        for here, there in ((one, other), (other, one)):
            sent = []
            for packet in packets[:10]:
                sent.append(time.monotonic())
                here.send(packet)
            for packet, when in zip(packets[:10], sent, strict=True):
                assert there.recv(1 << 16) == packet
                assert time.monotonic() - when >= delay
    assert figures[0][:3] == (20, 0, 0)
    assert 0 <= figures[0][3] <= figures[0][4]


def test_a_share_of_the_packets_is_lost_and_the_others_stay_in_order() -> None:
    with running(0.0, loss=0.2) as ([(one, other)], figures):
        other.setblocking(False)
        came: list[int] = []
        for number in range(500):
            one.send(number.to_bytes(4, "little"))
            time.sleep(0.001)  # sockets hold few packets
            while select.select([other], [], [], 0.3 if number == 499 else 0)[0]:
                came.append(int.from_bytes(other.recv(100), "little"))
    assert came == sorted(came)
    packets, dropped, lost, _, _ = figures[0]
    assert (packets, lost) == (len(came), 0)
    assert dropped == 500 - len(came)
    assert 60 <= dropped <= 140  # of 500, 100 on average, with a deviation of 9


def test_each_wire_has_its_own_delay() -> None:
    with running(1.0, 0.001) as ([(slow, slow_far), (fast, fast_far)], _):
        slow.send(b"first sent")
        fast.send(b"first there")
        assert fast_far.recv(100) == b"first there"
        slow_far.setblocking(False)
        with pytest.raises(BlockingIOError):
            slow_far.recv(100)
        slow_far.settimeout(20)
        assert slow_far.recv(100) == b"first sent"


def test_a_full_device_loses_packets_and_says_so() -> None:
    with running(0.0) as ([(one, other)], figures):
        one.settimeout(0.2)
        sent = 0
        for _ in range(2000):
            try:
                one.send(bytes(8000))
            except TimeoutError:
                break
            sent += 1
        one.settimeout(20)
        other.settimeout(0.2)
        received = 0
        try:
            while other.recv(1 << 16):
                received += 1
        except TimeoutError:
            pass
    packets, _, lost, _, _ = figures[0]
    assert packets == sent
    assert lost == sent - received > 0


def test_what_cannot_be_watched_is_refused() -> None:
    with pytest.raises(RuntimeError, match="cannot watch a wire"):
        run_delay_line([(-1, -1, 0.0, 0.0)], 0)
