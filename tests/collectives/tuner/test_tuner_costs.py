"""Fits and ranges on costs that are known, and the file that keeps them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.collectives.tuner import report, table
from syntony.collectives.tuner.costs import MODELS, Key, fit, interpolation, line, predicted_unseen, ranges
from syntony.collectives.tuner.grammar import Choice, Rule
from syntony.collectives.tuner.measure import Effort, calls_per_round, typical
from syntony.collectives.tuner.table import Place, Table

SIZES = [8 << shift for shift in range(0, 22, 2)]


@given(st.floats(1e-7, 1e-3), st.floats(1e-12, 1e-8))
def test_a_line_is_found_again(alpha: float, beta: float) -> None:
    found = line({size: alpha + size * beta for size in SIZES})
    for size in (1, 100, 12345, 1 << 26):
        assert float(found(size)) == pytest.approx(alpha + size * beta, rel=1e-6)


@given(st.lists(st.floats(1e-7, 1.0), min_size=1, max_size=11))
def test_every_model_is_positive_and_the_points_are_hit(seconds: list[float]) -> None:
    points = dict(zip(SIZES, seconds, strict=False))
    assert (np.asarray(line(points)([0, 1, 999, 1 << 40])) >= 0).all()
    found = interpolation(points)
    assert (np.asarray(found([0, 1, 999, 1 << 40])) > 0).all()
    for size, expected in points.items():
        assert float(found(size)) == pytest.approx(expected)


def test_the_model_that_predicts_better_is_taken() -> None:
    straight = fit({size: 1e-5 + size * 1e-9 for size in SIZES})
    assert straight.name == "line"
    assert straight.errors["line"] < 1e-6 < straight.errors["points"]
    caches = fit({size: 1e-6 * size**0.5 for size in SIZES})  # a power: straight on logarithmic paper
    assert caches.name == "points"
    assert caches.errors["points"] < 1e-6 < caches.errors["line"]


@given(st.floats(2e-6, 1e-4), st.floats(2e-10, 1e-9))
def test_the_turn_is_where_the_lines_cross(alpha: float, beta: float) -> None:
    quick = {size: 1e-6 + size * 10 * beta for size in SIZES}
    wide = {size: alpha + size * beta for size in SIZES}
    crossing = (alpha - 1e-6) / (9 * beta)
    found = ranges({"quick": fit(quick), "wide": fit(wide)}, SIZES)
    assert [name for _, name in found] == ["quick", "wide"]
    (last, _), (end, _) = found
    assert end is None
    assert last is not None
    assert crossing / 1.5 < last < crossing * 1.5


def test_noise_makes_no_turns() -> None:
    seed = 7
    noise = np.random.default_rng(seed)
    fits = {
        name: fit({size: (1e-5 + size * 1e-9) * (1 + 0.03 * noise.standard_normal()) for size in SIZES})
        for name in ("a", "b", "c")
    }
    assert len(ranges(fits, SIZES)) == 1, f"seed {seed}"


@pytest.mark.parametrize("sizes", [[1 << 20], [8, 1 << 20]])
def test_of_too_few_sizes_nothing_is_foretold(sizes: list[int]) -> None:
    points = {size: 2.7e-5 + size * 1e-9 for size in sizes}
    found = fit(points)
    assert found.name == "points"
    assert np.isnan(list(found.errors.values())).all()
    for make in MODELS.values():
        assert make(points)(sizes[0]) == pytest.approx(points[sizes[0]])
        assert all(np.isnan(predicted_unseen(points, make, size)) for size in sizes)
        assert float(make({8: 2.7e-5})(1 << 20)) == pytest.approx(2.7e-5), "one point says nothing about other sizes"


@given(
    st.dictionaries(st.integers(1, 1 << 30), st.floats(1e-7, 1.0), min_size=3, max_size=11),
    st.data(),
    st.floats(1e-7, 1.0),
)
def test_what_is_foretold_knows_nothing_of_what_came(
    points: dict[int, float], data: st.DataObject, other: float
) -> None:
    size = data.draw(st.sampled_from(sorted(points)))
    for make in MODELS.values():
        foretold = predicted_unseen(points, make, size)
        assert foretold >= 0
        assert foretold == predicted_unseen(points | {size: other}, make, size)


# ---- what counts of many calls ---------------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-6, 2e-6), min_size=9, max_size=60), st.data())
def test_calls_that_other_work_made_longer_do_not_count(calls: list[float], data: st.DataObject) -> None:
    """Up to two thirds of them."""
    slow = data.draw(st.sets(st.integers(0, len(calls) - 1), max_size=2 * len(calls) // 3))
    seconds = np.array([one + (3e-3 if place in slow else 0.0) for place, one in enumerate(calls)])
    assert min(calls) <= typical(seconds) <= max(calls)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_one_slow_call_does_not_decide_how_many_are_timed(slow: int) -> None:
    first = np.full(3, 1e-5)
    first[slow] = 0.5
    assert calls_per_round(first, Effort()) == calls_per_round(np.full(3, 1e-5), Effort()) > Effort().fewest


def test_doubts_are_told_where_there_are_any(place: Place) -> None:
    assert report.busy(place, 0.05) == ""
    crowded = Place(place.processor, 2, (4,), "", "1")
    assert report.busy(crowded, 0.9) == "", "more ranks than cores always wait"
    assert "waited for a core in 90% of the time" in report.busy(Place(place.processor, 4, (4,), "", "1"), 0.9)
    assert report.too_few(some_table(place)).startswith("too few sizes for broadcast: it takes 3")
    costs = {key: points for key, points in some_table(place).costs.items() if key.collective == "all_reduce"}
    assert report.too_few(Table(place, costs)) == ""


# ---- the file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Place.here([[0, 1], [2, 3]])


def some_table(place: Place, factor: float = 1.0) -> Table:
    costs = {
        Key("all_reduce", "direct"): {size: factor * (1e-6 + size * 1e-8) for size in SIZES},
        Key("all_reduce", "ring"): {size: factor * (1e-4 + size * 1e-9) for size in SIZES},
        Key("broadcast", "dbt"): {8: factor * 1e-6},
    }
    return Table(place, costs)


def test_a_table_comes_back_and_its_rules_follow(place: Place, tmp_path: Path) -> None:
    assert table.load(place) is None
    path = some_table(place).write()
    assert path.is_relative_to(tmp_path)
    assert path.name.startswith("2x2-")
    found = table.load(place)
    assert found is not None
    assert found == some_table(place)
    all_reduce, broadcast = found.rules()
    assert [entry.algorithm for entry in all_reduce.ranges] == ["direct", "ring"]
    assert broadcast == Rule(("broadcast",), (Choice("dbt"),))
    assert found.rules({"all_reduce": {"ring"}, "broadcast": {"dbt"}}) == (Rule(("all_reduce",), (Choice("direct"),)),)


def test_other_places_have_other_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    other_ranks = Place.here([[0, 1, 2]])
    monkeypatch.setenv("SYNTONY_SLOT_BYTES", "65536")
    other_slots = Place.here([[0, 1], [2, 3]])
    monkeypatch.setenv("SYNTONY_NETWORK", "partition-b")
    other_network = Place.here([[0, 1], [2, 3]])
    assert len({place.path(), other_ranks.path(), other_slots.path(), other_network.path()}) == 4


def test_new_costs_replace_those_of_their_collective_only(place: Place) -> None:
    new = Table(place, {Key("broadcast", "ring"): {8: 2e-6}})
    merged = new.merged(some_table(place))
    assert merged.points("broadcast") == {"ring": {8: 2e-6}}
    assert set(merged.points("all_reduce")) == {"direct", "ring"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "not JSON at line"),
        (lambda text: "[]", "must be an object"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "reads version 1"),
        (lambda text: text.replace("syntony-tuning", "other"), "it must be"),
        (lambda text: text.replace('"cores"', '"kernels"'), "not what the file's name says"),
        (lambda text: text.replace("1e-06", "-1"), r'points.*\[bytes, seconds\]'),
        (lambda text: text.replace('"costs"', '"cost"'), 'has no "costs"'),
        (lambda text: text.replace("\n}", ',"more": 1}'), "unknown key"),
    ],
)  # fmt: skip
def test_a_broken_file_gives_a_sentence(place: Place, change: object, said: str) -> None:
    path = some_table(place).write()
    text = path.read_text()
    assert callable(change)
    assert change(text) != text
    path.write_text(change(text))
    with pytest.raises(UserError, match=rf"{path}: .*{said}"):
        table.load(place)


def _write_often(place: Place, factor: float) -> None:
    for _ in range(50):
        some_table(place, factor).write()


def test_two_writers_leave_one_whole_table(place: Place) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_often, args=(place, factor)) for factor in (1.0, 2.0)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert table.load(place) in (None, some_table(place, 1.0), some_table(place, 2.0))
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert table.load(place) in (some_table(place, 1.0), some_table(place, 2.0))
    assert list(place.path().parent.iterdir()) == [place.path()]


def test_an_unwritable_place_gives_a_sentence(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot be made"):
        some_table(place).write()
