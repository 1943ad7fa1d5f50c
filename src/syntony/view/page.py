"""A page: the Views of files in one self-contained HTML file, which makes no network requests.

    <script id="views">    the views as JSON; a column is replaced by {"$": type, "at": offset, "n": length}
    <script id="columns">  all columns one after another, little endian, each at a multiple of 8 bytes: deflate, base64

Styles and scripts are in page/; they are joined in the order of `SCRIPTS`. uPlot, which draws curves, is vendored with
its licence in page/uplot (`make view-libraries` updates it).
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from syntony.view.models import View

_PAGE = Path(__file__).parent / "page"
SCRIPTS = (
    "format",
    "state",
    "surface",
    "zoom",
    "drawing",
    "motion",
    "timeline",
    "holdings",
    "lineage",
    "use",
    "curves",
    "plain",
    "circle",
    "controls",
    "boot",
)
_LEVEL = 6


class _Packer:
    """Turns values into JSON and moves arrays into columns."""

    def __init__(self) -> None:
        self.columns: list[bytes] = []
        self.at = 0

    def packed(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._column(value)
        if is_dataclass(value):
            named = {one.name: self.packed(getattr(value, one.name)) for one in fields(value)}
            return {"model": type(value).__name__, **named}
        if isinstance(value, Mapping):
            return {str(key): self.packed(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.packed(each) for each in value]
        return value

    def _column(self, array: np.ndarray) -> dict[str, object]:
        column = np.ascontiguousarray(array)
        content = column.astype(column.dtype.newbyteorder("<")).tobytes()
        place = {"$": column.dtype.kind + str(column.dtype.itemsize), "at": self.at, "n": column.size}
        padding = -len(content) % 8
        self.columns.append(content + bytes(padding))
        self.at += len(content) + padding
        return place


def page(views: Sequence[View], title: str = "", watched: str = "") -> str:
    """The page as text. `watched`: an address that the page polls for changes (`--serve`); a file polls nothing."""
    packer = _Packer()
    told = json.dumps(
        {"views": packer.packed(tuple(views)), "watched": watched}, ensure_ascii=False, separators=(",", ":")
    )
    columns = base64.b64encode(zlib.compress(b"".join(packer.columns), _LEVEL)).decode()
    name = title or (views[0].title if len(views) == 1 else " and ".join(view.title for view in views[:3]))
    return _template().format(
        title=html.escape(name),
        policy="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
        + ("; connect-src 'self'" if watched else ""),
        # "</script" and "<!--" would end the element early.
        views=told.replace("<", "\\u003c"),
        columns=columns,
    )


@cache
def _template() -> str:
    """The page without its data, as a format string."""
    style = "\n".join((_PAGE / name).read_text(encoding="utf-8") for name in ("uplot/uPlot.min.css", "page.css"))
    licence = (_PAGE / "uplot/LICENSE").read_text(encoding="utf-8")
    library = (_PAGE / "uplot/uPlot.iife.min.js").read_text(encoding="utf-8")
    own = "\n".join((_PAGE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    parts = {
        "STYLE": style,
        "LIBRARY": f"/* uPlot\n{licence}*/\n{library}",
        "OWN": f'(() => {{\n"use strict";\n{own}\n}})();',
    }
    text = (_PAGE / "page.html").read_text(encoding="utf-8")
    for name, content in parts.items():
        text = text.replace(f"@{name}@", content.replace("{", "{{").replace("}", "}}"))
    return text
