"""`syntony bound`: limits that no schedule can beat."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from syntony.base.answer import answer_text
from syntony.base.arguments import size
from syntony.base.command import Command
from syntony.base.wording import counted
from syntony.synth.commands.problem import add_problem, add_timeout, problem

if TYPE_CHECKING:
    from syntony.synth.bounds.references import References
    from syntony.synth.model.bound import Bounds
    from syntony.synth.model.collective import Collective
    from syntony.topologies.topology import Topology


def _configure(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument("--size", type=size, metavar="BYTES", help="also the bound at this size, latencies included")
    add_timeout(parser, 60.0)


def _run(options: argparse.Namespace) -> int:
    from syntony.base.deadline import Deadline
    from syntony.base.progress import progress
    from syntony.synth.bounds.references import all_reduce_references
    from syntony.synth.bounds.throughput import bounds_of
    from syntony.synth.model.network import Network

    deadline = Deadline(options.timeout)
    topology, collective = problem(options)
    cheap = bounds_of(topology, collective, Deadline(0.0))
    note = "the exact bound was not finished; this one is valid, too"
    options.standby.answer(_bounds_told(options, topology, collective, cheap, None), note)
    with progress("bounds", options.timeout):
        bounds = bounds_of(topology, collective, deadline)
    references = None
    if collective.kind == "all_reduce" and collective.ranks > 1:
        told = _bounds_told(options, topology, collective, bounds, None)
        options.standby.answer(told, "the reference rates were not finished")
        with progress("reference rates", options.timeout):
            references = all_reduce_references(Network(topology, collective), deadline)
    print(_bounds_told(options, topology, collective, bounds, references), end="")
    return 0


def _bounds_told(
    options: argparse.Namespace,
    topology: Topology,
    collective: Collective,
    bounds: Bounds,
    references: References | None,
) -> str:
    """The output of `syntony bound`."""
    from syntony.synth.bounds.throughput import rounds_per_chunk
    from syntony.synth.bounds.wording import describe
    from syntony.synth.model.bound import fraction_text
    from syntony.synth.model.network import Network

    latency, throughput, names = bounds.latency, bounds.throughput, topology.nodes
    per_chunk = rounds_per_chunk(throughput, topology, collective)
    words = describe(Network(topology, collective), throughput.witness) if throughput.witness else "nothing must move"
    more: dict[str, Any] = {
        "rounds_per_chunk": fraction_text(per_chunk),
        "searched": throughput.searched,
        "words": words,
    }
    if options.size is not None:
        more["at_size"] = {"size": options.size, "seconds": bounds.seconds(options.size)}
    told = bounds.to_dict() | more | ({"references": references.to_dict()} if references else {})
    far = latency.steps_witness
    why = f"   {names[far.src].name} to {names[far.dst].name}, chunk {far.chunk}" if far else ""
    lines = [
        f"{collective.kind} on {topology.name}, {counted(collective.ranks, 'rank')}: no schedule does better than",
        f"  latency     {counted(latency.steps, 'step')}, {latency.seconds:g} s{why}",
    ]
    if throughput.witness is None:
        return answer_text(options, told, [*lines, f"  throughput  {words}"])
    rate = fraction_text(throughput.seconds_per_byte)
    lines += [
        f"  throughput  {throughput.algbw / 1e9:g} GB/s ({rate} s/byte; {counted(per_chunk, 'round')} per chunk)",
        f"  witness     {words}",
        f"  best of     {throughput.searched}",
        *([_at_size_told(bounds, options.size)] if options.size is not None else ()),
        *(_references_told(references, throughput.algbw) if references else ()),
    ]
    return answer_text(options, told, lines)


def _at_size_told(bounds: Bounds, size: int) -> str:
    seconds = bounds.seconds(size)
    return (
        f"  at size     {counted(size, 'byte')}: {seconds:.6g} s, {size / seconds / 1e9:.4g} GB/s, latencies included"
    )


def _references_told(references: References, bound: float) -> Iterator[str]:
    """Reference rates, apart from the bounds."""
    composed = float(references.composition)
    yield "for reference (these are not bounds): what two constructions reach"
    if references.trees is None:
        yield "  trees       the linear program of the best trees is too large here"
    else:
        trees = f"the best trees to sum up and spread, both at once ({_of(references.trees, bound)})"
        yield f"  trees       {references.trees / 1e9:g} GB/s   {trees}"
    yield f"  RS + AG     {composed / 1e9:g} GB/s   reduce_scatter, then all_gather ({_of(composed, bound)})"


def _of(rate: float, bound: float) -> str:
    return "meets the bound" if rate >= bound * (1 - 1e-9) else f"{rate / bound:.1%} of the bound"


COMMAND = Command(
    ("bound",),
    "find the latency and throughput that no schedule can beat, with witnesses",
    "syntony bound dgx1 all_gather",
    _configure,
    _run,
    limited=True,
)
