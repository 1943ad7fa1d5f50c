"""NCCL's graph file: written by NCCL_GRAPH_DUMP_FILE, read by NCCL_GRAPH_FILE (src/graph/search.cc of NCCL 2.30).

    <graphs version="1">
      <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20" speedinter="12" latencyinter="0"
             typeintra="NVL" typeinter="PIX" samechannels="0">
        <channel>
          <net dev="0"/> <gpu dev="0"/> <gpu dev="2"/> <gpu dev="3"/> <gpu dev="1"/> <net dev="0"/>
        </channel>
        ..
      </graph>
    </graphs>

    id        0 ring, 1 tree, 2 chain of collnet, 3 NVLS, 4 collnet direct; NCCL searches those that are missing
    pattern   4 ring, 3 chain (1 and 2 attach the second NIC elsewhere), 5 NVLS: only the head of each channel is named
    dev       the number on the host, hexadecimal as NCCL 2.30 reads it (older versions take 0x.. too)
    speeds    GB/s of one channel

A GPU's `rank`, which NCCL also dumps, is not written: it would tie the file to one of many hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from syntony.base.files.xml_document import Element, parse
from syntony.synth.nccl.channels import Channel, ChannelSet, Host, Shape
from syntony.synth.nccl.machine.machine import Machine, MachineError
from syntony.synth.nccl.machine.paths import PathKind

RING, TREE, COLLNET, NVLS, COLLNET_DIRECT = range(5)
NAMES = ("ring", "tree", "collnet chain", "nvls", "collnet direct")
_PATTERN = {RING: 4, TREE: 3, COLLNET: 3, NVLS: 5}


@dataclass(frozen=True)
class GraphChannel:
    """Numbers of GPUs and network devices (`dev`), as the file has them, in order."""

    line: int
    gpus: tuple[int, ...]
    nets: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """One `<graph>`; speeds in GB/s of one channel."""

    line: int
    id: int
    pattern: int
    speed_intra: Fraction
    speed_inter: Fraction
    channels: tuple[GraphChannel, ...]

    @property
    def name(self) -> str:
        return NAMES[self.id]


def is_graph_file(path: Path) -> bool:
    """Whether a file looks like NCCL's XML of channels."""
    try:
        return path.is_file() and b"<graphs" in path.read_bytes()[:4096]
    except OSError:
        return False


def graph_text(host: Host, rings: ChannelSet, chains: ChannelSet, remark: str) -> str:
    """The file for these channels; `remark` becomes a comment."""
    lines = [f"<!-- {remark.replace('--', '-')} -->", '<graphs version="1">']
    lines += _graph(host, RING, rings)
    lines += _graph(host, TREE, chains)
    machine = host.machine
    if host.across and all(machine.nets[net].collective for channel in chains.channels for net in channel.nets):
        lines += _graph(host, COLLNET, chains)
    if heads := _heads(host):
        lines += heads
    return "\n".join([*lines, "</graphs>", ""])


def _graph(host: Host, id: int, chosen: ChannelSet) -> list[str]:
    machine = host.machine
    intra, inter = host.kinds(chosen.shape, chosen.channels)
    lines = [_opening(id, len(chosen.channels), chosen.speed, chosen.speed if host.across else None, intra, inter,
                      same=len(set(chosen.channels)) == 1)]  # fmt: skip
    for channel in chosen.channels:
        first = [f'<net dev="{_number(machine.nets[channel.nets[0]].dev)}"/>'] if channel.nets else []
        last = [f'<net dev="{_number(machine.nets[channel.nets[1]].dev)}"/>'] if channel.nets else []
        gpus = [f'<gpu dev="{_number(machine.gpus[gpu].dev)}"/>' for gpu in channel.gpus]
        lines += ["    <channel>", *(f"      {part}" for part in (*first, *gpus, *last)), "    </channel>"]
    return [*lines, "  </graph>"]


def _heads(host: Host) -> list[str]:
    """NVLS: one channel per head; a byte of each channel passes every GPU's link once, its head's twice."""
    machine = host.machine
    switch = next(machine.kinds("nvs"), None)
    if switch is None or not machine.multicast or min(gpu.capability for gpu in machine.gpus) < 90:
        return []
    to_switch = [link.rate for gpu in machine.gpus for link in gpu.node.links if link.dst is switch]
    if len(to_switch) < len(machine.gpus):
        return []
    heads: dict[int, int] = {}
    if host.across:
        for net, gpu in enumerate(host.paths.local_gpus):
            heads.setdefault(gpu, net)
    else:
        heads = dict.fromkeys(range(len(machine.gpus)), -1)
    speed = min(to_switch) / (len(heads) + 1)
    inter = min((machine.nets[net].rate for net in heads.values() if net >= 0), default=speed)
    lines = [_opening(NVLS, len(heads), speed, min(speed, inter) if host.across else None, PathKind.NVL, PathKind.PIX,
                      same=False)]  # fmt: skip
    for gpu, net in heads.items():
        end = [f'<net dev="{_number(machine.nets[net].dev)}"/>'] if net >= 0 else []
        parts = (*end, f'<gpu dev="{_number(machine.gpus[gpu].dev)}"/>', *end)
        lines += ["    <channel>", *(f"      {part}" for part in parts), "    </channel>"]
    return [*lines, "  </graph>"]


