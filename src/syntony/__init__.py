"""The front door: the `syntony` command, and the few names people import.

    import syntony
    box = syntony.parse("dgx1")
    comm = syntony.Communicator.create()

Names are looked up when first used, so importing this package loads no room.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syntony.collectives import Communicator
    from syntony.synth.dsl import algorithm
    from syntony.synth.model.collective import Collective
    from syntony.synth.model.program import Program
    from syntony.synth.model.schedule import Schedule
    from syntony.topologies import Topology, parse

__all__ = ["Collective", "Communicator", "Program", "Schedule", "Topology", "__version__", "algorithm", "parse"]

_HOMES = {
    "Collective": "syntony.synth.model.collective",
    "Communicator": "syntony.collectives",
    "Program": "syntony.synth.model.program",
    "Schedule": "syntony.synth.model.schedule",
    "Topology": "syntony.topologies",
    "algorithm": "syntony.synth.dsl",
    "parse": "syntony.topologies",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        try:
            return version("syntony")
        except PackageNotFoundError:
            return "not installed"
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'syntony' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
