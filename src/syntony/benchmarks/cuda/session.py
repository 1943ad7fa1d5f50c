"""One rank's run of `syntony bench --device cuda`: the same rows as on CPUs, in memory of GPUs.

--ranks N       a process per rank; a GPU each where there are as many, else shared, reached by CUDA IPC
--nthreads N    a thread per rank: kernels of one process run beside each other also where they share a GPU
"""

from __future__ import annotations

import os
import socket
from functools import partial
from typing import Any

from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Contender
from syntony.benchmarks.bench.measure import Bench
from syntony.benchmarks.bench.options import Options
from syntony.benchmarks.bench.session import told_to_people, walk
from syntony.benchmarks.cuda.executed import Executed, Group
from syntony.benchmarks.cuda.gpu import EventTimer, Gpu, GpuMemory, executor
from syntony.benchmarks.cuda.nccl import Nccl
from syntony.benchmarks.cuda.switched import Switched
from syntony.benchmarks.cuda.threads import run_threads
from syntony.collectives.bootstrap.launch import Exchange


def get_ready() -> None:
    """Before ranks are forked; CUDA itself starts in each rank, since it does not survive a fork."""
    executor()
    # Streams that share a queue of the GPU would wait for each other; read when CUDA starts.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


def run(exchange: Exchange, options: Options, cuda: Any = None) -> int:
    """The benchmark on this process's rank, or ranks. Exit code 1 when any result was wrong. Collective."""
    work = partial(run_rank, options=options, cuda=executor() if cuda is None else cuda)
    if options.threads == 1:
        return work(exchange)
    if exchange.size > 1:
        raise UserError(f"--nthreads {options.threads} is for one process, and a launcher has started {exchange.size}")
    return run_threads(options.threads, work, options.timeout)


def run_rank(exchange: Exchange, options: Options, cuda: Any) -> int:
    """One rank's."""
    with told_to_people():
        gpu = Gpu.of(exchange, cuda)
        memory = GpuMemory(gpu)
        contenders = contenders_of(gpu, memory, options)
        device = {
            "rank": exchange.rank,
            "group": 0,
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "device": gpu.number,
            "device_hex": gpu.facts["pci"],
            "device_info": gpu.facts["name"],
        }
        bench = Bench(exchange, memory, EventTimer(gpu, options.graph))
        code = walk(exchange, options, contenders, bench, device, notes_of(gpu, contenders, options.threads > 1))
        for contender in contenders:
            contender.close()
        gpu.meet()  # nobody closes what a peer still reads
        return code


def contenders_of(gpu: Gpu, memory: GpuMemory, options: Options) -> list[Contender]:
    """Ours first, in the order of the command line, then the peers."""
    group = Group(gpu, options.timeout)
    ours: list[Contender] = []
    for algorithm in options.algorithms:
        if algorithm == Switched.label:
            ours.append(Switched(gpu, memory, options.timeout))
        else:
            ours += [Executed(group, memory, algorithm, protocol, options.schedule) for protocol in options.protocols]
    return [*ours, *(Nccl(gpu, memory) for _ in options.peers)]


def notes_of(gpu: Gpu, contenders: list[Contender], in_one_process: bool) -> list[str]:
    """What readers of the figures must know."""
    facts = gpu.facts
    remarks = [
        f"CUDA {_cuda_version(facts['runtime'])}, driver for {_cuda_version(facts['driver'])}; architecture "
        f"{facts['architecture']}, {facts['processors']} processors, {facts['memory'] >> 30} GiB"
    ]
    if len(gpu.sharing) > 1:
        remarks.append(
            f"one GPU, several ranks: {len(gpu.sharing)} ranks share GPU {gpu.number}; busbw is nccl-tests' formula, "
            "and no wire is measured"
        )
        if not in_one_process:
            remarks.append(
                "kernels of different processes take turns on a GPU unless MPS runs: --nthreads has no turns"
            )
    return remarks + [contender.remark for contender in contenders if isinstance(contender, Nccl)]


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
