"""Calls that cannot mean anything, and groups that end: the sentence and the kind of each."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from syntony import CommunicationError, Communicator, LocalBootstrap, _core
from syntony.collectives.buffers import UsageError
from tests.collectives.arrays import OnlyDLPack, same, values
from tests.collectives.ranks import Ranks

torch = pytest.importorskip("torch", reason="torch tensors are among the arrays that are tested")

SIZE = 2


@pytest.fixture(scope="module")
def group() -> Iterator[Communicator]:
    """Rank 0's end of a group that must survive: nothing here may reach the other rank."""
    ranks = Ranks(SIZE, timeout=20.0)
    yield ranks.groups[0]

    def still_works(group: Communicator) -> None:
        array = values(group.rank, 10)
        group.all_reduce(array)
        same(array, values(0, 10) + values(1, 10))

    ranks.run(still_works)
    ranks.close()


@pytest.fixture
def own() -> Iterator[Ranks]:
    """A group that may end."""
    ranks = Ranks(SIZE, timeout=20.0)
    yield ranks
    ranks.close()


def floats(elements: int) -> Any:
    return np.zeros(elements, np.float32)


# ---- arrays ---------------------------------------------------------------------------------------------------------


def read_only(elements: int) -> Any:
    array = floats(elements)
    array.flags.writeable = False
    return array


class OnTheMoon:
    """A DLPack object in memory that NumPy does not reach (device 10 is ROCm)."""

    def __dlpack__(self, **_options: Any) -> Any:
        raise BufferError("this memory is on the moon")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (10, 0)


UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "a list": (lambda: [1, 2, 3, 4], "the input of all_reduce is a list; pass a NumPy array, a torch tensor or"),
    "nothing": (lambda: None, "the input of all_reduce is a NoneType"),
    "strided": (lambda: floats(8)[::2], "not contiguous in memory (strides (8,)); pass a contiguous array"),
    "transposed": (lambda: floats(6).reshape(2, 3).T, "the input of all_reduce is not contiguous"),
    "transposed tensor": (lambda: torch.zeros(2, 3).T, "not contiguous in memory (strides (1, 3)); call .contiguous()"),
    "expanded tensor": (lambda: torch.zeros(1).expand(4), "the input of all_reduce is not contiguous"),
    "read-only": (lambda: read_only(4), "the input of all_reduce is read-only"),
    "read-only DLPack": (lambda: OnlyDLPack(read_only(4)), "the input of all_reduce"),
    "other byte order": (lambda: np.zeros(4, ">f4"), "holds float32 in the byte order of another machine"),
    "objects": (lambda: np.zeros(4, object), "the input of all_reduce holds object; possible are uint8, int8, "),
    "text": (lambda: np.array(["a", "b"]), "the input of all_reduce holds str32"),
    "dates": (lambda: np.zeros(4, "datetime64[s]"), "holds datetime64[s]; possible are"),
    "long doubles": (lambda: np.zeros(4, np.longdouble), f"holds {np.dtype(np.longdouble).name}; possible are"),
    "records": (lambda: np.zeros(4, "i4,f4"), "the input of all_reduce holds void64"),
    "a tensor without memory": (lambda: torch.zeros(4, device="meta"), "the input of all_reduce lies on meta; this"),
    "sparse": (lambda: torch.zeros(4).to_sparse(), "is a torch.sparse_coo tensor; pass a dense one"),
    "bits": (lambda: torch.zeros(4, dtype=torch.uint8).view(torch.bits8), "the input of all_reduce holds bits8"),
    "conjugate": (lambda: torch.ones(4, dtype=torch.complex64).conj(), "call .resolve_conj().resolve_neg()"),
    "negative": (lambda: torch._neg_view(torch.ones(4)), "call .resolve_conj().resolve_neg()"),
    "another device": (OnTheMoon, "the input of all_reduce cannot be seen as a NumPy array through DLPack: "),
    "DLPack of bfloat16": (
        lambda: OnlyDLPack(torch.zeros(4, dtype=torch.bfloat16)),
        "cannot be seen as a NumPy array through DLPack",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_arrays_that_do_not_fit(group: Communicator, case: str) -> None:
    make, sentence = UNFIT[case]
    with pytest.raises(UsageError, match=re.escape(sentence)):
        group.all_reduce(make())


def test_a_subclass_of_a_tensor_is_a_tensor(group: Communicator) -> None:
    class Mine(torch.Tensor):  # type: ignore[misc]
        pass

    with pytest.raises(UsageError, match="holds bits8"):
        group.all_reduce(torch.zeros(4, dtype=torch.uint8).view(torch.bits8).as_subclass(Mine))


# ---- calls ----------------------------------------------------------------------------------------------------------

# `g` is rank 0 of 2.
MEANINGLESS: dict[str, tuple[Callable[[Communicator], Any], str]] = {
    # sizes and types
    "all_reduce, sizes": (
        lambda g: g.all_reduce(floats(4), floats(5)),
        "all_reduce needs 4 elements where it got an array of 5",
    ),
    "all_reduce, types": (
        lambda g: g.all_reduce(floats(4), np.zeros(4)),
        "all_reduce got float32 and float64; both arrays must have one element type",
    ),
    "all_reduce, read-only output": (
        lambda g: g.all_reduce(floats(4), read_only(4)),
        "the output of all_reduce is read-only",
    ),
    "all_gather, sizes": (
        lambda g: g.all_gather(floats(4), floats(9)),
        "all_gather needs 8 elements where it got an array of 9",
    ),
    "all_gather, types": (
        lambda g: g.all_gather(floats(4), torch.zeros(8, dtype=torch.bfloat16)),
        "all_gather got float32 and bfloat16",
    ),
    "all_gather, own count": (
        lambda g: g.all_gather(floats(4), floats(8), [3, 5]),
        "all_gather: rank 0 has 4 elements, its count says 3",
    ),
    "all_gather, too few counts": (
        lambda g: g.all_gather(floats(4), floats(8), [8]),
        "all_gather takes one count for each of the 2 ranks, not [8]",
    ),
    "all_gather, a negative count": (
        lambda g: g.all_gather(floats(4), floats(8), [9, -1]),
        "all_gather takes one count for each of the 2 ranks, not [9, -1]",
    ),
    "all_gather, a broken count": (
        lambda g: g.all_gather(floats(4), floats(8), [4.0, 4.0]),  # type: ignore[list-item]
        "all_gather takes one count for each of the 2 ranks, not [4.0, 4.0]",
    ),
    "reduce_scatter, sizes": (
        lambda g: g.reduce_scatter(floats(9), floats(4)),
        "reduce_scatter needs 8 elements where it got an array of 9",
    ),
    "reduce_scatter, own count": (
        lambda g: g.reduce_scatter(floats(8), floats(4), counts=[3, 5]),
        "reduce_scatter: rank 0 has 4 elements, its count says 3",
    ),
    "all_to_all, indivisible": (
        lambda g: g.all_to_all(floats(5), floats(5)),
        "5 elements do not divide among the 2 ranks of all_to_all",
    ),
    "all_to_all, half the counts": (
        lambda g: g.all_to_all(floats(4), floats(4), [1, 3]),
        "all_to_all takes input_counts and output_counts together, or neither",
    ),
    "all_to_all, input": (
        lambda g: g.all_to_all(floats(4), floats(4), [1, 4], [1, 3]),
        "the input of all_to_all has 4 elements, input_counts 5",
    ),
    "all_to_all, output": (
        lambda g: g.all_to_all(floats(4), floats(5), [1, 3], [1, 3]),
        "all_to_all needs 4 elements where it got an array of 5",
    ),
    "all_to_all, to itself": (
        lambda g: g.all_to_all(floats(4), floats(4), [1, 3], [2, 2]),
        "rank 0 sends 1 elements to itself in all_to_all and expects 2",
    ),
    "reduce, types": (lambda g: g.reduce(floats(4), np.zeros(4)), "reduce got float32 and float64"),
    "gather, no output": (lambda g: g.gather(floats(4)), "rank 0 is the root of gather and needs an output"),
    "gather, sizes": (
        lambda g: g.gather(floats(4), floats(4)),
        "gather needs 8 elements where it got an array of 4",
    ),
    "scatter, no input": (lambda g: g.scatter(None, floats(4)), "rank 0 is the root of scatter and needs an input"),
    "scatter, sizes": (
        lambda g: g.scatter(floats(4), floats(4)),
        "scatter needs 8 elements where it got an array of 4",
    ),
    "broadcast, read-only": (lambda g: g.broadcast(read_only(4), 1), "the buffer of broadcast is read-only"),
    "recv, read-only": (lambda g: g.recv(read_only(4)), "the buffer of recv is read-only"),
    # names and numbers
    "op": (
        lambda g: g.all_reduce(floats(4), op="mean"),
        "unknown op 'mean' for all_reduce: possible are sum, product, min, max, band, bor, bxor, avg",
    ),
    "op of these": (lambda g: g.all_reduce(floats(4), op="bxor"), "bxor of float32 has no meaning"),
    "algorithm": (
        lambda g: g.all_reduce(floats(4), algorithm="rings"),
        "unknown algorithm rings: available are auto, shared, in_network, direct, two_shot, pairwise, ring, dbt, "
        "recursive_doubling, rabenseifner, swing, bruck, pat, two_level, hierarchical",
    ),
    "algorithm of this": (
        lambda g: g.all_gather(floats(4), floats(8), algorithm="two_shot"),
        "algorithm two_shot has no all_gather",
    ),
    "factor of integers": (lambda g: g.all_reduce(np.zeros(4, int), factor=0.5), "scaling has no meaning for int64"),
    "factor of max": (
        lambda g: g.all_reduce(floats(4), op="max", factor=0.5),
        "only a sum can be averaged or weighted",
    ),
    "average of bools": (
        lambda g: g.all_reduce(np.zeros(4, bool), op="avg"),
        "avg of bool has no meaning in all_reduce",
    ),
    "root": (
        lambda g: g.broadcast(floats(4), 2),
        "the root of broadcast is rank 2; this group has the ranks 0 to 1",
    ),
    "negative root": (lambda g: g.reduce(floats(4), root=-1), "the root of reduce is rank -1; this group has the"),
    "root of gather": (lambda g: g.gather(floats(4), root=7), "the root of gather is rank 7"),
    "root of scatter": (lambda g: g.scatter(None, floats(4), root=7), "the root of scatter is rank 7"),
    "no root at all": (
        lambda g: g.broadcast(floats(4), "first"),  # type: ignore[arg-type]
        "the root of broadcast is rank 'first'",
    ),
    "destination": (lambda g: g.send(floats(4), -1), "the destination of send is rank -1; this group has the ranks"),
    "source": (lambda g: g.recv(floats(4), 2), "the source of recv is rank 2; this group has the ranks 0 to 1"),
    "tag": (lambda g: g.send(floats(4), 1, -1), "a tag is a whole number from 0 to 2^64 - 1, not -1"),
    "tag of recv": (lambda g: g.recv(floats(4), 1, 2**64), "a tag is a whole number from 0 to 2^64 - 1, not 184"),
    "timeout": (
        lambda g: g.all_reduce(floats(4), timeout=0),
        "a timeout is a number of seconds above 0, not 0",
    ),
    "timeout of barrier": (lambda g: g.barrier(timeout=-1.0), "a timeout is a number of seconds above 0, not -1.0"),
}


@pytest.mark.parametrize("case", MEANINGLESS)
def test_calls_that_cannot_mean_anything(group: Communicator, case: str) -> None:
    call, sentence = MEANINGLESS[case]
    with pytest.raises(ValueError, match=re.escape(sentence)):
        call(group)


@pytest.mark.parametrize("options", [{"algoritm": None}, {"algorithm": None}])
def test_options_that_there_are_not(group: Communicator, options: Any) -> None:
    """None of them passes for an option that was not given."""
    with pytest.raises(TypeError):
        group.all_reduce(np.ones(4), **options)


def test_a_timeout_of_nothing_is_refused_at_creation() -> None:
    with pytest.raises(UsageError, match="a timeout is a number of seconds above 0, not nan"):
        Communicator.create(LocalBootstrap.group(1)[0], timeout=float("nan"))


def test_a_bootstrap_is_no_communicator() -> None:
    with pytest.raises(UsageError, match=r"is made by Communicator.create\(bootstrap\), not from a LocalBootstrap"):
        Communicator(LocalBootstrap.group(1)[0])  # type: ignore[arg-type]


def test_uneven_sizes_are_not_relayed() -> None:
    ranks = Ranks(4, timeout=5.0)
    with pytest.raises(ValueError, match="use `direct` for an all_to_all with uneven sizes"):
        ranks.groups[0].all_to_all(floats(10), floats(10), [1, 2, 3, 4], [1, 2, 3, 4], algorithm="dbt")
    ranks.close()


MEMORY = np.zeros(12, np.float32)
OVERLAPS: dict[str, Callable[[Communicator], Any]] = {
    "all_reduce": lambda g: g.all_reduce(MEMORY[:4], MEMORY[1:5]),
    "all_reduce by torch": lambda g: g.all_reduce(torch.from_numpy(MEMORY)[2:6], torch.from_numpy(MEMORY)[:4]),
    "all_gather": lambda g: g.all_gather(MEMORY[4:8], MEMORY[:8]),
    "reduce_scatter": lambda g: g.reduce_scatter(MEMORY[:8], MEMORY[4:8]),
    "all_to_all": lambda g: g.all_to_all(MEMORY[:8], MEMORY[4:12]),
    "uneven all_to_all": lambda g: g.all_to_all(MEMORY[:4], MEMORY[:5], [1, 3], [1, 4]),
    "reduce": lambda g: g.reduce(MEMORY[:4], MEMORY[3:7]),
    "gather": lambda g: g.gather(MEMORY[2:6], MEMORY[:8]),
    "scatter": lambda g: g.scatter(MEMORY[:8], MEMORY[4:8]),
}


@pytest.mark.parametrize("case", OVERLAPS)
def test_memory_that_would_be_overwritten_while_it_is_read(group: Communicator, case: str) -> None:
    with pytest.raises(UsageError, match=r"the input and the output of \w+ overlap, and not block on block"):
        OVERLAPS[case](group)


def test_neighbours_do_not_overlap() -> None:
    (bootstrap,) = LocalBootstrap.group(1)
    with Communicator.create(bootstrap) as alone:
        memory = np.arange(8, dtype=np.float32)
        alone.all_reduce(memory[:4], memory[4:])
        same(memory, np.tile(np.arange(4, dtype=np.float32), 2))
        alone.all_gather(memory[2:2], memory[2:2])


# ---- between ranks --------------------------------------------------------------------------------------------------


def refusals(own: Ranks, job: Callable[[Communicator], Any]) -> list[CommunicationError]:
    """What each rank gets for `job`, which fails on all."""

    def caught(group: Communicator) -> CommunicationError:
        with pytest.raises(CommunicationError) as failure:
            job(group)
        return failure.value

    return own.run(caught)


def two_roots(group: Communicator) -> None:
    """Both send and neither receives, so it is a later call that tells."""
    group.broadcast(floats(4), group.rank)
    for _ in range(1000):
        group.barrier()


DISAGREEMENTS: dict[str, tuple[Callable[[Communicator], Any], str]] = {
    "collective": (
        lambda g: g.all_reduce(floats(4)) if g.rank else g.all_gather(floats(4), floats(8)),
        r"all_gather.*all_reduce|all_reduce.*all_gather",
    ),
    "algorithm": (
        lambda g: g.all_reduce(floats(4), algorithm="ring" if g.rank else "dbt"),
        r"the algorithm \(its Program\)",
    ),
    "elements": (lambda g: g.all_reduce(floats(4 + g.rank)), r"4.*5|5.*4"),
    "element type": (lambda g: g.all_reduce(np.zeros(4, ["f4", "i4"][g.rank])), r"float32.*int32|int32.*float32"),
    "op": (lambda g: g.all_reduce(floats(4), op=["min", "max"][g.rank]), r"min.*max|max.*min"),
    "root": (two_roots, r"root 0 against 1|root 1 against 0"),
}


@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_ranks_that_disagree_are_named(own: Ranks, case: str) -> None:
    call, sentence = DISAGREEMENTS[case]
    for failure in refusals(own, call):
        assert failure.kind == "mismatch"
        assert failure.ranks
        assert re.search(sentence, str(failure)), str(failure)


def test_a_rank_that_does_not_call_is_named_in_time(own: Ranks) -> None:
    def job(group: Communicator) -> None:
        if group.rank == 0:
            group.all_reduce(floats(4), timeout=0.3)
        else:
            group.recv(floats(4), source=0)  # fails when the group does

    failures = refusals(own, job)
    assert failures[0].kind == "timeout"
    assert failures[0].ranks == (1,)
    assert "rank 1" in str(failures[0])


def test_a_message_of_another_size_fails_that_receive_alone(own: Ranks) -> None:
    def job(group: Communicator) -> None:
        if group.rank == 0:
            group.send(floats(4), 1)
        else:
            with pytest.raises(CommunicationError, match=r"16.*20|20.*16") as failure:
                group.recv(floats(5), 0)
            assert failure.value.kind == "mismatch"
        group.barrier()

    own.run(job)


def test_abort_ends_the_group_everywhere(own: Ranks) -> None:
    def job(group: Communicator) -> None:
        if group.rank == 1:
            group.abort("the roof is on fire")
        group.barrier()

    for failure in refusals(own, job):
        assert "the roof is on fire" in str(failure)
        assert "rank 1" in str(failure)
        assert failure.kind == "aborted"
        assert failure.ranks == (1,)


def test_an_exception_in_the_context_ends_the_group_everywhere() -> None:
    entered = threading.Barrier(SIZE)

    def body(group: Communicator) -> BaseException | None:
        try:
            with group:
                entered.wait(60)
                if group.rank == 1:
                    raise KeyError("lost")
                group.barrier()
        except (KeyError, CommunicationError) as failure:
            return failure
        return None

    ranks = Ranks(SIZE, timeout=20.0)
    found = ranks.run(body)
    assert isinstance(found[1], KeyError)
    assert isinstance(found[0], CommunicationError)
    assert "KeyError: 'lost'" in str(found[0])
    assert found[0].ranks == (1,)
    ranks.close()


def test_after_close_nothing_runs() -> None:
    ranks = Ranks(SIZE, timeout=20.0)
    ranks.run(Communicator.close)
    for group in ranks.groups:
        with pytest.raises((CommunicationError, ValueError), match=r"shut|closed|ended|over"):
            group.barrier()
    ranks.close()  # twice does no harm


# ---- SYNTONY_CHECK --------------------------------------------------------------------------------------------------


def test_the_builders_are_proven_when_the_environment_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    from syntony.collectives import proof

    calls = []

    def counted(ranks: int, boxes: list[list[int]]) -> int:
        calls.append((ranks, boxes))
        return 0

    real = proof.prove_builders
    monkeypatch.setenv("SYNTONY_CHECK", "1")
    count = real(3, [[0, 1, 2]])
    assert count == sum(
        3 if collective in ("broadcast", "reduce", "gather", "scatter") else 1
        for algorithm in _core.algorithms()
        for collective in algorithm.collectives
    )
    assert real(4, [[0, 1], [2, 3]]) > count
    monkeypatch.setattr(proof, "prove_builders", counted)
    Ranks(SIZE, timeout=20.0).close()
    assert calls == [(SIZE, [[0, 1]])] * SIZE
    monkeypatch.setenv("SYNTONY_CHECK", "0")
    Ranks(SIZE, timeout=20.0).close()
    assert len(calls) == SIZE


def test_a_builder_that_errs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ring` builds an all_gather that leaves out its last move: no group begins."""
    real = _core.build

    def broken(name: str, collective: str, ranks: int, root: int, boxes: Any = None) -> _core.Program:
        program = real(name, collective, ranks, root, boxes)
        if (name, collective) != ("ring", "all_gather"):
            return program
        builder = _core.ProgramBuilder(name, collective, ranks, root, [(block, 1) for block in range(ranks)])
        for rank in range(ranks):
            builder.copy(rank, builder.output(rank, rank), builder.input(rank, rank))
        return builder.finish()

    monkeypatch.setenv("SYNTONY_CHECK", "1")
    monkeypatch.setattr(_core, "build", broken)
    with pytest.raises(RuntimeError, match="SYNTONY_CHECK: ring all_gather over 2 ranks, root 0: "):
        Ranks(SIZE, timeout=20.0)
