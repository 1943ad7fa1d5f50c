r"""Twisted torus: a torus of dimensions n and 2n, whose short rings close with a shift along the long dimension.

        plain 2x4                        twisted 2x4
      (0,0)─(0,1)─(0,2)─(0,3)          (0,0)─(0,1)─(0,2)─(0,3)
        │     │     │     │              │     │     │     │
      (1,0)─(1,1)─(1,2)─(1,3)          (1,0)─(1,1)─(1,2)─(1,3)
        │     │     │     │              │     │     │     │
      (0,0) (0,1) (0,2) (0,3)          (0,2) (0,3) (0,0) (0,1)       where the columns wrap to

The rule in three dimensions: a link that wraps around in a dimension of size n also moves n along every dimension of
size 2n. The cells are then the integer points modulo a lattice that treats all axes alike: of the shapes n x n x 2n the
face-centred cubic lattice (all points n(x,y,z) with x+y+z even), of n x 2n x 2n the body-centred one (x, y, z all even
or all odd). So the links of every dimension carry equal load, where in the plain torus the long dimension is the
bottleneck, and distances shrink: 4x4x8 from 8 hops to 6, 4x8x8 from 10 to 6.

Camarero, Martinez, Beivide: Lattice Graphs for High-Scale Interconnection Topologies (TPDS 2015); the shapes are those
of TPU v4 (Jouppi et al., ISCA'23, section 2.8).
"""

from __future__ import annotations

from fractions import Fraction

from syntony.topologies.families.direct.grid import Cell, cells, grid_places
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.topology import Permutation, Topology


def twistable(sizes: tuple[int, ...]) -> bool:
    """Whether the three sizes are n, n, 2n or n, 2n, 2n in any order, n at least 3 (rings of two have one cable)."""
    return len(sizes) == 3 and min(sizes) >= 3 and set(sizes) == {min(sizes), 2 * min(sizes)}


def twisted_torus(name: str, sizes: tuple[int, ...], bandwidth: Fraction, alpha: float) -> Topology:
    """The twisted torus of `twistable` sizes.

    Symmetry: one step along a dimension, reflection, and any exchange of the three axes (they are alike).
    """
    wiring = Wiring(name)
    number = {at: wiring.rank(place) for at, place in zip(cells(sizes), grid_places(sizes), strict=True)}

    def rank_at(point: tuple[int, ...]) -> int:
        return number[_reduced(sizes, point)]

    for at, rank in number.items():
        for axis in range(3):
            wiring.cable(rank, rank_at((*at[:axis], at[axis] + 1, *at[axis + 1 :])), bandwidth, alpha)

    moves: list[Permutation] = [
        tuple(rank_at((*at[:axis], at[axis] + 1, *at[axis + 1 :])) for at in number) for axis in range(3)
    ]
    moves.append(tuple(rank_at((-x, y, z)) for x, y, z in number))
    moves.append(tuple(rank_at((y, x, z)) for x, y, z in number))
    moves.append(tuple(rank_at((y, z, x)) for x, y, z in number))
    return wiring.topology(moves)


def _reduced(sizes: tuple[int, ...], point: tuple[int, ...]) -> Cell:
    """The cell of an integer point: wraps around a short dimension are undone together with their twist."""
    short = min(sizes)
    laps = sum(at // size for at, size in zip(point, sizes, strict=True) if size == short)
    return tuple(
        at % size if size == short else (at + laps * short) % size for at, size in zip(point, sizes, strict=True)
    )
