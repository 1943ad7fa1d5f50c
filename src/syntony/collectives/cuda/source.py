"""A Program as CUDA source: straight-line code, one function per lane, one kernel for all.

    lane 2 of rank 1                            static __device__ void lane_5(const Launch& launch) {
      0  recv_reduce  output[0] + from 0          for (iteration ..)
      1  send         output[0] to 2                if (lane.takes(iteration, 0)) {          // a slice
                                                      ++n3;
                                                      lane.await(the message's flag, n3, ..);
                                                      lane.barrier();
                                                      combine_known<Format, sum>(.., {message, input, output}, ..);
                                                      lane.barrier();
                                                      lane.post(the next message's flag, ++n4);

What an interpreter looks up, the compiler knows: who waits for whom, which slots, how many operands. Sizes and
addresses stay arguments, so a kernel serves every size. The kernel is a switch over all lanes of all ranks: where a
rank has a GPU to itself, its launch runs its own lanes; ranks that share a GPU are launched together. Blink (Wang et
al., MLSys 2020, section 4) and GC3 (Cowan et al., 2022) generate code and threadblock programs like this.

The text is C++20 over the headers of csrc/cuda/device, as the interpreter is: it compiles for a GPU and, with another
Machine, for threads of the host (the tests do that).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from syntony import _core
from syntony.collectives.buffers import UsageError
from syntony.collectives.cuda.zero_copy import Messages, messages
from syntony.synth.model.instructions import ONE_SIDED, Opcode
from syntony.synth.model.program import Program

ROOT = Path(__file__).parents[2] / "include"
HEADERS = (
    "core/kernels/element_types.hpp", "cuda/device/freestanding.hpp", "cuda/device/qualifiers.hpp",
    "cuda/device/formats.hpp", "cuda/device/combine.hpp", "cuda/device/lane.hpp", "cuda/device/cuda_machine.cuh",
)  # fmt: skip
"""What a kernel's text includes, in ROOT; the interpreter is made of the same."""

_FORMATS = {
    "bool": "Boolean", "float16": "Float16", "bfloat16": "BFloat16", "float32": "Float32", "float64": "Float64",
    "complex32": "Float16", "complex64": "Float32", "complex128": "Float64",
    "float8_e4m3fn": "E4M3FN", "float8_e5m2": "E5M2", "float8_e4m3fnuz": "E4M3FNUZ", "float8_e5m2fnuz": "E5M2FNUZ",
    "float8_e8m0fnu": "Exponent8",
}  # fmt: skip
"""dtype -> its Format, of complex numbers that of their parts; those of integers bear the integer's name."""

COMBINES = frozenset({Opcode.reduce, Opcode.recv_reduce, Opcode.recv_reduce_send, Opcode.recv_reduce_copy_send})


@dataclass(frozen=True)
class Source:
    """A kernel's text, and what its launches must bring (cuda/launch.py)."""

    program: Program
    dtype: str
    op: str
    in_place: bool
    """Whether outputs lie where inputs do; else they lie apart."""
    kernel: str
    """The name of the kernel."""
    text: str
    lanes: tuple[int, ...]
    """How many lanes each rank has; the kernel numbers them rank by rank."""
    flags: tuple[int, ...]
    """How many flags each rank has per stripe."""
    connections: tuple[int, ...]
    """How many connections into each rank need FIFOs."""
    fifo_depth: int
    message_slots: int
    """Slots of the largest message that goes through a FIFO."""
    direct: int
    """How many messages are read where they lie."""


def generate(
    program: Program, dtype: str, op: str = "sum", *, in_place: bool = False, copy_all: bool = False
) -> Source:
    """The source of a proven Program for elements of `dtype`, for outputs that lie where the inputs do (`in_place`) or
    apart from them. `copy_all`: no message is read where it lies.

    UsageError for an operation that has no meaning for the type or a way that the Program does not go; ProgramError for
    a Program that deadlocks.
    """
    if not (program.in_place if in_place else program.out_of_place):
        raise UsageError(f"program '{program.name}' is not right {'in place' if in_place else 'out of place'}")
    reducing = any(opcode in COMBINES for opcode in program.field("opcode").tolist())
    if dtype not in _core.DTYPES:
        raise UsageError(f"there is no element type {dtype!r}; possible are {', '.join(_core.DTYPES)}")
    if reducing and not (op in _core.REDUCE_OPS and _core.supports(dtype, op)):
        raise UsageError(f"{op!r} has no meaning for elements of {dtype}")
    plan = messages(program, in_place=in_place, copy_all=copy_all)
    return _Writer(program, dtype, op if reducing else "none", in_place, plan).source()


