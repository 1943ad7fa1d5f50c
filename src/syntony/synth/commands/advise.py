"""`syntony advise`: what is worth setting for stock NCCL or RCCL on a machine, and how to see that it helped."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell
from syntony.base.command import Command
from syntony.synth.commands.problem import add_timeout
from syntony.topologies.cli import add_topology

if TYPE_CHECKING:
    from syntony.synth.nccl.channels import ChannelSet, Host
    from syntony.synth.nccl.packing import Packing

_TIMEOUT = 30.0
_WORTH = 1.02  # a gain below 2 % is in the noise of nccl-tests


def _configure(parser: argparse.ArgumentParser) -> None:
    add_topology(parser)
    parser.add_argument("--across", action="store_true", help="for groups on several hosts like this one")
    parser.add_argument(
        "--beside", metavar="DUMP.xml", help="what NCCL chose itself (NCCL_GRAPH_DUMP_FILE): then the gain is told"
    )
    add_timeout(parser, _TIMEOUT)


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.commands.export import dumped_channels
    from syntony.synth.nccl.hosts import host_named
    from syntony.synth.nccl.packing import pack
    from syntony.synth.nccl.report import described

    host = host_named(options.topology, across=options.across)
    chosen = dumped_channels(host, options.beside)
    with progress(f"channels on {host.machine.name}"):
        begin = [chosen["ring"].channels] if "ring" in chosen else []
        rings = pack(host, "ring", beside=begin, timeout=0.7 * options.timeout)
    advice = [_graph(host, rings, chosen.get("ring"), options), _tuner(host), _variables(host, rings)]
    lines = [described(host)]
    for number, one in enumerate(advice, 1):
        lines += [f"{number}. {one['what']}", f"   gain   {one['gain']}", f"   set    {one['set']}"]
        lines.append(f"   check  {one['check']}")
    tell(options, {"topology": options.topology, "across": host.across, "advice": advice}, lines)
    return 0


def _graph(host: Host, rings: Packing, chosen: ChannelSet | None, options: argparse.Namespace) -> dict[str, Any]:
    """The graph file, and what it promises beside NCCL's own choice where that is known."""
    from syntony.synth.nccl.report import allowed

    total = float(rings.chosen.total)
    reach = f"{total:g} GB/s of bus bandwidth in a ring, {rings.fraction:.0%} of the bound {rings.bound.rate:.5g}"
    across = " --across" if options.across else ""
    write = f"syntony export nccl-graph {options.topology}{across} -o channels.xml"
    ratio = None
    if chosen is None:
        gain = (
            f"{reach}; NCCL's own is not known: run once with NCCL_GRAPH_DUMP_FILE=chosen.xml, then --beside chosen.xml"
        )
    else:
        ratio = total / allowed(host, chosen)
        verdict = "" if ratio >= _WORTH else ": NCCL's own channels are as good, leave them"
        gain = f"{reach}; {ratio - 1:+.1%} over NCCL's own{verdict}"
    return {
        "what": "channels in a graph file",
        "gain": gain,
        "ratio": ratio,
        "set": f"{write}; NCCL_GRAPH_FILE=channels.xml",
        "check": "all_reduce_perf -b 64M -e 4G -f 2, with and without NCCL_GRAPH_FILE",
    }


def _tuner(host: Host) -> dict[str, Any]:
    """The table of choices: what it is worth only measuring tells."""
    switched = host.machine.multicast and not host.across
    ways = ["Ring Simple", "Tree LL", "Tree LL128", *(["NVLS Simple"] if switched else [])]
    return {
        "what": f"a tuner table, from runs of {', '.join(ways)}",
        "gain": "not predicted: it is at sizes where NCCL changes its algorithm too early or late",
        "ratio": None,
        "set": "syntony export nccl-tuner all_reduce --measured ring/simple=ring.txt .. -o choices.csv; "
        "NCCL_TUNER_PLUGIN, NCCL_TUNER_CONFIG_FILE",
        "check": "all_reduce_perf -b 1K -e 1G -f 2, with and without NCCL_TUNER_PLUGIN",
    }


def _variables(host: Host, rings: Packing) -> dict[str, Any]:
    """The one variable that follows from the machine's wires."""
    from syntony.synth.nccl.paths import PathKind

    intra, inter = host.kinds("ring", rings.chosen.channels)
    test = "all_reduce_perf -b 64M -e 1G -f 2"
    if host.across and len(host.machine.nets) > 1:
        setting, why = "NCCL_CROSS_NIC=0", "each channel keeps to NICs of one number, as the graph file wants"
    elif host.across and inter > PathKind.PXB:
        setting, why = f"NCCL_NET_GDR_LEVEL={inter.name}", "NICs reach GPUs directly though a processor is in between"
    elif intra in (PathKind.PHB, PathKind.SYS):
        setting, why = f"NCCL_P2P_LEVEL={intra.name}", "GPUs read each other directly, and not through host memory"
    else:
        setting = f"NCCL_MIN_NCHANNELS={len(rings.chosen.channels)}"
        why = "small groups use all channels of the ring"
    return {
        "what": f"{setting}: {why}",
        "gain": "not predicted: the model has no cost for it; may help or hurt",
        "ratio": None,
        "set": setting,
        "check": f"{test}, with and without it",
    }


COMMANDS = (
    Command(
        ("advise",),
        "the three things worth setting for stock NCCL or RCCL on a machine, and how to check each",
        "syntony advise dgx1",
        _configure,
        _run,
        limited=True,
    ),
)
