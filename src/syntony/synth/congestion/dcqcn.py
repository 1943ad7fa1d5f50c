"""DCQCN: switches mark packets in long queues, receivers report it, senders cut their rate and recover it.

    queue   0 ───── Kmin ──────────── Kmax ─────▶     alpha, the sender's estimate of congestion, follows the marked
    marked  none      0  rises to  P_max   all        part; a mark cuts the rate by alpha / 2; without marks it goes
                                                      half way back, repeatedly, then beyond by R_AI at a time

Zhu et al., Congestion Control for Large-Scale RDMA Deployments (SIGCOMM 2015), here by its fluid model (section 5),
whose equilibrium has one marked part of the packets: `standing_mark`. R_AI, Kmin and Kmax are as for 40 Gb/s and scale
with the rate.

Kmin, Kmax, the gain, the timers and R_AI are the paper's as quoted by others; the gain and both timers are also those
of HPCC's authors (`dcqcn_paper` in simulation/run.py of alibaba-edu/High-Precision-Congestion-Control). P_MAX and the
byte counter could not be looked up and are assumptions. Today's switches mark later and more: that file has 160 kB,
640 kB and 20 % at 40 Gb/s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syntony.synth.congestion.control import Seen
from syntony.synth.congestion.queue_network import Floats, QueueNetwork

PACKET = 1000.0
K_MIN, K_MAX, P_MAX = 5e3, 200e3, 0.01  # bytes and bytes at 40 Gb/s, and the marked part at K_MAX
RATE_OF_PAPER = 5e9  # 40 Gb/s
GAIN = 1 / 256
T_ALPHA, T_CUT, T_TIMER = 55e-6, 50e-6, 55e-6
B_COUNTER = 10e6 / PACKET
FAST = 5  # half ways back before it goes beyond
R_AI = 40e6 / 8  # bytes/s at 40 Gb/s


def marks(queue: Floats, capacity: Floats) -> Floats:
    """The marked part of a link's packets at that queue length."""
    scale = capacity / RATE_OF_PAPER
    low, high = K_MIN * scale, K_MAX * scale
    with np.errstate(invalid="ignore"):
        risen = np.where(np.isfinite(capacity), (queue - low) / (high - low), 0.0)
    return np.where(risen > 1, 1.0, np.clip(risen, 0.0, 1.0) * P_MAX)


@dataclass(frozen=True)
class _Flow:
    """The reaction of flows that send this many packets per second with the part p marked; columns.

    alpha   the limit of alpha
    cuts    per second
    risen   half ways back per second
    beyond  increases of R_AI per second
    """

    alpha: Floats
    cuts: Floats
    risen: Floats
    beyond: Floats

    @staticmethod
    def of(packets: Floats, p: Floats) -> _Flow:
        kept = np.log1p(-p)

        def marked(count: Floats) -> Floats:
            """The probability that at least one of this many packets is marked."""
            return -np.expm1(count * kept)

        def runs(count: Floats) -> Floats:
            """How often per second this many packets in a row are unmarked."""
            return packets * p / np.expm1(np.minimum(-count * kept, 700.0))

        counter, timer = np.full_like(packets, B_COUNTER), T_TIMER * packets
        return _Flow(
            marked(T_ALPHA * packets),
            marked(T_CUT * packets) / T_CUT,
            runs(counter) + runs(timer),
            runs(counter) * (1 - marked(FAST * counter)) + runs(timer) * (1 - marked(FAST * timer)),
        )


def standing_mark(flows: int, capacity: float) -> float:
    """The marked part of the packets at which equal flows that fill a link keep their rates.

    In equilibrium, target - rate = R_AI beyond / cuts, and rate alpha cuts = (target - rate) risen.
    """
    rate = np.asarray([capacity / flows])
    increase = R_AI * capacity / RATE_OF_PAPER

    def falls(p: float) -> bool:
        now = _Flow.of(rate / PACKET, np.asarray([p]))
        return bool((rate * now.alpha * now.cuts**2 > increase * now.beyond * now.risen).all())

    low, high = 1e-9, 0.5
    while high > low * (1 + 1e-9):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if falls(middle) else (middle, high)
    return low


def standing_queue(flows: int, capacity: float) -> float:
    """The queue in bytes at which switches mark this part of the packets. Infinite above P_MAX.

    `capacity` in bytes/s.
    """
    p = standing_mark(flows, capacity)
    return (K_MIN + p / P_MAX * (K_MAX - K_MIN)) * capacity / RATE_OF_PAPER if p <= P_MAX else float("inf")


class Dcqcn:
    """The reaction points."""

    def __init__(self, network: QueueNetwork) -> None:
        self._step = network.step
        self._line = network.line
        self._increase = R_AI * self._line / RATE_OF_PAPER
        self.rate = self._line.copy()
        self._target = self._line.copy()
        self._alpha = np.ones(network.flows)

    def see(self, seen: Seen) -> None:
        """One step of the fluid model's three equations."""
        now = _Flow.of(self.rate / PACKET, np.clip(seen.mark, 1e-9, 0.999))
        apart = self._target - self.rate
        self._alpha += self._step * GAIN / T_ALPHA * (now.alpha - self._alpha)
        self._target += self._step * (self._increase * now.beyond - apart * now.cuts)
        self.rate += self._step / 2 * (apart * now.risen - self.rate * self._alpha * now.cuts)
        self.rate = np.clip(self.rate, self._line / 1000, self._line)
        self._target = np.clip(self._target, self.rate, self._line)
