"""The matrix that `nvidia-smi topo -m` prints.

            GPU0   GPU1   NIC0   CPU Affinity   NUMA Affinity   GPU NUMA ID
    GPU0     X     NV4    PIX    0-23           0               N/A
    GPU1    NV4     X     SYS    24-47          1               N/A
    NIC0    PIX    SYS     X

A cell names the highest level of the hierarchy on the path between two devices (see the legend below the matrix, and
NVIDIA's man page nvidia-smi(1)):

    X                                     NV#: a bond of # NVLinks
    PIX   at most one PCI bridge          they hang from one PCI switch
    PXB   several PCI bridges             from switches below one switch
    PHB   a PCI host bridge               from one processor
    NODE  several host bridges            from one NUMA node
    SYS   what joins NUMA nodes           from different ones

So the distances form a tree. A cell with NVLinks does not say how two GPUs are connected by PCI: they count as near
each other if they share the switch of a NIC, or else if they have the same NUMA affinity.

The text has no rates. The models of GPUs are known if the text also contains the output of `nvidia-smi -L`; without it,
NVLinks are assumed to be those of the V100, A100 and H100, which are equally fast.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

from syntony.base.files.xml_document import shortened
from syntony.topologies.readers import hardware
from syntony.topologies.readers.assembly import Assembly
from syntony.topologies.readers.parts import Part
from syntony.topologies.topology import Topology, TopologyError

_DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
_OLD_WORDS = {"SOC": "SYS", "PSB": "PIX"}  # drivers before 384: socket, and internal switch of a board
_UNTOLD = 70
_MOST = 256  # devices; today's hosts have about fifty
_PATIENCE = 20.0  # seconds; starting the driver takes several

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[[0-9;]*m")  # colours; and what remains of them in copied text
_DEVICE = re.compile(r"(?!X$|NV[0-9]|GPU$)[A-Za-z][\w.-]*", re.ASCII)
_GPU = re.compile(r"GPU([0-9]{1,4})")
_MODEL = re.compile(r"GPU ([0-9]{1,4}): (.+?)(?: \(UUID|$)")
_NIC_LEGEND = re.compile(r"(NIC[0-9]{1,4}): (\S+)")


@dataclass(frozen=True)
class Matrix:
    """Device names in order; cells by pair of positions; per GPU its NUMA node, if known, and the name of its model.

    `nvlinks[i, j]` is how many NVLinks there are, `distance[i, j]` an index of PIX, PXB, PHB, NODE, SYS.
    """

    devices: tuple[str, ...]
    nvlinks: dict[tuple[int, int], int]
    distance: dict[tuple[int, int], int]
    numa: dict[int, str]
    models: dict[int, str]
    nic_names: dict[str, str]


def recognizes(text: str) -> bool:
    """Whether a text holds such a matrix: a line of device names, then one that begins with the first of them."""
    lines = [_CONTROL.sub("", line).split() for line in text.splitlines()]
    return any(_is_header(one) and bool(other[:1] == one[:1]) for one, other in pairwise(lines))


def read(content: bytes, where: str) -> Topology:
    """The topology in a text; raises TopologyError that names `where`, the line and the cell."""
    return _assemble(parse(content.decode("utf-8", "replace"), where), where)


def ask() -> Matrix | None:
    """The matrix of this host's nvidia-smi; None if there is no such program, or it prints no matrix."""
    try:
        run = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, timeout=_PATIENCE, check=True)
        return parse(run.stdout.decode("utf-8", "replace"), "nvidia-smi topo -m")
    except (OSError, subprocess.SubprocessError, TopologyError):
        return None


