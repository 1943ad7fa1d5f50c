"""The public names. Everything else is in the subpackages.

    import syntony

    box = syntony.topology("dgx1")
    schedule = syntony.synthesize(box, "all_gather", size="64M")
    print(syntony.simulate(schedule, "64M").algbw)

    with syntony.Communicator.create(syntony.TcpBootstrap.from_environment()) as group:
        group.all_reduce(array)

Names are loaded on first use, so importing this package loads none of its subpackages, nor numpy or torch.
(The exception is `base.notebook`, which is loaded and told how to render objects in notebooks.)
"""

from typing import TYPE_CHECKING

from syntony.base.notebook import show_with

if TYPE_CHECKING:
    from syntony._core import CommunicationError
    from syntony.api import bound, simulate, synthesize, verify
    from syntony.base.command import UserError
    from syntony.collectives.aggregation import InNetwork
    from syntony.collectives.bootstrap.bootstraps import LocalBootstrap, MpiBootstrap, StoreBootstrap
    from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
    from syntony.collectives.buffers import UsageError, empty
    from syntony.collectives.communicator import Communicator
    from syntony.collectives.hot_rows import HotRows
    from syntony.collectives.p2p.over import over
    from syntony.collectives.recorder.records import counters, dump
    from syntony.collectives.torch_backend.backend import shrink_group
    from syntony.collectives.torch_backend.debug_handlers import debug_handlers
    from syntony.collectives.torch_backend.replace import replace
    from syntony.collectives.verbs import Work
    from syntony.synth.dsl.decorator import algorithm
    from syntony.synth.formats.loading import load
    from syntony.synth.model.collective import Collective
    from syntony.synth.model.program import Program
    from syntony.synth.model.schedule import Schedule
    from syntony.topologies.parse import parse as topology
    from syntony.topologies.topology import Topology
    from syntony.view.notebook import show

    __version__: str

__all__ = [
    "Collective",
    "CommunicationError",
    "Communicator",
    "HotRows",
    "InNetwork",
    "LocalBootstrap",
    "MpiBootstrap",
    "Program",
    "Schedule",
    "StoreBootstrap",
    "TcpBootstrap",
    "Topology",
    "UsageError",
    "UserError",
    "Work",
    "__version__",
    "algorithm",
    "bound",
    "counters",
    "debug_handlers",
    "dump",
    "empty",
    "load",
    "over",
    "replace",
    "show",
    "shrink_group",
    "simulate",
    "synthesize",
    "topology",
    "verify",
]

_HOMES = {
    "Collective": "synth.model.collective",
    "CommunicationError": "_core",
    "Communicator": "collectives.communicator",
    "HotRows": "collectives.hot_rows",
    "InNetwork": "collectives.aggregation",
    "LocalBootstrap": "collectives.bootstrap.bootstraps",
    "MpiBootstrap": "collectives.bootstrap.bootstraps",
    "Program": "synth.model.program",
    "Schedule": "synth.model.schedule",
    "StoreBootstrap": "collectives.bootstrap.bootstraps",
    "TcpBootstrap": "collectives.bootstrap.tcp_bootstrap",
    "Topology": "topologies.topology",
    "UsageError": "collectives.buffers",
    "UserError": "base.command",
    "Work": "collectives.verbs",
    "algorithm": "synth.dsl.decorator",
    "bound": "api",
    "counters": "collectives.recorder.records",
    "debug_handlers": "collectives.torch_backend.debug_handlers",
    "dump": "collectives.recorder.records",
    "empty": "collectives.buffers",
    "load": "synth.formats.loading",
    "over": "collectives.p2p.over",
    "replace": "collectives.torch_backend.replace",
    "show": "view.notebook",
    "shrink_group": "collectives.torch_backend.backend",
    "simulate": "api",
    "synthesize": "api",
    "topology": "topologies.parse:parse",
    "verify": "api",
}
"""The module that defines each name (`module:name` if it has another name there), as the imports above declare it."""


def _page_of(value: object) -> str:
    from syntony.view.notebook import html_of

    return html_of(value)


show_with(_page_of)

if not TYPE_CHECKING:  # type checkers must reject names that are not listed above

    def __getattr__(name):
        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version

            try:
                return version("syntony")
            except PackageNotFoundError:
                return "not installed"
        if name not in _HOMES:
            raise AttributeError(f"module 'syntony' has no attribute {name!r}")
        from importlib import import_module

        module, _, there = _HOMES[name].partition(":")
        found = globals()[name] = getattr(import_module(f"syntony.{module}"), there or name)
        return found

    def __dir__():
        return __all__
