"""Symmetry: a schedule as a few transfers and the permutations that generate the rest.

A generator permutes nodes of the topology (and thereby links) and chunks of the collective. It acts on a value through
the value's parts, and on a transfer through each of its fields; steps stay. If a schedule is invariant under the
generators, one transfer per orbit determines it:

    representative   rank 0 ──▶ rank 1  of chunk 0
    generator        node i -> i+1, chunk i -> i+1  (mod 4)
    expanded         0 ──▶ 1 of 0,   1 ──▶ 2 of 1,   2 ──▶ 3 of 2,   3 ──▶ 0 of 3

`expand` closes the representatives under the generators, column by column: the frontier of new rows is mapped by one
fancy index per generator until nothing new appears. `fold` is its inverse: it keeps the generators under which the
schedule really is invariant and the least row of each orbit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Generator, Schedule, Transfers
from syntony.synth.model.values import ValueBuilder, Values


class SymmetryError(UserError):
    """Generators that do not fit the topology or the collective of their schedule."""


ACTED_ON = ("agents", "links", "chunks")


@dataclass(frozen=True)
class Action:
    """A generator's action on everything that a schedule names; entry i is the image of i."""

    agents: NDArray[np.signedinteger]
    links: NDArray[np.signedinteger]
    chunks: NDArray[np.signedinteger]


def expand(schedule: Schedule) -> Schedule:
    """The whole schedule: representatives replaced by their orbits. The schedule itself if it has no symmetry.

    Equal values are merged. Transfers are ordered orbit after orbit, the listed one before its images, so transfers
    with the same lane and step leave in the listed order on every lane.

    Raises SymmetryError for a generator that is not an automorphism or does not map members to members, blocks to
    blocks.
    """
    if not schedule.symmetry:
        return schedule
    schedule = _named_once(schedule)
    actions = [action_of(schedule, generator) for generator in schedule.symmetry]
    values, images = _close_values(schedule.values, actions)
    rows = _rows_of(schedule.transfers)
    seen = {row.tobytes() for row in rows}
    whole, frontier = [rows], rows
    origins = [np.arange(len(rows))]  # per row, the listed row whose image it is
    while len(frontier):
        fresh, listed = [], []
        for action, image in zip(actions, images, strict=True):
            for row, origin in zip(_mapped(frontier, action, image), origins[-1].tolist(), strict=True):
                key = row.tobytes()
                if key not in seen:
                    seen.add(key)
                    fresh.append(row)
                    listed.append(origin)
        frontier = np.asarray(fresh, rows.dtype).reshape(-1, rows.shape[1])
        whole.append(frontier)
        origins.append(np.asarray(listed, np.int64))
    transfers = _transfers_of(np.concatenate(whole)[np.argsort(np.concatenate(origins), kind="stable")])
    return replace(schedule, values=values, transfers=transfers, symmetry=())


def fold(schedule: Schedule) -> Schedule:
    """The schedule as representatives under those of the topology's generators that leave it invariant.

    The schedule itself if no generator does, or if it already consists of representatives. Values that no
    representative uses stay in the table, which is not renumbered.
    """
    if schedule.symmetry:
        return schedule
    schedule = _named_once(schedule)
    rows = _rows_of(schedule.transfers)
    present = {row.tobytes() for row in rows}
    kept: list[Generator] = []
    mappings: list[tuple[Action, NDArray[np.signedinteger]]] = []
    for nodes in schedule.topology.generators:
        chunks = chunk_permutation(schedule.collective, nodes)
        if chunks is None:
            continue
        generator = Generator(tuple(nodes), chunks)
        action = action_of(schedule, generator)
        values, (image,) = _close_values(schedule.values, [action])
        if len(values) != len(schedule.values):
            continue
        if all(row.tobytes() in present for row in _mapped(rows, action, image)):
            kept.append(generator)
            mappings.append((action, image))
    if not kept:
        return schedule
    return replace(schedule, transfers=_transfers_of(_representatives(rows, mappings)), symmetry=tuple(kept))


