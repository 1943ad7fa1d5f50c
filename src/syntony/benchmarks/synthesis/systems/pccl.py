"""Table `pccl`: collectives of process groups, whose data other devices forward, beside the group's own links alone.

    mesh 4x4, group of its first row         . alone: only the links among the four
        0 ── 1 ── 2 ── 3                     . forwarded: all 24 cables; ranks 4 to 15 are routers (`,group=0-3`)
        │    │    │    │
        4 ── 5 ── 6 ── 7  ..

Several groups at once are one all_to_all of the ranks of all of them, with nearly nothing between groups: blocks
between groups have one part in GRAIN of a block within a group, because a block cannot be empty. So all flows are
planned together, and every rank relays for every group.

Peer, as published (Won et al., PCCL, arXiv 2606.07019; only the abstract could be read): near-optimal algorithms for
process groups; it gives no figure for them. Its one figure, 11.68 min for an all_to_all of 512, is in table `alltoall`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import numpy as np

from syntony.benchmarks.synthesis.table import Row, proven_table, timed
from syntony.benchmarks.tables import Part
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.forest import search as forest
from syntony.synth.model.collective import Collective, CollectiveError
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.graph.group import group_view
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

SIZE = 1 << 30
GRAIN = 1 << 12
GAP = 0.01
KINDS = ("all_gather", "all_reduce", "all_to_all")
Group = tuple[int, ...]


def block(side: int, rows: range, columns: range) -> Group:
    """Ranks of a grid of `side` columns that are in these rows and columns."""
    return tuple(row * side + column for row in rows for column in columns)


ROW = block(8, range(1), range(8))
SQUARE = block(8, range(4), range(4))
CUBE = tuple(x * 64 + y * 8 + z for x in range(4) for y in range(4) for z in range(4))
ONE = (
    ("mesh:8x8", "a row of 8", ROW),
    ("mesh:8x8", "a 4x4 corner", SQUARE),
    ("torus:8x8", "a row of 8", ROW),
    ("torus:8x8", "a 4x4 corner", SQUARE),
    ("torus:8x8x8", "a 4x4x4 corner", CUBE),
)
SEVERAL = (
    ("mesh:8x8", "2 rows of 8", (ROW, block(8, range(4, 5), range(8)))),
    ("torus:8x8", "2 rows of 8", (ROW, block(8, range(4, 5), range(8)))),
    ("torus:8x8", "2 4x4 corners", (SQUARE, block(8, range(4, 8), range(4, 8)))),
    ("torus:8x8", "4 4x4 corners", tuple(block(8, range(r, r + 4), range(c, c + 4)) for r in (0, 4) for c in (0, 4))),
    ("torus:8x8", "4 x every other", tuple(block(8, range(r, 8, 2), range(c, 8, 2)) for r in (0, 1) for c in (0, 1))),
)


def scheduled(topology: Topology, collective: Collective) -> Schedule:
    """At the best throughput that is known."""
    if collective.kind == "all_to_all":
        return flow.run(topology, collective, SIZE, Budget())
    return forest.run(topology, collective, SIZE, Budget())


def together(topology: Topology, groups: tuple[Group, ...]) -> tuple[Topology, Collective]:
    """The view of all groups, and their all_to_alls as one."""
    members = [rank for group in groups for rank in group]
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    sizes = np.where(owner[:, None] == owner, GRAIN, 1)
    return group_view(topology, members), Collective.make(
        "all_to_all", len(members), block_sizes=sizes.ravel().tolist()
    )


def _alone(topology: Topology, kind: str, group: Group) -> str:
    """GB/s of the group on its own links."""
    try:
        return _rate(1 / seconds_per_byte(scheduled(topology, Collective.make(kind, members=group))))
    except CollectiveError:
        return "-"  # no links join its ranks


def _rate(bytes_per_second: Fraction) -> str:
    return f"{float(bytes_per_second) / 1e9:.3f}"


def _one_group() -> Iterator[Row]:
    import scipy.optimize  # noqa: F401  its import is not what is measured

    for name, told, group in ONE:
        topology = parse(name)
        view = group_view(topology, group)
        for kind in KINDS:
            schedule, took = timed(partial(scheduled, view, Collective.make(kind, view.ranks)))
            yield _row((name, told, kind, _alone(topology, kind, group)), schedule, Fraction(1), took.processor)


def _several_groups() -> Iterator[Row]:
    for name, told, groups in SEVERAL:
        topology = parse(name)
        view, collective = together(topology, groups)
        schedule, took = timed(partial(scheduled, view, collective))
        of_group = len(groups[0]) * GRAIN * collective.unit
        yield _row((name, told, "all_to_all", _alone(topology, "all_to_all", groups[0])), schedule, of_group,
                   took.processor)  # fmt: skip


def _row(named: tuple[str, ...], schedule: Schedule, share: Fraction, seconds: float) -> Row:
    """`share`: of the schedule's size that is the size of one group's collective."""
    gap = gap_of(schedule)
    assert gap is not None
    cells = (*named, _rate(share / seconds_per_byte(schedule)), f"{float(gap):.2%}", f"{seconds:.2f}")
    return Row(cells, f"more than {GAP:.0%} above the bound" if gap > GAP else "", (schedule,))


_COLUMNS = (
    ("network", -11), ("group", -15), ("collective", -10), ("alone", 7), ("forwarded", 9), ("gap", 6), ("cpu s", 6),
)  # fmt: skip
TABLE = proven_table(
    "pccl",
    "collectives of process groups through the devices around them",
    (
        Part("One process group, GB/s: on its own links, and with all links; gap: to the bound", _COLUMNS, _one_group),
        Part("Several groups at once, GB/s of each: alone on its own links, and planned together", _COLUMNS,
             _several_groups),
    ),
)  # fmt: skip
