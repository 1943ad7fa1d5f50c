"""The syntax of algorithm rules, as users write them in SYNTONY_ALGO and in `algo` of a configuration file.

    all_reduce:two_shot<=64K,ring ; broadcast,reduce:dbt ; ^hierarchical

    rules        rule (";" rule)*
    rule         [collective ("," collective)* ":"] (ranges | exclusion)
                 without collectives: applies to each that no other rule names and that has all these algorithms
    ranges       algorithm ["<=" size] ("," algorithm ["<=" size])*
                 ascending; beyond the last size the rule does not apply; `auto` is the built-in choice
    exclusion    "^" algorithm ("," algorithm)*                      the built-in choice, but never these
    size         digits [K | M | G | T]                              bytes of the operation; powers of 1024

White space and line ends may separate words. Errors give the position of the mistake.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from syntony.base import quantity
from syntony.base.command import UserError
from syntony.base.wording import did_you_mean

_WORD = re.compile(r"\s*(<=|[:;,^]|[^\s:;,^<]+|<)")
_UNITS = "KMGT"
AUTO = "auto"


@dataclass(frozen=True)
class Choice:
    """`algorithm` up to `last` bytes, inclusive; None: unbounded."""

    algorithm: str
    last: int | None = None


@dataclass(frozen=True)
class Rule:
    """A rule for these collectives: its ranges in ascending order or, if there are none, what it excludes."""

    collectives: tuple[str, ...]
    ranges: tuple[Choice, ...] = ()
    excluded: frozenset[str] = frozenset()


def parse(text: str, where: str, algorithms: Mapping[str, Sequence[str]]) -> tuple[Rule, ...]:
    """The rules, each with the collectives that it applies to. `algorithms`: the valid names by collective.

    Raises UserError that begins with `where` and the position.
    """
    return _Parser(text, where, algorithms).rules()


def show(rules: Sequence[Rule]) -> str:
    """The rules in the syntax that `parse` reads."""
    return ";".join(f"{','.join(rule.collectives)}:{_show_body(rule)}" for rule in rules)


def show_size(size: int) -> str:
    """Bytes with the largest unit that divides them."""
    power = 0
    while size and size % 1024 == 0 and power < len(_UNITS):
        size //= 1024
        power += 1
    return f"{size}{' KMGT'[power].strip()}"


def _show_body(rule: Rule) -> str:
    if not rule.ranges:
        return "^" + ",".join(sorted(rule.excluded))
    return ",".join(
        entry.algorithm if entry.last is None else f"{entry.algorithm}<={show_size(entry.last)}"
        for entry in rule.ranges
    )


@dataclass(frozen=True)
class _Word:
    text: str
    place: int  # of its first character, from 1


class _Parser:
    """Reads words from left to right."""

    def __init__(self, text: str, where: str, algorithms: Mapping[str, Sequence[str]]) -> None:
        self._where = where
        self._algorithms = algorithms
        self._words = [_Word(match[1], match.start(1) + 1) for match in _WORD.finditer(text)]
        self._end = _Word("", len(text) + 1)
        self._at = 0

    def rules(self) -> tuple[Rule, ...]:
        found: list[Rule] = []
        for_the_rest: tuple[_Word, Rule] | None = None
        while self._next() != "":
            first = self._word()
            rule = self._rule(found)
            if rule.collectives:
                found.append(rule)
            elif for_the_rest is not None:
                raise self._wrong(first, "is a second rule without collectives: name them, as in all_reduce:ring")
            else:
                for_the_rest = first, rule
            if self._next() != "" and not self._take(";"):
                raise self._wrong(self._word(), 'does not belong there: rules are separated by ";"')
            while self._take(";"):
                pass
        if for_the_rest is not None:
            found += self._for_the_rest(*for_the_rest, found)
        return tuple(found)

    def _rule(self, before: Sequence[Rule]) -> Rule:
        collectives = self._collectives(before) if self._names_collectives() else ()
        if self._take("^"):
            return Rule(collectives, excluded=frozenset(self._excluded(collectives)))
        return Rule(collectives, ranges=tuple(self._ranges(collectives)))

    def _names_collectives(self) -> bool:
        """Whether a ":" comes before the end of the rule."""
        for word in self._words[self._at :]:
            if word.text in (":", ";"):
                return word.text == ":"
        return False

    def _collectives(self, before: Sequence[Rule]) -> tuple[str, ...]:
        named: list[str] = []
        while True:
            word = self._name("a collective")
            if word.text not in self._algorithms:
                raise self._wrong(word, f"is not a collective: there are {self._listed(word.text, self._algorithms)}")
            if word.text in named or any(word.text in rule.collectives for rule in before):
                raise self._wrong(word, "has a rule already: write its algorithms into one")
            named.append(word.text)
            if self._take(":"):
                return tuple(named)
            if not self._take(","):
                raise self._wrong(self._word(), 'does not belong there: collectives end with ":"')

    def _ranges(self, collectives: Sequence[str]) -> Iterator[Choice]:
        last = -1
        while True:
            name = self._algorithm(collectives, AUTO)
            if not self._take("<="):
                yield Choice(name)
                if self._next() == ",":
                    raise self._wrong(self._word(), f'comes too late: {name} is for all sizes; limit it with "<="')
                return
            word = self._name("a size")
            try:
                size = quantity.size(word.text)
            except ValueError as error:
                raise self._wrong(word, f"is not a size: write {error}") from None
            if size >= 1 << 62:
                raise self._wrong(word, "is more than any memory holds")
            if size <= last:
                raise self._wrong(word, f"must be more than the size before it, {show_size(last)}")
            last = size
            yield Choice(name, size)
            if not self._take(","):
                return

    def _excluded(self, collectives: Sequence[str]) -> Iterator[str]:
        first = self._word()
        names: list[str] = []
        while True:
            names.append(self._algorithm(collectives))
            if not self._take(","):
                break
        for collective in collectives:
            self._excludable(first, names, collective)
        yield from names

    def _excludable(self, first: _Word, names: Collection[str], collective: str) -> None:
        if not set(self._algorithms[collective]) - set(names):
            raise self._wrong(first, f"begins an exclusion of all algorithms of {collective}")

    def _algorithm(self, collectives: Sequence[str], *more: str) -> str:
        """A name that each of the collectives has or, without collectives, that any has."""
        word = self._name("an algorithm")
        if word.text in more:
            return word.text
        every = dict.fromkeys(name for names in self._algorithms.values() for name in names)
        if not collectives and word.text not in every:
            raise self._wrong(word, f"is not an algorithm: there are {self._listed(word.text, [*every, *more])}")
        for collective in collectives:
            known = self._algorithms[collective]
            if word.text not in known:
                raise self._wrong(
                    word, f"is not an algorithm of {collective}: it has {self._listed(word.text, [*known, *more])}"
                )
        return word.text

    def _for_the_rest(self, first: _Word, rule: Rule, named: Sequence[Rule]) -> list[Rule]:
        taken = {collective for other in named for collective in other.collectives}
        left = {collective: set(known) for collective, known in self._algorithms.items() if collective not in taken}
        if rule.ranges:
            needed = {entry.algorithm for entry in rule.ranges} - {AUTO}
            rest = tuple(collective for collective, known in left.items() if needed <= known)
            rules = [Rule(rest, rule.ranges)] if rest else []
        else:
            rules = [Rule((c,), excluded=rule.excluded & known) for c, known in left.items() if rule.excluded & known]
            for one in rules:
                self._excludable(first, one.excluded, one.collectives[0])
        if not rules:
            raise self._wrong(first, "begins a rule that is for no collective: none that is left has its algorithms")
        return rules

    # ---- words -------------------------------------------------------------------------------------------------------

    def _word(self) -> _Word:
        return self._words[self._at] if self._at < len(self._words) else self._end

    def _next(self) -> str:
        return self._word().text

    def _take(self, text: str) -> bool:
        found = self._next() == text
        self._at += found
        return found

    def _name(self, what: str) -> _Word:
        word = self._word()
        if word.text in ("", "<=", "<", ":", ";", ",", "^"):
            raise self._wrong(word, f"stands where {what} must be")
        self._at += 1
        return word

    def _listed(self, word: str, names: Sequence[str] | Mapping[str, object]) -> str:
        return ", ".join(names) + did_you_mean(word, names)

    def _wrong(self, word: _Word, what: str) -> UserError:
        shown = f'"{word.text[:40]}"' if word.text else "the end"
        return UserError(f"{self._where}, character {word.place}: {shown} {what}")
