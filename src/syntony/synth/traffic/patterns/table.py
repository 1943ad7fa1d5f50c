"""The table of patterns: classical algorithms of every collective as messages, without chunks or proofs.

A pattern is named `COLLECTIVE:ALGORITHM`, or `pipeline:8` and `parameter-server:4` with a number. `size` is the size of
the collective (model/collective.py); for a parameter server, the bytes of one worker's gradients; for a pipeline, the
bytes of one micro-batch. To add one: a function in a file here, and its row in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syntony.base.command import UserError
from syntony.base.wording import did_you_mean
from syntony.synth.traffic.messages import MOST, Messages, TooMuchError
from syntony.synth.traffic.patterns import exchange, halving_doubling, parameter_server, pipeline, ring, trees


@dataclass(frozen=True)
class Pattern:
    """`build(members, size)` makes the messages; with a `number` (what it counts), `build(members, size, number)`."""

    name: str
    build: Callable[..., Messages]
    summary: str
    number: str = ""
    per_pair: int = 0
    """Approximate number of messages per pair of members (or of a member and each of the number); 0: few."""


_ROWS = (
    Pattern("all_reduce:ring", ring.two_rounds, "reduce_scatter and all_gather round a ring", per_pair=2),
    Pattern(
        "all_reduce:halving-doubling", halving_doubling.rabenseifner, "partners at halving, then doubling distances"
    ),
    Pattern("all_reduce:direct", exchange.in_two_shots, "direct reduce_scatter, then direct all_gather", per_pair=2),
    Pattern("all_reduce:tree", trees.all_reduce, "binomial tree up, then down"),
    Pattern("all_gather:ring", ring.one_round, "n-1 steps round a ring", per_pair=1),
    Pattern("all_gather:doubling", halving_doubling.doubling, "partners at doubling distances (powers of two)"),
    Pattern("all_gather:direct", exchange.direct, "everybody to everybody at once", per_pair=1),
    Pattern("reduce_scatter:ring", ring.one_round, "n-1 steps round a ring", per_pair=1),
    Pattern("reduce_scatter:halving", halving_doubling.halving, "partners at halving distances (powers of two)"),
    Pattern("reduce_scatter:direct", exchange.direct, "everybody to everybody at once", per_pair=1),
    Pattern("all_to_all:direct", exchange.direct, "everybody to everybody at once", per_pair=1),
    Pattern("all_to_all:rotated", exchange.rotated, "n-1 steps; in step s to the member s further", per_pair=1),
    Pattern("broadcast:tree", trees.broadcast, "binomial tree from member 0"),
    Pattern("broadcast:chain", ring.chain, "pieces follow one another from member 0 down a chain"),
    Pattern("reduce:tree", trees.reduce, "binomial tree to member 0"),
    Pattern("gather:direct", trees.star, "everybody to member 0 at once (incast)"),
    Pattern("scatter:direct", trees.star_out, "member 0 to everybody at once (outcast)"),
    Pattern(
        "parameter-server",
        parameter_server.dedicated,
        "the last K members serve, the others push and pull",
        "servers",
        2 * parameter_server.PIECES,
    ),
    Pattern(
        "parameter-server-colocated",
        parameter_server.colocated,
        "every member works and serves a share",
        per_pair=2 * parameter_server.PIECES,
    ),
    Pattern(
        "byteps",
        parameter_server.byteps,
        "the last K members only serve, all others work and serve: equally busy links",
        "servers",
        2 * parameter_server.PIECES,
    ),
    Pattern("pipeline", pipeline.pipeline, "stages hand K micro-batches on, and gradients back", "microbatches", 2),
)
PATTERNS: dict[str, Pattern] = {pattern.name: pattern for pattern in _ROWS}


def pattern_messages(name: str, members: int, size: float) -> Messages:
    """The messages of the pattern called `name` among `members` members. Raises UserError for an unknown name."""
    pattern, number = _parsed(name)
    if members < 2:
        raise UserError(f"pattern {name}: {members} member; a pattern is between at least 2")
    about = pattern.per_pair * members * (number if number is not None and pattern.name != "byteps" else members)
    if about > MOST:
        raise TooMuchError(f"pattern {name}: {members} members send about {about} messages, of at most {MOST} at once")
    if number is None:
        return pattern.build(members, size)
    if pattern.number == "servers" and number > members - 2 + (pattern.name == "parameter-server"):
        raise UserError(f"pattern {name}: {members} members leave too few workers beside {number} servers")
    if pattern.name == "byteps" and number > members - number:
        raise UserError(f"pattern {name}: {number} servers for {members - number} workers; there are at most as many")
    return pattern.build(members, size, number)


def _parsed(name: str) -> tuple[Pattern, int | None]:
    if name in PATTERNS and not PATTERNS[name].number:
        return PATTERNS[name], None
    stem, _, text = name.rpartition(":")
    pattern = PATTERNS.get(stem) or PATTERNS.get(name)
    if pattern is None or not pattern.number:
        hint = did_you_mean(name, PATTERNS)
        raise UserError(f"no pattern '{name}'{hint}; the patterns are {', '.join(written(p) for p in _ROWS)}")
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 10**6):
        raise UserError(f"pattern {name}: write how many {pattern.number}, such as {pattern.name}:4")
    return pattern, int(text)


def written(pattern: Pattern) -> str:
    """The full name of a pattern: `pipeline:MICROBATCHES`."""
    return f"{pattern.name}:{pattern.number.upper()}" if pattern.number else pattern.name
