"""Connections to rank 0 that are lost while ranks meet, over real sockets: ranks come back, or their end is told."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from syntony import TcpBootstrap
from syntony.collectives.bootstrap import tcp_meeting
from tests.collectives.meeting import HOST, SOON, at_once

ROOT = Path(__file__).parents[3]


class Cutter:
    """Connections through it to `port` are cut after a random number of bytes, some by a reset, until it has cut
    `cuts` of them."""

    def __init__(self, port: int, cuts: int, randomness: random.Random) -> None:
        self.cuts = cuts
        self._port = port
        self._random = randomness
        self._lock = threading.Lock()

    def serve(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = server.accept()
                try:
                    far = socket.create_connection((HOST, self._port))
                except ConnectionRefusedError:  # nobody listens yet
                    near.close()
                    continue
                left = [int(2 ** self._random.uniform(0, 17))]  # both ways together
                hard = self._random.random() < 0.5
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, sink, left, hard), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, left: list[int], hard: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    cut = self.cuts > 0 and left[0] <= len(data)
                    data = data[: left[0]] if cut else data
                    left[0] -= len(data)
                    self.cuts -= cut
                sink.sendall(data)
                if cut:
                    break
        for end in (source, sink):
            with suppress(OSError):
                if hard:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
                end.close()


@contextmanager
def cut_at_random(port: int, cuts: int, randomness: random.Random) -> Iterator[tuple[int, Cutter]]:
    """The port of a Cutter, and it."""
    cutter = Cutter(port, cuts, randomness)
    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=cutter.serve, args=(server,), daemon=True).start()
        yield server.getsockname()[1], cutter
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("trial", range(3))
def test_connections_cut_at_any_byte_cost_nothing(trial: int, port: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, trial {trial}")
    randomness = random.Random(seed)
    ranks, turns = 4, 6
    blobs = [[randomness.randbytes(int(2 ** randomness.uniform(0, 15))) for _ in range(ranks)] for _ in range(turns)]

    def meet(rank: int, where: int) -> list[list[bytes]]:
        with TcpBootstrap(rank, ranks, HOST, where, 60.0, "sesame") as bootstrap:
            return [bootstrap.all_gather("a", blobs[turn][rank]) for turn in range(turns)]

    with cut_at_random(port, 40, randomness) as (door, cutter):
        found = at_once(*(lambda rank=rank: meet(rank, door if rank else port) for rank in range(ranks)))
        assert found == [blobs] * ranks
        assert cutter.cuts < 40, "none was cut"


def test_a_rank_that_leaves_is_told_to_those_who_wait_for_it(port: int) -> None:
    with TcpBootstrap(0, 3, HOST, port, 60.0) as first, TcpBootstrap(1, 3, HOST, port, 60.0) as second:
        TcpBootstrap(2, 3, HOST, port, 60.0).close()
        for failure in at_once(lambda: first.all_gather("a", b""), lambda: second.all_gather("a", b"")):
            assert isinstance(failure, ConnectionError)
            assert str(failure) == "rank(s) 2 will not come to 'a': rank 2 has left"


def test_a_rank_that_dies_is_told_to_those_who_wait_for_it(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the timeout, but once it had time to come back."""
    monkeypatch.setattr(tcp_meeting, "_RETURN", SOON)
    script = (
        f"import os\nfrom syntony import TcpBootstrap\nbootstrap = TcpBootstrap(2, 3, '{HOST}', {port})\n"
        "print('met', flush=True)\nos.read(0, 1)"
    )
    with TcpBootstrap(0, 3, HOST, port, 600.0) as first, TcpBootstrap(1, 3, HOST, port, 600.0) as second:
        with subprocess.Popen(
            [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"met\n"
            process.kill()
        for failure in at_once(lambda: first.all_gather("a", b""), lambda: second.all_gather("a", b"")):
            assert isinstance(failure, ConnectionError)
            assert str(failure).startswith("rank(s) 2 will not come to 'a': the connection of rank 2 is lost: ")
            assert str(failure).endswith(f", and it has not come back in {SOON:g} s")


def test_rank_0_waits_for_who_comes_back_for_an_answer(port: int) -> None:
    """The answer to the last request is lost, and rank 0 would leave: the port stays open until rank 1 has it."""
    taken = threading.Event()

    def rank_0() -> list[bytes]:
        with TcpBootstrap(0, 2, HOST, port, 60.0) as bootstrap:
            found = bootstrap.all_gather("a", b"0")
            taken.set()
        return found

    def rank_1() -> list[bytes]:
        with TcpBootstrap(1, 2, HOST, port, 60.0) as bootstrap:
            line = bootstrap._line
            assert line is not None
            line.connection.sendall(tcp_meeting.FRAME.pack(tcp_meeting.MAGIC, 1, 3, 1) + b"a/1" + b"1")
            assert taken.wait(60)
            line.connection.shutdown(socket.SHUT_RDWR)  # with the answer unread
            time.sleep(0.1)  # rank 0 is closing
            return bootstrap.all_gather("a", b"1")

    assert at_once(rank_0, rank_1) == [[b"0", b"1"]] * 2


def test_who_comes_back_to_another_meeting_is_refused(port: int) -> None:
    """Rank 0 has begun another one at its port meanwhile, in which the old request would do harm."""
    with TcpBootstrap(0, 2, HOST, port, 60.0), TcpBootstrap(1, 2, HOST, port, 60.0) as late:
        pass
    with TcpBootstrap(0, 2, HOST, port, 60.0) as second:
        with pytest.raises(ConnectionError, match=r"cannot connect again: rank 0 there meets with others now"):
            late.all_gather("a", b"of the first")
        found = at_once(
            lambda: second.all_gather("a", b"0"), lambda: TcpBootstrap(1, 2, HOST, port, 60.0).all_gather("a", b"1")
        )
        assert found == [[b"0", b"1"]] * 2


def test_the_place_of_a_rank_is_not_taken_by_another_process(port: int) -> None:
    """Even one that knows the secret: it lacks the mark, at first as when it claims to come back."""
    with TcpBootstrap(0, 2, HOST, port, 60.0, "sesame") as first, TcpBootstrap(1, 2, HOST, port, 60.0, "sesame") as own:
        with pytest.raises(ConnectionError, match="another process is rank 1 there already"):
            TcpBootstrap(1, 2, HOST, port, SOON, "sesame")
        assert at_once(lambda: first.all_gather("a", b"0"), lambda: own.all_gather("a", b"1")) == [[b"0", b"1"]] * 2


@pytest.mark.parametrize("of_rank_1", ["127.0.0.3,127.0.0.1", "127.0.0.1,127.0.0.2", "127.0.0.2"])
def test_rank_0_has_several_addresses(of_rank_1: str, port: int) -> None:
    """It listens at each; a rank tries one after the other."""

    def meet(rank: int, address: str) -> Any:
        with TcpBootstrap(rank, 2, address, port, 60.0) as bootstrap:
            return bootstrap.all_gather("a", b"%d" % rank)

    assert at_once(lambda: meet(0, "127.0.0.1,127.0.0.2"), lambda: meet(1, of_rank_1)) == [[b"0", b"1"]] * 2
