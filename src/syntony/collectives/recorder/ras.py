"""SYNTONY_RAS: a running job answers clients of NCCL's RAS (`ncclras`), in lines over TCP.

    SYNTONY_RAS=28028            on every host, on loopback: NCCL's own port, so that `ncclras` finds it
    SYNTONY_RAS=0.0.0.0:28028    for other machines too: anyone who reaches the port reads what the job does

    client                                      the first process of a host that gets the port
    CLIENT PROTOCOL 2  ------------------->
                       <-------------------     SERVER PROTOCOL 2
    TIMEOUT 3          ------------------->     seconds to wait for other ranks
                       <-------------------     OK
    SET FORMAT json    ------------------->     or text
                       <-------------------     OK
    STATUS             ------------------->     or VERBOSE STATUS
                       <-------------------     the report, then the end of the connection
    MONITOR            ------------------->
                       <-------------------     OK, then a line whenever something changes

The protocol is that of src/ras/client.cc in NCCL 2.28 and later. The server asks ranks for their records as `syntony
trace --now` does, through SYNTONY_TRACE_DIR, which all hosts must share for a report about all of them.
"""

from __future__ import annotations

import errno
import json
import os
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from syntony.base.command import UserError
from syntony.base.text_table import aligned
from syntony.base.wording import counted, in_ranges, installed_version
from syntony.collectives.recorder.fresh import fresh
from syntony.collectives.recorder.metrics import address
from syntony.collectives.recorder.records import Dump, findings
from syntony.collectives.recorder.verdict import slow

PROTOCOL = 2  # NCCL's
PATIENCE = 5.0  # seconds, unless a client sets it; as in NCCL
INTERVAL = 5.0  # seconds between two polls of a monitor
_LONGEST = 1024  # bytes of a line
_OLD = 30.0  # seconds; an older record means that its rank does not answer

_lock = threading.Lock()
_process = 0  # id of the process that has already tried to get the port


def answer_if_asked() -> None:
    """Once per process. Raises UserError if the value is not a port, or without SYNTONY_TRACE_DIR."""
    global _process
    wanted = os.environ.get("SYNTONY_RAS", "")
    with _lock:
        if not wanted or _process == os.getpid():
            return
        place = address(wanted)
        if place is None or not 0 < place[1] < 1 << 16:
            raise UserError(f"SYNTONY_RAS={wanted} should be PORT or HOST:PORT, as in SYNTONY_RAS=28028")
        folder = os.environ.get("SYNTONY_TRACE_DIR", "")
        if not folder:
            raise UserError("SYNTONY_RAS needs SYNTONY_TRACE_DIR, the folder through which ranks are asked")
        _process = os.getpid()
        try:
            server = _Server(place, _Client)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return  # another rank of this host answers
            raise UserError(f"SYNTONY_RAS: cannot listen on {wanted}: {error.strerror or error}") from None
        server.folder = Path(folder)
        threading.Thread(target=server.serve_forever, name="syntony-ras", daemon=True).start()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    folder: Path


class _Client(socketserver.StreamRequestHandler):
    server: _Server
    patience = PATIENCE
    form = "text"

    def handle(self) -> None:
        self.connection.settimeout(60.0)  # for a client that sends nothing
        try:
            while line := self.rfile.readline(_LONGEST):
                if not self._done(line.decode(errors="replace").strip()):
                    return
        except OSError:
            return  # the client has gone

    def _done(self, command: str) -> bool:
        """Answers a command. False if the conversation ends with this answer."""
        verb = command.lower()
        if verb.startswith("client protocol "):
            self._say(f"SERVER PROTOCOL {PROTOCOL}")
        elif verb.startswith("timeout "):
            if verb[8:].isdecimal():
                self.patience = float(verb[8:]) or 3600.0  # 0: no timeout
                self._say("OK")
            else:
                self._say(f"ERROR: Invalid timeout value {command[8:]}")
        elif verb in ("set format text", "set format json"):
            self.form = verb.split()[-1]
            self._say("OK")
        elif verb in ("status", "verbose status"):
            self._say(self._status(verb != "status"))
            return False
        elif verb.partition(" ")[0] == "monitor":
            self._say("OK")
            self._monitor()
            return False
        else:
            self._say(f"ERROR: Unknown command {command}")
        return True

    def _say(self, text: str) -> None:
        self.wfile.write((text + "\n").encode())

    def _status(self, verbose: bool) -> str:
        begin = time.monotonic()
        try:
            dumps = fresh(self.server.folder, self.patience)
        except UserError as error:
            return json.dumps({"error": str(error)}) if self.form == "json" else f"ERROR: {error}"
        took = time.monotonic() - begin
        return json.dumps(report(dumps, took), indent=2) if self.form == "json" else text(dumps, took, verbose)

    def _monitor(self) -> None:
        known: set[str] = set()
        while True:
            try:
                now = set(_wrong(fresh(self.server.folder, self.patience)))
            except UserError as error:
                now = {str(error)}
            for what, sentences in (("", now - known), ("no longer: ", known - now)):
                for sentence in sorted(sentences):
                    self._say(f"{time.strftime('%H:%M:%S')} {what}{sentence}")
            known = now
            time.sleep(INTERVAL)


