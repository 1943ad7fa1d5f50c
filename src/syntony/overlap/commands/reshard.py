"""`syntony overlap reshard`: the data that moves when a model changes its layout, and the time for it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell
from syntony.base.arguments import count
from syntony.base.command import Command, UserError
from syntony.overlap.commands.problem import layout_of

if TYPE_CHECKING:
    from syntony.overlap.layouts.reshard import Reshard
    from syntony.topologies.topology import Topology


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="NAME", help="such as gpt3-6.7b; `overlap list` lists all")
    parser.add_argument("--old", required=True, metavar="K=V,..", help="current layout, such as dp=8,zero=3")
    parser.add_argument("--new", required=True, metavar="K=V,..", help="new layout, such as dp=6,zero=3")
    parser.add_argument(
        "--lost", default="", metavar="R,..", help="ranks of the old layout that have failed and send nothing"
    )
    about = "bytes of weight and optimizer state per parameter (default 14: 16 bits, Adam in fp32)"
    parser.add_argument("--state", type=count, default=14, metavar="BYTES", help=about)
    parser.add_argument("--on", metavar="TOPOLOGY", help="simulate the exchange on this network, such as dgx-a100:2")


def run(options: argparse.Namespace) -> int:
    from syntony.base.wording import rounded_size
    from syntony.overlap.layouts.reshard import held, reshard
    from syntony.overlap.step.layout import Layout
    from syntony.overlap.step.model_spec import model_named
    from syntony.overlap.step.models import Form, layers_of

    model = model_named(options.model)
    whole = layers_of(model, Layout(), Form(element=1))
    sizes = [layer.weights * options.state for layer in whole]
    holds = []
    for option, text in (("--old", options.old), ("--new", options.new)):
        layout = layout_of(text, option)
        layers = layers_of(model, layout, Form(element=1))
        if len(layers) != len(sizes):
            raise UserError(f"under {text} the model has other layers than whole: routers are apart where tp or cp are")
        holds.append(held(sizes, layers, layout))
    old, new = holds
    found = reshard(old, new, _lost(options.lost, len(old)))
    matrix = found.matrix
    told: dict[str, Any] = {
        "bytes": found.bytes,
        "bound": found.bound,
        "needed": found.needed,
        "place": list(found.place),
        "matrix": matrix.tolist(),
        "most_sent": int(matrix.sum(axis=1).max()),
        "most_received": int(matrix.sum(axis=0).max()),
    }
    lines = [
        f"{options.model}, {options.old} to {options.new}",
        f"  moved        {rounded_size(found.bytes)} of {rounded_size(found.needed)} that the new ranks hold",
        f"  bound        {rounded_size(found.bound)}: what they do not hold already, wherever new ranks are placed",
        f"  a rank sends {rounded_size(told['most_sent'])} at most, and receives {rounded_size(told['most_received'])}",
    ]
    moved = [f"{new} on {old}" for new, old in enumerate(found.place) if new != old]
    if moved:
        lines.append(f"  new ranks    {', '.join(moved)}; the others stay")
    if options.on:
        from syntony.topologies.parse import parse

        told |= _timed(parse(options.on), found)
        lines.append(f"  on {options.on}: {told['seconds'] * 1e3:.4g} ms by {told['engine']}; "
                     f"at least {told['bound_seconds'] * 1e3:.4g} ms")  # fmt: skip
    tell(options, told, lines)
    return 0


def _lost(text: str, ranks: int) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not (part.isascii() and part.isdecimal() and len(part) < 7):
            raise UserError(f"--lost {text}: {part!r} is not a rank; write such as 6,7")
        if int(part) >= ranks:
            raise UserError(f"--lost {text}: there is no rank {int(part)}; --old has ranks 0..{ranks - 1}")
    return [int(part) for part in parts]


def _timed(topology: Topology, found: Reshard) -> dict[str, Any]:
    """The exchange as an all_to_all of unequal blocks: in stages among boxes (engine `fast`), or all at once."""
    import numpy as np

    from syntony.synth.engines.fast.stage_plan import bound_seconds, check, messages_of, stage_plan
    from syntony.synth.model.collective import Collective
    from syntony.synth.symmetry.levels import LevelsError, levels_of
    from syntony.synth.traffic.choice import Choice
    from syntony.synth.traffic.job import Job
    from syntony.synth.traffic.messages import Messages
    from syntony.synth.traffic.run import run
    from syntony.topologies.hosts import hosts_of

    size, ranks = len(found.matrix), topology.ranks
    if size > ranks:
        raise UserError(f"the layouts have {size} ranks, but {topology.name} has {ranks}")
    matrix = np.zeros((ranks, ranks), np.int64)
    matrix[:size, :size] = found.matrix
    src, dst = np.nonzero(matrix)
    tried = {"one exchange": Messages.make(ranks, src, dst, matrix[src, dst].astype(float))}
    try:
        plan = stage_plan(levels_of(topology, Collective.make("all_to_all", ranks)).joined(), matrix)
        check(plan, matrix)
        tried["engine fast"] = messages_of(plan)
    except LevelsError:
        pass  # without boxes there are no stages
    members = tuple(range(ranks))
    took = {
        name: run(topology, [Job("reshard", members, messages)], Choice("spray")).seconds
        for name, messages in tried.items()
        if len(messages)
    }
    least = float(bound_seconds(topology, tuple(hosts_of(topology)), matrix))
    if not took:
        return {"seconds": 0.0, "engine": "nobody", "bound_seconds": least}
    engine = min(took, key=lambda name: took[name])
    return {"seconds": took[engine], "engine": engine, "bound_seconds": least}


COMMAND = Command(
    ("overlap", "reshard"),
    "show which bytes move when a job changes its layout",
    "syntony overlap reshard --model gpt3-6.7b --old dp=8,zero=3 --new dp=6,zero=3 --on dgx-a100:1",
    configure,
    run,
)
