"""How to divide what arrives at one rank in one step over its links, so that the busiest is as little busy as can be.

Every job (a block) may come by some of the links, in parts of any size:

        jobs            links                       least load: the greatest, over sets of jobs, of
        v (weight 1) ── e (rate 1)                      their weight / the rate of the links that any of them may take
        w (weight 1) ── e, f (rate 1)               here 2 / 2: e carries v, f carries w

"Greatest over sets" is Hall's condition for flows, so a maximum flow decides whether some load is enough, and its
minimum cut names a set that needs more: from set to set the load rises to the exact answer in a few flows (Newton's
method for ratios, Dinkelbach 1967). Jobs that may take the same links are one job for the flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony._solve import FlowNetwork

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Balance:
    """Jobs of whole weights, the links that each may take, and the least load.

    kind     (jobs,)          which kind the job is of: jobs of a kind may take the same links
    allowed  (kinds, links)   which links
    weight   (kinds,)         of all jobs of the kind
    rate     (links,)         whole numbers
    load     weight per rate on the busiest link, at its least
    """

    kind: Integers
    allowed: NDArray[np.bool_]
    weight: Integers
    rate: Integers
    load: Fraction

    @staticmethod
    def of(weights: Integers, allowed: NDArray[np.bool_], rate: Integers) -> Balance:
        """`allowed` is (jobs, links), and has a link for every job; weights and rates are positive."""
        kinds, kind = np.unique(allowed, axis=0, return_inverse=True)
        weight = np.zeros(len(kinds), np.int64)
        np.add.at(weight, kind.reshape(-1), weights)
        balance = Balance(kind.reshape(-1), kinds, weight, rate, Fraction(int(weight.sum()), int(rate.sum())))
        while True:
            flow = balance._flow(balance.load.denominator, balance.load.numerator * rate)
            if flow.full:
                return balance
            tight = flow.missed
            more = Fraction(int(weight[tight].sum()), int(rate[kinds[tight].any(axis=0)].sum()))
            assert more > balance.load, "the cut's set needs more than the load that did not do"
            balance = Balance(balance.kind, kinds, weight, rate, more)

    def divided(self, grain: int) -> Integers:
        """(kinds, links): what each link carries of each kind, in parts of 1/grain of a unit of weight.

        At the least load where its denominator divides `grain`; else at most one part more on each link.
        """
        room = -(-self.load.numerator * grain * self.rate // self.load.denominator)
        flow = self._flow(grain, room)
        assert flow.full, "the least load is enough"
        return flow.carried

    def _flow(self, grain: int, room: Integers) -> _Flow:
        kinds, links = self.allowed.shape
        start, end = kinds + links, kinds + links + 1
        job, link = np.nonzero(self.allowed)
        wanted = self.weight * grain
        tails = np.concatenate((np.full(kinds, start), job, kinds + np.arange(links)))
        heads = np.concatenate((np.arange(kinds), kinds + link, np.full(links, end)))
        capacities = np.concatenate((wanted, wanted[job], room)).astype(np.int64)
        network = FlowNetwork(end + 1, tails.astype(np.int32), heads.astype(np.int32), capacities)
        full = network.augment(start, end) == int(wanted.sum())
        carried = np.zeros((kinds, links), np.int64)
        carried[job, link] = network.flows()[kinds : kinds + len(job)]
        return _Flow(full, carried, np.flatnonzero(np.asarray(network.reachable_from(start))[:kinds]))


@dataclass(frozen=True, eq=False)
class _Flow:
    """Whether all kinds were carried, by which links, and kinds that together have too little room (where not)."""

    full: bool
    carried: Integers
    missed: Integers
