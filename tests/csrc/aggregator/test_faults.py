"""Workers that die, stall, disagree or talk nonsense: the others are told who, and the aggregator serves on."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from syntony import _core, _emulation
from tests.csrc.aggregator.serving import (
    FAILURE,
    LATE,
    LEAVE,
    VERSION,
    WELCOME,
    Array,
    Job,
    Wire,
    aggregator,
    everybody,
)


def ones(elements: int = 1000, dtype: str = "float32") -> Array:
    return np.ones(elements, dtype)


def still_serves(address: str) -> bool:
    return all(np.array_equal(result, 2 * ones()) for result in Job(address, 2).all_reduce([ones(), ones()]))


def failing(address: str, bad: Callable[[Wire], None], ranks: int = 2) -> _core.CommunicationError:
    """What worker 0 is told when worker 1 does `bad` instead of its part of an all_reduce."""
    job = Job(address, ranks)

    def work(rank: int) -> Any:
        if rank == 1:
            wire = Wire(job, 1)
            assert wire.receive()[0] == WELCOME
            bad(wire)
            return wire
        return job.reduce(job.join(rank), ones())

    results = everybody(ranks, work)
    for rank, result in enumerate(results):
        if rank != 1:
            assert isinstance(result, _core.CommunicationError), result
            assert result.ranks == (() if "disagree" in str(result) else (1,))  # of two, who can tell
    assert isinstance(results[1], Wire)
    results[1].close()
    return results[0]


def die(wire: Wire) -> None:
    wire.send_packet(wire.part(0, 1000, 64))
    time.sleep(0.2)  # so that it has come
    wire.close()


def bring_less(wire: Wire) -> None:
    wire.send_packet(wire.part(0, 999, 64))


def bring_another_format(wire: Wire) -> None:
    time.sleep(0.3)  # so that the others are the first
    wire.send_packet(wire.part(0, 1000, 64, number_format=2))


def send_nonsense(wire: Wire) -> None:
    wire.send(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n" + bytes(64))


def send_another_token(wire: Wire) -> None:
    wire.token = bytes(16)
    wire.send(wire.frame(LATE, bytes(8)))


def send_out_of_turn(wire: Wire) -> None:
    time.sleep(0.3)  # so that the others' first is there
    wire.send_packet(wire.part(4, 1000, 64))


def leave_at_once(wire: Wire) -> None:
    wire.send(wire.frame(LEAVE))
    time.sleep(0.2)


@pytest.mark.parametrize(
    ("bad", "kind", "sentence"),
    [
        (die, "dead", "rank 1 is gone: its connection to the aggregator closed during operation 1 (1000 elements"),
        (bring_less, "mismatch", "the ranks disagree about operation 1: rank "),
        (bring_another_format, "mismatch", "rank 1 brings 1000 elements in bfloat16, rank "),
        (send_nonsense, "mismatch", "rank 1 sent the aggregator nonsense"),
        (send_another_token, "mismatch", "rank 1 sent the aggregator nonsense"),
        (send_out_of_turn, "mismatch", "rank 1 sent the aggregator a packet that is not its turn"),
        (leave_at_once, "dead", "rank 1 left the job before operation 1"),
    ],
)
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_others_are_told_who_and_what(bad: Callable[[Wire], None], kind: str, sentence: str, ranks: int) -> None:
    with aggregator(slots=4, slot_bytes=256) as address:
        error = failing(address, bad, ranks)
        assert error.kind == kind
        assert sentence in str(error), error
        assert still_serves(address)


def test_after_an_error_every_call_repeats_it() -> None:
    with aggregator() as address:
        job = Job(address, 2)

        def work(rank: int) -> list[str]:
            client = job.join(rank)
            told = []
            for _ in range(2):
                try:
                    job.reduce(client, ones(100 + rank))
                except _core.CommunicationError as error:
                    told.append(str(error))
            return told

        for told in everybody(2, work):
            assert len(told) == 2
            assert told[0] == told[1]
            assert "the ranks disagree" in told[0]


def test_a_worker_that_stalls_is_named_at_the_deadline() -> None:
    with aggregator(slots=4, slot_bytes=256) as address:
        job = Job(address, 3)
        release = threading.Event()

        def work(rank: int) -> Any:
            client = job.join(rank)
            if rank == 2:
                release.wait(20)
                return None
            try:
                job.reduce(client, ones(), timeout=0.3)
            finally:
                if rank == 0:
                    release.set()
            return None

        results = everybody(3, work)
        for rank in (0, 1):
            assert results[rank].kind == "timeout"
            assert results[rank].ranks == (2,)
            assert "rank 2 did not bring its part of operation 1 (1000 elements in float32) in time" in str(
                results[rank]
            )
        assert still_serves(address)


def test_who_does_not_come_is_named() -> None:
    with aggregator() as address:
        job = Job(address, 3, timeout=0.3)
        results = everybody(3, lambda rank: job.join(rank) if rank != 1 else None)
        for rank in (0, 2):
            assert str(results[rank]) == "rank 1 did not come to the aggregator in time"
        assert still_serves(address) is not None


def test_a_stranger_does_not_get_into_a_job() -> None:
    """Without the token one can only open a job of one's own; a rank that is here cannot come twice."""
    with aggregator(tenants=2) as address:
        job = Job(address, 2)

        def work(rank: int) -> Any:
            if rank == 2:
                stranger = Job(address, 2)
                stranger.timeout = 0.3
                return stranger.join(1)
            client = job.join(rank)
            return job.reduce(client, ones())

        results = everybody(3, work)
        assert "rank 0 did not come" in str(results[2])
        assert np.array_equal(results[0], 2 * ones())
        twice = Job(address, 2)
        first = Wire(twice, 0)
        second = Wire(twice, 0)
        kind, body = second.receive()
        assert kind == FAILURE
        assert b"this job has a rank 0 already" in body
        first.close()