def parse(text: str, where: str) -> Matrix:
    """The matrix in a text; raises TopologyError that names `where`, the line and the cell."""
    lines = [_CONTROL.sub("", line) for line in text.splitlines()]
    start = next((number for number, line in enumerate(lines) if _is_header(line.split())), None)
    if start is None:
        raise TopologyError(f"{where}: there is no line of device names such as GPU0 GPU1 NIC0 in it")
    devices = tuple(_devices(lines[start].split()))
    if len(devices) > _MOST:
        _refuse(where, start, f"it names {len(devices)} devices; a machine has at most {_MOST}")
    if len(set(devices)) < len(devices):
        _refuse(where, start, f"{Counter(devices).most_common(1)[0][0]} occurs twice in the line")
    nvlinks: dict[tuple[int, int], int] = {}
    distance: dict[tuple[int, int], int] = {}
    numa: dict[int, str] = {}
    for position, device in enumerate(devices):
        number = start + 1 + position
        words = lines[number].split() if number < len(lines) else []
        if words[:1] != [device]:
            _refuse(where, number, f"it must be the row of {device}, as the line of names says")
        cells = words[1 : len(devices) + 1]
        if len(cells) < len(devices):
            _refuse(where, number, f"the row of {device} has {len(cells)} cells; there are {len(devices)} devices")
        for column, cell in enumerate(cells):
            _read_cell(where, number, devices, (position, column), cell, nvlinks, distance)
        rest = words[len(devices) + 1 :]
        if len(rest) >= 2 and re.fullmatch(r"[0-9,-]+", rest[1]):
            numa[position] = rest[1]
    for (one, other), count in nvlinks.items():
        if nvlinks.get((other, one)) != count:
            _refuse(
                where,
                start + 1 + max(one, other),
                f"{devices[one]} and {devices[other]} contradict each other: their two cells differ",
            )
    for (one, other), far in distance.items():
        if distance.get((other, one)) != far:
            _refuse(
                where,
                start + 1 + max(one, other),
                f"{devices[one]} and {devices[other]} contradict each other: their two cells differ",
            )
    models = {int(found.group(1)): found.group(2) for line in lines if (found := _MODEL.match(line.strip()))}
    named = (_NIC_LEGEND.fullmatch(line.strip()) for line in lines)
    legend = {found.group(1): found.group(2) for found in named if found is not None}
    return Matrix(devices, nvlinks, distance, numa, models, legend)


def nvlink_bonds(assembly: Assembly, matrix: Matrix, gpus: dict[int, Part], capability: dict[int, int]) -> None:
    """Adds the NVLinks of a matrix; `gpus` by position in it, each with its compute capability.

    A GPU whose counts add up to more than it has NVLinks reaches its peers through NVSwitches, each peer with all its
    links.
    """
    for group in _linked(gpus, matrix.nvlinks):
        total = {gpu: sum(matrix.nvlinks.get((gpu, other), 0) for other in group) for gpu in group}
        most = {gpu: max((matrix.nvlinks.get((gpu, other), 0) for other in group), default=0) for gpu in group}
        switched = any(total[gpu] > hardware.most_nvlinks(capability.get(gpu, 90)) for gpu in group)
        for gpu in group:
            bandwidth = hardware.nvlink(capability.get(gpu, _UNTOLD))
            if switched:
                nvswitch = assembly.nvswitch(capability.get(gpu, 0) >= hardware.NVLINK_SHARP)
                assembly.join("NVLink", gpus[gpu], nvswitch, most[gpu], bandwidth)
                assembly.join("NVLink", nvswitch, gpus[gpu], most[gpu], bandwidth)
            else:
                for other in group:
                    count = matrix.nvlinks.get((gpu, other), 0)
                    assembly.join("NVLink", gpus[gpu], gpus[other], count, bandwidth)


def capabilities(matrix: Matrix) -> dict[int, int]:
    """The compute capability of every GPU, by position: from its model, or the lowest with that many NVLinks."""
    found: dict[int, int] = {}
    for position, device in enumerate(matrix.devices):
        number = _GPU.fullmatch(device)
        if number is None:
            continue
        capability = hardware.nvidia_model(matrix.models.get(int(number.group(1)), ""))
        most = max(matrix.nvlinks.get((position, other), 0) for other in range(len(matrix.devices)))
        if capability is not None:
            found[position] = capability
        elif most > hardware.most_nvlinks(70):
            found[position] = 90 if most > hardware.most_nvlinks(80) else 80
    return found


