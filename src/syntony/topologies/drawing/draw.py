"""A topology as an SVG picture.

Families set the coordinates of their nodes (`Node.place`); others are put in layers (layers.py). Ranks are drawn as
circles with their number, and their name if it says more, switches and NICs as rectangles with their name, cables as
lines. Width and colour of a line show its bandwidth and latency; the legend explains them. One that is slower than
most others between the same kinds of nodes is red and dashed. A line that would run over a third node bends around it.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from html import escape

from syntony.base.wording import counted, rate, time
from syntony.topologies.drawing.layers import hosts_or_ranks, layered
from syntony.topologies.graph.wiring import Place, circle
from syntony.topologies.topology import Link, Node, Topology

_UNIT = 80.0  # pixels between neighbours
RADIUS = 14.0  # pixels, of a rank
MARGIN = 40.0
_MOST_PAIRS = 10**8  # pairs of a node and a link that are compared: a few seconds
_SLOW, _DASHES = "#d1242f", ' stroke-dasharray="9 5"'
_COLOURS = ("#1f5fa8", "#d1622b", "#2a8a57", "#8a4fa3", "#8c6d1f", "#59636e")

Point = tuple[float, float]
_Speed = tuple[Fraction, float]


def to_svg(topology: Topology) -> str:
    """The picture as the text of an SVG 1.1 file."""
    speeds = sorted({(link.bandwidth, link.alpha) for link in topology.links}, key=lambda s: (-s[0], s[1]))
    style = {speed: (_COLOURS[i % len(_COLOURS)], _stroke(speed, speeds)) for i, speed in enumerate(speeds)}
    title = f"{topology.name}: {counted(topology.ranks, 'rank')}"
    slow = slower_than_their_like(topology)
    slow_speeds = {(topology.links[link].bandwidth, topology.links[link].alpha) for link in slow}
    return page(
        topology,
        title,
        lambda points: [*_hosts(topology, points), *_cables(topology, points, style, slow)],
        lambda top: _legend(speeds, style, slow_speeds, top),
        26.0 * len(speeds) + 20.0,
    )


def slower_than_their_like(topology: Topology) -> set[int]:
    """The links that are slower than most others between the same layers; none where nodes have places of their own."""
    places = None if _all_placed(topology) else layered(topology)
    if places is None:
        return set()
    alike: dict[tuple[tuple[str, float], ...], list[Link]] = {}
    for link in topology.links:
        ends = ((topology.nodes[node].kind, round(places[node][1], 3)) for node in (link.src, link.dst))
        alike.setdefault(tuple(sorted(ends)), []).append(link)
    medians = {kind: sorted(link.bandwidth for link in links)[len(links) // 2] for kind, links in alike.items()}
    return {link.id for kind, links in alike.items() for link in links if link.bandwidth < medians[kind]}


def _all_placed(topology: Topology) -> bool:
    return all(node.place is not None for node in topology.nodes)


def _hosts(topology: Topology, points: list[Point]) -> Iterator[str]:
    """A frame around each host that has more than its rank; none where nodes have places of their own."""
    if _all_placed(topology) or not layered(topology):
        return
    for host in hosts_or_ranks(topology):
        if len(host.nodes) > 1:
            xs, ys = zip(*(points[node] for node in host.nodes), strict=True)
            left, top = min(xs) - 0.5 * _UNIT, min(ys) - 24.0
            yield (
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(xs) - left + 0.5 * _UNIT:.1f}" '
                f'height="{max(ys) - top + 34:.1f}" rx="12" fill="#f7f8fa" stroke="#d0d7de"/>'
            )


def page(
    topology: Topology,
    title: str,
    lines: Callable[[list[Point]], Iterable[str]],
    legend: Callable[[float], Iterable[str]],
    legend_height: float,
) -> str:
    """A picture of the nodes: `lines` draws what lies between the nodes, `legend` what lies below the given height."""
    points, width, height = _on_canvas(_places(topology))
    top = 56.0
    wide = max(width, 9.0 * len(title) + 2 * MARGIN, 320.0)
    total = top + height + legend_height
    shown = min(1.0, 1600.0 / wide, 1200.0 / total)
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide * shown:.0f}" height="{total * shown:.0f}" '
        f'viewBox="0 0 {wide:.1f} {total:.1f}" font-family="Helvetica, Arial, sans-serif">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#59636e"/></marker></defs>',
        f'<rect width="{wide:.1f}" height="{total:.1f}" fill="white"/>',
        f'<text x="{MARGIN}" y="34" font-size="18" fill="#1b1f24">{escape(title)}</text>',
        f'<g transform="translate({(wide - width) / 2:.1f} {top:.1f})">',
        *lines(points),
        *(_glyph(node, points[node.id]) for node in topology.nodes),
        "</g>",
        *legend(top + height),
        "</svg>",
    ]
    return "\n".join(text) + "\n"


def points_of(topology: Topology) -> list[Point]:
    """Where the nodes are drawn: pixels, y downwards."""
    return _on_canvas(_places(topology))[0]


def _places(topology: Topology) -> list[Place]:
    """The coordinates of the nodes; if any has none, all are put in layers, or without switches on a circle."""
    places = [node.place for node in topology.nodes if node.place is not None]
    if len(places) == len(topology.nodes):
        return places
    return layered(topology) or list(circle(len(topology.nodes)))


def _on_canvas(places: list[Place]) -> tuple[list[Point], float, float]:
    """The coordinates in pixels, y downwards, and the size of the canvas."""
    left, right = min(x for x, _ in places), max(x for x, _ in places)
    low, high = min(y for _, y in places), max(y for _, y in places)
    points = [(MARGIN + _UNIT * (x - left), MARGIN + _UNIT * (high - y)) for x, y in places]
    return points, 2 * MARGIN + _UNIT * (right - left), 2 * MARGIN + _UNIT * (high - low)


def _stroke(speed: _Speed, speeds: list[_Speed]) -> float:
    """Width of a line in pixels: by the root of its bandwidth, so that 1:2 is visible and 1:20 does not vanish."""
    return 1.0 + 3.0 * math.sqrt(speed[0] / speeds[0][0]) if len(speeds) > 1 else 2.0


def _cables(
    topology: Topology, points: list[Point], style: dict[_Speed, tuple[str, float]], slow: set[int]
) -> Iterator[str]:
    for link, back, bend in bent(topology, points):
        colour, stroke = style[link.bandwidth, link.alpha]
        start, end, duplex = points[link.src], points[link.dst], back is not None
        arrow = "" if duplex else ' marker-end="url(#arrow)"'
        faint = ' stroke-opacity="0.6"' if bend else ""
        if link.id in slow:
            colour, stroke, faint = _SLOW, 4.0, _DASHES
        if not duplex:
            end = towards(end, start, RADIUS)
        yield (
            f'<path d="{bent_path(start, end, bend)}" fill="none" stroke="{colour}" stroke-width="{stroke:.2f}"'
            f"{faint}{arrow}>"
            f"<title>{escape(_title(topology, link, duplex))}</title></path>"
        )


def bent(topology: Topology, points: list[Point]) -> Iterator[tuple[Link, Link | None, float]]:
    """Each line to draw: a link, the way back if it is a cable, and its bend in pixels to the left."""
    waiting: dict[tuple[int, int, Fraction, float], deque[Link]] = {}
    for link in topology.links:
        waiting.setdefault((link.src, link.dst, link.bandwidth, link.alpha), deque()).append(link)
    drawn: Counter[tuple[int, int]] = Counter()
    over = _runs_over_a_node(topology, points)
    for link in topology.links:
        there = (link.src, link.dst, link.bandwidth, link.alpha)
        if not waiting[there] or waiting[there][0] is not link:
            continue  # drawn already, as the way back of a cable
        waiting[there].popleft()
        ways_back = waiting.get((link.dst, link.src, link.bandwidth, link.alpha))
        back = ways_back.popleft() if ways_back else None
        pair = (min(link.src, link.dst), max(link.src, link.dst))
        parallel = drawn[pair]
        drawn[pair] += 1
        bend = _detour(points, link) if over[link.id] else 0.0
        bend += math.copysign(10.0 * ((parallel + 1) // 2), -1.0 if parallel % 2 else 1.0) * (
            1.0 if link.src < link.dst else -1.0
        )
        yield link, back, bend


def _runs_over_a_node(topology: Topology, points: list[Point]) -> list[bool]:
    """Per link, whether the straight line would touch a node other than its ends."""
    import numpy as np

    if len(points) * len(topology.links) > _MOST_PAIRS:
        return [False] * len(topology.links)  # with so many lines, single cables cannot be followed anyway
    xy = np.array(points)
    result = []
    for link in topology.links:
        start, way = xy[link.src], xy[link.dst] - xy[link.src]
        share = ((xy - start) @ way) / max(float(way @ way), 1e-9)
        gap = np.hypot(*(xy - start - share[:, None] * way).T)
        near = (gap < RADIUS * 0.9) & (share > 0) & (share < 1)
        near[[link.src, link.dst]] = False
        result.append(bool(near.any()))
    return result


def _detour(points: list[Point], link: Link) -> float:
    """How far a line bends around the nodes in its way: away from the middle of the picture."""
    (x0, y0), (x1, y1) = points[link.src], points[link.dst]
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    outwards = (y1 - y0) * ((x0 + x1) / 2 - middle_x) - (x1 - x0) * ((y0 + y1) / 2 - middle_y)
    size = min(0.45 * _UNIT, 0.25 * math.hypot(x1 - x0, y1 - y0))
    return size if outwards > -1e-6 else -size


def bent_path(start: Point, end: Point, bend: float) -> str:
    (x0, y0), (x1, y1) = start, end
    if bend == 0:
        return f"M{x0:.1f},{y0:.1f} L{x1:.1f},{y1:.1f}"
    dx, dy = x1 - x0, y1 - y0
    length = math.hypot(dx, dy) or 1.0
    left_x, left_y = bend * dy / length, -bend * dx / length
    return (
        f"M{x0:.1f},{y0:.1f} C{x0 + 0.15 * dx + left_x:.1f},{y0 + 0.15 * dy + left_y:.1f} "
        f"{x1 - 0.15 * dx + left_x:.1f},{y1 - 0.15 * dy + left_y:.1f} {x1:.1f},{y1:.1f}"
    )


def towards(point: Point, target: Point, pixels: float) -> Point:
    dx, dy = target[0] - point[0], target[1] - point[1]
    length = math.hypot(dx, dy) or 1.0
    return point[0] + dx / length * pixels, point[1] + dy / length * pixels


def _title(topology: Topology, link: Link, duplex: bool) -> str:
    arrow = "--" if duplex else "->"
    ends = f"{topology.nodes[link.src].name} {arrow} {topology.nodes[link.dst].name}"
    return f"{ends}: {rate(link.bandwidth)}, {time(link.alpha)}"


def _glyph(node: Node, point: Point) -> str:
    x, y = point
    if node.kind == "rank":
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="#e8f0fa" stroke="#1f5fa8" stroke-width="1.5"/>'
        label, size = str(node.id), 12.0 if node.id < 1000 else 9.0
        if node.name != f"rank{node.id}":
            at = f'x="{x:.1f}" y="{y + RADIUS + 11:.1f}" font-size="10" text-anchor="middle"'
            name = escape(node.name)
            shape += (
                f'<text {at} fill="white" stroke="white" stroke-width="3">{name}</text>'
                f'<text {at} fill="#1b1f24">{name}</text>'
            )
    else:
        label, size = node.name, 10.0
        half = 3.2 * len(label) + 6.0
        fill = "#f2f2f2" if node.kind == "nic" else "#fdf0e7"
        edge = "#59636e" if node.kind == "nic" else "#d1622b"
        shape = (
            f'<rect x="{x - half:.1f}" y="{y - 11:.1f}" width="{2 * half:.1f}" height="22" rx="5" '
            f'fill="{fill}" stroke="{edge}" stroke-width="1.5"/>'
        )
    return (
        f"<g><title>{escape(node.name)}</title>{shape}"
        f'<text x="{x:.1f}" y="{y + 0.35 * size:.1f}" font-size="{size}" text-anchor="middle" fill="#1b1f24">'
        f"{escape(label)}</text></g>"
    )


def _legend(
    speeds: list[_Speed], style: dict[_Speed, tuple[str, float]], slow: set[_Speed], top: float
) -> Iterator[str]:
    for i, speed in enumerate(speeds):
        colour, stroke = style[speed]
        dashes, more = "", ""
        if speed in slow:
            colour, stroke, dashes, more = _SLOW, 4.0, _DASHES, "; red where slower than most of its like"
        y = top + 14 + 26 * i
        yield (
            f'<line x1="{MARGIN}" y1="{y}" x2="{MARGIN + 36}" y2="{y}" stroke="{colour}" '
            f'stroke-width="{stroke:.2f}"{dashes}/>'
            f'<text x="{MARGIN + 46}" y="{y + 4.5}" font-size="13" fill="#1b1f24">'
            f"{rate(speed[0])} per direction, {time(speed[1])}{more}</text>"
        )
