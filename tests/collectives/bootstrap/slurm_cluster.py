"""A Slurm cluster of this one host: its two daemons with a configuration of their own, for as long as a test runs.

Nothing of the host's own Slurm, if it has one, is read or changed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "srun", "sinfo")
PATIENCE = 30.0  # seconds until the node is idle


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _configuration(folder: Path) -> str:
    node = socket.gethostname().split(".")[0]
    return f"""
ClusterName=tests
SlurmctldHost={node}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmUser=root
SlurmdUser=root
SlurmctldPort={_free_port()}
SlurmdPort={_free_port()}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
NodeName={node} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Yields the environment in which `srun` uses it: one node, four tasks at once. Skips where it cannot start."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"Slurm is not installed: no {missing[0]} (Debian: slurmctld, slurmd, slurm-client)")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    for name in ("state", "spool", "cgroup"):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(_configuration(folder))
    (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/cgroup\n")
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    daemons = []
    try:
        for program in ("slurmctld", "slurmd"):
            with (folder / f"{program}.log").open("w") as log:
                daemons.append(subprocess.Popen([program, "-D"], env=environment, stdout=log, stderr=log))
        _await_node(folder, environment, daemons)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(timeout=PATIENCE)


def _await_node(folder: Path, environment: dict[str, str], daemons: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and all(daemon.poll() is None for daemon in daemons):
        asked = ["sinfo", "--noheader", "--format=%t"]
        told = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
        if told.stdout.strip() == "idle":
            return
        time.sleep(0.1)
    logs = "\n".join((folder / f"{program}.log").read_text()[-1500:] for program in ("slurmctld", "slurmd"))
    pytest.skip(f"Slurm does not start here:\n{logs}")
