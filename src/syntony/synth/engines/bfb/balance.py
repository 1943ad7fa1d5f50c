"""Divides what arrives at one rank in one step over its links, so that the load of the busiest link is least.

Every job (a block) may be divided over some of the links, in parts of any size:

        jobs            links                       least load: the greatest, over sets of jobs, of
        v (weight 1) ── e (rate 1)                      their weight / the rate of the links that any of them may take
        w (weight 1) ── e, f (rate 1)               here 2 / 2: e carries v, f carries w

This is Hall's condition for flows: a maximum flow decides whether a load is enough, and if not, its minimum cut is a
set of jobs that needs more. Raising the load to what that set needs, again and again, reaches the exact answer in a few
flows (Newton's method for ratios, Dinkelbach 1967). Jobs that may take the same links are one job for the flow.
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

    kind     (jobs,)          the kind of the job: jobs of a kind may take the same links
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
        """`allowed` is (jobs, links) and allows each job at least one link; weights and rates are positive."""
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

        At the least load if its denominator divides `grain`; else with at most one part more on each link.
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
    """Whether the links can carry all kinds, which link carries what, and if not, a set of kinds that does not fit."""

    full: bool
    carried: Integers
    missed: Integers
