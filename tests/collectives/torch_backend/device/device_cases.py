"""One case each of what can go wrong with tensors on a device. Run by launch.py: device_cases.py
CASE[,CASE..], one after another in one group.

DEVICE says which: `late`, whose extension is the file LATE_DEVICE, or `cuda`; then STAGED=1 leaves the CUDA executor's
kernels aside. What is right is what the same group does with the same numbers on the CPU. Nothing here waits for the
device but .cpu(), which waits for the current stream.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syntony.collectives.torch_backend.autoload import create
from tests.collectives.torch_backend.device import late_device
from tests.trainer.run.layout_script import config_of, trained

NAME = os.environ.get("DEVICE", "late")
Tensor = torch.Tensor
Call = Callable[[Callable[[Tensor], Tensor], Any], list[Tensor]]
SIZES = (0, 1, 1003)
LARGE = 3_000_017
"""Elements of float32 in several pieces of a staged call, the last one short."""


def drawn(rank: int, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Whole numbers, so that every sum is exact."""
    generator = torch.Generator().manual_seed(1000 * rank + count)
    return torch.randint(0, 2 if dtype == torch.bool else 7, (count,), generator=generator).to(dtype)


def uploaded(values: Tensor) -> Tensor:
    """A tensor on the device that will have the values: the current stream is told to copy them."""
    tensor = torch.empty_strided(values.shape, values.stride(), dtype=values.dtype, device=NAME)
    pinned = torch.empty_strided(values.shape, values.stride(), dtype=values.dtype, pin_memory=True)
    return tensor.copy_(pinned.copy_(values), non_blocking=True)


def busy() -> None:
    """The current stream has something else to do first: who does not wait for it comes too early."""
    if NAME == "cuda":
        return torch.cuda._sleep(1 << 20)
    scratch = torch.empty(8, device=NAME)
    for _ in range(6):
        scratch.copy_(torch.empty(8, pin_memory=True), non_blocking=True)
    return None


def lateness(milliseconds: float, side: float | None = None) -> None:
    """Before each task of a stream, from now on."""
    if NAME == "late":
        late_device.lateness(milliseconds, side)


def at_last(work: Any) -> None:
    """Kernels that wait for a rank are not waited for by hosts, so what went wrong is heard of when they have ended."""
    if NAME == "cuda":
        torch.accelerator.synchronize()
    work.wait()


def raises(sentence: str, call: Callable[[], Any]) -> str:
    with pytest.raises(RuntimeError, match=re.escape(sentence)) as caught:
        call()
    return str(caught.value)


@contextmanager
def on_a_side_stream() -> Iterator[None]:
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(torch.Stream(device=NAME))
    yield
    torch.accelerator.set_stream(before)


# ---- every call, as one function of where tensors are made --------------------------------------------------------


