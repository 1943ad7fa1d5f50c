"""One panel of a View as a picture for a paper: SVG, PDF or PNG, by matplotlib, from the same models as the page.

Colours are Okabe and Ito's; dashes and marks make the same distinctions as colours. SVG keeps its text as text.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from syntony.base.command import UserError
from syntony.base.wording import rate, time
from syntony.view.models import (
    CRITICAL,
    EXPOSED,
    FAULT,
    Circle,
    Curves,
    Drawing,
    Grid,
    Motion,
    Timeline,
    Use,
    View,
    Words,
)
from syntony.view.wording import size_name

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8980B", "#56B4E9", "#666666", "#7A4BB5")
CUT, INK, SOFT = "#B42318", "#1B1F24", "#57606A"
_DASHES: Any = ("-", "--", "-.", ":")
_STYLE: Any = {
    "font.size": 8,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "savefig.bbox": "tight",
    "savefig.dpi": 200,
    "svg.hashsalt": "syntony",
}
_WIDE = 6.6  # inches
_MOST_LANES = 80
_UNITS: dict[str, Callable[[float], str]] = {
    "bytes": size_name,
    "seconds": time,
    "rate": rate,
    "ratio": lambda value: f"{value:.3g}",
    "number": lambda value: f"{value:.4g}",
}


def panels_of(view: View) -> list[tuple[str, Any]]:
    """The drawable parts: its panels by title and, if chunks move, the tree of its first chunk."""
    found: list[tuple[str, Any]] = []
    for panel in view.panels:
        if isinstance(panel, Words | Grid | Circle):
            continue
        found.append((panel.title, panel))
        if isinstance(panel, Drawing) and panel.motion is not None:
            found.append(("tree", (panel, panel.motion)))
    return found


def picture(views: Sequence[View], title: str | None, suffix: str) -> tuple[str, bytes]:
    """The title and the bytes of a picture: the panels whose title begins with `title`, of all views, in a column.

    Raises UserError that lists the titles if no view has one.
    """
    import matplotlib
    from matplotlib.figure import Figure

    chosen = []
    for view in views:
        there = panels_of(view)
        fitting = [one for one in there if title is None or one[0].lower().startswith(title.lower())]
        chosen += [(view, *fitting[0])] if fitting else []
    if not chosen:
        names = dict.fromkeys(name for view in views for name, _ in panels_of(view))
        what = f"--panel {title}: no panel begins so" if title else f"{views[0].file}: it has nothing to draw"
        raise UserError(f"{what}; there are {', '.join(names) or 'none'}")
    heights = [_height(panel) for _, _, panel in chosen]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDE, sum(heights) + 0.3 * (len(heights) - 1)), layout="constrained")
        axes = figure.subplots(len(chosen), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axis, (view, name, panel) in zip(axes, chosen, strict=True):
            _draw(axis, panel)
            axis.set_title(f"{view.title}: {name}", fontsize=9, loc="left")
        content = io.BytesIO()
        metadata = {"Date": None} if suffix == ".svg" else {"CreationDate": None} if suffix == ".pdf" else {}
        figure.savefig(content, format=suffix[1:], metadata=metadata)
    return f"{chosen[0][1]} of {', '.join(view.title for view, _, _ in chosen)}", content.getvalue()


def _height(panel: Any) -> float:
    match panel:
        case Timeline():
            return 0.8 + 0.13 * min(_MOST_LANES, len(panel.lanes))
        case Use():
            return 0.7 + 0.13 * min(32, len(panel.link))
        case Drawing():
            edge = 2 * _edge(panel)
            wide, tall = float(np.ptp(panel.x)) + edge, float(np.ptp(panel.y)) + edge
            return float(np.clip(0.5 + _WIDE * tall / wide, 1.8, 6.0))
        case (Drawing(), Motion()):
            return 0.7 + 0.14 * min(64, len(panel[1].agents))
    return 2.9


def _edge(drawing: Drawing) -> float:
    """The space around the nodes of a drawing, the same on all sides."""
    return 0.06 * (max(float(np.ptp(drawing.x)), float(np.ptp(drawing.y))) or 1.0)


def _draw(axis: Axes, panel: Any) -> None:
    match panel:
        case Timeline():
            _timeline(axis, panel)
        case Use():
            _use(axis, panel)
        case Curves():
            _curves(axis, panel)
        case Drawing():
            _drawing(axis, panel)
        case (Drawing(), Motion()):
            _tree(axis, *panel)


def _unit_of(seconds: float) -> tuple[float, str]:
    return next(((size, unit) for unit, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= size), (1e-6, "us"))


def _timeline(axis: Axes, panel: Timeline) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    lane = panel.track_lane[panel.track]
    shown = min(_MOST_LANES, len(panel.lanes))
    keep = np.flatnonzero(lane < shown)
    first = np.searchsorted(panel.track_lane, np.arange(len(panel.lanes) + 1))
    tracks = np.diff(first)[lane]
    scale, unit = _unit_of(float(panel.end.max(initial=0.0)))
    tall = 0.86 / tracks[keep]
    low = lane[keep] - 0.43 + (panel.track[keep] - first[lane[keep]]) * tall
    begin, end = panel.begin[keep] / scale, panel.end[keep] / scale
    corners = np.stack([np.c_[begin, low], np.c_[end, low], np.c_[end, low + tall], np.c_[begin, low + tall]], axis=1)
    colour = np.asarray(COLOURS)[panel.colour[keep] % 8]
    mark = panel.mark[keep]
    span = max(float(end.max(initial=0.0)), panel.until / scale) or 1.0
    wide = end - begin > 0.003 * span  # narrower ones have no edge, which would cover them
    for hatch in ("", "/////"):
        which = (mark & EXPOSED != 0) == bool(hatch)
        if which.any():
            edges = np.where(wide[which], 0.3, 0.0).tolist()
            boxes = PolyCollection(
                corners[which], facecolors=colour[which].tolist(), edgecolors="white", linewidths=edges
            )
            if hatch:
                boxes.set_hatch(hatch)
            boxes.set_rasterized(len(keep) > 20_000)
            axis.add_collection(boxes)
    if (which := mark & FAULT != 0).any():
        axis.add_collection(PolyCollection(corners[which], facecolors="none", edgecolors=CUT, linewidths=1.0))
    used = [number for number in np.unique(panel.colour[keep] % 8).tolist() if number < len(panel.colours)]
    handles: list[Artist] = [Patch(color=COLOURS[number], label=panel.colours[number]) for number in used]
    if (mark & EXPOSED != 0).any():
        handles.append(Patch(facecolor=SOFT, edgecolor="white", hatch="/////", label="exposed"))
    if (which := mark & CRITICAL != 0).any():
        axis.hlines(low[which], begin[which], end[which], color=INK, linewidth=1.6)
        handles.append(Line2D([], [], color=INK, linewidth=1.6, label="critical path"))
    below = axis.transAxes + ScaledTranslation(0, -26 / 72, axis.figure.dpi_scale_trans)
    axis.legend(
        handles=handles,
        fontsize=6,
        frameon=False,
        ncols=4,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=below,
    )
    for at in np.flatnonzero(end - begin > 0.035 * span)[:250].tolist():
        text = panel.labels[panel.label[keep[at]]]
        room = (end[at] - begin[at]) / span * 95
        short = text if len(text) < room else "".join(letter for letter in text if letter.isdigit())
        if short and len(short) < room and tall[at] > 0.6:
            axis.text(
                (begin[at] + end[at]) / 2,
                low[at] + tall[at] / 2,
                short,
                ha="center",
                va="center",
                fontsize=5,
                color="white",
            )
    axis.set_xlim(min(0.0, float(begin.min(initial=0.0))), span)
    axis.set_ylim(shown - 0.5, -0.5)
    axis.set_yticks(
        range(shown),
        [("▸ " if at in panel.late else "") + name for at, name in enumerate(panel.lanes[:shown])],
        fontsize=6,
    )
    more = f"; {len(panel.lanes) - shown} more lanes are not drawn" if len(panel.lanes) > shown else ""
    axis.set_xlabel(f"{unit}{more}")
    axis.tick_params(axis="y", length=0)


def _use(axis: Axes, panel: Use) -> None:
    shown = min(32, len(panel.link))
    cut = panel.cut[:shown].astype(bool)
    bars = axis.barh(range(shown), 100 * panel.busy[:shown], color=COLOURS[0], height=0.72)
    for bar, inside in zip(bars, cut.tolist(), strict=True):
        if inside:
            bar.set_edgecolor(CUT)
            bar.set_hatch("///")
    if panel.bound:
        axis.axvline(
            100 * panel.bound, color=CUT, linestyle="--", linewidth=1.2, label="bound: the hatched links, on average"
        )
        axis.legend(fontsize=6, frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    axis.set_yticks(range(shown), panel.names[:shown], fontsize=6)
    axis.set_ylim(shown - 0.5, -0.5)
    axis.set_xlim(0, 104)
    axis.set_xlabel(
        f"busy, % of the time{f'; the busiest {shown} of {len(panel.link)} links' if shown < len(panel.link) else ''}"
    )


def _curves(axis: Axes, panel: Curves) -> None:
    for number, one in enumerate(panel.series):
        colour = CUT if one.limit else COLOURS[number % 8]
        marker = "" if one.limit or panel.stepped or len(one.x) >= 60 else "os^vD"[number % 5]
        (line,) = axis.plot(one.x, one.y, color=colour, label=one.name, linewidth=1.2, marker=marker, markersize=3)
        line.set_linestyle("--" if one.limit else _DASHES[number // 2 % 4])
        line.set_drawstyle("steps-post" if panel.stepped else "default")
        if one.low is not None and one.high is not None:
            axis.fill_between(one.x, one.low, one.high, color=colour, alpha=0.15, linewidth=0)
    if panel.log_x:
        axis.set_xscale("log", base=2 if panel.x[1] == "bytes" else 10)
    if panel.log_y:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.xaxis.set_major_formatter(lambda value, _: _UNITS[panel.x[1]](value))
    axis.yaxis.set_major_formatter(lambda value, _: _UNITS[panel.y[1]](value))
    axis.set_xlabel(panel.x[0])
    axis.set_ylabel(panel.y[0])
    axis.grid(True, linewidth=0.3, alpha=0.6)
    axis.legend(fontsize=6.5, frameon=False)


def _drawing(axis: Axes, panel: Drawing) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    many = len(panel.line_link) > 3000
    cut = {link for one in panel.highlights[:1] for link in one.links} if panel.motion is not None else set()
    widest = max((width for width, _, _ in panel.speeds), default=1.0)
    for link, bend in zip(panel.line_link.tolist(), panel.bend.tolist(), strict=True):
        a, b = panel.link_src[link], panel.link_dst[link]
        x0, y0, dx, dy = panel.x[a], panel.y[a], panel.x[b] - panel.x[a], panel.y[b] - panel.y[a]
        far = float(np.hypot(dx, dy)) or 1.0
        left_x, left_y = bend * dy / far, -bend * dx / far
        points = [
            (x0, y0),
            (x0 + 0.15 * dx + left_x, y0 + 0.15 * dy + left_y),
            (x0 + 0.85 * dx + left_x, y0 + 0.85 * dy + left_y),
            (x0 + dx, y0 + dy),
        ]
        speed = panel.speed[link]
        axis.add_patch(
            PathPatch(
                Path(points, [1, 4, 4, 4]),
                fill=False,
                edgecolor=CUT if link in cut else COLOURS[speed % 8],
                linewidth=(0.2 if many else 0.5 + 1.3 * (panel.speeds[speed][0] / widest) ** 0.5),
                linestyle="--" if speed % 3 == 1 else "-",
                alpha=0.4 if many else 0.9,
                rasterized=many,
            )
        )
    small = len(panel.x) > 160
    for kind, marker in ((0, "o"), (1, "s"), (2, "D")):
        mine = panel.kind == kind
        axis.scatter(
            panel.x[mine],
            panel.y[mine],
            s=3 if small else 130 if kind == 0 else 150,
            marker=marker,
            zorder=3,
            facecolors="white" if kind == 0 else "#F0F2F4",
            edgecolors=INK,
            linewidths=0.3 if small else 0.8,
        )
    if not small:
        for x, y, name, kind in zip(panel.x, panel.y, panel.names, panel.kind, strict=True):
            axis.text(
                x, y, name.removeprefix("rank"), ha="center", va="center", fontsize=7 if kind == 0 else 4, zorder=4
            )
    for number, (_, _, words) in enumerate(panel.speeds[:6]):
        axis.plot([], [], color=COLOURS[number % 8], linestyle="--" if number % 3 == 1 else "-", label=words)
    if panel.speeds:
        axis.legend(fontsize=6, frameon=False, loc="upper left", bbox_to_anchor=(0, 0))
    edge = _edge(panel)
    axis.set_aspect("equal")
    axis.set_xlim(panel.x.min() - edge, panel.x.max() + edge)
    axis.set_ylim(panel.y.max() + edge, panel.y.min() - edge)
    axis.set_axis_off()


def _tree(axis: Axes, drawing: Drawing, motion: Motion, chunk: int = 0) -> None:
    """Ranks in the order in which the chunk reaches them, time to the right, an arrow per message."""
    mine = np.flatnonzero(motion.chunk == chunk)
    nodes = list(dict.fromkeys([*motion.src[mine].tolist(), *motion.dst[mine].tolist()]))
    at = {node: place for place, node in enumerate(nodes)}
    scale, unit = _unit_of(motion.seconds)
    for message in mine.tolist():
        look = {
            "arrowstyle": "-[,widthB=0.15" if motion.adds[message] else "-|>",
            "color": COLOURS[0],
            "linewidth": 0.7,
            "mutation_scale": 6,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        ends = (
            (motion.arrival[message] / scale, at[int(motion.dst[message])]),
            (motion.start[message] / scale, at[int(motion.src[message])]),
        )
        axis.annotate("", *ends, arrowprops=look)
    axis.set_yticks(range(len(nodes)), [drawing.names[node] for node in nodes], fontsize=6)
    axis.set_ylim(len(nodes) - 0.5, -0.5)
    axis.set_xlim(0, motion.seconds / scale * 1.01)
    axis.hlines(range(len(nodes)), 0, motion.seconds / scale, linewidth=0.3, color="#D0D7DE", zorder=0)
    axis.set_xlabel(f"{unit}; {motion.chunks[chunk]}")
    axis.tick_params(axis="y", length=0)