def _opening(
    id: int, count: int, speed: Fraction, inter: Fraction | None, kind: PathKind, to_net: PathKind, *, same: bool
) -> str:
    return (
        f'  <graph id="{id}" pattern="{_PATTERN[id]}" crossnic="0" nchannels="{count}" '
        f'speedintra="{_decimal(speed)}" speedinter="{_decimal(speed if inter is None else inter)}" latencyinter="0" '
        f'typeintra="{kind.name}" typeinter="{to_net.name}" samechannels="{int(same)}">'
    )


def _number(dev: int) -> str:
    return f"0x{dev:x}"


def _decimal(value: Fraction) -> str:
    """Rounded down, so that no link gets more than its rate."""
    return f"{int(value * 10_000) / 10_000:g}" if value < 100 else f"{int(value * 100) / 100:.2f}"


def read_graphs(path: Path) -> tuple[Graph, ...]:
    """The graphs of a file. Raises UserError with file, line, element and attribute."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MachineError(f"{path}: cannot be read: {error.strerror}") from None
    root = parse(content, str(path))
    if root.tag != "graphs":
        root.refuse("a graph file begins with <graphs>")
    if (version := root.integer("version")) != 1:
        root.refuse(f'version="{version}" is not known; known is 1')
    return tuple(_read_graph(graph) for graph in root.only("graph"))


def _read_graph(graph: Element) -> Graph:
    id = graph.integer("id", least=0)
    if id >= len(NAMES):
        graph.refuse(f'id="{id}" is not known; known are ' + ", ".join(f"{n} {name}" for n, name in enumerate(NAMES)))
    channels = tuple(_read_channel(channel) for channel in graph.only("channel"))
    if (count := graph.integer("nchannels", least=0)) != len(channels):
        graph.refuse(f'nchannels="{count}", but {len(channels)} channels follow')
    for kind in ("typeintra", "typeinter"):
        if (name := graph.text(kind)) not in PathKind.__members__:
            graph.refuse(f'{kind}="{name}" is not known; known are {", ".join(PathKind.__members__)}')
    graph.integer("samechannels"), graph.integer("crossnic")
    return Graph(
        graph.line,
        id,
        graph.integer("pattern", least=1),
        _speed(graph, "speedintra"),
        _speed(graph, "speedinter"),
        channels,
    )


def _speed(graph: Element, name: str) -> Fraction:
    try:
        value = Fraction(graph.text(name))
    except (ValueError, ZeroDivisionError):
        graph.refuse(f'{name}="{graph.text(name)}" is not a number of GB/s')
    if value < 0:
        graph.refuse(f'{name}="{graph.text(name)}" is negative')
    return value


def _read_channel(channel: Element) -> GraphChannel:
    numbers: dict[str, list[int]] = {"gpu": [], "net": []}
    for part in channel.only("net", "gpu"):
        try:
            numbers[part.tag].append(int(part.text("dev"), 16))
        except ValueError:
            part.refuse(f'dev="{part.text("dev")}" is not a hexadecimal number')
    return GraphChannel(channel.line, tuple(numbers["gpu"]), tuple(numbers["net"]))


def channels_on(graph: Graph, machine: Machine, where: str) -> ChannelSet:
    """A ring or tree of a file as channels of a machine; raises MachineError if it names other devices."""
    gpus = {gpu.dev: place for place, gpu in enumerate(machine.gpus)}
    nets = {net.dev: place for place, net in enumerate(machine.nets)}
    channels = []
    for channel in graph.channels:
        for kind, numbers, known in (("GPU", channel.gpus, gpus), ("network device", channel.nets, nets)):
            unknown = next((dev for dev in numbers if dev not in known), None)
            if unknown is not None:
                raise MachineError(
                    f"{where}:{channel.line}: {machine.name} has no {kind} {unknown}; it has "
                    f"{', '.join(map(str, sorted(known))) or 'none'}"
                )
        channels.append(Channel(tuple(gpus[dev] for dev in channel.gpus), tuple(nets[dev] for dev in channel.nets)))
    shape: Shape = "ring" if graph.id == RING else "chain"
    return ChannelSet(shape, tuple(channels), min(graph.speed_intra, graph.speed_inter or graph.speed_intra))


def fault_of(graphs: tuple[Graph, ...], where: str) -> str:
    """The first fault that can be found without the machine; empty if there is none.

    Every channel of a ring, tree or collnet chain visits the same GPUs, each once, and has no or two network devices;
    ring and tree are present; NCCL uses as many channels as the one with fewer.
    """
    by_id = {graph.id: graph for graph in graphs}
    if len(by_id) < len(graphs):
        return f"{where}: an id occurs twice; NCCL would take the last one"
    everyone = next(
        (sorted(channel.gpus) for graph in graphs if graph.id in (RING, TREE) for channel in graph.channels), []
    )
    for graph in graphs:
        if not graph.channels:
            return f"{where}:{graph.line}: the {graph.name} has no channels"
        for channel in graph.channels:
            place = f"{where}:{channel.line}: a channel of the {graph.name}"
            if graph.id in (RING, TREE, COLLNET):
                twice = sorted({gpu for gpu in channel.gpus if channel.gpus.count(gpu) > 1})
                if twice:
                    return f"{place} visits GPU {twice[0]} twice"
                if sorted(channel.gpus) != everyone:
                    return f"{place} leaves out GPU {min(set(everyone) ^ set(channel.gpus))}, which others visit"
            if len(channel.nets) not in (0, 2):
                return f"{place} names {len(channel.nets)} network devices; it has two ends"
    if len({bool(channel.nets) for graph in graphs for channel in graph.channels}) > 1:
        return f"{where}: some channels lead to other hosts, and others do not"
    return ""
