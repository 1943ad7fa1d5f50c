"""SYNTONY_ALGO's grammar: what it means, that it prints as it reads, and what is said about mistakes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.collectives.tuner.grammar import AUTO, Choice, Rule, parse, show, show_size

KNOWN = {
    "all_reduce": ("direct", "two_shot", "ring", "dbt"),
    "broadcast": ("direct", "ring", "dbt"),
    "reduce": ("direct", "dbt"),
}


def read(text: str) -> dict[str, Rule]:
    return {collective: rule for rule in parse(text, "SYNTONY_ALGO", KNOWN) for collective in rule.collectives}


def test_what_rules_mean() -> None:
    rules = read(" all_reduce : two_shot <= 64K , ring ;\n broadcast,reduce:dbt;")
    assert rules["all_reduce"].ranges == (Choice("two_shot", 65536), Choice("ring"))
    assert rules["broadcast"].ranges == rules["reduce"].ranges == (Choice("dbt"),)
    assert read("") == {}


def test_a_rule_without_collectives_is_for_those_that_are_left_and_have_it() -> None:
    rules = read("ring; all_reduce:dbt")
    assert rules["all_reduce"].ranges == (Choice("dbt"),)
    assert rules["broadcast"].ranges == (Choice("ring"),)
    assert "reduce" not in rules
    excluded = read("^two_shot,ring")
    assert {name: rule.excluded for name, rule in excluded.items()} == {
        "all_reduce": {"two_shot", "ring"},
        "broadcast": {"ring"},
    }


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("all_reduce:rign<=8", 12, 'is not an algorithm of all_reduce: it has .* .did you mean ring'),
        ("reduce:two_shot", 8, "is not an algorithm of reduce"),
        ("all_reduce:ring,dbt", 16, 'limit it with "<="'),
        ("all_redcue:ring", 1, "is not a collective: .* .did you mean all_reduce"),
        ("ring:all_reduce", 1, "is not a collective"),
        ("all_reduce:ring<=1M,dbt<=64K", 26, "must be more than the size before it, 1M"),
        ("all_reduce:ring<=8X", 18, "is not a size"),
        ("all_reduce:ring<=9999999T", 18, "more than any memory"),
        ("all_reduce:ring<8", 16, "does not belong there"),
        ("all_reduce:ring broadcast:dbt", 17, 'separated by ";"'),
        ("all_reduce ring:dbt", 12, 'collectives end with ":"'),
        ("all_reduce:", 12, "the end stands where an algorithm"),
        ("all_reduce:ring<=", 18, "the end stands where a size"),
        ("ring;dbt", 6, "a second rule without collectives"),
        ("all_reduce:ring;all_reduce:dbt", 17, "has a rule already"),
        ("all_reduce:^direct,two_shot,ring,dbt", 13, "exclusion of all algorithms of all_reduce"),
        ("^direct,dbt", 1, "exclusion of all algorithms of reduce"),
        ("^auto", 2, "is not an algorithm"),
        ("all_reduce,broadcast,reduce:dbt; ring", 34, "for no collective"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(text: str, place: int, said: str) -> None:
    with pytest.raises(UserError, match=rf"^SYNTONY_ALGO, character {place}: .*{said}"):
        read(text)


sizes = st.one_of(st.integers(0, 1 << 61), st.integers(0, 40).map(lambda power: 1 << power))


@st.composite
def some_rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    rules = []
    for collective in draw(st.lists(st.sampled_from(sorted(KNOWN)), unique=True)):
        names = st.sampled_from([*KNOWN[collective], AUTO])
        if draw(st.booleans()):
            known = KNOWN[collective]
            excluded = draw(st.sets(st.sampled_from(known), min_size=1, max_size=len(known) - 1))
            rules.append(Rule((collective,), excluded=frozenset(excluded)))
        else:
            ranges = [Choice(draw(names), last) for last in sorted(draw(st.sets(sizes, max_size=3)))]
            if not ranges or draw(st.booleans()):
                ranges.append(Choice(draw(names)))
            rules.append(Rule((collective,), tuple(ranges)))
    return tuple(rules)


@given(some_rules())
def test_rules_print_as_they_read(rules: tuple[Rule, ...]) -> None:
    assert parse(show(rules), "x", KNOWN) == rules


@given(sizes)
def test_sizes_print_as_they_read(size: int) -> None:
    (rule,) = parse(f"all_reduce:ring<={show_size(size)}", "x", KNOWN)
    assert rule.ranges == (Choice("ring", size),)


words = ["all_reduce", "reduce", "ring", "two_shot", "auto", ":", ";", ",", "^", "<=", "<", "8", "64K", " ", "\n", "é"]


@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(words), max_size=12).map("".join)))
def test_garbage_gives_rules_or_a_sentence_with_a_place(text: str) -> None:
    try:
        rules = parse(text, "SYNTONY_ALGO", KNOWN)
    except UserError as error:
        match = re.match(r"SYNTONY_ALGO, character (\d+): ", str(error))
        assert match
        assert 1 <= int(match[1]) <= len(text) + 1
    else:
        assert parse(show(rules), "x", KNOWN) == rules
