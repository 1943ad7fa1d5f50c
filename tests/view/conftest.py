"""A browser for the tests of pages; they are skipped, with the reason, where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from syntony.__main__ import main
from syntony.benchmarks.view.browser import Browser, Page, executable
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


@pytest.fixture(scope="session")
def made(folder: Path) -> dict[tuple[str, ...], Path]:
    """Pages that have been made, by the words of the command."""
    del folder
    return {}


@pytest.fixture
def shown(browser: Browser, folder: Path, made: dict[tuple[str, ...], Path]) -> Callable[..., Page]:
    """The page of files, opened; nobody may complain, and nothing but the page itself may be asked for."""

    def show(*files: str | Path, state: str = "") -> Page:
        words = tuple(map(str, files))
        if words not in made:
            page = folder / f"page{len(made)}.html"
            assert main(["view", *words, "-o", str(page)]) == 0
            made[words] = page
        address = made[words].as_uri()
        opened = browser.open(f"{address}{state}")
        assert opened.complaints() == []
        assert opened.requests() == [address]
        return opened

    return show
