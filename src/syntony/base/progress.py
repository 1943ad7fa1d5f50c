"""A progress line for work that takes over two seconds, on a terminal only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_SECONDS = 2.0


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Shows `what` and the seconds gone on stderr while the body runs, from the third second on."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(what, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show(what: str, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(QUIET_SECONDS):
        return
    while True:
        print(f"\r{what}: {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
        if done.wait(1.0):
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            return
