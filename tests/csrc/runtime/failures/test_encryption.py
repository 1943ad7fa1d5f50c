"""SYNTONY_ENCRYPTION=tls: somebody who sits on the wire sees nothing, and can change nothing without being noticed."""

from __future__ import annotations

import os
import random
from typing import Literal

import numpy as np
import pytest

from syntony import _core
from tests.csrc.runtime.failures.test_deaths import reduce_for_ever
from tests.csrc.runtime.group import Group
from tests.csrc.runtime.harness import Processes, Rank, run_as_processes
from tests.csrc.runtime.wiretap import Fault, Tapped
from tests.sampled import one_in

SECRET = {"SYNTONY_SECRET": "sesame", "SYNTONY_TCP_FLOWS": "1"}
TLS = SECRET | {"SYNTONY_ENCRYPTION": "tls"}
MARK = 0x53594E54  # "SYNT": every element of the data, and so easily found on the wire
HANDSHAKE = 5000  # bytes of a connection that a proxy leaves alone: of less, TLS's own handshake could not be made


def exchange(rank: Rank, fault: Fault | None) -> tuple[tuple[str, tuple[int, ...], str] | None, bytes]:
    """What went wrong in some collectives, None if nothing, and what the wiretap has heard."""
    bootstrap = Tapped(rank, fault)

    def work() -> None:
        group = Group(_core.Communicator(rank.process, bootstrap, 20.0, "tapped"))
        for count in (1, 50_000, 3, 1_000_000):
            data = np.full(count, MARK, np.int32) if rank.rank == 0 else np.zeros(count, np.int32)
            group.all_reduce(data)
            assert (data == MARK).all()
        group.shutdown()

    failure = None
    try:
        work()
    except _core.CommunicationError as error:
        failure = (error.kind, error.ranks, str(error))
    assert bootstrap.tap is not None
    return failure, bytes(bootstrap.tap.heard)


def heard(environment: dict[str, str]) -> bytes:
    said = run_as_processes(exchange, 2, None, hosts="ab", environment=environment)
    assert [failure for failure, _ in said] == [None, None]
    return b"".join(tapped for _, tapped in said)


def test_who_listens_hears_nothing() -> None:
    mark = MARK.to_bytes(4, "little")
    plain, encrypted = heard(SECRET), heard(TLS)
    assert plain.count(mark) > 900_000, "the wiretap is not on the wire"
    assert encrypted.count(mark) < 10
    assert plain.count(b"SYSP") > encrypted.count(b"SYSP") == 0 or b"SYSP" not in plain
    assert len(encrypted) < 1.1 * len(plain)


@pytest.mark.parametrize("seed", [1, 2, None])
def test_what_is_changed_on_the_way_ends_the_group(seed: int | None) -> None:
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    print("seed", seed)
    fault = Fault("change", random.Random(seed).randrange(HANDSHAKE, 2_000_000))
    failures = [said for said, _ in run_as_processes(exchange, 2, fault, hosts="ab", environment=TLS)]
    assert None not in failures, failures
    assert any("does not fit the keys of this connection" in str(failure) for failure in failures), failures


@pytest.mark.parametrize(("environment", "what"), one_in(2, (SECRET, TLS), ("close", "reset")))
def test_an_only_connection_that_is_cut_ends_the_group(
    environment: dict[str, str], what: Literal["close", "reset"]
) -> None:
    """Both processes live, and each could wait for the other until the time-out."""
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    fault = Fault(what, random.Random(seed).randrange(HANDSHAKE, 2_000_000))
    failures = [said for said, _ in run_as_processes(exchange, 2, fault, hosts="ab", environment=environment)]
    for failure in failures:
        assert failure is not None, failures
        assert failure[0] == "dead", failures
        assert "lost their connection during all_reduce" in failure[2], failures
        assert "both seem to live" in failure[2], failures


@pytest.mark.parametrize(
    ("environment", "after"),
    [(SECRET, 300), (SECRET, 500_000), (TLS, 500_000)],
    ids=["plain-control", "plain-data", "tls-data"],
)
def test_a_connection_that_is_cut_is_replaced(environment: dict[str, str], after: int) -> None:
    """The first to have passed this much is the control connection, or one of three for data."""
    several = environment | {"SYNTONY_TCP_FLOWS": "3"}
    said = run_as_processes(exchange, 2, Fault("reset", after), hosts="ab", environment=several)
    assert [failure for failure, _ in said] == [None, None]


def form(rank: Rank) -> str:
    with pytest.raises(ValueError, match="SYNTONY_") as refusal:
        rank.join()
    return str(refusal.value)


def test_a_secret_is_required() -> None:
    said = run_as_processes(form, 2, hosts="ab", environment={"SYNTONY_ENCRYPTION": "tls", "SYNTONY_SECRET": ""})
    for sentence in said:
        assert "SYNTONY_ENCRYPTION=tls needs a secret" in sentence
        assert "set SYNTONY_SECRET" in sentence


@pytest.mark.parametrize("transport", ["ucx", "libfabric"])
def test_transports_that_cannot_encrypt_are_refused(transport: str) -> None:
    for sentence in run_as_processes(form, 2, hosts="ab", environment=TLS | {"SYNTONY_TRANSPORT": transport}):
        assert f"SYNTONY_TRANSPORT={transport} cannot encrypt" in sentence


def test_a_word_that_is_none_is_refused() -> None:
    for sentence in run_as_processes(form, 2, hosts="ab", environment=SECRET | {"SYNTONY_ENCRYPTION": "yes"}):
        assert "SYNTONY_ENCRYPTION=yes is neither tls nor none" in sentence


def test_a_killed_rank_is_named() -> None:
    with Processes(reduce_for_ever, 4, 100_003, hosts="abcd", environment=TLS) as ranks:
        ranks.wait_for_event("looping")
        ranks.kill(2)
        results = ranks.finish()
    for rank in (0, 1, 3):
        (kind, guilty, sentence, _), _ = results[rank]
        assert (kind, guilty) == ("dead", (2,)), sentence


def collectives(rank: Rank) -> list[bytes]:
    """Results of sums of random numbers, of any size, by two ranks on each of two hosts."""
    group, random_numbers = rank.join(), np.random.default_rng(rank.rank)
    results = []
    for count in (1, 7, 1000, 65_537, 400_000):
        data = random_numbers.standard_normal(count).astype(np.float32)
        group.all_reduce(data)
        results.append(data.tobytes())
    everything = np.zeros((group.size, 5000), np.int32)
    own = np.full(5000, rank.rank, np.int32).view(np.uint8)
    blocks = {block: everything[block].view(np.uint8) for block in range(group.size)}
    group.run("all_gather", "int32", [5000] * group.size, {rank.rank: own}, blocks)
    assert (everything == np.arange(group.size)[:, None]).all()
    group.barrier()
    group.shutdown()
    return results


@pytest.mark.parametrize("flows", ["1", "3"])
@pytest.mark.parametrize("hosts", ["aabb", "abcd"])
def test_results_are_the_same(hosts: str, flows: str) -> None:
    plain, encrypted = (
        run_as_processes(collectives, 4, hosts=hosts, environment=environment | {"SYNTONY_TCP_FLOWS": flows})
        for environment in (SECRET, TLS)
    )
    assert plain == encrypted


def test_eight_hosts_with_relays_and_goodbyes() -> None:
    """More ranks than have a control connection with each other."""
    results = run_as_processes(collectives, 18, hosts="abcdefghijklmnopqr", environment=TLS)
    assert all(result == results[0] for result in results)
    assert "SYNTONY_ENCRYPTION" not in os.environ
