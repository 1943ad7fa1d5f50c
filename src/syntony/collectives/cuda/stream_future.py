"""How far a call on arrays in GPU memory has come that runs beside the caller's stream.

    under way ──▶ queued: its end is an event of the GPU         streams can wait for it, and hosts need not
             ╰──▶ failed

A stream can wait for an event only once it has been recorded: until then the host does.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from syntony.collectives.cuda.streams import current_stream

_GLANCE = 1e-4
"""Seconds between two looks at a GPU by a host that waits for so long and no longer."""


class StreamFuture:
    """Thread-safe."""

    source = -1
    """As of all collectives: nobody's."""

    def __init__(self, array: Any, device: int, check: Callable[[], object] = lambda: None) -> None:
        """`array`: whose library's streams are to wait. `check` raises what has gone wrong after it was queued."""
        self._array, self._device, self._check = array, device, check
        self._settled = threading.Event()
        self._end: Any = None
        self._failure: Exception | None = None

    # ---- for who carries it out, one of them, once

    def queued(self, end: Any) -> None:
        self._end = end
        self._settled.set()

    def failed(self, failure: Exception) -> None:
        self._failure = failure
        self._settled.set()

    # ---- for who wants it

    @property
    def done(self) -> bool:
        """Over, on the GPU too, or failed."""
        return self._settled.is_set() and (self._failure is not None or bool(self._end.done))

    def wait(self, timeout: float | None = None) -> bool:
        """What the library's current stream gets from here on comes after it; where there is no such stream, the host
        waits. Raises what has gone wrong so far. False when `timeout` seconds passed first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._settled.wait(timeout):
            return False
        if self._failure is not None:
            raise self._failure
        stream = current_stream(self._array, self._device)
        if stream is not None:
            self._end.precede(stream)
        elif deadline is None:
            self._end.synchronize()
        else:
            while not self._end.done:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_GLANCE)
        self._check()
        return True


class Held:
    """Arrays that a GPU may still be at work on: a library that gets them back may give their memory to others. They
    go when a later call finds that work ended. One thread's."""

    def __init__(self) -> None:
        self._held: deque[tuple[Any, Any]] = deque()

    def add(self, end: Any, arrays: Any) -> None:
        while self._held and self._held[0][0].done:
            self._held.popleft()
        self._held.append((end, arrays))

    def wait(self) -> None:
        """Until the GPU is through."""
        while self._held:
            self._held[0][0].synchronize()
            self._held.popleft()
