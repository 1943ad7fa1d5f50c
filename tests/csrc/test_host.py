"""What the core finds out about its machine, and systems that are stricter than usual."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from syntony import _core

ROOT = Path(__file__).parents[2]
CPUS = len(os.sched_getaffinity(0))


def machine(root: Path, membership: str, files: dict[str, str]) -> str:
    """A root with one process's control groups."""
    for name, text in {"proc/self/cgroup": membership, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("", {}, CPUS),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, CPUS),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "100000 100000\n"}, 1),
        ("0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": "50000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, 1),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "20000 100000\n"}, 1),  # a container's own view
        ("0::/a\n", {"sys/fs/cgroup/a/cpu.max": f"{(CPUS + 7) * 100000} 100000\n"}, CPUS),
        (
            "3:cpuset:/x\n2:cpu,cpuacct:/a\n0::/\n",
            {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "100000\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n"},
            1,
        ),
        (
            "2:cpu:/a\n",
            {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n"},
            CPUS,
        ),
    ],
)
def test_quotas_of_control_groups_bound_the_cpus(
    membership: str, files: dict[str, str], cpus: int, tmp_path: Path
) -> None:
    assert _core.usable_cpus(machine(tmp_path, membership, files)) == cpus


STRICT = """
from pathlib import Path
Path("/proc/sys/vm/memfd_noexec").write_text("2")
import numpy as np
from syntony import _core
from tests.csrc.runtime.harness import Rank, run_as_threads
_core.allocate(4096)
def body(rank: Rank) -> None:
    group = rank.join()
    group.all_reduce(np.ones(4))
    group.shutdown()
run_as_threads(body, 2)
print("works")
"""


def test_where_no_memory_file_may_be_executable() -> None:
    """vm.memfd_noexec=2, which a namespace of pids has for itself."""
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    if os.geteuid() != 0:
        command.append("--map-root-user")
    probe = subprocess.run(
        [*command, "sh", "-c", "echo 2 > /proc/sys/vm/memfd_noexec"], capture_output=True, text=True, timeout=30
    )
    if probe.returncode != 0:
        pytest.skip(f"this system does not let itself be made strict: {probe.stderr}")
    done = subprocess.run(
        [*command, sys.executable, "-c", STRICT], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "works\n", done.stderr
