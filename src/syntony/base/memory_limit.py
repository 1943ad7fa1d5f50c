"""A limit on memory that holds whatever a solver does: a process of its own, watched from outside.

    parent   watches the child's resident memory; ends it past the limit, with one sentence
    child    goes on with the work, as if nothing had happened

Solvers are other people's C++: refused memory would abort them in the middle of a word. So nothing is refused; who
takes too much is ended. Files are written beside their place and then renamed, so none is left half written.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path

from syntony.base.command import UserError

_WATCH = 0.02
"""Seconds between two looks."""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def limit_memory(limit: int, what: str) -> None:
    """From here on a child does the work within `limit` bytes; this returns in the child only.

    In the parent it exits with the child's code, or raises UserError about `what` when the child takes more.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        raise SystemExit(_watched(child, limit, what))
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _watched(child: int, limit: int, what: str) -> int:
    """The exit code of the child."""
    statm = Path(f"/proc/{child}/statm")
    page = resource.getpagesize()
    while True:
        try:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if int(statm.read_text().split()[1]) * page > limit:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise UserError(f"{what} takes more than the {limit >> 20} MiB that --memory allows")
            time.sleep(_WATCH)
        except KeyboardInterrupt:
            continue  # The child was interrupted too, and says so itself.
