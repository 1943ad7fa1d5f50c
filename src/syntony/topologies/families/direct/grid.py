"""Torus and mesh: ranks on a grid of any number of dimensions, a cable to each neighbour.

        mesh:2x3                  torus:2x3: the rows close to rings
      (0,0)─(0,1)─(0,2)          ┌(0,0)─(0,1)─(0,2)┐
        │     │     │            └──│─────│─────│──┘
      (1,0)─(1,1)─(1,2)          ┌(1,0)─(1,1)─(1,2)┐
                                 └─────────────────┘

The first dimension varies slowest: in 2x3, cell (a,b) is rank 3 * a + b. A dimension of size 2 has one cable, wrapped
or not, so `torus:2x2x2` is the hypercube. A hypercube is the mesh of d dimensions of size 2: ranks differ in one bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial

from syntony.base.quantity import count, rate, rates, seconds, shape
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, ABSTRACT_BANDWIDTH, Place, Wiring, circle, require
from syntony.topologies.topology import Topology

Cell = tuple[int, ...]


def torus(
    shape: tuple[int, ...], bandwidth: tuple[Fraction, ...] = (ABSTRACT_BANDWIDTH,), alpha: float = ABSTRACT_ALPHA
) -> Topology:
    """A grid whose every dimension closes to a ring. `bandwidth`: one for all dimensions, or one for each.

    Symmetry: turn or mirror a dimension; exchange two of equal size and bandwidth.
    """
    return grid("torus", shape, bandwidth, alpha, wraps=[True] * len(shape))


def mesh(
    shape: tuple[int, ...], bandwidth: tuple[Fraction, ...] = (ABSTRACT_BANDWIDTH,), alpha: float = ABSTRACT_ALPHA
) -> Topology:
    """A grid with open ends. `bandwidth`: one for all dimensions, or one for each.

    Symmetry: mirror a dimension; exchange two of equal size and bandwidth.
    """
    return grid("mesh", shape, bandwidth, alpha, wraps=[False] * len(shape))


def hypercube(dimensions: int, bandwidth: Fraction = ABSTRACT_BANDWIDTH, alpha: float = ABSTRACT_ALPHA) -> Topology:
    """2**dimensions ranks, neighbours differ in one bit. Symmetry: flip a bit; exchange two bits."""
    require(0 <= dimensions <= 16, f"hypercube: dimensions is {dimensions}; it must be 0 to 16")
    sizes = (2,) * dimensions or (1,)
    return grid("hypercube", sizes, (bandwidth,), alpha, [False] * len(sizes), name=f"hypercube:{dimensions}")


def grid(
    family: str,
    sizes: tuple[int, ...],
    bandwidth: tuple[Fraction, ...],
    alpha: float,
    wraps: Sequence[bool],
    name: str = "",
) -> Topology:
    """A grid of which dimension i closes to rings if `wraps[i]`. Symmetry: as for `torus` and `mesh`, by dimension."""
    written = "x".join(map(str, sizes))
    require(bool(sizes) and min(sizes) >= 1, f"{family}: shape is {written}; every size must be at least 1")
    require(
        len(bandwidth) in (1, len(sizes)),
        f"{family}: {len(bandwidth)} bandwidths for {len(sizes)} dimensions; give one, or one for each dimension",
    )
    rates_of = bandwidth * len(sizes) if len(bandwidth) == 1 else bandwidth
    wiring = Wiring(name or f"{family}:{written}")
    places = circle(sizes[0]) if all(wraps) and len(sizes) == 1 else grid_places(sizes)
    number = {at: wiring.rank(place) for at, place in zip(cells(sizes), places, strict=True)}
    for at, rank in number.items():
        for axis, size in enumerate(sizes):
            if at[axis] + 1 < size or (wraps[axis] and size > 2):
                wiring.cable(rank, number[_turned(axis, size, at)], rates_of[axis], alpha)

    moves: list[Callable[[Cell], Cell]] = []
    last_alike: dict[tuple[int, Fraction, bool], int] = {}
    for axis, kind in enumerate(zip(sizes, rates_of, wraps, strict=True)):
        if wraps[axis]:
            moves.append(partial(_turned, axis, sizes[axis]))
        moves.append(partial(_mirrored, axis, sizes[axis]))
        if kind in last_alike:
            moves.append(partial(_exchanged, last_alike[kind], axis))
        last_alike[kind] = axis
    return wiring.topology(tuple(number[move(at)] for at in number) for move in moves)


def cells(sizes: tuple[int, ...]) -> Iterator[Cell]:
    """The cells in rank order."""
    return itertools.product(*map(range, sizes))


def _turned(axis: int, size: int, at: Cell) -> Cell:
    return (*at[:axis], (at[axis] + 1) % size, *at[axis + 1 :])


def _mirrored(axis: int, size: int, at: Cell) -> Cell:
    return (*at[:axis], size - 1 - at[axis], *at[axis + 1 :])


def _exchanged(one: int, other: int, at: Cell) -> Cell:
    exchanged = list(at)
    exchanged[one], exchanged[other] = at[other], at[one]
    return tuple(exchanged)


def grid_places(sizes: tuple[int, ...]) -> Iterator[Place]:
    """Where to draw the cells: the last dimension to the right, the one before downwards, the next into the page.

    Further dimensions repeat that picture to the right and downwards, alternately.
    """
    inwards = (0.36, 0.3)
    depth = sizes[-3] - 1 if len(sizes) >= 3 else 0
    pitch = max(1.0, 0.36 * depth + 0.4)  # wide enough that the planes behind are visible between those in front
    extent = [pitch * (sizes[-1] - 1) + inwards[0] * depth, inwards[1] * depth]
    steps: list[Place] = [(pitch, 0.0)]
    if len(sizes) >= 2:
        steps.append((0.0, -pitch))
        extent[1] += pitch * (sizes[-2] - 1)
    if len(sizes) >= 3:
        steps.append(inwards)
    for further, size in enumerate(reversed(sizes[:-3])):
        direction = further % 2
        stride = extent[direction] + 1.2
        steps.append((stride, 0.0) if direction == 0 else (0.0, -stride))
        extent[direction] += stride * (size - 1)
    for at in cells(sizes):
        yield (
            sum(step[0] * index for step, index in zip(steps, reversed(at), strict=True)),
            sum(step[1] * index for step, index in zip(steps, reversed(at), strict=True)),
        )


_GRID_PARAMETERS = (
    Parameter("shape", shape, "ranks along each dimension"),
    Parameter("bandwidth", rates, "bytes/s per link and direction; or one for each dimension, joined by x"),
    Parameter("alpha", seconds, "seconds per link"),
)

TORUS = Family(
    name="torus",
    build=torus,
    parameters=_GRID_PARAMETERS,
    summary="a grid of any number of dimensions whose rows close to rings",
    source="abstract",
    example="torus:4x4x4",
)

MESH = Family(
    name="mesh",
    build=mesh,
    parameters=_GRID_PARAMETERS,
    summary="a grid of any number of dimensions with open ends; mesh:8 is a line",
    source="abstract",
    example="mesh:4x4",
)

HYPERCUBE = Family(
    name="hypercube",
    build=hypercube,
    parameters=(
        Parameter("dimensions", count, "bits of a rank number; 2**dimensions ranks"),
        Parameter("bandwidth", rate, "bytes/s per link and direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="ranks whose numbers differ in one bit share a cable",
    source="abstract",
    example="hypercube:3",
)
