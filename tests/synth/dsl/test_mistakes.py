"""Mistakes in hand-written algorithms: one sentence, at the line that makes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from syntony.synth.dsl import Chunk, DslError, Recording, algorithm

Body = Callable[[Recording], None]
stray: list[Chunk] = []


def no_such_rank(a: Recording) -> None:
    a.input(0).copy(to=9)  # here


def no_such_block(a: Recording) -> None:
    a.input(0, block=1)  # here


def no_such_chunk(a: Recording) -> None:
    a.input(0, chunk=1, count=2)  # here


def no_such_lane(a: Recording) -> None:
    a.input(0).copy(to=1, lane=-1)  # here


def overwritten(a: Recording) -> None:
    old = a.input(0).copy(into=a.scratch(a.input(0)))
    a.input(1).copy(to=0, into=old)
    old.copy(to=1)  # here


def empty(a: Recording) -> None:
    a.output(1).copy(to=0)  # here


def twice(a: Recording) -> None:
    x = a.input(0).reduce(to=1)
    x.add(a.input(0))  # here


def other_chunk(a: Recording) -> None:
    a.input(0, chunk=0).add(a.input(1, chunk=1))  # here


def of_another(a: Recording) -> None:
    stray.append(a.input(0))
    stray[0].copy(to=1)  # here


def into_the_input(a: Recording) -> None:
    a.input(0).copy(to=1, into=a.input(1))  # here


def into_elsewhere(a: Recording) -> None:
    a.input(0).copy(to=1, into=a.output(2))  # here


def into_another(a: Recording) -> None:
    a.input(0, chunk=0).copy(to=1, into=a.output(1, chunk=1))  # here


def no_chunk(a: Recording) -> None:
    a.input(0).add(7)  # type: ignore[arg-type]  # here


def nothing_to_add(a: Recording) -> None:
    a.input(0).add()  # here


def unequal_parts(a: Recording) -> None:
    a.input(0).split(3)  # here


def onto_itself(a: Recording) -> None:
    a.input(0).add(a.input(1), a.input(2)).copy()  # here


def half_a_sum(a: Recording) -> None:
    x = a.input(0).add(a.input(1), a.input(2))
    x.copy(to=1)
    a.input(2).copy(into=a.output(2))  # here


def two_orders(a: Recording) -> None:
    a.input(0).add(a.input(1), a.input(2))
    a.input(1).add(a.input(2), a.input(0))
    a.input(0).add(a.input(1), a.input(2), into=a.output(0)).copy(to=2)


MISTAKES: dict[Body, str] = {
    no_such_rank: "there is no rank 9; ranks are 0..2",
    no_such_block: "the input of rank 0 has no block 1; it has 1 block",
    no_such_chunk: "block 0 of the input of rank 0 does not have 2 chunks from chunk 1; a block has 2 chunks",
    no_such_lane: "there is no lane -1; lanes are 0..65535",
    overwritten: "put something else there; use what that line returned",
    empty: "output[0..1] of rank 1 holds nothing yet",
    twice: "both have the contribution of rank 0; it would count twice",
    other_chunk: "input[1] of rank 1 is chunk (1,), input[0] of rank 0 is chunk (0,); only equals add",
    of_another: "belongs to another algorithm, or to another run of this one",
    into_the_input: "input[0..1] of rank 1 belongs to the caller; write output(..) or scratch(..)",
    into_elsewhere: "output[0..1] of rank 2 is not at rank 1",
    into_another: "output[1] of rank 1 is for chunk (1,), not for chunk (0,)",
    no_chunk: "7 is not a chunk; take one with input(..), or keep what copy(..) returned",
    nothing_to_add: "add needs something to add",
    unequal_parts: "input[0..1] of rank 0 cannot be split into 3 equal parts; it has 2 chunks",
    half_a_sum: "output chunk 0 of rank 2 ends without what ranks 0, 1 contributed",
}


@pytest.mark.parametrize("body", MISTAKES, ids=lambda body: body.__name__)
def test_mistakes_are_told_at_their_line(body: Body) -> None:
    lines, first = inspect.getsourcelines(body)
    line = first + next(at for at, text in enumerate(lines) if "# here" in text)
    made = algorithm("all_reduce", ranks=3, chunks=2)(body)
    if body is of_another:
        with pytest.raises(DslError):
            algorithm("all_reduce", ranks=3, chunks=2)(body).program()
    with pytest.raises(DslError) as error:
        made.program()
    assert str(error.value).startswith(f"{__file__}:{line}: ")
    assert MISTAKES[body] in str(error.value)


def test_what_is_never_written_is_named_at_the_algorithm() -> None:
    @algorithm("broadcast", ranks=3)
    def forgetful(a: Recording) -> None:
        a.input(0).copy(to=1)

    with pytest.raises(DslError) as error:
        forgetful.program()
    assert str(error.value) == f"{forgetful.defined}: forgetful never writes output chunk 0 of rank 0 (nor 1 more)"


def test_sums_in_two_orders_are_told_at_a_line() -> None:
    """Found by the checker, told at the line that wrote the instruction down."""

    @algorithm("all_reduce", ranks=3)
    def unequal(a: Recording) -> None:
        a.input(0).add(a.input(1), a.input(2))
        a.input(1).add(a.input(2), a.input(0))
        a.input(2).add(a.input(0), a.input(1))

    first = unequal.function.__code__.co_firstlineno
    with pytest.raises(DslError, match="floating-point results would differ between the ranks") as error:
        unequal.program()
    assert str(error.value).startswith(f"{__file__}:{first + 3}: ")


def test_kinds_that_sum_nothing() -> None:
    @algorithm("scatter", ranks=2, root=1)
    def summing(a: Recording) -> None:
        x = a.input(1, block=0)
        x.add(x)

    with pytest.raises(DslError, match="scatter sums nothing; copy instead"):
        summing.program()
    with pytest.raises(DslError, match="rank 1 has no input in a scatter with root 0"):
        summing.program(root=0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ranks": -1}, "a collective has at least 1 rank"),
        ({"root": 7}, "root 7 is not a rank of this collective"),
        ({"instances": 0}, "1 chunks and 0 instances; at least 1 each"),
    ],
)
def test_numbers_that_cannot_be(changes: dict[str, int], told: str) -> None:
    @algorithm("broadcast", ranks=2)
    def some(a: Recording) -> None:
        raise AssertionError("it is not run")

    with pytest.raises(DslError) as error:
        some.program(**changes)
    assert str(error.value).startswith(f"{some.defined}: ")
    assert told in str(error.value)
