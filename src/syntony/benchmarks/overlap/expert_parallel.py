"""Mixtures of experts on emulated hosts: the trainer, whose all_to_alls overlap with computing, against torch.

    torch       GShard's order by hand: the trainer's own layers, torch's autograd, blocking all_to_alls
    tutel       Tutel's overlap implemented on torch, by degree (tutel.py says how, and why not Tutel itself)
    ratio       of communication to computing; the rate of the wires is chosen for it, with gloo's collectives
    x torch     time of the best synchronous torch on gloo (also tutel of degree 1) over this one
    x tutel     time of tutel's best degree on gloo over this one; x syntony: the best of both on Syntony's backend

Every rank has four microbatches. Cutting experts overlaps their exchange with the experts alone: attention and router,
a quarter of a block, overlap with nothing. Two microbatches side by side also overlap one's attention with the other's
exchange. A forward computes a third of a step and exchanges half of it, so it pays to run a backward beside it
(dualpipe). How near the result comes to 2x torch depends on how much of its wire gloo leaves idle. Emulated hosts
therefore have 8 experts, tokens 256 wide, and compute for 3 seconds: overheads are small, and the lab can emulate the
wires.

The second part has as many bytes of gradients as of tokens; it tests which of them is sent first.
    x fifo      time of the trainer's fifo over this one; x cut: fifo's order with experts in parts
Lanes of the trainer's fifo share a wire as TCP's streams do. An all_to_all beside a sum has half the wire, not none of
it: the order alone gains at most 1.14x, where sums take as long as a backward computes.

A contender that computes something else is detected by its loss, except tutel, which drops rows beyond the capacity.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from syntony.benchmarks.overlap.contenders import settings
from syntony.benchmarks.overlap.contenders.contest import Entry, Work, best, hold
from syntony.benchmarks.overlap.tensor_parallel import COLUMNS, HOSTS, losses, row
from syntony.benchmarks.tables import Part, Row, Table

OVER_TORCH, OVER_TUTEL, OVER_FIFO = 1.8, 1.15, 1.2
EXPERTS = 8
DEGREES = (1, 2, 4)
OURS = (
    settings.SEARCH,
    *("fifo", "gshard", "tutel", "fastermoe", "pipemoe", "schemoe", "janus", "lina:slice=256K"),
    *("flowmoe:slice=256K", "flowmoe:slice=256K,degree=4", "flowmoe:slice=256K,degree=8"),
    "dualpipe:batches=2+lina:slice=256K",
)
FIRST = OURS[-5:]
"""Their all_to_alls go first."""
TURNS = 4  # microbatches of a rank
FORWARD = 0.0625  # seconds of a block's forward for one of them, where it is emulated
BLOCK: Mapping[str, Any] = {"width": 256, "heads": 4, "hidden": 512, "context": 128, "experts": EXPERTS}
BLOCKS = {"real": 2, "emulated": 4}
ROWS, FEW = 4, 1  # sequences of a microbatch; where gradients weigh as much as tokens


def sections(compute: str, mixed: bool = False, forward: float = FORWARD) -> dict[str, Any]:
    """The trainer's configuration of a contender. `mixed`: with as many bytes of gradients as of tokens."""
    hosts = HOSTS[compute]
    return {
        "model": {**BLOCK, "blocks": BLOCKS[compute]},
        "parallel": {"dp": hosts, "ep": hosts},
        "data": {"rows": FEW if mixed else ROWS, "microbatches": TURNS * hosts},
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
    known = 3 * FORWARD * BLOCKS[compute] * TURNS if compute == "emulated" else None
    rate = settings.rate_of(ratio, hosts, sections(compute, mixed), sections(compute, mixed, forward=0.0), known)
    found = hold(settings.star(hosts, rate), Work(tuple(entries(compute, mixed)), options.steps, options.rounds))
    synchronous = best(found, "torch gloo", "tutel gloo degree 1")
    tutel, elsewhere = best(found, "tutel gloo"), best(found, "torch syntony", "tutel syntony")
    fifo, cut = best(found, "ours syntony fifo"), best(found, "ours syntony tutel")
    peers = (fifo, cut, tutel) if mixed else (synchronous, tutel, elsewhere)
    goals = ((fifo, OVER_FIFO),) if mixed else ((synchronous, OVER_TORCH), (tutel, OVER_TUTEL))
    first = [f"ours syntony {policy}" for policy in FIRST]
    fastest = best(found, *first) if mixed else best(found, "ours")
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