def _assemble(matrix: Matrix, where: str) -> Topology:
    assembly = Assembly(where.rpartition("/")[2], where)
    capability = capabilities(matrix)
    rates = {device: hardware.pcie_of_nvidia(capability.get(device, _UNTOLD)) for device in range(len(matrix.devices))}
    nic_rate = max(rates.values())
    gpus: dict[int, Part] = {}

    def place(devices: list[int], parent: Part, level: int) -> None:
        """Adds devices that are within `level` of each other, below `parent`."""
        if len(devices) == 1 or level < 0:
            for device in devices:
                name = matrix.devices[device]
                if _is_gpu(name):
                    gpus[device] = assembly.gpu(name.lower(), parent, rates[device])
                else:
                    assembly.nic(matrix.nic_names.get(name, name), parent, nic_rate)
            return
        for near in _within(devices, matrix, level):
            switch = parent
            if len(near) > 1 and (parent.kind == "cpu" or len(near) < len(devices)):
                switch = assembly.bridge(f"pci{len(switches)}", parent, nic_rate)
                switches.append(switch)
            place(near, switch, level - 1)

    switches: list[Part] = []
    interconnect = hardware.processor_interconnect("", "", 0, 0)
    for number, near in enumerate(_numa_nodes(matrix)):
        numa = next((matrix.numa[device] for device in near if device in matrix.numa), None)
        cpu = assembly.cpu(f"cpu{number if numa is None else numa}", interconnect)
        place(near, cpu, _DISTANCES.index("PXB"))
    nvlink_bonds(assembly, matrix, gpus, capability)
    if len(matrix.models) < len(gpus):
        assembly.note("models are unknown, so rates are those of a V100, A100 or H100, by the number of NVLinks")
    return assembly.topology()


def _numa_nodes(matrix: Matrix) -> list[list[int]]:
    """The devices by NUMA node: within NODE of each other, or of the same affinity."""
    near = [pair for pair, far in matrix.distance.items() if far <= _DISTANCES.index("NODE")]
    homes: dict[str, int] = {}
    for device, numa in matrix.numa.items():
        near.append((homes.setdefault(numa, device), device))
    return _components(range(len(matrix.devices)), near)


def _within(devices: list[int], matrix: Matrix, level: int) -> list[list[int]]:
    chosen = set(devices)
    near = [pair for pair, far in matrix.distance.items() if far <= level and chosen.issuperset(pair)]
    return _components(devices, near)


def _linked(gpus: Iterable[int], nvlinks: dict[tuple[int, int], int]) -> list[list[int]]:
    chosen = set(gpus)
    return _components(sorted(chosen), [pair for pair in nvlinks if chosen.issuperset(pair)])


def _components(members: Iterable[int], pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The connected components under the pairs, each ascending, in the order of their lowest members."""
    group = {member: [member] for member in members}
    for one, other in pairs:
        if group[one] is not group[other]:
            joined = sorted([*group[one], *group[other]])
            group.update(dict.fromkeys(joined, joined))
    return [members for member, members in group.items() if members[0] == member]


def _is_header(words: list[str]) -> bool:
    devices = _devices(words)
    return bool(devices) and _is_gpu(devices[0]) and words[len(devices) :][:1] in ([], ["CPU"], ["NUMA"])


def _is_gpu(device: str) -> bool:
    return _GPU.fullmatch(device) is not None


def _devices(words: list[str]) -> list[str]:
    devices: list[str] = []
    for word in words:
        if _DEVICE.fullmatch(word) is None or word in ("CPU", "NUMA", *_DISTANCES, *_OLD_WORDS):
            break
        devices.append(word)
    return devices


def _read_cell(
    where: str,
    line: int,
    devices: tuple[str, ...],
    pair: tuple[int, int],
    cell: str,
    nvlinks: dict[tuple[int, int], int],
    distance: dict[tuple[int, int], int],
) -> None:
    cell = _OLD_WORDS.get(cell, cell)
    one, other = pair
    if (cell == "X") != (one == other):
        _refuse(where, line, f"the cell of {devices[one]} and {devices[other]} is {shortened(cell)}; X is the diagonal")
    if cell in _DISTANCES:
        distance[pair] = _DISTANCES.index(cell)
    elif found := re.fullmatch(r"NV([0-9]{1,3})", cell):
        if not (_is_gpu(devices[one]) and _is_gpu(devices[other])):
            _refuse(where, line, f"{devices[one]} and {devices[other]} are not both GPUs, so it cannot be {cell}")
        nvlinks[pair] = int(found.group(1))
    elif cell != "X":
        known = ", ".join(["X", "NV#", *_DISTANCES])
        _refuse(where, line, f"the cell of {devices[one]} and {devices[other]} is {shortened(cell)}; known are {known}")


def _refuse(where: str, line: int, message: str) -> NoReturn:
    """Raises TopologyError; `line` counts from 0."""
    raise TopologyError(f"{where}:{line + 1}: {message}")
