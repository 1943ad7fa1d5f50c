"""`syntony verify` and `syntony convert`: schedule and program files, proven and rewritten."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from synth.arguments import count
from synth.counted import counted
from topologies.command import Command, UserError
from topologies.file_format import write_text


def _configure_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="schedule, portfolio or program JSON, or MSCCL XML")
    parser.add_argument(
        "--fifo-depth",
        type=count,
        metavar="N",
        help="messages a connection holds (default: what the file claims)",
    )
    parser.add_argument("--json", action="store_true", help="print {valid, fault, timeline} for machines")


def _run_verify(options: argparse.Namespace) -> int:
    from synth.loading import verify

    verdict = verify(options.file, options.fifo_depth)
    if options.json:
        print(json.dumps({"valid": verdict.valid, "fault": verdict.fault, "timeline": list(verdict.timeline)}))
    else:
        print(f"{options.file}: valid" if verdict else f"{options.file}: invalid: {verdict.fault}")
        for line in verdict.timeline:
            print(f"  {line}")
    return 0 if verdict else 1


def _configure_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="schedule JSON, program JSON or MSCCL XML")
    parser.add_argument("--to", required=True, choices=("json", "msccl-xml"), help="the format to write")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the file to write")


def _run_convert(options: argparse.Namespace) -> int:
    from synth.formats.msccl_xml_export import msccl_xml_text
    from synth.formats.program_file import Stamp, program_text
    from synth.loading import load
    from synth.target import CONVERSION

    output = Path(options.output)
    if not output.parent.is_dir():
        raise UserError(f"{output}: there is no directory {output.parent}")
    program = load(options.file, target=CONVERSION)
    if options.to == "json":
        write_text(output, program_text(program, Stamp.of_proven(program)))
    else:
        write_text(output, msccl_xml_text(program))
    length = counted(len(program.instructions), "instruction")
    print(f"{output}: {program.collective} on {counted(program.ranks, 'rank')}, {length}")
    return 0


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
