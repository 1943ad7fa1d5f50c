"""Detection on invented machines, written as trees of files, and on this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syntony.topologies.readers.detect import Cache, DetectedHost, Gpu, Nic, NumaNode, detect, rows, to_dict


def _write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n", encoding="utf-8")


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Two sockets of two cores of two threads, two NICs, an RDMA port, two GPUs, half of it in a container."""
    _write(tmp_path, "proc/cpuinfo", "processor : 0\nmodel name : Xenon 9000\nflags : fpu avx2 avx512f\n")
    _write(tmp_path, "proc/meminfo", "MemTotal:       65536 kB\nMemFree: 1 kB")
    cpu = "sys/devices/system/cpu"
    _write(tmp_path, f"{cpu}/online", "0-7")
    for i in range(8):
        _write(tmp_path, f"{cpu}/cpu{i}/topology/physical_package_id", str(i // 4))
        _write(tmp_path, f"{cpu}/cpu{i}/topology/core_id", str(i % 4 // 2))
        for index, (level, kind, size, sharing) in enumerate(
            [(1, "Data", "48K", f"{i - i % 2}-{i - i % 2 + 1}"), (3, "Unified", "32M", "0-3" if i < 4 else "4,5-7")]
        ):
            for key, value in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", sharing)):
                _write(tmp_path, f"{cpu}/cpu{i}/cache/index{index}/{key}", str(value))
    for node in range(2):
        _write(tmp_path, f"sys/devices/system/node/node{node}/cpulist", "0-3" if node == 0 else "4-7")
        _write(tmp_path, f"sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal:   32768 kB")
    _write(tmp_path, "sys/fs/cgroup/cpu.max", "250000 100000")
    for name, arp, state, speed in (
        ("lo", 772, "unknown", ""),
        ("eth0", 1, "up", "100000"),
        ("eth1", 1, "down", "-1"),
    ):
        _write(tmp_path, f"sys/class/net/{name}/type", str(arp))
        _write(tmp_path, f"sys/class/net/{name}/operstate", state)
        _write(tmp_path, f"sys/class/net/{name}/speed", speed)
    _write(tmp_path, "sys/class/net/eth1/device/numa_node", "-1")
    _write(tmp_path, "sys/class/net/eth0/device/numa_node", "1")
    _write(tmp_path, "sys/bus/pci/drivers/fastnic/uevent", "")
    (tmp_path / "sys/class/net/eth0/device/driver").symlink_to(tmp_path / "sys/bus/pci/drivers/fastnic")
    _write(tmp_path, "sys/class/net/veth7/type", "1")
    _write(tmp_path, "sys/class/net/veth7/operstate", "down")
    port = "sys/class/infiniband/mlx5_0/ports/1"
    _write(tmp_path, f"{port}/rate", "400 Gb/sec (4X NDR)")
    _write(tmp_path, f"{port}/state", "4: ACTIVE")
    _write(tmp_path, f"{port}/link_layer", "InfiniBand")
    for gpu, address in enumerate(("0000:1B:00.0", "0000:2A:00.0")):
        _write(tmp_path, f"proc/driver/nvidia/gpus/{address}/information", f"Model: \t H{gpu}00\nIRQ: 1")
        _write(tmp_path, f"sys/bus/pci/devices/{address.lower()}/numa_node", str(gpu))
    return tmp_path


def test_a_server_is_read_completely(server: Path) -> None:
    machine = detect(server)
    assert machine.processor == "Xenon 9000"
    assert machine.simd == ("avx2", "avx512f")
    assert (machine.sockets, machine.cores, machine.threads) == (2, 4, 8)
    assert machine.quota == 2.5
    assert machine.memory == 64 << 20
    assert machine.numa == (NumaNode(0, (0, 1, 2, 3), 32 << 20), NumaNode(1, (4, 5, 6, 7), 32 << 20))
    assert machine.caches == (Cache(1, "Data", 48 << 10, 2, 4), Cache(3, "Unified", 32 << 20, 4, 2))
    assert machine.nics == (
        Nic("eth0", "fastnic", True, 100 * 10**9, 1),
        Nic("eth1", "virtual", False, None, None),
        Nic("mlx5_0:1", "RDMA over InfiniBand", True, 400 * 10**9, None),
    )
    assert machine.gpus == (Gpu("H000", "0000:1b:00.0", 0), Gpu("H100", "0000:2a:00.0", 1))


def test_a_server_is_told_as_rows(server: Path) -> None:
    told = dict(rows(detect(server)))
    assert told["processor"] == "Xenon 9000, avx2, avx512f"
    assert told["cores"].startswith("2 sockets, 4 cores, 8 threads")
    assert told["cores"].endswith("quota of 2.5 processors")
    assert told["memory"] == "64 MiB"
    assert told["numa node 1"] == "4 threads, 32 MiB"
    assert told["caches"] == "L1d 4 x 48 KiB, L3 2 x 32 MiB"
    assert told["nic eth0"] == "fastnic, up, 100 Gbit/s, numa node 1"
    assert told["nic mlx5_0:1"] == "RDMA over InfiniBand, up, 400 Gbit/s"
    assert told["gpu 1"] == "H100, 0000:2a:00.0, numa node 1"


def test_an_empty_machine_is_still_a_machine(tmp_path: Path) -> None:
    machine = detect(tmp_path)
    assert (machine.sockets, machine.cores, machine.quota, machine.memory) == (None, None, None, None)
    assert (machine.numa, machine.caches, machine.nics, machine.gpus) == ((), (), (), ())
    assert machine.threads == os.cpu_count()
    told = dict(rows(machine))
    assert told["memory"] == told["caches"] == "unknown"
    assert told["nics"] == told["gpus"] == "none found"


def test_gpus_without_the_drivers_list_are_counted_by_their_device_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        _write(tmp_path, f"dev/{name}", "")
    assert detect(tmp_path).gpus == (Gpu(None, None, None),) * 2


def test_version_1_control_groups_have_a_quota_too(tmp_path: Path) -> None:
    _write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000")
    _write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert detect(tmp_path).quota == 0.5
    _write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    assert detect(tmp_path).quota is None


@pytest.mark.parametrize("text", ["", "banana", "0-", "\x00\x01", "-1", "99999999999999999999"])
def test_unreadable_answers_are_unknown(server: Path, text: str) -> None:
    """Every file in turn answers nonsense; nothing may fail."""
    for path in sorted(path for path in server.rglob("*") if path.is_file()):
        before = path.read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        assert rows(detect(server))
        path.write_text(before, encoding="utf-8")


def test_this_machine() -> None:
    machine = detect()
    assert isinstance(machine, DetectedHost)
    assert 1 <= machine.usable_threads <= machine.threads
    assert machine.threads <= (os.cpu_count() or 1)
    assert to_dict(machine)["threads"] == machine.threads
    assert len(rows(machine)) >= 6
