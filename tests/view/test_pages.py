"""Pages in a real browser: each kind of file opens without a complaint and asks no network for anything; what it shows
is what the file says; questions are answered in two clicks."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from syntony.base.wording import time
from syntony.benchmarks.view.browser import Browser, Page
from syntony.synth.formats.loading import read
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.simulation.usual_slice import usual_slice
from syntony.topologies.file_format import to_json
from syntony.topologies.parse import parse
from syntony.view import page as page_module
from tests.view.files import KINDS, SELDOM, SIZE


@pytest.fixture(scope="session")
def schedules(files: dict[str, list[str]]) -> list[str]:
    """Two schedules for the same wires."""
    return files["two schedules"]


def text(page: Page, selector: str) -> str:
    return str(page.run(f"document.querySelector({selector!r}).textContent"))


def test_a_page_without_data_is_small(folder: Path) -> None:
    from syntony.view.page import page

    assert len(page([])) <= 1.5e6


ANSWERS = {
    "topology": ("Which link limits?", "over"),
    "program": ("Which link limits?", "is the busiest"),
    "portfolio": ("What would another schedule bring?", "greedy"),
    "invalid program": ("Who waits for whom?", "rank 0 → rank 1 → rank 0"),
    "bench results": ("Who is fastest?", "1.20 times as fast as impi"),
    "training step": ("What would another schedule bring?", "times as fast as"),
    "records of a job": ("Who is late?", "Ranks 1..2"),
    "torch flight records": ("At which operation, waiting for what?", "all_reduce #3, waiting for rank 2"),
    "NCCL log": ("Who is late?", "ank 3 never said"),
    "NCCL Inspector": ("Who is late?", "Rank 1"),
    "NCCL RAS": ("Who is late?", "rank 2 is considered dead"),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.sweep if kind in SELDOM else ()) for kind in KINDS]
)
def test_every_kind_opens_and_answers(shown: Callable[..., Page], files: dict[str, list[str]], kind: str) -> None:
    """In the dark, too; each question by one click; nothing complains."""
    page = shown(*files[kind])
    assert page.run("syntony.views[0].kind") == kind.split(",")[0].replace("two schedules", "schedule").replace(
        " of others", ""
    )
    assert text(page, ".headline")
    buttons = "[...document.querySelectorAll('article:not([hidden]) .questions button')]"
    asked, answer = ANSWERS.get(kind, ("", ""))
    names = page.run(f"{buttons}.map((one) => one.textContent)")
    assert not asked or asked in names
    for number, name in enumerate(names):
        page.run(f"{buttons}[{number}].click()")
        page.settle()
        told = text(page, "article:not([hidden]) .answer")
        assert len(told) > 10
        assert name != asked or answer in told
    page.press("d")
    page.settle()
    assert page.run("document.documentElement.dataset.theme") == "dark"
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints() == []
    page.close()


def test_numbers_of_a_bench_are_the_files(shown: Callable[..., Page], files: dict[str, list[str]]) -> None:
    page = shown(*files["bench results"])
    (record,) = (json.loads(Path(name).read_text()) for name in files["bench results"])
    busbw = [row["out_of_place"]["bus_bw"] * 1e9 for row in record["results"]]
    first = "syntony.views[0].panels[0].series[0]"
    assert page.run(f"[...{first}.y]") == pytest.approx(busbw)
    assert page.run(f"[...{first}.x]") == [row["size"] for row in record["results"]]
    page.close()


def test_a_deadlock_is_a_circle(shown: Callable[..., Page], files: dict[str, list[str]]) -> None:
    page = shown(*files["invalid program"])
    assert page.run("document.querySelectorAll('svg.circle path[marker-end]').length") == 2
    assert "<-- here" in text(page, "pre .tone-bad")
    page.close()


def test_what_a_file_says_is_never_run(shown: Callable[..., Page], tmp_path: Path) -> None:
    """Names are text, whatever they look like."""
    wires = parse("ring:3").renamed(
        "</script><img src=x onerror='window.hacked=1'><script>window.hacked=2</script><!--"
    )
    (tmp_path / "t.json").write_text(to_json(wires))
    page = shown(tmp_path / "t.json")
    page.settle()
    assert page.run("window.hacked") is None
    assert text(page, "h1") == wires.name
    page.close()


def test_scrubbing_moves_chunks_and_numbers_are_the_files(shown: Callable[..., Page], schedules: list[str]) -> None:
    page = shown(schedules[0])
    schedule = read(schedules[0]).content
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


def test_an_answer_shows_its_panel(shown: Callable[..., Page], schedules: list[str]) -> None:
    page = shown(schedules[0])
    for number, panel in enumerate(("how busy links are", "ranks over time", "bus bandwidth over size"), 1):
        page.click(f".questions button:nth-child({number})")
        assert re.search(r"\d", text(page, ".answer"))
        page.wait(
            f"(() => {{ const box = document.querySelector(`[data-title='{panel}']`).getBoundingClientRect(); "
            "return box.bottom > 0 && box.top < innerHeight; })()"
        )
    page.close()


def test_two_schedules_share_a_clock(shown: Callable[..., Page], schedules: list[str]) -> None:
    page = shown(*schedules)
    assert page.run("[...document.querySelectorAll('article')].filter((one) => !one.hidden).length") == 2
    page.run("syntony.set({t: 1})")
    page.settle()
    whole = page.run("[...document.querySelectorAll('[data-whole]')].map((one) => one.textContent)")
    assert len(whole) == 2
    assert all("100.0 %" in words for words in whole)
    page.click(".questions button:nth-child(3)")
    assert re.search(r"This one takes .*; .*greedy.json takes .*", text(page, ".answer"))
    page.click("nav button:nth-child(2)")
    assert page.run("[...document.querySelectorAll('article')].map((one) => one.hidden)") == [True, False]
    page.close()


def test_a_link_leads_to_what_was_seen(shown: Callable[..., Page], schedules: list[str]) -> None:
    page = shown(schedules[0], state="#t=0.5&chunk=2&theme=dark")
    assert page.run("[syntony.state.t, syntony.state.chunk, document.documentElement.dataset.theme]") == [
        0.5,
        2,
        "dark",
    ]
    page.run("syntony.set({rank: 3})")
    page.wait("location.hash.includes('rank=3')")
    page.close()


def test_what_people_cannot_see_is_said(shown: Callable[..., Page], schedules: list[str]) -> None:
    """Every canvas lies in something with a name, every control has one, and one heading is the first."""
    page = shown(schedules[0])
    assert page.run("[...document.querySelectorAll('canvas')].every((one) => one.closest('[role=img][aria-label]'))")
    assert page.run(
        "[...document.querySelectorAll('button, select, input')]"
        ".every((one) => one.textContent.trim() || one.ariaLabel)"
    )
    assert page.run("document.querySelectorAll('h1').length") == 1
    page.close()


def luminance(colour: str) -> float:
    """Of `#rrggbb`, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [":root", '[data-theme="dark"]'])
