"""Pages in a real browser: each kind of file opens without a complaint and asks no network for anything; what it shows
is what the file says; questions are answered in two clicks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from syntony.__main__ import main
from syntony.base.wording import time
from syntony.benchmarks.view.browser import Browser, Page
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.registry import engine_named
from syntony.synth.formats import schedule_file
from syntony.synth.formats.loading import read
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.simulation.usual_slice import usual_slice
from syntony.topologies.parse import parse

SIZE = 1 << 26


def synthesized(topology: str, kind: str, engine: str) -> Schedule:
    wires = parse(topology)
    return engine_named(engine).run(wires, Collective.make(kind, wires.ranks), SIZE, Budget(30))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("views")


@pytest.fixture(scope="session")
def schedules(folder: Path) -> dict[str, Path]:
    """Two schedules for the same wires, in files."""
    made = {}
    for engine in ("forest", "greedy"):
        made[engine] = folder / f"{engine}.json"
        schedule_file.write(synthesized("dgx1", "all_gather", engine), made[engine])
    return made


@pytest.fixture
def shown(browser: Browser, folder: Path) -> Callable[..., Page]:
    """The page of files, opened; nobody may complain, and nothing but the page itself may be asked for."""

    def show(*files: str | Path, options: tuple[str, ...] = (), state: str = "") -> Page:
        page = folder / "page.html"
        assert main(["view", *map(str, files), *options, "--force", "-o", str(page)]) == 0
        opened = browser.open(f"{page.as_uri()}{state}")
        assert opened.complaints() == []
        assert opened.requests() == [page.as_uri()]
        return opened

    return show


def text(page: Page, selector: str) -> str:
    return str(page.run(f"document.querySelector({selector!r}).textContent"))


def test_a_page_without_data_is_small(folder: Path) -> None:
    from syntony.view.page import page

    assert len(page([])) <= 1.5e6


def test_a_topology(shown: Callable[..., Page]) -> None:
    page = shown("torus:3x3")
    assert text(page, "h1") == "torus:3x3"
    assert page.run("syntony.views[0].panels[0].link_src.length") == 36
    page.click(".questions button")
    assert "bottleneck cut" in text(page, ".answer") or "links with a price" in text(page, ".answer")
    assert page.run("syntony.state.highlight") == 0
    page.close()


def test_scrubbing_moves_chunks_and_numbers_are_the_files(
    shown: Callable[..., Page], schedules: dict[str, Path]
) -> None:
    page = shown(schedules["forest"])
    schedule = read(schedules["forest"]).content
    assert isinstance(schedule, Schedule)
    found = simulate(schedule, SIZE, usual_slice(schedule, SIZE), every_message=True)
    assert time(found.seconds) in text(page, ".headline")
    assert page.run("syntony.views[0].panels[0].motion.seconds") == found.seconds
    assert page.run("syntony.views[0].panels[0].motion.chunk.length") == len(set(found.messages.row.tolist()))

    def held() -> int:
        page.settle()
        return int(page.run("document.querySelector('[data-whole]').dataset.whole"))

    chunks = len(schedule.collective.chunks)
    assert held() == chunks  # everybody has its own
    ends: dict[int, float] = {}
    for row, arrival in zip(found.messages.row.tolist(), found.messages.arrival.tolist(), strict=True):
        ends[row] = max(ends.get(row, 0.0), arrival)
    counts, shares = [], []
    for share in (0.3, 0.6, 1.0):
        page.run(f"syntony.set({{t: {share}}})")
        counts.append(held())
        arrived = sum(end <= share * found.seconds * (1 + 1e-12) for end in ends.values())
        assert counts[-1] == chunks + arrived
        shares.append(float(page.run("document.querySelector('[data-whole]').dataset.share")))
    assert shares == sorted(set(shares))
    assert counts[-1] == chunks * schedule.collective.ranks
    page.run("syntony.set({t: 0.3})")
    page.settle()
    assert page.run("syntony.views[0].panels[0].shown") > 0
    page.press("Home")
    assert page.run("syntony.state.t") == 0
    page.press(".")
    assert page.run("syntony.state.t") > 0
    page.click("#play")
    page.wait("syntony.state.t > 0.1")
    page.close()


@pytest.mark.parametrize(
    ("question", "panel"),
    [
        ("Which link limits?", "how busy links are"),
        ("Who is late?", "ranks over time"),
        ("What would another schedule bring?", "bus bandwidth over size"),
    ],
)
def test_questions_are_answered_by_one_click(
    shown: Callable[..., Page], schedules: dict[str, Path], question: str, panel: str
) -> None:
    page = shown(schedules["forest"])
    number = page.run(
        f"[...document.querySelectorAll('.questions button')].findIndex((one) => one.textContent === {question!r})"
    )
    page.click(f".questions button:nth-child({number + 1})")
    answer = text(page, ".answer")
    assert re.search(r"\d", answer)
    page.wait(
        f"(() => {{ const box = document.querySelector(`[data-title='{panel}']`).getBoundingClientRect(); "
        "return box.bottom > 0 && box.top < innerHeight; })()"
    )
    page.close()


def test_two_schedules_share_a_clock(shown: Callable[..., Page], schedules: dict[str, Path]) -> None:
    page = shown(*schedules.values())
    assert page.run("[...document.querySelectorAll('article')].filter((one) => !one.hidden).length") == 2
    page.run("syntony.set({t: 1})")
    page.settle()
    whole = page.run("[...document.querySelectorAll('[data-whole]')].map((one) => one.textContent)")
    assert len(whole) == 2
    assert all("100.0 %" in words for words in whole)
    page.click("nav button:nth-child(2)")
    assert page.run("[...document.querySelectorAll('article')].map((one) => one.hidden)") == [True, False]
    page.close()


def test_a_link_leads_to_what_was_seen(shown: Callable[..., Page], schedules: dict[str, Path]) -> None:
    page = shown(schedules["forest"], state="#t=0.5&chunk=2&theme=dark")
    assert page.run("[syntony.state.t, syntony.state.chunk, document.documentElement.dataset.theme]") == [
        0.5,
        2,
        "dark",
    ]
    page.run("syntony.set({rank: 3})")
    page.wait("location.hash.includes('rank=3')")
    page.close()


def test_what_people_cannot_see_is_said(shown: Callable[..., Page], schedules: dict[str, Path]) -> None:
    """Every canvas lies in something with a name, every control has one, and one heading is the first."""
    page = shown(schedules["forest"])
    assert page.run("[...document.querySelectorAll('canvas')].every((one) => one.closest('[role=img][aria-label]'))")
    assert page.run(
        "[...document.querySelectorAll('button, select, input')]"
        ".every((one) => one.textContent.trim() || one.ariaLabel)"
    )
    assert page.run("document.querySelectorAll('h1').length") == 1
    page.close()
