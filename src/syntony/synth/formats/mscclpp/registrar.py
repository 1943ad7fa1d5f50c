"""Writes the script that MSCCL++ 0.9 needs beside plans: it registers them and selects when each is used.

MSCCL++ itself loads only four fixed names from $MSCCLPP_CACHE_DIR/default, for all_reduce on 2 or 4 hosts of 8 GPUs.
Any other plan must be given to its AlgorithmCollectionBuilder before the first communicator is made, with a selector
that names the algorithm of each request. If the selector has no answer, MSCCL++ uses its own choice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from syntony.synth.formats.assembly import COLLECTIVES
from syntony.synth.formats.export_options import ExportOptions
from syntony.synth.formats.mscclpp.export import mscclpp_text
from syntony.synth.model.program import Program

_NAMES = {kind: name for name, kind in COLLECTIVES.items()}
SCRIPT = "register_plans.py"


@dataclass(frozen=True)
class RegisteredPlan:
    """A plan in the script: its file, its name in MSCCL++, and the requests that it serves (bytes)."""

    file: str
    name: str
    collective: str
    world_size: int
    least: int
    most: int
    in_place: bool


def plan_text(program: Program, file: str, options: ExportOptions) -> tuple[str, RegisteredPlan]:
    """The plan, and its row of the script. Raises TargetError if MSCCL++ cannot take the Program."""
    name = f"syntony_{file.removesuffix('.json').replace('-', '_')}"
    named = program.replace(name=name)
    text = mscclpp_text(named, options)
    place = options.place(program)
    row = RegisteredPlan(
        file, name, _NAMES[program.collective], program.ranks, options.min_bytes, options.max_bytes, place
    )
    return text, row


def script_text(plans: list[RegisteredPlan], ranks_per_node: int) -> str:
    """The script: `register_plans.register(rank)`, before the first communicator."""
    rows = (
        json.dumps([asdict(plan) for plan in plans], indent=4).replace(": true", ": True").replace(": false", ": False")
    )
    return f'''"""Registers plans that Syntony wrote with MSCCL++ 0.9. Before the first communicator:

    import register_plans
    register_plans.register(rank)

Then run with LD_PRELOAD=libmscclpp_nccl.so and MSCCLPP_NCCL_LIB_PATH=/path/to/libnccl.so, which serves the rest.
"""

from pathlib import Path

import mscclpp
import mscclpp.ext

RANKS_PER_NODE = {ranks_per_node}
PLANS = {rows}


def register(rank):
    """Gives all plans to MSCCL++, for this rank."""
    builder = mscclpp.ext.AlgorithmCollectionBuilder()
    for plan in PLANS:
        path = str(Path(__file__).with_name(plan["file"]))
        builder.add_algorithm_builder(
            mscclpp.Algorithm(
                id=plan["name"],
                execution_plan=mscclpp.ExecutionPlan(path, rank),
                constraint=mscclpp.Algorithm.Constraint(plan["world_size"], RANKS_PER_NODE),
            )
        )
    builder.set_algorithm_selector(select)


def select(algorithms, request):
    """The plan of a request, or None, which leaves it to MSCCL++ or NCCL."""
    in_place = request.input_buffer == request.output_buffer
    for plan in PLANS:
        if (
            request.collective == plan["collective"]
            and request.world_size == plan["world_size"]
            and request.n_ranks_per_node == RANKS_PER_NODE
            and plan["least"] <= request.message_size <= plan["most"]
            and in_place == plan["in_place"]
        ):
            return algorithms.get(plan["collective"], {{}}).get(plan["name"])
    return None
'''
