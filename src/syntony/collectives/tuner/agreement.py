"""How a group overrides the built-in choices: ranks exchange their settings and table and all derive the same result.

    rank 0   {"said": [["SYNTONY_ALGO", ..]], "tuned": "all_reduce:two_shot<=64K,ring", "file": ".."} ──┐
    rank 1   {"said": [["SYNTONY_ALGO", ..]]} ──────────────────────────────────────────────────────────┴─▶ tables

Settings must be equal; a rank whose settings are wrong or differ is named on every rank. All ranks use rank 0's tuned
table. Precedence per collective: SYNTONY_ALGO, then the configuration file, then the tuned table, then the built-in
choice (csrc/core/selection/selector.cpp).

The core calls `note` and `agreed` when it makes a group, including one made from another group
(csrc/core/selection/tuner.hpp).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from syntony import _core
from syntony.base.command import UserError
from syntony.collectives import aggregators
from syntony.collectives.bootstrap.user_secret import given_secret
from syntony.collectives.tuner import grammar, settings, table
from syntony.collectives.tuner.grammar import AUTO, Rule
from syntony.collectives.tuner.settings import Settings

Boxes = Sequence[Sequence[int]]
SizeRange = tuple[int, str, str]  # last bytes, algorithm, why
Tables = list[tuple[str, str, list[SizeRange]]]  # name, collective, ranges
Ways = tuple[list[str], str]  # to aggregators, by rank (aggregators.py), and the aggregators' secret

_END = sys.maxsize
_LARGEST = 1 << 40  # bytes: no built-in choice changes beyond this size
_LONGEST_TEXT = 1500  # characters of a setting in a note
_SUBSTITUTES = ("two_shot", "direct", "ring", "dbt")


class Tuner:
    """The core's interface to the tuner. One per process."""

    def note(self, rank: int, boxes: Boxes) -> str:
        """What this rank sends to the others; rank 0 includes the tuned table."""
        try:
            said = settings.read(os.environ)
            way = aggregators.way(os.environ)
        except UserError as error:
            return json.dumps({"fault": str(error)[:_LONGEST_TEXT]})
        note: dict[str, object] = {"aggregators": way} if way else {}
        if said.said:
            note["said"] = [[one.variable, _short(one.shown), _short(one.compared)] for one in said.said]
        if rank == 0 and sum(map(len, boxes)) > 1 and said.mode != "off":
            place = table.Place.here(boxes)
            found = _kept(place)
            if found is not None:
                note["tuned"] = grammar.show(tuned_rules(found, said))
                note["file"] = str(place.path())
                if found.levels:
                    note["levels"] = found.levels
        return json.dumps(note) if note else ""

    def agreed(self, boxes: Boxes, notes: Sequence[str]) -> tuple[list[tuple[str, _core.Program]], Tables, Boxes, Ways]:
        """The schedules to load, the tables to set, the levels, and the paths to aggregators, if there are any.
        CommunicationError if ranks differ."""
        if not any(notes) or sum(map(len, boxes)) == 1:
            return [], [], [], ([], "")
        told = [_parsed(note, rank) for rank, note in enumerate(notes)]
        _compare(told)
        tuned = grammar.parse(told[0].get("tuned", ""), "rank 0's tuned table", settings.algorithms())
        levels: Boxes = told[0].get("levels", [])
        said = settings.read(os.environ)
        ways = [note.get("aggregators", "") for note in told]
        secret = given_secret() if any(ways) else ""
        return *conclude(said, levels or boxes, tuned, told[0].get("file", "")), levels, (ways, secret)


CURRENT = Tuner()


def lacks_table(notes: Sequence[str]) -> bool:
    """Whether a group that has exchanged these notes has no tuned table. The same on every rank."""
    return "tuned" not in _parsed(notes[0], 0)


def tuned_rules(found: table.Table, said: Settings) -> tuple[Rule, ...]:
    """The table's ranges, restricted to algorithms that exist and are not excluded."""
    known = settings.algorithms()
    excluded = {
        collective: set(said.rules[collective][0].excluded if collective in said.rules else ())
        | {name for name in found.points(collective) if name not in known.get(collective, ())}
        for collective in found.collectives
    }
    return found.rules(excluded)


def conclude(
    said: Settings, boxes: Boxes, tuned: Sequence[Rule], file: str
) -> tuple[list[tuple[str, _core.Program]], Tables]:
    """The schedules to load and the tables to set; only for collectives that do not use just the built-in choice."""
    by_table = {collective: rule for rule in tuned for collective in rule.collectives}
    schedules = _Schedules(said.schedules, sum(map(len, boxes)))
    tables: Tables = []
    for collective in settings.algorithms():
        ranges: list[SizeRange] = [(_END, AUTO, "")]
        if collective in by_table:
            ranges = _over(ranges, by_table[collective], f"tuned table {file}")
        if collective in said.rules:
            rule, who = said.rules[collective]
            ranges = _over(ranges, rule, who) if rule.ranges else _without(ranges, rule, who, collective, boxes)
        ranges = schedules.in_place(ranges, collective)
        if ranges != [(_END, AUTO, "")]:
            tables.append((AUTO, collective, ranges))
    return schedules.programs, tables


def _over(below: Sequence[SizeRange], rule: Rule, who: str) -> list[SizeRange]:
    """The rule's ranges, and beyond its last size those of `below`."""
    ranges = [(_END if entry.last is None else entry.last, entry.algorithm, who) for entry in rule.ranges]
    return [*ranges, *(entry for entry in below if entry[0] > ranges[-1][0])]


