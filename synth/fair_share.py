"""Max-min fair rates: how flows share links when nobody can gain without taking from someone poorer.

Progressive filling (Bertsekas and Gallager, "Data Networks", 6.5.2): a link shares what it has left evenly among its
flows that are not settled yet. A link that offers each of its flows the least that they are offered anywhere settles
them: other links only ever offer more. All such links settle at once, until every flow is settled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def fair_rates(
    flow: NDArray[np.signedinteger], link: NDArray[np.signedinteger], flows: int, capacity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Rates of `flows` flows, in the unit of `capacity` (one per link).

    Flow `flow[i]` crosses `link[i]`, for all i; every flow crosses at least one link.
    """
    rates = np.zeros(flows)
    left = capacity.astype(float)
    while len(flow):
        crossing = np.bincount(link, minlength=len(left))
        share = np.full(len(left), np.inf)
        np.divide(left, crossing, out=share, where=crossing > 0)
        offered = np.full(flows, np.inf)
        np.minimum.at(offered, flow, share[link])
        least = np.full(len(left), np.inf)
        np.minimum.at(least, link, offered[flow])
        settles = share <= least * (1 + 1e-12)
        settled = np.zeros(flows, bool)
        settled[flow[settles[link]]] = True
        rates[settled] = offered[settled]
        gone = settled[flow]
        left = np.maximum(left - np.bincount(link[gone], rates[flow[gone]], minlength=len(left)), 0.0)
        flow, link = flow[~gone], link[~gone]
    return rates
