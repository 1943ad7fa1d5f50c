"""One rank's run of `syntony bench`: creates the contenders and measures the rows; rank 0 prints and records.

This file is for ranks on CPUs, cuda/session.py for ranks on GPUs.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from syntony import _core
from syntony.base.answer import tell_json
from syntony.base.command import UserError
from syntony.base.outputs import wrote
from syntony.benchmarks.bench import table
from syntony.benchmarks.bench.contenders import Communicator, Contender, Syntony, TorchGroup
from syntony.benchmarks.bench.kernels.kernels import KERNELS
from syntony.benchmarks.bench.measure import Bench
from syntony.benchmarks.bench.measurement import Case
from syntony.benchmarks.bench.options import Options
from syntony.benchmarks.bench.records import Record
from syntony.benchmarks.bench.split import Part
from syntony.benchmarks.mpi.libraries import LIBRARIES
from syntony.benchmarks.mpi.remote_peer import RemotePeer
from syntony.collectives.bootstrap.launch import Exchange, RankError

FRESH = "inputs are written before each iteration; what that takes alone is left out"


def create_communicator(exchange: Exchange, timeout: float) -> Communicator:
    """Syntony's communicator over the same ranks."""
    from syntony.collectives import communicator as runtime

    communicator: Communicator = runtime.Communicator.create(exchange, timeout=timeout)
    return communicator


def run(
    exchange: Exchange,
    options: Options,
    create: Callable[[Exchange, float], Communicator] = create_communicator,
) -> int:
    """Runs the whole benchmark on this rank. Exit code 1 if any result was wrong. Collective."""
    group = exchange if options.split is None else Part(exchange, options.split)
    communicator = create(group, options.timeout)
    contenders = contenders_of(group, options, communicator)
    device = {
        "rank": exchange.rank,
        "group": options.split.color(exchange.rank) if options.split else 0,
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "device": 0,
        "device_hex": "cpu",
        "device_info": f"{_core.usable_cpus()} cores",
    }
    try:
        with told_to_people():
            remarks = [FRESH] if options.effort.fresh else []
            if group.size < exchange.size:
                groups = exchange.size // group.size
                remarks.append(f"{groups} groups of {group.size} ranks at the same time: --split {options.split}")
            return walk(group, options, contenders, Bench(group, everybody=exchange), device, remarks)
    finally:
        for contender in contenders:
            contender.close()
        communicator.close()


@contextmanager
def told_to_people() -> Iterator[None]:
    """Converts the runtime's errors to UserError or RankError."""
    try:
        yield
    except ValueError as error:  # raised by the runtime for invalid arguments
        raise UserError(str(error)) from error
    except RuntimeError as error:
        if isinstance(error, RankError):
            raise
        raise RankError(str(error)) from error


def contenders_of(exchange: Exchange, options: Options, communicator: Communicator) -> list[Contender | RemotePeer]:
    """Syntony's contenders first, in the order of the command line, then the peers."""
    if options.schedule is not None:
        ours = [Syntony(communicator, communicator.load(options.schedule))]
    else:
        ours = [Syntony(communicator, algorithm) for algorithm in options.algorithms]
    return [*ours, *(peer(exchange, name, options.timeout) for name in options.peers)]


def peer(exchange: Exchange, name: str, timeout: float) -> Contender | RemotePeer:
    """The peer of that name (options.PEERS). Collective."""
    if name in LIBRARIES:
        return RemotePeer(exchange, name, timeout)
    return KERNELS[name].start(exchange) if name in KERNELS else TorchGroup(exchange, name, timeout)


def cases(options: Options, ranks: int) -> Iterator[Case]:
    """The rows of one cycle, in nccl-tests' order: types, then operations, then roots, then sizes."""
    roots = range(ranks) if options.roots is None else options.roots
    for root in roots:
        if root >= ranks:
            raise UserError(f"--root {root}: there are ranks 0 to {ranks - 1}")
    for element, operation, root, size in itertools.product(
        options.elements, options.operations, roots, options.sizes()
    ):
        block = options.shape.block(size, ranks, element.item_bytes)
        yield Case(options.shape, element, operation, root, block)


def walk(
    group: Exchange,
    options: Options,
    contenders: Sequence[Contender | RemotePeer],
    bench: Bench,
    device: dict[str, Any],
    remarks: Sequence[str] = (),
) -> int:
    """Measures all rows. `device` describes this rank's; `remarks` are notes for readers of the figures.

    Exit code 1 if any result was wrong. Collective.
    """
    devices = bench.gather(device)
    records = [_walk_one(group.size, one, contenders, bench, devices, remarks) for one in options.each()]
    if bench.rank == 0 and options.json:
        documents = [record.document() for record in records]
        tell_json({"command": "bench", **(documents[0] if len(documents) == 1 else {"runs": documents})})
    return int(any(record.wrong for record in records))


def _walk_one(
    ranks: int,
    options: Options,
    contenders: Sequence[Contender | RemotePeer],
    bench: Bench,
    devices: Sequence[dict[str, Any]],
    remarks: Sequence[str],
) -> Record:
    """The rows of one collective."""
    record = Record(options, ranks, devices, remarks, writes=bench.rank == 0)
    speaks = bench.rank == 0 and not options.json
    labels = [contender.label for contender in contenders]
    narrow = speaks and table.too_wide(options, len(labels) - 1)
    heading = table.heading(options, devices, labels, remarks, narrow)
    group = ""  # common fields of the previous rows of a narrow table
    cycles = range(options.cycles) if options.cycles else itertools.count()
    for _ in cycles:
        for case in cases(options, ranks):
            results = bench.run(case, contenders, options.effort)
            record.add(case, results)
            if speaks:
                if heading:  # printed late: a benchmark that cannot run shows no table
                    print(heading)
                    heading = ""
                if narrow:
                    if (common := table.narrow_group(case)) != group:
                        print(common)
                    group = common
                    print(table.narrow_row(case, results, labels, ranks, options), flush=True)
                else:
                    print(table.row(case, results, ranks, options), flush=True)
    if speaks:
        print(table.footing(options.shape, record.wrong, record.average_bus_bandwidth))
    for path in record.close():
        if speaks:
            print(f"# {wrote(path)}")
    return record
