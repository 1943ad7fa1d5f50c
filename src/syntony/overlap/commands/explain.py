"""`syntony overlap explain`: why communication is not hidden."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.arguments import count
from syntony.base.command import Command
from syntony.overlap.commands.problem import THIN, add_problem, plan_of, problem

if TYPE_CHECKING:
    from syntony.overlap.step.cost import Cost
    from syntony.overlap.step.graph import Graph
    from syntony.overlap.step.plan import Plan


def _configure(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument(
        "--top", type=count, default=5, metavar="N", help="number of ops and groups of ops shown (default 5)"
    )


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.overlap.predict.explain import Making, describe, explain, report
    from syntony.overlap.predict.simulation import simulate

    with progress("explaining"):
        asked = problem(options)
        plan = plan_of(asked, options.policy)

        def again(step: Graph, cost: Cost) -> Plan:
            return plan_of(replace(asked, graph=step, cost=cost), options.policy)

        # A plan read from a file does not say how it was made.
        made = None if plan is asked.plan else Making(asked.graph, again)
        found = explain(simulate(plan, asked.cost), options.top, made)
    differs = [plan.graph.differs] if plan.graph.differs else []
    lines = [f"{asked.title}: {plan.policy}", *differs, *describe(found)]
    tell(options, {"title": asked.title, "policy": plan.policy, **report(found)}, lines)
    return 0


COMMAND = Command(
    ("overlap", "explain"),
    "explain whether communication overlaps computation, and if not, why",
    f"syntony overlap explain {THIN} --policy ddp",
    _configure,
    _run,
)
