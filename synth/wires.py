"""Wires: messages on links, by the alpha-beta model with fairly shared links. The clock of every simulator here.

    link 0  [===== message 0 =====][== message 2 ==]            a message streams through all links of its route at
    link 1       [= message 1 =]                                once, at a max-min fair share of them, and arrives the
                                ·· alpha ··▶ 0 arrived          sum of their alphas after its last byte has left

Whoever simulates starts messages with `send` and learns from `advance` what becomes of them. A message without bytes,
or within one place (an empty route), leaves at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from synth.fair_share import fair_rates
from topologies.topology import Topology

# Times that are equal by the model differ by rounding; what is this close happens at once.
_SAME = 1e-12
_SAME_END = 1e-9
_CACHED_RATES = 4096

Event = tuple[bool, int]
"""(it has arrived, tag): the message's last byte has left (False), or it is there (True)."""


class Wires:
    """The links of a topology and the messages on them. Routes are named by their number in `routes`; tags are the
    caller's."""

    def __init__(self, topology: Topology, routes: Sequence[tuple[int, ...]]) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self._capacity = np.asarray([float(link.bandwidth) for link in topology.links])
        self.fastest = float(self._capacity.max(initial=0.0))
        """Bandwidth of the fastest link, bytes/s."""
        self._alpha = [sum(topology.links[link].alpha for link in route) for route in routes]
        hops = np.asarray([len(route) for route in routes], np.int64)
        # Routes as a table, padded with -1.
        self._links = np.full((len(routes), int(hops.max(initial=0))), -1, np.int64)
        self._links[np.arange(self._links.shape[1]) < hops[:, None]] = [link for route in routes for link in route]
        self._streams = (hops > 0).tolist()

        self._tags: NDArray[np.int64] = np.zeros(0, np.int64)
        self._routes: NDArray[np.int64] = np.zeros(0, np.int64)
        self._remaining: NDArray[np.float64] = np.zeros(0)
        self._rates: NDArray[np.float64] = np.zeros(0)
        self._known_rates: dict[bytes, NDArray[np.float64]] = {}
        self._starting: list[tuple[int, int, float]] = []
        self._leaving: list[tuple[int, int]] = []
        self._arriving: list[tuple[float, int, int]] = []
        self._sent = 0

    def send(self, tag: int, route: int, size: float) -> None:
        """Starts a message of `size` bytes now."""
        if size and self._streams[route]:
            self._starting.append((tag, route, size))
        else:
            self._leaving.append((tag, route))

    def advance(self) -> list[Event]:
        """What happens next, all at time `now`; nothing when no message is on its way."""
        while True:
            if self._leaving:
                leaving, self._leaving = self._leaving, []
                return self._leave(leaving)
            self._start()
            due = []
            while self._arriving and self._arriving[0][0] <= self.now * (1 + _SAME):
                due.append((True, heapq.heappop(self._arriving)[2]))
            if due:
                return due
            if not len(self._tags) and not self._arriving:
                return []
            self._leaving = self._stream()

    def state(self, moment: float, share: float) -> bytes:
        """All that the future of the messages depends on, but for the time: equal bytes, equal futures.

        Rounded to `moment` seconds and `share` bytes.
        """
        self._start()
        order = np.argsort(self._tags, kind="stable")
        streaming = self._tags[order], np.rint(self._remaining[order] / share)
        arriving = sorted((tag, round((time - self.now) / moment)) for time, _, tag in self._arriving)
        counts = [len(order), len(arriving)]
        return b"".join(
            np.asarray(column, np.int64).tobytes() for column in (counts, *streaming, arriving, self._leaving)
        )

    def skip(self, seconds: float) -> None:
        """Moves the clock; what is on its way stays as far from its end as it was."""
        self.now += seconds
        self._arriving = [(time + seconds, number, tag) for time, number, tag in self._arriving]

    def _leave(self, messages: list[tuple[int, int]]) -> list[Event]:
        for tag, route in messages:
            heapq.heappush(self._arriving, (self.now + self._alpha[route], self._sent, tag))
            self._sent += 1
        return [(False, tag) for tag, _ in messages]

    def _start(self) -> None:
        """Puts what was sent among what streams."""
        if not self._starting:
            return
        tags, routes, sizes = zip(*self._starting, strict=True)
        self._starting = []
        self._tags = np.concatenate((self._tags, np.asarray(tags, np.int64)))
        self._routes = np.concatenate((self._routes, np.asarray(routes, np.int64)))
        self._remaining = np.concatenate((self._remaining, np.asarray(sizes, float)))
        self._share()

    def _stream(self) -> list[tuple[int, int]]:
        """Moves the clock to the next event; the messages whose last byte leaves then."""
        streaming = self._remaining / self._rates
        soonest = float(streaming.min(initial=np.inf))
        end = self.now + soonest
        arrival = self._arriving[0][0] if self._arriving else np.inf
        then = min(end, arrival)
        self._remaining = np.maximum(self._remaining - self._rates * (then - self.now), 0.0)
        gone = np.zeros(len(streaming), bool)
        if end <= arrival:
            gone = streaming <= soonest * (1 + _SAME_END)
        self.now = then
        if not gone.any():
            return []
        left = list(zip(self._tags[gone].tolist(), self._routes[gone].tolist(), strict=True))
        self._tags, self._routes, self._remaining = self._tags[~gone], self._routes[~gone], self._remaining[~gone]
        self._share()
        return left

    def _share(self) -> None:
        """Fair rates of the messages that stream now."""
        key = self._routes.tobytes()
        known = self._known_rates.get(key)
        if known is None:
            links = self._links[self._routes]
            flow, hop = np.nonzero(links >= 0)
            known = fair_rates(flow, links[flow, hop], len(links), self._capacity)
            if len(self._known_rates) < _CACHED_RATES:
                self._known_rates[key] = known
        self._rates = known
