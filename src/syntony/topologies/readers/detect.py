"""The hardware of this host, read from Linux's /sys and /proc: processors, caches, memory, NICs, GPUs.

Nothing is measured. Any file may be missing: what the kernel does not report is None or empty.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from syntony.base.quantity import size
from syntony.base.wording import counted
from syntony.topologies.readers.hardware import ACCELERATOR_VENDORS
from syntony.topologies.readers.sysfs import entries, field, id_list, kib, pci_functions, read, whole


@dataclass(frozen=True)
class Cache:
    """`count` equal caches: `kind` is Data, Instruction or Unified; each holds `size` bytes for `threads` threads."""

    level: int
    kind: str
    size: int
    threads: int
    count: int


@dataclass(frozen=True)
class NumaNode:
    """Memory (bytes), local hardware threads, and the distances to all nodes as the firmware gives them; 10: itself."""

    id: int
    threads: tuple[int, ...]
    memory: int | None
    distances: tuple[int, ...] = ()


@dataclass(frozen=True)
class Nic:
    """A network interface or RDMA port. `speed`: bits/s; `numa`: its NUMA node."""

    name: str
    kind: str
    up: bool
    speed: int | None
    numa: int | None


@dataclass(frozen=True)
class Gpu:
    """A GPU or another accelerator: its model, or if unknown its vendor; PCI address and NUMA node, if known."""

    model: str | None
    address: str | None
    numa: int | None


@dataclass(frozen=True)
class DetectedHost:
    """The local host. `usable_threads`: hardware threads that this process may run on; `quota`: how many processors its
    container may use on average, None if unlimited. `memory`: bytes."""

    host: str
    processor: str
    simd: tuple[str, ...]
    sockets: int | None
    cores: int | None
    threads: int
    usable_threads: int
    quota: float | None
    memory: int | None
    numa: tuple[NumaNode, ...]
    caches: tuple[Cache, ...]
    nics: tuple[Nic, ...]
    gpus: tuple[Gpu, ...]


def detect(root: Path = Path("/")) -> DetectedHost:
    """Reads the description of the host below `root`."""
    cpus = _online(root)
    cpuinfo = read(root / "proc/cpuinfo") or ""
    return DetectedHost(
        host=platform.node(),
        processor=field(cpuinfo, "model name") or field(cpuinfo, "Model") or platform.machine() or "unknown",
        simd=_simd(cpuinfo),
        sockets=_distinct(root, cpus, ("physical_package_id",)),
        cores=_distinct(root, cpus, ("physical_package_id", "core_id")),
        threads=len(cpus),
        usable_threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else len(cpus),
        quota=_quota(root),
        memory=kib(field(read(root / "proc/meminfo") or "", "MemTotal")),
        numa=tuple(_numa_nodes(root)),
        caches=tuple(_caches(root, cpus)),
        nics=(*_interfaces(root), *_rdma_ports(root)),
        gpus=tuple(_gpus(root)),
    )


def to_dict(machine: DetectedHost) -> dict[str, Any]:
    """Plain JSON types."""
    return asdict(machine)


def rows(machine: DetectedHost) -> list[tuple[str, str]]:
    """The host as a table of two columns, such as `memory` and `16 GiB`."""
    return [
        ("host", machine.host),
        ("processor", ", ".join([machine.processor, *machine.simd])),
        ("cores", _cores_row(machine)),
        ("memory", "unknown" if machine.memory is None else _bytes(machine.memory)),
        *((f"numa node {node.id}", _numa_row(node)) for node in machine.numa),
        ("caches", ", ".join(_cache_row(cache) for cache in machine.caches) or "unknown"),
        *((f"nic {nic.name}", _nic_row(nic)) for nic in machine.nics),
        *((f"gpu {i}", _gpu_row(gpu)) for i, gpu in enumerate(machine.gpus)),
        *([] if machine.nics else [("nics", "none found")]),
        *([] if machine.gpus else [("gpus", "none found")]),
    ]


def _online(root: Path) -> tuple[int, ...]:
    return id_list(read(root / "sys/devices/system/cpu/online")) or tuple(range(os.cpu_count() or 1))


def _distinct(root: Path, cpus: tuple[int, ...], keys: tuple[str, ...]) -> int | None:
    """How many different combinations of the topology `keys` the processors have."""
    found = set()
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        values = tuple(read(folder / key) for key in keys)
        if None in values:
            return None
        found.add(values)
    return len(found)


_SIMD = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve", "sve2")


def _simd(cpuinfo: str) -> tuple[str, ...]:
    flags = set((field(cpuinfo, "flags") or field(cpuinfo, "Features") or "").split())
    return tuple(name for name in _SIMD if name in flags)


def _quota(root: Path) -> float | None:
    """Processor time per period, in processors: control groups version 2, then version 1."""
    both = (read(root / "sys/fs/cgroup/cpu.max") or "").split()
    if not both:
        folder = root / "sys/fs/cgroup/cpu"
        both = [read(folder / "cpu.cfs_quota_us") or "", read(folder / "cpu.cfs_period_us") or ""]
    quota, period = (whole(part) for part in both) if len(both) == 2 else (None, None)
    return quota / period if quota and period and quota > 0 and period > 0 else None


def _numa_nodes(root: Path) -> Iterator[NumaNode]:
    for folder in entries(root / "sys/devices/system/node", r"node[0-9]+"):
        memory = re.search(r"MemTotal:\s*([0-9]+ kB)", read(folder / "meminfo") or "")
        yield NumaNode(
            int(folder.name.removeprefix("node")),
            id_list(read(folder / "cpulist")),
            kib(memory.group(1)) if memory else None,
            tuple(int(word) for word in re.findall(r"[0-9]{1,4}", read(folder / "distance") or "")),
        )


def _caches(root: Path, cpus: tuple[int, ...]) -> Iterator[Cache]:
    found: dict[tuple[int, str, tuple[int, ...]], int] = {}
    for cpu in cpus:
        for folder in entries(root / f"sys/devices/system/cpu/cpu{cpu}/cache", r"index[0-9]+"):
            level, kind = whole(read(folder / "level")), read(folder / "type")
            written = re.fullmatch(r"[0-9]{1,12}[KMG]?", read(folder / "size") or "")
            sharing = id_list(read(folder / "shared_cpu_list"))
            if level is not None and kind is not None and written is not None:
                found[level, kind, sharing or (cpu,)] = size(written.group())
    alike = Counter((level, kind, holds, len(sharing)) for (level, kind, sharing), holds in found.items())
    for (level, kind, holds, threads), count in sorted(alike.items()):
        yield Cache(level, kind, holds, threads, count)


_LOOPBACK = "772"  # ARPHRD_LOOPBACK


def _interfaces(root: Path) -> Iterator[Nic]:
    """Interfaces with a device behind them, and virtual ones that are up; not the loopback."""
    for folder in entries(root / "sys/class/net", r".+"):
        up = read(folder / "operstate") == "up"
        if read(folder / "type") in (None, _LOOPBACK) or not (up or (folder / "device").exists()):
            continue
        megabits = whole(read(folder / "speed"))
        driver = folder / "device" / "driver"
        yield Nic(
            folder.name,
            driver.resolve().name if driver.exists() else "virtual",
            up,
            megabits * 10**6 if megabits is not None and megabits > 0 else None,
            _numa_of(folder / "device"),
        )


def _rdma_ports(root: Path) -> Iterator[Nic]:
    for device in entries(root / "sys/class/infiniband", r".+"):
        for port in entries(device / "ports", r"[0-9]+"):
            gigabits = re.match(r"([0-9.]+) Gb/sec", read(port / "rate") or "")
            yield Nic(
                f"{device.name}:{port.name}",
                f"RDMA over {read(port / 'link_layer') or 'an unknown link layer'}",
                "ACTIVE" in (read(port / "state") or ""),
                int(float(gigabits.group(1)) * 10**9) if gigabits else None,
                _numa_of(device / "device"),
            )


def _numa_of(device: Path) -> int | None:
    """None if the kernel does not know it, which it writes as -1."""
    node = whole(read(device / "numa_node"))
    return node if node is not None and node >= 0 else None


def _gpus(root: Path) -> Iterator[Gpu]:
    """GPUs on PCI, with the names that NVIDIA's driver gives them; if there are none, GPUs by their device files."""
    models = {
        folder.name.lower(): field(read(folder / "information") or "", "Model")
        for folder in entries(root / "proc/driver/nvidia/gpus", r".+")
    }
    for device in pci_functions(root):
        vendor = (read(device / "vendor") or "").removeprefix("0x")
        if (read(device / "class") or "")[:4] in ("0x03", "0x12") and vendor in ACCELERATOR_VENDORS:
            number = (read(device / "device") or "").removeprefix("0x")
            models.setdefault(device.name, f"{ACCELERATOR_VENDORS[vendor]} {number}".strip())
    for address in sorted(models):
        yield Gpu(models[address], address, _numa_of(root / "sys/bus/pci/devices" / address))
    if not models:
        for _ in entries(root / "dev", r"nvidia[0-9]+"):
            yield Gpu(None, None, None)


