"""A cell, simulated: the Program that the ranks run, on the lab's wires, through the runtime's slots and sockets."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from syntony.benchmarks.sim_vs_lab.model import ACKNOWLEDGED, burst_seconds, network_of, sockets_of
from syntony.lab.lab_spec import LabSpec
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.model.collective import Collective
from syntony.synth.model.program import Program
from syntony.synth.simulation.program_simulator import executor_slice, simulate_program
from syntony.synth.simulation.sockets import Sockets
from syntony.topologies.topology import Topology


@dataclass(frozen=True)
class Prediction:
    """Seconds: the model's word, and what nobody can beat on these wires."""

    seconds: float
    bound: float


class Predictor:
    """Predicts what programs take in the lab of `spec`.

    `latency`: seconds one way, by wire; `memory`: bytes/s from rank to rank of a host, as `memory_rate` measures.
    """

    def __init__(self, spec: LabSpec, latency: dict[int, float], memory: float) -> None:
        self._network: Topology = network_of(spec, executor_slice(spec.topology.ranks), latency, memory)
        self._sockets: Sockets = sockets_of(spec)
        self._burst = burst_seconds(spec)

    def predict(self, program: Program, size: int) -> Prediction:
        """Slots, slices and their number are the CPU executor's (the simulator's defaults)."""
        found = simulate_program(program, self._network, size, ways=self._sockets)
        bounds = bounds_of(self._network, Collective.make(program.collective, program.ranks))
        bound = bounds.seconds(size) / float(1 + ACKNOWLEDGED)  # TCP might do without them
        return Prediction(max(0.0, found.seconds - self._burst), max(0.0, bound - self._burst))


def memory_rate() -> float:
    """Bytes/s from rank to rank through shared memory on this machine: a message is copied in and copied out."""
    piece = np.ones(executor_slice(4), np.uint8)
    places = np.empty((64, len(piece)), np.uint8)
    seconds = []
    for _ in range(9):
        start = time.process_time()
        for place in places:
            place[:] = piece
        seconds.append(time.process_time() - start)
    return places.nbytes / max(median(seconds), 1e-9) / 2
