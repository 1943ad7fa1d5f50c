"""The host that a graph file describes, from the name of a topology."""

from __future__ import annotations

from pathlib import Path

from syntony.synth.nccl.channels import Host
from syntony.synth.nccl.machine.machine_file import is_topology_file, read_machine
from syntony.synth.nccl.machine.machine_of import machine_of
from syntony.topologies.parse import parse

_FILE = "file:"


def host_named(name: str, *, across: bool = False) -> Host:
    """The host of a named topology; `across` is also set if the topology itself has several hosts.

    NCCL's own topology files are read with NCCL's rates. Raises UserError.
    """
    path = Path(name.removeprefix(_FILE))
    if name.startswith(_FILE) and is_topology_file(path):
        return Host(read_machine(path), across=across)
    machine, several = machine_of(parse(name))
    return Host(machine, across=across or several)
