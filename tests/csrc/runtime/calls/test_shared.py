"""Algorithm `shared`: the sizes at which it changes its ways, memory that may be read and memory that may not."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import resource
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from syntony import _core
from tests.csrc.runtime import seccomp
from tests.csrc.runtime.cases import COLLECTIVES, ROOTED, even_case, generator, run_cases
from tests.csrc.runtime.group import Group
from tests.csrc.runtime.harness import Rank, run_as_processes, run_as_threads


def first_read(collective: str) -> int:
    """Bytes of a block from which on three ranks usually read their peers' buffers."""
    sizes = (m << 20 for m in (1, 2, 8, 32, 64))
    return next(size for size in sizes if _core.shared_choices(collective, 3, size)[0][0] == "reference")


READ = first_read("all_to_all")
# Bytes of a block: in the stamp's line, shown once, in pieces, as shares of a sum, read from the peers' own buffers.
BOUNDARIES = (4, 8, 24, 48, 52, 4096, 16_380, 65_536, 131_072, 131_076, 400_000, READ + 4)
PR_SET_PTRACER = 0x59616D61
SMALL = 256 << 10  # goes through copies
LARGE = 16 << 20  # from here on, every way is tried
TRIES = 16  # calls of a size after which each way has been tried more than once in a row


def cases_of(ranks: int, reads: str, every: int = 1) -> list[Any]:
    """Every collective at one in `every` of the sizes, each another; read from the peers' own buffers or not."""
    rng = generator("shared", ranks, reads)
    met = itertools.product(enumerate(BOUNDARIES), enumerate(COLLECTIVES))
    return [
        even_case(
            collective,
            ranks,
            size // 4,
            algorithm="shared",
            dtype=str(rng.choice(["float32", "int32"])),
            root=int(rng.integers(ranks)) if collective in ROOTED else 0,
            in_place=bool(rng.integers(2)),
            seed=int(rng.integers(1 << 30)),
        )
        for size, collective in (
            *((size, collective) for (i, size), (j, collective) in met if (i + j) % every == 0),
            *(((LARGE, "all_reduce"), (LARGE + 4, "reduce_scatter")) if ranks == 3 and reads == "1" else ()),
            *([(max(LARGE, first_read("all_gather")) + 4, "all_gather")] if ranks == 3 and every == 1 else ()),
        )
    ]


def body(rank: Rank, cases: Sequence[Any]) -> None:
    group = rank.join()
    run_cases(group, cases)
    group.shutdown()


@pytest.mark.parametrize(
    ("ranks", "reads", "every"),
    [(2, "1", 2), (2, "0", 3), (3, "1", 3), (5, "0", 4)]
    + [
        pytest.param(ranks, reads, 1, marks=pytest.mark.sweep)
        for ranks, reads in ((2, "1"), (2, "0"), (3, "1"), (5, "0"))
    ],
)
def test_every_way_is_right(ranks: int, reads: str, every: int) -> None:
    run_as_processes(body, ranks, cases_of(ranks, reads, every), environment={"SYNTONY_PEER_READS": reads})


def forbidden_on_one(rank: Rank, cases: Sequence[Any]) -> None:
    if rank.rank == 1:
        os.environ["SYNTONY_PEER_READS"] = "0"
    body(rank, cases)


def test_what_one_rank_cannot_read_nobody_reads() -> None:
    run_as_processes(forbidden_on_one, 3, cases_of(3, "one", 10))


def registered(rank: Rank) -> None:
    """Buffers that peers map; a new piece each time, so that mappings are given back."""
    group = rank.join()
    for turn in range(12):
        mine, all_of_them = _core.allocate(1_200_000), _core.allocate(1_200_000 * group.size)
        mine[:] = rank.rank + turn
        parts = {peer: all_of_them[peer * 1_200_000 :][:1_200_000] for peer in range(group.size)}
        group.run("all_gather", "uint8", [1_200_000] * group.size, {rank.rank: mine}, parts)
        assert all((part == peer + turn).all() for peer, part in parts.items()), turn
    all_reduces(group, SMALL, _core.allocate(SMALL), _core.allocate(SMALL))
    for size in (LARGE, LARGE + 1_000_004):  # summed into all outputs, in uneven shares
        all_reduces(group, size, _core.allocate(size), _core.allocate(size))
    memory = _core.allocate if group.rank == 0 else lambda size: np.empty(size, np.uint8)  # others' is ordinary
    all_reduces(group, LARGE, memory(LARGE), memory(LARGE))
    group.shutdown()


