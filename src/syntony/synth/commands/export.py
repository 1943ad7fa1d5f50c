"""`syntony export nccl-graph`, `nccl-tuner`, `rccl-tuner` and `mscclpp`: files for stock software."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell
from syntony.base.arguments import count
from syntony.base.command import Command, UserError
from syntony.base.files.whole_file import write_text
from syntony.base.outputs import add_output, wrote
from syntony.synth.commands.problem import add_timeout
from syntony.topologies.cli import add_topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syntony.synth.nccl.channels import ChannelSet, Host
    from syntony.synth.nccl.tuning.cost_model import Group, Predicted
    from syntony.synth.nccl.tuning.tuner import Curve

_TIMEOUT = 60.0
_OF_LIMIT = 0.4  # of --timeout for rings, the same for trees; the rest for bounds and writing


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
        help="channels lead to other hosts, all like this one (always so for a topology of several hosts)",
    )
    parser.add_argument(
        "--channels", type=count, metavar="N", help="number of channels (default: the fewest that reach the best speed)"
    )
    parser.add_argument(
        "--beside",
        metavar="DUMP.xml",
        help="NCCL's own choice (NCCL_GRAPH_DUMP_FILE): start the search there, and show the gain",
    )
    add_timeout(parser, _TIMEOUT)


def _run_graph(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.nccl.graph_file import graph_text
    from syntony.synth.nccl.machine.hosts import host_named
    from syntony.synth.nccl.packing.packing import MOST_CHANNELS, pack
    from syntony.synth.nccl.report import allowed, described, packed_line, packed_object

    output = options.output
    if options.channels is not None and options.channels > MOST_CHANNELS:
        raise UserError(f"--channels {options.channels}: NCCL uses at most {MOST_CHANNELS} channels of a graph")
    host = host_named(options.topology, across=options.across)
    dumped = dumped_channels(host, options.beside)
    begin = {name: [found.channels] for name, found in dumped.items()}
    with progress(f"channels on {host.machine.name}"):
        limits = {"timeout": options.timeout * _OF_LIMIT, "exactly": options.channels or 0}
        rings = pack(host, "ring", beside=begin.get("ring", ()), **limits)
        limits["exactly"] = len(rings.chosen.channels)
        # A ring cut open is a chain, and often a good one.
        chains = pack(host, "chain", beside=[rings.chosen.channels, *begin.get("tree", ())], **limits)
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


def dumped_channels(host: Host, path: str | None) -> dict[str, ChannelSet]:
    """Ring and tree in a file that NCCL wrote on this machine."""
    if path is None:
        return {}
    from syntony.synth.nccl.graph_file import RING, TREE, channels_on, fault_of, read_graphs

    graphs = read_graphs(Path(path))
    if fault := fault_of(graphs, path):
        raise UserError(fault)
    return {graph.name: channels_on(graph, host.machine, path) for graph in graphs if graph.id in (RING, TREE)}


# export nccl-tuner, rccl-tuner ------------------------------------------------------------------------------------


def _configure_tuner(parser: argparse.ArgumentParser) -> None:
    from syntony.synth.nccl.tuning.tuner import COLLECTIVES

    parser.add_argument("collective", metavar="COLLECTIVE", help=", ".join(COLLECTIVES))
    parser.add_argument(
        "--on",
        metavar="T",
        help="also include combinations that were not measured, by NCCL's own cost model for hosts like T (a "
        "topology, or file: with NCCL's description of a host), scaled by the measured ones",
    )
    parser.add_argument(
        "--measured",
        action="append",
        default=[],
        metavar="WAY=FILE",
        help="output of nccl-tests, or its JSON, with NCCL_ALGO and NCCL_PROTO set to WAY, such as "
        "ring/simple=ring.txt or tree/ll128/16=tree.json (16 channels); repeat for each WAY",
    )
    parser.add_argument("--nodes", type=count, metavar="N", help="only for groups on N hosts (default: any)")
    parser.add_argument("--ranks", type=count, metavar="N", help="only for groups of N ranks (default: any)")
    add_output(
        parser, "-o", "--output", required=True, metavar="F.csv", endings=(".csv", ".conf"), what="a table of choices",
        help="the file for NCCL_TUNER_CONFIG_FILE",
    )  # fmt: skip


def _run_tuner(options: argparse.Namespace) -> int:
    from syntony.base.wording import bytes_of, counted, unknown
    from syntony.synth.nccl.tuning.cost_model import calibrated
    from syntony.synth.nccl.tuning.tuner import COLLECTIVES, choices, table_text

    rccl = options.command.endswith("rccl-tuner")
    if options.collective not in COLLECTIVES:
        raise UserError(f"{unknown('collective', options.collective, COLLECTIVES)}; tuners choose for no others")
    if not options.measured and options.on is None:
        raise UserError("it needs times: --measured WAY=FILE, or --on T for those that NCCL's cost model predicts")
    curves = measured_curves(options.measured, rccl=rccl)
    timed: list[Curve | Predicted] = [*curves]
    nodes, ranks = options.nodes or -1, options.ranks or -1
    where = f"by {counted(len(curves), 'measured way')}"
    if options.on is not None:
        group, model = _model(options)
        timed, nodes, ranks = calibrated(model, curves), group.nodes, group.ranks
        where += f" and {counted(len(timed) - len(curves), 'predicted one')}"
    found = choices(timed)
    text = table_text(
        options.collective,
        found,
        nodes=nodes,
        ranks=ranks,
        remark=f"syntony export, {where}",
    )
    write_text(options.output, text)
    told = {
        "file": str(options.output),
        "choices": [{"least": one.least, "most": one.most, "way": str(one.way)} for one in found],
        "models": [
            {"way": str(one.way), "latency": one.latency, "per_byte": one.per_byte, "measured": one in curves}
            for one in timed
        ],
    }
    lines = [f"{options.collective}, {where}:"]
    lines += [f"  {bytes_of(one.least):>8} to {bytes_of(one.most):<8} {one.way}" for one in found]
    library = (
        "RCCL of ROCm 7.13 or later reads it" if rccl else "a plugin reads it (make nccl-tuner): NCCL_TUNER_PLUGIN"
    )
    tell(options, told, [*lines, f"  use    NCCL_TUNER_CONFIG_FILE={options.output}; {library}", wrote(options.output)])
    return 0


def measured_curves(texts: Sequence[str], *, rccl: bool) -> list[Curve]:
    """The curves of `--measured WAY=FILE`, .. Raises UserError."""
    from syntony.synth.nccl.tuning.measured import read_times
    from syntony.synth.nccl.tuning.tuner import ALGORITHMS, RCCL_ALGORITHMS, Curve, way_named

    curves: list[Curve] = []
    for text in texts:
        name, sign, path = text.partition("=")
        if not sign:
            raise UserError(f"--measured {text}: write WAY=FILE, such as ring/simple=ring.txt")
        way = way_named(name, RCCL_ALGORITHMS if rccl else ALGORITHMS)
        if any(curve.way == way for curve in curves):
            raise UserError(f"--measured {text}: {way} is given twice")
        curves.append(Curve(way, read_times(Path(path))))
    return curves


def _model(options: argparse.Namespace) -> tuple[Group, list[Predicted]]:
    """The predictions of NCCL's cost model with the channels of `export nccl-graph` on the same hosts."""
    from syntony.base.wording import counted
    from syntony.synth.nccl.machine.hosts import host_named
    from syntony.synth.nccl.packing.packing import pack
    from syntony.synth.nccl.tuning.cost_model import group_of, predicted

    nodes = options.nodes or 1
    host = host_named(options.on, across=nodes > 1)
    gpus = len(host.machine.gpus)
    if options.ranks is not None and options.ranks != nodes * gpus:
        raise UserError(f"--ranks {options.ranks}: {counted(nodes, 'host')} of {counted(gpus, 'GPU')} are not so many")
    rings = pack(host, "ring", timeout=0)
    chains = pack(host, "chain", exactly=len(rings.chosen.channels), beside=[rings.chosen.channels], timeout=0)
    ring, tree = ((len(one.chosen.channels), float(one.chosen.speed)) for one in (rings, chains))
    group = group_of(host, ring, tree, nodes)
    return group, predicted(group, options.collective)


