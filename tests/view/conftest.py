"""A browser for the tests of pages; they are skipped, with the reason, where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syntony.benchmarks.view.browser import Browser, executable
from tests.view.files import write_all


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if executable() is None:
        pytest.skip("no browser on the path; Debian's package chromium is one")
    with Browser() as running:
        yield running


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("views")


@pytest.fixture(scope="session")
def files(folder: Path) -> dict[str, list[str]]:
    """The arguments that name a file of each kind."""
    return write_all(folder)
