"""A topology as a heat map: every line coloured by how much of it is in use.

A cable has two directions and is drawn in two halves, as weather maps of networks do: the half at a node's end shows
what leaves that node.

    leaf 0 ━━━━━━━━━━──────────── spine 0       full towards the spine, nearly idle back
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from syntony.base.wording import rate
from syntony.topologies.drawing.draw import MARGIN, RADIUS, Point, bent, bent_path, page, towards
from syntony.topologies.topology import Link, Topology

_SCALE = (
    (0.0, (216, 222, 228)),
    (0.02, (254, 224, 139)),
    (0.5, (253, 141, 60)),
    (0.8, (214, 39, 40)),
    (1.0, (94, 0, 38)),
)

_NO_COMMANDS = str.maketrans("", "", "MLC")


def heat_map(topology: Topology, use: Sequence[float], title: str) -> str:
    """The picture as the text of an SVG 1.1 file; `use[l]` is the part of link l's capacity that is used, 0 to 1."""
    return page(topology, title, lambda points: _lines(topology, use, points), _legend, 62.0)


def colour(use: float) -> str:
    """From grey (idle) over yellow and red to dark (full)."""
    use = min(max(use, 0.0), 1.0)
    for (low, cold), (high, warm) in pairwise(_SCALE):
        if use <= high:
            part = (use - low) / (high - low)
            mixed = (round(one + part * (other - one)) for one, other in zip(cold, warm, strict=True))
            return "#" + "".join(f"{channel:02x}" for channel in mixed)
    raise AssertionError("the scale ends at 1")


def _lines(topology: Topology, use: Sequence[float], points: list[Point]) -> Iterator[str]:
    drawn: list[tuple[float, str]] = []
    for link, back, bend in bent(topology, points):
        start, end = points[link.src], points[link.dst]
        if back is None:
            path = bent_path(start, towards(end, start, RADIUS), bend)
            drawn.append((use[link.id], _line(topology, link, use[link.id], path, ' marker-end="url(#arrow)"')))
            continue
        # A curve seen from its other end bends to the other side.
        for way, one, other, side in ((link, start, end, bend), (back, end, start, -bend)):
            drawn.append((use[way.id], _line(topology, way, use[way.id], _half(one, other, side), "")))
    drawn.sort(key=lambda line: line[0])  # the hottest on top
    yield from (line for _, line in drawn)


def _line(topology: Topology, link: Link, use: float, path: str, arrow: str) -> str:
    ends = f"{topology.nodes[link.src].name} -> {topology.nodes[link.dst].name}"
    return (
        f'<path d="{path}" fill="none" stroke="{colour(use)}" stroke-width="{1.5 + 4.5 * min(use, 1.0):.2f}"{arrow}>'
        f"<title>{escape(f'{ends}: {use:.1%} of {rate(link.bandwidth)}')}</title></path>"
    )


def _half(start: Point, end: Point, bend: float) -> str:
    """The first half of the line that `bent_path` draws."""
    row = [_point(word) for word in bent_path(start, end, bend).translate(_NO_COMMANDS).split()]
    controls = [row[0]]
    while len(row) > 1:  # de Casteljau: the first of every row of midpoints
        row = [((x + u) / 2, (y + v) / 2) for (x, y), (u, v) in pairwise(row)]
        controls.append(row[0])
    first, *rest = (f"{x:.1f},{y:.1f}" for x, y in controls)
    return f"M{first} {'C' if len(rest) > 1 else 'L'}{' '.join(rest)}"


def _point(text: str) -> Point:
    x, y = text.split(",")
    return float(x), float(y)


def _legend(top: float) -> Iterator[str]:
    steps, wide = 25, 9.0
    for step in range(steps):
        x, fill = MARGIN + step * wide, colour(step / (steps - 1))
        yield f'<rect x="{x:.1f}" y="{top + 8:.1f}" width="{wide + 0.5}" height="12" fill="{fill}"/>'
    text = 'font-size="12" fill="#1b1f24"'
    for use in (0.0, 0.5, 1.0):
        x = MARGIN + use * steps * wide
        yield f'<text x="{x:.1f}" y="{top + 36:.1f}" text-anchor="middle" {text}>{use:.0%}</text>'
    yield (
        f'<text x="{MARGIN:.1f}" y="{top + 54:.1f}" {text}>'
        "part of the link in use; each half of a line shows what leaves its end</text>"
    )