# export mscclpp ---------------------------------------------------------------------------------------------------


def _configure_mscclpp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="F[@LEAST-MOST]", help="schedules or programs, each with its range of sizes"
    )
    parser.add_argument("--ranks-per-node", type=count, default=8, metavar="N", help="GPUs of a host (default 8)")
    parser.add_argument("--protocol", choices=("Simple", "LL"), default="Simple", help="protocol of the messages")
    parser.add_argument("--in-place", action="store_true", help="for in-place calls")
    add_output(
        parser, "-o", "--output", required=True, metavar="FOLDER", folder=True,
        help="folder for the plans and the script that registers them",
    )  # fmt: skip


def _run_mscclpp(options: argparse.Namespace) -> int:
    from syntony.base.outputs import require_output
    from syntony.synth.formats.export_options import ExportOptions
    from syntony.synth.formats.loading import load
    from syntony.synth.formats.mscclpp.registrar import SCRIPT, plan_text, script_text
    from syntony.synth.model.target import CONVERSION

    folder: Path = options.output
    texts: dict[str, str] = {}
    plans = []
    for number, text in enumerate(options.files):
        path, _, sizes = text.partition("@")
        least, most = _range(sizes, text)
        program = load(path, target=CONVERSION)
        file = f"{program.collective.replace('_', '')}-{number}.json"
        export = ExportOptions(least, most, options.protocol, True if options.in_place else None)
        texts[file], row = plan_text(program, file, export)
        plans.append(row)
    texts[SCRIPT] = script_text(plans, options.ranks_per_node)
    folder.mkdir(parents=True, exist_ok=True)
    for file in texts:
        require_output(folder / file, options.force)
    for file, text in texts.items():
        write_text(folder / file, text)
    told = {"folder": str(folder), "plans": [plan.__dict__ for plan in plans], "script": SCRIPT}
    lines = [f"  {plan.file}: {plan.collective} on {plan.world_size} ranks, as {plan.name}" for plan in plans]
    use = f"  use    import {Path(SCRIPT).stem}; {Path(SCRIPT).stem}.register(rank), before the first communicator"
    tell(options, told, [wrote(folder, "plans for MSCCL++ 0.9"), *lines, use])
    return 0


