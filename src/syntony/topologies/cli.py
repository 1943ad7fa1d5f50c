"""The commands `syntony topo ...`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.command import Command
from syntony.base.whole_file import write_text
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
    "after either, what is lost or slow: ,without=0-1,slowed=rank5-rank6@50%%"
)


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Adds the positional argument that names a topology; commands of other packages use it, too."""
    parser.add_argument("topology", metavar="T", help=TOPOLOGY_HELP)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def _print(items: Iterable[RenderableType]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for item in items:
        console.print(item)


def _print_json(data: object) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))


# topo list --------------------------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    from syntony.topologies.families import FAMILIES

    chosen = list(FAMILIES.values())
    if arguments.family is not None:
        if arguments.family not in FAMILIES:
            raise TopologyError(f"unknown family {arguments.family!r}; known are {', '.join(FAMILIES)}")
        chosen = [FAMILIES[arguments.family]]
    if arguments.json:
        _print_json({"families": [_family_object(family) for family in chosen]})
    elif arguments.family is not None:
        _print(_family_page(chosen[0]))
    else:
        _print(_family_table(chosen))
    return 0


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

    table = Table("family", "what it is", Column("example", overflow="fold"), box=SIMPLE_HEAD)
    for family in families:
        table.add_row(family.name, family.summary, family.example)
    table.add_row(
        "file", "a file of ours, of NCCL, lstopo, nvidia-smi or TACCL, or a machine's folder", "file:cluster.json"
    )
    yield table
    yield "All arguments and defaults of a family: syntony topo list FAMILY"


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
    add_json(parser)


# topo show --------------------------------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    from syntony.topologies.drawing.show import summarize, tables, to_dict

    summary = summarize(parse(arguments.topology))
    if arguments.json:
        _print_json(to_dict(summary))
    else:
        _print(tables(summary))
    return 0


def _configure_show(parser: argparse.ArgumentParser) -> None:
    add_topology(parser)
    add_json(parser)


# topo draw --------------------------------------------------------------------------------------------------------


def _draw(arguments: argparse.Namespace) -> int:
    from syntony.topologies.drawing.draw import to_svg

    output = Path(arguments.output)
    if output.suffix.lower() != ".svg":
        raise TopologyError(f"{output}: a drawing is an SVG file; its name must end in .svg")
    topology = parse(arguments.topology)
    write_text(output, to_svg(topology))
    return _wrote(arguments, topology, output)


def _configure_draw(parser: argparse.ArgumentParser) -> None:
    add_topology(parser)
    parser.add_argument("-o", "--output", metavar="F.svg", required=True, help="the SVG file to write")
    add_json(parser)


# topo detect ------------------------------------------------------------------------------------------------------


def _detect(arguments: argparse.Namespace) -> int:
    from syntony.topologies.readers import nvidia_smi
    from syntony.topologies.readers.detect import detect, to_dict
    from syntony.topologies.readers.linux_sys import read_machine

    output = None if arguments.output is None else _json_path(arguments.output)
    machine = detect()
    topology = read_machine(Path("/"), nvidia_smi.ask() if machine.gpus else None)
    if output is not None:
        write(topology, output)
    if arguments.json:
        _print_json({**to_dict(machine), "about": topology.about, "file": None if output is None else str(output)})
        return 0
    _print([machine_table(machine), topology.about])
    return 0 if output is None else _wrote(arguments, topology, output)


def _configure_detect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="F.json", help="also write this machine's topology")
    add_json(parser)


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
    output = _json_path(arguments.output)
    topology = _source(arguments.input, arguments.form)
    write(topology, output)
    return _wrote(arguments, topology, output)


def _json_path(name: str) -> Path:
    if Path(name).suffix.lower() != ".json":
        raise TopologyError(f"{name}: a topology file is JSON; its name must end in .json")
    return Path(name)


def _source(name: str, form: str | None) -> Topology:
    """The topology of that name, or of the file at that path if a format is given or no family has that name."""
    from syntony.topologies.families import FAMILIES

    is_file = Path(name).suffix in (".json", ".xml", ".txt") or Path(name).exists()
    if form is not None or name.startswith("file:") or (is_file and name.partition(":")[0] not in FAMILIES):
        return read(name.removeprefix("file:"), form)
    return parse(name)


def _configure_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help=f"{TOPOLOGY_HELP}, or the path itself")
    parser.add_argument("output", metavar="OUT", help="the topology file to write; its name ends in .json")
    parser.add_argument(
        "--from", dest="form", choices=FORMATS, help="the format of IN; without it, IN is recognized by its contents"
    )
    add_json(parser)


def _wrote(arguments: argparse.Namespace, topology: Topology, output: Path) -> int:
    if arguments.json:
        data = {"file": str(output), "name": topology.name, "ranks": topology.ranks, "links": len(topology.links)}
        _print_json(data)
    else:
        from syntony.base.wording import counted

        size = f"{counted(topology.ranks, 'rank')}, {counted(len(topology.links), 'link')}"
        print(f"wrote {output} ({topology.name}; {size})")
    return 0


COMMANDS: tuple[Command, ...] = (
    Command(("topo", "list"), "list the families of topologies", "syntony topo list torus", _configure_list, _list),
    Command(("topo", "show"), "show a topology as a table", "syntony topo show dgx-a100:2", _configure_show, _show),
    Command(
        ("topo", "draw"), "draw a topology as SVG", "syntony topo draw torus:4x4 -o torus.svg", _configure_draw, _draw
    ),
    Command(
        ("topo", "detect"),
        "show what this machine is made of, and write its topology",
        "syntony topo detect -o here.json",
        _configure_detect,
        _detect,
    ),
    Command(
        ("topo", "convert"),
        "write a topology as a JSON file, from a name or from a description of a machine",
        "syntony topo convert dgx1 dgx1.json",
        _configure_convert,
        _convert,
    ),
)
