"""The labs of this machine: each has a short id that all its names contain, and a record that outlives its process.

The record is a file that its lab keeps locked. The kernel drops the lock when the process ends, however that happens.
So a record that can be locked belongs to a lab that is gone, even if its process id is in use again.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from syntony.lab.lab_spec import LabError
from syntony.lab.wires import kernel

RECORDS = Path("/run/syntony-lab")
_PREFIX = "syntony-"


@dataclass(frozen=True)
class Record:
    """What is known of a lab. `process` 0: its record is lost. `started`: seconds since 1970."""

    id: str
    topology: str
    process: int
    started: float


class Run:
    """This process's own lab, as long as it is open."""

    def __init__(self, topology: str) -> None:
        """Takes a new id and writes the record. Raises LabError if it cannot be written."""
        try:
            RECORDS.mkdir(mode=0o755, parents=True, exist_ok=True)
            while True:
                self.record = Record(secrets.token_hex(2), topology, os.getpid(), time.time())
                self._path = RECORDS / self.record.id
                draft = RECORDS / f".{self.record.id}"
                try:
                    self._lock = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o644)
                except FileExistsError:
                    continue
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                os.write(self._lock, json.dumps(asdict(self.record)).encode())
                try:
                    os.link(draft, self._path)  # unlike a rename, it never overwrites
                    return
                except FileExistsError:
                    os.close(self._lock)
                finally:
                    draft.unlink()
        except OSError as error:
            raise LabError(f"cannot write the lab's record in {RECORDS}: {error.strerror}") from None

    @property
    def id(self) -> str:
        return self.record.id

    def namespace(self, machine: str) -> str:
        return f"{_PREFIX}{self.id}-{machine}"

    def close(self) -> None:
        """Removes the rest of the lab, then its record."""
        remove(self.id)
        os.close(self._lock)


def records() -> Iterator[tuple[Record, bool]]:
    """Every lab of this machine, and whether its process is alive."""
    namespaces = _all_namespaces()  # before the records: of a lab that begins meanwhile, the record is there first
    known = set()
    for path in sorted(RECORDS.glob("[!.]*")) if RECORDS.is_dir() else []:
        known.add(path.name)
        yield _read(path), _locked(path)
    for lost in sorted({name.removeprefix(_PREFIX).split("-")[0] for name in namespaces} - known):
        yield Record(lost, "?", 0, 0.0), False


def namespaces_of(run: str) -> list[str]:
    """The existing namespaces of lab `run`."""
    return [name for name in _all_namespaces() if name.startswith(f"{_PREFIX}{run}-")]


def remove_left_behind() -> list[Record]:
    """Removes every lab whose process has ended without doing so, and returns them. One process at a time does this."""
    RECORDS.mkdir(mode=0o755, parents=True, exist_ok=True)
    lock = os.open(RECORDS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        left = [record for record, alive in records() if not alive]
        for record in left:
            remove(record.id)
    finally:
        os.close(lock)
    return left


def remove(run: str) -> None:
    """Ends every process in the namespaces of lab `run`, removes the namespaces with their devices, and the record."""
    for namespace in namespaces_of(run):
        deadline = time.monotonic() + 5
        while (processes := kernel.processes_in(namespace)) and time.monotonic() < deadline:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, 9)
            time.sleep(0.01)
        kernel.run(["ip", "netns", "delete", namespace])
    (RECORDS / run).unlink(missing_ok=True)


def _all_namespaces() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    return sorted(line.split()[0] for line in listed.splitlines() if line.startswith(_PREFIX))


def _read(path: Path) -> Record:
    try:
        return Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return Record(path.name, "?", 0, 0.0)


def _locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
