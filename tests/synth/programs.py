"""Programs written by hand for the tests, in the terms of the program file."""

from __future__ import annotations

from typing import Any

from syntony.synth.formats.program_file import from_dict
from syntony.synth.model.program import Program

Row = dict[str, Any]


def program(
    collective: str,
    chunks: list[list[int]],
    agents: list[tuple[list[int], list[int], list[int], list[list[Row]]]],
    **scalars: Any,
) -> Program:
    """A Program; each agent is (input chunks, output chunks, scratch chunks, lanes of instruction objects)."""
    document = {
        "format": "syntony-program",
        "version": 1,
        "name": "by hand",
        "collective": collective,
        "root": 0,
        "ranks": len(agents),
        "fifo_depth": 1,
        "out_of_place": True,
        "in_place": True,
        "rounds_per_hop": False,
        "chunks": chunks,
        "agents": [{"input": i, "output": o, "scratch": s, "lanes": lanes} for i, o, s, lanes in agents],
    }
    return from_dict(document | scalars, "by hand")


def ring_all_reduce(ranks: int, **scalars: Any) -> Program:
    """One lane per rank: partial sums go once round the ring, whole sums once more.

    Chunk c starts at rank c. A rank sends its own chunk first; then each message is added to and sent on, until the
    whole sum arrives at rank c - 1, is stored there, and is copied on around the ring to rank c - 2.
    """
    agents = []
    for rank in range(ranks):
        ends: Row = {"from": (rank - 1) % ranks, "to": (rank + 1) % ranks}
        lane: list[Row] = [{"op": "send", "src": ["input", rank], "to": ends["to"]}]
        for step in range(1, ranks):
            chunk = (rank - step) % ranks
            row: Row = {"op": "recv_reduce_send", "src": ["input", chunk], **ends}
            if step == ranks - 1:
                row = {"op": "recv_reduce_copy_send", "dst": ["output", chunk], "src": ["input", chunk], **ends}
            lane.append(row)
        for step in range(ranks - 1):
            chunk = (rank - step) % ranks
            row = {"op": "recv_copy_send", "dst": ["output", chunk], **ends}
            if step == ranks - 2:
                row = {"op": "recv", "dst": ["output", chunk], "from": ends["from"]}
            lane.append(row)
        agents.append((list(range(ranks)), list(range(ranks)), [], [lane]))
    return program("all_reduce", [[0, 1]] * ranks, agents, **{"fifo_depth": 2, "rounds_per_hop": ranks > 2} | scalars)


def exchange(ranks: int, **scalars: Any) -> Program:
    """All-reduce by direct exchange: all inputs to all ranks, each sums them in the order of the ranks.

    Lanes: one sender per peer, one receiver per peer, one that sums once all messages are there.
    """
    agents = []
    for rank in range(ranks):
        peers = [peer for peer in range(ranks) if peer != rank]
        slots = {peer: ["scratch", at] for at, peer in enumerate(peers)} | {rank: ["input", 0]}
        lanes: list[list[Row]] = [[{"op": "send", "src": ["input", 0], "to": peer}] for peer in peers]
        lanes += [[{"op": "recv", "dst": slots[peer], "from": peer}] for peer in peers]
        # In place the sum overwrites what the senders send: it waits for them too.
        after = [[lane, 0] for lane in range(2 * len(peers))]
        terms = [slots[peer] for peer in range(ranks)]
        lanes.append([{"op": "reduce", "dst": ["output", 0], "src": terms[0], "operands": terms[1:], "after": after}])
        agents.append(([0], [0], [0] * len(peers), lanes))
    return program("all_reduce", [[0, 1]], agents, **scalars)


def relay_broadcast(**scalars: Any) -> Program:
    """Rank 0 -> 1 -> 2, two chunks; rank 1 receives in one lane and sends in another."""
    root_lane = [{"op": "send", "src": ["input", k], "to": 1} for k in range(2)]
    copies = [{"op": "copy", "dst": ["output", 0], "src": ["input", 0], "count": 2}]
    receive = [{"op": "recv", "dst": ["output", k], "from": 0} for k in range(2)]
    forward = [{"op": "send", "src": ["output", k], "to": 2, "after": [[0, k]]} for k in range(2)]
    last = [{"op": "recv", "dst": ["output", k], "from": 1} for k in range(2)]
    agents = [
        ([0, 1], [0, 1], [], [root_lane, copies]),
        ([], [0, 1], [], [receive, forward]),
        ([], [0, 1], [], [last]),
    ]
    return program("broadcast", [[0, 1], [0, 2]], agents, **scalars)


def one_sided_gather(**scalars: Any) -> Program:
    """Rank 1 writes its block into rank 0's output and says so; rank 0 reads rank 2's input when told."""
    root = [
        [{"op": "copy", "dst": ["output", 0], "src": ["input", 0]}, {"op": "wait", "from": 1}],
        [{"op": "wait", "from": 2}, {"op": "peer_read", "dst": ["output", 2], "src": ["input", 0], "to": 2}],
    ]
    writer = [[{"op": "peer_write", "dst": ["output", 1], "src": ["input", 0], "to": 0}, {"op": "signal", "to": 0}]]
    agents = [([0], [0, 1, 2], [], root), ([1], [], [], writer), ([2], [], [], [[{"op": "signal", "to": 0}]])]
    return program("gather", [[0, 1], [1, 1], [2, 1]], agents, **scalars)


def one_sided_relay(order: bool) -> Program:
    """Rank 0 writes into rank 1's scratch; rank 1 copies it out, after the signal when `order`."""
    root = [[{"op": "peer_write", "dst": ["scratch", 0], "src": ["input", 0], "to": 1}, {"op": "signal", "to": 1}]]
    root.append([{"op": "copy", "dst": ["output", 0], "src": ["input", 0]}])
    wait, copy = {"op": "wait", "from": 0}, {"op": "copy", "dst": ["output", 0], "src": ["scratch", 0]}
    lanes = [[wait, copy]] if order else [[copy], [wait]]
    return program("broadcast", [[0, 1]], [([0], [0], [], root), ([], [0], [0], lanes)])
