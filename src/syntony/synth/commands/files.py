"""`syntony verify` and `syntony convert`: schedule and program files, proven and rewritten."""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.arguments import count, size
from syntony.base.command import Command, UserError
from syntony.base.whole_file import write_text
from syntony.base.wording import counted

if TYPE_CHECKING:
    from syntony.synth.formats.export_options import ExportOptions
    from syntony.synth.model.program import Program

PROTOCOLS = ("Simple", "LL128", "LL")


def _configure_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help=f"{_READS}, or a portfolio")
    parser.add_argument(
        "--fifo-depth",
        type=count,
        metavar="N",
        help="messages a connection holds (default: what the file claims)",
    )
    parser.add_argument("--json", action="store_true", help="print {valid, fault, timeline} for machines")


def _run_verify(options: argparse.Namespace) -> int:
    from syntony.synth.formats.loading import verify

    verdict = verify(options.file, options.fifo_depth)
    if options.json:
        print(json.dumps({"valid": verdict.valid, "fault": verdict.fault, "timeline": list(verdict.timeline)}))
    else:
        print(f"{options.file}: valid" if verdict else f"{options.file}: invalid: {verdict.fault}")
        for line in verdict.timeline:
            print(f"  {line}")
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


def _bytes(text: str) -> int:
    return 0 if text == "0" else size(text)


def _configure_convert(parser: argparse.ArgumentParser) -> None:
    lines = [
        "reads:",
        *textwrap.wrap(_READS, 100, initial_indent="  ", subsequent_indent="  "),
        "",
        "writes:",
    ]
    for name, text in _WRITES.items():
        first, *rest = textwrap.wrap(text, 84)
        lines += [f"  {name:<13} {first}", *(f"  {'':<13} {line}" for line in rest)]
    lines += ["", "If a format cannot express something, the error names it.", "", parser.epilog or ""]
    parser.epilog = "\n".join(lines)
    parser.add_argument("file", help="what to convert")
    parser.add_argument("--to", required=True, metavar="FORMAT[:DIALECT]", help=", ".join(_WRITES))
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the file to write")
    parser.add_argument(
        "--min-bytes", type=_bytes, metavar="SIZE", help="smallest size for which the file is taken (default 0)"
    )
    parser.add_argument(
        "--max-bytes", type=_bytes, metavar="SIZE", help="largest size for which the file is taken (default 1 TiB)"
    )
    parser.add_argument("--protocol", choices=PROTOCOLS, help="how messages travel there (default Simple)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--in-place", action="store_true", help="for calls whose output is their input")
    where.add_argument(
        "--out-of-place",
        action="store_true",
        help="for calls with two buffers (default: both where the format can say so, else out of place)",
    )


def _run_convert(options: argparse.Namespace) -> int:
    from syntony.synth.formats.export_options import MAX_BYTES, ExportOptions
    from syntony.synth.formats.loading import prove, read
    from syntony.synth.model.schedule import Schedule
    from syntony.synth.model.target import CONVERSION

    name, _, dialect = options.to.partition(":")
    if name not in _WRITES:
        raise UserError(f"--to '{options.to}': no such format; formats are {', '.join(_WRITES)}")
    if dialect and (name != "msccl-xml" or dialect not in _DIALECTS):
        known = f"its dialects are {', '.join(_DIALECTS)}" if name == "msccl-xml" else "it has no dialects"
        raise UserError(f"--to '{options.to}': '{dialect}' is not a dialect of {name}; {known}")
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
    output = Path(options.output)
    if not output.parent.is_dir():
        raise UserError(f"{output}: there is no directory {output.parent}")
    loaded = read(options.file)
    if name == "msccl-json":
        from syntony.synth.formats.loading import prove_schedule
        from syntony.synth.formats.msccl.json_export import msccl_json_text
        from syntony.synth.symmetry.groups import expand

        if not isinstance(loaded.content, Schedule):
            raise UserError(f"{options.file}: it is a program; .msccl.json files hold schedules only")
        schedule = prove_schedule(loaded.content, options.file)
        write_text(output, msccl_json_text(schedule))
        kind, ranks = schedule.collective.kind, schedule.collective.ranks
        length = counted(len(expand(schedule).transfers), "transfer")
    else:
        program = prove(loaded, options.file, target=CONVERSION)
        write_text(output, _program_text(program, name, dialect or "azure", export_options))
        kind, ranks, length = program.collective, program.ranks, counted(len(program.instructions), "instruction")
    print(f"{output}: {kind} on {counted(ranks, 'rank')}, {length}")
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
