"""What every test shares: threads, reproducible randomness, no example database in the tree, turns at this machine."""

from __future__ import annotations

import fcntl
import gc
import os
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from tests import sampled

# Read when numpy and torch are imported, here and in what tests start. What tests multiply is small: threads would
# spin for one another, on processors of other workers; and a process with threads had better not fork.
os.environ["OMP_NUM_THREADS"] = "1"

settings.register_profile("here", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_configure(config: pytest.Config) -> None:
    """Before test modules are read."""
    sampled.SWEEPING = "not sweep" not in config.option.markexpr
    settings.register_profile("whole", settings.default, max_examples=100)
    settings.register_profile("sample", settings.default, max_examples=33)
    settings.load_profile("whole" if sampled.SWEEPING else "sample")


_OF_THE_MACHINE = Path(tempfile.gettempdir())


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_are_the_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What torch and others leave in the temporary folder (stores, logs) goes with pytest's own folders."""
    folder = str(tmp_path_factory.mktemp("tmp", numbered=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those marked `wires` come first, so that one worker has them all and none waits for another. Those marked `alone`
    come last: what they keep waiting is little then."""

    def place(item: pytest.Item) -> int:
        return (item.get_closest_marker("alone") is not None) - (item.get_closest_marker("wires") is not None)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What has been read stays until the end: no collection of garbage, here or in what is forked, need look at it."""
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of everything that measures how long a test takes
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Beside a test marked `alone` no other worker of a session runs one. Of those marked `wires` one runs at a time,
    on all of the machine."""
    with ExitStack() as held:
        if item.get_closest_marker("wires") is not None:
            held.enter_context(_lock(_OF_THE_MACHINE / f"syntony-wires-{os.getuid()}", fcntl.LOCK_EX))
        if "PYTEST_XDIST_WORKER" in os.environ:
            session: Path = item.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
            exclusive = item.get_closest_marker("alone") is not None
            with _lock(session / "entry", fcntl.LOCK_EX):  # who waits for all others is not overtaken
                held.enter_context(_lock(session / "running", fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH))
        return (yield)


@contextmanager
def _lock(path: Path, kind: int) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, kind)
        yield
