"""The launcher: ranks meet, and whatever one of them does, the run ends, names it and leaves no process."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from syntony.base.command import UserError
from syntony.collectives.bootstrap import launch
from syntony.collectives.bootstrap.launch import Exchange, RankError, Replacing, run_ranks


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


# ---- ranks that go on without one, and others in its place ----------------------------------------------------------


def without_2(exchange: Exchange) -> int:
    exchange.all_gather("met", b"")
    if exchange.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_they_go_on_without_one() -> None:
    with pytest.raises(RankError, match=r"rank 2 \(process \d+\) was killed by SIGKILL"):
        run_ranks(3, without_2, 30.0)
    assert run_ranks(3, without_2, 30.0, Replacing(0, pause)) == 0


@pytest.mark.parametrize(("times", "code"), [(0, 0), (1, 7), (2, 7)])
def test_the_dead_are_replaced_so_often(times: int, code: int, tmp_path: Path) -> None:
    """The exit code is the largest of those that have one."""

    def stands_in(_: Exchange) -> int:
        (tmp_path / f"stands-in-{os.getpid()}").touch()
        return 7

    def waits(exchange: Exchange) -> int:
        without_2(exchange)
        while times and not list(tmp_path.glob("stands-in-*")):
            threading.Event().wait(0.02)
        return 0

    assert run_ranks(3, waits, 30.0, Replacing(times, stands_in)) == code
    assert len(list(tmp_path.glob("stands-in-*"))) == min(times, 1)


def test_who_comes_too_late_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_LATE", 0.2)
    assert run_ranks(3, without_2, 30.0, Replacing(1, pause)) == 0


def test_when_all_die_the_first_is_named() -> None:
    def work(exchange: Exchange) -> int:
        exchange.all_gather("met", b"")
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises(RankError, match=r"rank 0 \(process \d+\) was killed by SIGKILL"):
        run_ranks(2, work, 30.0, Replacing(0, pause))


def test_a_death_while_others_wait_for_it_is_the_end() -> None:
    """They meet at the launcher: nobody can go on without the one that does not come."""

    def work(exchange: Exchange) -> int:
        if exchange.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        exchange.all_gather("met", b"")
        return 0

    with pytest.raises(RankError, match="rank 1"):
        run_ranks(3, work, 30.0, Replacing(3, pause))
