"""Mixtures of experts on emulated hosts: the trainer, whose all_to_alls travel beside computing, against torch.

    torch       GShard's order by hand: the trainer's own layers, torch's autograd, blocking all_to_alls
    tutel       Tutel's overlap told again on torch, by degree (tutel.py says how, and why not Tutel itself)
    ratio       of communication to computing: the rate of the wires is chosen for it, with gloo's collectives
    x torch     the best synchronous torch on gloo (tutel of degree 1 is that, too) over this
    x tutel     tutel's best degree on gloo over this; x syntony: the best of both on Syntony's backend

The second part has as many bytes of gradients as of tokens: what comes first on the wire is what it is about.
    x fifo      the trainer's fifo over this; x cut: fifo's order with experts in parts (the trainer's tutel)

Who computes something else is found out by its loss, but for tutel, which drops what exceeds an expert's capacity.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.goals import Part, Row
from benchmarks.overlap import settings
from benchmarks.overlap.contest import Entry, Work, best, hold
from benchmarks.overlap.tensor_parallel import COLUMNS, HOSTS, losses, row
from benchmarks.tables import Table

OVER_TORCH, OVER_TUTEL, OVER_FIFO = 1.8, 1.15, 1.2
EXPERTS = 4  # of a rank
DEGREES = (1, 2, 4)
OURS = (
    *("fifo", "gshard", "tutel", "fastermoe", "pipemoe", "schemoe"),
    *("flowmoe:slice=256K", "flowmoe:slice=256K,degree=4", "lina:slice=256K", "lina:slice=256K,degree=4"),
)
FORWARD = 0.05  # seconds of a block's forward, where it is emulated
SIZES: Mapping[str, tuple[Mapping[str, Any], int]] = {  # model, and sequences of a microbatch
    "real": ({"blocks": 2, "width": 256, "heads": 4, "hidden": 512, "context": 128}, 8),
    "emulated": ({"blocks": 4, "width": 128, "heads": 4, "hidden": 256, "context": 128}, 8),
}
WIDE: Mapping[str, Any] = {"blocks": 4, "width": 256, "heads": 4, "hidden": 256, "context": 128}
FEW = 2  # sequences, where gradients weigh as much as tokens


def sections(compute: str, mixed: bool = False, forward: float = FORWARD) -> dict[str, Any]:
    """The trainer's configuration of a contender. `mixed`: with as many bytes of gradients as of tokens."""
    hosts = HOSTS[compute]
    model, rows = (WIDE, FEW) if mixed else SIZES[compute]
    return {
        "model": {**model, "experts": EXPERTS * hosts},
        "parallel": {"dp": hosts, "ep": hosts},
        "data": {"rows": rows, "microbatches": hosts},
        "run": {"compute": "emulated", "forward": forward} if compute == "emulated" or not forward else {},
    }


def ours(compute: str, policy: str, mixed: bool = False, backend: str = "syntony") -> Entry:
    options = {"backend": backend, "policy": policy, **sections(compute, mixed)}
    return Entry(f"ours {backend} {policy}", "trainer", options)


def entries(compute: str, mixed: bool = False) -> list[Entry]:
    """All contenders."""
    found = []
    for backend in ("gloo", "syntony"):
        options = {"backend": backend, **sections(compute, mixed)}
        found.append(Entry(f"communication {backend}", "blocking", options | sections(compute, mixed, forward=0.0)))
        found.append(Entry(f"torch {backend}", "blocking", options))
        found += [
            Entry(f"tutel {backend} degree {degree}", "tutel", {**options, "degree": degree}) for degree in DEGREES
        ]
    found += [ours(compute, policy, mixed) for policy in OURS]
    return [*found, ours(compute, "tutel", mixed, "gloo")]


def _rows(ratio: float, compute: str, mixed: bool, options: argparse.Namespace) -> Iterator[Row]:
    hosts = HOSTS[compute]
    rate = settings.rate_of(ratio, hosts, sections(compute, mixed), sections(compute, mixed, forward=0.0))
    found = hold(settings.star(hosts, rate), Work(tuple(entries(compute, mixed)), options.steps, options.rounds))
    synchronous = best(found, "torch gloo", "tutel gloo degree 1")
    tutel, elsewhere = best(found, "tutel gloo"), best(found, "torch syntony", "tutel syntony")
    fifo, cut = best(found, "ours syntony fifo"), best(found, "ours syntony tutel")
    peers = (fifo, cut, tutel) if mixed else (synchronous, tutel, elsewhere)
    goals = ((fifo, OVER_FIFO),) if mixed else ((synchronous, OVER_TORCH), (tutel, OVER_TUTEL))
    fastest = best(found, "ours syntony lina") if mixed else best(found, "ours")
    wrong = losses(found, best(found, "torch gloo"))
    for one in found:
        missed = wrong.get(one.label, "")
        for peer, goal in goals if one is fastest and ratio == 1 else ():
            gain = peer.seconds / one.seconds
            if gain < goal and not missed:
                missed = f"{gain:.2f}x {peer.label}, not {goal:g}x"
        yield row(one, peers, missed)
    yield Row((f"(wires of {rate * 8e-6:.0f} Mbit/s)", *[""] * 7))


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    compute = options.compute
    columns = (*COLUMNS, ("x torch", 7), ("x tutel", 7), ("x syntony", 9))
    mixed = (*COLUMNS, ("x fifo", 7), ("x cut", 7), ("x tutel", 7))
    title = f"{HOSTS[compute]} hosts, {compute} compute, ratio"
    return tuple(
        part
        for ratio in options.ratio or (1.0,)
        for part in (
            Part(f"Expert parallel, {title} {ratio:g}", columns, partial(_rows, ratio, compute, False, options)),
            Part(f"Data and expert parallel, {title} {ratio:g}", mixed, partial(_rows, ratio, compute, True, options)),
        )
    )


TABLE = Table("ep", "mixtures of experts against torch between emulated hosts (as root)", _parts, settings.configure)
