"""A browser for the tests of pages; they are skipped, with the reason, where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from syntony.benchmarks.view.browser import Browser, executable


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if executable() is None:
        pytest.skip("no browser on the path; Debian's package chromium is one")
    with Browser() as running:
        yield running
