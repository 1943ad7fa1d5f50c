"""How fast pages are in a real browser: seconds to load, and milliseconds of a frame while one zooms, pans and plays.

    million     a page with a million spans in 64 lanes (packed columns), zoomed and panned
    schedules   of growing networks: load, a frame of the clock, a frame of the time-line

A frame's time is what the page's own drawing takes on the main thread; `apart` is the time from one frame on the screen
to the next, at best the screen's 16.7 ms.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from syntony.benchmarks.tables import Part, Row, Table
from syntony.benchmarks.view.browser import Browser, Page
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import Collective
from syntony.topologies.parse import parse
from syntony.view.makers import schedule
from syntony.view.models import View, timeline
from syntony.view.page import page

_SCHEDULES = (
    ("dgx1", "all_gather", "forest"),
    ("torus:4x4x4", "all_gather", "forest"),
    ("dgx-h100:128", "all_gather", "forest"),
)
_COLUMNS = (
    ("page", -34), ("MB", 6), ("load ms", 8), ("zoom ms", 8), ("p95", 6), ("apart", 6), ("play ms", 8), ("p95", 6),
    ("apart", 6),
)  # fmt: skip
_LOAD, _FRAME, _FRAME_OF_MILLION = 3000.0, 50.0, 16.0  # milliseconds: the goals
_FRAMES = """(async () => {
  const took = [], apart = [], step = CHANGE;
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  let last = await frame();
  for (let number = 0; number < 90; number++) {
    const began = performance.now();
    step(number);
    took.push(performance.now() - began);
    const now = await frame();
    apart.push(now - last);
    last = now;
  }
  const sorted = (column) => column.sort((one, other) => one - other);
  return [sorted(took), sorted(apart)];
})()"""
_ZOOM = """(number) => {
  const { span } = syntony.timelines[0];
  if (number % 20 === 0) span.reset();
  else if (number % 2) span.zoom(0.8);
  else span.pan((span.high - span.low) * 0.1);
}"""
_PLAY = "(number) => { syntony.set({ t: number / 90 }); syntony.flush(); }"


def million(spans: int = 1_000_000, lanes: int = 64) -> View:
    """So many spans, of all lengths, with names."""
    draw = np.random.default_rng(1)
    lane = np.arange(spans) % lanes
    took = draw.exponential(1e-6, spans)
    begin = np.zeros(spans)
    for which in range(lanes):
        mine = lane == which
        begin[mine] = np.cumsum(took[mine] * 1.1) - took[mine]
    names = [f"chunk {number}" for number in range(256)]
    panel = timeline(
        "a million spans", [f"lane {number}" for number in range(lanes)], lane.astype(np.int32), begin, begin + took,
        lane % 8, draw.integers(0, 256, spans), names, ["a"] * 8,
    )  # fmt: skip
    return View("a million spans", "benchmark", "", f"{spans} spans", (panel,))


@dataclass(frozen=True)
class Frames:
    """Milliseconds: the drawing of a frame, median and 95th percentile; the median from one frame to the next."""

    median: float
    late: float
    apart: float

    @staticmethod
    def of(shown: Page, change: str) -> Frames:
        """Of 90 frames, each after `change(number)` in the page."""
        took, apart = shown.run(_FRAMES.replace("CHANGE", change))
        return Frames(took[len(took) // 2], took[int(0.95 * len(took))], apart[len(apart) // 2])

    @property
    def cells(self) -> tuple[str, ...]:
        return f"{self.median:.2f}", f"{self.late:.2f}", f"{self.apart:.1f}"


def _views() -> Iterator[View]:
    yield million()
    for name, kind, engine in _SCHEDULES:
        wires = parse(name)
        found = engine_named(engine).run(wires, Collective.make(kind, wires.ranks), 1 << 26, Budget(60))
        yield schedule.view(found, name, 1 << 26)


def _rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        for view in _views():
            path = Path(folder) / "page.html"
            path.write_text(page([view]), encoding="utf-8")
            shown = browser.open(path)
            load = shown.run("syntony.ready")
            zoom = Frames.of(shown, _ZOOM)
            moves = shown.run("syntony.views[0].panels.some((one) => one.motion)")
            play = Frames.of(shown, _PLAY) if moves else None
            goal = _FRAME if moves else _FRAME_OF_MILLION
            slowest = max(zoom.median, play.median if play else 0.0)
            missed = f"load <= {_LOAD:g} ms" if load > _LOAD else f"a frame <= {goal:g} ms" if slowest > goal else ""
            cells = (view.title, f"{path.stat().st_size / 1e6:.2f}", f"{load:.0f}", *zoom.cells)
            yield Row((*cells, *(play.cells if play else ("-", "-", "-"))), missed)
            shown.close()


TABLE = Table(
    "pages",
    "pages of `syntony view` in a browser: seconds to load, milliseconds of a frame",
    lambda options: (Part("Pages in Chromium without a GPU; zoom: a time-line; play: the clock", _COLUMNS, _rows),),
)
