"""Ranks that are threads of this process: a group for one test, or one that is kept for many."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from syntony import Communicator, LocalBootstrap

T = TypeVar("T")


def together(size: int, work: Callable[[LocalBootstrap], T]) -> list[T]:
    """What `work` returns on each rank of a local group. When all have ended, their failures are raised as a group."""
    with ThreadPoolExecutor(size) as threads:
        told = [threads.submit(work, bootstrap) for bootstrap in LocalBootstrap.group(size)]
    failures = [failure for each in told if (failure := each.exception())]
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {size} ranks failed", failures)
    return [each.result() for each in told]


def on_ranks(size: int, job: Callable[[Communicator], T]) -> list[T]:
    """What `job` returns on each rank of a group; failures as together()'s."""

    def work(bootstrap: LocalBootstrap) -> T:
        with Communicator.create(bootstrap, timeout=60.0) as group:
            return job(group)

    return together(size, work)


class Ranks:
    """`run(job)` calls job(communicator) on all ranks at once; after a failure the group is spent."""

    def __init__(self, size: int, timeout: float = 60.0) -> None:
        self.size = size
        self._threads = ThreadPoolExecutor(size)
        meet = [
            self._threads.submit(Communicator.create, bootstrap, timeout, "kept")
            for bootstrap in LocalBootstrap.group(size)
        ]
        self.groups = [future.result() for future in meet]

    def run(self, job: Callable[[Communicator], T]) -> list[T]:
        """What `job` returned on each rank; the first failure ends the group, so that nobody waits for it."""

        def guarded(group: Communicator) -> T:
            try:
                return job(group)
            except BaseException as failure:
                group.abort(f"a test failed: {failure!r}")
                failures.append(failure)
                raise

        failures: list[BaseException] = []
        futures = [self._threads.submit(guarded, group) for group in self.groups]
        wait(futures)
        if failures:
            raise failures[0]
        return [future.result() for future in futures]

    def close(self) -> None:
        wait([self._threads.submit(group.close) for group in self.groups])
        self._threads.shutdown()
