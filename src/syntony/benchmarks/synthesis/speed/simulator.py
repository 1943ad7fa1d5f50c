"""How fast the simulator is, and how right: `python -m syntony.benchmarks synthesis simulator`.

Seconds are those that the process spends, so that a busy machine changes them little. Where there is a formula, the
last column says how far the answer is from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from syntony import _core
from syntony.benchmarks.tables import Part, Row, Table
from syntony.synth.model.collective import Collective
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Generator, Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder, Values
from syntony.synth.simulation.flows import Flows, PathPolicy, Paths, simulate_flows
from syntony.synth.simulation.program_simulator import simulate_program
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

RANKS, SIZE = 1024, 1 << 30


@dataclass(frozen=True)
class Case:
    """One line of the table.

    work     what is simulated: messages, or flows
    made     process seconds for making it: the schedule, the program, the flows
    seconds  process seconds from there to the answer
    answer   the simulated time, seconds
    formula  what a formula says, seconds; None where there is none
    """

    name: str
    work: int
    made: float
    seconds: float
    answer: float
    formula: float | None


def timed(name: str, work: int, make: Callable[[], object], run: Callable[..., float], formula: float | None) -> Case:
    """Runs a case."""
    begin = time.process_time()
    made = make()
    middle = time.process_time()
    answer = run(made)
    return Case(name, work, middle - begin, time.process_time() - middle, answer, formula)


# --- the ring ---------------------------------------------------------------------------------------------------------


def ring_seconds(topology: Topology) -> float:
    """2 (n-1) steps, each alpha and an n-th of the data."""
    link = topology.links[0]
    return (2 * RANKS - 2) * (link.alpha + SIZE / RANKS / float(link.bandwidth))


def ring_by_symmetry(topology: Topology) -> Schedule:
    """Chunk 0 goes round twice, summing and copying; the turn of the ring makes the other chunks."""
    values = ValueBuilder()
    value, rows = values.contribution(0, 0), []
    for step in range(2 * RANKS - 2):
        src, dst = step % RANKS, (step + 1) % RANKS
        result = value if step >= RANKS - 1 else values.sum([value, values.contribution(0, dst)])
        rows.append(Transfer(value, result, src, dst, step, (topology.links_between(src, dst)[0].id,)))
        value = result
    turn = tuple((rank + 1) % RANKS for rank in range(RANKS))
    collective = Collective.make("all_reduce", RANKS, RANKS)
    return Schedule(topology, collective, values.build(), Transfers.of(rows), symmetry=(Generator(turn, turn),))


def ring_written_out(topology: Topology) -> Schedule:
    """The same ring, all transfers listed, column by column."""
    n = RANKS
    link = np.asarray([topology.links_between(rank, (rank + 1) % n)[0].id for rank in range(n)])
    # Value c*n + r: rank r's part of chunk c; then, chunk by chunk, the sums over ranks c .. c+k.
    chunk, rank = np.divmod(np.arange(n * n), n)
    summed, k = np.divmod(np.arange(n * (n - 1)), n - 1)
    before = np.where(k == 0, summed * n + summed, n * n + summed * (n - 1) + k - 1)
    operands = np.stack([before, summed * n + (summed + k + 1) % n], axis=1).reshape(-1)
    offset = np.r_[np.zeros(n * n + 1, np.int64), 2 * np.arange(1, len(summed) + 1)]
    values = Values(np.r_[chunk, summed], np.r_[rank, np.full(len(summed), -1)], offset, operands)

    step, chunk = np.divmod(np.arange(n * (2 * n - 2)), n)
    src = (chunk + step) % n
    done = np.minimum(step, n - 1)
    moved = np.where(done == 0, chunk * n + chunk, n * n + chunk * (n - 1) + done - 1)
    result = n * n + chunk * (n - 1) + np.minimum(step + 1, n - 1) - 1
    transfers = Transfers(moved, result, src, (src + 1) % n, step, np.arange(len(step) + 1), link[src])
    return Schedule(topology, Collective.make("all_reduce", n, n), values, transfers)


def ring_cases() -> list[Case]:
    """1,024 ranks: by symmetry, written out, and as the builder's Program."""
    topology = parse(f"ring:{RANKS}")
    moves, formula = RANKS * (2 * RANKS - 2), ring_seconds(topology)

    def of_schedule(schedule: Schedule) -> float:
        return simulate(schedule, SIZE).seconds

    def built() -> Program:
        return _core.build("ring", "all_reduce", RANKS)

    def of_program(program: Program) -> float:
        return simulate_program(program, topology, SIZE).seconds

    name = f"ring all_reduce, {RANKS} ranks"
    return [
        timed(f"{name}, symmetric schedule", moves, partial(ring_by_symmetry, topology), of_schedule, formula),
        timed(f"{name}, schedule written out", moves, partial(ring_written_out, topology), of_schedule, formula),
        timed(f"{name}, builder's program", moves * 16, built, of_program, None),
    ]