def test_more_jobs_than_tenants_are_refused() -> None:
    with aggregator(tenants=1) as address:
        held = Job(address, 1).join(0)
        with pytest.raises(_core.CommunicationError, match="the aggregator serves 1 of 1 jobs already"):
            Job(address, 1).join(0)
        held.close()


def test_a_format_that_the_aggregator_lacks_is_refused_by_name() -> None:
    with aggregator(number_formats=["int32_block", "int32"]) as address:
        for result in Job(address, 2).all_reduce([ones(), ones()]):
            assert str(result) == "this aggregator adds int32_block, int32, not float32"


def test_workers_that_count_each_other_differently_are_told() -> None:
    with aggregator() as address:
        job, other = Job(address, 2), Job(address, 3)
        other.token = job.token
        waiting, late = Wire(job, 0), Wire(other, 1)
        kind, body = waiting.receive()
        assert kind == FAILURE
        assert b"rank 1 says that the job has 3 workers, the others say 2" in body
        kind, body = late.receive()
        assert kind == FAILURE
        assert b"this job has 2 workers" in body


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_another_version_is_told_so(version: int) -> None:
    with aggregator() as address:
        wire = Wire(Job(address, 1), 0, version)
        kind, body = wire.receive()
        assert kind == FAILURE
        assert f"the aggregator speaks version {VERSION}, this worker version {version}".encode() in body


def test_a_dead_aggregator_is_named() -> None:
    job: list[Job] = []
    stop = threading.Event()

    def serve(ready: threading.Event) -> None:
        with aggregator() as address:
            job.append(Job(address, 1))
            ready.set()
            stop.wait(20)

    ready = threading.Event()
    thread = threading.Thread(target=serve, args=(ready,))
    thread.start()
    ready.wait(20)
    client = job[0].join(0)
    stop.set()
    thread.join()
    with pytest.raises(_core.CommunicationError, match=r"the aggregator at 127\.0\.0\.1:\d+ is gone"):
        job[0].reduce(client, ones())


def test_nobody_at_the_address() -> None:
    with aggregator() as address:
        pass
    with pytest.raises(_core.CommunicationError, match=rf"cannot reach an aggregator at {address}"):
        Job(address, 1, timeout=0.2).join(0)


def test_a_packet_before_all_have_come_is_passed_over() -> None:
    with aggregator() as address:
        wire = Wire(Job(address, 2), 0)
        for _ in range(20):  # the aggregator hears the Hello at some time in between
            wire.send_packet(wire.part(0, 4, 0))
            wire.send_packet(wire.part(0, 4, 4))
            time.sleep(0.01)
        assert still_serves(address)
        wire.close()


