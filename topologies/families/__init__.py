"""The families of topologies, in one table. To add one: a file here, and its `Family` in this tuple."""

from topologies.families.clos import CLOS, FAT_TREE
from topologies.families.dgx import DGX_A100, DGX_H100
from topologies.families.dgx1 import DGX1
from topologies.families.full import FULL
from topologies.families.grid import HYPERCUBE, MESH, TORUS
from topologies.families.rail import RAIL
from topologies.families.ring import RING
from topologies.families.star import STAR
from topologies.family import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (RING, FULL, STAR, TORUS, MESH, HYPERCUBE, DGX1, DGX_A100, DGX_H100, RAIL, CLOS, FAT_TREE)
}

__all__ = ["FAMILIES"]