# Formatting ----------------------------------------------------------------------------------------------------------


def _bytes(count: int) -> str:
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count} B"


def _cores_row(machine: DetectedHost) -> str:
    parts = [(machine.sockets, "socket"), (machine.cores, "core"), (machine.threads, "thread")]
    row = ", ".join(counted(count, noun) for count, noun in parts if count is not None)
    if machine.usable_threads < machine.threads:
        row += f"; this process may use {machine.usable_threads}"
    if machine.quota is not None:
        row += f"; quota of {machine.quota:.3g} processors"
    return row


def _numa_row(node: NumaNode) -> str:
    memory = "" if node.memory is None else f", {_bytes(node.memory)}"
    distances = f", distances {' '.join(map(str, node.distances))}" if len(node.distances) > 1 else ""
    return f"{counted(len(node.threads), 'thread')}{memory}{distances}"


def _cache_row(cache: Cache) -> str:
    letter = {"Data": "d", "Instruction": "i"}.get(cache.kind, "")
    return f"L{cache.level}{letter} {cache.count} x {_bytes(cache.size)}"


def _nic_row(nic: Nic) -> str:
    speed = "speed unknown" if nic.speed is None else f"{nic.speed / 10**9:.4g} Gbit/s"
    numa = "" if nic.numa is None else f", numa node {nic.numa}"
    return f"{nic.kind}, {'up' if nic.up else 'down'}, {speed}{numa}"


def _gpu_row(gpu: Gpu) -> str:
    numa = None if gpu.numa is None else f"numa node {gpu.numa}"
    return ", ".join(part for part in (gpu.model or "NVIDIA GPU", gpu.address, numa) if part)
