"""Translates what `srun` sets for each task of its step into the variables of other launchers."""

from __future__ import annotations

import os
import re

_FIRST_PORT, _PORTS = 20_000, 12_000  # below the ephemeral ports (Linux: from 32768)


def slurm_step() -> dict[str, str]:
    """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from srun's variables; {} if this process is not one of several
    tasks of a step.

    Task 0 runs on the first of the step's nodes. The port is derived from the job and step ids, so that steps on one
    node meet at different ports.
    """
    environment = os.environ
    tasks, nodes = environment.get("SLURM_STEP_NUM_TASKS", ""), environment.get("SLURM_STEP_NODELIST", "")
    if "SLURM_PROCID" not in environment or not nodes or not tasks.isdecimal() or int(tasks) < 2:
        return {}
    job, step = (int(environment.get(name, "0")) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": tasks,
        "MASTER_ADDR": _first(nodes),
        "MASTER_PORT": str(_FIRST_PORT + (job + 997 * step) % _PORTS),
    }


def _first(nodes: str) -> str:
    """The first node of a Slurm node list: node03 of "node[03-05,07],login1"."""
    found = re.match(r"(?:\[[^\]]*\]|[^,\[])+", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", found.group() if found else nodes)
