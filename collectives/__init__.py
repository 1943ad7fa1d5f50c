"""What users import: the Communicator, its bootstraps, and (through torch) the "syntony" backend.

    from collectives import Communicator, TcpBootstrap

    with Communicator.create(TcpBootstrap.from_environment()) as group:
        group.all_reduce(array)

Names are loaded when they are first used: `import torch` imports this package for its entry point (autoload.py).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collectives.aggregation import InNetwork
    from collectives.bootstrap import LocalBootstrap, MpiBootstrap, StoreBootstrap
    from collectives.buffers import UsageError, empty
    from collectives.communicator import Communicator
    from collectives.recorder import counters, dump
    from collectives.tcp_bootstrap import TcpBootstrap
    from collectives.verbs import Work
    from csrc._core import CommunicationError

_HOMES = {
    "Communicator": "collectives.communicator",
    "Work": "collectives.verbs",
    "CommunicationError": "csrc._core",
    "InNetwork": "collectives.aggregation",
    "UsageError": "collectives.buffers",
    "empty": "collectives.buffers",
    "counters": "collectives.recorder",
    "dump": "collectives.recorder",
    "TcpBootstrap": "collectives.tcp_bootstrap",
    "StoreBootstrap": "collectives.bootstrap",
    "MpiBootstrap": "collectives.bootstrap",
    "LocalBootstrap": "collectives.bootstrap",
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
        raise AttributeError(f"module 'collectives' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
