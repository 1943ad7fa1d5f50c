"""NCCL's own cost model for rings and trees: its estimate of a collective's time, and so its choice.

    time = latency + bytes / bandwidth, from the channels of the graph, the GPUs, and the number of hosts

Figures and rules are those of src/graph/tuning.cc of NCCL 2.30. `calibrated` scales both parts to the measurements, so
that unmeasured ways can be compared with measured ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log

import numpy as np
from scipy.optimize import nnls

from syntony.synth.nccl.channels import Host
from syntony.synth.nccl.machine.paths import PathKind
from syntony.synth.nccl.tuning.tuner import Curve, Way

_LEAST = 0.01  # a factor; without it, measurements only at large sizes would not determine latencies
SIZES = tuple(1 << power for power in range(8, 33))
WAYS = tuple(Way(algorithm, protocol) for algorithm in ("tree", "ring") for protocol in ("ll", "ll128", "simple"))
_PROTOCOLS = ("ll", "ll128", "simple")

# Microseconds, by protocol.
_BASE = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
_HOP = {
    "NVLINK": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    "PCI": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
    "NET": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
}
# GB/s, for 1, 2, and more hosts; by generation from Volta to Blackwell.
_LL = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
_RING_LL128 = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (40.0,) * 3)
_TREE_LL128 = ((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
_TREE = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
_TREE_PART = (  # of the bandwidth of a tree, by the logarithm of bytes / 64
    (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1),
    (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9),
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """The model's inputs about a group of GPUs: `rings` and `trees` are channels and GB/s of each."""

    nodes: int
    ranks: int
    capability: int
    nvlink: bool
    amd: bool
    rings: tuple[int, float]
    trees: tuple[int, float]


def group_of(host: Host, rings: tuple[int, float], trees: tuple[int, float], nodes: int) -> Group:
    """A group on `nodes` hosts like this one, with these channels."""
    machine = host.machine
    kinds = [host.paths.between(one.node, other.node).kind for one in machine.gpus for other in machine.gpus
             if one is not other]  # fmt: skip
    return Group(
        nodes,
        nodes * len(machine.gpus),
        min(gpu.capability for gpu in machine.gpus),
        bool(kinds) and max(kinds) <= PathKind.NVB,
        not any(cpu.intel or cpu.power for cpu in machine.kinds("cpu")),
        rings,
        trees,
    )


@dataclass(frozen=True)
class Predicted:
    """The model's times of one way, seconds; `latency` (s) and `per_byte` (s) hold for all sizes, except that the
    tree's bandwidth depends on the size."""

    way: Way
    latency: float
    per_byte: float
    plateau: tuple[float, float] = (1.0, 0.0)
    """A factor on the latency, and the number of bytes from which on it applies."""

    sizes: Sequence[int] = SIZES

    def at(self, size: float) -> float:
        """Seconds."""
        return sum(self.parts(size))

    def parts(self, size: float) -> tuple[float, float]:
        """Seconds of latency and of transfer."""
        factor, least = self.plateau
        part = 1.0
        place = int(size / 64).bit_length() - 1
        if self.way.algorithm == "tree" and 0 <= place < 23:
            part = _TREE_PART[_PROTOCOLS.index(self.way.protocol)][place]
        return self.latency * (factor if size >= least else 1.0), size * self.per_byte / part


def predicted(group: Group, collective: str) -> list[Predicted]:
    """All ways of rings and trees that the model knows for the collective; LL128 only over NVLinks from Volta on."""
    trees = collective == "all_reduce"
    ways = [way for way in WAYS if trees or way.algorithm == "ring"]
    return [
        _predicted(group, collective, way)
        for way in ways
        if way.protocol != "ll128" or (group.nvlink and group.capability >= 70)
    ]


def _predicted(group: Group, collective: str, way: Way) -> Predicted:
    protocol, generation = _PROTOCOLS.index(way.protocol), _generation(group.capability)
    hosts = min(group.nodes, 3) - 1
    low_latency = _LL[generation if group.nodes == 1 else int(group.amd)][hosts]
    channels, speed = group.rings if way.algorithm == "ring" else group.trees
    rate = channels * speed
    steps = {"all_reduce": 2 * (group.ranks - 1), "all_gather": group.ranks - 1, "reduce_scatter": group.ranks - 1}.get(
        collective, group.ranks
    )
    inside = _HOP["NVLINK" if group.nvlink else "PCI"][way.algorithm][protocol]
    per_node = group.ranks // group.nodes
    between = _HOP["NET"]["tree" if per_node == 1 else way.algorithm][protocol]
    latency = _BASE[way.algorithm][protocol]
    plateau = (1.0, 0.0)
    if way.algorithm == "ring":
        rate = (min(low_latency, rate / 2), min(0.92 * rate, channels * _RING_LL128[generation][hosts]), rate)[protocol]
        rate *= group.ranks / steps
        if collective in ("broadcast", "reduce"):
            latency += inside if group.nodes == 1 else _HOP["NET"]["ring"][protocol]
        else:
            if group.nodes > 1:
                inside = max(inside, (2.0 if group.amd else 1.0) * (3 if way.protocol == "simple" else 1))
            crossings = 0 if group.nodes == 1 else (group.nodes - 1) * (2 if collective == "all_reduce" else 1)
            latency += (steps - crossings) * inside + crossings * between
        if way.protocol == "simple" and group.nodes > 1 and collective == "all_reduce":
            plateau = (1.9 if group.capability < 80 else 1.4, 64.0 * channels * group.ranks)
    else:
        rate = min(0.92 * rate, channels * _TREE[generation][hosts])
        if way.protocol == "ll":
            rate = min(rate / 3.8, low_latency)
        elif way.protocol == "ll128":
            most = channels * _TREE_LL128[generation][hosts]
            rate = min(rate * (7 / 9 if group.nodes == 1 else 120 / 128), most)
        rate /= 2
        latency += 2 * ((per_node - 1) * inside + (group.nodes.bit_length() - 1) * between)
    return Predicted(way, latency * 1e-6, 1e-9 / rate, plateau)


def _generation(capability: int) -> int:
    return 3 if capability >= 100 else 2 if capability >= 90 else 1 if capability >= 80 else 0


def calibrated(model: Iterable[Predicted], measured: Sequence[Curve]) -> list[Curve | Predicted]:
    """Measured ways as they are; the others from the model, scaled like the measured ways of the same protocol relative
    to the model, or else like all measured ways."""
    known = {one.way: one for one in model}
    scales = {curve.way: _scale(curve, known[curve.way]) for curve in measured if curve.way in known}
    found: list[Curve | Predicted] = list(measured)
    for way, one in known.items():
        if any(curve.way == way for curve in measured):
            continue
        alike = [scale for other, scale in scales.items() if other.protocol == way.protocol] or list(scales.values())
        by_latency, by_byte = (_mean([scale[part] for scale in alike]) for part in (0, 1))
        found.append(replace(one, latency=one.latency * by_latency, per_byte=one.per_byte * by_byte))
    return found


def _scale(curve: Curve, model: Predicted) -> tuple[float, float]:
    """Factors on the model's two parts that minimize relative errors at the measured sizes."""
    seconds = np.array(curve.seconds)
    parts = np.array([model.parts(size) for size in curve.sizes])
    (by_latency, by_byte), _ = nnls(parts / seconds[:, None], np.ones(len(seconds)))
    return max(float(by_latency), _LEAST), max(float(by_byte), _LEAST)


def _mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values)) if values else 1.0
