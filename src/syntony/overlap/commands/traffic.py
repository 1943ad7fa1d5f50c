"""`syntony overlap traffic`: the bytes that each rank sends to each other."""

from __future__ import annotations

import argparse

from syntony.base.answer import tell
from syntony.base.arguments import pairs
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.base.wording import rounded_size, unknown
from syntony.overlap.commands.problem import add_problem, plan_of, problem


def _configure(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument("--algorithm", metavar="C=A,..", default="",
                        help="such as all_reduce=ring (default: slices exchanged directly)")  # fmt: skip
    add_output(parser, "-o", "--output", type=str, metavar="F.png", endings=(".png", ".svg", ".pdf"),
               what="it is drawn as PNG, SVG or PDF",
               help="draw it: .png, .svg or .pdf")  # fmt: skip


def _run(options: argparse.Namespace) -> int:
    from syntony.overlap.predict.traffic import CANONICAL, draw, report, traffic

    chosen = pairs(options.algorithm, f"--algorithm {options.algorithm}")
    for kind in chosen:
        if kind not in CANONICAL:
            raise UserError(f"--algorithm {options.algorithm}: {unknown('collective', kind, CANONICAL)}")
    asked = problem(options)
    found = traffic(plan_of(asked, options.policy), asked.layout, {**CANONICAL, **chosen})
    if options.output:
        draw(found, asked.title, options.output)
    told = report(found)
    lines = [f"{asked.title}: bytes that ranks send in a step"]
    for lane, total in sorted(told["bytes"].items(), key=lambda item: -item[1]):
        most = found[lane].sum(axis=1).max()
        lines.append(f"  {lane:<9} {rounded_size(total):>10}   {most:>16,} by the rank that sends most")
    lines += [] if told["bytes"] else ["  none"]
    lines += [wrote(options.output)] if options.output else []
    tell(options, told | {"file": options.output}, lines)
    return 0


COMMAND = Command(
    ("overlap", "traffic"),
    "show how many bytes each rank sends to each other rank in a step",
    "syntony overlap traffic --model internlm2-102b --layout tp=8,pp=4,dp=4,zero=1 -o heat.png",
    _configure,
    _run,
)
