"""The progress of a call on arrays in GPU memory that runs beside the caller's stream.

    under way ──▶ queued: its end is a GPU event                 streams can wait for it, hosts need not
             ╰──▶ failed

A stream can wait for an event only once the event has been recorded; until then the host waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from syntony.collectives.cuda.streams import current_stream

_GLANCE = 1e-4
"""Seconds between two polls of a GPU by a host that waits with a timeout."""


class StreamFuture:
    """Thread-safe."""

    source = -1
    """As for all collectives: no sender."""

    def __init__(self, array: Any, device: int, check: Callable[[], object] = lambda: None) -> None:
        """`array`: its library's streams will wait. `check` raises errors that occurred after the call was queued."""
        self._array, self._device, self._check = array, device, check
        self._settled = threading.Event()
        self._end: Any = None
        self._failure: Exception | None = None

    # ---- for the producer, called once

    def queued(self, end: Any) -> None:
        self._end = end
        self._settled.set()

    def failed(self, failure: Exception) -> None:
        self._failure = failure
        self._settled.set()

    # ---- for the consumer

    @property
    def done(self) -> bool:
        """Whether it has completed, on the GPU too, or failed."""
        return self._settled.is_set() and (self._failure is not None or bool(self._end.done))

    def wait(self, timeout: float | None = None) -> bool:
        """Makes later work on the library's current stream wait for the call; without such a stream, the host waits.
        Raises errors so far. False if `timeout` seconds pass first."""
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
    """Keeps arrays alive that a GPU may still use, since their library might reuse freed memory. They are released
    when a later call finds the work finished. For one thread."""

    def __init__(self) -> None:
        self._held: deque[tuple[Any, Any]] = deque()

    def add(self, end: Any, arrays: Any) -> None:
        while self._held and self._held[0][0].done:
            self._held.popleft()
        self._held.append((end, arrays))

    def wait(self) -> None:
        """Waits until the GPU is done."""
        while self._held:
            self._held[0][0].synchronize()
            self._held.popleft()
