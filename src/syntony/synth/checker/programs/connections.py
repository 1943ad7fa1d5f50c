"""Checks that sends and receives match. Lanes run in order and a connection is one FIFO, so this is decided statically.

    rank 0, lane 3:  send a   send b          connection (0, 1, channel 0):  a b
    rank 1, lane 0:  recv x   recv y                                         x y    -> a feeds x, b feeds y

It proves: one lane feeds a connection and one lane drains it; as many messages are sent as received; each pair agrees
in kind (data or signal), number of slots, their chunks, and skew. A slot is as large as its chunk, so equal chunks have
equal sizes for every binding, and by induction every slot only ever holds values of its own chunk. All lanes take
turns in the same way (program.hpp), so equal skews match each slice of a send with the same slice of its receive.
"""

from __future__ import annotations

import numpy as np

from syntony.synth.checker.programs.resolved import Column, Resolved
from syntony.synth.model.instructions import Opcode


def match(code: Resolved) -> None:
    """Proves this and fills `code.partner`; raises FaultError."""
    _local_chunks(code)
    for ends, verb in ((code.out, "fed"), (code.into, "drained")):
        _one_lane(code, ends, verb)

    senders, receivers = _in_order(code.out), _in_order(code.into)
    sent = np.bincount(code.out[senders], minlength=len(code.connections))
    received = np.bincount(code.into[receivers], minlength=len(code.connections))
    unequal = np.flatnonzero(sent != received)
    if len(unequal):
        raise _unequal(code, int(unequal[0]), senders, receivers)
    code.partner[receivers] = senders
    _message_skews(code, receivers)
    _message_chunks(code, receivers)


def _in_order(ends: Column) -> Column:
    """The instructions that use a connection, connection by connection, in lane order."""
    rows = np.flatnonzero(ends >= 0)
    return rows[np.argsort(ends[rows], kind="stable")]


def _one_lane(code: Resolved, ends: Column, verb: str) -> None:
    rows = _in_order(ends)
    same = ends[rows[1:]] == ends[rows[:-1]]
    bad = np.flatnonzero(same & (code.lane[rows[1:]] != code.lane[rows[:-1]]))
    if len(bad):
        row, first = int(rows[bad[0] + 1]), int(rows[bad[0]])
        raise code.fault(
            row,
            f"{code.connection(int(ends[row]))} is already {verb} by {code.program.where(first)}; "
            f"a connection must be {verb} by one lane, so that order matches messages",
        )


def _unequal(code: Resolved, connection: int, senders: Column, receivers: Column) -> Exception:
    sends = senders[code.out[senders] == connection]
    takes = receivers[code.into[receivers] == connection]
    told = f"{code.connection(connection)} carries {len(sends)} messages, yet {len(takes)} are received"
    if len(sends) > len(takes):
        return code.fault(int(sends[len(takes)]), f"sends message {len(takes)}, which nobody receives ({told})")
    return code.fault(int(takes[len(sends)]), f"waits for message {len(sends)}, which nobody sends ({told})")


def _message_skews(code: Resolved, receivers: Column) -> None:
    sends = code.partner[receivers]
    bad = np.flatnonzero(code.skew[receivers] != code.skew[sends])
    if len(bad):
        row, sender = int(receivers[bad[0]]), int(sends[bad[0]])
        raise code.fault(
            row,
            f"has skew {code.skew[row]}, but {code.program.where(sender)} sends with skew {code.skew[sender]}; both "
            "ends of a message must be equally far behind",
        )


def _message_chunks(code: Resolved, receivers: Column) -> None:
    sends = code.partner[receivers]
    signal, wait = code.opcode[sends] == Opcode.signal, code.opcode[receivers] == Opcode.wait
    bad = np.flatnonzero(signal != wait)
    if len(bad):
        row, sender = int(receivers[bad[0]]), int(sends[bad[0]])
        raise code.fault(
            row, f"its message comes from {code.program.where(sender)}; a wait takes signals, and only they"
        )
    data = ~wait
    receivers, sends = receivers[data], sends[data]
    bad = np.flatnonzero(code.count[receivers] != code.count[sends])
    if len(bad):
        row, sender = int(receivers[bad[0]]), int(sends[bad[0]])
        raise code.fault(
            row,
            f"takes {code.count[row]} slots, {code.program.where(sender)} sends {code.count[sender]}",
            _chunk(code, row),
        )
    taken = np.where(code.dst >= 0, code.dst, code.src)
    # A sender that also receives forwards what it stores or (recv_reduce_send) a value as large as its own source.
    passed = np.where((code.opcode == Opcode.send) | (code.dst < 0), code.src, code.dst)
    _equal_chunks(code, receivers, taken[receivers], passed[sends], "takes", sends)


def _local_chunks(code: Resolved) -> None:
    """The destination, source and operands of an instruction have the same chunks."""
    both = np.flatnonzero((code.dst >= 0) & (code.src >= 0))
    _equal_chunks(code, both, code.dst[both], code.src[both], "writes")
    owner = code.operand_owner
    _equal_chunks(code, owner, code.dst[owner], code.operand, "sums")


def _equal_chunks(
    code: Resolved, rows: Column, wanted: Column, given: Column, verb: str, senders: Column | None = None
) -> None:
    count = code.count[rows]
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    wanted, given = np.repeat(wanted, count) + within, np.repeat(given, count) + within
    bad = np.flatnonzero(code.slot_chunk[wanted] != code.slot_chunk[given])
    if not len(bad):
        return
    at = int(np.repeat(np.arange(len(rows)), count)[bad[0]])
    chunk = int(code.slot_chunk[given[bad[0]]])
    told = f"{verb} chunk {chunk} in a slot of another chunk, {code.slot(int(wanted[bad[0]]))}"
    if senders is not None:
        told += f"; {code.program.where(int(senders[at]))} sends it {code.slot(int(given[bad[0]]))}"
    raise code.fault(int(rows[at]), told, chunk)


def _chunk(code: Resolved, row: int) -> int:
    slot = code.dst[row] if code.dst[row] >= 0 else code.src[row]
    return int(code.slot_chunk[slot])
