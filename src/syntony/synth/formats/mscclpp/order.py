"""Synchronization between thread blocks and ranks of an MSCCL++ plan: signals, ports, semaphores, barriers.

    signal, wait    instructions of the same names; of a port channel, signals come from the port's own lane, in the
                    order in which the proxy gets them; flush waits for that lane
    sem_*           nop: the k-th acquire of a semaphore that starts at v depends on its (k - v)-th release
    barrier         two nops: one arrives, the other depends on all that arrive

Relaxed signals do not order data, so they are accepted only where there is none to order: before the first operation of
a thread block and after its last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from enum import Enum

from syntony.synth.formats.mscclpp.lanes import Apart, Lane, Place, Row
from syntony.synth.formats.mscclpp.plan import SCRATCH_BYTES, MscclppPlan, Op
from syntony.synth.model.instructions import Opcode


class Orders(Enum):
    """The operations of its thread block that a signal orders; `nothing` if there are none."""

    data = 0
    nothing = 1
    too_little = 2


class Order:
    """Collects synchronization while the plan is read; `settle` turns it into dependencies."""

    def __init__(self, plan: MscclppPlan, lanes: list[list[Lane]]) -> None:
        self.plan, self.lanes = plan, lanes
        self.ports: dict[tuple[int, int, int], tuple[Lane, int]] = {}  # (rank, peer, number) -> lane, thread block
        self.releases: dict[tuple[int, int], list[tuple[int, list[Place]]]] = defaultdict(list)
        self.acquires: dict[tuple[int, int], list[tuple[int, Op, Row]]] = defaultdict(list)
        self.barriers: dict[tuple[int, int], dict[int, list[tuple[Op, Place, Row]]]] = defaultdict(dict)
        # Per connection, message after message: what the signal orders; whether what the wait sees matters.
        self.signals: dict[tuple[int, int, int], list[Orders]] = defaultdict(list)
        self.waits: dict[tuple[int, int, int], list[tuple[Op, bool]]] = defaultdict(list)

    def settle(self) -> None:
        """Makes dependencies of semaphores and barriers; refuses relaxed signals if data is waited for."""
        self._settle_semaphores()
        self._settle_barriers()
        self._settle_relaxed()

    def port(self, rank: int, block: int, op: Op, peer: int, number: int) -> Lane:
        """The lane of a port channel, which one thread block alone may feed."""
        lane, owner = self.ports.get((rank, peer, number), (None, block))
        if lane is None:
            lane = Lane()
            self.lanes[rank].append(lane)
            self.ports[rank, peer, number] = lane, block
        if owner != block:
            op.refuse(f"shares its port channel to rank {peer} with threadblock {owner}; their order is not defined")
        return lane

    def send_signal(self, lane: Lane, rank: int, peer: int, channel: int, orders: Orders, after: list[Place]) -> None:
        lane.add(Row(Opcode.signal, send_peer=peer, channel=channel, after=after))
        self.signals[rank, peer, channel].append(orders)

    def signal(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        if not op.channels:
            op.refuse("names no channel; it must name at least one")
        if (apart.data or apart.waited) and op.name == "signal":
            op.refuse("signals while threads of its block may still touch data or wait; a nop must stand before it")
        orders = Orders.data if op.name == "signal" else Orders.too_little if apart.began else Orders.nothing
        for channel in op.channels:
            number = 2 * channel.number + channel.port
            if channel.port:
                port = self.port(rank, block, op, channel.peer, channel.number)
                self.send_signal(port, rank, channel.peer, number, orders, lane.last())
            else:
                self.send_signal(lane, rank, channel.peer, number, orders, [])

    def wait(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        if not op.channels:
            op.refuse("names no channel; it must name at least one")
        for channel in op.channels:
            number = 2 * channel.number + channel.port
            lane.add(Row(Opcode.wait, recv_peer=channel.peer, channel=number))
            self.waits[channel.peer, rank, number].append((op, apart.closing))
        apart.waited = apart.began = True

    def _settle_relaxed(self) -> None:
        for connection, waits in self.waits.items():
            for (op, closing), orders in zip(waits, self.signals[connection], strict=False):
                if closing or orders == Orders.nothing:
                    continue
                if op.name == "rlxwait":
                    op.refuse("does not see the data that is waited for; it must be wait")
                if orders == Orders.too_little:
                    op.refuse("waits for data, yet what it waits for is an rlxsignal; that must be signal")

    def flush(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        if not op.channels:
            op.refuse("names no channel; it must name at least one")
        for channel in op.channels:
            if not channel.port:
                op.refuse("flushes a memory channel; only port channels hold anything back")
            port = self.port(rank, block, op, channel.peer, channel.number)
            lane.add(Row(Opcode.nop, after=port.last()))
        apart.waited = apart.began = True

    def release(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        if not op.semaphores:
            op.refuse("names no semaphore; it must name at least one")
        if apart.data or apart.waited:
            op.refuse("releases while threads of its block may still touch data or wait; a nop must stand before it")
        for number in op.semaphores:
            self.releases[rank, number].append((block, lane.last()))

    def acquire(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        if not op.semaphores:
            op.refuse("names no semaphore; it must name at least one")
        for number in op.semaphores:
            row = Row(Opcode.nop)
            lane.add(row)
            self.acquires[rank, number].append((block, op, row))
            start = self.plan.gpus[rank].semaphores[number]
            if op.unit and self.plan.reuse and start > 0:
                room = SCRATCH_BYTES // max(1, self.plan.gpus[rank].scratch)
                if start * op.unit > room:
                    op.refuse(
                        f"lets {start} rounds of {op.unit} bytes run ahead, yet a chunk of reused scratch holds {room}"
                    )
        apart.waited = apart.began = True

    def _settle_semaphores(self) -> None:
        """The k-th acquire of a semaphore that starts at v ends with its (k - v)-th release."""
        for (rank, number), acquires in self.acquires.items():
            releases = self.releases[rank, number]
            start = self.plan.gpus[rank].semaphores[number]
            for at, (block, op, row) in enumerate(acquires):
                needed = at + 1 - start
                if needed <= 0 or (at + 1 < len(acquires) and acquires[at + 1][1] is op):
                    continue  # an operation that acquires it several times waits for the last of these
                if needed > len(releases):
                    op.refuse(
                        f"waits forever: semaphore {number} starts at {start} and is released {len(releases)} times"
                    )
                if {other for other, _, _ in acquires} != {block}:
                    op.refuse(f"shares semaphore {number} with other thread blocks; who gets a release is not defined")
                if len({other for other, _ in releases}) == 1:
                    row.after += releases[needed - 1][1]
                elif needed == len(releases):
                    row.after += [place for _, places in releases for place in places if place not in row.after]
                else:
                    op.refuse(f"waits for some of the thread blocks that release semaphore {number}; it must be all")

    def barrier(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        if op.barrier[0] < 0:
            op.refuse("has no barrier_id and num_threadblocks")
        arrival = lane.add(Row(Opcode.nop))
        departure = Row(Opcode.nop)
        lane.add(departure)
        self.barriers[rank, op.barrier[0]].setdefault(block, []).append((op, arrival, departure))
        apart.nop()
        apart.began = True

    def _settle_barriers(self) -> None:
        for meetings in self.barriers.values():
            turns = {len(meeting) for meeting in meetings.values()}
            for meeting in meetings.values():
                for turn, (op, _, departure) in enumerate(meeting):
                    if op.barrier[1] != len(meetings) or len(turns) > 1:
                        op.refuse(
                            f"{op.barrier[1]} thread blocks must meet at barrier {op.barrier[0]}, equally often; "
                            f"{len(meetings)} do"
                        )
                    departure.after += [other[turn][1] for other in meetings.values()]


Ordering = Callable[[Order, int, int, Lane, Apart, Op], None]
ORDERINGS: dict[str, Ordering] = {
    **dict.fromkeys(("signal", "rlxsignal"), Order.signal),
    **dict.fromkeys(("wait", "rlxwait"), Order.wait),
    "flush": Order.flush,
    "barrier": Order.barrier,
    "sem_acquire": Order.acquire,
    "sem_release": Order.release,
}
"""By the names of the operations."""
