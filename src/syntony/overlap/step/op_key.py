"""The identity of an Op: a value in the program, text in plan files and messages.

    fwd.3.0.1/0       kind fwd, layer 3, microbatch 0, segment 1, part 0
    dispatch.3.0.f    kind dispatch, layer 3, microbatch 0, direction f
    reduce.3          kind reduce, layer 3
    reduce.9+8+7/2    a union of reduce.9, reduce.8 and part 2 of reduce.7

`OpKey.parse` and `str` are inverse to each other for every text; text that does not follow this form (names in other
tools' traces) is a kind as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

FORWARD, BACKWARD = "f", "b"  # directions; and for a device's loans to another:
LENT, RETURNED = "l", "r"
TWIN = "t"  # instead of these: an Op per step on the second of a layer's two devices (Layout.copies)
_PLAIN = re.compile(
    r"([^./+]+)\.(N)(?:\.(N)(?:\.(N))?)?(?:\.([a-z]))?(?:/(N))?".replace("N", r"0|[1-9][0-9]{0,8}")
)  # of nearly all


class OpKey(NamedTuple):
    """What an Op is, and what it belongs to. A tuple, so that hashing it is cheap.

    kind         what it does: a Kind, the name of a CommSpec, or `reduce`, `replicas`, `share`, `meet`, `renew`,
                 `gather`
    layer        or the shadow of one (`Graph.shadow`); of a `norm`, its device
    microbatch   -1: it runs once per step
    segment      -1: its layer has only one, or it communicates
    direction    f or b, for communication within a pass; l or r, for loans; or TWIN
    part         which part of it, of which part, .. ; empty: it was not cut
    others       the other members of a union, all of the same kind. A part of a union is written as that of its last
                 one
    """

    kind: str
    layer: int = -1
    microbatch: int = -1
    segment: int = -1
    direction: str = ""
    part: tuple[int, ...] = ()
    others: tuple[OpKey, ...] = ()

    @staticmethod
    def parse(text: str) -> OpKey:
        """Parses a key."""
        plain = _PLAIN.fullmatch(text)
        if plain:
            kind, layer, microbatch, segment, direction, part = plain.groups()
            numbers = (int(layer), int(microbatch or -1), int(segment or -1))
            return OpKey(kind, *numbers, direction or "", (int(part),) if part else ())
        kind, dot, rest = text.partition(".")
        if dot:
            tails = [_parsed(kind, tail) for tail in rest.split("+")]
        else:
            kind, *cuts = text.split("/")
            tails = [OpKey(kind, part=tuple(map(int, cuts)))] if all(map(_is_number, cuts)) else []
        if tails and None not in tails:
            first, *others = (tail for tail in tails if tail is not None)
            found = first._replace(others=tuple(others)) if others else first
            if str(found) == text:
                return found
        return OpKey(text)

    @staticmethod
    def union(keys: Iterable[OpKey]) -> OpKey:
        """The key of an Op that does the work of all of these, which have one kind."""
        first, *others = (one for key in keys for one in key.members)
        return first._replace(others=tuple(others))

    @property
    def members(self) -> tuple[OpKey, ...]:
        """The members of a union; for all others, itself."""
        return (self._replace(others=()), *self.others) if self.others else (self,)

    @property
    def whole(self) -> OpKey:
        """The Op of which it is a part, before any cut; or itself."""
        return self._replace(part=()) if self.part else self

    @property
    def twin(self) -> OpKey:
        """The corresponding Op on the other of a layer's two devices."""
        members = [one._replace(direction="" if one.direction else TWIN) for one in self.members]
        return members[0]._replace(others=tuple(members[1:]))

    @property
    def sender(self) -> OpKey:
        """For the end of a message: the sending end."""
        return self._replace(kind="send")

    def cut(self, number: int) -> OpKey:
        """Its part with this number."""
        if self.others:
            return self._replace(others=(*self.others[:-1], self.others[-1].cut(number)))
        return self._replace(part=(*self.part, number))

    def __str__(self) -> str:
        kind, layer, microbatch, segment, direction, part, others = self
        words = [kind, *(str(number) for number in (layer, microbatch, segment) if number >= 0)]
        if direction:
            words.append(direction)
        text = ".".join(words)
        for number in part:
            text += f"/{number}"
        for other in others:
            text += "+" + str(other).removeprefix(f"{kind}.")
        return text

    def __repr__(self) -> str:
        return repr(str(self))


def _parsed(kind: str, tail: str) -> OpKey | None:
    body, *cuts = tail.split("/")
    words = body.split(".")
    numbers = [int(word) for word in takewhile(_is_number, words[:3])]
    if not all(map(_is_number, cuts)):
        return None
    layer, microbatch, segment = (*numbers, -1, -1, -1)[:3]
    return OpKey(kind, layer, microbatch, segment, ".".join(words[len(numbers) :]), tuple(map(int, cuts)))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 10
