"""`syntony export nccl-graph`: channels for stock NCCL and RCCL."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell
from syntony.base.arguments import count
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.base.whole_file import write_text
from syntony.synth.commands.problem import add_timeout
from syntony.topologies.cli import add_topology

if TYPE_CHECKING:
    from syntony.synth.nccl.channels import ChannelSet, Host

_TIMEOUT = 60.0
_OF_LIMIT = 0.4  # of --timeout for rings, as much for trees; the rest for bounds and for writing


def _configure_graph(parser: argparse.ArgumentParser) -> None:
    add_topology(parser)
    add_output(
        parser,
        "-o",
        "--output",
        required=True,
        metavar="F.xml",
        endings=(".xml",),
        what="a graph file is XML",
        help="the file for NCCL_GRAPH_FILE",
    )
    parser.add_argument(
        "--across",
        action="store_true",
        help="the channels lead to other hosts, all like this one (what a topology of several hosts always means)",
    )
    parser.add_argument(
        "--channels", type=count, metavar="N", help="so many channels (default: the fewest that are best)"
    )
    parser.add_argument(
        "--beside",
        metavar="DUMP.xml",
        help="what NCCL chose itself (NCCL_GRAPH_DUMP_FILE): the search begins there, and the gain is told",
    )
    add_timeout(parser, _TIMEOUT)


def _run_graph(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.nccl.graph_file import graph_text
    from syntony.synth.nccl.hosts import host_named
    from syntony.synth.nccl.packing import MOST_CHANNELS, pack
    from syntony.synth.nccl.report import allowed, described, packed_line, packed_object

    output = options.output
    if options.channels is not None and options.channels > MOST_CHANNELS:
        raise UserError(f"--channels {options.channels}: NCCL uses at most {MOST_CHANNELS} channels of a graph")
    host = host_named(options.topology, across=options.across)
    dumped = _dumped(host, options.beside)
    begin = {name: [found.channels] for name, found in dumped.items()}
    with progress(f"channels on {host.machine.name}"):
        limits = {"timeout": options.timeout * _OF_LIMIT, "exactly": options.channels or 0}
        rings = pack(host, "ring", beside=begin.get("ring", ()), **limits)
        limits["exactly"] = len(rings.chosen.channels)
        chains = pack(host, "chain", beside=begin.get("tree", ()), **limits)
    for chosen in (rings.chosen, chains.chosen):
        if fault := host.fault(chosen):
            raise AssertionError(fault)
    remark = (
        f"{host.machine.name}: ring {float(rings.chosen.total):g} GB/s of at most {rings.bound.rate:.6g}, "
        f"tree {float(chains.chosen.total):g} of {chains.bound.rate:.6g}"
    )
    write_text(output, graph_text(host, rings.chosen, chains.chosen, f"syntony export nccl-graph, {remark}"))
    before = {name: allowed(host, found) for name, found in dumped.items()}
    told: dict[str, Any] = {"file": str(output), "across": host.across, "assumed": host.machine.assumed}
    told |= {"ring": packed_object(host, rings), "tree": packed_object(host, chains), "beside": before}
    lines = [described(host), packed_line("ring", rings), packed_line("tree", chains)]
    if rings.bound.full:
        more = " .." if len(rings.bound.full) > 2 else ""
        lines.append(f"  bound  full are {', '.join(rings.bound.full[:2])}{more}")
    if before:
        totals = {"ring": float(rings.chosen.total), "tree": float(chains.chosen.total)}
        gains = (f"{name} {rate:g} GB/s ({totals[name] / rate - 1:+.1%})" for name, rate in before.items())
        lines.append(f"  beside {', '.join(gains)} in {options.beside}")
    lines += [f"  note   {sentence}" for sentence in host.machine.assumed]
    lines.append(f"  use    NCCL_GRAPH_FILE={output} on every host")
    tell(options, told, [*lines, wrote(output)])
    return 0


def _dumped(host: Host, path: str | None) -> dict[str, ChannelSet]:
    """Ring and tree of a file that NCCL wrote on this machine."""
    if path is None:
        return {}
    from syntony.synth.nccl.graph_file import RING, TREE, channels_on, fault_of, read_graphs

    graphs = read_graphs(Path(path))
    if fault := fault_of(graphs, path):
        raise UserError(fault)
    return {graph.name: channels_on(graph, host.machine, path) for graph in graphs if graph.id in (RING, TREE)}


COMMANDS = (
    Command(
        ("export", "nccl-graph"),
        "write the channels that stock NCCL and RCCL read from a file, beside a bound on what any reach",
        "syntony export nccl-graph dgx1 -o dgx1-channels.xml",
        _configure_graph,
        _run_graph,
        limited=True,
    ),
)
