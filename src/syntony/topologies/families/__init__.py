"""The table of all families of topologies. To add one: a file here, and its `Family` in one of these tuples."""

from syntony.topologies.families.boxes.all_to_all_boxes import ASCEND_910B, GAUDI, GAUDI2, MI300X
from syntony.topologies.families.boxes.dgx import DGX_A100, DGX_H100
from syntony.topologies.families.boxes.dgx1 import DGX1, DGX1_P100
from syntony.topologies.families.boxes.mi250 import MI250
from syntony.topologies.families.boxes.nvl256 import NVL256
from syntony.topologies.families.boxes.nvswitch_boxes import DGX2, NVL72
from syntony.topologies.families.boxes.pcie_tree import PCIE_TREE
from syntony.topologies.families.clusters.frontier import FRONTIER
from syntony.topologies.families.clusters.hpn import HPN
from syntony.topologies.families.clusters.llama3 import LLAMA3_24K
from syntony.topologies.families.clusters.megascale import MEGASCALE
from syntony.topologies.families.clusters.rail import RAIL
from syntony.topologies.families.clusters.rail_only import RAIL_ONLY
from syntony.topologies.families.clusters.superpod import SUPERPOD, SUPERPOD_A100
from syntony.topologies.families.direct.bcube import BCUBE
from syntony.topologies.families.direct.dcell import DCELL
from syntony.topologies.families.direct.full import FULL
from syntony.topologies.families.direct.graphcore import GRAPHCORE_POD
from syntony.topologies.families.direct.grid import HYPERCUBE, MESH, TORUS
from syntony.topologies.families.direct.hammingmesh import HAMMINGMESH
from syntony.topologies.families.direct.jellyfish import JELLYFISH
from syntony.topologies.families.direct.ring import RING
from syntony.topologies.families.direct.star import STAR
from syntony.topologies.families.direct.tpu import TPUV2, TPUV3, TPUV4
from syntony.topologies.families.direct.wafer import WAFER
from syntony.topologies.families.family import Family
from syntony.topologies.families.optical.optical import SIP_OCS, TOPOOPT
from syntony.topologies.families.optical.sip_ring import SIP_RING
from syntony.topologies.families.switched.bigraph import BIGRAPH
from syntony.topologies.families.switched.clos import CLOS, FAT_TREE
from syntony.topologies.families.switched.cxl_pool import CXL_POOL
from syntony.topologies.families.switched.dragonfly import DRAGONFLY
from syntony.topologies.families.switched.dragonfly_plus import DRAGONFLY_PLUS

_ABSTRACT = (RING, FULL, STAR, TORUS, MESH, HYPERCUBE)
_BOXES = (PCIE_TREE, DGX1_P100, DGX1, DGX2, DGX_A100, DGX_H100, NVL72, NVL256, MI250)
_FULL_MESHES = (MI300X, GAUDI, GAUDI2, ASCEND_910B)
_PODS = (TPUV2, TPUV3, TPUV4, GRAPHCORE_POD, WAFER)
_CLUSTERS = (RAIL, LLAMA3_24K, SUPERPOD, SUPERPOD_A100, MEGASCALE, RAIL_ONLY, HPN, FRONTIER)
_SWITCHED = (CLOS, FAT_TREE, DRAGONFLY, DRAGONFLY_PLUS, BIGRAPH, JELLYFISH)
_SERVERS = (HAMMINGMESH, BCUBE, DCELL, CXL_POOL)
_OPTICAL = (SIP_RING, SIP_OCS, TOPOOPT)

_EVERY = (_ABSTRACT, _BOXES, _FULL_MESHES, _PODS, _CLUSTERS, _SWITCHED, _SERVERS, _OPTICAL)

FAMILIES: dict[str, Family] = {family.name: family for kind in _EVERY for family in kind}

__all__ = ["FAMILIES"]
