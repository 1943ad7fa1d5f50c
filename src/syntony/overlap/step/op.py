"""One task of a training step: computation of a device, or communication of its groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from syntony.overlap.step.op_key import OpKey


class Kind(StrEnum):
    """What an Op does."""

    FORWARD = "fwd"
    BACKWARD = "bwd"  # gradients of inputs and weights in one
    BACKWARD_INPUT = "bwd_x"
    BACKWARD_WEIGHT = "bwd_w"
    RECOMPUTE = "recompute"
    REBUILD = "rebuild"  # sums of gradients, from all ranks' factors of them
    NORM = "norm"  # of all gradients, for clipping
    OPTIMIZE = "opt"
    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SHIFT = "shift"  # to the next rank of the group; gradients to the previous one
    SEND = "send"
    RECV = "recv"

    @property
    def moves(self) -> bool:
        """Whether it is communication, which occupies a link instead of the processor."""
        return self in _MOVING


_MOVING = frozenset(
    {
        Kind.ALL_REDUCE,
        Kind.REDUCE_SCATTER,
        Kind.ALL_GATHER,
        Kind.ALL_TO_ALL,
        Kind.BROADCAST,
        Kind.SHIFT,
        Kind.SEND,
        Kind.RECV,
    }
)

COMPUTE = "compute"  # the queue of a device's computation; all others are named after the communicating group


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [begin, end) of one layer's weights, or of their gradients, as they lie in its flat buffer."""

    layer: int
    begin: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.begin


class Op(NamedTuple):
    """One task. A tuple, as passes create hundreds of thousands of them.

    key         its identity, unique in its Graph
    device      the device of its queues: the pipeline stage, as all ranks of a stage do the same
    lane        `compute`, or the group that communicates: `dp`, `edp`, `tp`, `pp`, `ep`, `cp`
    amount      floating-point operations, or bytes (of the larger buffer, as nccl-tests count them)
    deps        keys of Ops that must have ended in the same step
    lagged      keys of Ops that must have ended in the previous step (weights that the last step has made)
    layer, microbatch, segment, peer    if it has one, else -1; `peer`: the other device of a message
    pieces      of weights or gradients that move, adjacent in memory
    of          the Ops of the recorded step of which it is a part or a union; empty: itself
    holds       bytes of memory taken when it begins
    frees       bytes freed when it ends
    """

    key: OpKey
    kind: Kind
    device: int
    lane: str
    amount: float
    deps: tuple[OpKey, ...] = ()
    lagged: tuple[OpKey, ...] = ()
    layer: int = -1
    microbatch: int = -1
    segment: int = -1
    peer: int = -1
    pieces: tuple[Piece, ...] = ()
    of: tuple[OpKey, ...] = ()
    holds: float = 0.0
    frees: float = 0.0

    @property
    def sources(self) -> tuple[OpKey, ...]:
        """The Ops of the recorded step that it represents, as the trainer knows them."""
        return self.of or (self.key,)
