"""MpiBootstrap under a real mpiexec; skipped where mpi4py, the MPI library or its launcher is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from syntony import MpiBootstrap
from syntony.base.command import UserError
from syntony.collectives.bootstrap import bootstraps

ROOT = Path(__file__).parents[3]


def launcher() -> str:
    """mpiexec of this environment or of the PATH."""
    here = str(Path(sys.executable).parent)
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([here, os.environ.get("PATH", "")]))
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    return mpiexec


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    merged = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run(command, cwd=ROOT, env=merged, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_meet_under_mpiexec(ranks: int) -> None:
    mpiexec = launcher()
    probe = run(sys.executable, "-c", "from mpi4py import MPI")
    if probe.returncode:
        pytest.skip(f"mpi4py does not load: {probe.stderr.strip().splitlines()[-1]}")
    # Open MPI wants to hear that more ranks than cores, and root in a container, are meant; others do not listen.
    meant = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    meant["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    done = run(mpiexec, "-n", str(ranks), sys.executable, str(Path(__file__).with_name("mpi_script.py")), **meant)
    assert done.returncode == 0, done.stderr
    assert f"{ranks} ranks met by MPI" in done.stdout


def test_without_mpi4py_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(UserError, match="MpiBootstrap needs mpi4py and the MPI library that started the ranks: "):
        MpiBootstrap()


def test_mpi4py_without_an_mpi_library_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "MPI.py").write_text('raise RuntimeError("cannot load MPI library\\nlibmpi.so.12: no such file")')
    for name in [name for name in sys.modules if name.partition(".")[0] == "mpi4py"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"that started the ranks: cannot load MPI library$"):
        MpiBootstrap()
    for name in [name for name in sys.modules if name.partition(".")[0] == "mpi4py"]:
        monkeypatch.delitem(sys.modules, name)


class Slow:
    """Stands in for an MPI communicator whose other ranks come late."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def Get_rank(self) -> int:  # noqa: N802
        return 2

    def Get_size(self) -> int:  # noqa: N802
        return 4

    def allgather(self, blob: bytes) -> list[bytes]:
        time.sleep(self._seconds)
        return [blob] * 4


def test_who_waits_long_over_mpi_says_so(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bootstraps, "LONG", 0.2)
    assert MpiBootstrap(cast("Any", Slow(0.0))).all_gather("hosts", b"a") == [b"a"] * 4
    assert capfd.readouterr().err == ""
    assert MpiBootstrap(cast("Any", Slow(1.0))).all_gather("hosts", b"a") == [b"a"] * 4
    assert capfd.readouterr().err == "syntony: rank 2 of 4 has waited 0.2 s for other ranks in 'hosts', over MPI\n"
