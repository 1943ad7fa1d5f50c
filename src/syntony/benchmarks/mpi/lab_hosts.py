"""MPI between the hosts of a lab. mpiexec believes that it reaches the others by ssh; it gets a shell of ours instead.

    host 0                         host 1
    mpiexec ── shell ADDRESS ..──▶ its namespace, with a hostname of its own: libraries compare those ──▶ rank 1
       └─▶ rank 0

One rank per host.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from syntony.lab.lab import Lab
from syntony.lab.wires import kernel

_LINK_LOCAL = "169.254.0.0/16"


@dataclass(frozen=True)
class LabHosts:
    """`addresses` of the hosts, rank 0's first; `shell`: a program to be called as ssh is."""

    addresses: tuple[str, ...]
    shell: str


def open_hosts(lab: Lab, folder: Path) -> LabHosts:
    """Writes the shell into `folder`, and lets the hosts reach each other by any of their addresses.

    The latter as Intel MPI dials the address of the wire's end, not the host's. For hosts with one wire each.
    """
    addresses = tuple(host.ports[0].address for host in lab.spec.hosts)
    cases = []
    for host, address in zip(lab.spec.hosts, addresses, strict=True):
        namespace = lab.namespace(host.name)
        ((wire, _, far),) = lab.spec.wires_of(host.id)
        kernel.ip(namespace, [f"route add {_LINK_LOCAL} via {far.link_address} dev {wire.name}"])
        cases.append(f"{address}) network={shlex.quote(namespace)} name={host.name} ;;")
    shell = folder / "shell"
    shell.write_text(
        "\n".join(
            (
                "#!/bin/sh",
                'while case "$1" in -*) true ;; *) false ;; esac; do shift; done',
                'case "$1" in',
                *cases,
                '*) echo "there is no host $1" >&2; exit 1 ;;',
                "esac",
                "shift",
                'exec nsenter --net=/run/netns/$network unshare --uts sh -c "hostname $name; $*"',
                "",
            )
        )
    )
    shell.chmod(0o700)
    return LabHosts(addresses, str(shell))
