"""Shared by schedules and programs: messages on links, holders of chunks, and their display in lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import ascending
from syntony.base.wording import counted, time
from syntony.synth.model.bound import Bounds
from syntony.synth.model.collective import Collective
from syntony.topologies.topology import Topology
from syntony.view.makers.network import link_name
from syntony.view.models import Highlight, Motion, Timeline, Use, timeline

COLOURS = 8


def start_and_end(collective: Collective, chunks: NDArray[np.integer]) -> dict[str, Any]:
    """Who holds which of `chunks` at the beginning and must hold them at the end: fields of Motion."""
    held, wanted = [], []
    share = 1.0 / collective.ranks if collective.combining else 1.0
    for place, chunk in enumerate(chunks.tolist()):
        held += [(collective.members[rank], place) for rank in sorted(collective.pre(chunk))]
        wanted += [(collective.members[rank], place) for rank in sorted(collective.post(chunk))]
    first, last = np.asarray(held, np.int32).reshape(-1, 2), np.asarray(wanted, np.int32).reshape(-1, 2)
    return {
        "holders": first[:, 0].copy(),
        "held": first[:, 1].copy(),
        "initial": np.full(len(first), share, np.float32),
        "wanted_by": last[:, 0].copy(),
        "wanted": last[:, 1].copy(),
    }


def _colours(motion: Motion) -> tuple[str, ...]:
    if len(motion.chunks) <= COLOURS:
        return motion.chunks
    return tuple(f"chunks {first}, {first + COLOURS}, .." for first in range(COLOURS))


def _details(motion: Motion, topology: Topology) -> list[str]:
    names = [node.name for node in topology.nodes]
    rows = zip(
        motion.chunk.tolist(),
        motion.src.tolist(),
        motion.dst.tolist(),
        motion.step.tolist(),
        motion.adds.tolist(),
        strict=True,
    )
    return [
        f"{motion.chunks[chunk]}: {names[src]} → {names[dst]}, step {step}{', added there' if adds else ''}"
        for chunk, src, dst, step, adds in rows
    ]


def link_lanes(motion: Motion, topology: Topology, all_links: bool) -> Timeline:
    """A lane per link; a span per message that crosses it. Without `all_links`, only links in use."""
    hops = np.diff(motion.path_offset)
    message = np.repeat(np.arange(len(hops)), hops)
    used = np.arange(len(topology.links)) if all_links else ascending(motion.path)
    number = np.full(len(topology.links), -1, np.int32)
    number[used] = np.arange(len(used))
    details = _details(motion, topology)
    return timeline(
        "links over time",
        [f"{link_name(topology, link)}" for link in used.tolist()],
        number[motion.path],
        motion.start[message],
        motion.left[message],
        motion.chunk[message] % COLOURS,
        motion.chunk[message],
        motion.chunks,
        _colours(motion),
        details=[details[at] for at in message.tolist()] if len(message) <= 200_000 else (),
        what="link",
        things=used.tolist(),
        words="A span lasts from a message's first byte on the link to its last.",
    )


def agent_lanes(motion: Motion, topology: Topology) -> Timeline:
    """Two lanes per agent: what it sends, and what it receives."""
    place = np.full(len(topology.nodes), -1, np.int32)
    place[motion.agents] = np.arange(len(motion.agents))
    took = motion.left - motion.start
    lane = np.r_[2 * place[motion.src], 2 * place[motion.dst] + 1].astype(np.int32)
    details = _details(motion, topology) if len(motion.chunk) <= 100_000 else []
    names = [topology.nodes[agent].name for agent in motion.agents.tolist()]
    shown = [name if name.startswith("rank") or not name.isdigit() else f"rank {name}" for name in names]
    return timeline(
        "ranks over time",
        [f"{name} {verb}" for name in shown for verb in ("sends", "receives")],
        lane,
        np.r_[motion.start, motion.arrival - took],
        np.r_[motion.left, motion.arrival],
        np.r_[motion.chunk, motion.chunk] % COLOURS,
        np.r_[motion.chunk, motion.chunk],
        motion.chunks,
        _colours(motion),
        groups=[name for name in shown for _ in range(2)],
        details=details * 2,
        what="rank",
        things=np.repeat(motion.agents, 2).tolist(),
        words="What each rank has on the wire to others, and from others.",
    )


def use_of(
    topology: Topology,
    busy: NDArray[np.float64],
    seconds: float,
    size: int,
    bounds: Bounds,
    words: str,
    witness: Highlight | None,
) -> Use:
    """Shares of `seconds`; the bound is the least average load of the links of a witness."""
    share = busy / seconds if seconds else busy * 0
    order = np.lexsort((np.arange(len(share)), -share)).astype(np.int32)
    cut = np.zeros(len(share), np.uint8)
    if witness:
        cut[list(witness.links)] = 1
    bound = float(size * bounds.throughput.seconds_per_byte) / seconds if seconds and witness else 0.0
    names = tuple(link_name(topology, link) for link in order.tolist())
    idle = int((share == 0).sum())
    told = f"The bound: {words}. Together these links are busy at least {bound:.1%} of the time. " if witness else ""
    told += f"{counted(idle, 'link')} of {len(share)} carry nothing." if idle else "Every link is used."
    return Use("how busy links are", order, names, share[order], cut[order], bound, told)


def last_arrival(motion: Motion, topology: Topology) -> tuple[str, dict[str, object]]:
    """Who gets the last byte, in words, and the page state that shows it."""
    if not len(motion.arrival):
        return "nothing moves", {}
    last = int(np.argmax(motion.arrival))
    name = topology.nodes[int(motion.dst[last])].name
    ends = np.zeros(len(topology.nodes))
    np.maximum.at(ends, motion.dst, motion.arrival)
    done = ends[ascending(motion.dst)]
    when = f"the first to have everything has it at {time(float(done.min()))}, the last at {time(float(done.max()))}"
    label = name if not name.isdigit() else f"rank {name}"
    chunk = int(motion.chunk[last])
    words = f"{label} is the last: {motion.chunks[chunk]} arrives there at {time(float(motion.arrival[last]))}; {when}."
    return words, {"chunk": chunk, "rank": int(motion.dst[last]), "t": float(motion.arrival[last])}