def chunk_permutation(collective: Collective, nodes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The images of chunks under a permutation of nodes: the i-th chunk of a block goes to the i-th of its image.

    None if the nodes do not map members to members, the root to itself, or blocks to equal blocks.
    """
    position = {member: rank for rank, member in enumerate(collective.members)}
    image = [position.get(nodes[member], -1) for member in collective.members]
    if min(image) < 0 or (collective.rooted and image[collective.root] != collective.root):
        return None
    moved_blocks = _block_images(collective, np.asarray(image))
    starts = np.searchsorted(collective.chunks.block, np.arange(collective.blocks + 1))
    lengths = np.diff(starts)
    if not np.array_equal(lengths[moved_blocks], lengths):
        return None
    moved = np.arange(len(collective.chunks)) + np.repeat(starts[moved_blocks] - starts[:-1], lengths)
    if not np.array_equal(collective.chunks.weight[moved], collective.chunks.weight):
        return None
    return tuple(moved.tolist())


def _block_images(collective: Collective, ranks: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
    """The image of each block if rank r goes to ranks[r]."""
    if collective.blocks == 1:
        return np.zeros(1, np.int64)
    if collective.kind == "all_to_all":
        return (ranks[:, None] * collective.ranks + ranks).reshape(-1)
    return ranks


def action_of(schedule: Schedule, generator: Generator) -> Action:
    """The action of the generator on everything. Raises SymmetryError if it does not fit."""
    topology, collective = schedule.topology, schedule.collective
    targets = np.asarray(generator.chunks, np.int64)
    if not _permutes(np.asarray(generator.nodes, np.int64), len(topology.nodes)):
        raise SymmetryError(f"a symmetry generator is not a permutation of the {len(topology.nodes)} nodes")
    if not _permutes(targets, len(collective.chunks)):
        raise SymmetryError(f"a symmetry generator is not a permutation of the {len(collective.chunks)} chunks")
    position = {member: rank for rank, member in enumerate(collective.members)}
    ranks = [position.get(generator.nodes[member], -1) for member in collective.members]
    if min(ranks) < 0:
        raise SymmetryError("a symmetry generator maps a member of the collective to a rank that is none")
    block = collective.chunks.block
    strays = block[targets] != _block_images(collective, np.asarray(ranks))[block]
    if collective.rooted and ranks[collective.root] != collective.root:
        strays |= True
    if strays.any():
        chunk = int(np.argmax(strays))
        raise SymmetryError(
            f"a symmetry generator maps chunk {chunk} to {targets[chunk]}, which belongs to other ranks"
        )
    links = topology.link_permutation(generator.nodes)
    # An automorphism preserves abilities, so it maps able switches to able switches.
    switches = schedule.agents[collective.ranks :]
    at = {node: agent for agent, node in enumerate(switches, collective.ranks)}
    agents = [*ranks, *(at[generator.nodes[node]] for node in switches)]
    return Action(np.asarray(agents), np.asarray(links, np.int64), targets)


def _permutes(images: NDArray[np.int64], count: int) -> bool:
    """Whether the images are a permutation of 0..count-1."""
    if len(images) != count or (count and not 0 <= images.min() <= images.max() < count):
        return False
    return bool((np.bincount(images, minlength=count) == 1).all())


def _named_once(schedule: Schedule) -> Schedule:
    """The schedule with equal values merged; itself if there are none."""
    values, builder = schedule.values, ValueBuilder()
    number: list[int] = []
    for value, (chunk, rank) in enumerate(zip(values.chunk.tolist(), values.rank.tolist(), strict=True)):
        terms = [number[operand] for operand in values.operands(value)]
        number.append(builder.contribution(chunk, rank) if rank >= 0 else builder.sum(terms))
    if len(set(number)) == len(number):
        return schedule
    moved, renamed = schedule.transfers, np.asarray(number)
    named = replace(moved, value=renamed[moved.value], result=renamed[moved.result])
    return replace(schedule, values=builder.build(), transfers=named)


def _close_values(values: Values, actions: list[Action]) -> tuple[Values, list[NDArray[np.signedinteger]]]:
    """The distinct values with all their images (old ids stay), and the image of each value under each action."""
    builder = ValueBuilder()
    chunks, ranks, sums = values.chunk.tolist(), values.rank.tolist(), []
    for value in range(len(values)):
        if ranks[value] >= 0:
            builder.contribution(chunks[value], ranks[value])
        else:
            builder.sum(values.operands(value))
    moves = [(action.chunks.tolist(), action.agents.tolist()) for action in actions]
    images: list[list[int]] = [[] for _ in actions]
    closed = builder.build()
    done = 0
    while done < len(closed):
        sums = [closed.operands(value) for value in range(len(closed))]
        chunks, ranks = closed.chunk.tolist(), closed.rank.tolist()
        for value in range(done, len(closed)):
            for (chunk_move, rank_move), image in zip(moves, images, strict=True):
                if ranks[value] >= 0:
                    image.append(builder.contribution(chunk_move[chunks[value]], rank_move[ranks[value]]))
                else:
                    image.append(builder.sum([image[operand] for operand in sums[value]]))
        done, closed = len(closed), builder.build()
    return closed, [np.asarray(image, np.int64) for image in images]


def _rows_of(transfers: Transfers) -> NDArray[np.signedinteger]:
    """One int64 row per transfer: value, result, src, dst, step, then its links, padded with -1."""
    hops = np.diff(transfers.offset)
    rows = np.full((len(transfers), 5 + int(hops.max(initial=0))), -1, np.int64)
    for column, name in enumerate(("value", "result", "src", "dst", "step")):
        rows[:, column] = getattr(transfers, name)
    owner = np.repeat(np.arange(len(transfers)), hops)
    rows[owner, 5 + np.arange(len(owner)) - np.repeat(transfers.offset[:-1], hops)] = transfers.link
    return rows


def _transfers_of(rows: NDArray[np.signedinteger]) -> Transfers:
    routes = rows[:, 5:]
    used = routes >= 0
    offset = np.concatenate(([0], np.cumsum(used.sum(axis=1))))
    return Transfers(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], rows[:, 4], offset, routes[used])


def _mapped(
    rows: NDArray[np.signedinteger], action: Action, values: NDArray[np.signedinteger]
) -> NDArray[np.signedinteger]:
    image = rows.copy()
    image[:, 0:2] = values[rows[:, 0:2]]
    image[:, 2:4] = action.agents[rows[:, 2:4]]
    routes = rows[:, 5:]
    image[:, 5:] = np.where(routes >= 0, action.links[routes], -1) if len(action.links) else routes
    return image


def _representatives(
    rows: NDArray[np.signedinteger], mappings: list[tuple[Action, NDArray[np.signedinteger]]]
) -> NDArray[np.signedinteger]:
    """The first row of each orbit, in order: connected components of the rows under the generators."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    index = {row.tobytes(): position for position, row in enumerate(rows)}
    here = np.tile(np.arange(len(rows)), len(mappings))
    there = [index[row.tobytes()] for action, image in mappings for row in _mapped(rows, action, image)]
    graph = coo_array((np.ones(len(here), np.int8), (here, np.asarray(there, np.int64))), shape=(len(rows), len(rows)))
    _, orbit = connected_components(graph, directed=False)
    _, first = np.unique(orbit, return_index=True)
    return rows[np.sort(first)]
