"""The results of `syntony tune` as a table, as JSON, and as a configuration file (settings.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from syntony import _core
from syntony.collectives.tuner import grammar
from syntony.collectives.tuner.costs import FEWEST_POINTS, MODELS, Fit, predicted_unseen
from syntony.collectives.tuner.grammar import Rule
from syntony.collectives.tuner.table import Place, Table

MOST_WAITING = 0.1
"""Part of the time; above it, the machine was busy with other work."""
_LINE = "{:<15} {:>9}  {:<14} {:>8} {:>11} {:>11}  {:<14} {:>11} {:>6}"


@dataclass(frozen=True)
class Row:
    """One range. Times in seconds, at `at` bytes, the largest measured size of the range; `predicted` by the model
    fitted without that point, nan if too few others are left. `gain`: the built-in choices' time over the range's,
    geometric mean over its measured sizes; nan if a built-in choice was not among the candidates."""

    collective: str
    last: int | None
    algorithm: str
    at: int
    measured: float
    predicted: float
    builtin: str
    builtin_measured: float
    gain: float


def rows(found: Table, rules: Sequence[Rule], boxes: Sequence[Sequence[int]], crowded: bool) -> list[Row]:
    """One per range that contains a measured size."""
    made = []
    for rule in rules:
        (collective,) = rule.collectives
        points, fits = found.points(collective), found.fits(collective)
        begin = -1
        for entry in rule.ranges:
            mine = points[entry.algorithm]
            sizes = [size for size in mine if begin < size and (entry.last is None or size <= entry.last)]
            begin = begin if entry.last is None else entry.last
            if not sizes:
                continue
            at = max(sizes)
            builtin = {size: _core.automatic_choice(collective, size, boxes, crowded)[0] for size in sizes}
            ratios = [points.get(name, {}).get(size, np.nan) / mine[size] for size, name in builtin.items()]
            made.append(
                Row(
                    collective, entry.last, entry.algorithm, at, mine[at],
                    predicted_unseen(mine, MODELS[fits[entry.algorithm].name], at),
                    builtin[at], points.get(builtin[at], {}).get(at, float("nan")),
                    float(np.exp(np.mean(np.log(ratios)))),
                )
            )  # fmt: skip
    return made


def busy(place: Place, waited: float) -> str:
    """A remark on times for which the ranks `waited` for cores (Measured); empty if the wait was short."""
    if waited <= MOST_WAITING or max(place.hosts) > place.cores:
        return ""
    return (
        f"the machine had other work: a rank waited for a core in {waited:.0%} of the time; "
        "measured again in a quiet hour, other algorithms may be best"
    )


def too_few(found: Table) -> str:
    """Names the collectives with too few sizes to judge the predictions; empty if there are none."""
    poor = [name for name in found.collectives if min(map(len, found.points(name).values())) < FEWEST_POINTS]
    if not poor:
        return ""
    return (
        f"too few sizes for {', '.join(poor)}: it takes {FEWEST_POINTS} that differ, in whole 4-byte elements of each "
        "rank, to say how well times are predicted; where one algorithm ends and the next begins is a guess"
    )


def as_text(found: Table, made: Sequence[Row]) -> str:
    """The table, and how well the models predict unseen sizes."""
    place = found.place
    hosts = "one host" if len(place.hosts) == 1 else f"{len(place.hosts)} hosts"
    lines = [
        f"{sum(place.hosts)} ranks on {hosts}; {place.processor}, {place.cores} cores",
        _LINE.format(
            "collective", "up to", "algorithm", "at", "measured", "predicted", "auto would be", "measured", "gain"
        ),
    ]
    for row in made:
        end = "-" if row.last is None else grammar.show_size(row.last)
        lines.append(
            _LINE.format(
                row.collective, end, row.algorithm, grammar.show_size(row.at), _time(row.measured),
                _time(row.predicted), row.builtin, _time(row.builtin_measured), f"{row.gain:.2f}",
            )
        )  # fmt: skip
    fits = [one for collective in found.collectives for one in found.fits(collective).values()]
    errors = {name: error for name, error in unseen_errors(fits).items() if not np.isnan(error)}
    if errors:
        words = ", ".join(f"{name} {error:.0%}" for name, error in errors.items())
        taken = sum(fit.name == "points" for fit in fits)
        lines.append(f"mean error, inner sizes left out of the fit: {words}; `points` taken for {taken} of {len(fits)}")
    return "\n".join(lines)


def as_json(found: Table, made: Sequence[Row], written: Mapping[str, Path], waited: float) -> dict[str, Any]:
    """Everything: ranges, points and fits."""
    fits = {collective: found.fits(collective) for collective in found.collectives}
    return {
        "place": asdict(found.place),
        "waited_for_cores": waited,
        "written": {what: str(path) for what, path in written.items()},
        "ranges": [{key: _json(value) for key, value in asdict(row).items()} for row in made],
        "unseen_errors": {
            name: _json(error)
            for name, error in unseen_errors([one for by_name in fits.values() for one in by_name.values()]).items()
        },
        "costs": [
            {
                "collective": key.collective,
                "algorithm": key.algorithm,
                "model": fits[key.collective][key.algorithm].name,
                "points": [[size, points[size]] for size in sorted(points)],
            }
            for key, points in found.costs.items()
        ],
    }


def as_config(rules: Sequence[Rule], schedules: Mapping[str, Path]) -> str:
    """The ranges as a file for SYNTONY_CONFIG."""
    lines = ["# written by `syntony tune`; use it with SYNTONY_CONFIG", f"algo = {json.dumps(grammar.show(rules))}"]
    if schedules:
        lines += ["", "[schedules]", *(f"{name} = {json.dumps(str(path))}" for name, path in schedules.items())]
    return "\n".join(lines) + "\n"


def unseen_errors(fits: Sequence[Fit]) -> dict[str, float]:
    """Per model, the median over all fits that have one; nan if none has."""
    known = [fit.errors for fit in fits if not np.isnan(fit.errors[fit.name])]
    return {name: float(np.median([errors[name] for errors in known])) if known else float("nan") for name in MODELS}


def _time(seconds: float) -> str:
    if np.isnan(seconds):
        return "-"
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _json(value: Any) -> Any:
    return None if isinstance(value, float) and np.isnan(value) else value
