"""UCX and libfabric between hosts: what is asked of TCP, asked of them.

The ranks of emulated hosts are on one machine: both run over their own TCP here, and over shared memory where they are
told to.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.csrc.runtime.calls import test_collectives, test_in_flight, test_point_to_point, test_priorities
from tests.csrc.runtime.failures import test_counts, test_deaths, test_disagreements, test_ends, test_signals
from tests.csrc.runtime.forming import test_many_hosts
from tests.csrc.runtime.harness import Processes, Rank, RankFailedError, run_as_processes
from tests.csrc.runtime.programs import test_message_sizes
from tests.sampled import one_in

WIRES = {
    "ucx, tcp": {"SYNTONY_TRANSPORT": "ucx", "UCX_TLS": "tcp,self"},
    "libfabric, tcp": {"SYNTONY_TRANSPORT": "libfabric", "FI_PROVIDER": "tcp"},
    "ucx, memory": {
        "SYNTONY_TRANSPORT": "ucx",
        "UCX_TLS": "posix,sysv,cma,self",
        "UCX_MM_ERROR_HANDLING": "y",
    },
    "libfabric, memory": {"SYNTONY_TRANSPORT": "libfabric", "FI_PROVIDER": "shm"},
}
TRANSPORTS = ["ucx", "libfabric"]
Promise = tuple[Callable[..., None], tuple[Any, ...]]
PROMISES: list[Promise] = [
    (test_collectives.test_several_hosts, ("2x2",)),
    (test_collectives.test_several_hosts, ("four hosts",)),
    (test_collectives.test_uneven_blocks, (5, "aabbc")),
    (test_collectives.test_inexact_sums_are_equal_on_all_ranks, (5, "aabbc")),
    (test_disagreements.test_a_sample_of_disagreements, ("abc",)),
    (test_counts.test_parts_of_calls_that_differ_are_told, ("ab",)),
    (test_deaths.test_a_killed_rank_is_named_by_all_others, ("abcd", 1)),
    (test_deaths.test_a_killed_rank_is_named_by_all_others, ("aabb", 1_000_003)),
    (test_deaths.test_a_death_ends_receives_too, ("abcd",)),
    (test_deaths.test_a_rank_that_leaves_after_its_last_operation_is_no_failure, ("abcd",)),
    (test_deaths.test_a_rank_may_leave_while_others_still_finish_its_last_operation, ("abcd",)),
    (test_deaths.test_a_rank_that_leaves_too_early_is_named, ("aab",)),
    (test_ends.test_an_abort_reaches_everybody_with_its_reason, ("abcd",)),
    (test_ends.test_an_abort_is_told_before_it_returns, ("abcd",)),
    (test_in_flight.test_many_operations_waited_for_out_of_order, ("aab",)),
    (test_in_flight.test_asynchronous_operations_need_no_wait, ("ab",)),
    (test_in_flight.test_shutdown_finishes_what_is_in_flight, ("ab",)),
    (test_in_flight.test_groups_leave_nothing_behind, ("ab",)),
    (test_many_hosts.test_all_ranks_hear_of_a_death_and_go_on_without_it, ()),
    (test_message_sizes.test_chunks_of_the_greatest_weight, ("abc",)),
    (test_point_to_point.test_every_pair_with_tags_in_any_order, ("aabb",)),
    (test_priorities.test_classes_are_launched_in_any_order, ("aab",)),
    (test_signals.test_a_call_that_is_interrupted_ends_the_group, ("ab", 1_000_003)),
]
BEYOND = {
    (test_ends.test_an_abort_reaches_everybody_with_its_reason, "ucx, tcp"): (
        "UCX 1.13 ends a process by an assertion if a group ends while endpoints connect (docs/limits.md)"
    ),
}
"""What is outside our reach, and why."""
SOAKS: list[Promise] = [
    (test_collectives.test_the_full_matrix_over_hosts, ("four hosts",)),
    (test_in_flight.test_floods, ("aabb", 0)),
    (test_point_to_point.test_random_traffic, ("abcd",)),
]


def name_of(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return "-".join((value[0].__name__.removeprefix("test_"), *map(str, value[1])))


def joined(rank: Rank) -> None:
    group = rank.join()
    array = np.full(3, rank.rank + 1)
    group.all_reduce(array)
    assert array.tolist() == [3, 3, 3]
    group.shutdown()


def failed_to_join(environments: list[dict[str, str]]) -> str:
    """The sentence that ends a group of ranks which join with these, each on its own host."""
    with pytest.raises(RankFailedError) as caught:
        run_as_processes(joined_as, len(environments), environments, hosts="ab")
    return str(caught.value)


def joined_as(rank: Rank, environments: list[dict[str, str]]) -> None:
    os.environ.update(environments[rank.rank])
    joined(rank)


@functools.cache
def what_is_missing(transport: str) -> str:
    """The runtime's sentence where there is no such transport, and what to install."""
    try:
        run_as_processes(joined, 2, hosts="ab", environment={"SYNTONY_TRANSPORT": transport})
    except RankFailedError as error:
        sentence = re.search(rf"SYNTONY_TRANSPORT={transport}: (.*install.*)", str(error))
        if sentence is None:
            raise
        return sentence[1]
    return ""