def report(dumps: Sequence[Dump], took: float) -> dict[str, Any]:
    """NCCL's RAS report in JSON, with the fields that apply here, and our `findings` in sentences."""
    newest = max(dump.wall for dump in dumps)
    communicators = []
    for name, members in _groups(dumps):
        ranks, missing = [], []
        by_rank = {dump.rank: dump for dump in dumps}
        for place, rank in enumerate(members):
            dump = by_rank.get(rank)
            group = None if dump is None else next((one for one in dump.groups if one.name == name), None)
            if dump is None or group is None or newest - dump.wall > _OLD:
                who = {"host": "unknown", "pid": 0} if dump is None else {"host": dump.host, "pid": dump.process}
                missing.append({"rank": place, **who, "status": {"unresponsive": True, "considered_dead": False}})
                continue
            status = {"init_state": 0, "async_error": int(bool(group.failure)), "abort_flag": bool(group.failure)}
            counts = {"launched": group.launched}
            ranks.append(
                {"rank": place, "host": dump.host, "pid": dump.process, "status": status, "collective_counts": counts}
            )
        communicators.append(
            {
                "hash": name,
                "size": len(members),
                "ranks_count": len(ranks),
                "missing_ranks_count": len(missing),
                "ranks": ranks,
                "missing_ranks": missing,
            }
        )
    return {
        "syntony_version": installed_version(),
        "timestamp": time.strftime("%Y-%m-%d %H:%M:%S"),
        "communicators_count": len(communicators),
        "communicators": communicators,
        "findings": list(_wrong(dumps)),
        "ras": {"collection_time_sec": round(took, 3), "timeouts_count": 0},
    }


def text(dumps: Sequence[Dump], took: float, verbose: bool) -> str:
    """The same report as text."""
    hosts = Counter(dump.host for dump in dumps)
    groups: list[tuple[object, ...]] = [("group", "ranks", "hosts", "collectives", "status")]
    for name, members in _groups(dumps):
        there = [(dump, one) for dump in dumps for one in dump.groups if (one.name, one.members) == (name, members)]
        launched = sorted({one.launched for _, one in there})
        failed = [one.failure for _, one in there if one.failure]
        count = str(launched[-1]) if len(launched) == 1 else f"{launched[0]}-{launched[-1]}"
        status = "failed" if failed else "running" if len(there) == len(members) else "incomplete"
        groups.append((name, len(members), len({dump.host for dump, _ in there}), count, status))
    told = list(_wrong(dumps))
    lines = [
        f"Syntony {installed_version()}",
        f"{counted(len(dumps), 'process')} on {counted(len(hosts), 'host')}, asked in {took:.3f} s",
        "",
        *aligned(groups, "<>>><"),
        "",
        *(told or ["all ranks have come equally far, none is slow, and no wire"]),
    ]
    if verbose:
        by_host = [f"{host}: {in_ranges(sorted(one.rank for one in dumps if one.host == host))}" for host in hosts]
        lines += ["", *by_host]
    return "\n".join(lines)


def _groups(dumps: Sequence[Dump]) -> list[tuple[str, tuple[int, ...]]]:
    return list(dict.fromkeys((group.name, group.members) for dump in dumps for group in dump.groups))


def _wrong(dumps: Sequence[Dump]) -> Iterator[str]:
    yield from findings(dumps)
    yield from slow(dumps).values()
