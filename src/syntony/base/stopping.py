"""Ctrl-C, SIGTERM and SIGHUP: all three unwind the main thread, so that resources are released on the way out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end. `code` is the corresponding exit code."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


@contextmanager
def stopping_by_signals() -> Iterator[None]:
    """Inside the context, the signals raise Stopped in the main thread. Ignored signals (nohup) stay ignored.

    Has no effect in another thread, which cannot set signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: object) -> None:
        raise Stopped(number)

    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def be_a_child() -> None:
    """For a forked process that its parent ends: ignores Ctrl-C, which the parent handles; SIGTERM, SIGHUP kill it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
