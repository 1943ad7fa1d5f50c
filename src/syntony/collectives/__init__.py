"""What users import: the Communicator, its bootstraps, and (through torch) the "syntony" backend.

    from syntony.collectives import Communicator, TcpBootstrap

    with Communicator.create(TcpBootstrap.from_environment()) as group:
        group.all_reduce(array)

Names are loaded when they are first used: `import torch` imports this package for its entry point (autoload.py).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syntony._core import CommunicationError
    from syntony.collectives.aggregation import InNetwork
    from syntony.collectives.bootstrap.bootstraps import LocalBootstrap, MpiBootstrap, StoreBootstrap
    from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
    from syntony.collectives.buffers import UsageError, empty
    from syntony.collectives.communicator import Communicator
    from syntony.collectives.recorder.records import counters, dump
    from syntony.collectives.verbs import Work

_HOMES = {
    "Communicator": "syntony.collectives.communicator",
    "Work": "syntony.collectives.verbs",
    "CommunicationError": "syntony._core",
    "InNetwork": "syntony.collectives.aggregation",
    "UsageError": "syntony.collectives.buffers",
    "empty": "syntony.collectives.buffers",
    "counters": "syntony.collectives.recorder.records",
    "dump": "syntony.collectives.recorder.records",
    "TcpBootstrap": "syntony.collectives.bootstrap.tcp_bootstrap",
    "StoreBootstrap": "syntony.collectives.bootstrap.bootstraps",
    "MpiBootstrap": "syntony.collectives.bootstrap.bootstraps",
    "LocalBootstrap": "syntony.collectives.bootstrap.bootstraps",
}

__all__ = [
    "CommunicationError",
    "Communicator",
    "InNetwork",
    "LocalBootstrap",
    "MpiBootstrap",
    "StoreBootstrap",
    "TcpBootstrap",
    "UsageError",
    "Work",
    "counters",
    "dump",
    "empty",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'syntony.collectives' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
