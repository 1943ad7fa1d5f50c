"""`syntony verify` and `syntony convert`: prove and rewrite schedule and program files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.answer import tell, wrapped
from syntony.base.arguments import count, size_or_zero
from syntony.base.command import Command, UserError
from syntony.base.files.whole_file import write_text
from syntony.base.outputs import add_output, wrote
from syntony.base.wording import counted, unknown
from syntony.topologies.cli import TOPOLOGY_HELP

if TYPE_CHECKING:
    from syntony.synth.formats.export_options import ExportOptions
    from syntony.synth.model.program import Program

PROTOCOLS = ("Simple", "LL128", "LL")


def _configure_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help=f"{_READS}, a portfolio, or NCCL's graph file")
    parser.add_argument("--topology", metavar="T", help=f"for a graph file: its machine; {TOPOLOGY_HELP}")
    parser.add_argument(
        "--fifo-depth",
        type=count,
        metavar="N",
        help="messages that a connection can hold (default: what the file claims)",
    )


def _run_verify(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.formats.loading import verify
    from syntony.synth.nccl.graph_file import is_graph_file
    from syntony.synth.nccl.judge import verify_graphs

    if is_graph_file(Path(options.file)):
        verdict = verify_graphs(Path(options.file), options.topology)
    elif options.topology is not None:
        raise UserError("--topology is for NCCL's graph files; other files say what they are for")
    else:
        with progress(f"proving {options.file}"):
            verdict = verify(options.file, options.fifo_depth)
    told = {
        "valid": verdict.valid, "proven": verdict.proven, "fault": verdict.fault, "timeline": list(verdict.timeline)
    }  # fmt: skip
    if verdict:
        first = f"{options.file}: valid" + (f": {verdict.proven}" if verdict.proven else "")
    else:
        first = f"{options.file}: invalid: {verdict.fault}"
    tell(options, told, [first, *(f"  {line}" for line in verdict.timeline)])
    return 0 if verdict else 1


_WRITES = {
    "json": "program v1: every Program, whole",
    "msccl-xml": "MSCCL XML for msccl-scheduler (:azure, the default), :rccl, :microsoft, or msccl-tools' newer :op; "
    "messages between equal chunks, root 0, at most 256 steps in 216 lanes a rank, FIFO depth 2",
    "mscclpp-json": "an MSCCL++ plan; equal chunks, root 0, at most 16 channels, 16 remote buffers and 64 "
    "operations in a lane, 16 waits between lanes a rank",
    "msccl-json": "an algorithm of msccl-tools (.msccl.json), from a schedule only: steps, rounds and sends of equal "
    "chunks between ranks, on links with shared limits",
}
_DIALECTS = ("azure", "rccl", "microsoft", "op")
_READS = (
    "schedule JSON, program JSON, MSCCL XML (all dialects, TACCL's and TE-CCL's too), an MSCCL++ plan, or an "
    "algorithm of msccl-tools (.msccl.json)"
)


def _configure_convert(parser: argparse.ArgumentParser) -> None:
    lines = ["reads:", *wrapped(f"  {_READS}", more=""), "", "writes:"]
    for name, text in _WRITES.items():
        lines += wrapped(f"  {name:<13} {text}", more=" " * 14)
    lines += ["", "If a format cannot express something, the error names it.", "", parser.epilog or ""]
    parser.epilog = "\n".join(lines)
    parser.add_argument("file", help="schedule or program to convert")
    parser.add_argument("--to", required=True, metavar="FORMAT[:DIALECT]", help=", ".join(_WRITES))
    add_output(parser, "-o", "--output", required=True, metavar="OUT", help="the file to write")
    parser.add_argument(
        "--min-bytes", type=size_or_zero, metavar="SIZE", help="smallest size for which the file is used (default 0)"
    )
    parser.add_argument(
        "--max-bytes",
        type=size_or_zero,
        metavar="SIZE",
        help="largest size for which the file is used (default 1 TiB)",
    )
    parser.add_argument("--protocol", choices=PROTOCOLS, help="protocol of the messages (default Simple)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--in-place", action="store_true", help="for in-place calls")
    where.add_argument(
        "--out-of-place",
        action="store_true",
        help="for out-of-place calls (default: both if the format supports it, else out of place)",
    )


def _run_convert(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.formats.export_options import MAX_BYTES, ExportOptions
    from syntony.synth.formats.loading import prove, read
    from syntony.synth.model.schedule import Schedule
    from syntony.synth.model.target import CONVERSION

    name, _, dialect = options.to.partition(":")
    if name not in _WRITES:
        raise UserError(f"--to: {unknown('format', name, _WRITES)}")
    if dialect and (name != "msccl-xml" or dialect not in _DIALECTS):
        wrong = unknown("dialect", dialect, _DIALECTS) if name == "msccl-xml" else f"{name} has no dialects"
        raise UserError(f"--to {options.to}: {wrong}")
    given = [
        f"--{key.replace('_', '-')}"
        for key in ("min_bytes", "max_bytes", "protocol", "in_place", "out_of_place")
        if getattr(options, key) not in (None, False)
    ]
    if given and name in ("json", "msccl-json"):
        raise UserError(f"{given[0]} has no effect in format {name}; only msccl-xml and mscclpp-json have it")
    place = True if options.in_place else False if options.out_of_place else None
    export_options = ExportOptions(
        options.min_bytes or 0,
        MAX_BYTES if options.max_bytes is None else options.max_bytes,
        options.protocol or "Simple",
        place,
    )
    output = options.output
    loaded = read(options.file)
    if name == "msccl-json":
        from syntony.synth.formats.loading import prove_schedule
        from syntony.synth.formats.msccl.json_export import msccl_json_text
        from syntony.synth.symmetry.groups import expand

        if not isinstance(loaded.content, Schedule):
            raise UserError(f"{options.file}: it is a program; .msccl.json files hold schedules only")
        with progress(f"checking {options.file}"):
            schedule = prove_schedule(loaded.content, options.file)
        write_text(output, msccl_json_text(schedule))
        kind, ranks = schedule.collective.kind, schedule.collective.ranks
        length, noun = len(expand(schedule).transfers), "transfer"
    else:
        with progress(f"proving {options.file}"):
            program = prove(loaded, options.file, target=CONVERSION)
        write_text(output, _program_text(program, name, dialect or "azure", export_options))
        kind, ranks, length, noun = program.collective, program.ranks, len(program.instructions), "instruction"
    told = {"file": str(output), "format": options.to, "collective": kind, "ranks": ranks, f"{noun}s": length}
    tell(options, told, [wrote(output, f"{kind} on {counted(ranks, 'rank')}, {counted(length, noun)}")])
    return 0


def _program_text(program: Program, name: str, dialect: str, options: ExportOptions) -> str:
    from syntony.synth.formats.msccl.xml_export import msccl_xml_text
    from syntony.synth.formats.mscclpp.export import mscclpp_text
    from syntony.synth.formats.program_file import program_text

    if name == "json":
        return program_text(program)
    if name == "msccl-xml":
        return msccl_xml_text(program, dialect, options)
    return mscclpp_text(program, options)


COMMANDS = (
    Command(
        ("verify",),
        "prove a schedule or program, or name its first fault (exit 0 valid, 1 invalid, 2 unreadable)",
        "syntony verify allgather.json",
        _configure_verify,
        _run_verify,
    ),
    Command(
        ("convert",),
        "prove a schedule or program and write it in another format",
        "syntony convert allgather.json --to msccl-xml -o allgather.xml",
        _configure_convert,
        _run_convert,
    ),
)
