"""SYNTONY_METRICS: exports this process's counters to Prometheus while it runs.

    SYNTONY_METRICS=9400               http://127.0.0.1:9400/metrics; the ranks of a host use consecutive ports
    SYNTONY_METRICS=0.0.0.0:9400       the same, for other machines too: anyone who reaches the port reads the counters
    SYNTONY_METRICS=DIR/rank_%r.prom   a file, rewritten every five seconds (node_exporter's textfile collector)

`%r`: the rank in the job, `%h`: the host's name, `%p`: the process id. The offset of a port is LOCAL_RANK, which
launchers set.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from syntony import _core
from syntony.base.command import UserError
from syntony.base.files.strict_json import FileError
from syntony.base.files.whole_file import write_text

INTERVAL = 5.0  # seconds between two updates of a file
_PORT = re.compile(r"(?:(?P<host>[^:/]+|\[[0-9a-fA-F:]+\]):)?(?P<port>\d+)")

_lock = threading.Lock()
_process = 0  # id of the process that already exports its counters


def offer_if_asked(rank: int) -> None:
    """Once per process. Raises UserError if the value is neither port nor file, or cannot be opened."""
    global _process
    wanted = os.environ.get("SYNTONY_METRICS", "")
    with _lock:
        if not wanted or _process == os.getpid():
            return
        place = address(wanted)
        if place is not None:
            _serve(*place)
        else:
            _write_on(_named(wanted, rank))
        _process = os.getpid()


def address(wanted: str) -> tuple[str, int] | None:
    """The listening address of PORT (on loopback) or HOST:PORT; None for anything else."""
    found = _PORT.fullmatch(wanted)
    return None if found is None else ((found["host"] or "127.0.0.1").strip("[]"), int(found["port"]))


def _named(pattern: str, rank: int) -> Path:
    values = {"%r": str(rank), "%h": socket.gethostname(), "%p": str(os.getpid()), "%%": "%"}
    return Path(re.sub("%[rhp%]", lambda found: values[found[0]], pattern))


def _serve(host: str, first: int) -> None:
    turn = os.environ.get("LOCAL_RANK", "")
    port = first + (int(turn) if turn.isdecimal() else 0)
    if not 0 < port < 1 << 16:
        raise UserError(f"SYNTONY_METRICS={first}: {port} is not a port; ports go from 1 to 65535")
    try:
        server = ThreadingHTTPServer((host, port), _Handler)
    except OSError as error:
        raise UserError(f"SYNTONY_METRICS: cannot listen on {host}:{port}: {error.strerror or error}") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="syntony-metrics", daemon=True).start()


def _write_on(path: Path) -> None:
    def write() -> None:
        try:
            write_text(path, _core.counters())
        except FileError as error:
            raise UserError(f"SYNTONY_METRICS: {error}") from None

    def again() -> None:
        process, stop = os.getpid(), threading.Event()
        while not stop.wait(INTERVAL) and os.getpid() == process:
            try:
                write()
            except UserError:
                return  # the folder is gone, so nobody reads the file

    write()
    threading.Thread(target=again, name="syntony-metrics", daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    timeout = 5.0  # seconds for a client that sends nothing

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(404)
            return
        body = _core.counters().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Does not log scrapes."""
