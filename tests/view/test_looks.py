"""Pages look as they did: what is in sight of each, beside a small picture of it that somebody has looked at.

A picture is the mean colour of squares of 5 pixels, and is compared in squares of 20: another edge of a letter changes
nothing, a panel that is empty, elsewhere or in other colours does. A picture that is missing is taken, and the test
fails once: look at it, and commit it. Other fonts break lines elsewhere, so the pictures speak of those below only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread, imsave

from syntony.benchmarks.view.browser import Page
from tests.view.files import KINDS

PICTURES = Path(__file__).parent / "pictures"
FINE, COARSE = 5, 4  # pixels per square of a picture, squares per compared square
UNLIKE, SHARE = 0.06, 0.01  # of full brightness: how far a square may be off, and how many may be further

OFTEN = {"schedule", "training step", "bench results", "invalid program"}
"""Their panels are those of most others, too."""

FONTS = "1160 969"
"""How wide the pages' two fonts are where the pictures were taken, in pixels."""
_MEASURE = """(() => { const pen = document.createElement('canvas').getContext('2d');
  return ['system-ui', 'ui-monospace'].map((font) => { pen.font = `100px ${font}`;
    return Math.round(pen.measureText('Which link limits? 0123').width); }).join(' '); })()"""

Look = np.ndarray[Any, np.dtype[np.float64]]

_WITHOUT = """(() => { const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(FOLDER, ''); })()"""
"""Takes the folder out of what the page says, which is another one in every run."""


def squares(pixels: Look, side: int) -> Look:
    """The mean colour of each square of so many pixels."""
    rows, columns = (length // side for length in pixels.shape[:2])
    kept = pixels[: rows * side, : columns * side, :3].reshape(rows, side, columns, side, 3)
    mean: Look = kept.mean(axis=(1, 3))
    return mean


def off(one: Look, other: Look) -> float:
    """The share of squares in which two pictures are unlike."""
    if one.shape != other.shape:
        return 1.0
    return float((abs(squares(one, COARSE) - squares(other, COARSE)).max(axis=2) > UNLIKE).mean())


def look(page: Page, file: Path) -> Look:
    page.screenshot(file)
    return squares(imread(file).astype(np.float64), FINE)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in OFTEN else pytest.mark.sweep) for kind in KINDS]
)
def test_a_page_looks_as_it_did(
    shown: Callable[..., Page], files: dict[str, list[str]], tmp_path: Path, kind: str
) -> None:
    page = shown(*files[kind], state="#t=0.5&theme=light")
    fonts = page.run(_MEASURE)
    if fonts != FONTS:
        page.close()
        pytest.skip(f"the pictures were taken with other fonts: {FONTS} pixels wide, here {fonts}")
    page.run(_WITHOUT.replace("FOLDER", json.dumps(f"{Path(files[kind][0]).parent}/")))
    seen = look(page, tmp_path / "seen.png")
    picture = PICTURES / f"{kind.replace(',', '').replace(' ', '_')}.png"
    if not picture.exists():
        imsave(picture, seen)
        pytest.fail(f"{picture.name} was missing and is taken now; look at it, and commit it", pytrace=False)
    there = imread(picture).astype(np.float64)[..., :3]
    unlike = off(seen, there)
    assert unlike <= SHARE, f"{unlike:.1%} of {tmp_path / 'seen.png'} is unlike {picture}; delete that to renew it"
    # That this can fail: the panels are gone.
    page.run("document.querySelectorAll('[data-title]').forEach((one) => { one.style.visibility = 'hidden'; })")
    assert off(look(page, tmp_path / "seen.png"), there) > SHARE
    page.close()
