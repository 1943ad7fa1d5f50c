"""`syntony overlap search`: tunes policies and their knobs for the best plan."""

from __future__ import annotations

import argparse
from time import process_time

from syntony.base.answer import tell
from syntony.base.arguments import count, seconds
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.overlap.commands.predicted import policy_table, row_of
from syntony.overlap.commands.problem import THIN, add_problem, problem


def _configure(parser: argparse.ArgumentParser) -> None:
    add_problem(parser, policy=False)
    parser.add_argument("--method", metavar="M,..", help="grid, bayes, mcmc, dp (default: all)")
    parser.add_argument(
        "--seconds", type=seconds, default=10.0, metavar="S", help="time limit, on one core (default 10)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (default 0)")
    parser.add_argument("--top", type=count, default=5, metavar="N", help="number of plans shown (default 5)")
    add_output(parser, "-o", "--output", type=str, metavar="F.json", help="write the best plan")


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.overlap.policies.search import METHODS, search
    from syntony.overlap.predict.simulation import simulate

    asked = problem(options)
    methods = tuple(options.method.split(",")) if options.method else METHODS
    with progress("searching"):
        left = max(1.0, 0.9 * options.seconds - process_time())  # reading took some time, and reporting will
        found = search(asked.graph, asked.cost, left, methods, options.seed)
    if not found.candidates:
        raise UserError(f"no policy can plan {asked.title}: {next(iter(found.refused.values()), 'there is none')}")
    best = found.candidates[: options.top]
    if options.output:
        best[0].plan.write(options.output)
    rows = [{"policy": one.maker, **row_of(simulate(one.plan, asked.cost))} for one in best]
    lines = [f"{asked.title}: {found.tried} plans simulated, the best (predicted)", *policy_table(rows)]
    if found.small:
        lines += [
            f"  looked for in a step of {found.small} ops with fewer, heavier layers; those shown are of all layers"
        ]
    lines += [wrote(options.output, "the best plan")] if options.output else []
    tell(options, {"title": asked.title, "plans": rows, "tried": found.tried, "file": options.output}, lines)
    return 0


COMMAND = Command(
    ("overlap", "search"),
    "search policies and their settings for the best plan",
    f"syntony overlap search {THIN} --seconds 5 -o best.json",
    _configure,
    _run,
)
