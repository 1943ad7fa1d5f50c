"""The door: who knows the job's secret is let in at a step's end, and nobody else ever."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from syntony.base.command import UserError
from syntony.collectives.bootstrap import handshake
from syntony.trainer.elastic import door as doors
from syntony.trainer.elastic.door import Door, is_here, knock, own_door, split
from tests.collectives.meeting import SOON, at_once


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setenv("SYNTONY_SECRET", "sesame")
    opened = Door(own_door())
    yield opened
    opened.close()


def where(door: Door) -> str:
    return door._door


def until_they_wait(door: Door, guests: int) -> None:
    end = time.monotonic() + 30
    while door.waiting != guests:
        assert time.monotonic() < end, door.waiting
        time.sleep(0.01)


def test_all_who_wait_are_let_in_with_numbers_of_their_own(door: Door) -> None:
    def open_it() -> int:
        until_they_wait(door, 3)
        return door.admit(ranks=2, port=4711)

    count, *guests = at_once(open_it, *[lambda: knock(where(door), 10.0)] * 3)
    assert count == 3
    assert sorted(guests) == [(rank, 5, 4711) for rank in (2, 3, 4)]
    assert door.waiting == 0
    assert door.admit(ranks=5, port=4711) == 0


def test_who_leaves_again_is_not_counted(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[socket.socket] = []
    dial = socket.create_connection

    def kept(*words: object, **options: object) -> socket.socket:
        here.append(dial(*words, **options))  # type: ignore[arg-type]
        return here[-1]

    monkeypatch.setattr(socket, "create_connection", kept)
    told: list[object] = []
    guest = threading.Thread(target=lambda: told.append(knock(where(door), 10.0)))
    guest.start()
    until_they_wait(door, 1)
    here[0].shutdown(socket.SHUT_RDWR)
    until_they_wait(door, 0)
    guest.join()
    assert told == [None]


def test_it_closes_for_good(door: Door) -> None:
    def close() -> None:
        until_they_wait(door, 1)
        door.close()

    assert at_once(close, lambda: knock(where(door), 10.0)) == [None, None]
    with pytest.raises(UserError, match=r"--join 127\.0\.0\.1:\d+: nobody opens there"):
        knock(where(door), 0.2)


@pytest.mark.parametrize("variable", ["SYNTONY_SECRET", "SYNTONY_JOB"])
def test_another_secret_or_job_is_refused(door: Door, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "another")
    with pytest.raises(UserError, match="what listens there is no job with our secret"):
        knock(where(door), 10.0)
    assert door.waiting == 0


def test_strangers_are_sent_away_and_disturb_nobody(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says nonsense, one that is silent, and one that repeats what a guest has said."""
    monkeypatch.setattr(doors, "PATIENCE", SOON)
    recorded: list[bytes] = []
    proofs = handshake.proofs

    def listened(*words: bytes) -> handshake.Proofs:
        found = proofs(*words)
        recorded.extend([words[1], found.knocks])
        return found

    monkeypatch.setattr(doors, "proofs", listened)
    guest = threading.Thread(target=knock, args=(where(door), 10.0))
    guest.start()
    until_they_wait(door, 1)
    number, proof = recorded[:2]
    for said in (b"GET / HTTP/1.1\r\n\r\n" * 4, b"", number + proof):
        with socket.create_connection(split(where(door)), timeout=30) as stranger:
            stranger.sendall(said)
            with suppress(ConnectionResetError):
                assert len(stranger.recv(100, socket.MSG_WAITALL)) <= handshake.SIZE  # a number to answer, and no more
    assert door.waiting == 1
    assert door.admit(1, 1) == 1
    guest.join()


def test_an_impostor_at_the_door_learns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who listens without the secret is found out, and hears no proof that would open the true door's next number."""
    monkeypatch.setenv("SYNTONY_SECRET", "sesame")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> bytes:
            guest, _ = server.accept()
            with guest:
                handshake.read(guest, handshake.SIZE)
                guest.sendall(bytes(handshake.SIZE))
                said = handshake.read(guest, handshake.SIZE)
                guest.sendall(said)  # its own proof, back
                return said

        said, told = at_once(pretend, lambda: knock(f"127.0.0.1:{server.getsockname()[1]}", 10.0))
    assert isinstance(told, UserError)
    assert b"sesame" not in said


def test_a_port_that_is_taken_is_said(door: Door) -> None:
    with pytest.raises(UserError, match=r"\[elastic\] door: cannot listen at 127\.0\.0\.1:\d+: Address already in use"):
        Door(where(door))


def test_whose_door_it_is() -> None:
    assert is_here("127.0.0.1:1")
    assert not is_here("192.0.2.77:1")  # of no machine (RFC 5737)
    assert split("[::1]:29") == ("::1", 29)
