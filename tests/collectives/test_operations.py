"""Works in flight, messages, algorithms by name and from files, and groups that come and go."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from syntony import Communicator, LocalBootstrap, Work, _core, topologies
from syntony.base.command import UserError
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.registry import engine_named
from syntony.synth.formats import schedule_file
from syntony.synth.model.collective import Collective
from tests.collectives.arrays import Door, same, values, whole_of
from tests.collectives.ranks import Ranks, together
from tests.collectives.test_communicator import SIZE, door, shared

__all__ = ["door", "shared"]  # fixtures


# ---- in flight ------------------------------------------------------------------------------------------------------


def test_works_run_side_by_side_and_keep_their_arrays(shared: Ranks) -> None:
    def job(group: Communicator) -> None:
        targets = [np.zeros(2000, np.float32) for _ in range(8)]
        works = [
            group.all_reduce(np.full(2000, i, np.float32), target, async_op=True) for i, target in enumerate(targets)
        ]
        works.append(group.barrier(async_op=True))
        for work in reversed(works):
            assert work is not None
            assert work.wait(60.0)
            assert work.done
        for i, target in enumerate(targets):
            same(target, np.full(2000, SIZE * i, np.float32))

    shared.run(job)


def test_wait_gives_up_and_may_be_repeated(shared: Ranks) -> None:
    ready = threading.Event()

    def job(group: Communicator) -> None:
        if group.rank == 0:
            work = group.barrier(async_op=True)
            assert work is not None
            assert not work.wait(0.01)
            assert not work.done
            ready.set()
            assert work.wait()
            return
        assert ready.wait(60)
        group.barrier()

    shared.run(job)


def test_messages(shared: Ranks, door: Door) -> None:
    """Tags are matched whatever the order; any source; both directions at once; to oneself."""

    def job(group: Communicator) -> None:
        me, right, left = group.rank, (group.rank + 1) % SIZE, (group.rank - 1) % SIZE
        works = [group.send(door(values(me + tag % 97, 9)), right, tag, async_op=True) for tag in (1, 2, 2**63)]
        found = np.zeros(9, np.float32)
        for tag in (2**63, 1):
            assert group.recv(door(found), left, tag) == left
            same(found, values(left + tag % 97, 9))
        work = group.recv(door(found), None, 2, async_op=True)
        assert isinstance(work, Work)
        assert work.wait()
        assert work.source == left
        same(found, values(left + 2, 9))
        for sent in works:
            assert sent is not None
            sent.wait()
        myself = group.send(door(values(me, 9)), me, async_op=True)
        assert group.recv(door(found)) == me
        assert myself is not None
        myself.wait()
        same(found, values(me, 9))
        group.barrier()

    shared.run(job)


def test_any_source_receives_from_all(shared: Ranks) -> None:
    def job(group: Communicator) -> None:
        if group.rank:
            group.send(np.array([group.rank]), 0, 5)
            return
        number = np.zeros(1, np.int64)
        seen = set()
        for _ in range(SIZE - 1):
            source = group.recv(number, tag=5)
            assert source == number[0]
            seen.add(source)
        assert seen == set(range(1, SIZE))

    shared.run(job)


# ---- algorithms and files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["auto", *(a.name for a in _core.algorithms() if "all_reduce" in a.collectives)])
def test_algorithms_by_name(shared: Ranks, algorithm: str) -> None:
    def job(group: Communicator) -> None:
        array = values(group.rank, 5000)
        group.all_reduce(array, algorithm=algorithm)
        same(array, sum((values(r, 5000) for r in range(SIZE)), np.zeros(5000, np.float32)))

    shared.run(job)


def test_a_loaded_schedule_is_an_algorithm(shared: Ranks, tmp_path: Path) -> None:
    schedule = engine_named("greedy").run(
        topologies.parse(f"ring:{SIZE}"), Collective.make("all_gather", SIZE), 1 << 20, Budget()
    )
    path = tmp_path / "ring.json"
    schedule_file.write(schedule, path)

    def job(group: Communicator) -> None:
        name = group.load(str(path))
        whole = np.zeros(SIZE * 100, np.float32)
        group.all_gather(values(group.rank, 100), whole, algorithm=name)
        same(whole, whole_of([100] * SIZE))
        with pytest.raises(ValueError, match="does all_gather, not all_reduce"):
            group.all_reduce(whole, algorithm=name)

    shared.run(job)


def test_a_file_that_is_none(shared: Ranks, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.json"):
        shared.groups[0].load(tmp_path / "absent.json")
    (tmp_path / "text.json").write_text("not a schedule")
    with pytest.raises(UserError, match=r"text\.json"):
        shared.groups[0].load(tmp_path / "text.json")


def test_the_group_describes_itself(shared: Ranks) -> None:
    assert [group.rank for group in shared.groups] == list(range(SIZE))
    assert all(group.size == SIZE and group.boxes == [list(range(SIZE))] for group in shared.groups)


def test_one_rank_is_a_group() -> None:
    (bootstrap,) = LocalBootstrap.group(1)
    with Communicator.create(bootstrap) as group:
        array = values(0, 5)
        group.all_reduce(array, op="avg")
        same(array, values(0, 5))
        group.barrier()
        out = np.zeros(5, np.float32)
        group.all_gather(array, out)
        group.all_to_all(array, out)
        same(out, array)


def test_a_bootstrap_serves_several_groups() -> None:
    def rank(bootstrap: LocalBootstrap) -> None:
        for _ in range(3):
            with Communicator.create(bootstrap) as group:
                array = values(group.rank, 10)
                group.all_reduce(array)
                same(array, values(0, 10) + values(1, 10))

    together(2, rank)
