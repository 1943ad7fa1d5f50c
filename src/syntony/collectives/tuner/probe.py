"""A group measures itself, uses the result, and keeps it: if there is no table of its kind, or on request."""

from __future__ import annotations

import os
import sys

from syntony.base.command import UserError
from syntony.collectives.tuner import agreement, levels, report, settings
from syntony.collectives.tuner.measure import Effort, measure
from syntony.collectives.tuner.table import Place, Table
from syntony.collectives.verbs import Verbs

_SIZES = tuple(8 << shift for shift in range(0, 22, 3))  # 8 bytes to 16 MiB
_EFFORT = Effort(budget=0.01, fewest=3, most=15, single=0.05, patience=2.0)  # with slow wires, too, under a minute


def probe_if_asked(group: Verbs) -> None:
    """Measures if SYNTONY_TUNE=probe and there is no table of this kind. Collective: all ranks decide alike because
    they have agreed on their settings."""
    if os.environ.get("SYNTONY_TUNE", "") == "" and os.environ.get("SYNTONY_CONFIG", "") == "":
        return
    said = settings.read(os.environ)
    core = group._core
    if said.mode != "probe" or group.size == 1 or not agreement.lacks_table(core.notes):
        return
    tune(group)


def tune(group: Verbs) -> None:
    """Measures levels and algorithms anew. Collective, between the same calls on all ranks."""
    core, said, near = group._core, settings.read(os.environ), levels.find(group)
    core.set_levels(near or core.boxes)
    measured = measure(group, settings.algorithms(), _SIZES, _EFFORT)
    found = Table(Place.here(core.boxes), measured.costs, near)
    kept = "what this group has measured"
    if group.rank == 0:
        if doubt := report.busy(found.place, measured.waited):
            print(f"syntony: {doubt} (syntony tune)", file=sys.stderr)
        try:
            found.write()
        except UserError as error:
            print(f"syntony: {error}; the next group will have to measure again", file=sys.stderr)
    _, tables = agreement.conclude(said, core.boxes, agreement.tuned_rules(found, said), kept)
    for name, collective, ranges in tables:
        core.set_size_ranges(name, collective, ranges)