def calls(rank: int, size: int, count: int, dtype: torch.dtype) -> dict[str, Call]:
    """`make(values)` makes a tensor, `**how` goes to the call; what comes back must be the same wherever it lies."""
    mine, ops = drawn(rank, count, dtype), dist.ReduceOp
    whole = torch.cat([drawn(rank, count + place, dtype)[:count] for place in range(size)])
    rows = [[(3 * source + 2 * target) % 4 for target in range(size)] for source in range(size)]

    def done(work: Any, *outputs: Tensor) -> list[Tensor]:
        if work is not None:
            work.wait()
        return list(outputs)

    def all_reduce(op: Any) -> Call:
        def call(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
            tensor = make(mine)
            return done(dist.all_reduce(tensor, op=op, **how), tensor)

        return call

    def broadcast(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        tensor = make(mine)
        return done(dist.broadcast(tensor, size - 1, **how), tensor)

    def reduce(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        tensor = make(mine)
        work = dist.reduce(tensor, size - 1, **how)
        return done(work, *([tensor] if rank == size - 1 else []))

    def all_gather(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        outputs = [make(torch.zeros_like(mine)) for _ in range(size)]
        return done(dist.all_gather(outputs, make(mine), **how), *outputs)

    def all_gather_uneven(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        outputs = [make(torch.zeros(count + place, dtype=dtype)) for place in range(size)]
        return done(dist.all_gather(outputs, make(drawn(rank, count + rank, dtype)), **how), *outputs)

    def all_gather_flat(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        output = make(torch.zeros_like(whole))
        return done(dist.all_gather_into_tensor(output, make(mine), **how), output)

    def all_gather_in_place(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        output = make(whole)
        own = output[rank * count : (rank + 1) * count]
        return done(dist.all_gather_into_tensor(output, own, **how), output)

    def gather(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        outputs = [make(torch.zeros_like(mine)) for _ in range(size)] if rank == 0 else []
        return done(dist.gather(make(mine), outputs or None, 0, **how), *outputs)

    def scatter(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        output = make(torch.zeros_like(mine))
        inputs = [make(part.clone()) for part in whole.split(max(count, 1))] if count else [make(mine)] * size
        return done(dist.scatter(output, inputs if rank == 1 else None, 1, **how), output)

    def reduce_scatter(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        output = make(torch.zeros_like(mine))
        inputs = [make(whole[place * count : (place + 1) * count].clone()) for place in range(size)]
        return done(dist.reduce_scatter(output, inputs, **how), output)

    def reduce_scatter_flat(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        output = make(torch.zeros_like(mine))
        return done(dist.reduce_scatter_tensor(output, make(whole), **how), output)

    def all_to_all(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        output = make(torch.zeros_like(whole))
        return done(dist.all_to_all_single(output, make(whole), **how), output)

    def all_to_all_in_place(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        output = make(whole)
        return done(dist.all_to_all_single(output, output, **how), output)

    def all_to_all_uneven(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        received = [rows[source][rank] for source in range(size)]
        output = make(torch.zeros(sum(received), 5, dtype=dtype))
        given = make(drawn(rank, 5 * sum(rows[rank]), dtype).reshape(-1, 5))
        return done(dist.all_to_all_single(output, given, received, rows[rank], **how), output)

    def all_to_all_list(make: Callable[[Tensor], Tensor], how: Any) -> list[Tensor]:
        outputs = [make(torch.zeros(rows[source][rank], dtype=dtype)) for source in range(size)]
        inputs = [make(drawn(rank, rows[rank][target], dtype)) for target in range(size)]
        return done(dist.all_to_all(outputs, inputs, **how), *outputs)

    found: dict[str, Call] = {
        call.__name__: call
        for call in (
            broadcast, all_gather, all_gather_uneven, all_gather_flat, all_gather_in_place, gather, scatter,
            all_to_all, all_to_all_in_place, all_to_all_uneven, all_to_all_list,
        )
    }  # fmt: skip
    if dtype != torch.bool:
        found |= {call.__name__: call for call in (reduce, reduce_scatter, reduce_scatter_flat)}
        found |= {f"all_reduce {op}": all_reduce(op) for op in (ops.SUM, ops.MAX)}
    if dtype == torch.float32:
        found["all_reduce avg"] = all_reduce(ops.AVG)
        found["all_reduce weighted"] = all_reduce(dist._make_nccl_premul_sum(float(1 + rank)))
    return found


def same(name: str, call: Call, make: Callable[[Tensor], Tensor], how: Any) -> None:
    """On the device as on the CPU."""
    wanted = call(lambda values: values.clone(), {})
    busy()
    found = call(make, how)
    for got, right in zip(found, wanted, strict=True):
        assert got.device.type == NAME, name
        assert torch.equal(got.cpu(), right), f"{name} {how}: {got.cpu()} is not {right}"


def every_call(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        for count in SIZES:
            for name, call in calls(rank, size, count, dtype).items():
                same(f"{name} of {count} {dtype}", call, uploaded, {"async_op": count == 1})


def in_pieces(rank: int, size: int) -> None:
    """Calls of several pieces, and of as many bytes in flight as have no place in the slots."""
    lateness(0.2)
    for name, call in calls(rank, size, LARGE // size, torch.float32).items():
        if "uneven" not in name:
            same(name, call, uploaded, {})
    tensors = [uploaded(drawn(rank, LARGE)) for _ in range(3)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work, tensor in zip(works, tensors, strict=True):
        work.wait()
        assert torch.equal(tensor.cpu(), sum(drawn(each, LARGE) for each in range(size)))


def strided(rank: int, size: int) -> None:
    def every_second(values: Tensor) -> Tensor:
        return uploaded(values.repeat_interleave(2))[::2]

    for count in (1, 1003):
        for name, call in calls(rank, size, count, torch.float32).items():
            if "in_place" not in name and "uneven" not in name:
                same(name, call, every_second, {"async_op": count == 1})
    table = torch.arange(12.0).reshape(3, 4) + rank
    tensor = uploaded(table).t()
    dist.all_reduce(tensor)
    assert torch.equal(tensor.cpu(), sum(torch.arange(12.0).reshape(3, 4) + each for each in range(size)).t())


def side_streams(rank: int, size: int) -> None:
    """A call belongs to the stream that is current: it starts after that one's work, and that one waits."""
    for number in range(4):
        with on_a_side_stream():
            for name, call in calls(rank, size, 257 + number, torch.float32).items():
                same(name, call, uploaded, {"async_op": number % 2 == 1})
    busy()
    tensor = uploaded(drawn(rank, 5000))
    work = dist.all_reduce(tensor, async_op=True)
    with on_a_side_stream():  # who waits is whose stream waits
        work.wait()
        assert torch.equal(tensor.cpu(), sum(drawn(each, 5000) for each in range(size)))


def in_flight(rank: int, size: int) -> None:
    """Many at once, waited for in another order; those of the CPU in between have an order of their own."""
    counts = [1 + 97 * number for number in range(30)]
    on_device = [uploaded(drawn(rank, count)) for count in counts]
    on_cpu = [drawn(rank, count) for count in counts]
    works = []
    for tensor, other in zip(on_device, on_cpu, strict=True):
        works.append(dist.all_reduce(tensor, async_op=True))
        works.append(dist.all_reduce(other, async_op=True))
    for work in reversed(works):
        work.wait()
        assert work.exception() is None
    for count, tensor, other in zip(counts, on_device, on_cpu, strict=True):
        wanted = sum(drawn(each, count) for each in range(size))
        assert torch.equal(tensor.cpu(), wanted)
        assert torch.equal(other, wanted)
    with dist._coalescing_manager(device=torch.device(NAME), async_ops=True) as manager:
        for count, tensor in zip(counts, on_device, strict=True):
            tensor.copy_(drawn(rank, count))
            dist.all_reduce(tensor)
    manager.wait()
    for count, tensor in zip(counts, on_device, strict=True):
        assert torch.equal(tensor.cpu(), sum(drawn(each, count) for each in range(size)))


def the_host_goes_on(rank: int, size: int) -> None:
    """wait() is for the stream: the device has still work to do when it returns, and is asked nothing."""
    tensor = uploaded(drawn(rank, 1000))
    dist.all_reduce(tensor)
    torch.accelerator.synchronize()
    lateness(50)
    work = dist.all_reduce(tensor, async_op=True)
    assert not work.is_completed()
    work.wait()
    assert not work.is_completed(), "its last copy is 50 ms late"
    assert not torch.accelerator.current_stream().query()
    torch.accelerator.synchronize()
    assert work.is_completed()
    assert work.is_success()


def freed_at_once(rank: int, size: int) -> None:
    """Nobody keeps the tensors of a call; their memory goes to the next one only when the call is done with it."""
    outputs = []
    for number in range(20):
        busy()
        output = torch.empty(size * 4096, device=NAME)
        dist.all_gather_into_tensor(output, uploaded(drawn(rank, 4096) + number), async_op=True)
        outputs.append(output)
        uploaded(torch.full((4096,), -1.0))  # into the memory that was freed, if it was
    dist.all_reduce(uploaded(torch.zeros(1)))  # in order: what came before is in the streams
    torch.accelerator.synchronize()
    for number, output in enumerate(outputs):
        assert torch.equal(output.cpu(), torch.cat([drawn(each, 4096) + number for each in range(size)])), number
    lateness(0.05, side=20)
    dist.all_reduce(uploaded(drawn(rank, 4096)), async_op=True)  # its sum goes up late, into memory that nobody wants
    others = []
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        others.append(uploaded(torch.full((4096,), 3.0)))
        time.sleep(0.002)
    torch.accelerator.synchronize()
    for other in others:
        assert (other.cpu() == 3.0).all(), "a sum came up into another tensor's memory"


def messages(rank: int, size: int) -> None:
    right, left = (rank + 1) % size, (rank - 1) % size
    operations, inboxes = [], []
    for tag, count in ((3, 10), (1, 0), (2, LARGE)):
        inboxes.append(torch.zeros(count, device=NAME))
        busy()
        operations.append(dist.P2POp(dist.isend, uploaded(drawn(rank, count)), right, tag=tag))
        operations.append(dist.P2POp(dist.irecv, inboxes[-1], left, tag=tag))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for inbox in inboxes:
        assert torch.equal(inbox.cpu(), drawn(left, len(inbox)))
    table = torch.zeros(4, 6, device=NAME)
    if rank == 0:
        senders = set()
        for _ in range(size - 1):
            sender = dist.recv(table[:, ::2])
            assert (table[:, ::2].cpu() == sender).all()
            senders.add(sender)
        assert senders == set(range(1, size))
    else:
        busy()
        dist.send(uploaded(torch.full((4, 6), float(rank)))[:, ::2], 0)
    # A receive that is posted first holds up nobody: its sender waits for what comes after it.
    late_inboxes = [torch.zeros(3, device=NAME) for _ in range(10)]
    posted = [dist.irecv(inbox, left, tag=10 + number) for number, inbox in enumerate(late_inboxes)]
    total = uploaded(torch.ones(5))
    dist.all_reduce(total)
    for number in reversed(range(10)):
        dist.isend(uploaded(total[:3].cpu() + number), right, tag=10 + number)
    for number, (work, inbox) in enumerate(zip(posted, late_inboxes, strict=True)):
        work.wait()
        assert (inbox.cpu() == size + number).all()


def futures(rank: int, size: int) -> None:
    wanted = sum(drawn(each, 1003) for each in range(size))
    busy()
    tensor = uploaded(drawn(rank, 1003))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert torch.equal(future.wait()[0].cpu(), wanted)
    busy()
    tensor = uploaded(drawn(rank, 1003))
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: 2 * done.value()[0])
    assert torch.equal(doubled.wait().cpu(), 2 * wanted)


def refusals(rank: int, size: int) -> None:
    group: Any = dist.group.WORLD._get_backend(torch.device(NAME))  # type: ignore[union-attr]
    assert group is dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    here, there = torch.ones(4), torch.ones(4, device=NAME)
    raises("only supports CPU tensors and those of", lambda: group.allreduce([torch.ones(2, device="meta")]))
    text = raises("all tensors of a call are on one device", lambda: group._allgather_base(torch.ones(4 * size), there))
    assert f"syntony rank {rank}: _all_gather_base: got tensors on {NAME}:0 and cpu" in text
    raises("all tensors of a call are on one device", lambda: group.allgather([[there] * size], [here]))
    raises("no meaning", lambda: dist.all_reduce(there, op=dist.ReduceOp.BXOR))
    dist.all_reduce(here)
    assert here[0] == size


def barriers(rank: int, size: int) -> None:
    """A barrier on a device comes after what its stream holds."""
    lateness(20)
    busy()
    begin = time.monotonic()
    dist.barrier(device_ids=[0])
    assert time.monotonic() - begin > 0.1, "six tasks of 20 ms were before it"
    lateness(1)
    dist.barrier()


def killed(rank: int, size: int) -> None:
    """The others raise, and name it and the operation; so does every later call."""
    tensor = uploaded(drawn(rank, LARGE))
    dist.all_reduce(tensor)
    if rank == size - 1:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()

    def work_on() -> None:
        while True:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)

    text = raises(f"rank {size - 1}", work_on)
    assert "all_reduce" in text, text
    raises(f"rank {size - 1}", lambda: dist.all_reduce(tensor, async_op=True).synchronize())
    if NAME == "late":
        work = dist.all_reduce(tensor, async_op=True)
        raises(f"rank {size - 1}", lambda: work.get_future().wait())
        assert not work.is_success()


def time_out(rank: int, size: int) -> None:
    dist.all_reduce(uploaded(drawn(rank, 10)))
    if rank == 1:
        time.sleep(2)
        return
    options = dist.AllreduceOptions()
    options.timeout = timedelta(milliseconds=300)
    work = dist.group.WORLD.allreduce([uploaded(drawn(rank, 10))], options)  # type: ignore[union-attr]
    text = raises("rank 1", lambda: at_last(work))
    assert "timed out" in text, text
    assert "all_reduce" in text, text


def shrunk(rank: int, size: int) -> None:
    """The group that is left works on the device too."""
    from syntony.collectives.torch_backend.backend import communicator_of, shrink_group

    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    raises("rank 0", lambda: dist.all_reduce(uploaded(torch.ones(100))))
    group = shrink_group()
    assert communicator_of(group).members == list(range(1, size))
    tensor = uploaded(torch.ones(100))
    dist.all_reduce(tensor)
    assert (tensor.cpu() == size - 1).all()


def groups_come_and_go(rank: int, size: int) -> None:
    """Groups that nobody waits for end without a word, with calls under way or not."""
    for _ in range(3):
        group = dist.new_group(backend=f"cpu:syntony,{NAME}:syntony")
        assert isinstance(group, dist.ProcessGroup)
        tensor = uploaded(drawn(rank, 1000))
        dist.all_reduce(tensor, group=group)
        dist.all_reduce(torch.ones(100, device=NAME), group=group, async_op=True)
        dist.destroy_process_group(group)
        assert torch.equal(tensor.cpu(), sum(drawn(each, 1000) for each in range(size)))


def data_parallel(rank: int, size: int) -> None:
    """DistributedDataParallel on the device gives the losses of one process on the CPU."""
    from torch.nn.parallel import DistributedDataParallel

    lateness(0.1)

    def losses(device: str, wrap: Callable[[torch.nn.Module], torch.nn.Module], mine: slice) -> list[float]:
        torch.manual_seed(3)
        model = wrap(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batch = torch.randn(4 * size, 6, generator=torch.Generator().manual_seed(7))
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(batch[mine].to(device)).square().mean()
            loss.backward()
            optimizer.step()
            everybody = loss.detach().clone()
            if device == NAME:
                dist.all_reduce(everybody, op=dist.ReduceOp.AVG)
            found.append(float(everybody))
        return found

    wanted = losses("cpu", lambda model: model, slice(None))
    mine = slice(4 * rank, 4 * rank + 4)
    assert losses(NAME, DistributedDataParallel, mine) == pytest.approx(wanted, rel=1e-5)


def sharded(rank: int, size: int) -> None:
    """One step of FSDP2 on the device changes the weights as a step of one process does."""
    from torch.distributed.fsdp import fully_shard

    batch = torch.randn(4 * size, 6, generator=torch.Generator().manual_seed(7)).to(NAME)

    def step(mine: slice, shard: bool) -> list[Tensor]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(NAME)
        if shard:
            fully_shard(model, mesh=dist.init_device_mesh(NAME, (size,)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(batch[mine]).square().mean().backward()
        optimizer.step()
        return [getattr(p, "full_tensor", lambda p=p: p)().detach().cpu() for p in model.parameters()]

    for got, wanted in zip(step(slice(4 * rank, 4 * rank + 4), True), step(slice(None), False), strict=True):
        assert torch.allclose(got, wanted, rtol=1e-5)


def trained_alike(rank: int, size: int) -> None:
    """The trainer's layouts give the bits of one process on the device, whose numbers are those of the CPU or near."""
    lateness(0.05)

    def run(place: int, device: str, **parallel: Any) -> tuple[str, list[float]] | None:
        with torch.device(device):
            changes = {"parallel": parallel, "model": {"blocks": 2}, "data": {"microbatches": 2}}
            return trained(config_of(changes, "syntony"), place)

    alone, on_cpu = run(0, NAME), run(0, "cpu")
    assert alone is not None
    assert on_cpu is not None
    assert alone[1] == pytest.approx(on_cpu[1], rel=1e-4)
    for parallel in ({"dp": size}, {"dp": size, "zero": 3}, {"pp": size}):
        found = run(rank, NAME, **parallel)
        assert rank or found == alone, f"{parallel}: {found} is not {alone}"


CASES: dict[str, Callable[[int, int], None]] = {
    case.__name__: case
    for case in (
        every_call,
        in_pieces,
        strided,
        side_streams,
        in_flight,
        the_host_goes_on,
        freed_at_once,
        messages,
        futures,
        refusals,
        barriers,
        killed,
        time_out,
        shrunk,
        groups_come_and_go,
        data_parallel,
        sharded,
        trained_alike,
    )
}
ENDS_THE_GROUP = {"killed", "time_out", "shrunk"}


def main() -> None:
    names = sys.argv[1].split(",")
    if NAME == "late":
        late_device.load(os.environ["LATE_DEVICE"])
    if os.environ.get("STAGED"):
        from syntony.collectives.cuda import torch_calls

        torch_calls.form = lambda group, device: None
    dist.Backend.register_backend("syntony", create, extended_api=True, devices=["cpu", NAME])
    dist.init_process_group("syntony", timeout=timedelta(seconds=30))
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in names:
        lateness(1)
        CASES[name](rank, size)
        print(json.dumps(f"{name}, rank {rank}: as it should be"), flush=True)
    if ENDS_THE_GROUP.isdisjoint(names):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
