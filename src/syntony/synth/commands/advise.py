"""`syntony advise`: settings worth changing for stock NCCL or RCCL on a machine, and how to check their effect."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell
from syntony.base.arguments import count
from syntony.base.command import Command, UserError
from syntony.base.wording import bytes_of
from syntony.synth.commands.problem import add_timeout
from syntony.topologies.cli import add_topology

if TYPE_CHECKING:
    from syntony.synth.nccl.channels import ChannelSet, Host
    from syntony.synth.nccl.packing.packing import Packing

_TIMEOUT = 30.0
_WORTH = 1.02  # gains below 2 % are within the noise of nccl-tests


def _configure(parser: argparse.ArgumentParser) -> None:
    add_topology(parser)
    parser.add_argument("--across", action="store_true", help="for groups on several hosts like this one")
    parser.add_argument(
        "--beside", metavar="DUMP.xml", help="NCCL's own choice (NCCL_GRAPH_DUMP_FILE); shows the gain over it"
    )
    parser.add_argument(
        "--measured", action="append", default=[], metavar="WAY=FILE",
        help="nccl-tests' times of all_reduce with NCCL_ALGO and NCCL_PROTO set to WAY, such as ring/simple=ring.txt; "
        "repeat for each WAY; shows the gain of a tuner table",
    )  # fmt: skip
    parser.add_argument("--nodes", type=count, default=1, metavar="N", help="hosts of the measured group (1)")
    add_timeout(parser, _TIMEOUT)


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.commands.export import dumped_channels
    from syntony.synth.nccl.machine.hosts import host_named
    from syntony.synth.nccl.packing.packing import pack
    from syntony.synth.nccl.report import described

    host = host_named(options.topology, across=options.across)
    chosen = dumped_channels(host, options.beside)
    with progress(f"channels on {host.machine.name}"):
        begin = [chosen["ring"].channels] if "ring" in chosen else []
        rings = pack(host, "ring", beside=begin, timeout=0.7 * options.timeout)
    advice = [_graph(host, rings, chosen.get("ring"), options), _tuner(host, rings, options), _variables(host, rings)]
    lines = [described(host)]
    for number, one in enumerate(advice, 1):
        lines += [f"{number}. {one['what']}", f"   gain   {one['gain']}", f"   set    {one['set']}"]
        lines.append(f"   check  {one['check']}")
    tell(options, {"topology": options.topology, "across": host.across, "advice": advice}, lines)
    return 0


def _graph(host: Host, rings: Packing, chosen: ChannelSet | None, options: argparse.Namespace) -> dict[str, Any]:
    """The graph file, and its bandwidth beside NCCL's own choice, if that is known."""
    from syntony.synth.nccl.packing.depth_first import estimated_own
    from syntony.synth.nccl.report import allowed

    total = float(rings.chosen.total)
    reach = f"{total:g} GB/s of bus bandwidth in a ring, {rings.fraction:.0%} of the bound {rings.bound.rate:.5g}"
    across = " --across" if options.across else ""
    write = f"syntony export nccl-graph {options.topology}{across} -o channels.xml"
    ratio = None
    if chosen is None:
        own = float(estimated_own(host, "ring", rings.bound.rate))
        ratio = total / own if own else None
        least = f"at least {ratio - 1:+.1%} over NCCL's own, estimated at up to {own:g}" if ratio else (
            "NCCL's own search finds none at its speeds"
        )  # fmt: skip
        gain = f"{reach}; {least}: a run with NCCL_GRAPH_DUMP_FILE=chosen.xml, then --beside chosen.xml, tells exactly"
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


def _tuner(host: Host, rings: Packing, options: argparse.Namespace) -> dict[str, Any]:
    """The table of choices and, if ways were measured, its gain over the choices of NCCL's cost model."""
    switched = host.machine.multicast and not host.across
    ways = ["Ring Simple", "Tree LL", "Tree LL128", *(["NVLS Simple"] if switched else [])]
    words = "".join(f" --measured {text}" for text in options.measured) or " --measured ring/simple=ring.txt .."
    group = f" --on {options.topology} --nodes {options.nodes}" if options.measured else ""
    ratio, gain = 1.0, "+0.0% before anything is measured: a table of NCCL's own model chooses what NCCL does"
    if options.measured:
        ratio, size = _tuned(host, rings, options)
        where = f" at {bytes_of(size)}" if ratio > 1 else " at the measured sizes: NCCL chooses right"
        gain = f"up to {ratio - 1:+.1%}{where}"
    return {
        "what": f"a tuner table, from runs of {', '.join(ways)}",
        "gain": gain,
        "ratio": ratio,
        "set": f"syntony export nccl-tuner all_reduce{words}{group} -o choices.csv; "
        "NCCL_TUNER_PLUGIN, NCCL_TUNER_CONFIG_FILE",
        "check": "all_reduce_perf -b 1K -e 1G -f 2, with and without NCCL_TUNER_PLUGIN",
    }


def _tuned(host: Host, rings: Packing, options: argparse.Namespace) -> tuple[float, int]:
    """The largest gain of the best way over the one that NCCL's model chooses, among the measured sizes and ways."""
    from syntony.synth.commands.export import measured_curves
    from syntony.synth.nccl.tuning.cost_model import group_of, predicted

    curves = measured_curves(options.measured, rccl=False)
    ring = (len(rings.chosen.channels), float(rings.chosen.speed))
    model = {one.way: one for one in predicted(group_of(host, ring, ring, options.nodes), "all_reduce")}
    known = [curve for curve in curves if curve.way in model]
    if len(known) < 2:
        raise UserError("the gain of a table needs two measured ways at least, of ring and tree with ll, ll128, simple")
    best, at = 1.0, 0
    for size in sorted({size for curve in known for size in curve.sizes}):
        chosen = min(known, key=lambda curve: model[curve.way].at(size))
        ratio = chosen.at(size) / min(curve.at(size) for curve in known)
        if ratio > best:
            best, at = ratio, size
    return best, at


def _variables(host: Host, rings: Packing) -> dict[str, Any]:
    """The one variable that follows from the machine's wires."""
    from syntony.synth.nccl.machine.paths import PathKind

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
        "gain": "+0.0% of what the links allow: the model has no cost for it; only the check tells",
        "ratio": 1.0,
        "set": setting,
        "check": f"{test}, with and without it",
    }


COMMANDS = (
    Command(
        ("advise",),
        "show the three things worth setting for stock NCCL or RCCL, and how to check each",
        "syntony advise dgx1",
        _configure,
        _run,
        limited=True,
    ),
)
