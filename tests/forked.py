"""Processes that begin in milliseconds, as the interpreter has been started once already.

    pytest --(a socket)--> fork server: has imported what its processes need --(fork)--> a process per start()

There are two servers, each started when first asked: a process that comes with torch takes five times as long to fork
and to end (30 ms) as one that comes with the core alone.

Environment and output are their own. A process whose work returns ends after its exit handlers; one that calls
sys.exit ends as a script does, with all destructors. Where start or end is the matter itself, a test starts Python.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing import forkserver, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from unittest.mock import patch


def _server(preloaded: str) -> forkserver.ForkServer:
    server = forkserver.ForkServer()
    server.set_forkserver_preload([preloaded])
    return server


_CORE, _TORCH = _server("tests.preloaded"), _server("tests.preloaded_torch")
_STARTING = threading.Lock()


def start(
    work: Callable[..., int | None],
    *arguments: Any,
    environment: Mapping[str, str],
    output: str,
    errors: str,
    torch: bool = False,
) -> BaseProcess:
    """Runs `work(*arguments)`, an importable function, whose value is the exit code. `output` and `errors`: files.
    `torch`: whether it is imported already."""
    process = get_context("forkserver").Process(target=_live, args=(work, arguments, dict(environment), output, errors))
    server = _TORCH if torch else _CORE
    # multiprocessing knows one server, by this function.
    with _STARTING, patch.object(forkserver, "connect_to_new_process", server.connect_to_new_process):
        process.start()
    return process


def run(
    work: Callable[..., int | None], *arguments: Any, timeout: float = 120.0, torch: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run(): what start() printed, and how it ended."""
    with NamedTemporaryFile() as output, NamedTemporaryFile() as errors:
        variables = os.environ | environment
        process = start(work, *arguments, environment=variables, output=output.name, errors=errors.name, torch=torch)
        process.join(timeout)
        if process.is_alive():
            process.kill()
        process.join()
        said = (Path(file.name).read_text(errors="replace") for file in (output, errors))
        return subprocess.CompletedProcess([work.__name__, *map(str, arguments)], process.exitcode or 0, *said)


def _live(
    work: Callable[..., int | None], arguments: tuple[Any, ...], environment: dict[str, str], output: str, errors: str
) -> None:
    for number, path in ((1, output), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    try:
        code = work(*arguments)
    except SystemExit as end:
        ctypes.pythonapi.Py_Exit(end.code if isinstance(end.code, int) else int(bool(end.code)))
    sys.exit(code)  # multiprocessing runs the exit handlers, and no destructors
