"""The commands `syntony topo ...`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell, tell_json, width
from syntony.base.command import Command
from syntony.base.files.whole_file import write_text
from syntony.base.outputs import add_output, require_output, wrote
from syntony.base.wording import counted, unknown
from syntony.topologies.file_format import write
from syntony.topologies.parse import parse
from syntony.topologies.readers import FORMATS, read
from syntony.topologies.topology import Topology, TopologyError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from syntony.topologies.families.family import Family
    from syntony.topologies.readers.detect import DetectedHost

TOPOLOGY_HELP = (
    "a name such as dgx1, torus:4x4x4 or ring:8,bandwidth=25e9 (see `topo list`), or file:PATH; "
    "append ,without=0-1,slowed=rank5-rank6@50%% for lost or slow parts, ,group=0-3+8 where only these ranks take part "
    "and the others forward"
)


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Adds the positional argument that names a topology; commands of other packages use it too."""
    parser.add_argument("topology", metavar="T", help=TOPOLOGY_HELP)


def _print(items: Iterable[RenderableType]) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=width())
    for item in items:
        console.print(item)


def _answer(arguments: argparse.Namespace, told: Mapping[str, Any], items: Iterable[RenderableType]) -> int:
    if arguments.json:
        tell_json({"command": arguments.command, **told})
    else:
        _print(items)
    return 0


# topo list --------------------------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    from syntony.topologies.families import FAMILIES

    chosen = list(FAMILIES.values())
    if arguments.family is not None:
        if arguments.family not in FAMILIES:
            raise TopologyError(unknown("family", arguments.family, FAMILIES))
        chosen = [FAMILIES[arguments.family]]
    told = {"families": [_family_object(family) for family in chosen]}
    return _answer(arguments, told, _family_table(chosen) if arguments.family is None else _family_page(chosen[0]))


def _family_object(family: Family) -> dict[str, Any]:
    from syntony.topologies.families.family import written

    defaults = family.defaults()
    return {
        "name": family.name,
        "summary": family.summary,
        "signature": family.signature(),
        "example": family.example,
        "source": family.source,
        "parameters": [
            {
                "name": parameter.name,
                "meaning": parameter.meaning,
                "default": written(defaults[parameter.name]) if parameter.name in defaults else None,
            }
            for parameter in family.parameters
        ],
    }


def _family_table(families: Iterable[Family]) -> Iterable[RenderableType]:
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table
    from rich.text import Text

    rows = [(family.name, family.summary, family.example) for family in families]
    file = ("file", "a file of ours, of NCCL, lstopo, nvidia-smi or TACCL, or a machine's folder", "file:cluster.json")
    columns = (Column("family", no_wrap=True), "what it is, and an example")
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for name, summary, example in (*rows, file):
        table.add_row(name, Text.assemble(summary, "\n", (example, "cyan")))
    yield table
    yield "All arguments of a family, with their defaults: syntony topo list FAMILY"


def _family_page(family: Family) -> Iterable[RenderableType]:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from syntony.topologies.families.family import written

    yield Text(f"\n{family.name}: {family.summary}", style="bold")
    defaults = family.defaults()
    table = Table("argument", "meaning", "default", box=SIMPLE_HEAD)
    for parameter in family.parameters:
        default = written(defaults[parameter.name]) if parameter.name in defaults else "(must be given)"
        table.add_row(parameter.name, parameter.meaning, default)
    yield table
    yield Text(f"example: {family.example}\nsource:  {family.source}")


def _configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", nargs="?", metavar="FAMILY", help="show this family's arguments and defaults")


# topo aggregators -------------------------------------------------------------------------------------------------


def _configure_aggregators(parser: argparse.ArgumentParser) -> None:
    """Takes no arguments."""


def _aggregators(arguments: argparse.Namespace) -> int:
    from syntony.topologies.aggregator import PROFILES

    told = [
        {
            "name": name, "standing": one.standing, "missing": one.missing, "simulated": one.simulated,
            "summary": one.summary, "source": one.source,
        }
        for name, one in PROFILES.items()
    ]  # fmt: skip
    lines = [
        "aggregating switches (TOPOLOGY,aggregator=NAME)",
        "  W: `syntony lab` runs the whole idea; S: simulated only; P: runs a part of it",
    ]
    for name, one in PROFILES.items():
        lacks = (("Missing", one.missing), ("Simulated only", one.simulated))
        parts = [f"{one.summary}.", *(f"{word}: {what}." for word, what in lacks if what), f"{one.source}."]
        first, *others = [line for part in parts for line in wrap(part, width() - 22)]
        lines += [f"{one.standing} {name:<18}  {first}", *(f"{'':22}{line}" for line in others)]
    tell(arguments, {"aggregators": told}, lines)
    return 0


# topo show --------------------------------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    from syntony.topologies.drawing.show import summarize, tables, to_dict

    summary = summarize(parse(arguments.topology))
    return _answer(arguments, to_dict(summary), tables(summary))


