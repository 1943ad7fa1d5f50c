"""`syntony overlap trace`: writes a step for Perfetto or Chakra."""

from __future__ import annotations

import argparse
from pathlib import Path

from syntony.base.answer import tell
from syntony.base.command import Command
from syntony.base.outputs import add_output, wrote
from syntony.overlap.commands.predicted import predicted
from syntony.overlap.commands.problem import THIN, add_problem


def _configure(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument(
        "--real", nargs="+", default=[], metavar="R.et", help="recorded traces, drawn below the predicted step"
    )
    add_output(parser, "-o", "--output", type=str, required=True, metavar="F", endings=(".json", ".et"),
               what="a trace is JSON (Perfetto) or Chakra's",
               help="F.json for Perfetto, F.et for Chakra")  # fmt: skip


def _run(options: argparse.Namespace) -> int:
    from syntony.overlap.formats.chakra import read_chakra, write_chakra
    from syntony.overlap.formats.perfetto import Row, planned, write_trace

    plan, timeline, _ = predicted(options)
    path = Path(options.output)
    if path.suffix == ".et":
        spans = zip(timeline.start.tolist(), timeline.end.tolist(), strict=True)
        written = write_chakra(plan, path, dict(zip(timeline.row, spans, strict=True)))
    else:
        rows = planned(timeline)
        for name in options.real:
            real = read_chakra(name)
            rows += [
                Row(f"device {device}, measured ({Path(name).stem})", real.plan, device, real.times)
                for device in real.plan.graph.devices
            ]
        write_trace(rows, path)
        written = [path]
    tell(options, {"files": [str(file) for file in written]}, [wrote(file) for file in written])
    return 0


COMMAND = Command(
    ("overlap", "trace"),
    "write a trace of a step for Perfetto or Chakra, planned and measured",
    f"syntony overlap trace {THIN} --policy dear -o trace.json",
    _configure,
    _run,
)
