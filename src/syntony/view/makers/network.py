"""A topology, and the drawing under everything that moves over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from syntony.base.command import UserError
from syntony.base.wording import counted, in_ranges, rate, time
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.bounds.wording import describe
from syntony.synth.model.bound import Bounds, Cut, Partition, Prices
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.symmetry.levels import LevelsError, levels_of
from syntony.topologies.drawing.draw import Point, bent, points_of
from syntony.topologies.hosts import hosts_of
from syntony.topologies.topology import Topology, TopologyError
from syntony.view.models import Drawing, Grid, Highlight, Question, View

_BOUNDED = ("all_reduce", "all_gather", "all_to_all")
_MOST_RANKS = 64
"""The bounds of larger networks take noticeable time; `syntony bound` computes them."""
_KINDS = {"rank": 0, "switch": 1, "nic": 2}


def drawing_of(topology: Topology, title: str = "network", highlights: Sequence[Highlight] = ()) -> Drawing:
    """The picture of `topo draw`."""
    points = _folded(topology, points_of(topology))
    lines = [(link.id, -1 if back is None else back.id, bend) for link, back, bend in bent(topology, points)]
    sources, destinations = topology.ends
    first: dict[tuple[float, Fraction], int] = {}
    speed = [first.setdefault((link.alpha, link.bandwidth), len(first)) for link in topology.links]
    host = np.full(len(topology.nodes), -1, np.int32)
    for number, one in enumerate(_hosts(topology)):
        host[list(one)] = number
    return Drawing(
        title,
        topology.name,
        np.asarray([x for x, _ in points], np.float32),
        np.asarray([y for _, y in points], np.float32),
        np.asarray([_KINDS[node.kind] for node in topology.nodes], np.uint8),
        tuple(node.name for node in topology.nodes),
        sources.astype(np.int32),
        destinations.astype(np.int32),
        np.asarray(speed, np.int32),
        tuple((float(width), alpha, f"{rate(width)}, {time(alpha)}") for alpha, width in first),
        np.asarray([line[0] for line in lines], np.int32),
        np.asarray([line[1] for line in lines], np.int32),
        np.asarray([line[2] for line in lines], np.float32),
        host,
        tuple(highlights),
    )


def _folded(topology: Topology, points: list[Point]) -> list[Point]:
    """Arranges hosts in several rows below the network if a single row would be too wide."""
    xy = np.asarray(points)
    wide, tall = np.ptp(xy[:, 0]), np.ptp(xy[:, 1])
    boxes = [list(nodes) for nodes in _hosts(topology)]
    if len(boxes) < 8 or wide < 4 * max(tall, 1.0):
        return points
    shapes = [xy[nodes].max(axis=0) - xy[nodes].min(axis=0) for nodes in boxes]
    cell = np.max(shapes, axis=0) + 110.0
    columns = math.ceil(math.sqrt(1.6 * len(boxes) * cell[1] / cell[0]))
    inside = {node for nodes in boxes for node in nodes}
    network = [node.id for node in topology.nodes if node.id not in inside]
    for place, nodes in enumerate(boxes):
        corner = np.asarray([place % columns, place // columns]) * cell
        xy[nodes] += corner - xy[nodes].min(axis=0)
    spread = columns * cell[0] / (len(network) + 1)
    for place, node in enumerate(network):
        xy[node] = ((place + 1) * spread - 55.0, -160.0)
    return [(float(x), float(y)) for x, y in xy]


def witness_of(topology: Topology, collective: Collective, bounds: Bounds) -> tuple[str, Highlight | None]:
    """The throughput bound in words, and its witness as a highlight."""
    found = bounds.throughput.witness
    if found is None:
        return "nothing must move", None
    words = describe(Network(topology, collective), found)
    nodes: tuple[int, ...] = ()
    if isinstance(found, Cut):
        others = tuple(sorted({node.id for node in topology.nodes} - set(found.nodes)))
        nodes = min(found.nodes, others, key=len)  # either side of the cut shows it
    elif isinstance(found, Partition):
        nodes = min(found.parts, key=len)
    name = f"{collective.kind}: {'links with a price' if isinstance(found, Prices) else 'bottleneck cut'}"
    return words, Highlight(name, words, nodes, tuple(found.links))


def view(topology: Topology, file: str) -> View:
    """Its drawing, its bounds and its hosts."""
    ranks = topology.ranks
    highlights, rows, questions = [], [], []
    for kind in _BOUNDED if 1 < ranks <= _MOST_RANKS else ():
        collective = Collective.make(kind, ranks)
        try:
            bounds = bounds_of(topology, collective)
        except UserError:
            continue  # no bound if ranks cannot reach each other
        words, witness = witness_of(topology, collective, bounds)
        busbw = bounds.throughput.algbw * float(collective.bus_factor)
        rows.append(
            (
                kind,
                str(bounds.latency.steps),
                time(bounds.latency.seconds),
                rate(bounds.throughput.algbw),
                rate(busbw),
                words,
            )
        )
        if witness:
            highlights.append(witness)
    if highlights:
        questions.append(
            Question("Which link limits?", f"{highlights[0].name}: {highlights[0].words}.", "network", {"highlight": 0})
        )
    highlights += _levels(topology) if 1 < ranks <= 4 * _MOST_RANKS else []
    for number, nodes in enumerate(_hosts(topology)[:256]):
        own = [node for node in nodes if node < ranks]
        highlights.append(Highlight(f"host {number}", f"host {number}: {in_ranges(own)}", tuple(nodes)))
    able = [node.id for node in topology.nodes if node.able]
    if able:
        adding = [node for node in able if topology.nodes[node].reduces]
        words = f"{counted(len(able), 'switch')} copy messages, {len(adding)} of them also add".replace(
            "switchs", "switches"
        )
        highlights.append(Highlight("switches that copy or add", words, tuple(able)))
    slowest = min((link.bandwidth for link in topology.links), default=Fraction(0))
    slow = tuple(link.id for link in topology.links if link.bandwidth == slowest)
    if slow and len(slow) < len(topology.links):
        highlights.append(Highlight("slowest links", f"{counted(len(slow), 'link')} of {rate(slowest)}", (), slow))
    if "slowed=" in topology.name or "without=" in topology.name:
        highlights.append(Highlight("damage", topology.name.partition(",")[2], (), slow))
    panels: list[Drawing | Grid] = [drawing_of(topology, "network", highlights)]
    if rows:
        columns = ("collective", "steps", "latency", "algbw at most", "busbw at most", "because")
        panels.append(Grid("what no schedule can beat", columns, tuple(rows)))
    panels.append(_links_table(topology))
    switches = sum(node.kind == "switch" for node in topology.nodes)
    nics = sum(node.kind == "nic" for node in topology.nodes)
    parts = [counted(ranks, "rank"), f"{switches} switches" if switches else "", f"{nics} NICs" if nics else ""]
    return View(
        topology.name,
        "topology",
        file,
        f"{', '.join(filter(None, parts))}, {counted(len(topology.links), 'link')}. {topology.about}".strip(),
        tuple(panels),
        facts=(("ranks", str(ranks)), ("links", str(len(topology.links))), ("hosts", str(len(_hosts(topology))))),
        questions=tuple(questions),
    )


def link_name(topology: Topology, link: int) -> str:
    """`rank 0 → switch 8`, the name of a lane."""
    one = topology.links[link]
    return f"{topology.nodes[one.src].name} → {topology.nodes[one.dst].name}"


def _hosts(topology: Topology) -> list[tuple[int, ...]]:
    """The nodes of every host that consists of more than a rank."""
    try:
        return [host.nodes for host in hosts_of(topology) if len(host.nodes) > 1]
    except TopologyError:
        return []


def _levels(topology: Topology) -> list[Highlight]:
    """Per level, its links, and the ranks of its first line."""
    try:
        levels = levels_of(topology, Collective.make("all_reduce", topology.ranks))
    except LevelsError:
        return []
    place = np.empty((topology.ranks, len(levels)), np.int64)
    place[levels.grid.reshape(-1)] = np.argwhere(np.ones(levels.shape, bool))
    sources, destinations = topology.ends
    direct = np.flatnonzero((sources < topology.ranks) & (destinations < topology.ranks))
    apart = place[sources[direct]] != place[destinations[direct]]
    found = []
    for axis, size in enumerate(levels.shape):
        along = direct[apart[:, axis] & (apart.sum(axis=1) == 1)]
        line = sorted(np.moveaxis(levels.grid, axis, 0).reshape(size, -1)[:, 0].tolist())
        words = (
            f"level {axis} of {levels} ({levels.source}): lines of {counted(size, 'rank')}, such as {in_ranges(line)}"
        )
        found.append(Highlight(f"level {axis}: {counted(size, 'rank')}", words, tuple(line), tuple(along.tolist())))
    return found if len(levels) > 1 else []


def _links_table(topology: Topology) -> Grid:
    kinds: dict[tuple[str, str, Fraction, float], int] = {}
    for link in topology.links:
        ends = (topology.nodes[link.src].kind, topology.nodes[link.dst].kind)
        key = (*ends, link.bandwidth, link.alpha)
        kinds[key] = kinds.get(key, 0) + 1
    rows = tuple(
        (f"{src} → {dst}", str(count), rate(width), time(alpha))
        for (src, dst, width, alpha), count in sorted(kinds.items(), key=lambda item: -item[1])
    )
    return Grid("kinds of links", ("from, to", "links", "bandwidth", "latency"), rows)
