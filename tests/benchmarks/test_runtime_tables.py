"""The runtime's tables: goals are told beside figures, and what cannot be measured is a sentence."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest

from syntony import _core
from syntony.base.command import UserError
from syntony.benchmarks import __main__ as front
from syntony.benchmarks.bench.contenders import Contender, Syntony
from syntony.benchmarks.runtime import anatomy, choices, meeting, priority, transports
from syntony.benchmarks.runtime.measured.duel import Rules, part
from syntony.benchmarks.runtime.measured.sweep import COLLECTIVES, Choice, Measured, case_of
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange
from tests.benchmarks.stand_in import OffByOne, StandIn


def _table(name: str, *missed: str) -> Table:
    def rows() -> Iterator[Row]:
        yield from (Row((word or "reached",), word) for word in missed)

    return Table(name, "a stand-in", lambda options: (Part("Title", (("cell", 8),), rows),))


def _impossible(options: argparse.Namespace) -> tuple[Part, ...]:
    raise UserError("there is no peer")


TABLES = [_table("good", "", ""), _table("short", "", "too slow"), Table("none", "a stand-in", _impossible)]


@pytest.mark.parametrize(("name", "code"), [("good", 0), ("short", 1), ("none", 2)])
def test_exit_codes(name: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(front.Room, "tables", lambda room: TABLES)
    assert front.main(["runtime", name]) == code
    out, err = capsys.readouterr()
    assert ("MISSED: too slow" in out) == (code == 1)
    assert err == ("syntony.benchmarks runtime none: there is no peer\n" if code == 2 else "")


def test_help_names_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        with pytest.raises(SystemExit):
            front.main([*words, "--help"])
        return " ".join(capsys.readouterr().out.split())

    for name, room in front.ROOMS.items():
        tables = room.tables()
        assert [table.name for table in tables] == list(room.modules)
        assert f"{room.about}: {', '.join(room.modules)}" in said()
        assert all(table.name in said(name) and table.summary.split(";")[0] in said(name) for table in tables)


# ---- tables of speed -------------------------------------------------------------------------------------------------
class _Slow(StandIn):
    """Takes its time over every all_reduce."""

    def all_reduce(self, input: Any, output: Any = None, op: str = "sum", *, algorithm: str = "auto") -> None:
        super().all_reduce(input, output, op)
        time.sleep(0.002)


CHOICE = Choice(("all_reduce",), (2,), (8, 1000), 2)


def _duel(ours: type[StandIn], theirs: type[StandIn], rules: Rules) -> Part:
    def make(exchange: Exchange) -> list[Contender]:
        return [Syntony(ours(exchange), "ring"), Syntony(theirs(exchange), "dbt")]

    return part("Title", "ring", ("dbt",), make, CHOICE, rules, torch=False)


def test_the_slower_misses_its_goals_and_the_mean_is_told() -> None:
    rules = Rules(lambda size: 1.0 if size > 8 else 0.0, 1.0)
    small, large, mean = _duel(_Slow, StandIn, rules).rows()
    assert [small.cells[:3], large.cells[:3]] == [("all_reduce", 2, 8), ("all_reduce", 2, 1000)]
    assert (bool(small.missed), bool(large.missed)) == (False, True)
    ratios = [float(str(row.cells[-2])) for row in (small, large)]
    assert float(str(mean.cells[-2])) == pytest.approx(math.sqrt(ratios[0] * ratios[1]), abs=0.02)
    assert "less than 1; the worst is" in mean.missed


def test_no_time_is_told_of_a_wrong_result() -> None:
    *wrong, mean = _duel(StandIn, OffByOne, Rules(lambda size: 0.0, 0.0)).rows()
    for row in wrong:
        assert set(row.cells[3:]) == {""}
        assert row.missed == "1 wrong elements"
    assert mean.missed == "nothing was right"


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_no_row_is_empty(collective: str, ranks: int) -> None:
    for size in (8, 64, 100, 4096):
        moved = case_of(collective, size, ranks).bytes_moved(ranks)
        assert 4 <= moved <= max(size, 4 * ranks)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--collectives", "broadcast"], "--collectives broadcast: there are all_reduce"),
        (["--ranks", "two"], "--ranks takes numbers"),
        (["--ranks", "1"], "--ranks must be at least 2"),
        (["--sizes", "8,large"], "'large' is not a size"),
        (["--rounds", "0"], "--rounds at least 1"),
    ],
)
def test_refusals(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["runtime", "mpi", "--peers", "gloo", *words]) == 2
    assert sentence in capsys.readouterr().err


# ---- anatomy ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [4096, 16 << 10, 1 << 20, 64 << 20])
def test_phases_move_all_that_a_collective_moves(ranks: int, size: int) -> None:
    """However it is cut: what a rank fetches and adds up is what the others have for it."""

    def moved(name: str, work: anatomy.Work) -> float:
        return sum(phase.size * phase.pieces for phase in work.phases if phase.name == name)

    block = size // ranks
    slack = 64 * ranks * 600  # whole lines, of all pieces
    for collective in ("all_gather", "all_to_all"):
        for work in anatomy.works_of(collective, ranks, size):
            assert moved("fetch", work) == pytest.approx(block * (ranks - 1), abs=slack)
            assert moved("own", work) == pytest.approx(block, abs=slack)
    for collective, whole in (("all_reduce", size), ("reduce_scatter", block)):
        for work in anatomy.works_of(collective, ranks, size):
            shares = ranks if collective == "all_reduce" and not work.way.startswith("exchange") else 1
            assert moved("add", work) == pytest.approx(whole / shares, abs=slack)
    assert [work.way for work in anatomy.works_of("all_gather", ranks, 4096)] == ["exchange"]
    assert any(work.way.startswith("reference") for work in anatomy.works_of("all_to_all", ranks, 64 << 20))


@pytest.mark.parametrize("size", ["4K", "16M"])
def test_the_anatomy_adds_up(size: str) -> None:
    paths, phases = anatomy.TABLE.parts(
        argparse.Namespace(collectives="all_gather,reduce_scatter", ranks="2", sizes=size, rounds=1)
    )
    largest = max(int(str(row.cells[0])) for row in paths.rows())
    assert largest == {"4K": 2048, "16M": 8 << 20}[size]
    for row in phases.rows():
        *parts, model, measured, ratio = (float(str(cell)) for cell in row.cells[3:] if cell != "")
        assert sum(parts) == pytest.approx(model, abs=0.1)
        half = 0.05  # of the last digit of both
        assert (measured - half) / (model + half) - 0.01 <= ratio <= (measured + half) / (model - half) + 0.01
    assert "who sleeps wakes after" in paths.closing([])[0]


# ---- choices ---------------------------------------------------------------------------------------------------------
def test_the_default_meets_all_that_can_be_named() -> None:
    parser = argparse.ArgumentParser()
    choices.TABLE.configure(parser)
    words = ["--collectives", "all_gather", "--ranks", "2", "--sizes", "4K", "--rounds", "1", "--iterations", "5"]
    (part,) = choices.TABLE.parts(parser.parse_args(words))
    (row,) = part.rows()
    chosen, auto, name, best, ratio = row.cells[2:]
    others = set(_core.algorithm_names("all_gather")) - {"shared"}
    assert (chosen, name in others) == ("shared", True)
    assert float(str(best)) / float(str(auto)) == pytest.approx(float(str(ratio)), abs=0.2)
    assert {one.split()[0] for one in row.remark.split(", ")} == others


def test_a_default_is_judged_in_its_duel() -> None:
    def judged(ring: float, wrong: int = 0) -> Row:
        everything = {"auto": 1.0, "ring": 0.5, "dbt": 2.0}
        return choices.row(choices.Compared("all_reduce", 8, "direct", everything, {"auto": 1.0, "ring": ring}, wrong))

    assert (judged(0.91).missed, judged(0.89).missed) == ("", "below 0.9")
    assert judged(1.0, wrong=3).missed == "3 wrong elements"
    assert judged(0.89).cells[2:] == ("direct", "1000000.0", "ring", "890000.0", "0.89")
    assert judged(0.89).remark == "ring 0.50, dbt 2.00"


def test_ranks_of_four_processes_meet() -> None:
    assert 0 < meeting.seconds("rank 0", 8) < meeting.SECONDS


# ---- priority --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("words", "expected"), [([], [priority.IN_MEMORY, priority.ON_A_WIRE]), (["2"], [2, 2])])
def test_both_parts_repeat_as_often_as_asked(
    words: list[str], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def nothing(iterations: int) -> Iterator[Row]:
        asked.append(iterations)
        return iter(())

    for where in ("_in_memory", "_on_a_wire"):
        monkeypatch.setattr(priority, where, nothing)
    parser = argparse.ArgumentParser()
    priority.TABLE.configure(parser)
    options = parser.parse_args(["--iterations", *words] if words else [])
    assert not [row for part in priority.TABLE.parts(options) for row in part.rows()]
    assert asked == expected


# ---- transports ------------------------------------------------------------------------------------------------------
def test_a_transport_is_compared_with_ours_and_no_time_is_told_of_a_wrong_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice as slow as what it must reach 0.9 of, and wrong at one size."""
    turns: list[str] = []

    def measured(way: transports.Way, ranks: int, collective: str, choice: Choice) -> list[Measured]:
        turns.append(way.name)
        seconds = 2e-3 if way.name == "ucx" else 1e-3
        wrong = [3 if size == 1000 and way.name == "ucx" else 0 for size in choice.sizes]
        return [
            Measured(collective, ranks, size, {"auto": seconds}, bad)
            for size, bad in zip(choice.sizes, wrong, strict=True)
        ]

    monkeypatch.setattr(transports, "measure", measured)
    options = argparse.Namespace(collectives="all_reduce", ranks="2", sizes="8,1000", rounds=2, transport="ucx")
    sockets, memory = transports.TABLE.parts(options)
    right, wrong, mean = sockets.rows()
    assert turns == ["ucx", "tcp"] * 2
    assert right == Row(("all_reduce", 2, 8, "2000.0", "1000.0", "0.50"))
    assert wrong == Row(("all_reduce", 2, 1000, "", "", ""), "6 wrong elements")
    assert mean.missed == "less than 0.9 of tcp; the worst is 0.50"
    assert len(memory.columns) == len(next(memory.rows()).cells) == 7
