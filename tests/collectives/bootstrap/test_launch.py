"""The launcher: ranks meet, and whatever one of them does, the run ends, names it and leaves no process."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from syntony.base.command import UserError
from syntony.collectives.bootstrap.launch import Exchange, RankError, run_ranks


def children() -> list[str]:
    """Processes that this one has started and not yet taken leave of."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


@pytest.fixture(autouse=True)
def leaves_no_process() -> object:
    before = children()
    yield
    assert children() == before


def pause(_: Exchange) -> int:
    signal.pause()
    return 0


def test_gathers_in_rank_order() -> None:
    def work(exchange: Exchange) -> int:
        for turn in range(3):
            blobs = exchange.all_gather(f"turn {turn}", bytes([exchange.rank, turn]))
            assert blobs == [bytes([rank, turn]) for rank in range(exchange.size)]
        return exchange.rank

    assert run_ranks(4, work, 30.0) == 3


def test_a_large_gather_does_not_choke() -> None:
    def work(exchange: Exchange) -> int:
        blobs = exchange.all_gather("large", bytes([exchange.rank]) * 3_000_000)
        return 0 if [blob[-1] for blob in blobs] == [0, 1, 2] else 1

    assert run_ranks(3, work, 30.0) == 0


def test_a_killed_rank_is_named_and_the_others_are_stopped() -> None:
    def work(exchange: Exchange) -> int:
        if exchange.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return pause(exchange)

    with pytest.raises(RankError, match=r"rank 2 \(process \d+\) was killed by SIGKILL"):
        run_ranks(4, work, 30.0)


def test_a_death_explains_the_errors_of_the_others() -> None:
    def work(exchange: Exchange) -> int:
        exchange.all_gather("start", b"")
        if exchange.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("connection lost")

    with pytest.raises(RankError, match=r"rank 1 .* was killed by SIGTERM"):
        run_ranks(3, work, 30.0)


def test_a_rank_that_leaves_without_a_word_is_named() -> None:
    def work(exchange: Exchange) -> int:
        if exchange.rank == 0:
            os._exit(0)
        return pause(exchange)

    with pytest.raises(RankError, match=r"rank 0 .* ended before its work was done"):
        run_ranks(2, work, 30.0)


def test_an_exception_is_named_with_its_rank() -> None:
    def work(exchange: Exchange) -> int:
        if exchange.rank == 1:
            raise ZeroDivisionError("by zero")
        return pause(exchange)

    with pytest.raises(RankError, match=r"^rank 1: ZeroDivisionError: by zero$"):
        run_ranks(2, work, 30.0)


def test_a_users_mistake_stays_one() -> None:
    def work(exchange: Exchange) -> int:
        raise UserError("no such schedule")

    with pytest.raises(UserError, match=r"^no such schedule$"):
        run_ranks(3, work, 30.0)


def test_silence_names_who_is_missing() -> None:
    def work(exchange: Exchange) -> int:
        if exchange.rank in (0, 3):
            exchange.all_gather("roll call", b"")
        return pause(exchange)

    with pytest.raises(RankError, match=r"no sign of ranks 1, 2 for 0\.5 s"):
        run_ranks(4, work, 0.5)


def test_ranks_that_meet_for_different_things_are_told_so() -> None:
    def work(exchange: Exchange) -> int:
        exchange.all_gather("left" if exchange.rank else "right", b"")
        return 0

    with pytest.raises(RankError, match=r"rank 0 for right, rank 1 for left"):
        run_ranks(2, work, 30.0)