# topo draw --------------------------------------------------------------------------------------------------------


def _draw(arguments: argparse.Namespace) -> int:
    from syntony.topologies.drawing.draw import to_svg

    topology = parse(arguments.topology)
    output = arguments.output
    if output is None:
        output = Path(_file_name(arguments.topology) + ".svg")
        require_output(output, arguments.force)
    write_text(output, to_svg(topology))
    return _wrote(arguments, topology, output)


def _file_name(topology: str) -> str:
    """The file name for a topology: `torus-4x4`, or the name of the topology's own file."""
    name = Path(topology.removeprefix("file:").partition(",")[0]).stem if topology.startswith("file:") else topology
    return re.sub(r"[^A-Za-z0-9_.@=%-]+", "-", name).strip("-.") or "topology"


def _configure_draw(parser: argparse.ArgumentParser) -> None:
    add_topology(parser)
    add_output(
        parser,
        "-o",
        "--output",
        metavar="F.svg",
        endings=(".svg",),
        what="a drawing is an SVG file",
        help="the SVG file to write (default: named after T, here)",
    )


# topo detect ------------------------------------------------------------------------------------------------------


def _detect(arguments: argparse.Namespace) -> int:
    from syntony.topologies.readers import nvidia_smi
    from syntony.topologies.readers.detect import detect, to_dict
    from syntony.topologies.readers.linux_sys import read_machine

    output = arguments.output
    machine = detect()
    topology = read_machine(Path("/"), nvidia_smi.ask() if machine.gpus else None)
    if output is not None:
        write(topology, output)
    told = {**to_dict(machine), "about": topology.about, "file": None if output is None else str(output)}
    written = [] if output is None else [wrote(output, _about(topology))]
    return _answer(arguments, told, [machine_table(machine), topology.about, *written])


def _configure_detect(parser: argparse.ArgumentParser) -> None:
    _add_topology_file(parser, "-o", "--output", metavar="F.json", help="also write this machine's topology")


def _add_topology_file(parser: argparse.ArgumentParser, *flags: str, **keywords: Any) -> None:
    add_output(parser, *flags, endings=(".json",), what="a topology file is JSON", **keywords)


def machine_table(machine: DetectedHost) -> RenderableType:
    """The detected machine as a rich table of two columns."""
    from rich.box import SIMPLE
    from rich.table import Table

    from syntony.topologies.readers.detect import rows

    table = Table(box=SIMPLE, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for what, value in rows(machine):
        table.add_row(what, value)
    return table


# topo convert -----------------------------------------------------------------------------------------------------


def _convert(arguments: argparse.Namespace) -> int:
    topology = _source(arguments.input, arguments.form)
    write(topology, arguments.output)
    return _wrote(arguments, topology, arguments.output)


def _source(name: str, form: str | None) -> Topology:
    """The topology of that name, or of the file at that path if a format is given or no family has that name."""
    from syntony.topologies.families import FAMILIES

    is_file = Path(name).suffix in (".json", ".toml", ".xml", ".txt", ".graphml") or Path(name).exists()
    if form is not None or name.startswith("file:") or (is_file and name.partition(":")[0] not in FAMILIES):
        return read(name.removeprefix("file:"), form)
    return parse(name)


def _configure_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help=f"{TOPOLOGY_HELP}, or the path itself")
    _add_topology_file(parser, "output", metavar="OUT", help="the topology file to write; its name ends in .json")
    parser.add_argument(
        "--from",
        dest="form",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"the format of IN: {', '.join(FORMATS)} (default: recognized by its contents)",
    )


def _wrote(arguments: argparse.Namespace, topology: Topology, output: Path) -> int:
    told = {"file": str(output), "name": topology.name, "ranks": topology.ranks, "links": len(topology.links)}
    tell(arguments, told, [wrote(output, _about(topology))])
    return 0


def _about(topology: Topology) -> str:
    return f"{topology.name}; {counted(topology.ranks, 'rank')}, {counted(len(topology.links), 'link')}"


COMMANDS: tuple[Command, ...] = (
    Command(("topo", "list"), "list the families of topologies", "syntony topo list torus", _configure_list, _list),
    Command(
        ("topo", "aggregators"),
        "list aggregating switches, and how much of each the lab emulates",
        "syntony topo aggregators",
        _configure_aggregators,
        _aggregators,
    ),
    Command(("topo", "show"), "show a topology as a table", "syntony topo show dgx-a100:2", add_topology, _show),
    Command(
        ("topo", "draw"), "draw a topology as SVG", "syntony topo draw torus:4x4 -o torus.svg", _configure_draw, _draw
    ),
    Command(
        ("topo", "detect"),
        "detect the hardware of this machine, and write its topology",
        "syntony topo detect -o here.json",
        _configure_detect,
        _detect,
    ),
    Command(
        ("topo", "convert"),
        "convert a topology, or a description of a machine, to a JSON file",
        "syntony topo convert dgx1 dgx1.json",
        _configure_convert,
        _convert,
    ),
)
