"""Writes algorithm files of msccl-tools (`.msccl.json`); json_file.py reads them.

A send in such a file moves everything that its source holds of a chunk. So a Schedule can be written only if each of
its transfers does that. The written text is read back and proven before it is returned.
"""

from __future__ import annotations

import json
from collections import defaultdict
from fractions import Fraction
from math import ceil

import numpy as np

from syntony.synth.checker import check_schedule
from syntony.synth.formats.msccl.json_file import read_msccl_json
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import round_bandwidth
from syntony.synth.model.schedule import Schedule
from syntony.synth.model.target import TargetError
from syntony.synth.symmetry.groups import expand

_NAMES = {
    "all_gather": "Allgather(n={n})",
    "all_reduce": "Allreduce(n={n})",
    "reduce_scatter": "ReduceScatter(n={n})",
    "all_to_all": "Alltoall(n={n})",
    "broadcast": "Broadcast(n={n},root={root})",
    "reduce": "Reduce(n={n},root={root})",
    "gather": "Gather(n={n},root={root})",
    "scatter": "Scatter(n={n},root={root})",
}
_RUNTIME_NAMES = {
    "all_gather": "allgather",
    "all_reduce": "allreduce",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
}

Pair = tuple[int, int]


def msccl_json_text(schedule: Schedule) -> str:
    """The text of the file; TargetError if the format cannot express the Schedule."""
    whole = expand(schedule)
    collective = whole.collective
    _check_expressible(whole)
    cut = len(collective.chunks) // collective.blocks
    links, switches, routes = _network(whole)
    rounds = _rounds(whole, routes)
    sends = _sends(whole, cut)
    held: dict[str, dict[int, list[int]]] = {"input_map": {}, "output_map": {}}
    for name, ends in (("input_map", collective.pre), ("output_map", collective.post)):
        for chunk in range(len(collective.chunks)):
            for rank in sorted(ends(chunk)):
                held[name].setdefault(rank, []).append(_address(collective, chunk, cut))
    title = _NAMES[collective.kind].format(n=collective.ranks, root=collective.root)
    steps = len(rounds)
    document = {
        "msccl_type": "algorithm",
        "name": f"{title}-{whole.topology.name}-steps={steps},chunks={cut}",
        "instance": {
            "msccl_type": "instance",
            "steps": steps,
            "extra_rounds": sum(rounds) - steps,
            "chunks": cut,
            "pipeline": None,
            "extra_memory": None,
            "allow_exchange": False,
        },
        **held,
        "steps": [
            {"msccl_type": "step", "rounds": count, "sends": rows} for count, rows in zip(rounds, sends, strict=True)
        ],
        "collective": {
            "msccl_type": "collective",
            "name": title,
            "nodes": collective.ranks,
            "chunks": _chunks(collective, cut),
            "triggers": {},
            "runtime_name": _RUNTIME_NAMES.get(collective.kind, "custom"),
        },
        "topology": {
            "msccl_type": "topology",
            "name": whole.topology.name,
            "switches": switches,
            "links": links,
        },
    }
    text = json.dumps(document) + "\n"
    verdict = check_schedule(read_msccl_json(json.loads(text), "what was written"))
    if not verdict:
        raise _refused(f"read back, its sends mean something else: {verdict.fault}")
    return text


def _refused(message: str) -> TargetError:
    return TargetError(f"this schedule cannot be written as .msccl.json: {message}")


def _check_expressible(schedule: Schedule) -> None:
    collective = schedule.collective
    if schedule.in_network:
        raise _refused("one of its switches adds or copies; in the format, only ranks do")
    if collective.ranks != schedule.topology.ranks or collective.members != tuple(range(collective.ranks)):
        raise _refused(
            f"it is for {collective.ranks} of {schedule.topology.ranks} ranks; it must be for all of them, in order"
        )
    if np.any(collective.chunks.weight != 1) or len(set(np.bincount(collective.chunks.block).tolist())) > 1:
        raise _refused("its chunks differ in weight, or its blocks in their number of chunks; they must be equal")


def _address(collective: Collective, chunk: int, cut: int) -> int:
    block, ranks = chunk // cut, collective.ranks
    if collective.kind == "all_to_all":  # in the format, destinations come first
        block = block % ranks * ranks + block // ranks
    return block * cut + chunk % cut


