"""Every call of the torch backend against a reference computed by each rank alone. Run by launch.py on several ranks.

A rank knows everybody's inputs (they are drawn from a seed and the rank), so what it should receive is plain torch
arithmetic. Integers, bools and moved data must be equal; sums of floats are close to the reference, and bitwise equal
on all ranks. `Shape` says how a tensor lies in memory: most of what can go wrong between torch and a byte mover.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

Tensor = torch.Tensor
Shape = Callable[[Tensor], Tensor]

SEED = 20
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
MOVED = [*INTEGERS, *FLOATS, *COMPLEX, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32]
COUNTS = [0, 1, 7, 4099]
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}

SHAPES: dict[str, Shape] = {
    "contiguous": lambda t: t.clone(),
    "strided": lambda t: t.repeat_interleave(3)[::3],
    "offset": lambda t: torch.cat([t[:1], t])[min(len(t), 1) :],
    "transposed": lambda t: t.clone().reshape(7, -1).t().contiguous().t() if len(t) % 7 == 0 and len(t) else t.clone(),
}


def drawn(dtype: torch.dtype, count: int, rank: int, salt: int = 0) -> Tensor:
    """Small numbers: products and sums of a few ranks stay in range, and integers stay exact."""
    generator = torch.Generator().manual_seed(SEED + 1000 * rank + salt)
    if dtype.is_complex:
        wide = torch.randn(count, 2, generator=generator, dtype=torch.float64)
        return torch.view_as_complex(wide).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 4, (count,), generator=generator).to(dtype)


def raw(tensor: Tensor) -> Tensor:
    flat = tensor.contiguous().reshape(-1)
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)  # one element may have any stride


def same(got: Tensor, wanted: Tensor, what: str) -> None:
    assert torch.equal(raw(got), raw(wanted)), f"{what}: {got} is not {wanted}"


def close(got: Tensor, wanted: Tensor, what: str) -> None:
    tolerance = TOLERANCE[got.real.dtype if got.dtype.is_complex else got.dtype]
    exact = torch.complex128 if got.dtype.is_complex else torch.float64
    assert torch.allclose(got.to(exact), wanted.to(exact), rtol=tolerance, atol=tolerance), f"{what}: {got} {wanted}"
    everybody = [torch.empty_like(raw(got)) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, raw(got))
    for other in everybody:
        same(other, raw(got), f"{what} on two ranks")


def reference(op: Any, inputs: list[Tensor]) -> Tensor:
    """Wide arithmetic: float64, complex128, int64."""
    first = inputs[0].dtype
    wide = torch.complex128 if first.is_complex else torch.float64 if first.is_floating_point else torch.int64
    stack = torch.stack([tensor.to(wide) for tensor in inputs])
    if op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        total = stack.sum(0)
        return total if op == dist.ReduceOp.SUM else torch.div(total, len(inputs), rounding_mode=_rounding(first))
    if op == dist.ReduceOp.PRODUCT:
        return stack.prod(0)
    if op == dist.ReduceOp.MIN:
        return stack.amin(0)
    if op == dist.ReduceOp.MAX:
        return stack.amax(0)
    bitwise = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or}
    result = stack[0]
    for other in stack[1:]:
        result = bitwise.get(op, torch.bitwise_xor)(result, other)
    return result


def _rounding(dtype: torch.dtype) -> str | None:
    return None if dtype.is_floating_point or dtype.is_complex else "trunc"


def compare(got: Tensor, op: Any, inputs: list[Tensor], what: str) -> None:
    wanted = reference(op, inputs)
    if got.dtype == torch.bool:
        wanted = wanted != 0
    if got.dtype.is_floating_point or got.dtype.is_complex:
        close(got, wanted, what)
    else:
        same(got, wanted.to(got.dtype), what)


_SUMS = [dist.ReduceOp.SUM, dist.ReduceOp.AVG]
_ORDER = [dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
_BITS = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
OPS = {
    **{dtype: [*_SUMS, *_ORDER] for dtype in FLOATS},
    **dict.fromkeys(COMPLEX, _SUMS),
    **{dtype: [*_SUMS, *_ORDER, *_BITS] for dtype in INTEGERS},
    torch.bool: [dist.ReduceOp.SUM, *_ORDER, *_BITS[:2]],
}


def reductions(rank: int, size: int) -> None:
    for dtype, ops in OPS.items():
        for op in ops:
            for count in (0, 7, 4099) if op == dist.ReduceOp.SUM else (7,):
                inputs = [drawn(dtype, count, r) for r in range(size)]
                what = f"{dtype} {op} {count}"
                for name, shape in (
                    SHAPES.items() if op == dist.ReduceOp.SUM else [("contiguous", SHAPES["contiguous"])]
                ):
                    tensor = shape(inputs[rank])
                    dist.all_reduce(tensor, op=op)
                    compare(tensor.reshape(-1), op, inputs, f"all_reduce {name} {what}")
                root = size - 1
                tensor = inputs[rank].clone()
                dist.reduce(tensor, root, op=op)
                results = [tensor] if rank == root else [torch.empty_like(tensor)]
                dist.broadcast(results[0], root)
                compare(results[0], op, inputs, f"reduce {what}")
                parts = [[drawn(dtype, count, r, salt=d) for d in range(size)] for r in range(size)]
                output = torch.empty(count, dtype=dtype)
                dist.reduce_scatter(output, [SHAPES["strided"](part) for part in parts[rank]], op=op)
                summed(output, op, parts, rank, f"reduce_scatter {what}")
                flat = torch.cat(parts[rank])
                dist.reduce_scatter_tensor(output, flat, op=op)
                summed(output, op, parts, rank, f"reduce_scatter_tensor {what}")
                into = flat[rank * count : (rank + 1) * count]  # in place
                dist.reduce_scatter_tensor(into, flat, op=op)
                summed(into, op, parts, rank, f"reduce_scatter_tensor in place {what}")


def summed(got: Tensor, op: Any, parts: list[list[Tensor]], rank: int, what: str) -> None:
    """As compare(), for an output of which each rank has another part."""
    wanted = reference(op, [part[rank] for part in parts])
    if got.dtype.is_floating_point or got.dtype.is_complex:
        exact = torch.complex128 if got.dtype.is_complex else torch.float64
        tolerance = TOLERANCE[got.real.dtype if got.dtype.is_complex else got.dtype]
        assert torch.allclose(got.to(exact), wanted.to(exact), rtol=tolerance, atol=tolerance), (
            f"{what}: {got} {wanted}"
        )
    else:
        same(got, (wanted != 0) if got.dtype == torch.bool else wanted.to(got.dtype), what)


def moves(rank: int, size: int) -> None:
    for dtype in MOVED:
        for count in COUNTS:
            everybody = [drawn(dtype, count, r) for r in range(size)]
            for name, shape in SHAPES.items():
                if dtype.is_floating_point and dtype.itemsize == 1 and name != "contiguous":
                    continue  # torch cannot repeat float8
                what = f"{dtype} {name} {count}"
                mine = shape(everybody[rank])
                tensor = shape(everybody[rank])
                dist.broadcast(tensor, size // 2)
                same(tensor.reshape(-1), everybody[size // 2], f"broadcast {what}")
                outputs = [shape(torch.zeros_like(t)) for t in everybody]
                dist.all_gather(outputs, mine)
                for r, output in enumerate(outputs):
                    same(output.reshape(-1), everybody[r], f"all_gather {what}")
                gathered = [shape(torch.zeros_like(t)) for t in everybody] if rank == 0 else None
                dist.gather(mine, gathered, dst=0)
                for r, output in enumerate(gathered or []):
                    same(output.reshape(-1), everybody[r], f"gather {what}")
                output = shape(torch.zeros_like(everybody[0]))
                dist.scatter(output, [shape(t) for t in everybody] if rank == size - 1 else None, src=size - 1)
                same(output.reshape(-1), everybody[rank], f"scatter {what}")
            flat = torch.zeros(size * count, dtype=dtype)
            dist.all_gather_into_tensor(flat, everybody[rank].clone())
            same(flat, torch.cat(everybody), f"all_gather_into_tensor {dtype} {count}")
            own = flat[rank * count : (rank + 1) * count]  # in place
            own.copy_(everybody[rank])
            dist.all_gather_into_tensor(flat, own)
            same(flat, torch.cat(everybody), f"all_gather_into_tensor in place {dtype} {count}")


def exchanges(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.uint8, torch.complex64, torch.bool):
        for count in (0, 1, 33):
            parts = [[drawn(dtype, count, r, salt=d) for d in range(size)] for r in range(size)]
            received = torch.cat([parts[s][rank] for s in range(size)])
            output = torch.zeros(size * count, dtype=dtype)
            dist.all_to_all_single(output, torch.cat(parts[rank]))
            same(output, received, f"all_to_all_single {dtype} {count}")
            same_buffer = torch.cat(parts[rank])
            dist.all_to_all_single(same_buffer, same_buffer)
            same(same_buffer, received, f"all_to_all_single in place {dtype} {count}")
        rows = [[(s * 5 + d * 3) % 4 for d in range(size)] for s in range(size)]  # zeros among them
        parts = [[drawn(dtype, 2 * rows[s][d], s, salt=d).reshape(-1, 2) for d in range(size)] for s in range(size)]
        received = torch.cat([parts[s][rank] for s in range(size)])
        output = torch.zeros_like(received)
        dist.all_to_all_single(output, torch.cat(parts[rank]), [rows[s][rank] for s in range(size)], rows[rank])
        same(output, received, f"all_to_all_single with splits {dtype}")
        outputs = [torch.zeros_like(parts[s][rank]) for s in range(size)]
        dist.all_to_all(outputs, parts[rank])
        same(torch.cat(outputs), received, f"all_to_all {dtype}")
        uneven = [drawn(dtype, 3 * r + 1, r) for r in range(size)]
        outputs = [torch.zeros_like(t) for t in uneven]
        dist.all_gather(outputs, uneven[rank])
        same(torch.cat(outputs), torch.cat(uneven), f"uneven all_gather {dtype}")


def weighted(rank: int, size: int) -> None:
    for dtype in FLOATS:
        inputs = [drawn(dtype, 57, r) for r in range(size)]
        factors: list[Any] = [0.5 + r for r in range(size)]
        for factor in (factors[rank], torch.tensor(factors[rank])):
            tensor = inputs[rank].clone()
            dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
            wanted = torch.stack([t.double() * f for t, f in zip(inputs, factors, strict=True)]).sum(0)
            assert torch.allclose(tensor.double(), wanted, rtol=TOLERANCE[dtype] * 4, atol=TOLERANCE[dtype] * 4)


def several_at_once(rank: int, size: int) -> None:
    many = [drawn(torch.float32, n, rank, salt=n) for n in (1, 0, 300, 5)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in many:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor, n in zip(many, (1, 0, 300, 5), strict=True):
        compare(tensor, dist.ReduceOp.SUM, [drawn(torch.float32, n, r, salt=n) for r in range(size)], "coalesced")
    works = []
    tensors = [drawn(torch.int64, 1 + n, rank) for n in range(40)]
    for tensor in tensors:
        works.append(dist.all_reduce(tensor, async_op=True))
    for n in reversed(range(40)):
        assert works[n].get_future().wait()[0].data_ptr() == tensors[n].data_ptr()
        same(tensors[n], reference(dist.ReduceOp.SUM, [drawn(torch.int64, 1 + n, r) for r in range(size)]), "async")
        assert works[n].is_completed()
        assert works[n].is_success()
    strided = drawn(torch.float64, 30, rank).reshape(5, 6).t()
    future = dist.all_reduce(strided, async_op=True).get_future().then(lambda done: done.value()[0].sum())
    wanted = torch.stack([drawn(torch.float64, 30, r) for r in range(size)]).sum()
    assert torch.allclose(future.wait(), wanted), "the future of a staged tensor comes after it is copied back"
    dropped = torch.ones(100_000)
    for _ in range(20):
        dist.all_reduce(dropped.clone(), async_op=True)  # neither tensor nor work is kept
    dist.barrier()


def messages(rank: int, size: int) -> None:
    right, left = (rank + 1) % size, (rank - 1) % size
    operations, inboxes = [], []
    for tag in (3, 1, 2):
        inboxes.append(torch.zeros(tag * 10, dtype=torch.int64)[:: 2 if tag == 2 else 1])
        operations.append(dist.P2POp(dist.isend, torch.full_like(inboxes[-1], rank), right, tag=tag))
        operations.append(dist.P2POp(dist.irecv, inboxes[-1], left, tag=tag))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for inbox in inboxes:
        assert (inbox == left).all()
    if rank == 0:
        senders = set()
        for _ in range(size - 1):
            inbox = torch.zeros(4)
            sender = dist.recv(inbox)
            assert (inbox == sender).all()
            senders.add(sender)
        assert senders == set(range(1, size))
    else:
        dist.send(torch.full((4,), float(rank)), 0)


def main() -> None:
    dist.init_process_group("syntony")
    rank, size = dist.get_rank(), dist.get_world_size()
    for part in (reductions, moves, exchanges, weighted, several_at_once, messages):
        part(rank, size)
    dist.destroy_process_group()
    print(f"rank {rank} of {size}: everything as the reference has it (seed {SEED})", file=sys.stderr)


if __name__ == "__main__":
    main()
