"""The lab's requests to the kernel, through iproute2 and a few system calls. Needs root."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from syntony.lab.lab_spec import LabError

_T = TypeVar("_T")
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000


def require_tools() -> None:
    """Raises LabError that says what to do if this process is not root or iproute2 is missing."""
    if os.geteuid() != 0:
        raise LabError("the lab makes network namespaces, which only root may; run it with sudo")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise LabError(
                f"the lab needs the command {tool}; install iproute2 "
                "(apt-get install iproute2, dnf install iproute-tc, apk add iproute2)"
            )


def run(command: Sequence[str], batch: Sequence[str] | None = None) -> str:
    """Runs `command` with `batch` as its input, and returns its output. Raises LabError if it fails."""
    text = None if batch is None else "\n".join(batch) + "\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        failed = next((line for line in lines if line.startswith("Command failed -:")), "")
        if batch and failed:
            number = int(failed.rpartition(":")[2])
            command = [*command[:1], batch[number - 1]]
        raise LabError(_refused(f"`{' '.join(command)}` failed", lines[0] if lines else f"exit code {done.returncode}"))
    return done.stdout


def _refused(what: str, why: str) -> str:
    """The sentence for a request that the kernel refuses; it says what may be missing if root was not enough."""
    hint = "; in a container, even root needs more for this (docker run --privileged)"
    return f"{what}: {why}{hint if 'Operation not permitted' in why or 'Read-only' in why else ''}"


def ip(namespace: str, batch: Sequence[str]) -> None:
    """Runs lines of `ip` in a namespace."""
    run(["ip", "-n", namespace, "-batch", "-"], batch)


def tc(namespace: str, batch: Sequence[str]) -> None:
    """Runs lines of `tc` in a namespace."""
    run(["tc", "-n", namespace, "-batch", "-"], batch)


def processes_in(namespace: str) -> list[int]:
    """The processes in the network namespace `namespace`."""
    return [int(word) for word in run(["ip", "netns", "pids", namespace]).split()]


def inside(namespace: str, work: Callable[[], _T]) -> _T:
    """Runs `work()` in `namespace` and returns its result. Sockets that it opens stay in the namespace.

    Only a temporary thread enters the namespace. `work` must not start processes that end with their parent, because
    that thread is the parent.
    """
    outcome: list[_T] = []
    failure: list[BaseException] = []

    def move_and_work() -> None:
        try:
            descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(descriptor, _CLONE_NEWNET) != 0:
                    raise LabError(f"cannot enter {namespace}: {os.strerror(ctypes.get_errno())}")
            finally:
                os.close(descriptor)
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=move_and_work, name=f"in {namespace}")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def set_parameters(namespace: str, parameters: dict[str, str]) -> None:
    """Sets network parameters of a namespace: paths below /proc/sys/net. Skips those that the kernel lacks."""

    def write() -> None:
        for name, value in parameters.items():
            path = Path("/proc/sys/net") / name
            try:
                if path.exists():
                    path.write_text(value)
            except OSError as error:
                raise LabError(_refused(f"cannot set {path} to {value} in {namespace}", str(error.strerror))) from None

    inside(namespace, write)


def open_tun(namespace: str, device: str) -> int:
    """A new device in `namespace`; this process reads and writes its packets at the descriptor returned.

    The device is removed with the last descriptor. Raises LabError if the kernel has no TUN.
    """

    def attach() -> int:
        try:
            descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise LabError(
                f"wires with a delay need /dev/net/tun: {error.strerror}; load the module (modprobe tun), "
                "or give the container the device"
            ) from None
        try:
            fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI))
        except OSError as error:
            os.close(descriptor)
            raise LabError(f"cannot make the TUN device {device}: {error.strerror}") from None
        return descriptor

    return inside(namespace, attach)