def require(transport: str) -> None:
    if missing := what_is_missing(transport):
        pytest.skip(missing)


def kept(promise: Promise, wires: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require(WIRES[wires]["SYNTONY_TRANSPORT"])
    for name, value in WIRES[wires].items():
        monkeypatch.setenv(name, value)
    test, arguments = promise
    if (test, wires) in BEYOND:
        pytest.skip(BEYOND[test, wires])
    test(*arguments)


@pytest.mark.parametrize(("promise", "wires"), one_in(4, PROMISES, list(WIRES)), ids=name_of)
def test_what_tcp_promises(promise: Promise, wires: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(promise, wires, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("promise", SOAKS, ids=name_of)
def test_it_lasts(promise: Promise, wires: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(promise, wires, monkeypatch)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("slot_bytes", ["4096", "131072", "1048576"])
def test_frames_that_come_with_their_message_and_frames_that_are_fetched(transport: str, slot_bytes: str) -> None:
    """Both kinds on one stream, so that what is fetched is overtaken."""
    require(transport)
    environment = {"SYNTONY_TRANSPORT": transport, "SYNTONY_SLOT_BYTES": slot_bytes, "UCX_RNDV_THRESH": "3000"}
    cases = list(test_collectives.sample(test_collectives.generator("fetched"), 3, 1, (700, 80_021)))
    run_as_processes(test_collectives.body, 3, cases, hosts="abc", environment=environment)


@pytest.mark.parametrize(
    ("transport", "name"),
    [("ucx", r"UCX \d+\.\d+"), ("libfabric", r"libfabric \d+\.\d+, provider tcp\S* on \S+, of FI_PROVIDER=tcp")],
)
def test_it_says_which_transport_and_why(transport: str, name: str) -> None:
    require(transport)
    environment = {"SYNTONY_TRANSPORT": transport, "FI_PROVIDER": "tcp", "SYNTONY_DEBUG": "INFO"}
    with Processes(joined, 2, hosts="ab", environment=environment) as ranks:
        ranks.finish()
        said = ranks.log(1)
    expected = rf"INFO transport between hosts: {transport} \(SYNTONY_TRANSPORT={transport}; {name}"
    assert re.search(expected, said), said


def test_a_provider_that_is_none_is_told() -> None:
    require("libfabric")
    said = failed_to_join([{"SYNTONY_TRANSPORT": "libfabric", "FI_PROVIDER": "wire"}] * 2)
    assert re.search(r"libfabric \d+\.\d+ has no provider wire of .*: set FI_PROVIDER to one that has", said), said


def test_providers_that_differ_are_told() -> None:
    require("libfabric")
    said = failed_to_join([{"SYNTONY_TRANSPORT": "libfabric", "FI_PROVIDER": name} for name in ("tcp", "shm")])
    assert re.search(r"has libfabric's provider (shm and rank 0 tcp|tcp\S* and rank 1 shm).*: set FI_PROVIDER", said), (
        said
    )


def test_auto_takes_tcp_where_a_rank_has_no_rdma_device() -> None:
    """Or no UCX: whatever this machine lacks, group and log say so."""
    with Processes(joined, 2, hosts="ab", environment={"SYNTONY_TRANSPORT": "auto", "SYNTONY_DEBUG": "INFO"}) as ranks:
        ranks.finish()
        said = ranks.log(1)
    assert re.search(r"transport between hosts: (tcp .SYNTONY_TRANSPORT=auto; rank 0 .process|ucx )", said), said


def test_a_transport_that_is_none_is_told() -> None:
    said = failed_to_join([{"SYNTONY_TRANSPORT": "rdma"}] * 2)
    assert "SYNTONY_TRANSPORT=rdma is not a transport between hosts: there are tcp, ucx, libfabric, auto" in said


def test_transports_that_differ_are_told() -> None:
    said = failed_to_join([{"SYNTONY_TRANSPORT": "tcp"}, {"SYNTONY_TRANSPORT": "auto"}])
    assert re.search(r"has SYNTONY_TRANSPORT=(tcp and rank 1 auto|auto and rank 0 tcp): they must be equal", said), said
