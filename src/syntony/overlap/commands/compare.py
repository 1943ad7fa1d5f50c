"""`syntony overlap compare`: policies side by side, predicted."""

from __future__ import annotations

import argparse

from syntony.base.answer import tell
from syntony.base.command import Command, UserError
from syntony.overlap.commands.predicted import policy_table, row_of
from syntony.overlap.commands.problem import THIN, add_problem, problem


def _configure(parser: argparse.ArgumentParser) -> None:
    add_problem(parser, policy=False)
    parser.add_argument(
        "--policies", metavar="A,B+C,..", help="policies to compare (default: all that can plan this step)"
    )


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.overlap.policies.search import chain_of, planned
    from syntony.overlap.policies.table import POLICIES
    from syntony.overlap.predict.simulation import simulate

    asked = problem(options)
    named = split_policies(options.policies) if options.policies else list(POLICIES)
    rows, refused = [], {}
    with progress("planning by each policy") as done:
        for number, name in enumerate(named):
            done(number / len(named))
            try:
                timeline = simulate(planned(chain_of(name), asked.graph, asked.cost), asked.cost)
            except UserError as error:
                if options.policies:
                    raise
                refused[name] = str(error)
                continue
            rows.append({"policy": name, **row_of(timeline)})
    rows.sort(key=lambda row: row["seconds"])
    lines = [f"{asked.title} (predicted)", *policy_table(rows)]
    lines += [f"not for this step: {', '.join(refused)}"] if refused else []
    lines += [asked.graph.differs] if asked.graph.differs else []
    tell(options, {"title": asked.title, "policies": rows, "refused": refused}, lines)
    return 0


def split_policies(text: str) -> list[str]:
    """Splits at commas between policies; after a comma between knobs follows `name=`."""
    found: list[str] = []
    for part in text.split(","):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


COMMAND = Command(
    ("overlap", "compare"),
    "compare the predicted steps of policies",
    f"syntony overlap compare {THIN} --policies fifo,ddp,dear,bytescheduler",
    _configure,
    _run,
)
