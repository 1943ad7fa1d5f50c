"""Target: the limits of an executor or a file format. `fit` rejects a Program and names the limit that it breaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syntony.base.command import UserError
from syntony.base.rows import ascending
from syntony.synth.model.instructions import ONE_SIDED, RECEIVES, SENDS, Opcode
from syntony.synth.model.program import Program


class TargetError(UserError):
    """A Program exceeds the limits of a Target."""


@dataclass(frozen=True)
class Target:
    """The limits of one executor or format; None: no limit.

    fifo_depth             messages that a connection holds; a Program may need fewer
    channels               connections per ordered pair of ranks
    lanes                  per agent
    lanes_per_channel      per agent
    lane_instructions      per lane
    message_slots          slots per message
    single_peer_lanes      a lane talks to at most one peer per direction, on one channel
    signals, one_sided     signal and wait; peer_read and peer_write
    skew                   instructions may lag their lane's turn by some slices; others run slice after slice
    weights                chunks of one buffer may differ in weight
    name_length            characters; longer names are truncated
    """

    name: str
    fifo_depth: int
    channels: int
    lanes: int | None = None
    lanes_per_channel: int | None = None
    lane_instructions: int | None = None
    message_slots: int | None = None
    single_peer_lanes: bool = False
    signals: bool = True
    one_sided: bool = True
    skew: bool = True
    weights: bool = True
    name_length: int | None = None


CPU = Target("cpu", fifo_depth=4, channels=32, one_sided=False)
"""Our CPU executor over shared memory and TCP."""

MSCCL = Target(
    "msccl",
    fifo_depth=2,
    channels=32,
    lanes=216,
    lanes_per_channel=32,
    lane_instructions=256,
    message_slots=71,
    single_peer_lanes=True,
    signals=False,
    one_sided=False,
    skew=False,
    weights=False,
    name_length=63,
)
"""MSCCL, msccl-scheduler and RCCL: the limits of their parsers; FIFOs of the Simple protocol (8 steps, 4 a message)."""

PLAN = Target(
    "mscclpp",
    fifo_depth=2**31 - 1,
    channels=1 << 16,
    message_slots=1 << 16,
    signals=False,
    one_sided=False,
    weights=False,
    skew=False,
)
"""MSCCL++'s executor, for Programs of messages. Every message gets its own memory; the limits of a thread block are
checked when the plan is written (formats/mscclpp/export.py)."""

CONVERSION = Target("conversion", fifo_depth=2**31 - 1, channels=1 << 16)
"""Not an executor: the limits of Program v1 itself."""


def fit(program: Program, target: Target) -> Program:
    """Returns the Program if the Target can run it (without skews if the Target has none, its name truncated); raises
    TargetError otherwise."""

    def refuse(what: str, found: int | str, limit: int | None, hint: str = "") -> None:
        if limit is not None and (isinstance(found, str) or found > limit):
            raise TargetError(
                f"program '{program.name}' does not fit target '{target.name}': {what} ({found}, limit {limit}){hint}"
            )

    opcode = program.field("opcode")
    refuse("its connections need deeper FIFOs", program.fifo_depth, target.fifo_depth)
    refuse("it uses more channels", program.channels, target.channels)
    first, lane_agent = program.lane_start
    lengths = np.diff(np.r_[first, len(opcode)])
    refuse("a rank has more lanes", int(np.bincount(lane_agent, minlength=1).max()), target.lanes)
    fewer = "; `syntony synth --most-chunks N` finds schedules that need fewer"
    refuse("a lane has more instructions", int(lengths.max(initial=0)), target.lane_instructions, fewer)
    talks = SENDS[opcode] | RECEIVES[opcode]
    refuse("a message takes more slots", int(program.field("count")[talks].max(initial=0)), target.message_slots)
    for allowed, used, what in (
        (target.one_sided, ONE_SIDED[opcode], "peer_read and peer_write are not supported"),
        (target.signals, np.isin(opcode, (Opcode.signal, Opcode.wait)), "signals are not supported"),
    ):
        if not allowed and used.any():
            raise TargetError(
                f"program '{program.name}' does not fit target '{target.name}': {what} "
                f"({program.where(int(np.argmax(used)))})"
            )
    if not target.weights and len(ascending(program.chunks[:, 1])) > 1:
        raise TargetError(
            f"program '{program.name}' does not fit target '{target.name}': its chunks have weights "
            f"{program.chunks[:, 1].min()} to {program.chunks[:, 1].max()}; they must be equal"
        )
    _fit_lanes(program, target, first, lane_agent)
    if target.name_length is not None and len(program.name) > target.name_length:
        program = program.replace(name=program.name[: target.name_length].rstrip())
    return program if target.skew or not program.skewed else program.without_skew()


def _fit_lanes(program: Program, target: Target, first: np.ndarray, lane_agent: np.ndarray) -> None:
    if not target.single_peer_lanes:
        return
    opcode = program.field("opcode")
    on_channel: dict[tuple[int, int], int] = {}
    ends = [*first[1:].tolist(), len(opcode)]
    for agent, start, end in zip(lane_agent.tolist(), first.tolist(), ends, strict=True):
        rows = np.arange(start, end)
        talks = rows[SENDS[opcode[rows]] | RECEIVES[opcode[rows]]]
        for what, used, name in (
            ("receives from", RECEIVES, "recv_peer"),
            ("sends to", SENDS, "send_peer"),
            ("uses channels", SENDS | RECEIVES, "channel"),
        ):
            values = ascending(program.field(name)[rows][used[opcode[rows]]])
            if len(values) > 1:
                raise TargetError(
                    f"program '{program.name}' does not fit target '{target.name}': rank {agent}, lane "
                    f"{program.field('lane')[start]} {what} {', '.join(map(str, values))}; it must be one"
                )
        channel = int(program.field("channel")[talks[0]]) if len(talks) else 0
        number = on_channel[agent, channel] = on_channel.get((agent, channel), 0) + 1
        if target.lanes_per_channel is not None and number > target.lanes_per_channel:
            raise TargetError(
                f"program '{program.name}' does not fit target '{target.name}': rank {agent} has more than "
                f"{target.lanes_per_channel} lanes on channel {channel}"
            )
