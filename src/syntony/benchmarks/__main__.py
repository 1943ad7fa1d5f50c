"""`python -m syntony.benchmarks ROOM TABLE [options]`: prints a table while it is measured.

Exit code 1: a goal was missed or a rank failed; 2: it could not be measured. A new table is a file with
`TABLE = Table(..)`, and an entry in `ROOMS`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from syntony.base.command import UserError
from syntony.base.stopping import Stopped, stopping_by_signals
from syntony.benchmarks.tables import Table, show
from syntony.collectives.bootstrap.launch import RankError


@dataclass(frozen=True)
class Room:
    """The tables of one subject. `modules`: their modules, by name."""

    about: str
    modules: dict[str, str]

    def tables(self) -> list[Table]:
        """Imports all of them."""
        return [import_module(f"syntony.benchmarks.{module}").TABLE for module in self.modules.values()]


_IN_OTHER_MODULES = {
    "import": "imports", "dp": "data_parallel", "zero": "sharded", "tp": "tensor_parallel", "ep": "expert_parallel",
    "pp": "pipeline", "traffic": "counting", "search": "searching", "prediction": "predicting", "explain": "explaining",
    "irregular": "irregular.over_bounds", "contest": "irregular.contest",
    "bounds": "speed.bounds", "simulator": "speed.simulator", "topologies": "speed.topologies",
    "bfb": "systems.bfb", "blink": "systems.blink", "fast": "systems.fast", "flexlink": "systems.flexlink",
    "hire": "systems.hire", "nimble": "systems.nimble", "pccl": "systems.pccl", "sccl": "systems.sccl",
    "syccl": "systems.syccl", "teccl": "systems.teccl", "tori": "systems.tori",
    "r2ccl": "systems.r2ccl",
}  # fmt: skip


def _room(about: str, folder: str, names: str) -> Room:
    return Room(about, {name: f"{folder}.{_IN_OTHER_MODULES.get(name, name)}" for name in names.split()})


ROOMS = {
    "synthesis": _room(
        "what the synthesizer reaches",
        "synthesis",
        "sccl forest allreduce alltoall teccl bfb blink scale syccl tori flexlink nimble pccl r2ccl hire repair "
        "broken hierarchy irregular contest placement fast stragglers bounds simulator topologies",
    ),
    "runtime": _room(
        "what the runtime reaches",
        "runtime",
        "anatomy choices gloo mpi latency limit kill mismatch soak import meeting priority hosts wire "
        "transports decode over",
    ),
    "overlap": _room(
        "what overlap reaches",
        "overlap",
        "dp grid zero tp ep pp bitwise traffic memory context islands long elastic policies search prediction explain",
    ),
    "view": _room("pages in a real browser", "view", "pages"),
    "cuda": _room("Programs on GPUs", "cuda", "one_gpu"),
    "lab": Room(
        "emulated networks (as root)",
        {
            "sim_vs_lab": "sim_vs_lab.table",
            "irregular": "sim_vs_lab.synthesized",
            "stragglers": "sim_vs_lab.stragglers",
            "slow_wire": "sim_vs_lab.slow_wire",
            "rails": "sim_vs_lab.rails",
            "in_network": "in_network.table",
            "training": "in_network.training",
            "sharing": "in_network.sharing",
        },
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the requested table."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m syntony.benchmarks", description="Tables that are measured anew.")
    rooms = parser.add_subparsers(dest="room", required=True, metavar="ROOM")
    tables: dict[str, Table] = {}
    for name, room in ROOMS.items():
        chosen = rooms.add_parser(name, help=f"{room.about}: {', '.join(room.modules)}", description=room.about)
        if words[:1] == [name]:  # other tables are not imported
            tables = {table.name: table for table in room.tables()}
            choices = chosen.add_subparsers(dest="table", required=True, metavar="TABLE")
            for table in tables.values():
                own = choices.add_parser(table.name, help=table.summary, description=table.summary)
                table.configure(own)
                if table.document is not None:
                    own.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    options = parser.parse_args(words)
    try:
        with stopping_by_signals():
            return 0 if _shown(tables[options.table], options) else 1
    except Stopped as stopped:
        return stopped.code
    except (UserError, RankError) as error:
        print(f"syntony.benchmarks {options.room} {options.table}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1


def _shown(table: Table, options: argparse.Namespace) -> bool:
    if table.document is None or not options.json:
        return show(table.parts(options))
    document, good = table.document(options)
    print(json.dumps(document, indent=2))
    return good


if __name__ == "__main__":
    sys.exit(main())
