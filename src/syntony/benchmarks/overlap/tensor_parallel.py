"""Tensor parallel training on emulated hosts: the trainer, whose sums travel beside computing, against torch.

    torch       Megatron-LM's order by hand: the trainer's own layers, torch's autograd, blocking collectives
    dtensor     torch's parallelize_module; real computing only, as its products cannot be put to sleep
    collective_matmul sequence    its gathers and scatters taken apart, shard by shard beside products of matrices
    sequence    between branches activations are sharded along the sequence: gathers and halves of sums
    ratio       of communication to computing: the rate of the wires is chosen for it, with gloo's all_reduce
    x gloo      the best synchronous torch on gloo over this; x syntony: the best one on Syntony's backend

Who computes something else is found out: after as many steps of one batch all have the same loss (or it is a miss).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from syntony.benchmarks.overlap.contenders import settings
from syntony.benchmarks.overlap.contenders.contest import Entry, Timed, Work, best, hold
from syntony.benchmarks.tables import Part, Row, Table

GOAL = 1.8
"""Over synchronous torch on gloo, at a ratio of 1."""
HOSTS = {"real": 2, "emulated": 4}  # two cores compute for two ranks at a time
MODEL = {"blocks": 4, "width": 256, "heads": 4, "hidden": 768, "context": 128}
SIZES: Mapping[str, tuple[Mapping[str, Any], int]] = {  # model, and sequences of a microbatch
    "real": ({"blocks": 2, "width": 512, "heads": 8, "hidden": 1408, "context": 128}, 4),
    "emulated": (MODEL, 4),
}
FORWARD = 0.4  # seconds of a block's forward on one rank that had it alone, where it is emulated
MICROBATCHES = 8
"""In one forward computing takes a third of the step's and communication half: only the backward of another microbatch
(dualpipe, interleave) makes up for it. The first forward and the last backward have none."""


def sections(compute: str, sequence: bool, forward: float = FORWARD) -> dict[str, Any]:
    """The trainer's configuration of a contender."""
    model, rows = SIZES[compute]
    return {
        "model": model,
        "parallel": {"tp": HOSTS[compute], "sequence": sequence},
        "data": {"rows": rows, "microbatches": MICROBATCHES},
        "run": {"compute": "emulated", "forward": forward} if compute == "emulated" or not forward else {},
    }


def ours(compute: str, policy: str, sequence: bool, backend: str = "syntony") -> Entry:
    label = f"ours {backend} {policy}" + (" sequence" if sequence else "")
    return Entry(label, "trainer", {"backend": backend, "policy": policy, **sections(compute, sequence)})


def entries(compute: str) -> list[Entry]:
    """All contenders."""
    found = []
    for backend in ("gloo", "syntony"):
        alone = {"backend": backend, **sections(compute, False, forward=0.0)}
        found.append(Entry(f"communication {backend}", "blocking", alone))
        for sequence, word in ((False, ""), (True, " sequence")):
            options = {"backend": backend, **sections(compute, sequence)}
            found.append(Entry(f"torch {backend}{word}", "blocking", options))
            if compute == "real":
                found.append(Entry(f"dtensor {backend}{word}", "dtensor", options))
    return [
        *found,
        *(ours(compute, policy, sequence) for sequence in (False, True) for policy in ("fifo", "domino", "interleave")),
        *(ours(compute, f"{policy}:batches={batches}", False) for policy, batches in (("domino", 4), ("dualpipe", 2))),
        *(ours(compute, f"{first}collective_matmul", True) for first in ("", "dualpipe:batches=2+")),
        ours(compute, "dualpipe+collective_matmul:pieces=4", False),
        ours(compute, "interleave", False, "gloo"),
        ours(compute, settings.SEARCH, False),
    ]


def losses(found: Sequence[Timed], peer: Timed) -> dict[str, str]:
    """By label what is wrong with a contender's loss."""
    wrong = {}
    for one in found:
        loss, right = one.told.get("loss", 0.0), peer.told["loss"]
        if abs(loss - right) > 1e-4 * abs(right) and not one.label.startswith(("communication", "tutel")):
            wrong[one.label] = f"a loss of {loss:.5f}, where {peer.label} has {right:.5f}"
    return wrong


def row(one: Timed, peers: Sequence[Timed], missed: str) -> Row:
    """`peers`: over whom gains are."""
    estimate = one.told.get("estimate")
    cells = (
        one.name,
        f"{1e3 * one.seconds:.0f}",
        f"{1e3 * min(one.steps):.0f}-{1e3 * max(one.steps):.0f}",
        f"{1e3 * one.told['simulated']:.0f}" if estimate else "",
        f"{estimate / one.seconds:.0%}" if estimate else "",
        *(f"{peer.seconds / one.seconds:.2f}" for peer in peers),
    )
    return Row(cells, missed)


COLUMNS = (("contender", -50), ("ms", 6), ("least-most", 10), ("sim. ms", 7), ("est./step", 9))


def _rows(ratio: float, compute: str, options: argparse.Namespace) -> Iterator[Row]:
    hosts = HOSTS[compute]
    blocks = SIZES[compute][0]["blocks"]
    known = 3 * FORWARD * blocks * MICROBATCHES / hosts if compute == "emulated" else None
    rate = settings.rate_of(ratio, hosts, sections(compute, False), sections(compute, False, forward=0.0), known)
    found = hold(settings.star(hosts, rate), Work(tuple(entries(compute)), options.steps, options.rounds))
    peers = best(found, "torch gloo", "dtensor gloo"), best(found, "torch syntony", "dtensor syntony")
    fastest, wrong = best(found, "ours"), losses(found, best(found, "torch gloo"))
    for one in found:
        gain, missed = peers[0].seconds / one.seconds, wrong.get(one.label, "")
        if one is fastest and ratio == 1 and gain < GOAL:
            missed = missed or f"{gain:.2f}x synchronous torch on gloo, not {GOAL:g}x"
        yield row(one, peers, missed)
    yield Row((f"(wires of {rate * 8e-6:.0f} Mbit/s)", *[""] * 6))


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (*COLUMNS, ("x gloo", 7), ("x syntony", 9))
    title = f"Tensor parallel, {HOSTS[options.compute]} hosts, {options.compute} compute, ratio"
    return tuple(
        Part(f"{title} {ratio:g}", columns, partial(_rows, ratio, options.compute, options))
        for ratio in options.ratio or (1.0,)
    )


TABLE = Table("tp", "tensor parallel steps against torch between emulated hosts (as root)", _parts, settings.configure)
