"""The bench's side of an MPI peer: starts its processes, and has them do what a contender in this process would do.

Each bench rank talks to the MPI rank of its number. Both check and time with the same code (bench/measurement.py), on
memory of their own.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from syntony.base.command import UserError
from syntony.benchmarks.bench.measurement import Case
from syntony.benchmarks.mpi.lab_hosts import LabHosts
from syntony.benchmarks.mpi.libraries import LIBRARIES
from syntony.benchmarks.mpi.rank import fields_of
from syntony.collectives.bootstrap.launch import Exchange, RankError

_LINGER = 10.0  # seconds that mpiexec has to end


class RemotePeer:
    """One rank's line to an MPI peer. Making one is collective; all ranks must be on one host, or each on one
    of `lab`.

    `timeout`: seconds without an answer. UserError where the library is not installed, RankError where it fails.
    """

    def __init__(self, exchange: Exchange, name: str, timeout: float, lab: LabHosts | None = None) -> None:
        self.label = name
        self._rank, self._timeout = exchange.rank, timeout
        self._mpiexec: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        library = LIBRARIES[name]
        library.require()
        with tempfile.TemporaryDirectory(prefix="syntony-") as folder, socket.socket(socket.AF_UNIX) as listener:
            path = str(Path(folder) / "peer")
            listener.bind(path)
            listener.listen(1)
            listener.settimeout(1.0)
            host = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            seats = exchange.all_gather(f"peer {name}", f"{host} {path}".encode())
            hosts, paths = zip(*(seat.decode().split(" ", 1) for seat in seats), strict=True)
            if len(set(hosts)) > 1:
                raise UserError(f"peer {name} runs on one host; these ranks are on {len(set(hosts))}")
            if exchange.rank == 0:
                self._said = tempfile.TemporaryFile()  # noqa: SIM115  as long as this object
                program = (sys.executable, "-m", "syntony.benchmarks.mpi.rank", name, *paths)
                self._mpiexec = subprocess.Popen(
                    library.command(exchange.size, program, lab),
                    env=library.environment(exchange.size, lab),
                    stdin=subprocess.DEVNULL,
                    stdout=self._said,
                    stderr=subprocess.STDOUT,
                )
            self._connection = self._accept(listener)
        self._connection.settimeout(timeout)
        self._answers = self._connection.makefile("r")

    def measurement(self, case: Case, in_place: bool) -> RemoteMeasurement | None:
        """As local_measurement's."""
        measurement = RemoteMeasurement(self, case, in_place)
        return measurement if self.ask(measurement, "has") else None

    def ask(self, measurement: RemoteMeasurement, method: str, *arguments: int) -> Any:
        """The MPI rank's answer. RankError when there is none."""
        request = {
            "method": method,
            "case": fields_of(measurement.case),
            "in_place": measurement.in_place,
            "arguments": arguments,
        }
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            line = self._answers.readline()
        except TimeoutError:
            raise RankError(
                f"peer {self.label}: its rank {self._rank} gave no answer for {self._timeout:g} s"
            ) from None
        except OSError:
            line = ""
        if not line:
            raise RankError(f"peer {self.label}: its rank {self._rank} has ended{self._last_words()}")
        return json.loads(line)

    def close(self) -> None:
        self._answers.close()
        self._connection.close()  # its rank reads the end of the requests, and ends
        self._end()

    def _accept(self, listener: socket.socket) -> socket.socket:
        waited = 0.0
        while waited < self._timeout:
            with suppress(TimeoutError):
                return listener.accept()[0]
            waited += 1.0
            if self._mpiexec is not None and self._mpiexec.poll() is not None:
                break
        words = self._last_words()
        self._end()
        raise RankError(f"peer {self.label}: its rank {self._rank} did not start{words}")

    def _last_words(self) -> str:
        if self._said is None:
            return ""
        self._said.seek(0)
        lines = [line.strip() for line in self._said.read().decode(errors="replace").splitlines()]
        telling = [line for line in lines if "rror" in line] or [line for line in lines if line] or [""]
        return f": {telling[0]}" if telling[0] else ""

    def _end(self) -> None:
        if self._mpiexec is None or self._said is None:
            return
        try:
            self._mpiexec.wait(_LINGER)
        except subprocess.TimeoutExpired:
            self._mpiexec.terminate()
            self._mpiexec.wait()
        self._said.close()


@dataclass(frozen=True)
class RemoteMeasurement:
    """A measurement that runs in the peer's process."""

    peer: RemotePeer
    case: Case
    in_place: bool

    def check(self, times: int) -> int | None:
        wrong: int | None = self.peer.ask(self, "check", times)
        return wrong

    def lap(self, warmups: int, iterations: int, fresh: bool = False) -> list[int]:
        durations: list[int] = self.peer.ask(self, "lap", warmups, iterations, fresh)
        return durations
