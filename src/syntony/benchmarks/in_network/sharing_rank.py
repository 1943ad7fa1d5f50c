"""What every rank of `sharing` does: `python -m syntony.benchmarks.in_network.sharing_rank OUT SIZE` under the lab."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from syntony.benchmarks.in_network.rank import Session, numbers
from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap


def main(arguments: Sequence[str]) -> int:
    """One job alone, then two at once: seconds, and packets that the switch had no slot for, to OUT on rank 0."""
    out, size = Path(arguments[0]), int(arguments[1])
    with TcpBootstrap.from_environment() as bootstrap:
        session = Session(bootstrap)
        elements = size // 4
        mine, result = numbers(session.rank, elements), np.empty(elements, np.float32)
        seconds = session.median(lambda: session.jobs[0].all_reduce(mine, result))
        if not np.array_equal(result, session.in_rank_order(elements)):
            raise AssertionError(f"{size} bytes through the switch: not the float32 sum in rank order")
        alone = sum(job.passed_on for job in session.jobs)
        both = session.tenants(size)["seconds"]
        found = {
            "alone": {"seconds": seconds, "passed_on": alone},
            "both": {"seconds": both, "passed_on": sum(job.passed_on for job in session.jobs) - alone},
        }
        if bootstrap.rank == 0:
            out.write_text(json.dumps(found), encoding="utf-8")
        session.ring.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
