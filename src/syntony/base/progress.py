"""A progress line for work that takes over two seconds, on a terminal only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_SECONDS = 2.0
EACH_SECONDS = 1.0


@contextmanager
def progress(what: str | Callable[[], str], limit: float | None = None) -> Iterator[Callable[[float], None]]:
    """Shows `what` and the elapsed seconds on stderr while the body runs, from the third second on.

    what   a text, or a function that is asked for one each second
    limit  seconds after which the work stops by itself with its result so far; the line then shows how many are left
           at most

    The body may call the yielded function with the completed share of the work (0 to 1); the line then shows how many
    seconds are left at this pace.
    """
    done = [0.0]
    if not sys.stderr.isatty():
        yield lambda share: None
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(what, limit, done, ended), daemon=True)
    thread.start()
    try:
        yield lambda share: done.__setitem__(0, share)
    finally:
        ended.set()
        thread.join()


def line(what: str, gone: float, limit: float | None = None, share: float = 0.0) -> str:
    """ "forest: all_reduce on dgx1: 12 s; at most 48 s more", "tuning: 12 s; about 24 s more"."""
    if share > 0.0:
        return f"{what}: {gone:.0f} s; about {gone * (1.0 - share) / share:.0f} s more"
    if limit is None:
        return f"{what}: {gone:.0f} s"
    return f"{what}: {gone:.0f} s; at most {max(0.0, limit - gone):.0f} s more"


def _show(what: str | Callable[[], str], limit: float | None, done: list[float], ended: threading.Event) -> None:
    start = time.monotonic()
    if ended.wait(QUIET_SECONDS):
        return
    while True:
        now = what if isinstance(what, str) else what()
        print(f"\r\x1b[K{line(now, time.monotonic() - start, limit, done[0])}", end="", file=sys.stderr, flush=True)
        if ended.wait(EACH_SECONDS):
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            return