def _without(below: Sequence[SizeRange], rule: Rule, who: str, collective: str, boxes: Boxes) -> list[SizeRange]:
    """`below`, with other algorithms in place of those that the rule excludes."""
    ranges: list[SizeRange] = []
    begin = 0
    for last, algorithm, why in below:
        if algorithm == AUTO:
            ranges += _automatic(rule, who, collective, boxes, begin, last)
        else:
            ranges.append((last, algorithm, f"{why}; {who}"))
        begin = last + 1
    return ranges


def _automatic(rule: Rule, who: str, collective: str, boxes: Boxes, begin: int, end: int) -> list[SizeRange]:
    """The built-in choices from `begin` to `end` bytes, with others in place of those that the rule excludes."""
    every_rank_alone = [[rank] for box in boxes for rank in box]

    def choice(size: int) -> str:
        """`auto` if nothing is excluded."""
        own = {_core.automatic_choice(collective, size, boxes, crowded)[0] for crowded in (False, True)}
        if not own & rule.excluded:  # whether ranks share processors or not
            return AUTO
        # Mostly algorithms for several hosts get excluded: the built-in choice that ignores hosts is the next best.
        other, _ = _core.automatic_choice(collective, size, every_rank_alone)
        names = settings.self_sufficient(collective)
        order = [other, *(name for name in _SUBSTITUTES if name in names), *names]
        return next(name for name in order if name not in rule.excluded)

    sizes = sorted({begin, *(size for power in range(41) if begin < (size := 1 << power) < end), min(end, _LARGEST)})
    ranges: list[SizeRange] = []
    for low, high in pairwise(sizes):
        if choice(low) != choice(high):
            ranges.append((_last_alike(choice, low, high), choice(low), who))
    return [*ranges, (end, choice(sizes[-1]), who)]


def _last_alike(choice: Callable[[int], str], low: int, high: int) -> int:
    """The last size from `low` on with the same choice; `high` has another, and there is one change in between."""
    first = choice(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if choice(middle) == first else (low, middle)
    return low


class _Schedules:
    """Loads the schedule files behind names when a range needs them: proves them, and splits portfolios into ranges."""

    def __init__(self, files: Mapping[str, Path], ranks: int) -> None:
        self.programs: list[tuple[str, _core.Program]] = []
        self._files = files
        self._ranks = ranks

    def in_place(self, ranges: Sequence[SizeRange], collective: str) -> list[SizeRange]:
        """The ranges with names replaced by loaded schedules, or by our choice if for another number of ranks."""
        found: list[SizeRange] = []
        for last, name, why in ranges:
            if name not in self._files:
                found.append((last, name, why))
                continue
            entries = self._entries(name, collective)
            if not entries:
                found.append((last, AUTO, why))
            begin = found[-1][0] if found else -1
            for end, program in entries:
                if end > begin and (not found or found[-1][0] < last):
                    found.append((min(end, last), program, f"{why}: {name}"))
        return found

    def _entries(self, name: str, collective: str) -> list[tuple[int, str]]:
        """(last bytes, loaded name); empty if the file is for another number of ranks. UserError if it is refused."""
        from syntony.synth.engines.portfolio import Portfolio
        from syntony.synth.formats.loading import Loaded, prove, read
        from syntony.synth.model.program import Program

        path = self._files[name]
        loaded = read(path)
        parts = [(_END, loaded)]
        if isinstance(loaded.content, Portfolio):
            entries_of = loaded.content.entries
            parts = [(_END if one.last is None else one.last, Loaded(one.schedule)) for one in entries_of]
        content = parts[0][1].content
        assert not isinstance(content, Portfolio)
        if (content.ranks if isinstance(content, Program) else content.collective.ranks) != self._ranks:
            return []
        entries = []
        for number, (last, part) in enumerate(parts):
            program = prove(part, path)
            if program.collective != collective:
                raise UserError(f"{path}: it is for {program.collective}, and named for {collective}")
            title = f"{name} {number}" if len(parts) > 1 else name
            self.programs.append((title, program))
            entries.append((last, title))
        return entries


def _kept(place: table.Place) -> table.Table | None:
    """The table for a place, or None; an unreadable table is reported on stderr and ignored."""
    try:
        return table.load(place)
    except UserError as error:
        print(f"syntony: {error}; it is not used (`syntony tune` makes it anew)", file=sys.stderr)
        return None


def _short(text: str) -> str:
    """The text or, if it is long, its beginning and digest: notes must be short."""
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:100]}.. ({hashlib.sha256(text.encode()).hexdigest()[:16]})"


def _parsed(note: str, rank: int) -> dict[str, Any]:
    try:
        parsed = json.loads(note or "{}")
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise _error(f"rank {rank} told its settings in a form that is not ours (is it another version?)", rank)
    return parsed


def _compare(told: Sequence[Mapping[str, Any]]) -> None:
    """Raises the same error on every rank: the first fault, or the first rank that differs from rank 0."""
    for rank, note in enumerate(told):
        if "fault" in note:
            raise _error(f"rank {rank}: {note['fault']}", rank)
    said = [{entry[0]: (entry[1], entry[2]) for entry in note.get("said", [])} for note in told]
    for rank, theirs in enumerate(said):
        for variable in dict.fromkeys([*said[0], *theirs]):
            first, other = said[0].get(variable, ("unset", "")), theirs.get(variable, ("unset", ""))
            if first[1] != other[1]:
                detail = " (or in what the files say)" if first[0] == other[0] else ""
                raise _error(
                    f"rank {rank} has {variable}={other[0]} and rank 0 {first[0]}: they must be equal{detail}", rank, 0
                )


def _error(sentence: str, *ranks: int) -> _core.CommunicationError:
    error = _core.CommunicationError(sentence)
    error.kind = "mismatch"
    error.ranks = tuple(dict.fromkeys(ranks))
    return error