def test_text_can_be_read(theme: str) -> None:
    """Text on its ground has a contrast of 4.5, as WCAG 2.1 AA asks; what is drawn has 3."""
    style = (Path(page_module.__file__).parent / "page" / "page.css").read_text()
    block = re.search(re.escape(theme) + r" \{(.*?)\}", style, re.DOTALL)
    assert block is not None
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block[1]))

    def contrast(one: str, other: str) -> float:
        low, high = sorted(luminance(colours[name]) for name in (one, other))
        return (high + 0.05) / (low + 0.05)

    for ground in ("paper", "panel", "faint"):
        for text in ("ink", "soft", "good", "bad", "proof", "accent"):
            assert contrast(text, ground) >= 4.5, f"{text} on {ground}: {contrast(text, ground):.2f}"
        for drawn in (*(f"c{number}" for number in range(8)), "cut", "cursor"):
            assert contrast(drawn, ground) >= 3, f"{drawn} on {ground}: {contrast(drawn, ground):.2f}"


def test_printing_shows_every_file_in_the_light(
    browser: Browser, shown: Callable[..., Page], schedules: list[str], tmp_path: Path
) -> None:
    page = shown(*schedules, state="#theme=dark&view=0")
    pages = page.call("Page.printToPDF", printBackground=False)["data"]
    assert base64.b64decode(pages)[:5] == b"%PDF-"
    page.close()
