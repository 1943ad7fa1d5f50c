"""The input of an engine or a bound: a collective on a topology, each given as an object or by name."""

from __future__ import annotations

from collections.abc import Sequence

from syntony.base.command import UserError
from syntony.base.wording import counted
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology


def problem_of(
    topology: Topology | str,
    collective: Collective | str,
    chunks: int | None = None,
    root: int = 0,
    members: Sequence[int] | None = None,
) -> tuple[Topology, Collective]:
    """Both as objects. Raises UserError if a name is unknown or they do not fit together.

    The other arguments apply only to a collective given by name.

    chunks   per block; all_to_all: per rank's buffer
    root     of a rooted collective
    members  ranks of the topology that take part; default: all
    """
    if isinstance(topology, str):
        topology = parse(topology)
    if isinstance(collective, str):
        collective = _named(collective, chunks, root, range(topology.ranks) if members is None else members)
    elif chunks is not None or root or members is not None:
        raise UserError("a Collective has its own chunks, root and members; give them with the name of one only")
    return topology, Network(topology, collective).collective


def _named(kind: str, chunks: int | None, root: int, members: Sequence[int]) -> Collective:
    per_block = 1 if chunks is None else chunks
    if chunks is not None and kind in ("all_to_all", "all_reduce") and chunks % len(members):
        why = "one block per rank" if kind == "all_to_all" else "each rank sums its share of them"
        raise UserError(f"{counted(chunks, 'chunk')}: {kind} needs a multiple of {len(members)} ({why})")
    if kind == "all_to_all":
        per_block = max(1, per_block // len(members))
    return Collective.make(kind, chunks_per_block=per_block, root=root, members=tuple(members))