def _chunks(collective: Collective, cut: int) -> list[dict[str, object]]:
    """The collective's chunks before they are cut: one per contribution."""
    rows: list[tuple[int, int, list[int]]] = []
    for block in range(collective.blocks):
        address = _address(collective, block * cut, cut) // cut
        rows += [(address, rank, sorted(collective.post(block * cut))) for rank in sorted(collective.pre(block * cut))]
    return [
        {"msccl_type": "chunk", "pre": [rank], "post": post, "addr": address} for address, rank, post in sorted(rows)
    ]


def _sends(schedule: Schedule, cut: int) -> list[list[list[int]]]:
    """The sends by step; TargetError for a transfer of less than its source then holds of the chunk."""
    values, collective = schedule.values, schedule.collective
    held: dict[Pair, frozenset[int]] = {
        (rank, chunk): frozenset({rank}) for chunk in range(len(collective.chunks)) for rank in collective.pre(chunk)
    }
    if not collective.combining:
        held = {(rank, chunk): collective.pre(chunk) for rank, chunk in held}
    steps: list[list[list[int]]] = []
    rows = schedule.transfers.rows()
    for step in range(schedule.steps):
        after = dict(held)
        sends = []
        for row in rows:
            if row.step != step or row.src == row.dst:
                continue
            chunk = int(values.chunk[row.value])
            if held.get((row.src, chunk)) != values.contributions(row.value):
                raise _refused(
                    f"step {step}: rank {row.src} sends a part of what it holds of chunk {chunk}; there, it sends all"
                )
            after[row.dst, chunk] = after.get((row.dst, chunk), frozenset()) | values.contributions(row.value)
            sends.append([_address(collective, chunk, cut), row.src, row.dst])
        steps.append(sorted(sends))
        held = after
    return steps


def _network(schedule: Schedule) -> tuple[list[list[int]], list[list[object]], dict[Pair, set[tuple[int, ...]]]]:
    """links[dst][src], switches, and the routes that the transfers of each pair take."""
    topology, ranks = schedule.topology, schedule.collective.ranks
    unit = round_bandwidth(topology)
    routes: dict[Pair, set[tuple[int, ...]]] = defaultdict(set)
    for row in schedule.transfers.rows():
        if row.route:
            routes[row.src, row.dst].add(row.route)
    links = [[0] * ranks for _ in range(ranks)]
    for link in topology.links:
        if link.src < ranks and link.dst < ranks:
            links[link.dst][link.src] += int(link.bandwidth / unit)
    users: dict[int, set[Pair]] = defaultdict(set)
    for pair, found in routes.items():
        if len(found) > 1 and any(len(route) > 1 for route in found):
            raise _refused(f"rank {pair[0]} reaches rank {pair[1]} on several routes through switches; it must be one")
        for route in found:
            for link_id in route:
                users[link_id].add(pair)
    for (src, dst), found in routes.items():
        route = next(iter(found))
        if len(route) > 1:
            own = [link for link in route if len(users[link]) == 1] or list(route)
            links[dst][src] = min(int(topology.links[link].bandwidth / unit) for link in own)
    switches: list[list[object]] = []
    for link_id, pairs in users.items():
        if len(pairs) == 1:
            continue
        sources, targets = sorted({src for src, _ in pairs}), sorted({dst for _, dst in pairs})
        others = {(s, d) for s in sources for d in targets if links[d][s]} - pairs
        if others:
            raise _refused(
                f"link {link_id} is shared by the routes of {len(pairs)} pairs of ranks, but not by {min(others)}; "
                "limits are there for all pairs between two sets of ranks"
            )
        switches.append([sources, targets, int(topology.links[link_id].bandwidth / unit), f"link{link_id}"])
    return links, switches, routes


def _rounds(schedule: Schedule, routes: dict[Pair, set[tuple[int, ...]]]) -> list[int]:
    """Rounds per step: those of the Schedule, or as many as its busiest link needs."""
    if len(schedule.rounds):
        return [int(count) for count in schedule.rounds]
    unit = round_bandwidth(schedule.topology)
    load = np.zeros((schedule.steps, len(schedule.topology.links)), np.int64)
    for row in schedule.transfers.rows():
        for link in row.route:
            load[row.step, link] += 1
    per_round = [link.bandwidth / unit for link in schedule.topology.links]
    return [
        max((ceil(Fraction(int(count)) / per_round[link]) for link, count in enumerate(row)), default=1) or 1
        for row in load.tolist()
    ]
