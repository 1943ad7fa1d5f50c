"""Utilization: how full links are over time.

rate of a link   1.0 ┤ ┌──────┐
                 0.5 ┤─┘      └───────┐
                   0 ┼────────────────┴──▶ time       a step function, kept as its steps
by bins              |.50 .83|.83 .50|.50|            means, over equal parts of the time
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import ascending


@dataclass(frozen=True, eq=False)
class LinkRates:
    """From times[i] (seconds; ascending) on, link[i] carries rate[i] bytes/s; before its first entry, nothing."""

    times: NDArray[np.float64]
    link: NDArray[np.signedinteger]
    rate: NDArray[np.float64]

    def means(self, seconds: float, bins: int, capacity: NDArray[np.float64]) -> NDArray[np.float64]:
        """(links, bins): the mean share of `capacity` in use, in each of `bins` equal parts of `seconds`."""
        means = np.zeros((len(capacity), bins))
        if not seconds:
            return means
        edges = np.linspace(0.0, seconds, bins + 1)
        order = np.argsort(self.link, kind="stable")
        starts = np.searchsorted(self.link[order], np.arange(len(capacity) + 1))
        for link in ascending(self.link).tolist():
            mine = order[starts[link] : starts[link + 1]]
            times, rates = np.r_[0.0, self.times[mine], seconds], np.r_[0.0, self.rate[mine]]
            carried = np.concatenate(([0.0], np.cumsum(rates * np.diff(np.minimum(times, seconds)))))
            means[link] = np.diff(np.interp(edges, times, carried)) / (seconds / bins) / capacity[link]
        return means