@pytest.mark.parametrize("seed", range(6))
def test_garbage_never_harms_the_others(seed: int) -> None:
    """Random damage to a worker's bytes: its job may fail, the aggregator and other jobs may not."""
    rng = random.Random(seed)
    with aggregator(slots=8, slot_bytes=256, tenants=4) as address:
        for number in range(40):
            job = Job(address, rng.choice((1, 2)))
            wire = Wire(job, 0)
            if job.ranks == 1:
                assert wire.receive()[0] == WELCOME
            elements = rng.randrange(1, 400)
            stream = bytearray(wire.frame(LATE, bytes(8)))
            parts = [
                wire.part(chunk, elements, min(64, elements - 64 * chunk)) for chunk in range((elements + 63) // 64)
            ]
            for part in parts:
                damaged = bytearray(part)
                if rng.random() < 0.7:
                    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
                wire.send_packet(bytes(damaged[: rng.randrange(len(damaged) + 1)] if rng.random() < 0.3 else damaged))
            for _ in range(rng.randrange(4)):
                at = rng.randrange(len(stream))
                match rng.randrange(3):
                    case 0:
                        stream[at] ^= 1 << rng.randrange(8)
                    case 1:
                        del stream[at : at + rng.randrange(1, 40)]
                    case _:
                        stream[at:at] = rng.randbytes(rng.randrange(1, 40))
                if not stream:
                    break
            with suppress(ConnectionError):
                wire.send(bytes(stream))
            wire.close()
            if number % 10 == 9:
                assert still_serves(address), f"seed {seed}, case {number}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"slots": 1}, "slots of the aggregator is 1; it must be 2 to 65536"),
        ({"slot_bytes": 100}, "slot bytes of the aggregator is 100; it must be a multiple of 8"),
        ({"slots": 64, "tenants": 33}, "tenants of the aggregator is 33; it must be at least 1, with two slots each"),
        ({"listen": "here"}, "'here' is not an address like 10.0.0.4:4242"),
        ({"number_formats": ["int4"]}, "unknown number format 'int4'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _emulation.Aggregator(**options)


# ---- strangers ------------------------------------------------------------------------------------------------------


def test_a_stranger_s_job_that_never_begins_holds_no_tenancy() -> None:
    with aggregator(tenants=1, slots=4, slot_bytes=256) as address:
        stranger = Wire(Job(address, 2), 0)  # the other one never comes
        assert still_serves(address)
        stranger.close()


def test_of_two_jobs_that_meet_at_once_one_is_served_and_one_is_told() -> None:
    with aggregator(tenants=1, slots=4, slot_bytes=256) as address:
        slow, job = Job(address, 2), Job(address, 1)
        early = Wire(slow, 0)
        client = job.join(0)
        late = Wire(slow, 1)
        kind, body = late.receive()
        assert kind == FAILURE
        assert b"the aggregator serves 1 of 1 jobs already" in body
        assert np.array_equal(job.reduce(client, ones()), ones())
        client.close()
        early.close()
        late.close()


def test_who_does_not_know_the_secret_is_told() -> None:
    with aggregator(secret="sesame") as address:
        for secret in ("", "poppy"):
            with pytest.raises(_core.CommunicationError, match="rank 0 does not know the secret of the aggregator"):
                Job(address, 1, secret=secret).join(0)
        job = Job(address, 1, secret="sesame")
        client = job.join(0)
        assert np.array_equal(job.reduce(client, ones()), ones())
        client.close()


def test_a_greeting_that_was_recorded_is_refused() -> None:
    """Nobody joins a job, or makes another one, with what a worker has said before."""
    with aggregator(secret="sesame") as address:
        job = Job(address, 2, secret="sesame")
        first = Wire(job, 0)
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as replayed:
            assert len(replayed.recv(24, socket.MSG_WAITALL)) == 24
            replayed.sendall(first.greeting)
            assert b"rank 0 does not know the secret" in replayed.recv(4096)
        other = Wire(job, 1)
        assert first.receive()[0] == other.receive()[0] == WELCOME
        first.close()
        other.close()


def test_beyond_loopback_an_aggregator_asks_for_a_secret() -> None:
    with pytest.raises(ValueError, match=r"an aggregator at 0\.0\.0\.0:0 needs a secret, .*SYNTONY_SECRET"):
        _emulation.Aggregator("0.0.0.0:0")
    _emulation.Aggregator("0.0.0.0:0", secret="sesame")
