"""`explain` checked by experiment: the time that it says a change would save, and the time that the change saves.

Emulated computing on four emulated hosts. A changed plan takes turns with the plan in one lab; a link of twice the rate
is another lab. Both sides are measured; the prediction is made from the profile of the plan before the change.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from syntony.benchmarks.overlap.contenders import settings
from syntony.benchmarks.overlap.contenders.contest import Work, hold
from syntony.benchmarks.overlap.policies import HOSTS, LABS, entry
from syntony.benchmarks.tables import Part, Row, Table

GOAL = 0.10


@dataclass(frozen=True)
class Act:
    """A plan, and what is done to it. `finding` begins what `explain` says of that; `faster`: times the rate."""

    name: str
    policy: str
    options: Mapping[str, Any]
    finding: str
    rate: float
    changed: Mapping[str, Any] = field(default_factory=dict)
    faster: float = 1.0


_DP, _TP, _EP, _PP = (LABS[name].options for name in ("dp", "tp", "ep", "pp"))
_EXACT = {**_DP, "optimizer": {"clip": "exact"}}
ACTS = (
    Act("dp, clip off", "need:slice=512K", _EXACT, "updates did not", 31e6, changed={"optimizer": {"clip": "off"}}),
    Act("dp, link x 2", "fifo", _DP, "link", 20e6, faster=2.0),
    Act("zero 1, link x 2", "need:slice=512K", {**_DP, "parallel": {"dp": HOSTS, "zero": 1}}, "link", 20e6, faster=2.0),
    Act("zero 3, link x 2", "fifo", {**_DP, "parallel": {"dp": HOSTS, "zero": 3}}, "link", 25e6, faster=2.0),
    Act("tp, link x 2", "domino", _TP, "link", 25e6, faster=2.0),
    Act("ep, link x 2", "fifo", _EP, "link", 25e6, faster=2.0),
)  # fmt: skip


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    for act in ACTS:
        if options.act and act.name not in options.act:
            continue
        before = entry(act.policy, act.options, "before")
        after = entry(act.policy, {**act.options, **act.changed}, "after")
        labs = [(act.rate, (before, after))] if act.faster == 1 else [(act.rate, (before,)), (2 * act.rate, (after,))]
        found = {
            one.label: one
            for rate, entries in labs
            for one in hold(settings.star(HOSTS, rate), Work(entries, options.steps, options.rounds))
        }
        changes = found["before"].told["changes"]
        told = next((saving for what, saving in changes.items() if what.startswith(act.finding)), 0.0)
        saved = found["before"].seconds - found["after"].seconds
        off = abs(told - saved) / max(saved, 1e-9)
        cells = (
            act.name,
            act.policy,
            f"{1e3 * found['before'].seconds:.0f}",
            f"{1e3 * told:.0f}",
            f"{1e3 * saved:.0f}",
        )
        yield Row((*cells, f"{off:.0%}"), f"{off:.0%} off, not {GOAL:.0%}" if off > GOAL else "")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (("change", -18), ("of policy", -38), ("step ms", 7), ("explain ms", 10), ("saved ms", 8), ("off", 5))
    return (Part("What explain says a change saves, EMULATED compute", columns, partial(_rows, options)),)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--act", action="append", choices=[act.name for act in ACTS], help="only this one; repeat")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="blocks of steps of each (2)")
    parser.add_argument("--steps", type=int, default=6, metavar="N", help="steps of a block; its first is not counted")


TABLE = Table("explain", "savings that explain predicts, acted upon (as root)", _parts, _configure)
