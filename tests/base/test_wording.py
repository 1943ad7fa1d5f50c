"""Numbers and names in sentences."""

from __future__ import annotations

import pytest

from syntony.base.wording import bar, did_you_mean


@pytest.mark.parametrize(
    ("word", "guess"),
    [
        ("rign", " (did you mean ring?)"),
        ("RING", " (did you mean ring?)"),
        ("xyz", ""),
        ("rnak3", " (did you mean Rank3?)"),
    ],
)
def test_a_guess_at_a_name(word: str, guess: str) -> None:
    assert did_you_mean(word, ("ring", "star", "Rank3")) == guess


def test_a_bar_is_full_only_where_it_is_all() -> None:
    assert bar(1.0, 10) == "[##########]"
    assert bar(0.999, 10) == "[#########.]"
    assert bar(0.5, 10) == "[#####.....]"
    assert bar(0.0, 10) == "[..........]"
