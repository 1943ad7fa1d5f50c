"""What a Program means, lane by lane with numbers: written from program.hpp alone, shared with no executor."""

from __future__ import annotations

from collections import defaultdict, deque

import torch
from torch import Tensor

from syntony.synth.model.instructions import INSTRUCTION_FIELDS, Opcode
from syntony.synth.model.program import Program

_IN, _OUT, _SCRATCH = range(3)


def blocks(program: Program, rank: int, space: int) -> list[int]:
    """The blocks of a rank's input or output buffer, in order."""
    n = program.ranks
    return {
        "all_reduce": ([0], [0]),
        "all_gather": ([rank], list(range(n))),
        "reduce_scatter": (list(range(n)), [rank]),
        "all_to_all": ([rank * n + to for to in range(n)], [source * n + rank for source in range(n)]),
    }[program.collective][space]


def interpret(program: Program, inputs: list[Tensor]) -> list[Tensor]:
    """The outputs of all ranks for their flat inputs, out of place."""
    length = inputs[0].numel() // len(blocks(program, 0, _IN))
    total: dict[int, int] = defaultdict(int)
    for block, weight in program.chunks.tolist():
        total[block] += weight
    at: dict[int, int] = defaultdict(int)
    cut = []
    for block, weight in program.chunks.tolist():
        start, at[block] = at[block], at[block] + weight
        cut.append((block, length * start // total[block], length * at[block] // total[block]))
    memory: dict[tuple[int, int, int], Tensor] = {}
    index: dict[tuple[int, int], int] = defaultdict(int)
    outputs = [
        torch.zeros(length * len(blocks(program, rank, _OUT)), dtype=inputs[0].dtype) for rank in range(program.ranks)
    ]
    for rank, space, chunk in program.slots.tolist():
        block, start, end = cut[chunk]
        if space == _SCRATCH:
            view = torch.zeros(end - start, dtype=inputs[0].dtype)
        else:
            base = blocks(program, rank, space).index(block) * length
            view = (inputs if space == _IN else outputs)[rank][base + start : base + end]
        memory[rank, space, index[rank, space]] = view
        index[rank, space] += 1
    _run(program, memory)
    return outputs


def _run(program: Program, memory: dict[tuple[int, int, int], Tensor]) -> None:
    lanes = defaultdict(list)
    operands, after = iter(program.operands.tolist()), iter(program.dependencies.tolist())
    for values in program.instructions.tolist():
        row = dict(zip(INSTRUCTION_FIELDS, values, strict=True))
        row["terms"] = [next(operands) for _ in range(row["operand_count"])]
        row["after"] = [next(after) for _ in range(row["dependency_count"])]
        lanes[row["agent"], row["lane"]].append(row)
    done = dict.fromkeys(lanes, 0)
    fifos: dict[tuple[int, int, int], deque[list[Tensor]]] = defaultdict(deque)
    while any(done[lane] < len(rows) for lane, rows in lanes.items()):
        for (agent, lane), rows in lanes.items():
            if done[agent, lane] == len(rows):
                continue
            row = rows[done[agent, lane]]
            name = Opcode(row["opcode"]).name
            fifo = fifos[row["recv_peer"], agent, row["channel"]]
            if any(done[agent, other] <= position for other, position in row["after"]):
                continue
            if (name.startswith("recv") or name == "wait") and not fifo:
                continue
            message = fifo.popleft() if name.startswith("recv") or name == "wait" else []
            sent = []
            for k in range(row["count"]):
                dst = memory.get((agent, row["dst_space"], row["dst_index"] + k))
                src = memory.get((agent, row["src_space"], row["src_index"] + k))
                value = _value(name, src, message[k] if message else None, agent, row, k, memory)
                if value is None:
                    continue
                if name in ("copy", "reduce", "recv", "recv_reduce", "recv_copy_send", "recv_reduce_copy_send"):
                    assert dst is not None
                    dst.copy_(value)
                sent.append(value.clone())
            if name.endswith("send") or name == "signal":
                fifos[agent, row["send_peer"], row["channel"]].append(sent)
            done[agent, lane] += 1


def _value(name, src, message, agent, row, k, memory):  # type: ignore[no-untyped-def]
    if name in ("nop", "signal", "wait"):
        return None
    if name in ("recv", "recv_copy_send"):
        return message.clone()
    if name in ("send", "copy"):
        return src.clone()
    terms = [message, src] if "recv" in name else [src]
    terms += [memory[agent, space, index + k] for space, index in row["terms"]]
    wide = torch.float32 if terms[0].dtype in (torch.bfloat16, torch.float16) else terms[0].dtype
    value = terms[0].to(wide)
    for term in terms[1:]:
        value = value + term.to(wide)
    return value.to(terms[0].dtype)
