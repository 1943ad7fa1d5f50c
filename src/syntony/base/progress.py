"""A progress line for work that takes over two seconds, on a terminal only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_SECONDS = 2.0


@contextmanager
def progress(what: str, limit: float | None = None) -> Iterator[None]:
    """Shows `what` and the seconds gone on stderr while the body runs, from the third second on.

    limit  seconds after which the work ends by itself with what it has: it is then said how many are left
    """
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(what, limit, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def line(what: str, gone: float, limit: float | None) -> str:
    """ "forest: all_reduce on dgx1: 12 s; at most 48 s more"."""
    if limit is None:
        return f"{what}: {gone:.0f} s"
    return f"{what}: {gone:.0f} s; at most {max(0.0, limit - gone):.0f} s more"


def _show(what: str, limit: float | None, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(QUIET_SECONDS):
        return
    while True:
        print(f"\r\x1b[K{line(what, time.monotonic() - start, limit)}", end="", file=sys.stderr, flush=True)
        if done.wait(1.0):
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            return