def _range(text: str, whole: str) -> tuple[int, int]:
    """`64K-1M` as bytes; the full range if empty."""
    from syntony.base import quantity
    from syntony.synth.formats.export_options import MAX_BYTES

    if not text:
        return 0, MAX_BYTES
    least, dash, most = text.partition("-")
    try:
        return (quantity.size(least) if least != "0" else 0), (quantity.size(most) if dash and most else MAX_BYTES)
    except ValueError as error:
        raise UserError(f"{whole}: '{text}' is not a range of sizes such as 64K-1M; write {error}") from None


COMMANDS = (
    Command(
        ("export", "nccl-graph"),
        "write a graph file with channels for stock NCCL and RCCL, and a bound on all channels",
        "syntony export nccl-graph dgx1 -o dgx1-channels.xml",
        _configure_graph,
        _run_graph,
        limited=True,
    ),
    Command(
        ("export", "nccl-tuner"),
        "write a tuner table for NCCL: algorithm and protocol by size, from measured times",
        "syntony export nccl-tuner all_reduce --measured ring/simple=a.txt --measured tree/ll=b.txt -o choices.csv",
        _configure_tuner,
        _run_tuner,
    ),
    Command(
        ("export", "rccl-tuner"),
        "write a tuner table for RCCL: algorithm and protocol by size, from measured times",
        "syntony export rccl-tuner all_reduce --measured ring/simple=a.txt --measured tree/ll=b.txt -o choices.csv",
        _configure_tuner,
        _run_tuner,
    ),
    Command(
        ("export", "mscclpp"),
        "write plans for MSCCL++ and the script that registers them",
        "syntony export mscclpp allgather.json@64K-1M -o plans",
        _configure_mscclpp,
        _run_mscclpp,
    ),
)
