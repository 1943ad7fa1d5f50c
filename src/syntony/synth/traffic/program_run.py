"""A Program on the paths that a network chooses, message by message, for `simulate --explain` and traces.

The simulator of Programs (simulation/program_simulator.py) records for every message which one it waited for last. So
the messages become the flows of one job, each after the one that it waited for, with their simulated times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syntony.base.wording import counted
from syntony.synth.model.instructions import Opcode
from syntony.synth.model.program import Program
from syntony.synth.simulation.flows import Flows, FlowTimes
from syntony.synth.simulation.program_simulator import Lanes, collective_of
from syntony.synth.simulation.sim_program import LaneTimes, simulate_sim_program
from syntony.synth.traffic.choice import AS_SCHEDULED, Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import MOST, Messages, TooMuchError
from syntony.synth.traffic.run import Outcome, Traffic
from syntony.topologies.topology import Topology


@dataclass(frozen=True, eq=False)
class ProgramOutcome(Outcome):
    """The outcome of a Program's messages; a flow is a message, or its part on one queue pair."""

    lanes: Lanes
    size: int
    slice_bytes: int | None

    def seconds_with(self, capacity: NDArray[np.float64]) -> float:
        return simulate_sim_program(replace(self.lanes.columns, capacity=capacity)).seconds

    def seconds_by(self, choice: Choice) -> float:
        depth = self.lanes.columns.fifo_depth
        ways = choice.ways(self.traffic.topology)
        program = self.lanes.code.program
        return Lanes.of(program, self.traffic.topology, self.size, self.slice_bytes, depth, ways).run().seconds


def run_program(
    program: Program,
    topology: Topology,
    size: int,
    choice: Choice | None = None,
    slice_bytes: int | None = None,
    fifo_depth: int | None = None,
) -> ProgramOutcome:
    """Simulates every message, on the routes of `simulate_program` if there is no choice.

    Raises the errors of `simulate_program`, and TooMuchError if there are more messages than fit.
    """
    ways = choice.ways(topology) if choice else None
    lanes = Lanes.of(program, topology, size, slice_bytes, fifo_depth, ways)
    sends = lanes.connections.out >= 0
    count = int(lanes.sizes.slices[lanes.code.agent[sends]].sum()) * (choice.queue_pairs if choice else 1)
    if count > MOST:
        raise TooMuchError(
            f"it sends up to {counted(count, 'message')}; at most {MOST} are looked at one by one: give longer slices, "
            "such as --slice 16M"
        )
    times = lanes.run(every_message=True)
    return ProgramOutcome(_traffic(lanes, times, topology, choice), _flow_times(times), lanes, size, slice_bytes)


def _traffic(lanes: Lanes, times: LaneTimes, topology: Topology, choice: Choice | None) -> Traffic:
    code, columns = lanes.code, lanes.columns
    _, first, message = np.unique(np.stack([times.row, times.slice]), axis=1, return_index=True, return_inverse=True)
    message = message.reshape(-1)
    peer = code.program.field("send_peer").astype(np.int64)
    row = times.row[first]
    mine, other, reads = code.agent[row], peer[row], code.opcode[row] == Opcode.peer_read
    messages = Messages.make(
        code.program.ranks,
        np.where(reads, other, mine),
        np.where(reads, mine, other),
        np.bincount(message, times.bytes, minlength=len(first)),
        follows=np.full(len(first), -1),
    )
    after, left = times.cause >= 0, times.cause_left.astype(bool)
    arrived, has_left = after & ~left, after & left
    flows = Flows(
        bytes=times.bytes,
        latency=times.arrival - times.left,
        release=np.zeros(len(message)),
        after_offset=np.r_[0, np.cumsum(arrived)],
        after=times.cause[arrived],
        after_left_offset=np.r_[0, np.cumsum(has_left)],
        after_left=times.cause[has_left],
        set=columns.route[times.flow],
        policy=np.full(len(message), columns.policy),
        job=np.zeros(len(message), np.int32),
        paths=columns.paths,
        capacity=columns.capacity,
    )
    collective = collective_of(code.program)
    job = Job(collective.kind, collective.members, messages)
    return Traffic(topology, (job,), choice or AS_SCHEDULED, flows, np.zeros(len(message), np.int64), message)


def _flow_times(times: LaneTimes) -> FlowTimes:
    path = times.path.astype(np.int32)
    return FlowTimes(times.start, times.left, times.arrival, path, times.times, times.link, times.rate)
