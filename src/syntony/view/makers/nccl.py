"""NCCL's own output: NCCL_DEBUG=INFO logs, and the XML of NCCL_GRAPH_DUMP_FILE."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from syntony.base.command import UserError
from syntony.base.files.text_file import read_text
from syntony.base.files.xml_document import read as read_xml
from syntony.base.wording import counted, in_ranges
from syntony.view.models import Drawing, Grid, Highlight, Panel, Question, View, Words

_RING = re.compile(r"Channel (\d+)/\d+\s*:((?:\s+\d+)+)\s*$")
_LINK = re.compile(r"Channel (\d+)(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\](?: \[\w+\])? via (\S+)")
_STEP = re.compile(r"Ring (\d+) : (-?\d+) -> (-?\d+) -> (-?\d+)")
_TREE = re.compile(r"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(-?\d+)->(-?\d+)")
_WHO = re.compile(r"^(?:\[[^\]]*\] )*(\S+?):(\d+):(\d+) \[(\d+)\] NCCL (\w+) (.*)$")
_INIT = re.compile(r"rank (\d+) nranks (\d+)")
_VERSION = re.compile(r"NCCL version (\S+)")


def is_log(head: str) -> bool:
    """Whether a text is the output of a job with NCCL_DEBUG set."""
    return " NCCL INFO " in head or " NCCL WARN " in head


def log(file: str) -> View:
    """A log: ranks with their rings and trees, transports, and NCCL's warnings."""
    rings: dict[int, list[int]] = {}
    steps: dict[int, dict[int, int]] = {}
    trees: dict[int, set[tuple[int, int]]] = {}
    via: dict[tuple[int, int], set[str]] = {}
    hosts: dict[int, str] = {}
    warnings: list[str] = []
    started: set[int] = set()
    complete: set[int] = set()
    settings: dict[str, str] = {}
    ranks, version = 0, ""
    for line in read_text(file).splitlines():
        found = _WHO.search(line)
        text = found[6] if found else line
        if found and found[5] == "WARN":
            warnings.append(f"{found[1]} [{found[4]}]: {text}")
        if told := _VERSION.search(line):
            version = told[1]
        if told := _INIT.search(text):
            rank, ranks = int(told[1]), max(ranks, int(told[2]))
            if found:
                hosts[rank] = found[1]
            (complete if "COMPLETE" in text else started).add(rank)
        if told := _RING.search(text):
            rings[int(told[1])] = [int(one) for one in told[2].split()]
        if told := _STEP.search(text):
            steps.setdefault(int(told[1]), {})[int(told[3])] = int(told[4])
        if told := _LINK.search(text):
            via.setdefault((int(told[2]), int(told[3])), set()).add(told[4])
        for told in _TREE.finditer(text) if "Trees" in text else ():
            trees.setdefault(int(told[1]), set()).update(
                (int(told[5]), int(child)) for child in told.groups()[1:4] if int(child) >= 0
            )
        if told := re.search(r"(NCCL_\w+) set (?:by environment )?to (\S+?)\.?$", text):
            settings[told[1]] = told[2]
    for channel, after in steps.items():
        if channel not in rings and 0 in after:
            order = [0]
            while after.get(order[-1], 0) not in order and len(order) <= len(after):
                order.append(after[order[-1]])
            rings[channel] = order
    ranks = max([ranks, *(max(order) + 1 for order in rings.values()), *(max(pair) + 1 for pair in via)], default=0)
    if not ranks:
        raise UserError(f"{file}: an NCCL log without a communicator: no line says `rank .. nranks ..`")
    missing = sorted(set(range(ranks)) - complete) if started else []
    panels: list[Panel] = [_ranks_drawing(ranks, rings, trees, via, hosts)]
    if warnings:
        panels.append(Words("warnings", tuple(("bad", one) for one in dict.fromkeys(warnings))))
    if via:
        kinds: dict[str, int] = {}
        for names in via.values():
            for name in names:
                kinds[name] = kinds.get(name, 0) + 1
        panels.append(
            Grid(
                "transports",
                ("via", "pairs of ranks"),
                tuple((name, str(count)) for name, count in sorted(kinds.items())),
            )
        )
    if rings:
        panels.append(
            Grid(
                "rings",
                ("channel", "order of ranks"),
                tuple((str(channel), " ".join(map(str, order))) for channel, order in sorted(rings.items())),
            )
        )
    if settings:
        panels.append(Grid("settings", ("variable", "value"), tuple(sorted(settings.items()))))
    late = (
        f"{in_ranges(missing)} never said `Init COMPLETE`." if missing else "Every rank completed its initialization."
    )
    slow = sorted(name for names in via.values() for name in names if name.startswith(("NET", "SHM")))
    limit = (
        f"Between some ranks data goes over {', '.join(dict.fromkeys(slow))}: the slowest of the transports."
        if slow
        else "All pairs are peer to peer."
    )
    headline = (
        f"{counted(ranks, 'rank')} on {counted(len(set(hosts.values())) or 1, 'host')}, {counted(len(rings), 'ring')}."
    )
    headline += (
        f" {counted(len(set(warnings)), 'warning')}: {warnings[0]}" if warnings else "" if missing else " No warning."
    )
    headline += f" {late}" if missing else ""
    return View(
        f"NCCL log: {counted(ranks, 'rank')}",
        "NCCL log",
        file,
        headline,
        tuple(panels),
        "bad" if warnings or missing else "good",
        (
            ("NCCL", version or "unknown"),
            ("ranks", str(ranks)),
            ("rings", str(len(rings))),
            ("warnings", str(len(set(warnings)))),
        ),
        (
            Question("Who is late?", late[:1].upper() + late[1:], "warnings" if warnings else ""),
            Question("Which link limits?", limit, "transports"),
        ),
    )


