"""The commands `lab`, `lab list` and `lab clean`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TextIO, TypeVar

from syntony.base.answer import tell, tell_json, width
from syntony.base.command import Command
from syntony.base.quantity import bit_rate, duration, share
from syntony.base.stopping import Stopped, stopping_by_signals
from syntony.lab import report, runs
from syntony.lab.faults import parse_fault
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import DEFAULT_RATE, LabError, LabSpec, at_rate, delayed, lossy, spec_of
from syntony.lab.processes import require_command
from syntony.lab.wires import kernel
from syntony.topologies.cli import add_topology
from syntony.topologies.parse import parse

_Quantity = TypeVar("_Quantity")


def _configure(parser: argparse.ArgumentParser) -> None:
    add_topology(parser)
    parser.add_argument(
        "--rate",
        default=None,
        metavar="[A-B=]R",
        help="rate of the fastest wire, or of the wire A-B; the others scale in proportion (200mbit)",
    )
    parser.add_argument(
        "--delay",
        action="append",
        default=[],
        metavar="[A-B=]T",
        help="latency of every wire, or of the wire A-B, in each direction: 1ms; may be repeated",
    )
    parser.add_argument(
        "--loss",
        action="append",
        default=[],
        metavar="[A-B=]P",
        help="packet loss of every wire, or of the wire A-B, in each direction: 1%%; may be repeated",
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="F",
        help="'cut A-B at 5s [for 2s]', 'slow A-B to 50mbit at 3s [for 2s]' or 'flap A-B every 2s [for 1s] [at 3s]', "
        "from the command's start; may be repeated",
    )
    parser.add_argument("--ecmp", action="store_true", help="hash connections over all shortest paths, not just one")
    parser.add_argument("--no-ceilings", action="store_true", help="do not measure the wires first")
    parser.usage = f"{parser.prog} T [--rate R] [--loss P] [--fault F] ... [-- COMMAND ...]"
    parser.description = (
        "Emulate a cluster on this machine. Each host and each switch of topology T becomes a network namespace, each "
        "cable a rate-limited wire. COMMAND is started once per rank, with RANK, WORLD_SIZE, LOCAL_RANK, "
        "LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; without COMMAND, the cluster runs until Ctrl-C. Needs root and "
        "iproute2. With --json, ranks write to stderr. `syntony lab list` shows the labs of this machine, "
        "what a crash has left is removed by `syntony lab clean`, or when the next lab starts."
    )


def _lab(arguments: argparse.Namespace) -> int:
    """The exit code of the first rank that failed; 128 plus the signal that ended the lab."""
    spec = _spec(arguments)
    faults = [parse_fault(text, spec) for text in arguments.fault]
    command: list[str] = arguments.passed_on
    if command:
        require_command(command)
    elif faults:
        raise LabError(
            "faults are counted from the command's start, and there is no command; say -- COMMAND at the end"
        )
    lab = Lab(spec, arguments.ecmp)
    try:
        with stopping_by_signals(), lab:
            _print_report(lab, arguments)
            if command:
                out = sys.stderr if arguments.json else sys.stdout
                return lab.run(command, faults, partial(_write, out.fileno()), colours=_has_colours(out))
            while True:
                signal.pause()
    except Stopped as stopped:
        return stopped.code
    finally:
        if lab.delay_figures is not None and not arguments.json:
            print(report.delay_line(lab.delay_figures), file=sys.stderr)


def _spec(arguments: argparse.Namespace) -> LabSpec:
    spec = spec_of(parse(arguments.topology))
    at, text = _named(arguments.rate or "")
    spec = at_rate(spec, _quantity("--rate", text, bit_rate) if text else DEFAULT_RATE, at)
    for delay in arguments.delay:
        at, text = _named(delay)
        spec = delayed(spec, _quantity("--delay", text, duration), at)
    for loss in arguments.loss:
        at, text = _named(loss)
        spec = lossy(spec, _quantity("--loss", text, share), at)
    return spec


def _named(text: str) -> tuple[str | None, str]:
    wire, equals, quantity = text.rpartition("=")
    return (wire if equals else None), quantity


def _quantity(option: str, text: str, read: Callable[[str], _Quantity]) -> _Quantity:
    try:
        return read(text)
    except ValueError as error:
        raise LabError(f"{option} {text!r} must be {error}") from None


def _print_report(lab: Lab, arguments: argparse.Namespace) -> None:
    if arguments.json:
        ceilings = () if arguments.no_ceilings else lab.ceilings()
        tell_json({"command": arguments.command, **report.document(lab, ceilings)})
        return
    from rich.console import Console

    console = Console(highlight=False, width=width())
    for item in report.map_of(lab):
        console.print(item, soft_wrap=isinstance(item, str))  # commands are copied whole
    if not arguments.no_ceilings and lab.spec.wires:
        for item in report.ceilings(lab.ceilings()):
            console.print(item)
    if not arguments.passed_on:
        console.print("Ctrl-C removes the lab.")


def _has_colours(stream: TextIO) -> bool:
    from rich.console import Console

    console = Console(file=stream)
    return console.color_system is not None and not console.no_color


def _write(descriptor: int, lines: bytes) -> None:
    while lines:
        lines = lines[os.write(descriptor, lines) :]


def _configure_list(parser: argparse.ArgumentParser) -> None:
    """Takes no arguments."""


def _list(arguments: argparse.Namespace) -> int:
    kernel.require_tools()
    found = [(record, alive, runs.namespaces_of(record.id)) for record, alive in runs.records()]
    rows = [
        {
            "id": record.id,
            "topology": record.topology,
            "process": record.process if alive else None,
            "started": record.started,
            "namespaces": namespaces,
        }
        for record, alive, namespaces in found
    ]
    lines = []
    for record, alive, namespaces in found:
        state = (
            f"run by process {record.process}"
            if alive
            else "left behind; `syntony lab clean` or the next lab removes it"
        )
        since = time.strftime("since %F %T", time.localtime(record.started)) if record.started else ""
        lines.append(f"{record.id}  {record.topology}  {len(namespaces)} namespaces  {since}  {state}")
    tell(arguments, {"labs": rows}, lines or ["no labs on this machine"])
    return 0


def _configure_clean(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "labs", nargs="*", metavar="ID", help="labs to remove, running or not (default: all that were left behind)"
    )


def _clean(arguments: argparse.Namespace) -> int:
    kernel.require_tools()
    removed = [_remove(name) for name in arguments.labs] if arguments.labs else runs.remove_left_behind()
    document = [{"id": record.id, "topology": record.topology} for record in removed]
    lines = [f"removed {record.id} ({record.topology})" for record in removed]
    tell(arguments, {"removed": document}, lines or ["nothing was left behind"])
    return 0


def _remove(name: str) -> runs.Record:
    """Removes the lab of that id, running or not."""
    known = {record.id: (record, alive) for record, alive in runs.records()}
    if name not in known:
        raise LabError(f"there is no lab {name!r}; `syntony lab list` shows those there are")
    record, alive = known[name]
    if alive:
        _end(record)
    runs.remove(name)
    return record


def _end(record: runs.Record) -> None:
    """Asks the lab to end, and then forces it."""
    with suppress(ProcessLookupError):
        os.kill(record.process, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and any(alive for other, alive in runs.records() if other.id == record.id):
            time.sleep(0.05)
        if any(alive for other, alive in runs.records() if other.id == record.id):
            os.kill(record.process, signal.SIGKILL)


COMMANDS = (
    Command(
        name=("lab", "list"),
        summary="list the emulated clusters of this machine, running or left behind by a crash",
        example="syntony lab list",
        configure=_configure_list,
        run=_list,
    ),
    Command(
        name=("lab", "clean"),
        summary="remove the named emulated clusters, or all that a crash has left behind",
        example="syntony lab clean",
        configure=_configure_clean,
        run=_clean,
    ),
    Command(
        name=("lab",),
        summary="run a command on an emulated cluster: one network namespace per host, rate-limited wires",
        example="syntony lab star:4 --rate 200mbit -- syntony bench all_reduce -b 4M -e 16M -f 2",
        configure=_configure,
        run=_lab,
        passes_on=True,
    ),
)
