"""Each launcher that is installed here starts four ranks on two hosts by name; one dies, and the others name it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from syntony.benchmarks.mpi.libraries import LIBRARIES
from tests.collectives.bootstrap.slurm_cluster import slurm
from tests.collectives.running import torchrun

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("launched_script.py")
# Survivors are to speak before the launcher ends them.
KEEP = {
    "impi": ("-disable-auto-cleanup",),
    "mpich": ("-disable-auto-cleanup",),
    "openmpi": ("--continuous",),
    "ray": (),
    "srun": ("--kill-on-bad-exit=0",),
    "torchrun": (),
}


def started(launcher: str, folder: Path) -> subprocess.CompletedProcess[str]:
    if launcher == "torchrun":
        if find_spec("torch") is None:
            pytest.skip("torch is not installed")
        return torchrun(4, SCRIPT, folder)
    if launcher == "ray":
        if find_spec("ray") is None:
            pytest.skip("ray is not installed")
        environment = os.environ | {"SYNTONY_SECRET": "sesame", "RAY_USAGE_STATS_ENABLED": "0"}
        return ran([sys.executable, str(SCRIPT.with_name("ray_tasks.py")), str(folder)], environment)
    if launcher == "srun":
        with slurm(folder / "slurm") as environment:
            return ran(["srun", *KEEP[launcher], "-n", "4", sys.executable, str(SCRIPT), str(folder)], environment)
    library = LIBRARIES[launcher]
    if not library.installed:
        pytest.skip(f"{launcher} is not installed (benchmarks/mpi/libraries.py says how)")
    rank: tuple[str, ...] = (sys.executable, str(SCRIPT), str(folder))
    if launcher == "mpich":  # 5.0 may kill the others all the same: a shell stands between, as a host's agent would
        rank = ("sh", "-c", 'trap "" USR1; "$@"; true', "sh", *rank)
    words = library.command(4, rank)
    return ran([words[0], *KEEP[launcher], *words[1:]], library.environment(4))


def ran(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("launcher", KEEP)
def test_ranks_meet_and_a_death_is_named(launcher: str, tmp_path: Path) -> None:
    done = started(launcher, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("met *")) == [f"met {rank}" for rank in range(4)], done.stderr
    for rank in (0, 1, 3):
        told = tmp_path / f"told {rank}"
        assert told.exists(), done.stdout + done.stderr
        assert re.search(r"rank 2 \(process \d+ on host1\) died during all_reduce", told.read_text()), told.read_text()


def test_the_manifest_for_kubernetes_is_what_the_page_says() -> None:
    """Its numbers and names fit together; its form is Kubernetes' own where kubernetes-validate is installed."""
    yaml = pytest.importorskip("yaml")
    page = (ROOT / "docs" / "launchers.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    service, job = yaml.safe_load_all(text)
    spec = job["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    values = {one["name"]: one.get("value") for one in container["env"]}
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(values["WORLD_SIZE"])
    assert values["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert pod["subdomain"] == service["metadata"]["name"]
    if find_spec("kubernetes_validate") is not None:
        import kubernetes_validate

        for document in (service, job):
            kubernetes_validate.validate(document, "1.31", strict=True)
