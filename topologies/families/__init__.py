"""The families of topologies, in one table. To add one: a file here, and its `Family` in this tuple."""

from topologies.families.bigraph import BIGRAPH
from topologies.families.clos import CLOS, FAT_TREE
from topologies.families.dgx import DGX_A100, DGX_H100
from topologies.families.dgx1 import DGX1
from topologies.families.dragonfly import DRAGONFLY
from topologies.families.dragonfly_plus import DRAGONFLY_PLUS
from topologies.families.full import FULL
from topologies.families.grid import HYPERCUBE, MESH, TORUS
from topologies.families.hpn import HPN
from topologies.families.llama3 import LLAMA3_24K
from topologies.families.megascale import MEGASCALE
from topologies.families.rail import RAIL
from topologies.families.rail_only import RAIL_ONLY
from topologies.families.ring import RING
from topologies.families.star import STAR
from topologies.families.superpod import SUPERPOD, SUPERPOD_A100
from topologies.family import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        RING,
        FULL,
        STAR,
        TORUS,
        MESH,
        HYPERCUBE,
        DGX1,
        DGX_A100,
        DGX_H100,
        RAIL,
        CLOS,
        FAT_TREE,
        LLAMA3_24K,
        SUPERPOD,
        SUPERPOD_A100,
        MEGASCALE,
        RAIL_ONLY,
        HPN,
        DRAGONFLY,
        DRAGONFLY_PLUS,
        BIGRAPH,
    )
}

__all__ = ["FAMILIES"]