# --- the fat tree -----------------------------------------------------------------------------------------------------


def all_to_all(topology: Topology, policy: PathPolicy, bytes_: np.ndarray) -> Flows:
    """Everybody sends to everybody at once; between leaves, over any spine (by policy fixed: hashed to one)."""
    random = np.random.default_rng(0)
    sets = []
    for src in range(topology.ranks):
        up = topology.links_from(src)[0]
        for dst in range(topology.ranks):
            down = topology.links_to(dst)[0]
            between = [
                (up.id, *through, down.id)
                for through in ([()] if up.dst == down.src else leaf_to_leaf(topology, up.dst, down.src))
            ]
            if src != dst:
                sets.append([between[random.integers(len(between))]] if policy is PathPolicy.fixed else between)
    capacity = [float(link.bandwidth) for link in topology.links]
    alpha = [sum(topology.links[link].alpha for link in paths[0]) for paths in sets]
    return Flows.make(Paths.of(sets), capacity, bytes_, latency=alpha, policy=policy)


def leaf_to_leaf(topology: Topology, src: int, dst: int) -> list[tuple[int, int]]:
    """Up to every spine and down."""
    return [
        (up.id, down.id)
        for up in topology.links_from(src)
        for down in topology.links_between(up.dst, dst)
        if topology.nodes[up.dst].kind == "switch"
    ]


def fat_tree_cases() -> list[Case]:
    """64 GPUs under 8 leaves, 8:1 oversubscribed: 4,032 flows, equal and unequal."""
    topology = parse("clos:leaves=8,hosts=8,spines=8,oversubscription=8")
    count = topology.ranks * (topology.ranks - 1)
    even = np.full(count, 1e6)
    uneven = even * np.random.default_rng(1).uniform(0.5, 1.5, count)
    trunk = sum(float(link.bandwidth) for link in topology.links_from(topology.ranks))
    trunk -= sum(float(link.bandwidth) for link in topology.links_from(topology.ranks) if link.dst < topology.ranks)
    formula = 8 * 56 * 1e6 / trunk + 4 * topology.links[0].alpha
    cases = []
    for policy in PathPolicy:
        for what, sizes in (("equal", even), ("unequal", uneven)):
            expected = formula if policy is PathPolicy.spray and what == "equal" else None
            name = f"all_to_all, 64 GPUs, fat tree 8:1, {policy.name}, {what} sizes"
            make = partial(all_to_all, topology, policy, sizes)
            cases.append(timed(name, count, make, lambda flows: simulate_flows(flows).seconds, expected))
    return cases


def _cases() -> Iterator[Case]:
    for cases in (fat_tree_cases, ring_cases):
        yield from cases()


def _rows() -> Iterator[Row]:
    for case in _cases():
        off = "" if case.formula is None else f"{abs(case.answer / case.formula - 1):.0e}"
        times = f"{case.made:.2f}", f"{case.seconds:.2f}", f"{case.answer:.6g}"
        yield Row((case.name, f"{case.work:,}", *times, off))


COLUMNS = (("simulated", -60), ("messages", 10), ("made", 7), ("seconds", 8), ("answer", 12), ("off by", 8))
TABLE = Table(
    "simulator",
    "how fast the simulator is, and how right",
    lambda options: (Part("Process seconds; off by: from the formula on paper", COLUMNS, _rows),),
    document=lambda options: ([asdict(case) for case in _cases()], True),
)
