"""The rank of a process in the run, if `syntony place -o` has mapped the axes onto the machine.

started as      0         1         2         3           hosts {0, 1} and {2, 3}
file            dp0 tp0   dp1 tp0   dp0 tp1   dp1 tp1     dp[1 2] tp[2 1]: gradients are summed within a host
rank of the run 0         2         1         3           the run's tp is innermost (overlap/step/ranks.py)
"""

from __future__ import annotations

import json

from syntony.base.command import UserError
from syntony.base.files.strict_json import parse
from syntony.base.files.text_file import read_text
from syntony.collectives.bootstrap.launch import Exchange
from syntony.overlap.step.layout import Parallel

_AXES = ("pp", "dp", "cp", "tp")  # outermost first


def placed(path: str, layout: Parallel, exchange: Exchange) -> int:
    """This process's rank, from rank 0's file. Collective. Raises UserError as `ranks_of` does."""
    told = json.dumps(ranks_of(path, layout)).encode() if exchange.rank == 0 else b""
    return int(json.loads(exchange.all_gather("placement", told)[0])[exchange.rank])


def ranks_of(path: str, layout: Parallel) -> list[int]:
    """The run's rank of each process, in start order. Raises UserError if the file does not place all of this layout's
    ranks."""
    found = parse(read_text(path), path, "placement")
    rows = found.get("ranks") if isinstance(found, dict) else None
    ranks = []
    for row in rows if isinstance(rows, list) else ():
        rank = 0
        for axis in _AXES:
            at = row.get(axis, 0) if isinstance(row, dict) and row.keys() <= set(_AXES) else -1
            size = getattr(layout, axis)
            if type(at) is not int or not 0 <= at < size:
                raise UserError(f"{path}: {json.dumps(row)} is not a place among {_sizes(layout)}")
            rank = rank * size + at
        ranks.append(rank)
    if sorted(ranks) != list(range(layout.ranks)):
        raise UserError(f"{path}: it does not place each rank of {_sizes(layout)} once, as `syntony place -o` does")
    return ranks


def _sizes(layout: Parallel) -> str:
    return " x ".join(f"{axis} {getattr(layout, axis)}" for axis in _AXES)