def all_reduces(group: Group, size: int, memory: Any, other: Any) -> None:
    """Calls on the same memory, alternately in place."""
    numbers = np.arange(size // 4, dtype=np.int32)
    for call in range(TRIES):
        memory.view(np.int32)[:] = numbers + group.rank + call
        target = other if call % 2 else memory
        group.run("all_reduce", "int32", [size // 4], {0: memory}, {0: target})
        expected = (numbers + call) * group.size + sum(range(group.size))
        assert (target.view(np.int32) == expected).all(), call


@pytest.mark.parametrize("ranks", [2, 3])
def test_registered_buffers_are_read_in_place(ranks: int) -> None:
    run_as_processes(registered, ranks)


def tried(rank: Rank) -> None:
    group = rank.join()
    all_reduces(group, LARGE, np.empty(LARGE, np.uint8), np.empty(LARGE, np.uint8))
    block = LARGE // 4
    numbers, sums = np.arange(block * group.size, dtype=np.int32).reshape(group.size, block), np.empty(block, np.int32)
    for call in range(TRIES):
        mine = numbers + rank.rank * call
        parts = {peer: mine[peer].view(np.uint8) for peer in range(group.size)}
        group.run("reduce_scatter", "int32", [block] * group.size, parts, {rank.rank: sums.view(np.uint8)})
        assert (sums == numbers[rank.rank] * group.size + call * sum(range(group.size))).all(), call
    group.shutdown()


@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_are_right_whatever_is_tried(ranks: int) -> None:
    run_as_processes(tried, ranks)


def first_ones_in_flight(rank: Rank) -> None:
    """Whether buffers can be read is found out by the first large operation: on some ranks when the next is already
    admitted, on others before."""
    group = rank.join()
    works = []
    data = [np.full(LARGE // 4, number + rank.rank, np.int32) for number in range(3)]
    for array in data:
        works.append(group.all_reduce(array, async_op=rank.rank != 1))
    for number, (work, array) in enumerate(zip(works, data, strict=True)):
        if work is not None:
            work.wait()
        assert (array == number * group.size + sum(range(group.size))).all()
    group.shutdown()


@pytest.mark.parametrize("reads", ["1", "0"])
def test_large_operations_behind_the_first(reads: str) -> None:
    run_as_processes(first_ones_in_flight, 3, environment={"SYNTONY_PEER_READS": reads})


def rooted_without_waiting(rank: Rank) -> None:
    """Roots that need nobody run ahead by one round and no further: nothing is overwritten unread."""
    group = rank.join()
    for turn in range(200):
        data = np.full(1000, turn if rank.rank == turn % 2 else -1, np.int32)
        group.broadcast(data, turn % 2)
        assert (data == turn).all()
    group.shutdown()


def test_roots_do_not_overtake() -> None:
    run_as_processes(rooted_without_waiting, 3)


def elsewhere(rank: Rank) -> None:
    group = rank.join()
    data = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="algorithm shared needs all ranks on one host; these are on 2"):
        group.all_reduce(data, algorithm="shared")
    group.shutdown()


def test_several_hosts_are_refused() -> None:
    run_as_processes(elsewhere, 3, hosts="aab")


def alone(rank: Rank) -> None:
    group = rank.join()
    with pytest.raises(ValueError, match="algorithm shared needs other ranks"):
        group.all_reduce(np.zeros(4, np.float32), algorithm="shared")
    group.shutdown()


def test_one_rank_is_refused() -> None:
    run_as_threads(alone, 1)


def bits(rank: Rank, sizes: Sequence[int]) -> list[bytes]:
    group: Group = rank.join()
    found = []
    for size in sizes:
        values = np.random.default_rng((rank.rank, size)).standard_normal(size).astype(np.float32)
        both = []
        for algorithm in ("shared", "direct"):
            out = values.copy()
            group.all_reduce(out, algorithm=algorithm)
            both.append(out.tobytes())
        assert both[0] == both[1], size
        found.append(both[0])
    group.shutdown()
    return found


def test_sums_have_the_bits_of_the_program_they_stand_for() -> None:
    results = run_as_processes(bits, 4, [3, 12, 1000, 30_000, 200_003])
    assert all(own == results[0] for own in results)


def secret_memory(bytes_: int) -> np.ndarray:
    """Zeros that this process reads and writes as any others, and that no system call reads (memfd_secret)."""
    with contextlib.suppress(ValueError, OSError):  # it counts as locked
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(447, 0)
    if file < 0:
        pytest.skip(f"this kernel has no secret memory: {os.strerror(ctypes.get_errno())}")
    os.ftruncate(file, bytes_)
    try:
        memory = mmap.mmap(file, bytes_, mmap.MAP_SHARED)
    except BlockingIOError:
        pytest.skip(f"this user may not lock {bytes_} bytes of memory (ulimit -l)")
    finally:
        os.close(file)
    return np.frombuffer(memory, np.uint8)


def unreadable_on_one(rank: Rank) -> None:
    """Device-mapped memory is such: what is in it goes through copies, and the next operation as usual."""
    group = rank.join()
    pieces = first_read("all_gather")
    for turn, secret in enumerate((False, True, False, True)):
        mine = secret_memory(pieces) if secret and rank.rank == 1 else np.zeros(pieces, np.uint8)
        mine[:] = rank.rank + turn
        everything = np.zeros(pieces * group.size, np.uint8)
        parts = {peer: everything[peer * pieces :][:pieces] for peer in range(group.size)}
        group.run("all_gather", "uint8", [pieces] * group.size, {rank.rank: mine}, parts)
        assert all((part == peer + turn).all() for peer, part in parts.items()), turn
    for size, in_place in itertools.product((SMALL, LARGE), (True, False)):
        mine = secret_memory(size) if rank.rank == 1 else np.zeros(size, np.uint8)
        add_up(group, mine, in_place)
    group.shutdown()


def add_up(group: Group, mine: np.ndarray, in_place: bool) -> None:
    """An all_reduce of this memory, checked; out of place, its input stays what it was."""
    values = np.arange(mine.size // 4, dtype=np.int32) + group.rank
    mine.view(np.int32)[:] = values
    target = mine if in_place else np.zeros_like(mine)
    group.run("all_reduce", "int32", [mine.size // 4], {0: mine}, {0: target})
    assert (target.view(np.int32) == (values - group.rank) * group.size + sum(range(group.size))).all()
    assert in_place or (mine.view(np.int32) == values).all()


def in_place_on_some(rank: Rank) -> None:
    group = rank.join()
    for turn, size in itertools.product(range(group.size + 1), (64 << 10, SMALL, (2 << 20) + 64)):
        add_up(group, np.zeros(size, np.uint8), in_place=turn in (rank.rank, group.size))
    group.shutdown()


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_may_differ_in_where_they_want_a_sum(ranks: int) -> None:
    run_as_processes(in_place_on_some, ranks)


@pytest.mark.parametrize("ranks", [2, 3])
def test_memory_that_nobody_can_read_goes_through_copies(ranks: int) -> None:
    secret_memory(2 * LARGE)  # skips here what could not be had in a rank, which holds two at once
    run_as_processes(unreadable_on_one, ranks)


def never_read(rank: Rank) -> None:
    seccomp.refuse("prctl", seccomp.KILL, PR_SET_PTRACER)
    group = rank.join()
    group.all_reduce(np.ones(4, np.float32))
    group.shutdown()


def test_who_forbids_peer_reads_permits_nobody_to_read() -> None:
    run_as_processes(never_read, 2, environment={"SYNTONY_PEER_READS": "0"})
