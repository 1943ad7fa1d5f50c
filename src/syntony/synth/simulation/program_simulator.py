"""The simulator of Programs: lanes that step through their instructions slice by slice, and FIFOs between them.

    rank 0, lane 0:  send ─────────────▶ send ─────────▶ ..       a send lasts until its last byte is on the wire
    FIFO 0 -> 1      [=== slice 0 ===]·alpha·▶[=== slice 1 ===]   room for `fifo_depth` messages, on the wire or there
    rank 1, lane 2:                  recv_reduce_send ──▶ ..      takes a message once it is there; its place in the
                                                                  FIFO is free again when the instruction is done

This models an executor (csrc/core/progress/executor.hpp), timed by the wires alone: every lane runs its list once per
slice; an instruction waits for its dependencies in the same slice, for its message, for room; an empty slice of a chunk
is not sent. Copies, reductions, the return of FIFO credits and peer_read requests cost nothing in v1.

A Program names no links. A message takes a route with the fewest links from rank to rank. If there are several,
channels take them round-robin, unless the network chooses (`Ways`; traffic/choice.py). Slices are cut by the byte, not
by the element. With sockets (simulation/sockets.py) the routes are theirs, and a message leaves from a slot, so that
its sender continues at once, as with the CPU executor. `python -m syntony.benchmarks lab sim_vs_lab` compares that with
measured times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from syntony.base.command import UserError
from syntony.base.wording import counted
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.program import Program
from syntony.synth.model.references import References
from syntony.synth.model.target import CPU
from syntony.synth.simulation.connections import Connections, Ways
from syntony.synth.simulation.flows import PathPolicy
from syntony.synth.simulation.lane_classes import one_of_each
from syntony.synth.simulation.message_sizes import MessageSizes
from syntony.synth.simulation.result import Messages, Simulation, StuckError, busy_seconds
from syntony.synth.simulation.sim_program import LaneTimes, SimProgram, simulate_sim_program
from syntony.synth.simulation.sockets import Sockets
from syntony.synth.simulation.utilization import LinkRates
from syntony.topologies.topology import Topology

_FEW_RANKS = 16
_SHORT_MESSAGE = 32 * 1024


def executor_slice(ranks: int) -> int:
    """Bytes of the CPU executor's longest message: one slot of its streams (csrc/core/group/fabric.cpp)."""
    return 128 * 1024 if ranks <= _FEW_RANKS else 64 * 1024


def executor_depth(program: Program, over_tcp: bool = False, longest: float = math.inf) -> int:
    """Messages of up to `longest` bytes that a connection of the CPU executor holds; more if the Program claims more.

    `over_tcp`: in groups of few ranks, twice as many, of short messages eight times (csrc/core/group/fabric.cpp).
    """
    held = CPU.fifo_depth
    if over_tcp and program.ranks <= _FEW_RANKS:
        held *= 8 if longest <= _SHORT_MESSAGE else 2
    return max(held, program.fifo_depth)


@dataclass(frozen=True, eq=False)
class Lanes:
    """A Program of a given size on a topology, ready to be simulated: `columns` are the core's."""

    code: References
    sizes: MessageSizes
    connections: Connections
    columns: SimProgram

    @staticmethod
    def of(
        program: Program,
        topology: Topology,
        size: int,
        slice_bytes: int | None = None,
        fifo_depth: int | None = None,
        ways: Sockets | Ways | None = None,
        late: Mapping[int, float] | None = None,
    ) -> Lanes:
        """See `simulate_program`."""
        if program.ranks != topology.ranks:
            raise UserError(
                f"program '{program.name}' is for {counted(program.ranks, 'rank')}, "
                f"but {topology.name} has {topology.ranks}"
            )
        code = References(program)
        sizes = MessageSizes(code, size, slice_bytes or executor_slice(program.ranks))
        connections = Connections.of(code, Network(topology, collective_of(program)), ways)
        depth = fifo_depth or executor_depth(program, isinstance(ways, Sockets), sizes.longest())
        return Lanes(code, sizes, connections, sim_program_of(code, sizes, connections, topology, depth, ways, late))

    def run(self, every_message: bool = False) -> LaneTimes:
        """Simulates them. Raises StuckError if a FIFO is too short."""
        columns, rows = self.columns, np.arange(len(self.code.opcode))
        if not every_message and (alike := one_of_each(columns)):
            columns, rows = alike
        times = simulate_sim_program(columns, every_slice=every_message)
        if times.stuck_row >= 0:
            # The checker has proven that only too short FIFOs can be the reason.
            program = self.code.program
            raise StuckError(
                f"{program.where(int(rows[times.stuck_row]))} never comes to its end in slice {times.stuck_slice}: "
                f"FIFOs of {columns.fifo_depth} are too short; the program needs {program.fifo_depth}"
            )
        return times


