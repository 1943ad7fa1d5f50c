"""Traffic: the bytes that every rank of a Layout sends to every other one in a step of a Plan, on average over steps.

A collective's bytes are those of the Program that runs it: which instruction of which rank sends which chunks to whom,
with chunks cut at elements as in the executor. So a real run's counters (`Communicator.counters()`,
`syntony_sent_bytes_total`) agree byte for byte. Algorithm `shared` sends nothing (ranks of one host read one another's
memory), so a run to be compared must use another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.overlap.step.op import Kind
from syntony.overlap.step.ranks import groups_at, members
from syntony.overlap.step.shards import shifts

if TYPE_CHECKING:
    from syntony.overlap.step.layout import Layout
    from syntony.overlap.step.plan import Plan

Matrix = NDArray[np.int64]
"""[source, destination] in bytes."""

CANONICAL: Mapping[str, str] = MappingProxyType(
    {"all_reduce": "two_shot", "reduce_scatter": "direct", "all_gather": "direct", "all_to_all": "direct"}
)
"""The trainer's algorithms, for their bytes: slices exchanged directly, summed in the order of ranks."""


@lru_cache(maxsize=512)
def collective_bytes(kind: str, algorithm: str, ranks: int, size: int, element: int = 4) -> Matrix:
    """Bytes of one collective of `size` bytes (of the larger buffer of a rank) among `ranks` ranks.

    Raises UserError for an algorithm that does not support it.
    """
    from syntony import _core
    from syntony.synth.model.instructions import SENDS
    from syntony.synth.model.references import References
    from syntony.synth.simulation.message_sizes import MessageSizes

    if algorithm not in {one.name for one in _core.algorithms() if kind in one.collectives}:
        known = [one.name for one in _core.algorithms() if kind in one.collectives]
        raise UserError(f"no algorithm {algorithm!r} does {kind}; there are {', '.join(known)}")
    program = _core.build(algorithm, kind, ranks)
    code = References(program)
    sizes = MessageSizes(code, size, 1 << 20)
    elements = size // element // (1 if kind in ("all_reduce", "broadcast") else ranks)
    block, weight = program.chunks.T.astype(np.int64)
    total = np.bincount(block, weight).astype(np.int64)[block]
    after = np.zeros(len(block), np.int64)
    for number in np.unique(block):
        own = block == number
        after[own] = np.cumsum(weight[own])
    cut = (after * elements // total - (after - weight) * elements // total) * element
    before = np.concatenate(([0], np.cumsum(cut[sizes.chunk])))
    moved = before[sizes.chunk_offset[1:]] - before[sizes.chunk_offset[:-1]]
    sends = SENDS[code.opcode]
    matrix = np.zeros((ranks, ranks), np.int64)
    np.add.at(matrix, (code.agent[sends], program.field("send_peer")[sends]), moved[sends])
    matrix.setflags(write=False)
    return matrix


def traffic(
    plan: Plan, layout: Layout, algorithms: Mapping[str, str] = CANONICAL, element: int = 4
) -> dict[str, Matrix]:
    """The matrix of every lane with transfers, by its name. Their sum is the step's.

    algorithms   by collective; `element`: bytes of an element, at which chunks are cut
    """
    graph = plan.graph
    often = Counter(
        (
            op.lane, op.kind, op.device, op.peer, round(op.amount), shifts(graph, op) if op.kind is Kind.SHIFT else (),
            graph.every(op),
        )
        for op in graph
        if op.kind.moves and op.kind is not Kind.RECV
    )  # fmt: skip
    found: dict[str, Matrix] = {}
    for (lane, kind, device, peer, size, places, every), count in often.items():
        matrix = found.setdefault(lane, np.zeros((layout.ranks, layout.ranks), np.int64))
        if kind is Kind.SEND:
            lines = members(layout, "pp")[0]
            matrix[lines[:, device], lines[:, peer]] += size * count
            continue
        groups = groups_at(layout, lane, device)
        if kind is Kind.SHIFT:
            for by in places:
                matrix[groups, np.roll(groups, -by, axis=1)] += size // len(places) * count
        elif groups.shape[1] > 1:
            own = collective_bytes(str(kind), algorithms[kind], groups.shape[1], size, element)
            matrix[groups[:, :, None], groups[:, None, :]] += own * count // every
    return found


def report(found: Mapping[str, Matrix]) -> dict[str, Any]:
    """As data: bytes by lane, and the matrix [source][destination]."""
    total = sum(found.values(), np.zeros((1, 1), np.int64))
    return {
        "bytes": {lane: int(matrix.sum()) for lane, matrix in found.items()},
        "matrix": total.tolist(),
    }


def draw(found: Mapping[str, Matrix], title: str, path: str | Path) -> None:
    """Draws the sum: sources down, destinations across, colours by the logarithm of the bytes.

    The file's ending selects the format (.png, .svg, .pdf). Raises UserError if it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    from syntony.base.files.figure_file import write_figure
    from syntony.base.wording import rounded_size

    total = sum(found.values(), np.zeros((1, 1), np.int64)) / 1e6
    figure = Figure(figsize=(7.5, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shown = np.ma.masked_equal(total, 0)
    norm = LogNorm(shown.min(), shown.max()) if shown.count() and shown.min() < shown.max() else None
    image = axes.imshow(shown, norm=norm, cmap="viridis", interpolation="nearest")
    figure.colorbar(image, label="MB per step")
    axes.set(xlabel="destination rank", ylabel="source rank")
    totals = (f"{lane} {rounded_size(int(matrix.sum()))}" for lane, matrix in found.items())
    axes.set_title(f"{title}\n{', '.join(totals)}")
    write_figure(path, figure, dpi=150)
