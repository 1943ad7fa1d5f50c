"""One rank of test_plan_runner.py: a step's communication under a random plan, against sums that one process forms.

RANKS=.. plan_runner_script.py BACKEND SEED [kill]
"""

import itertools
import os
import random
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef

from syntony.overlap.run.plan_runner import OverlapError, PlanRunner
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind, Op, Piece
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan

STEPS = 4


def tree(terms: list[torch.Tensor]) -> torch.Tensor:
    """The pairwise tree, as the specification says it."""
    while len(terms) > 1:
        terms = [terms[at] + terms[at + 1] if at + 1 < len(terms) else terms[at] for at in range(0, len(terms), 2)]
    return terms[0]


def a_plan(random_: random.Random, ranks: int) -> tuple[Plan, dict[OpKey, int]]:
    """Layers whose gradients are summed in random cuts and a random order; also their sizes in elements."""
    sizes = {OpKey("reduce", layer): ranks * 64 * random_.randint(1, 40) for layer in range(6)}
    ops = []
    for layer, (name, size) in enumerate(sizes.items()):
        kind = random_.choice([Kind.ALL_REDUCE, Kind.REDUCE_SCATTER])
        cuts = sorted({0, size, *(ranks * 64 * random_.randrange(size // ranks // 64) for _ in range(2))})
        for part, (begin, end) in enumerate(itertools.pairwise(cuts)):
            piece = Piece(layer, 4 * begin, 4 * end)
            ops.append(Op(name.cut(part), kind, 0, "dp", piece.bytes, layer=layer, pieces=(piece,), of=(name,)))
    order = [op.key for op in ops]
    random_.shuffle(order)
    window = random_.choice([0, 1, 20_000])
    return Plan("random", Graph(tuple(ops)), {(0, "dp"): tuple(order)}, {"dp": window}), sizes


def gradients(layer: int, step: int, rank: int, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(layer * 1000 + step * 10 + rank)
    return torch.randn(size, generator=generator)


def ready_with_fresh_memory(runner: PlanRunner, op: Op, ranks: int, rank: int) -> StorageWeakRef:
    """Makes an op ready with tensors that only the runner holds."""
    tensor = torch.zeros(int(op.amount) // 4)
    runner.ready(op.key, tensor, tensor.view(ranks, -1)[rank])
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def main() -> None:
    backend, seed, *rest = sys.argv[1:]
    dist.init_process_group(backend, timeout=timedelta(seconds=30))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    groups = {lane: dist.new_group(backend=backend) for lane in ("dp", "dp.gather")}
    random_ = random.Random(int(seed))
    plan, sizes = a_plan(random_, ranks)
    buffers = {name: torch.zeros(size) for name, size in sizes.items()}
    done: list[OpKey] = []
    with PlanRunner(plan, 0, groups) as runner:
        for op in plan.graph:
            whole = buffers[op.of[0]][op.pieces[0].begin // 4 : op.pieces[0].end // 4]
            runner.bind(op.key, whole, whole.view(ranks, -1)[rank])
            runner.then(op.key, lambda key=op.key: done.append(key))  # type: ignore[misc]
        for step in range(STEPS):
            try:
                runner.begin_step()
                for layer, (name, size) in reversed(list(enumerate(sizes.items()))):
                    buffers[name].copy_(gradients(layer, step, rank, size))
                    time.sleep(0.002 * random.random())
                    runner.ready(name)
                    if rest and step == 2 and layer == 3 and rank == ranks - 1:
                        os.kill(os.getpid(), signal.SIGKILL)
                for layer, (name, size) in enumerate(sizes.items()):
                    runner.wait(name)
                    want = tree([gradients(layer, step, other, size) for other in range(ranks)])
                    for part in plan.parts[name]:
                        piece, kind = plan.graph[part].pieces[0], plan.graph[part].kind
                        span = slice(piece.begin // 4, piece.end // 4)
                        have, good = buffers[name][span], want[span]
                        if kind is Kind.REDUCE_SCATTER:
                            have, good = have.view(ranks, -1)[rank], good.view(ranks, -1)[rank]
                        assert torch.equal(have, good), f"rank {rank}, step {step}, {part}"
            except OverlapError as error:
                os.write(1, f"survivor {rank}: {error}\n".encode())
                os._exit(0)
        assert sorted(done) == sorted(STEPS * [op.key for op in plan.graph])
        records = runner.records()
        assert len(records) == STEPS * len(plan.graph)
        for step in range(STEPS):
            begins = {record.key: record.begin for record in records if record.step == step}
            order = plan.orders[0, "dp"]
            assert sorted(order, key=begins.__getitem__) == list(order), "launched in another order than the plan's"
        assert all(record.ready <= record.begin <= record.end for record in records)
        if backend == "syntony":
            runner.begin_step()
            memory = [ready_with_fresh_memory(runner, op, ranks, rank) for op in plan.graph]
            for op in plan.graph:
                runner.wait(op.key)
            assert all(one.expired() for one in memory), "ops have ended, and their memory is held"
    print("passed", flush=True)
    dist.barrier()
    os._exit(0)


main()
