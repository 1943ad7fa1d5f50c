"""The other ways to meet: at a store of torch's, and as threads of one process."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import LocalBootstrap, StoreBootstrap
from syntony.collectives.bootstrap import bootstraps
from tests.collectives.meeting import HOST, SOON, at_once

# ---- StoreBootstrap -------------------------------------------------------------------------------------------------


def hash_stores(size: int) -> list[Any]:
    distributed = pytest.importorskip("torch.distributed")
    return [distributed.HashStore()] * size


def tcp_stores(size: int) -> list[Any]:
    distributed = pytest.importorskip("torch.distributed")
    limit = timedelta(seconds=60)
    first = distributed.TCPStore(HOST, 0, size, True, limit, wait_for_workers=False)
    others = [
        distributed.TCPStore(HOST, first.port, size, False, limit, wait_for_workers=False) for _ in range(1, size)
    ]
    return [first, *others]


STORES = {"hash": hash_stores, "tcp": tcp_stores}


@pytest.mark.parametrize("kind", STORES)
def test_ranks_meet_at_a_store(kind: str) -> None:
    stores = STORES[kind](3)

    def rank(number: int) -> list[list[bytes]]:
        found = []
        for _ in range(2):  # one bootstrap after another, each with a name that comes again
            bootstrap = StoreBootstrap(stores[number], number, 3, 60.0)
            found += [bootstrap.all_gather("a", b"%d" % (number + turn)) for turn in range(2)]
        return found

    expected = [[b"%d" % (number + turn) for number in range(3)] for _ in range(2) for turn in range(2)]
    assert at_once(*(lambda number=number: rank(number) for number in range(3))) == [expected] * 3


@pytest.mark.parametrize("kind", STORES)
def test_a_rank_that_does_not_come_to_the_store_is_named(
    kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstraps, "LONG", 0.2)
    stores = STORES[kind](3)
    found = at_once(
        *(lambda rank=rank: StoreBootstrap(stores[rank], rank, 3, SOON).all_gather("a", b"") for rank in (0, 2))
    )
    for failure in found:
        assert isinstance(failure, TimeoutError)
        assert str(failure) == "rank(s) 1 did not come to 'a' within 0.5 s"
    told = {line for line in capfd.readouterr().err.splitlines() if line.startswith("syntony: ")}
    assert told == {f"syntony: rank {rank} of 3 has waited 0.2 s for rank(s) 1 of its group in 'a'" for rank in (0, 2)}


class CountingStore:
    """One store of threads that counts what is asked of it, and of which the value for all may get lost."""

    def __init__(self, loses: str = "") -> None:
        self.requests = 0
        self._loses = loses
        self._values: dict[str, Any] = {}
        self._changed = threading.Condition()

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            self.requests += 1
            self._values[key] = self._values.get(key, 0) + amount
            return int(self._values[key])

    def set(self, key: str, value: Any) -> None:
        with self._changed:
            self.requests += 1
            if not self._loses or not key.endswith(self._loses):
                self._values[key] = value
                self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            self.requests += 1
            return bytes(self._values[key])

    def check(self, keys: list[str]) -> bool:
        with self._changed:
            self.requests += 1
            return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        with self._changed:
            self.requests += 1
            if not self._changed.wait_for(lambda: all(key in self._values for key in keys), timeout.total_seconds()):
                raise RuntimeError("wait timeout")


def test_a_store_is_asked_as_often_as_there_are_ranks_and_no_more() -> None:
    size, store = 24, CountingStore()

    def rank(number: int) -> list[bytes]:
        return StoreBootstrap(store, number, size, 60.0).all_gather("a", b"%d" % number * number)

    expected = [b"%d" % number * number for number in range(size)]
    assert at_once(*(lambda number=number: rank(number) for number in range(size))) == [expected] * size
    # Each: its number, its blob, that it came, a wait, a look, and all blobs. The last to come also reads each blob.
    assert store.requests <= 6 * size + size


def test_the_last_to_come_dies_before_it_has_told_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstraps, "LONG", 0.2)
    store = CountingStore(loses="/all")
    found = at_once(
        *(lambda rank=rank: StoreBootstrap(store, rank, 3, 60.0).all_gather("a", b"b") for rank in range(3))
    )
    assert found == [[b"b"] * 3] * 3


@given(blobs=st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_what_is_joined_comes_apart_again(blobs: list[bytes]) -> None:
    assert bootstraps.part(bootstraps.join(blobs), len(blobs)) == blobs


class BrokenStore:
    """A store whose server has gone."""

    def add(self, _key: str, _amount: int) -> int:
        return 1

    def set(self, _key: str, _value: Any) -> None: ...

    def _fail(self, *_arguments: Any) -> Any:
        raise RuntimeError("connection reset by peer")

    wait = get = check = _fail


def test_a_store_that_fails() -> None:
    bootstrap = StoreBootstrap(BrokenStore(), 0, 2)
    with pytest.raises(RuntimeError, match="the store failed while ranks met at 'a': connection reset by peer"):
        bootstrap.all_gather("a", b"")


# ---- LocalBootstrap -------------------------------------------------------------------------------------------------


def test_threads_meet() -> None:
    ranks = LocalBootstrap.group(3)
    for _ in range(2):  # the name comes again
        found = at_once(*(lambda rank=rank: rank.all_gather("a", b"%d" % rank.rank) for rank in ranks))
        assert found == [[b"0", b"1", b"2"]] * 3


def test_a_thread_that_does_not_come_is_named() -> None:
    ranks = LocalBootstrap.group(3, timeout=SOON)
    found = at_once(lambda: ranks[0].all_gather("a", b""), lambda: ranks[2].all_gather("a", b""))
    assert [str(failure) for failure in found] == ["rank(s) 1 did not come to 'a' within 0.5 s"] * 2
