"""Faults: what happens to which wire, and when. Pure; the lab applies it.

    cut A-B at T [for T]             nothing passes in either direction; packets vanish without notice
    slow A-B to RATE at T [for T]    both directions; without `for` until the end
    flap A-B every T [for T] [at T]  cut repeatedly: first `at` (by default after one period), each time `for` that
                                     long (by default for half the period)

A and B are nodes of the topology or machines of the lab; times count from the start of the command. A wire with several
faults at once is cut if one of them cuts it; otherwise it has the lowest of their rates.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from syntony.base.quantity import bit_rate, duration
from syntony.lab.lab_spec import LabError, LabSpec, Wire

_WORDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = MappingProxyType(
    {  # verb: words it needs, words it may have
        "cut": (frozenset({"at"}), frozenset({"for"})),
        "slow": (frozenset({"to", "at"}), frozenset({"for"})),
        "flap": (frozenset({"every"}), frozenset({"for", "at"})),
    }
)
_GRAMMAR = MappingProxyType(
    {
        "cut": "cut A-B at 5s for 2s",
        "slow": "slow A-B to 50mbit at 3s",
        "flap": "flap A-B every 2s",
    }
)


@dataclass(frozen=True)
class Fault:
    """`rate` None: the wires are cut. Times in seconds; `lasts` None: to the end; `period` None: once."""

    text: str
    wires: tuple[Wire, ...]
    rate: Fraction | None
    at: float
    lasts: float | None
    period: float | None


@dataclass(frozen=True, order=True)
class Change:
    """At `seconds`, fault number `fault` begins or ends."""

    seconds: float
    fault: int
    begins: bool


def parse_fault(text: str, spec: LabSpec) -> Fault:
    """Parses one fault. Raises LabError that names the wrong word."""
    words = text.split()
    if not words or words[0] not in _WORDS:
        what = f"begins with {words[0]!r}" if words else "is empty"
        raise LabError(f"the fault {text!r} {what}; one begins with {', '.join(_WORDS)}")
    verb, *rest = words
    if not rest:
        raise LabError(f"the fault {text!r} names no wire; one is written {_GRAMMAR[verb]!r}")
    wires = spec.wires_between(rest[0])
    values = _values(text, verb, rest[1:])
    rate = _quantity(text, "to", values["to"]) if "to" in values else None
    times = {word: float(_quantity(text, word, values[word])) for word in ("at", "for", "every") if word in values}
    for word in ("for", "every"):
        if times.get(word) == 0:
            raise LabError(f"the fault {text!r} says {word} {values[word]}; that takes no time at all")
    period = times.get("every")
    if period is None:
        return Fault(text, wires, rate, times["at"], times.get("for"), None)
    lasts = times.get("for", period / 2)
    if lasts >= period:
        raise LabError(f"the fault {text!r}: for {values['for']} leaves nothing of every {values['every']}")
    return Fault(text, wires, rate, times.get("at", period), lasts, period)


def changes(faults: Iterable[Fault]) -> Iterator[Change]:
    """Beginnings and ends of all faults in order of time; infinite if one of them flaps."""
    return heapq.merge(*(_changes(number, fault) for number, fault in enumerate(faults)))


def rate_under(rate: Fraction, faults: Iterable[Fault]) -> Fraction | None:
    """The rate of a wire while `faults` last; None if it is cut."""
    for fault in faults:
        if fault.rate is None:
            return None
        rate = min(rate, fault.rate)
    return rate


def _changes(number: int, fault: Fault) -> Iterator[Change]:
    begins = fault.at
    while True:
        yield Change(begins, number, True)
        if fault.lasts is not None:
            yield Change(begins + fault.lasts, number, False)
        if fault.period is None:
            return
        begins += fault.period


def _values(text: str, verb: str, words: list[str]) -> dict[str, str]:
    needed, possible = _WORDS[verb]
    values: dict[str, str] = {}
    for key, value in zip(words[::2], [*words[1::2], None], strict=False):
        if key not in needed | possible:
            raise LabError(f"the fault {text!r}: {key!r} means nothing there; it is written {_GRAMMAR[verb]!r}")
        if key in values:
            raise LabError(f"the fault {text!r} says {key!r} twice")
        if value is None:
            raise LabError(f"the fault {text!r} ends with {key!r}; it is written {_GRAMMAR[verb]!r}")
        values[key] = value
    for key in sorted(needed - set(values)):
        raise LabError(f"the fault {text!r} lacks {key!r}; it is written {_GRAMMAR[verb]!r}")
    return values


def _quantity(text: str, key: str, value: str) -> Fraction:
    try:
        return bit_rate(value) if key == "to" else Fraction(duration(value))
    except ValueError as error:
        raise LabError(f"the fault {text!r}: {key} {value!r} must be {error}") from None