def collective_of(program: Program) -> Collective:
    """The collective that the Program performs, among its ranks."""
    return Collective.make(program.collective, program.ranks, root=program.root)


def simulate_program(
    program: Program,
    topology: Topology,
    size: int,
    slice_bytes: int | None = None,
    fifo_depth: int | None = None,
    every_message: bool = False,
    ways: Sockets | Ways | None = None,
    late: Mapping[int, float] | None = None,
) -> Simulation:
    """Simulates `size` bytes (as `Collective` defines size), rank i of the Program on rank i of the topology.

    slice_bytes    a message's most bytes (default: the CPU executor's); a slice of the heaviest chunk is that over the
                   most slots of any message of the Program, others are shorter
    fifo_depth     messages that a connection holds; default: the CPU executor's, or more where the Program claims more
    every_message  simulates every slice of every lane, and returns its messages and the rates of links over time; else
                   one of lanes that are alike is simulated (simulation/lane_classes.py), steady states are skipped
                   (csrc/solve/simulate/steady_state.hpp), and neither is returned
    ways           Sockets: messages leave from slots, over shared sockets (simulation/sockets.py). Ways: the network
                   chooses paths; those chosen by load are not known here, traffic/program_run.py has them. Default:
                   each connection has a route of its own. A send lasts until its last byte is on the wire, but with
                   Sockets
    late           seconds after which a rank calls, by rank; the others call at 0

    The Program must have passed the checker. Raises UserError where the topology has another number of ranks or no
    route between ranks that talk, and StuckError where a FIFO of `fifo_depth` is too short.
    """
    lanes = Lanes.of(program, topology, size, slice_bytes, fifo_depth, ways, late)
    times = lanes.run(every_message)
    routes = lanes.connections.paths.all_links()
    return Simulation(
        program,
        topology,
        collective_of(program),
        size,
        times.seconds,
        routes,
        Messages(times.row, times.slice, times.path, times.start, times.left, times.arrival),
        busy_seconds(topology, routes, lanes.connections.carried(lanes.sizes.total())),
        LinkRates(times.times, times.link, times.rate) if every_message else None,
    )


def sim_program_of(
    code: References,
    sizes: MessageSizes,
    connections: Connections,
    topology: Topology,
    depth: int,
    ways: Sockets | Ways | None = None,
    late: Mapping[int, float] | None = None,
) -> SimProgram:
    """The columns that the core simulates; `depth` messages fit into a FIFO, `late` has the seconds of ranks."""
    paths, alpha = connections.paths, np.asarray([link.alpha for link in topology.links])
    path = np.repeat(np.arange(len(paths.path_offset) - 1), np.diff(paths.path_offset))
    begins = np.zeros(int(code.lane_agent.max(initial=-1)) + 1)
    begins[[*(late or {})]] = [*(late or {}).values()]
    return SimProgram(
        lane_offset=np.r_[code.lane_first, len(code.opcode)],
        lane_slices=sizes.slices[code.lane_agent],
        begin=begins[code.lane_agent],
        skew=code.skew,
        out=connections.out,
        into=connections.into,
        signals=sizes.signals.astype(np.int64),
        need_offset=np.r_[0, np.cumsum(np.bincount(code.dependency_owner, minlength=len(code.opcode)))],
        need=code.dependency,
        chunk_offset=sizes.chunk_offset,
        chunk=sizes.chunk,
        chunk_bytes=sizes.chunk_bytes,
        slice_bytes=sizes.slice_bytes,
        kind=connections.kind,
        feeder=connections.feeder,
        drainer=connections.drainer,
        flow_offset=connections.flow_offset,
        flow=connections.flow,
        route=connections.route,
        paths=paths,
        latency=np.bincount(path, alpha[paths.link], minlength=len(paths.path_offset) - 1).astype(float),
        capacity=np.asarray([float(link.bandwidth) for link in topology.links]),
        fifo_depth=depth,
        buffered=isinstance(ways, Sockets),
        striped=isinstance(ways, Ways) and ways.flows > 1,
        policy=ways.policy if isinstance(ways, Ways) else PathPolicy.fixed,
    )
