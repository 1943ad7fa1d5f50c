"""The families of topologies, in one table. To add one: a file here, and its `Family` in one of these tuples."""

from topologies.families.all_to_all_boxes import GAUDI, GAUDI2, MI300X
from topologies.families.bcube import BCUBE
from topologies.families.bigraph import BIGRAPH
from topologies.families.clos import CLOS, FAT_TREE
from topologies.families.dcell import DCELL
from topologies.families.dgx import DGX_A100, DGX_H100
from topologies.families.dgx1 import DGX1, DGX1_P100
from topologies.families.dragonfly import DRAGONFLY
from topologies.families.dragonfly_plus import DRAGONFLY_PLUS
from topologies.families.full import FULL
from topologies.families.grid import HYPERCUBE, MESH, TORUS
from topologies.families.hammingmesh import HAMMINGMESH
from topologies.families.hpn import HPN
from topologies.families.jellyfish import JELLYFISH
from topologies.families.llama3 import LLAMA3_24K
from topologies.families.megascale import MEGASCALE
from topologies.families.mi250 import MI250
from topologies.families.nvswitch_boxes import DGX2, NVL72
from topologies.families.optical import SIP_OCS, TOPOOPT
from topologies.families.pcie_tree import PCIE_TREE
from topologies.families.rail import RAIL
from topologies.families.rail_only import RAIL_ONLY
from topologies.families.ring import RING
from topologies.families.sip_ring import SIP_RING
from topologies.families.star import STAR
from topologies.families.superpod import SUPERPOD, SUPERPOD_A100
from topologies.families.tpu import TPUV2, TPUV3, TPUV4
from topologies.family import Family

_ABSTRACT = (RING, FULL, STAR, TORUS, MESH, HYPERCUBE)
_BOXES = (PCIE_TREE, DGX1_P100, DGX1, DGX2, DGX_A100, DGX_H100, NVL72, MI250, MI300X, GAUDI, GAUDI2)
_PODS = (TPUV2, TPUV3, TPUV4)
_CLUSTERS = (RAIL, LLAMA3_24K, SUPERPOD, SUPERPOD_A100, MEGASCALE, RAIL_ONLY, HPN)
_SWITCHED = (CLOS, FAT_TREE, DRAGONFLY, DRAGONFLY_PLUS, BIGRAPH, JELLYFISH)
_SERVERS = (HAMMINGMESH, BCUBE, DCELL)
_OPTICAL = (SIP_RING, SIP_OCS, TOPOOPT)

FAMILIES: dict[str, Family] = {
    family.name: family for family in (*_ABSTRACT, *_BOXES, *_PODS, *_CLUSTERS, *_SWITCHED, *_SERVERS, *_OPTICAL)
}

__all__ = ["FAMILIES"]
