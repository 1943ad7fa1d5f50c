"""Processes that begin in milliseconds, as the interpreter has been started once already.

    pytest --(a socket)--> fork server: has imported preloaded.py --(fork)--> a process per start()

Environment and output are their own. A process whose work returns ends after its exit handlers; one that calls
sys.exit ends as a script does, with all destructors. Where start or end is the matter itself, a test starts Python.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

_SERVER = get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.preloaded"])


def start(
    work: Callable[..., int | None], *arguments: Any, environment: Mapping[str, str], output: str, errors: str
) -> BaseProcess:
    """Runs `work(*arguments)`, an importable function, whose value is the exit code. `output` and `errors`: files."""
    process = _SERVER.Process(target=_live, args=(work, arguments, dict(environment), output, errors))
    process.start()
    return process


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
