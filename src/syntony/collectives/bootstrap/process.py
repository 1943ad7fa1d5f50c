"""The one runtime of this operating system process, shared by all groups, whichever API made them."""

from __future__ import annotations

import atexit
import threading

from syntony._core import Process

_lock = threading.Lock()
_current: Process | None = None


def current() -> Process:
    """The Process of this process, made on first use and anew in a forked child.

    At exit its groups are closed while the interpreter still works, so a script may simply end.
    """
    global _current
    with _lock:
        if _current is None or _current.forked:
            _current = Process()
            atexit.register(_current.close)  # does nothing in a forked child
        return _current
