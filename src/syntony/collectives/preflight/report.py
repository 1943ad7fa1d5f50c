"""The measurements of a preflight check, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syntony.base.text_table import aligned
from syntony.base.wording import bytes_of, counted, rate, time
from syntony.collectives.preflight.alone import Alone
from syntony.collectives.preflight.together import SIZES, Together
from syntony.topologies.probed.measurements import Measurements


def table(hosts: Sequence[str], alone: Sequence[Alone], wires: Measurements, together: Together) -> list[str]:
    """One row per host, with the lowest values of its ranks."""
    rows: list[tuple[object, ...]] = [("host", "ranks", "copies", "computes", "sends", "receives")]
    for host, ranks in _ranks(hosts).items():
        out, into = _wires(ranks, hosts, wires)
        computing = min(alone[rank].computing for rank in ranks)
        copying = min(alone[rank].copying for rank in ranks)
        rows.append((host, len(ranks), rate(copying), f"{computing / 1e9:.2f} G/s", rate(out), rate(into)))
    lines = [f"{counted(len(hosts), 'rank')} on {counted(len(rows) - 1, 'host')}", "", *aligned(rows, "<>>>>>"), ""]
    sizes = [("collective", *(bytes_of(size) for size in SIZES))]
    times = [(name, *(time(found[size]) for size in SIZES)) for name, found in together.seconds.items()]
    return lines + aligned([*sizes, *times], "<" + ">" * len(SIZES))


def as_json(hosts: Sequence[str], alone: Sequence[Alone], wires: Measurements, together: Together) -> dict[str, Any]:
    """Seconds, bytes/s, multiplications/s."""
    found = {}
    for host, ranks in _ranks(hosts).items():
        out, into = _wires(ranks, hosts, wires)
        found[host] = {
            "ranks": ranks,
            "wrong_words": sum(alone[rank].wrong for rank in ranks),
            "copying": min(alone[rank].copying for rank in ranks),
            "computing": min(alone[rank].computing for rank in ranks),
            "sending": out,
            "receiving": into,
        }
    return {"hosts": found, "wires": wires.to_dict(), "collectives": together.seconds}


def _ranks(hosts: Sequence[str]) -> dict[str, list[int]]:
    ranks: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks.setdefault(host, []).append(rank)
    return ranks


def _wires(ranks: Sequence[int], hosts: Sequence[str], wires: Measurements) -> tuple[float, float]:
    """The median bandwidth out of a host and into it; among its own ranks if there is no other host."""
    others = [rank for rank in range(len(hosts)) if rank not in ranks] or list(ranks)
    out, into = wires.bandwidth[np.ix_(ranks, others)], wires.bandwidth[np.ix_(others, ranks)]
    return float(np.nanmedian(out)), float(np.nanmedian(into))