def arithmetic(dtype: str, op: str) -> str:
    """The Format (csrc/cuda/device/formats.hpp) that reduces `dtype` by `op`."""
    if dtype not in _FORMATS:
        return f"Integer<std::{dtype}_t>"
    form = _FORMATS[dtype]
    return f"Complex<{form}>" if dtype.startswith("complex") and op != "sum" else form


class _Writer:
    def __init__(self, program: Program, dtype: str, op: str, in_place: bool, plan: Messages) -> None:
        self.program, self.dtype, self.op, self.in_place, self.plan = program, dtype, op, in_place, plan
        self.code = code = plan.code
        self.operands = code.lists(code.operand_owner, code.operand)
        self.needed = code.lists(code.dependency_owner, code.dependency)
        self.awaited = set(code.dependency.tolist())
        lanes = np.bincount(code.lane_agent, minlength=program.ranks)
        self.lanes = np.maximum(lanes, 1).tolist()  # a rank without lanes still opens its epochs
        self.flags = [0] * program.ranks
        self.done = {row: self._flag(int(code.agent[row])) for row in sorted(self.awaited)}
        self.sent = [self._flag(rank) for _, rank, _ in code.connections]  # lies with the receiver
        staged = {int(code.out[row]) for row in range(len(code.opcode)) if self._staged(row)}
        self.taken = {number: self._flag(code.connections[number][0]) for number in sorted(staged)}  # with the sender
        self.fifos: dict[int, int] = {}  # connection -> its number among those into its rank
        self.connections = [0] * program.ranks
        for number in sorted(staged):
            rank = code.connections[number][1]
            self.fifos[number] = self.connections[rank]
            self.connections[rank] += 1
        # Lanes that reach into other ranks' memory: those ranks end after them, and for one-sided ones begin before.
        self.touches = [self._touched(lane) for lane in range(len(code.lane_first))]
        self.left = {
            (lane, rank): self._flag(rank) for lane, ranks in enumerate(self.touches) for rank in sorted(ranks)
        }
        self.entered = {
            (lane, rank): self._flag(int(code.lane_agent[lane]))
            for lane in range(len(code.lane_first))
            for rank in sorted(self._one_sided(lane))
        }

    def _flag(self, rank: int) -> int:
        self.flags[rank] += 1
        return self.flags[rank] - 1

    # ---- what the Program says --------------------------------------------------------------------------------------

    def _rows(self, lane: int) -> range:
        return range(int(self.code.lane_first[lane]), int(self.code.lane_end[lane]))

    def _staged(self, row: int) -> bool:
        """Whether a send's message goes through a FIFO."""
        return self.code.out[row] >= 0 and self.code.opcode[row] != Opcode.signal and row not in self.plan.direct

    def _one_sided(self, lane: int) -> set[int]:
        peers = self.program.field("send_peer")
        return {int(peers[row]) for row in self._rows(lane) if ONE_SIDED[self.code.opcode[row]]}

    def _touched(self, lane: int) -> set[int]:
        agents = self.program.slots[:, 0]
        found = self._one_sided(lane)
        for row in self._rows(lane):
            sender = int(self.code.partner[row])
            if sender in self.plan.direct:
                found.add(int(self.code.agent[sender]))
            for first in (int(self.code.src[row]), *self.operands[row]):
                slots = range(first, first + int(self.code.count[row])) if first >= 0 else ()
                found |= {int(agents[self.plan.stands_for[slot]]) for slot in slots if slot in self.plan.stands_for}
        return found - {int(self.code.lane_agent[lane])}

    def _message_slots(self) -> int:
        return max((int(self.code.count[row]) for row in range(len(self.code.opcode)) if self._staged(row)), default=1)

    # ---- text -------------------------------------------------------------------------------------------------------

    def source(self) -> Source:
        program = self.program
        kernel = f"syntony_{program.hash64:016x}_{self.dtype}_{self.op}{'_in_place' * self.in_place}"
        plain = f"Integer<std::uint{8 * min(_core.itemsize(self.dtype), 8)}_t>"
        reducing = self.op != "none"
        lines = [
            f"// Generated from the Program '{_comment(program.name)}' for {self.dtype}, {self.op}.",
            '#include "cuda/device/lane.hpp"',
            "#ifdef __CUDACC__",
            '#include "cuda/device/cuda_machine.cuh"',
            "#endif",
            "",
            f"namespace syntony::cuda::straight::{kernel}_code {{",
            f"using Plain = {plain};",
            *([f"using Format = {arithmetic(self.dtype, self.op)};"] if reducing else []),
            "",
        ]
        cases = []
        lane = number = 0
        for rank, count in enumerate(self.lanes):
            for _ in range(count):
                exists = lane < len(self.code.lane_agent) and self.code.lane_agent[lane] == rank
                lines += self._lane(rank, lane if exists else None, number)
                cases.append(f"    case {number}: return lane_{number}(machine, launch, block);")
                lane, number = lane + exists, number + 1
        lines += [
            "template <class Machine>",
            "SYNTONY_DEVICE void run(const Machine& machine, const Launch& launch, int block) {",
            "  switch (launch.first_lane + block % launch.lanes) {",
            *cases,
            "  }",
            "}",
            "",
            "#ifdef __CUDACC__",
            f'extern "C" __global__ void __launch_bounds__(1024) {kernel}(const Launch launch) {{',
            "  run(CudaMachine(nullptr), launch, static_cast<int>(blockIdx.x));",
            "}",
            "#endif",
            f"}}  // namespace syntony::cuda::straight::{kernel}_code",
            "",
        ]
        return Source(
            program,
            self.dtype,
            self.op,
            self.in_place,
            kernel,
            "\n".join(lines),
            tuple(self.lanes),
            tuple(self.flags),
            tuple(self.connections),
            program.fifo_depth,
            self._message_slots(),
            len(self.plan.direct),
        )

    def _at(self, rank: int, flag: int) -> str:
        return f"lane.flag({rank}, {self.flags[rank]}, {flag})"

    def _lane(self, rank: int, lane: int | None, number: int) -> list[str]:
        """The function of one lane; None is that of a rank that has none."""
        rows = range(0) if lane is None else self._rows(lane)
        first = number == sum(self.lanes[:rank])
        begin, end = [], []
        if first:  # it speaks for its rank
            for (other, touched), flag in self.entered.items():
                if touched == rank:
                    begin.append(f"  lane.post({self._at(int(self.code.lane_agent[other]), flag)}, lane.times(1));")
        for (other, touched), flag in self.entered.items():
            if other == lane:
                begin.append(
                    f"  lane.await({self._at(rank, flag)}, lane.times(1), {rows.start});  // rank {touched} is in"
                )
        drained = {int(self.code.into[row]) for row in rows if self.code.into[row] in self.fifos}
        for connection in sorted(drained):
            source = self.code.connections[connection][0]
            end.append(f"  lane.post({self._at(source, self.taken[connection])}, lane.ended());")
        for (other, touched), flag in self.left.items():
            if other == lane:
                end.append(f"  lane.post({self._at(touched, flag)}, lane.ended());")
        for (other, touched), flag in self.left.items():
            if touched == rank and first:
                row = int(self.code.lane_end[other]) - 1
                end.append(f"  lane.await({self._at(rank, flag)}, lane.ended(), {row});")
        connections = sorted({int(c) for c in (*self.code.into[rows], *self.code.out[rows]) if c >= 0}) if rows else []
        staged = [c for c in connections if c in self.fifos]
        counters = [f"n{c} = 0" for c in connections] + [f"f{c} = 0" for c in staged]
        return [
            f"template <class Machine>  // of rank {rank}",
            f"SYNTONY_DEVICE void lane_{number}(const Machine& machine, const Launch& launch, int block) {{",
            f"  Lane lane(machine, launch, {rank}, block);",
            *([f"  std::uint64_t {', '.join(counters)};"] if counters else []),
            *begin,
            *(self._iterations(rows) if rows else []),
            "  lane.barrier();",
            *end,
            f"  lane.end({self.lanes[rank]});",
            "}",
            "",
        ]

    def _iterations(self, rows: range) -> list[str]:
        skews = self.code.skew
        lines = [f"  for (std::int64_t iteration = 0; iteration < lane.iterations({skews[rows[-1]]}); ++iteration) {{"]
        skew = -1
        for row in rows:
            if skews[row] != skew:
                lines += ["    }"] if skew >= 0 else []
                skew = int(skews[row])
                lines.append(f"    if (lane.takes(iteration, {skew})) {{")
                # What other threads have done, and what the first has waited for, since the last barrier.
                self.moved = self.waited = True
            lines += [f"      // {self.program.where(row)}", *(f"      {line}" for line in self._instruction(row))]
        return [*lines, "    }", "  }"]

    def _instruction(self, row: int) -> list[str]:
        waits = self._waits(row)
        data = self._data(row)
        posts = self._posts(row)
        self.waited |= bool(waits)
        lines = waits
        if (data and (self.moved or self.waited)) or (posts and self.moved):
            lines.append("lane.barrier();")
            self.moved = self.waited = False
        if data and posts:
            data.append("lane.barrier();")
        elif data:
            self.moved = True
        return lines + data + posts

    def _waits(self, row: int) -> list[str]:
        code, rank = self.code, int(self.code.agent[row])
        lines = [
            f"lane.await({self._at(rank, self.done[needed])}, lane.this_round(), {row});" for needed in self.needed[row]
        ]
        into, out = int(code.into[row]), int(code.out[row])
        if into >= 0:
            lines.append(f"lane.await({self._at(rank, self.sent[into])}, lane.times(++n{into}), {row});")
        if self._staged(row):
            depth = self.program.fifo_depth
            room = f"lane.times(f{out} < {depth} ? 0 : f{out} + 1 - {depth})"
            lines.append(f"lane.await({self._at(rank, self.taken[out])}, {room}, {row});")
        return lines

    def _posts(self, row: int) -> list[str]:
        code, rank = self.code, int(self.code.agent[row])
        into, out = int(code.into[row]), int(code.out[row])
        lines = []
        if out >= 0:
            lines.append(f"lane.post({self._at(code.connections[out][1], self.sent[out])}, lane.times(++n{out}));")
            if self._staged(row):
                lines.append(f"++f{out};")
        if into >= 0 and self._staged(int(code.partner[row])):
            source = code.connections[into][0]
            lines.append(f"lane.post({self._at(source, self.taken[into])}, lane.times(++f{into}));")
        if row in self.awaited:
            lines.append(f"lane.post({self._at(rank, self.done[row])}, lane.this_round());")
        return lines

    def _slot(self, slot: int) -> str:
        return f"lane.slot({self.plan.stands_for.get(slot, slot)}, span)"

    def _piece(self, connection: int, slot: int) -> str:
        rank = self.code.connections[connection][1]
        place = f"{rank}, {self.connections[rank]}, {self.fifos[connection]}, {self.program.fifo_depth}"
        return f"lane.piece({place}, f{connection}, {slot}, span)"

    def _data(self, row: int) -> list[str]:
        """What moves, slot by slot."""
        code, lines = self.code, []
        opcode = Opcode(int(code.opcode[row]))
        if opcode in (Opcode.nop, Opcode.signal, Opcode.wait):
            return []
        for k in range(int(code.count[row])):
            to, source = [], []
            if code.partner[row] >= 0:
                sender = int(code.partner[row])
                carried = self.plan.carried(sender) + k
                into = int(code.into[row])
                source.append(self._piece(into, k) if self._staged(sender) else self._slot(carried))
            if code.src[row] >= 0:
                source.append(self._slot(int(code.src[row]) + k))
            source += [self._slot(operand + k) for operand in self.operands[row]]
            if code.dst[row] >= 0 and int(code.dst[row]) + k not in self.plan.stands_for:
                to.append(f"lane.slot({int(code.dst[row]) + k}, span)")
            if self._staged(row):
                to.append(self._piece(int(code.out[row]), k))
            if not to:
                continue
            kind = "Plain, ReduceOp::sum" if len(source) == 1 else f"Format, ReduceOp::{self.op}"
            slot = int(code.dst[row] if code.dst[row] >= 0 else code.src[row]) + k
            lines += [
                "{",
                f"  const Span span = lane.span({code.slot_chunk[slot]});",
                f"  combine_known<{kind}>(machine, KnownEnds<{len(to)}, {len(source)}>"
                f"{{{{{', '.join(source + to)}}}, span.bytes}});",
                "}",
            ]
        return lines


def _comment(text: str) -> str:
    """What may stand in a one-line comment."""
    return "".join(c if c.isprintable() and c not in "\\?" else " " for c in text)
