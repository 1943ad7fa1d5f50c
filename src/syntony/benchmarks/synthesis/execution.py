"""Schedules of the tables, run on local processes and compared with the reference, bit for bit.

`syntony bench` does it: it proves the file, lowers it, starts a process per rank and checks every result. Integers, so
that any order of adding gives the same bits; a size that the ranks and chunks do not divide, so that pieces are uneven.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from syntony.synth.formats import schedule_file
from syntony.synth.model.schedule import Schedule

MOST_RANKS = 16
"""Larger schedules are not run on this machine."""
SIZE = 100_000
"""Bytes."""


class WrongResultError(AssertionError):
    """A schedule that the checker proved, and whose results were wrong all the same."""


def execute(schedule: Schedule) -> bool:
    """Whether it was run: up to MOST_RANKS ranks, and where no switch takes part. Raises WrongResultError."""
    collective = schedule.collective
    if collective.ranks > MOST_RANKS or schedule.in_network:
        return False
    with TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.json"
        schedule_file.write(schedule, path)
        command = [sys.executable, "-m", "syntony", "bench", collective.kind, "--schedule", str(path)]
        command += ["--root", str(collective.root)] if collective.rooted else []
        command += ["--ranks", str(collective.ranks), "-b", str(SIZE), "-d", "int32", "-n", "1", "-w", "0", "-c", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WrongResultError(f"{collective.kind} on {schedule.topology.name}: {done.stderr or done.stdout}")
    return True
