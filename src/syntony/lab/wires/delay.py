"""Wires with latency or packet loss: TUN devices at both ends, and one process that forwards packets.

    h0 w0 (TUN) ── read ── waits 1 ms ── write ── (TUN) w0 s0        csrc/emulation/delay/delay_line.hpp does it

The kernel's own mechanism (netem) is missing from many kernels. The process has real-time priority if permitted, so
that the delay is constant on a busy machine. It ends when its standard input closes, that is, with the lab.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

from syntony.lab.lab_spec import LabError, LabSpec
from syntony.lab.wires import kernel


@dataclass(frozen=True)
class DelayFigures:
    """Packets forwarded, dropped on purpose and lost; and in seconds, how much later than due they came out."""

    packets: int
    dropped: int
    lost: int
    mean_lateness: float
    worst_lateness: float


class DelayLine:
    """All wires of a lab with delay or packet loss."""

    def __init__(self, spec: LabSpec, namespace: Callable[[str], str]) -> None:
        """Makes the devices of these wires, up to `configure`. Raises LabError if the kernel has no TUN."""
        wires, descriptors = [], []
        try:
            for wire in spec.wires:
                if wire.by_process:
                    ends = []
                    for end in wire.ends:
                        ends.append(kernel.open_tun(namespace(spec.machines[end.machine].name), wire.name))
                        descriptors.append(ends[-1])
                    wires.append(f"{ends[0]}:{ends[1]}:{wire.delay}:{wire.loss}")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "syntony.lab.wires.delay", *wires],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=descriptors,
                start_new_session=True,  # Ctrl-C must reach only the lab
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def close(self) -> DelayFigures:
        """Ends the process. Raises LabError if it has failed."""
        out, errors = self._process.communicate()
        if self._process.returncode:
            raise LabError(f"the delay line failed: {errors.decode(errors='replace').strip().splitlines()[-1:]}")
        return DelayFigures(**json.loads(out))


def main(words: list[str]) -> int:
    from syntony._emulation import run_delay_line

    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    wires = []
    for word in words:
        one, other, seconds, loss = word.split(":")
        wires.append((int(one), int(other), float(seconds), float(loss)))
    print(json.dumps(asdict(DelayFigures(*run_delay_line(wires, sys.stdin.fileno())))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
