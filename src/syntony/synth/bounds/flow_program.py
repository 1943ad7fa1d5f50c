"""The flow program: the data of every source as one flow, over links that all flows share.

    minimize t   such that   the flow f_s of each source s meets its demands,
                             for each orbit O of wires:  sum over s of times_s * f_s(O)  <=  t * capacity(O)

A flow out of one source can be decomposed into paths to its destinations afterwards, so there is one commodity per
source instead of one per pair. Under a symmetry, one source represents the `times` sources of its orbit, and the wires
of an orbit share their load evenly.

The dual solution are prices, which prove a bound (bounds/prices.py); the solution gives routes (engines/flow). Both are
in floating point; what is made of them is counted again in whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.base.deadline import wall
from syntony.synth.bounds.arcs import Int32s

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FlowProgram:
    """Wires are node pairs or links; w of them.

    tails, heads  (w,) nodes
    orbit         (w,) the number of each wire's orbit, 0, 1, ..
    room          (orbits,) capacity: what the wires of an orbit carry per second together, in any unit
    kept          (nodes,) the nodes that may carry data
    sources       nodes; source i represents times[i] sources
    wanted        (sources, nodes) what each node wants of each source
    """

    tails: Int32s
    heads: Int32s
    orbit: NDArray[np.int64]
    room: Floats
    kept: NDArray[np.bool_]
    sources: tuple[int, ...]
    times: tuple[int, ...]
    wanted: NDArray[np.integer[Any]]

    def prices(self, seconds: float) -> Floats | None:
        """Best prices per orbit of wires, and so the least t, scaled to a greatest of 1; None if HiGHS gives up."""
        solved = self._least(seconds)
        if solved is None:
            return None
        prices = np.maximum(-np.asarray(solved.ineqlin.marginals), 0.0)
        top = float(prices.max(initial=0.0))
        scaled: Floats = prices / top if top > 0 else prices
        return scaled

    def least_time(self, seconds: float) -> float | None:
        """The least t; None if HiGHS gives up."""
        solved = self._least(seconds)
        return None if solved is None else float(solved.x[-1])

    def flows(self, time: float, seconds: float) -> Floats | None:
        """(sources, w): flows of least total length that load no wire for longer than `time`.

        None if there are none, or HiGHS gives up.
        """
        from scipy.optimize import linprog

        flows, wanted = self._balances
        count = len(self.tails)
        solved = linprog(
            np.repeat(np.asarray(self.times, np.float64), count),
            self._loads,
            time * self.room,
            flows,
            wanted,
            method="highs-ds",
            options={"time_limit": wall(seconds)},
        )
        return np.asarray(solved.x).reshape(len(self.sources), count) if solved.success else None

    def _least(self, seconds: float) -> Any:
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, hstack

        flows, wanted = self._balances
        load = hstack([self._loads, csr_array(-self.room.reshape(-1, 1))])
        objective = np.zeros(load.shape[1])
        objective[-1] = 1.0
        solved = linprog(
            objective,
            load.tocsr(),
            np.zeros(len(self.room)),
            hstack([flows, csr_array((flows.shape[0], 1))]).tocsr(),
            wanted,
            method="highs",
            options={"time_limit": wall(seconds)},
        )
        return solved if solved.success else None

    @cached_property
    def _balances(self) -> tuple[Any, Floats]:
        """Rows for conservation: the flow into a node, less the flow out, is what it wants."""
        from scipy.sparse import block_diag, coo_array, csr_array

        nodes, count = len(self.kept), len(self.tails)
        columns, ones = np.arange(count), np.ones(count)
        balance = csr_array(
            coo_array((ones, (self.heads, columns)), shape=(nodes, count))
            - coo_array((ones, (self.tails, columns)), shape=(nodes, count))
        )
        rows, wanted = [], []
        for source, received in zip(self.sources, self.wanted, strict=True):
            kept = np.flatnonzero(self.kept & (np.arange(nodes) != source))
            rows.append(balance[kept])
            wanted.append(received[kept].astype(np.float64))
        return block_diag(rows).tocsr(), np.concatenate(wanted)

    @cached_property
    def _loads(self) -> Any:
        """Rows for capacity: the load of the wires of an orbit."""
        from scipy.sparse import coo_array, hstack

        count = len(self.tails)
        within = coo_array((np.ones(count), (self.orbit, np.arange(count))), shape=(len(self.room), count))
        return hstack([within * float(times) for times in self.times]).tocsr()