def _ranks_drawing(
    ranks: int,
    rings: Mapping[int, Sequence[int]],
    trees: Mapping[int, set[tuple[int, int]]],
    via: Mapping[tuple[int, int], set[str]],
    hosts: Mapping[int, str],
) -> Drawing:
    """Ranks on a circle, a line per communicating pair; rings and trees can be highlighted."""
    pairs = {pair: "/".join(sorted(names)) for pair, names in via.items()}
    for order in rings.values():
        for at, rank in enumerate(order):
            pairs.setdefault((rank, order[(at + 1) % len(order)]), "ring")
    for edges in trees.values():
        for parent, child in edges:
            pairs.setdefault((parent, child), "tree")
    pairs = {pair: name for pair, name in pairs.items() if pair[0] != pair[1]}
    number = {pair: at for at, pair in enumerate(pairs)}
    speeds = list(dict.fromkeys(pairs.values()))
    lines = [(at, number.get((dst, src), -1)) for (src, dst), at in number.items()]
    kept = [(at, back) for at, back in lines if back < 0 or at < back]
    highlights = [
        Highlight(
            f"ring of channel {channel}",
            f"channel {channel}: {' → '.join(map(str, order))}",
            (),
            tuple(
                number[order[at], order[(at + 1) % len(order)]]
                for at in range(len(order))
                if (order[at], order[(at + 1) % len(order)]) in number
            ),
        )
        for channel, order in sorted(rings.items())
    ] + [
        Highlight(
            f"tree of channel {channel}",
            f"channel {channel}: " + ", ".join(f"{parent} over {child}" for parent, child in sorted(edges)),
            (),
            tuple(number[edge] for edge in sorted(edges) if edge in number),
        )
        for channel, edges in sorted(trees.items())
    ]
    names = sorted(set(hosts.values()))
    radius = max(120.0, 40.0 * ranks / math.pi)
    angles = [2 * math.pi * rank / ranks - math.pi / 2 for rank in range(ranks)]
    return Drawing(
        "who talks to whom",
        "NCCL",
        np.asarray([radius * math.cos(one) for one in angles], np.float32),
        np.asarray([radius * math.sin(one) for one in angles], np.float32),
        np.zeros(ranks, np.uint8),
        tuple(f"rank{rank}" for rank in range(ranks)),
        np.asarray([src for src, _ in number], np.int32),
        np.asarray([dst for _, dst in number], np.int32),
        np.asarray([speeds.index(name) for name in pairs.values()], np.int32),
        tuple((1.0, 0.0, name) for name in speeds),
        np.asarray([at for at, _ in kept], np.int32),
        np.asarray([back for _, back in kept], np.int32),
        np.zeros(len(kept), np.float32),
        np.asarray([names.index(hosts[rank]) if rank in hosts else -1 for rank in range(ranks)], np.int32),
        tuple(highlights),
    )


def graph(file: str) -> View:
    """NCCL_GRAPH_FILE or NCCL_GRAPH_DUMP_FILE: per pattern and channel the order of GPUs and NICs."""
    root = read_xml(Path(file))
    rows: list[tuple[str, ...]] = []
    panels: list[Panel] = []
    rings: dict[int, list[int]] = {}
    patterns = {"1": "balanced tree", "2": "split tree", "3": "tree", "4": "ring", "5": "NVLS", "6": "CollNet direct"}
    for one in root.children:
        told = one.attributes
        pattern = patterns.get(told.get("pattern", ""), f"pattern {told.get('pattern', '?')}")
        for number, channel in enumerate(one.children):
            order = [(part.tag, part.attributes.get("dev", "?")) for part in channel.children]
            text = " → ".join(f"{kind.upper()} {dev}" for kind, dev in order)
            rows.append(
                (
                    told.get("id", ""),
                    pattern,
                    str(number),
                    text,
                    told.get("speedintra", "-"),
                    told.get("speedinter", "-"),
                    told.get("typeintra", "-"),
                    told.get("typeinter", "-"),
                )
            )
            gpus = [int(dev) for kind, dev in order if kind == "gpu" and dev.isdigit()]
            if told.get("pattern") == "4" and len(gpus) > 1:
                rings[len(rings)] = gpus
    if not rows:
        raise UserError(f"{file}: a graph file without a channel; NCCL writes it with NCCL_GRAPH_DUMP_FILE")
    if rings:
        panels.append(_ranks_drawing(max(max(order) for order in rings.values()) + 1, rings, {}, {}, {}))
    panels.append(
        Grid(
            "channels",
            ("graph", "pattern", "channel", "order", "GB/s inside", "GB/s between", "inside", "between"),
            tuple(rows),
        )
    )
    speeds = {row[4] for row in rows}
    return View(
        "NCCL graph",
        "NCCL graph",
        file,
        f"{counted(len(rows), 'channel')} in {counted(len({row[0] for row in rows}), 'graph')}.",
        tuple(panels),
        facts=(("channels", str(len(rows))), ("GB/s per channel", ", ".join(sorted(speeds)))),
        questions=(
            Question(
                "Which link limits?",
                f"Channels run at {', '.join(sorted(speeds))} GB/s inside hosts and "
                f"{', '.join(sorted({row[5] for row in rows}))} between them, as NCCL judged.",
                "channels",
            ),
        ),
    )
