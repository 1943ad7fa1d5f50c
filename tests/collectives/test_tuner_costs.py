"""Fits and turns on costs that are known, and the file that keeps them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.tuner import table
from collectives.tuner.costs import Key, fit, interpolation, line, turns
from collectives.tuner.grammar import Choice, Rule
from collectives.tuner.table import Place, Table
from topologies.command import UserError

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
    found = turns({"quick": fit(quick), "wide": fit(wide)}, SIZES)
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
    assert len(turns(fits, SIZES)) == 1, f"seed {seed}"


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
    assert [turn.algorithm for turn in all_reduce.turns] == ["direct", "ring"]
    assert broadcast == Rule(("broadcast",), (Choice("dbt"),))
    assert found.rules({"all_reduce": {"ring"}, "broadcast": {"dbt"}}) == (Rule(("all_reduce",), (Choice("direct"),)),)


def test_other_places_have_other_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    other_ranks = Place.here([[0, 1, 2]])
    monkeypatch.setenv("SYNTONY_SLOT_BYTES", "65536")
    other_slots = Place.here([[0, 1], [2, 3]])
    assert len({place.path(), other_ranks.path(), other_slots.path()}) == 3


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
