"""`syntony congestion`: the effect of an incast on a network under each law of congestion control."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from syntony.base.answer import tell
from syntony.base.arguments import count
from syntony.base.arguments import seconds as seconds_of
from syntony.base.command import Command
from syntony.synth.commands.traffic import add_choice, choice_of

LAWS = ("none", "dcqcn", "timely", "swift", "hpcc")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topology", metavar="T", help="a topology with switches")
    parser.add_argument("--senders", type=count, default=8, metavar="N", help="ranks that send to rank 0 (default 8)")
    parser.add_argument("--law", choices=LAWS, help="congestion control of the senders (default: each in turn)")
    parser.add_argument("--no-pause", action="store_true", help="switches with unlimited queues, without pauses (PFC)")
    parser.add_argument("--seconds", type=seconds_of, default=0.02, metavar="S", help="simulated time (default 0.02)")
    add_choice(parser)


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.base.text_table import aligned
    from syntony.base.wording import rate, rounded_size, time
    from syntony.synth.congestion.dcqcn import standing_queue
    from syntony.synth.congestion.incast import Incast
    from syntony.synth.traffic.choice import Choice
    from syntony.topologies.parse import parse

    choice = choice_of(options, Choice("ecmp"))
    incast = Incast.make(parse(options.topology), options.senders, choice)
    found = {}
    for law in (options.law,) if options.law else LAWS:
        with progress(f"incast under {law}"):
            found[law] = incast.under(law, options.seconds, not options.no_pause)
    rows = [("law", "arrives", "evenness", "waits", "99 %", "longest", "paused", "victim", "early")]
    for law, one in found.items():
        rows.append(
            (
                law,
                f"{one.share:.1%}",
                f"{one.evenness:.2f}",
                time(one.wait),
                time(one.wait_99),
                rounded_size(one.peak),
                f"{one.paused:.0%}",
                rate(one.victim),
                rounded_size(one.early),
            )
        )
    fair = incast.fair()
    story = [
        f"{incast.senders} ranks send to rank 0 of {incast.topology.name}, paths {choice} (simulated, fluid model)",
        *aligned(rows, "<" + ">" * 8, "  "),
        f"  arrives: of {rate(incast.bandwidth)}, rank 0's link; waits: in queues; longest: the longest queue",
        f"  the victim sends to rank 1, which nobody else does; sharing fairly, it would get {rate(fair)}",
    ]
    standing = standing_queue(incast.senders, incast.bandwidth) if "dcqcn" in found else None
    if standing == float("inf"):
        story.append("  DCQCN has no steady state with so many senders: it keeps pausing, or queues grow")
        standing = None
    elif standing is not None:
        story.append(f"  DCQCN's steady state in theory, at rank 0's link alone: a queue of {rounded_size(standing)}")
    report = {
        "topology": incast.topology.name,
        "senders": incast.senders,
        "paths": str(choice),
        "seed": choice.seed,
        "seconds": options.seconds,
        "pauses": not options.no_pause,
        "bandwidth": incast.bandwidth,
        "fair_victim": fair,
        "dcqcn_steady_queue": standing,
        "laws": {law: asdict(one) for law, one in found.items()},
    }
    tell(options, report, story)
    return 0


COMMAND = Command(
    ("congestion",),
    "simulate an incast under DCQCN, TIMELY, Swift and HPCC: queues, pauses, blocked flows",
    "syntony congestion clos:leaves=2,hosts=8,spines=2,bandwidth=5e9 --senders 4 --seconds 0.005",
    _configure,
    _run,
)
